"""What kafka-consumer-groups does with options that do not go together, with several groups, and with what there is not."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, TopicPartition

from tests.embedded.test_compat import CONFIG, Tools
from tests.harness.embedded import embedded
from tests.harness.local import Cluster

pytestmark = [pytest.mark.clients, pytest.mark.xdist_group("embedded")]
TOOL = "kafka-consumer-groups"


@pytest.fixture(scope="module")
def one() -> Iterator[Cluster]:
    with embedded(controllers=1, brokers=1, config=CONFIG) as cluster:
        tools = Tools(cluster.bootstrap)
        tools.create("orders")
        assert cluster.produce("orders", ["1", "2", "3"]) == []
        yield cluster


@pytest.fixture
def tool(one: Cluster) -> Tools:
    return Tools(one.bootstrap)


def committed(one: Cluster, group: str, offset: int = 1) -> None:
    consumer = Consumer({"bootstrap.servers": one.bootstrap, "group.id": group, "log_level": 0})
    consumer.commit(offsets=[TopicPartition("orders", 0, offset)], asynchronous=False)
    consumer.close()


def offset_of(tool: Tools, group: str) -> str:
    return tool.good(TOOL, "--describe", "--group", group).splitlines()[-1].split()[3]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ("--delete --group kept --topic orders", "does not support topic-specific offset deletion"),
        ("--delete --all-groups --topic orders", "does not support topic-specific offset deletion"),
        ("--delete --group kept --members", "[members] are unavailable"),
        ("--delete-offsets --group kept --group kept2 --topic orders", "Found multiple arguments for option group"),
        ("--delete-offsets --group kept --topic orders:x", "Invalid partition 'x' specified in topic arg 'orders:x'"),
        ("--list --group kept", '"[group]" can\'t be used with option "[list]"'),
        ("--list --topic orders", '"[topic]" can\'t be used with option "[list]"'),
        ("--list --verbose", "[verbose] are unavailable"),
        ("--describe --group kept --topic orders", '"[topic]" can\'t be used with option "[describe]"'),
        ("--describe --group kept --state Stable", "does not take a value for [state]"),
        ("--describe --group kept --type", "[type] are unavailable"),
        ("--reset-offsets --group kept --to-latest --dry-run", "One of the reset scopes should be defined"),
        ("--reset-offsets --group kept --topic orders --shift-by 99999999999999999999", "allowed is a whole number of 64 bits"),
        ("--reset-offsets --group fresh --topic orders --shift-by 1 --dry-run", "Cannot shift offset for partition orders-0"),
        ("--list --timeout -1", "default.api.timeout.ms='-1'"),
    ],
)
def test_to_27_options_that_do_not_go_together_are_refused_and_nothing_is_done(
    one: Cluster, tool: Tools, arguments: str, said: str
) -> None:
    committed(one, "kept")
    assert said in tool.bad(TOOL, *arguments.split())
    assert offset_of(tool, "kept") == "1"


def test_to_28_a_reset_of_several_groups_passes_by_the_active_ones(one: Cluster, tool: Tools) -> None:
    committed(one, "idle")
    committed(one, "idle2")
    consumer = Consumer({"bootstrap.servers": one.bootstrap, "group.id": "busy", "auto.offset.reset": "earliest", "log_level": 0})
    consumer.subscribe(["orders"])
    try:
        assert consumer.poll(20) is not None
        arguments = ["--reset-offsets", "--group=busy", "--group=idle", "--group=idle2", "--topic=orders", "--to-latest"]
        said = tool.good(TOOL, *arguments, "--execute")
        assert "if the group 'busy' is inactive, but the current state is Stable." in said
        assert [line.split() for line in said.splitlines()[-2:]] == [["idle", "orders", "0", "3"], ["idle2", "orders", "0", "3"]]
        assert offset_of(tool, "idle") == offset_of(tool, "idle2") == "3"
        assert "busy" in tool.good(TOOL, "--describe", "--group", "busy")
    finally:
        consumer.close()


def test_to_28_all_topics_counts_more_and_what_was_executed_is_exported(one: Cluster, tool: Tools, tmp_path: Path) -> None:
    committed(one, "exported", 3)
    reset = [
        "--reset-offsets",
        "--group",
        "exported",
        "--topic",
        "nope",
        "--all-topics",
        "--to-earliest",
        "--execute",
        "--export",
    ]
    assert tool.good(TOOL, *reset) == "orders,0,0\n"
    assert offset_of(tool, "exported") == "0"
    plan = tmp_path / "plan.csv"
    plan.write_text("another,orders,0,1\n")
    said = tool.run(TOOL, "--reset-offsets", "--group", "exported", "--from-file", str(plan), "--execute")
    assert said.exit_code == 0
    assert "No reset plan for group exported found" in said.stderr
    assert offset_of(tool, "exported") == "0"


def test_to_28_offsets_of_what_there_is_not_are_told_for_each_partition(one: Cluster, tool: Tools) -> None:
    committed(one, "partly")
    said = tool.good(TOOL, "--delete-offsets", "--group", "partly", "--topic", "orders:0,7", "--topic", "nope")
    assert "Encountered some partition-level error" in said
    rows = [line.split(maxsplit=2) for line in said.splitlines()[-3:]]
    unknown = "org.apache.kafka.common.errors.UnknownTopicOrPartitionException: This server does not host this topic-partition."
    assert rows == [["nope", "-", f"Error: {unknown}"], ["orders", "0", "Successful"], ["orders", "7", f"Error: {unknown}"]]
    said = tool.good(TOOL, "--delete-offsets", "--group", "nobody", "--topic", "orders")
    assert said.startswith("\nError: The group id does not exist.\n\nTOPIC")
    assert said.splitlines()[-1].split(maxsplit=3)[3].startswith("org.apache.kafka.common.errors.GroupIdNotFoundException: ")


def test_to_27_groups_are_described_by_name_and_listed_below_their_header(one: Cluster, tool: Tools) -> None:
    for name in ("b", "a"):
        committed(one, name)
    said = tool.good(TOOL, "--describe", "--group", "b", "--group", "a", "--offsets")
    assert [line.split()[0] for line in said.splitlines() if line and not line.startswith("GROUP")] == ["a", "b"]
    assert tool.good(TOOL, "--list", "--state", "empty").startswith("GROUP ")
    assert "group id is empty" in tool.good(TOOL, "--describe", "--group", "")


@pytest.mark.parametrize(
    ("pattern", "verdict"),
    [
        ("a.*", "valid"),
        ("(?<n>a)", "valid"),
        ("a++", "invalid: invalid nested repetition operator"),
        ("[", "invalid: missing closing ]"),
    ],
)
def test_to_27_a_regular_expression_is_one_of_re2(tool: Tools, pattern: str, verdict: str) -> None:
    assert tool.good(TOOL, "--validate-regex", pattern) == f"The regular expression `{pattern}` is {verdict}.\n"


def test_kafka_groups_prints_its_header_and_refuses_filters_that_do_not_go_together(tool: Tools) -> None:
    assert tool.good("kafka-groups", "--list", "--share").split() == ["GROUP", "TYPE", "PROTOCOL"]
    assert '"[protocol]"' in tool.bad("kafka-groups", "--list", "--consumer", "--protocol", "x")


def test_to_38_client_metrics_are_described_only_where_there_are_any(tool: Tools) -> None:
    metrics = "kafka-client-metrics"
    assert tool.good(metrics, "--describe", "--name", "no") == (
        "The client metric resource no doesn't exist and doesn't have dynamic config.\n"
    )
    matches = ["--match", "client_id=a", "--match", "client_software_name=b"]
    tool.good(metrics, "--alter", "--name", "yes", "--metrics", "m", *matches)
    assert "match=client_id=a,client_software_name=b" in tool.good(metrics, "--describe", "--name", "yes")
    assert "Error while executing client metrics command : Illegal" in tool.bad(
        metrics, "--alter", "--name=yes", "--match=nope=x"
    )
    assert "Invalid interval value x" in tool.bad(metrics, "--alter", "--name", "yes", "--interval", "x")
    for action, option in (("--list", "--name=yes"), ("--describe", "--metrics=m"), ("--delete", "--generate-name")):
        assert "can't be used with" in tool.bad(metrics, action, option)
    tool.good(metrics, "--delete", "--name", "yes")


def test_console_tools_take_an_empty_separator_and_every_part_of_a_record(tool: Tools) -> None:
    tool.create("console")
    tool.good("kafka-console-producer", "--topic=console", "--property=parse.key=true", "--property=key.separator=", stdin="v\n")
    read = [
        "--topic=console",
        "--partition=0",
        "--offset=0",
        "--max-messages=1",
        "--timeout-ms=30000",
        "--property=print.key=true",
    ]
    said = tool.good("kafka-console-consumer", *read, "--property=print.delivery=true", "--property=key.separator=|")
    assert said == "Delivery:NOT_PRESENT||v\n"


def test_values_that_are_refused_are_named(tool: Tools) -> None:
    directory = ["--controller-directory-id", "AAAAAAAAAAAAAAAAAAAAAQ"]
    assert "--controller-id -1: " in tool.bad("kafka-metadata-quorum", "remove-controller", "--controller-id=-1", *directory)
    said = tool.bad("kafka-transactions", "find-hanging", "--topic", "orders", "--partition", "7")
    assert "orders-7" in said
    assert "4.3.1" in tool.good("kafka-transactions", "-v")
    assert tool.good("kafka-get-offsets", "--topic", "orders", "--time", "earliest-pending-upload") == ""
