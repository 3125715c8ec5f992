"""Kafka's protocol at the controllers of a cluster of processes, on the port that nodes use, too."""

from __future__ import annotations

import contextlib
import re
import socket
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final
from uuid import UUID

import pytest
from click.testing import CliRunner

from kraftlite.cli.main import cli
from kraftlite.client.controllers import CONTROLLER_REQUESTS
from kraftlite.model.errors import ErrorCode
from kraftlite.model.ids import uuid_from_str
from kraftlite.protocol.kio_codec import build_entity
from tests.clients.raw import Closed, Connection
from tests.harness.local import Cluster, running, wait_for

# isort: split
from kio.index import load_request_schema

pytestmark = [pytest.mark.cluster, pytest.mark.xdist_group("controller-clients")]

OFFERED: Final = {
    17: (0, 1),  # SaslHandshake
    18: (0, 4),  # ApiVersions
    19: (2, 7),  # CreateTopics
    20: (1, 6),  # DeleteTopics
    29: (1, 3),  # DescribeAcls
    30: (1, 3),  # CreateAcls
    31: (1, 3),  # DeleteAcls
    32: (1, 4),  # DescribeConfigs
    33: (0, 2),  # AlterConfigs
    36: (0, 2),  # SaslAuthenticate
    37: (0, 3),  # CreatePartitions
    38: (1, 3),  # CreateDelegationToken
    39: (1, 2),  # RenewDelegationToken
    40: (1, 2),  # ExpireDelegationToken
    43: (0, 2),  # ElectLeaders
    44: (0, 1),  # IncrementalAlterConfigs
    45: (0, 1),  # AlterPartitionReassignments
    46: (0, 0),  # ListPartitionReassignments
    49: (0, 1),  # AlterClientQuotas
    51: (0, 0),  # AlterUserScramCredentials
    55: (0, 2),  # DescribeQuorum
    57: (0, 2),  # UpdateFeatures
    60: (0, 2),  # DescribeCluster
    64: (0, 0),  # UnregisterBroker
    80: (0, 1),  # AddRaftVoter
    81: (0, 0),  # RemoveRaftVoter
    82: (0, 0),  # UpdateRaftVoter
}
"""By API key: the first and the last version."""
QUORUM: Final = {"topics": [{"topic_name": "__cluster_metadata", "partitions": [{"partition_index": 0}]}]}


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with running(controllers=3, brokers=1) as found:
        yield found


def ask(cluster: Cluster, node_id: int, key: int, values: Mapping[str, Any], version: int | None = None) -> Any:
    """One request at a controller, in its last version unless a version is given."""
    connection = Connection(cluster.node(node_id).grpc)
    try:
        schema = load_request_schema(key, OFFERED[key][1] if version is None else version)
        return connection.ask(build_entity(schema, values))
    finally:
        connection.close()


def described(cluster: Cluster, node_id: int, *, kind: int = 2, version: int = 1) -> Any:
    values: dict[str, Any] = {
        "include_cluster_authorized_operations": True,
        "endpoint_type": kind,
        "include_fenced_brokers": False,
    }
    return ask(cluster, node_id, 60, values, version)


def active(cluster: Cluster, *, among: tuple[int, ...] = (1, 2, 3), not_led_by: int | None = None) -> int:
    """Who leads, as every controller that is asked says."""

    def agreed() -> int | None:
        told = {int(described(cluster, node_id).controller_id) for node_id in among}
        (leader,) = told if len(told) == 1 else (-1,)
        return None if leader in (-1, not_led_by) else leader

    found: int = wait_for("all controllers name one leader", agreed)
    return found


def code(entity: Any) -> ErrorCode:
    return ErrorCode(int(entity.error_code))


def topic(name: str, *, partitions: int = 1, replication: int = 1) -> dict[str, Any]:
    return {
        "name": name,
        "num_partitions": partitions,
        "replication_factor": replication,
        "assignments": [],
        "configs": [],
    }


def created(cluster: Cluster, node_id: int, name: str) -> ErrorCode:
    answer = ask(cluster, node_id, 19, {"topics": [topic(name)], "timeout": 10_000, "validate_only": False})
    return code(answer.topics[0])


def requests(name: str) -> dict[int, tuple[Mapping[str, Any], Any]]:
    """By API key of what only the active controller does: the request, and how its errors are taken from the answer."""
    config = {"resource_type": 2, "resource_name": name, "configs": [{"name": "retention.ms", "value": "5000"}]}
    incremental = {**config, "configs": [{"name": "segment.ms", "config_operation": 0, "value": "5000"}]}
    quota = {
        "entity": [{"entity_type": "user", "entity_name": "ann"}],
        "ops": [{"key": "producer_byte_rate", "value": 5.0, "remove": False}],
    }
    credential = {"name": "ann", "mechanism": 1, "iterations": 4096, "salt": b"salt", "salted_password": b"p" * 32}
    moved = {"name": name, "partitions": [{"partition_index": 0, "replicas": [4]}]}
    return {
        19: ({"topics": [topic(name)], "timeout": 10_000, "validate_only": False}, lambda it: it.topics[0]),
        37: (
            {"topics": [{"name": name, "count": 2, "assignments": None}], "timeout": 10_000, "validate_only": False},
            lambda it: it.results[0],
        ),
        33: ({"resources": [config], "validate_only": False}, lambda it: it.responses[0]),
        44: ({"resources": [incremental], "validate_only": False}, lambda it: it.responses[0]),
        45: (
            {"timeout": 10_000, "allow_replication_factor_change": True, "topics": [moved]},
            lambda it: it if int(it.error_code) else it.responses[0].partitions[0],
        ),
        46: ({"timeout": 10_000, "topics": None}, lambda it: it),
        49: ({"entries": [quota], "validate_only": False}, lambda it: it.entries[0]),
        51: ({"deletions": [], "upsertions": [credential]}, lambda it: it.results[0]),
        20: ({"topics": [{"name": name, "topic_id": None}], "timeout": 10_000}, lambda it: it.responses[0]),
    }


def test_cb_01_controllers_offer_what_an_administrator_needs_and_nothing_else(cluster: Cluster) -> None:
    for node_id in cluster.controllers:
        connection = Connection(cluster.node(node_id).grpc)
        assert connection.offered() == OFFERED
        connection.close()
    assert set(OFFERED) == CONTROLLER_REQUESTS | {82}, "UpdateRaftVoter is for voters"


def test_cb_01_the_active_controller_does_what_it_is_asked_for(cluster: Cluster) -> None:
    leader = active(cluster)
    for key, (values, told) in requests("decided").items():
        answer = told(ask(cluster, leader, key, values))
        assert code(answer) is ErrorCode.NONE, f"API {key}: {answer}"
        if key == 44:
            cluster.wait_topic("decided")
    cluster.wait_gone("decided")


def test_cb_01_security_is_answered_as_by_a_broker(cluster: Cluster) -> None:
    leader = active(cluster)
    acl = {
        "resource_type_filter": 2,
        "resource_name_filter": None,
        "pattern_type_filter": 3,
        "principal_filter": None,
        "host_filter": None,
        "operation": 2,
        "permission_type": 3,
    }
    token = {"owner_principal_type": None, "owner_principal_name": None, "renewers": [], "max_lifetime": 1000}
    binding = {
        "resource_type": 2,
        "resource_name": "t",
        "resource_pattern_type": 3,
        "principal": "User:ann",
        "host": "*",
        "operation": 2,
        "permission_type": 3,
    }
    found = {
        29: code(ask(cluster, leader, 29, acl)),
        30: code(ask(cluster, leader, 30, {"creations": [binding]}).results[0]),
        31: code(ask(cluster, leader, 31, {"filters": [acl]}).filter_results[0]),
        38: code(ask(cluster, leader, 38, token)),
        39: code(ask(cluster, leader, 39, {"hmac": b"x", "renew_period": 1})),
        40: code(ask(cluster, leader, 40, {"hmac": b"x", "expiry_time_period": 1})),
        17: code(ask(cluster, leader, 17, {"mechanism": "PLAIN"})),
        36: code(ask(cluster, leader, 36, {"auth_bytes": b""})),
    }
    assert found == {
        29: ErrorCode.SECURITY_DISABLED,
        30: ErrorCode.SECURITY_DISABLED,
        31: ErrorCode.SECURITY_DISABLED,
        38: ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED,
        39: ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED,
        40: ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED,
        17: ErrorCode.ILLEGAL_SASL_STATE,
        36: ErrorCode.ILLEGAL_SASL_STATE,
    }


def test_cb_01_a_controller_describes_its_own_configs_and_changes_those_of_any_broker(cluster: Cluster) -> None:
    leader = active(cluster)

    def config_of(kind: int, name: str) -> Any:
        asked = {"resource_type": kind, "resource_name": name, "configuration_keys": ["log.retention.ms", "node.id"]}
        values = {"resources": [asked], "include_synonyms": True, "include_documentation": False}
        return ask(cluster, leader, 32, values).results[0]

    own = config_of(4, str(leader))
    assert code(own) is ErrorCode.NONE and {it.name: it.value for it in own.configs}["node.id"] == str(leader)
    assert code(config_of(4, "4")) is ErrorCode.INVALID_REQUEST

    def altered(kind: int, name: str, times: int = 1) -> list[ErrorCode]:
        change = {"name": "log.retention.ms", "config_operation": 0, "value": "70000000"}
        one = {"resource_type": kind, "resource_name": name, "configs": [change]}
        return [code(it) for it in ask(cluster, leader, 44, {"resources": [one] * times, "validate_only": False}).responses]

    assert altered(4, "4") == [ErrorCode.NONE]
    assert altered(4, "") == [ErrorCode.NONE]
    assert altered(4, "", times=3) == [ErrorCode.INVALID_REQUEST]
    assert altered(3, "x") == [ErrorCode.UNSUPPORTED_VERSION]
    wait_for("the default is seen", lambda: "70000000" in [it.value for it in config_of(4, "").configs])


def served(cluster: Cluster, node_id: int) -> bool:
    """Whether somebody who comes now is let in, and not left waiting."""
    with contextlib.closing(Connection(cluster.node(node_id).grpc, timeout_s=3)) as other:
        try:
            return bool(other.offered())
        except (Closed, OSError):
            return False


def test_cb_07_a_controller_applies_what_is_set_for_it_and_has_it_after_a_restart(cluster: Cluster) -> None:
    leader = active(cluster)
    (standby, *_) = (node_id for node_id in cluster.controllers if node_id != leader)

    def limited(value: str | None) -> None:
        change = {"name": "max.connections", "config_operation": 1 if value is None else 0, "value": value}
        one = {"resource_type": 4, "resource_name": str(standby), "configs": [change]}
        others = tuple(node_id for node_id in cluster.controllers if node_id != standby)  # which may be full
        answer = ask(cluster, active(cluster, among=others), 44, {"resources": [one], "validate_only": False})
        assert [code(it) for it in answer.responses] == [ErrorCode.NONE]

    with contextlib.closing(Connection(cluster.node(standby).grpc)) as inside:
        assert inside.offered() and served(cluster, standby)
        limited("1")
        wait_for("newcomers wait", lambda: not served(cluster, standby))
        assert inside.offered() and served(cluster, leader), "who is inside stays, and the other controllers have no limit"
    cluster.kill(standby)
    cluster.restart(standby)
    with contextlib.closing(Connection(cluster.node(standby).grpc)) as inside:
        assert inside.offered()
        assert not served(cluster, standby), "nobody is served before the limit is known"
        limited(None)
        wait_for("newcomers come in", lambda: served(cluster, standby))


@pytest.mark.parametrize("kind", ["controller", "broker"])
def test_cb_07_levels_of_loggers_change_and_are_described(cluster: Cluster, kind: str) -> None:
    node_id = 4 if kind == "broker" else next(it for it in cluster.controllers if it != active(cluster))
    address = cluster.node(node_id).kafka if kind == "broker" else cluster.node(node_id).grpc
    assert address is not None

    def asked(key: int, version: int, values: Mapping[str, Any]) -> Any:
        with contextlib.closing(Connection(address)) as connection:
            return connection.ask(build_entity(load_request_schema(key, version), values))

    def altered(*changes: tuple[str, int, str | None], of: int = node_id, check: bool = False) -> tuple[str, str | None]:
        configs = [{"name": name, "config_operation": op, "value": value} for name, op, value in changes]
        one = {"resource_type": 8, "resource_name": str(of), "configs": configs}
        (found,) = asked(44, 1, {"resources": [one], "validate_only": check}).responses
        return code(found).name, found.error_message

    def levels() -> dict[str, str]:
        one = {"resource_type": 8, "resource_name": str(node_id), "configuration_keys": None}
        values = {"resources": [one], "include_synonyms": True, "include_documentation": True}
        (found,) = asked(32, 4, values).results
        assert {(it.config_source, it.read_only, it.is_sensitive) for it in found.configs} == {(6, False, False)}
        return {it.name: it.value for it in found.configs}

    before = levels()
    assert before["root"] == "INFO" == before[f"kraftlite.{kind}"]
    valid = "Valid log levels are DEBUG, ERROR, FATAL, INFO, TRACE, WARN"
    unsupported = f"Cannot set the log level of root to LOUD as it is not a supported log level. {valid}"
    assert altered(("root", 0, "LOUD")) == ("INVALID_CONFIG", unsupported)
    assert altered(("root", 1, None)) == ("INVALID_REQUEST", "Removing the log level of the root logger is not allowed")
    assert altered(("root", 2, "INFO")) == ("INVALID_REQUEST", "APPEND operation is not allowed for the BROKER_LOGGER resource")
    assert altered(("root", 0, "WARN"), ("nope", 0, "INFO")) == ("INVALID_CONFIG", "Logger nope does not exist!")
    assert altered(("root", 0, "WARN"), of=77)[0] == "INVALID_REQUEST"
    assert altered(("root", 0, "WARN"), check=True)[0] == "NONE"
    assert levels() == before, "what is refused or only checked changes nothing"
    assert altered(("root", 0, "WARN"), (f"kraftlite.{kind}", 0, "DEBUG"))[0] == "NONE"
    assert levels() == {**dict.fromkeys(before, "WARN"), f"kraftlite.{kind}": "DEBUG"}
    assert altered(("root", 0, "INFO"), (f"kraftlite.{kind}", 1, None))[0] == "NONE"
    assert levels() == before


def test_cb_07_a_controller_bounds_how_fast_an_address_may_connect(cluster: Cluster) -> None:
    leader = active(cluster)

    def bounded(value: float | None) -> None:
        entity = [{"entity_type": "ip", "entity_name": "127.0.0.1"}]
        change = {"key": "connection_creation_rate", "value": 0.0 if value is None else value, "remove": value is None}
        values = {"entries": [{"entity": entity, "ops": [change]}], "validate_only": False}
        assert [code(it) for it in inside.ask(build_entity(load_request_schema(49, 1), values)).entries] == [ErrorCode.NONE]

    with contextlib.closing(Connection(cluster.node(leader).grpc)) as inside:
        assert served(cluster, leader)
        bounded(1.0)
        wait_for("an address that comes too often", lambda: not all(served(cluster, leader) for _ in range(20)))
        bounded(None)
        wait_for("it may come as it likes", lambda: all(served(cluster, leader) for _ in range(20)))


def test_cb_02_a_standby_sends_clients_to_the_active_controller(cluster: Cluster) -> None:
    leader = active(cluster)
    (standby, *_) = (node_id for node_id in cluster.controllers if node_id != leader)
    for key, (values, told) in requests("nothing").items():
        answer = told(ask(cluster, standby, key, values))
        expected = ErrorCode.NONE if key == 46 else ErrorCode.NOT_CONTROLLER  # moves are known to a standby, too
        assert code(answer) is expected, f"API {key}: {answer}"
    update = {"feature": "metadata.version", "max_version_level": 20, "upgrade_type": 1}
    features = ask(cluster, standby, 57, {"timeout": 10_000, "feature_updates": [update], "validate_only": True})
    elected = ask(cluster, standby, 43, {"election_type": 0, "topic_partitions": None, "timeout": 10_000})
    unregistered = ask(cluster, standby, 64, {"broker_id": 4})
    assert [code(features), code(elected), code(unregistered)] == [ErrorCode.NOT_CONTROLLER] * 3
    quorum = ask(cluster, standby, 55, QUORUM)
    assert code(quorum) is ErrorCode.NONE
    assert code(quorum.topics[0].partitions[0]) is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert code(ask(cluster, leader, 55, QUORUM).topics[0].partitions[0]) is ErrorCode.NONE


def test_cb_02_every_controller_lists_the_registered_controllers(cluster: Cluster) -> None:
    leader = active(cluster)
    for node_id in cluster.controllers:
        wait_for("all are registered", lambda one=node_id: len(described(cluster, one).brokers) == 3)
        found = described(cluster, node_id)
        assert code(found) is ErrorCode.NONE
        assert (int(found.endpoint_type), int(found.controller_id)) == (2, leader)
        assert {int(it.broker_id): f"{it.host}:{it.port}" for it in found.brokers} == {
            one: cluster.node(one).grpc for one in cluster.controllers
        }


def test_cb_02_a_name_twice_is_refused_once_by_any_controller(cluster: Cluster) -> None:
    for node_id in cluster.controllers:
        names = [topic("twice"), topic("twice"), topic("__cluster_metadata")]
        answer = ask(cluster, node_id, 19, {"topics": names, "timeout": 10_000, "validate_only": False})
        found = {str(it.name): code(it) for it in answer.topics}
        assert len(answer.topics) == 2
        assert found == dict.fromkeys(("twice", "__cluster_metadata"), ErrorCode.INVALID_REQUEST)


def test_cb_03_what_is_to_be_listed_must_fit_the_listener(cluster: Cluster) -> None:
    assert code(described(cluster, 1, kind=1)) is ErrorCode.MISMATCHED_ENDPOINT_TYPE
    assert code(described(cluster, 1, kind=7)) is ErrorCode.UNSUPPORTED_ENDPOINT_TYPE
    assert code(described(cluster, 1, version=0)) is ErrorCode.INVALID_REQUEST
    assert code(described(cluster, 1, version=2)) is ErrorCode.NONE


def test_cb_01_dq_30_dq_33_voters_that_there_are_not(cluster: Cluster) -> None:
    leader = active(cluster)
    voter = {"cluster_id": None, "timeout": 1000, "voter_id": 9, "voter_directory_id": UUID(int=77)}
    listens = {"listeners": [{"name": "CONTROLLER", "host": "127.0.0.1", "port": 1}], "ack_when_committed": True}
    (standby, *_) = (node_id for node_id in cluster.controllers if node_id != leader)
    assert code(ask(cluster, leader, 80, voter | listens)) is ErrorCode.REQUEST_TIMED_OUT, "nobody listens there"
    assert code(ask(cluster, leader, 81, voter)) is ErrorCode.VOTER_NOT_FOUND
    assert code(ask(cluster, standby, 81, voter)) is ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_dq_36_a_controller_takes_what_a_voter_says_of_itself(cluster: Cluster) -> None:
    leader = active(cluster)
    quorum = ask(cluster, leader, 55, QUORUM)
    (standby, *_) = (node_id for node_id in cluster.controllers if node_id != leader)
    assert {node.node_id: [it.name for it in node.listeners] for node in quorum.nodes} == {
        node_id: ["CONTROLLER"] for node_id in cluster.controllers
    }
    epoch = quorum.topics[0].partitions[0].leader_epoch
    host, _, port = cluster.node(standby).grpc.rpartition(":")
    voter = {
        "cluster_id": None,
        "current_leader_epoch": epoch,
        "voter_id": standby,
        "voter_directory_id": uuid_from_str(cluster.node(standby).directory_id or ""),
        "listeners": [{"name": "CONTROLLER", "host": host, "port": int(port)}],
        "k_raft_version_feature": {"min_supported_version": 0, "max_supported_version": 1},
    }
    taken = ask(cluster, leader, 82, voter)
    assert code(taken) is ErrorCode.NONE and taken.current_leader.leader_id == leader
    assert code(ask(cluster, leader, 82, voter | {"current_leader_epoch": epoch - 1})) is ErrorCode.FENCED_LEADER_EPOCH
    assert code(ask(cluster, leader, 82, voter | {"voter_id": 99})) is ErrorCode.VOTER_NOT_FOUND
    assert code(ask(cluster, leader, 82, voter | {"voter_directory_id": UUID(int=777)})) is ErrorCode.VOTER_NOT_FOUND
    assert code(ask(cluster, leader, 82, voter | {"listeners": []})) is ErrorCode.INVALID_REQUEST
    refused = ask(cluster, standby, 82, voter)
    assert code(refused) is ErrorCode.NOT_LEADER_OR_FOLLOWER and refused.current_leader.leader_id == leader


def test_cb_01_what_is_not_offered_closes_the_connection(cluster: Cluster) -> None:
    connection = Connection(cluster.node(1).grpc)
    with pytest.raises(Closed):
        connection.ask(load_request_schema(10, 0)(key="a"))
    connection.close()


def test_cb_01_the_port_still_closes_what_speaks_neither_protocol(cluster: Cluster) -> None:
    host, _, port = cluster.node(1).grpc.rpartition(":")
    for sent in (b"GET / HTTP/1.1\r\n\r\n", b"\x16\x03\x01\x02\x00\x01", b"PRI * HTTP/1.1\r\n\r\n\r\n\r\n\r\n"):
        with socket.create_connection((host, int(port)), timeout=20) as found:
            found.sendall(sent)
            assert found.recv(10) == b""


def test_cb_02_the_active_controller_dies_between_two_calls(cluster: Cluster) -> None:
    old = active(cluster)
    others = tuple(node_id for node_id in cluster.controllers if node_id != old)
    assert created(cluster, old, "before") is ErrorCode.NONE
    cluster.kill(old)
    leader = active(cluster, among=others, not_led_by=old)
    wait_for("the new one has all", lambda: created(cluster, leader, "before") is ErrorCode.TOPIC_ALREADY_EXISTS)
    assert created(cluster, leader, "after") is ErrorCode.NONE
    cluster.restart(old)
    cluster.wait_quorum(caught_up=True)
    assert active(cluster) in cluster.controllers


def tool(cluster: Cluster, name: str, *arguments: str, code: int = 0) -> str:
    """One of Kafka's tools as kraftlite has it, sent to a standby: it finds the active controller by itself."""
    leader = active(cluster)
    (standby, *_) = (node_id for node_id in cluster.controllers if node_id != leader)
    where = ("--bootstrap-controller", cluster.node(standby).grpc)
    arguments = (arguments[0], *where, *arguments[1:]) if name == "kafka-cluster" else (*where, *arguments)
    result = CliRunner().invoke(cli, ["compat", name, *arguments], catch_exceptions=False)
    assert result.exit_code == code, result.output
    return result.output


@pytest.fixture
def brokerless(cluster: Cluster) -> Iterator[Cluster]:
    """The cluster while its broker is dead."""
    cluster.kill(4)
    yield cluster
    cluster.restart(4)
    cluster.wait_brokers()


def test_cb_04_tools_work_while_every_broker_is_dead(brokerless: Cluster, tmp_path: Path) -> None:
    cluster, leader = brokerless, active(brokerless)
    quorum = tool(cluster, "kafka-metadata-quorum", "describe", "--status")
    assert re.search(rf"^LeaderId: +{leader}$", quorum, re.MULTILINE), quorum
    assert "Leader" in tool(cluster, "kafka-metadata-quorum", "describe", "--replication")
    endpoints = tool(cluster, "kafka-cluster", "list-endpoints")
    assert [line.split()[::4] for line in endpoints.splitlines()[1:]] == [[str(n), "controller"] for n in (1, 2, 3)]
    assert "ENDPOINT_TYPE" in endpoints and "STATE" not in endpoints
    assert "Cluster ID: " in tool(cluster, "kafka-cluster", "cluster-id")
    assert "metadata.version" in tool(cluster, "kafka-features", "describe")
    changed = ("--alter", "--entity-type", "brokers", "--entity-default", "--add-config", "log.retention.ms=80000000")
    assert "Completed updating default config for brokers" in tool(cluster, "kafka-configs", *changed)
    described_default = ("--describe", "--entity-type", "brokers", "--entity-default")
    wait_for("the standby knows", lambda: "80000000" in tool(cluster, "kafka-configs", *described_default))
    assert tool(cluster, "kafka-reassign-partitions", "--list") == "No partition reassignments found.\n"
    plan = tmp_path / "plan.json"
    plan.write_text('{"version": 1, "partitions": [{"topic": "t", "partition": 0, "replicas": [4]}]}')
    cancel = ("--cancel", "--reassignment-json-file", str(plan), "--preserve-throttles")
    said = "None of the specified partition reassignments are active.\nNone of the specified partition moves are active."
    assert tool(cluster, "kafka-reassign-partitions", *cancel) == said
    own = ("--describe", "--entity-type", "brokers", "--entity-name", str(leader), "--all")
    assert f"node.id={leader} " in tool(cluster, "kafka-configs", *own)
    topics = tool(cluster, "kafka-configs", "--describe", "--entity-type", "topics", code=1)
    assert "This Admin API is not yet supported when communicating directly with the controller quorum." in topics
    both = tool(cluster, "kafka-features", "--bootstrap-server", "localhost:1", "describe", code=1)
    assert "Only one of --bootstrap-server or --bootstrap-controller can be specified" in both


def test_cb_04_controllers_answer_when_every_broker_is_dead(cluster: Cluster, request: pytest.FixtureRequest) -> None:
    leader = active(cluster)
    created(cluster, leader, "lonely")
    request.getfixturevalue("brokerless")
    for key in (44, 33, 49, 51, 46, 20):
        values, told = requests("lonely")[key]
        assert code(told(ask(cluster, leader, key, values))) is ErrorCode.NONE, key
    assert len(described(cluster, leader).brokers) == 3
    assert code(ask(cluster, leader, 55, QUORUM).topics[0].partitions[0]) is ErrorCode.NONE

    def refused() -> bool:
        values = {"topics": [topic("nobody-to-hold-it")], "timeout": 10_000, "validate_only": True}
        return code(ask(cluster, leader, 19, values).topics[0]) is ErrorCode.INVALID_REPLICATION_FACTOR

    wait_for("the broker is fenced", refused)
    assert code(ask(cluster, leader, 64, {"broker_id": 4})) is ErrorCode.NONE
