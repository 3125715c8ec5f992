"""The commands for access control, beside Kafka's own tool; and a cluster that forms again with its entries.

Source: SE-30, SE-34, SE-35; TO-16.
"""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
from click.testing import CliRunner, Result

from kraftlite.cli.main import cli
from kraftlite.client.acls import ALL_ENTRIES, describe_acls
from kraftlite.client.cluster import ClusterClient
from kraftlite.client.settings import ClientSettings
from kraftlite.testing import SyncCluster
from tests.clients.java.tools import kafka_tool, missing
from tests.harness.authorized import STANDARD, User, codes, users_by_address

pytestmark = [pytest.mark.clients, pytest.mark.xdist_group("embedded")]

CONFIG = {**STANDARD, "super.users": "User:ANONYMOUS;User:admin"}


@pytest.fixture(scope="module")
def cluster() -> Iterator[SyncCluster]:
    with SyncCluster(controllers=1, brokers=1, config=CONFIG) as found:
        yield found


def run(cluster: SyncCluster, *arguments: str) -> Result:
    return CliRunner().invoke(cli, [*arguments, "--bootstrap-server", cluster.bootstrap_servers])


def test_an_entry_is_added_explained_and_removed(cluster: SyncCluster) -> None:
    who = ("--principal", "alice", "--topic", "orders-eu")
    denied = run(cluster, "acl", "test", *who, "--operation", "write")
    assert denied.exit_code == 1 and denied.output.splitlines() == [
        "DENIED: User:alice write on topic orders-eu from 127.0.0.1",
        "because no entry is about this resource",
    ]
    added = run(cluster, "acl", "add", "--principal", "alice", "--topic", "orders", "--prefixed", "--operation", "write")
    assert added.output == "User:alice may write every topic orders…\n"
    allowed = run(cluster, "acl", "test", *who, "--operation", "describe")
    assert allowed.exit_code == 0
    because = "because of the prefixed entry: User:alice may write every topic orders…, which implies describe"
    assert allowed.output.splitlines()[1] == because
    run(cluster, "acl", "add", "--principal", "*", "--topic", "orders-eu", "--operation", "write", "--deny")
    denied = run(cluster, "acl", "test", *who, "--operation", "write", "-o", "json")
    assert not json.loads(denied.output)["allowed"] and "principal=User:*" in json.loads(denied.output)["rule"]
    listed = run(cluster, "acl", "list", "--topic", "orders-eu", "--pattern", "match", "-o", "json")
    assert {one["permission_type"] for one in json.loads(listed.output)} == {"ALLOW", "DENY"}
    super_user = run(cluster, "acl", "test", "--principal", "admin", "--topic", "orders-eu", "--operation", "write")
    assert super_user.output.splitlines()[1] == "because User:admin is in super.users"
    removed = run(cluster, "acl", "delete", "--topic", "orders-eu", "--topic", "orders")
    assert removed.output.splitlines() == [
        "removed: User:* may not write topic orders-eu",
        "removed: User:alice may write every topic orders…",
    ]
    assert run(cluster, "acl", "delete", "--topic", "orders").output == "nothing was there to remove\n"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("add", "--principal", "a", "--operation", "read"), "name what it is about"),
        (("add", "--principal", "a", "--operation", "read", "--cluster"), "there is no such operation on a cluster"),
        (("delete",), "say which entries"),
        (("delete", "--all", "--topic", "t"), "say which entries"),
        (("test", "--principal", "a", "--operation", "read"), "name one resource"),
    ],
)
def test_what_makes_no_sense_is_refused(cluster: SyncCluster, arguments: tuple[str, ...], words: str) -> None:
    found = run(cluster, "acl", *arguments)
    assert found.exit_code == 2 and words in found.output


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ("--remove --topic kept --principal User:a --force", "The --principal option is only available if --list is set"),
        ("--add --topic kept --allow-principal User:b --principal User:a", "The --principal option is only available"),
        ("--list --topic kept --allow-principal User:a", '"[list]" can\'t be used with option "[allow-principal]"'),
    ],
)
def test_kafka_acls_removes_nothing_when_an_option_has_no_effect(cluster: SyncCluster, arguments: str, words: str) -> None:
    def tool(text: str) -> Result:
        return run(cluster, "compat", "kafka-acls", *text.split())

    assert tool("--add --topic kept --allow-principal User:kept --operation Read").exit_code == 0
    found = tool(arguments)
    assert found.exit_code == 1 and words in found.stderr
    assert "principal=User:kept" in tool("--list --topic kept").stdout


TOOL_RUNS = """
--add --allow-principal User:alice --operation Read --operation Describe --topic t
--add --allow-principal User:a --deny-principal User:b --deny-host 10.0.0.1 --topic pre --resource-pattern-type prefixed
--add --allow-principal User:p --producer --topic t --idempotent
--add --allow-principal User:p --producer --topic t --transactional-id x
--add --allow-principal User:c --consumer --topic t --group g
--add --allow-principal User:c --cluster --operation AlterConfigs
--list
--list --topic pre-1 --resource-pattern-type match
--list --principal User:alice --principal User:p --topic t
--list --topic nope
--list --cluster
--remove --allow-principal User:alice --operation Read --topic t --force
--remove --topic t --force
--list --group g --topic t
--add --allow-principal User:a --user-principal User:b --operation CreateTokens
--add --allow-principal User:a --delegation-token tt --operation Describe
--list
--remove --topic pre --resource-pattern-type prefixed --force
--remove --group g --force
--list
""".strip().splitlines()

TOOL_REFUSALS = """
--add --operation Read --topic t
--add --allow-principal User:a --operation Read
--add --allow-principal User:a --topic t --resource-pattern-type any
--add --allow-principal User:a --topic t --producer --consumer
--add --allow-principal User:a --producer
--add --allow-principal User:a --idempotent --topic t
--add --allow-principal User:a --producer --topic t --operation Read
--add --list
--topic t
""".strip().splitlines()


def lines(text: str) -> list[str]:
    """Kafka's tool prints sets: the order of their members is that of its hashes."""
    return sorted(line.strip() for line in text.splitlines())


@pytest.mark.jvm
@pytest.mark.slow
@pytest.mark.skipif(bool(missing()), reason="no Java")
def test_the_tool_prints_what_kafkas_prints() -> None:
    """Each on a cluster of its own, command by command."""
    with (
        SyncCluster(controllers=1, brokers=1, config=CONFIG) as theirs,
        SyncCluster(controllers=1, brokers=1, config=CONFIG) as ours,
    ):
        for command in [*TOOL_RUNS, *TOOL_REFUSALS]:
            wanted = kafka_tool("kafka-acls", "--bootstrap-server", theirs.bootstrap_servers, *command.split())
            arguments = ["compat", "kafka-acls", "--bootstrap-server", ours.bootstrap_servers, *command.split()]
            found = CliRunner().invoke(cli, arguments)
            assert found.exit_code == wanted.code, command
            assert lines(found.stdout) == lines(wanted.out), command
            if wanted.code:
                assert found.stderr.splitlines()[0] == wanted.err.splitlines()[0], command


def test_a_cluster_forms_again_with_its_entries_and_without_super_users_among_the_nodes() -> None:
    """Every node stops and comes back: nodes are let in before the entries are known, clients after (SE-34)."""
    with users_by_address(), SyncCluster(controllers=3, brokers=1, config=STANDARD) as cluster:
        admin = ClusterClient(
            ClientSettings(bootstrap=(cluster.bootstrap_servers,), retry_timeout_ms=30_000, retry_backoff_ms=20)
        )
        alice = User("alice", cluster.bootstrap_servers)
        assert codes(alice.call(29, 3, _ANY)) == {31}
        alice.close()
        arguments = ["--principal", "alice", "--cluster", "--operation", "describe"]
        assert run(cluster, "acl", "add", *arguments).exit_code == 0
        cluster.stop(*cluster.brokers, *cluster.controllers)
        cluster.restart(*cluster.controllers, *cluster.brokers)
        (kept,) = describe_acls(admin, ALL_ENTRIES)
        assert kept.principal == "User:alice"
        alice = User("alice", cluster.bootstrap_servers)
        assert codes(alice.call(29, 3, _ANY)) == {0}
        assert codes(alice.call(30, 3, {"creations": []})) == set()
        alice.close()


_ANY = {
    "resource_type_filter": 1,
    "resource_name_filter": None,
    "pattern_type_filter": 1,
    "principal_filter": None,
    "host_filter": None,
    "operation": 1,
    "permission_type": 1,
}
