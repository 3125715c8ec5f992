"""Policies of a running cluster, as a client meets them: refused with their text, broken ones an error of the request."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from kraftlite.model.errors import ErrorCode
from kraftlite.protocol.kio_codec import build_entity
from kraftlite.testing import SyncCluster
from tests.clients.raw import Connection

# isort: split
from kio.index import load_request_schema

pytestmark = [pytest.mark.clients, pytest.mark.xdist_group("embedded")]

CONFIG = {
    "create.topic.policy.class.name": "tests.harness.policies:team_topics",
    "alter.config.policy.class.name": "tests.harness.policies:ShortRetention",
}


@pytest.fixture(scope="module")
def connection() -> Iterator[Connection]:
    with SyncCluster(controllers=1, brokers=1, config=CONFIG) as cluster:
        host, port = cluster.bootstrap_servers.split(",")[0].rsplit(":", 1)
        found = Connection(f"{host}:{port}", timeout_s=40)
        yield found
        found.close()


def _ask(connection: Connection, key: int, version: int, values: Mapping[str, Any]) -> Any:
    return connection.ask(build_entity(load_request_schema(key, version), values))


def create(connection: Connection, name: str, *, validate_only: bool = False, **configs: str) -> tuple[int, str | None]:
    topic = {
        "name": name,
        "num_partitions": 1,
        "replication_factor": 1,
        "assignments": (),
        "configs": [{"name": key.replace("_", "."), "value": value} for key, value in configs.items()],
    }
    answer = _ask(connection, 19, 7, {"topics": [topic], "timeout": 20_000, "validate_only": validate_only})
    (found,) = answer.topics
    return int(found.error_code), found.error_message


def alter(connection: Connection, name: str, value: str) -> tuple[int, str | None]:
    config = {"name": "retention.ms", "config_operation": 0, "value": value}
    resource = {"resource_type": 2, "resource_name": name, "configs": [config]}
    (found,) = _ask(connection, 44, 1, {"resources": [resource], "validate_only": False}).responses
    return int(found.error_code), found.error_message


def test_cm_65_clients_are_told_what_the_policy_says(connection: Connection) -> None:
    refused = (int(ErrorCode.POLICY_VIOLATION), "mine does not begin with team-")
    assert create(connection, "mine") == refused
    assert create(connection, "mine", validate_only=True) == refused
    assert create(connection, "team-a") == (0, None)
    long = (int(ErrorCode.POLICY_VIOLATION), "retention.ms must be 1000 at most")
    assert create(connection, "team-b", retention_ms="5000") == long
    assert alter(connection, "team-a", "5000") == long
    assert alter(connection, "team-a", "500")[0] == 0


def test_cm_66_a_broken_policy_costs_its_topic_alone(connection: Connection) -> None:
    code, words = create(connection, "broken")
    assert code == int(ErrorCode.UNKNOWN_SERVER_ERROR)
    assert words == "The policy tests.harness.policies:team_topics failed: RuntimeError: the policy has a bug"
    assert create(connection, "team-c") == (0, None)
