"""The shims beside Kafka's own tools, on one cluster: the same lines on standard output and the same exit status."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from click.testing import CliRunner

from kraftlite.cli.main import cli
from tests.clients.java.tools import kafka_tool, missing
from tests.harness.embedded import embedded
from tests.harness.local import Cluster

pytestmark = [pytest.mark.clients, pytest.mark.jvm, pytest.mark.slow, pytest.mark.xdist_group("embedded")]

CONFIG = {"group.initial.rebalance.delay.ms": "0", "offsets.topic.num.partitions": "1", "offsets.topic.replication.factor": "1"}

READS = """
kafka-topics --list
kafka-topics --describe
kafka-topics --describe --topic two
kafka-topics --describe --topic t.*
kafka-topics --describe --under-replicated-partitions
kafka-topics --describe --at-min-isr-partitions
kafka-topics --describe --topics-with-overrides
kafka-topics --describe --topic nope
kafka-configs --describe --topic two
kafka-configs --describe --topic two --all
kafka-configs --describe --entity-type brokers
kafka-configs --describe --entity-type brokers --entity-name 2 --all
kafka-configs --describe --entity-type brokers --entity-default
kafka-configs --describe --entity-type broker-loggers --entity-name 2
kafka-configs --describe --entity-type users
kafka-configs --describe --user u
kafka-configs --describe --entity-type users --entity-type clients
kafka-configs --describe --entity-type ips
kafka-configs --describe --entity-type groups
kafka-configs --describe --group g
kafka-client-metrics --list
kafka-client-metrics --describe
kafka-client-metrics --alter --name m
kafka-get-offsets
kafka-get-offsets --topic two --time earliest
kafka-get-offsets --topic-partitions two:0-2,one --time -1
kafka-get-offsets --topic nope
kafka-get-offsets --topic one,two
kafka-get-offsets --topic "one"
kafka-get-offsets --topic-partitions two:1,
kafka-get-offsets --topic-partitions two:,one
kafka-get-offsets --topic two --partitions 0,
kafka-get-offsets --topic two --partitions 1_0
kafka-get-offsets --topic one --time 1_0
kafka-get-offsets --topic one --time earliest-pending-upload
kafka-get-offsets --topic one --time -5
kafka-consumer-groups --list
kafka-consumer-groups --describe --group g
kafka-consumer-groups --describe --group g --verbose
kafka-consumer-groups --describe --group g --members
kafka-consumer-groups --describe --group g --state
kafka-consumer-groups --describe --group nobody
kafka-consumer-groups --delete --group nobody
kafka-consumer-groups --reset-offsets --group g --topic one --to-earliest --dry-run
kafka-consumer-groups --reset-offsets --group g --topic one --shift-by -1 --dry-run --export
kafka-groups --list
kafka-transactions list
kafka-transactions list --duration-filter 1 --transactional-id-pattern x.*
kafka-transactions describe --transactional-id nobody
kafka-transactions describe-producers --topic one --partition 0
kafka-transactions describe-producers --topic one --partition 0 --broker-id 2
kafka-transactions find-hanging --topic two --max-transaction-timeout 0
kafka-transactions describe-producers --topic a/b --partition 0
kafka-transactions find-hanging
kafka-transactions find-hanging --topic a/b
kafka-transactions find-hanging --topic two --max-transaction-timeout 1_5
kafka-transactions abort --topic one --partition 0 --start-offset 7
kafka-leader-election --election-type PREFERRED --topic two --partition 0
kafka-leader-election --election-type PREFERRED --topic nope --partition 0
kafka-reassign-partitions --list
kafka-metadata-quorum describe
kafka-metadata-quorum describe --status --human-readable
kafka-features describe
kafka-features describe --node-id 2
kafka-features describe --node-id -1
kafka-features upgrade --feature nope=3
kafka-features upgrade --feature nope=0
kafka-features upgrade --feature nope
kafka-features upgrade --feature group.version=x
kafka-features upgrade --feature group.version=1 --feature group.version=1
kafka-features upgrade
kafka-features upgrade --metadata 4.3 --dry-run
kafka-features upgrade --metadata 9.9 --dry-run
kafka-features upgrade --release-version 4.3 --metadata 4.3
kafka-features upgrade --feature group.version=1 --feature metadata.version=99
kafka-features downgrade --feature metadata.version=29 --feature group.version=0 --dry-run
kafka-features downgrade --feature metadata.version=29 --unsafe
kafka-features downgrade --feature metadata.version=6
kafka-features downgrade --feature group.version=0 --dry-run
kafka-features downgrade --feature group.version=1
kafka-features disable --feature group.version --dry-run
kafka-features disable --feature metadata.version
kafka-features disable
kafka-features version-mapping --release-version 9.9
kafka-features feature-dependencies --feature metadata.version=30
kafka-features feature-dependencies --feature metadata.version=99
kafka-features feature-dependencies --feature eligible.leader.replicas.version=1
kafka-features feature-dependencies --feature group.version=1 --feature transaction.version=2
kafka-features feature-dependencies --feature group.version=9
kafka-features feature-dependencies --feature nope=1
kafka-log-dirs --describe --broker-list 2 --topic-list one
kafka-log-dirs --describe --broker-list 2,99
kafka-console-consumer --topic one --partition 0 --offset 1 --max-messages 2
"""


@pytest.fixture(scope="module")
def filled() -> Iterator[Cluster]:
    reason = missing()
    if reason is not None:
        pytest.skip(reason)
    with embedded(controllers=1, brokers=3, config=CONFIG) as cluster:
        for arguments in (
            "kafka-topics --create --topic one --partitions 1 --replication-factor 1",
            "kafka-topics --create --topic two --partitions 3 --replication-factor 3 --config retention.ms=5000",
            "kafka-configs --alter --user u --add-config producer_byte_rate=10485760,request_percentage=12.5",
            "kafka-configs --alter --user u --add-config SCRAM-SHA-256=[password=secret]",
            "kafka-configs --alter --ip 10.0.0.1 --add-config connection_creation_rate=5",
            "kafka-configs --alter --group g --add-config consumer.session.timeout.ms=50000",
            "kafka-client-metrics --alter --name m --metrics a,b --interval 1000",
        ):
            assert shim(cluster, arguments)[0] == 0, arguments
        cluster.wait_topic("two")
        assert cluster.produce("one", ["1", "2", "3"]) == []
        read = "kafka-console-consumer --topic one --group g --from-beginning --max-messages 2"
        assert shim(cluster, read)[1] == ["1", "2"]
        yield cluster


def shim(cluster: Cluster, arguments: str) -> tuple[int, list[str]]:
    tool, *rest = arguments.split()
    result = CliRunner().invoke(cli, ["compat", tool, "--bootstrap-server", cluster.bootstrap, *rest], catch_exceptions=False)
    return result.exit_code, lines(result.stdout)


def lines(text: str) -> list[str]:
    """Blanks at the ends of lines do not count, nor the order of a topic's configs, nor epochs of the metadata log."""
    found = []
    for line in text.strip("\n").splitlines():
        head, configs, values = re.sub(r"Epoch: \d+$", "Epoch: N", line.rstrip()).partition("Configs: ")
        found.append(head + configs + ",".join(sorted(values.split(","))))
    return found if found != [""] else []


@pytest.mark.parametrize("arguments", READS.strip().splitlines())
def test_a_shim_prints_what_kafkas_tool_prints(filled: Cluster, arguments: str) -> None:
    tool, *rest = arguments.split()
    done = kafka_tool(tool, "--bootstrap-server", filled.bootstrap, *rest)
    status, printed = shim(filled, arguments)
    assert sorted(printed) == sorted(lines(done.out)), "in any order: Kafka's hash maps have one of their own"
    assert status == done.code
