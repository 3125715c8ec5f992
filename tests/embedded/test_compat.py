"""Kafka's own commands, with Kafka's options, output and exit statuses, against an embedded cluster (TO-09 to TO-38)."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from kraftlite import __version__
from kraftlite.cli.compat import TOOLS
from kraftlite.cli.main import cli
from tests.harness.embedded import embedded
from tests.harness.local import Cluster, wait_for

pytestmark = [pytest.mark.clients, pytest.mark.xdist_group("embedded")]

CONFIG = {"group.initial.rebalance.delay.ms": "0", "offsets.topic.num.partitions": "1", "offsets.topic.replication.factor": "1"}


@pytest.fixture(scope="module")
def three() -> Iterator[Cluster]:
    with embedded(controllers=1, brokers=3, config=CONFIG) as cluster:
        yield cluster


@pytest.fixture
def tool(three: Cluster) -> Iterator[Tools]:
    yield Tools(three.bootstrap)


class Tools:
    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap

    def run(self, name: str, *arguments: str, stdin: str | None = None) -> Result:
        return CliRunner().invoke(
            cli, ["compat", name, "--bootstrap-server", self.bootstrap, *arguments], input=stdin, catch_exceptions=False
        )

    def good(self, name: str, *arguments: str, stdin: str | None = None) -> str:
        result = self.run(name, *arguments, stdin=stdin)
        assert result.exit_code == 0, result.output
        return result.stdout

    def bad(self, name: str, *arguments: str) -> str:
        result = self.run(name, *arguments)
        assert result.exit_code == 1, result.output
        return result.output

    def create(self, topic: str, partitions: int = 1, factor: int = 1, *more: str) -> None:
        said = self.good(
            "kafka-topics", "--create", "--topic", topic, f"--partitions={partitions}", f"--replication-factor={factor}", *more
        )
        assert f"Created topic {topic}." in said
        wait_for(f"{topic} has leaders", lambda: "Leader: none" not in self.good("kafka-topics", "--describe", "--topic", topic))

    def own(self, *arguments: str) -> str:
        """One of kraftlite's own commands."""
        result = CliRunner().invoke(cli, [*arguments, "--bootstrap-server", self.bootstrap], catch_exceptions=False)
        assert result.exit_code == 0, result.output
        return result.stdout


# --- topics


def test_to_09_to_13_topics(tool: Tools, topic: str) -> None:
    tool.create(topic, 3, 3, "--config", "retention.ms=1000", "--config", "min.insync.replicas=2")
    assert topic in tool.good("kafka-topics.sh", "--list").splitlines()
    lines = tool.good("kafka-topics", "--describe", "--topic", topic).splitlines()
    assert re.fullmatch(
        rf"Topic: {topic}\tTopicId: [\w-]{{22}}\tPartitionCount: 3\tReplicationFactor: 3"
        r"\tConfigs: (\S+,)?min.insync.replicas=2,(\S+,)?retention.ms=1000(,\S+)?",
        lines[0],
    )
    for index, line in enumerate(lines[1:]):
        shape = (
            rf"\tTopic: {topic}\tPartition: {index}\tLeader: \d\tReplicas: \d,\d,\d\tIsr: \d,\d,\d\tElr: \S*\tLastKnownElr: \S*"
        )
        assert re.fullmatch(shape, line), line
    assert tool.good("kafka-topics", "--describe", "--under-replicated-partitions", "--topic", topic) == ""
    assert tool.good("kafka-topics", "--describe", "--at-min-isr-partitions", "--topic", topic) == ""
    assert tool.good("kafka-topics", "--describe", "--topics-with-overrides", "--topic", topic).count("\n") == 1
    assert tool.good("kafka-topics", "--alter", "--topic", topic, "--partitions", "5") == ""
    wait_for("five partitions", lambda: "PartitionCount: 5" in tool.good("kafka-topics", "--describe", "--topic", topic))
    assert tool.good("kafka-topics", "--delete", "--topic", topic) == ""
    wait_for("it is gone", lambda: topic not in tool.good("kafka-topics", "--list").splitlines())


def test_to_09_topics_that_exist_and_that_do_not(tool: Tools, topic: str) -> None:
    tool.create(topic)
    said = tool.bad("kafka-topics", "--create", "--topic", topic)
    assert f"Error while executing topic command : Topic '{topic}' already exists." in said
    assert tool.good("kafka-topics", "--create", "--topic", topic, "--if-not-exists") == ""
    for action in (["--describe"], ["--delete"], ["--alter", "--partitions", "9"]):
        assert "Topic 'nope' does not exist as expected" in tool.bad("kafka-topics", *action, "--topic", "nope")
        assert tool.good("kafka-topics", *action, "--topic", "nope", "--if-exists") == ""
    assert "WARNING: Due to limitations" in tool.good("kafka-topics", "--create", "--topic", f"{topic}.dot")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--list", "--create"], "exactly one action"),
        ([], "exactly one action"),
        (["--list", "--frobnicate"], "frobnicate is not a recognized option"),
        (["--create"], 'Missing required argument "[topic]"'),
        (["--alter", "--topic", "t"], 'Missing required argument "[partitions]"'),
        (["--list", "--if-not-exists"], 'Option "[if-not-exists]" can\'t be used with option "[list]"'),
        (["--create", "--topic", "t", "--replica-assignment", "1:2", "--partitions", "2"], "[replica-assignment]"),
        (["--create", "--topic", "t", "--replica-assignment", "1:1"], "duplicate entries: 1"),
        (["--create", "--topic", "t", "--partitions", "0"], "The partitions must be greater than 0"),
        (["--create", "--topic", "t", "--config", "nonsense"], "must be in the format"),
    ],
)
def test_to_13_wrong_options_are_named(tool: Tools, arguments: list[str], said: str) -> None:
    assert said in tool.bad("kafka-topics", *arguments)


def test_to_10_topics_are_listed_by_name_and_filtered(tool: Tools, topic: str) -> None:
    names = [f"{topic}-b", f"{topic}-a", f"{topic}-c"]
    for name in names:
        tool.create(name)
    tool.run("kafka-console-consumer", "--topic", names[0], "--group", f"of-{topic}", "--from-beginning", "--timeout-ms", "1")
    listed = wait_for(
        "the offsets topic",
        lambda: (found := tool.good("kafka-topics", "--list").splitlines()) and "__consumer_offsets" in found and found,
    )
    assert listed == sorted(listed) and set(names) <= set(listed)
    assert "__consumer_offsets" not in tool.good("kafka-topics", "--list", "--exclude-internal").splitlines()
    assert tool.good("kafka-topics", "--list", "--topic", f"{topic}-[ab]").splitlines() == sorted(names)[:2]
    assert tool.good("kafka-topics", "--list", "--topic", f"{topic}-c,{topic}").splitlines() == [f"{topic}-c"]


def test_to_12_only_the_lines_that_match_a_filter(tool: Tools, three: Cluster, topic: str) -> None:
    first, second, third = three.brokers
    for name, replicas in (("a", f"{first}:{second}:{third}"), ("b", f"{second}:{third}"), ("c", f"{third}")):
        create = ["--create", "--topic", f"{topic}-{name}", "--replica-assignment", replicas]
        tool.good("kafka-topics", *create, "--config", "min.insync.replicas=2")

    def matching(name: str) -> str:
        lines = tool.good("kafka-topics", "--describe", f"--{name}", "--topic", f"{topic}-.*").splitlines()
        assert all(line.startswith(f"\tTopic: {topic}-") and "\tPartition: 0\t" in line for line in lines), lines
        return "".join(line.removeprefix(f"\tTopic: {topic}-")[0] for line in lines)

    filters = ("under-replicated-partitions", "unavailable-partitions", "under-min-isr-partitions", "at-min-isr-partitions")
    whole = ["", "", "c", "b"]

    def all_of_them() -> list[str]:
        return [matching(name) for name in filters]

    wait_for("everybody is in sync", lambda: all_of_them() == whole)
    three.kill(third)
    try:
        wait_for("the third is gone", lambda: all_of_them() == ["abc", "c", "bc", "a"])
    finally:
        three.restart(third)
    wait_for("it is back", lambda: all_of_them() == whole)


# --- configs, quotas, client metrics


def test_to_14_topic_configs(tool: Tools, topic: str) -> None:
    tool.create(topic)
    entity = ["--entity-type", "topics", "--entity-name", topic]
    said = tool.good("kafka-configs", *entity, "--alter", "--add-config", "retention.ms=5000,cleanup.policy=[compact,delete]")
    assert said == f"Completed updating config for topic {topic}.\n"
    lines = wait_for(
        "both are known", lambda: (found := tool.good("kafka-configs", *entity, "--describe").splitlines())[2:] and found
    )
    assert lines[0] == f"Dynamic configs for topic {topic} are:"
    assert lines[1] == (
        "  cleanup.policy=compact,delete sensitive=false synonyms={DYNAMIC_TOPIC_CONFIG:cleanup.policy=compact,delete, "
        "DEFAULT_CONFIG:log.cleanup.policy=delete}"
    )
    assert lines[2].startswith("  retention.ms=5000 sensitive=false synonyms={DYNAMIC_TOPIC_CONFIG:retention.ms=5000")
    assert "max.message.bytes=" in tool.good("kafka-configs", "--topic", topic, "--describe", "--all")
    tool.good("kafka-configs", "--topic", topic, "--alter", "--delete-config", "retention.ms")
    tool.good("kafka-configs", *entity, "--alter", "--delete-config", "segment.ms")
    assert "INVALID_CONFIG" in tool.bad("kafka-configs", *entity, "--alter", "--add-config", "retention.ms=never")


def test_to_14_to_38_brokers_groups_and_metrics(tool: Tools) -> None:
    said = tool.good(
        "kafka-configs", "--entity-type", "brokers", "--entity-default", "--alter", "--add-config", "log.roll.ms=99999"
    )
    assert said == "Completed updating default config for brokers in the cluster.\n"
    default = ["--broker-defaults", "--describe"]
    wait_for("it is known", lambda: "log.roll.ms=99999" in tool.good("kafka-configs", *default))
    assert tool.good("kafka-configs", *default).startswith("Default configs for brokers in the cluster are:\n")
    tool.good("kafka-configs", "--broker-defaults", "--alter", "--delete-config", "log.roll.ms")
    tool.good("kafka-configs", "--group", "g", "--alter", "--add-config", "consumer.session.timeout.ms=50000")
    wait_for("group", lambda: "=50000 sensitive=false" in tool.good("kafka-configs", "--group", "g", "--describe"))
    tool.good("kafka-client-metrics", "--alter", "--name", "m", "--metrics", "a.b,c", "--interval", "1000")
    wait_for("metrics", lambda: tool.good("kafka-client-metrics", "--list") == "m\n")
    assert tool.good("kafka-client-metrics", "--describe", "--name", "m").splitlines() == [
        "Client metrics configs for m are:",
        "  interval.ms=1000",
        "  match=",
        "  metrics=a.b,c",
    ]
    assert "  interval.ms=1000" in tool.own("client-metrics", "describe")
    tool.good("kafka-client-metrics", "--delete", "--name", "m")
    wait_for("it is gone", lambda: tool.good("kafka-client-metrics", "--list") == "\n")


def test_to_15_quotas(tool: Tools) -> None:
    both = ["--entity-type", "users", "--entity-name", "u", "--entity-type", "clients", "--entity-default"]
    assert tool.good(
        "kafka-configs", *both, "--alter", "--add-config", "producer_byte_rate=10485760,request_percentage=12.5"
    ) == ("Completed updating config for user u.\n")
    assert tool.good("kafka-configs", "--ip", "10.0.0.1", "--alter", "--add-config", "connection_creation_rate=5")
    line = (
        "Quota configs for user-principal 'u', the default client-id are producer_byte_rate=1.048576E7, request_percentage=12.5\n"
    )
    wait_for("they are known", lambda: tool.good("kafka-configs", *both, "--describe") == line)
    assert tool.own("quota", "describe", "--ip", "10.0.0.1") == "ip 10.0.0.1: connection_creation_rate=5.0\n"
    assert tool.good("kafka-configs", "--user", "big", "--alter", "--add-config", "producer_byte_rate=1000000")
    line = "Quota configs for user-principal 'big' are producer_byte_rate=1000000.0\n"
    wait_for("it is known", lambda: tool.good("kafka-configs", "--user", "big", "--describe") == line)
    assert tool.own("quota", "describe", "--user", "big") == "user big: producer_byte_rate=1000000.0\n"
    tool.good("kafka-configs", *both, "--alter", "--delete-config", "producer_byte_rate,request_percentage")
    wait_for("they are gone", lambda: tool.good("kafka-configs", *both, "--describe") == "")
    assert "names: Set(nonsense)" in tool.bad("kafka-configs", "--user", "u", "--alter", "--add-config", "nonsense=1")


def test_to_15_scram(tool: Tools) -> None:
    user = ["--entity-type", "users", "--entity-name", "alice"]
    wanted = "SCRAM-SHA-256=[iterations=8192,password=alice-secret],SCRAM-SHA-512=[password=alice-secret]"
    assert tool.good("kafka-configs", *user, "--alter", "--add-config", wanted) == "Completed updating config for user alice.\n"
    line = (
        "SCRAM credential configs for user-principal 'alice' are SCRAM-SHA-256=iterations=8192, SCRAM-SHA-512=iterations=4096\n"
    )
    wait_for("they are known", lambda: tool.good("kafka-configs", *user, "--describe") == line)
    tool.good("kafka-configs", *user, "--alter", "--delete-config", "SCRAM-SHA-256")
    shorter = "SCRAM credential configs for user-principal 'alice' are SCRAM-SHA-512=iterations=4096\n"
    wait_for("one is left", lambda: tool.good("kafka-configs", "--entity-type", "users", "--describe").endswith(shorter))
    assert "less than the minimum" in tool.bad(
        "kafka-configs", *user, "--alter", "--add-config", "SCRAM-SHA-256=[iterations=1,password=x]"
    )
    both = "SCRAM-SHA-256=[password=x],producer_byte_rate=5"
    assert "both quota and SCRAM" in tool.bad("kafka-configs", *user, "--alter", "--add-config", both)


# --- records


def test_to_26_to_31_to_34_to_35_records(tool: Tools, topic: str, tmp_path: Path) -> None:
    tool.create(topic, 1, 3)
    keyed = ["--topic", topic, "--reader-property", "parse.key=true", "--reader-property", "key.separator=:"]
    tool.good("kafka-console-producer", *keyed, "--compression-codec", "zstd", stdin="a:1\nb:2\nc:3\n")
    shown = ["--topic", topic, "--from-beginning", "--max-messages", "3", "--timeout-ms", "20000"]
    printed = [f"--property=print.{what}=true" for what in ("key", "offset", "partition")]
    result = tool.run("kafka-console-consumer", *shown, *printed)
    assert result.stdout.splitlines() == [f"Partition:0\tOffset:{at}\t{key}\t{at + 1}" for at, key in enumerate("abc")]
    assert "Processed a total of 3 messages" in result.stderr
    one = tool.run("kafka-console-consumer", "--topic", topic, "--partition", "0", "--offset", "2", "--max-messages", "1")
    assert one.stdout == "3\n"
    offsets = ["--topic", topic]
    assert tool.good("kafka-get-offsets", *offsets) == f"{topic}:0:3\n"
    assert tool.good("kafka-get-offsets", *offsets, "--time", "earliest") == f"{topic}:0:0\n"
    highest = tool.good("kafka-get-offsets", "--topic-partitions", f"{topic}:0-1", "--time", "-3")
    assert re.fullmatch(f"{topic}:0:[012]\n", highest), "the first record with the highest timestamp"
    assert tool.good("kafka-get-offsets", *offsets, "--time", "99999999999999") == "", "no record is that late"
    assert "Could not match any topic-partitions" in tool.bad("kafka-get-offsets", "--topic", "nope")
    file = tmp_path / "offsets.json"
    file.write_text(json.dumps({"version": 1, "partitions": [{"topic": topic, "partition": 0, "offset": 2}]}))
    assert tool.good("kafka-delete-records", "--offset-json-file", str(file)).splitlines() == [
        "Executing records delete operation",
        "Records delete operation completed:",
        f"partition: {topic}-0\tlow_watermark: 2",
    ]
    assert tool.good("kafka-get-offsets", *offsets, "--time", "-2") == f"{topic}:0:2\n"
    said = json.loads(tool.good("kafka-log-dirs", "--describe", "--topic-list", topic).splitlines()[-1])
    found = [part for broker in said["brokers"] for one in broker["logDirs"] for part in one["partitions"]]
    assert [part["partition"] for part in found] == [f"{topic}-0"] * 3 and all(part["size"] > 0 for part in found)
    assert "do not exist from --broker-list: 99" in tool.bad("kafka-log-dirs", "--describe", "--broker-list", "99")
    assert topic in tool.own("log-dirs", "describe", "--topic", topic)


def test_to_29_to_30_to_32_to_33_verifiable_and_perf(tool: Tools, topic: str) -> None:
    tool.create(topic)
    lines = tool.good("kafka-verifiable-producer", "--topic", topic, "--max-messages", "5", "--repeating-keys", "2")
    events = [json.loads(line) for line in lines.splitlines()]
    assert [event["name"] for event in events] == [
        "startup_complete",
        *["producer_send_success"] * 5,
        "shutdown_complete",
        "tool_data",
    ]
    assert [(event["key"], event["value"], event["offset"]) for event in events[1:6]] == [
        (str(at % 2), str(at), at) for at in range(5)
    ]
    assert (events[-1]["sent"], events[-1]["acked"]) == (5, 5)
    lines = tool.good("kafka-verifiable-consumer", "--topic", topic, "--group-id", "v", "--max-messages", "5", "--verbose")
    events = [json.loads(line) for line in lines.splitlines()]
    assert sum(event["count"] for event in events if event["name"] == "records_consumed") == 5
    assert [event["value"] for event in events if event["name"] == "record_data"] == ["0", "1", "2", "3", "4"]
    committed = [event for event in events if event["name"] == "offsets_committed"]
    assert committed[-1]["success"] and committed[-1]["offsets"] == [{"topic": topic, "partition": 0, "offset": 5}]
    perf = tool.good(
        "kafka-producer-perf-test", "--topic", topic, *["--num-records", "50", "--record-size", "10", "--throughput", "-1"]
    )
    assert re.search(r"^50 records sent, \d+\.\d+ records/sec \(\d+\.\d\d MB/sec\), .* ms 99\.9th\.$", perf, re.MULTILINE)
    perf = tool.good("kafka-consumer-perf-test", "--topic", topic, "--messages", "55").splitlines()
    assert perf[0].startswith("start.time, end.time") and perf[1].split(", ")[4] == "55"


# --- groups


def test_to_27_to_28_consumer_groups(tool: Tools, topic: str) -> None:
    tool.create(topic)
    tool.good("kafka-console-producer", "--topic", topic, stdin="1\n2\n3\n")
    group = f"group-of-{topic}"
    read = ["--topic", topic, "--group", group, "--from-beginning", "--max-messages", "2"]
    assert tool.run("kafka-console-consumer", *read).stdout == "1\n2\n"
    assert group in tool.good("kafka-consumer-groups", "--list").splitlines()
    described = tool.good("kafka-consumer-groups", "--describe", "--group", group)
    columns = ["GROUP", "TOPIC", "PARTITION", "CURRENT-OFFSET", "LOG-END-OFFSET", "LAG", "CONSUMER-ID", "HOST", "CLIENT-ID"]
    header, row = (line.split() for line in described.splitlines() if line)
    assert header == columns and row == [group, topic, "0", "2", "3", "1", "-", "-", "-"]
    reset = ["--reset-offsets", "--group", group, "--topic", topic, "--to-earliest"]
    planned = tool.run("kafka-consumer-groups", *reset)
    assert "No action will be performed" in planned.stderr
    done = tool.good("kafka-consumer-groups", *reset, "--execute")
    assert [line.split() for line in done.splitlines() if line] == [
        ["GROUP", "TOPIC", "PARTITION", "NEW-OFFSET"],
        [group, topic, "0", "0"],
    ]
    consumed = CliRunner().invoke(
        cli, ["consume", topic, "--group", group, "--max-messages", "3", "--bootstrap-server", tool.bootstrap]
    )
    assert consumed.stdout == "1\n2\n3\n", "consume --group goes on where the group has committed"
    assert " 3 " in tool.good("kafka-consumer-groups", "--describe", "--group", group)
    assert "GROUP" in tool.good("kafka-groups", "--list")
    assert "was successful" in tool.good("kafka-consumer-groups", "--delete", "--group", group)
    assert "Option [describe] takes one of" in tool.bad("kafka-consumer-groups", "--describe")
    said = tool.good("kafka-consumer-groups", "--describe", "--group", "nobody")
    assert said.endswith("org.apache.kafka.common.errors.GroupIdNotFoundException: Group nobody not found.\n")


# --- the cluster


def test_to_17_to_18_to_19_reassignment(tool: Tools, three: Cluster, topic: str, tmp_path: Path) -> None:
    first, second, third = three.brokers
    tool.good("kafka-topics", "--create", "--topic", topic, "--replica-assignment", f"{first}:{second}")
    tool.good("kafka-console-producer", "--topic", topic, stdin="kept\n")
    file = tmp_path / "move.json"
    file.write_text(json.dumps({"version": 1, "partitions": [{"topic": topic, "partition": 0, "replicas": [third, second]}]}))
    started = tool.good("kafka-reassign-partitions", "--execute", "--reassignment-json-file", str(file), "--throttle", "1000000")
    assert f"Successfully started partition reassignment for {topic}-0" in started
    rollback = json.loads(started.splitlines()[2])
    assert (rollback["partitions"][0]["replicas"], rollback["partitions"][0]["log_dirs"]) == ([first, second], ["/data"] * 2)
    verify = ["--verify", "--reassignment-json-file", str(file)]
    wait_for("the move", lambda: f"{topic}-0 is completed." in tool.good("kafka-reassign-partitions", *verify))
    assert "Clearing broker-level throttles on brokers" in tool.good("kafka-reassign-partitions", *verify)
    assert "throttled" not in tool.good("kafka-configs", "--topic", topic, "--describe")
    assert tool.good("kafka-reassign-partitions", "--list") == "No partition reassignments found.\n"
    line = tool.good("kafka-topics", "--describe", "--topic", topic).splitlines()[1]
    assert f"Replicas: {third},{second}\tIsr: {third},{second}" in line
    assert three.consume(topic, at_least=1) == ["kept"]
    held = json.loads(tool.good("kafka-log-dirs", "--describe", "--broker-list", str(first)).splitlines()[-1])
    parts = [part["partition"] for one in held["brokers"][0]["logDirs"] for part in one["partitions"]]
    assert f"{topic}-0" not in parts, "CM-46: the old replica is gone"
    topics = tmp_path / "topics.json"
    topics.write_text(json.dumps({"topics": [{"topic": topic}], "version": 1}))
    wish = ["--topics-to-move-json-file", str(topics), "--broker-list", f"{first},{third}"]
    proposed = json.loads(tool.good("kafka-reassign-partitions", "--generate", *wish).splitlines()[-1])["partitions"][0]
    assert (sorted(proposed["replicas"]), proposed["log_dirs"]) == (sorted([first, third]), ["any"] * 2)
    cancelled = tool.good("kafka-reassign-partitions", "--cancel", "--reassignment-json-file", str(file))
    assert "None of the specified partition reassignments are active." in cancelled


def test_to_19_a_move_that_cannot_finish_is_listed_and_cancelled(tool: Tools, three: Cluster, topic: str) -> None:
    first, second, third = three.brokers
    tool.good("kafka-topics", "--create", "--topic", topic, "--replica-assignment", f"{first}:{second}")
    three.kill(third)
    try:
        wait_for("it is fenced", lambda: str(third) not in _live(tool))
        tool.own("reassign", "start", f"{topic}-0={third},{first}")
        listed = tool.good("kafka-reassign-partitions", "--list")
        moving = f"{topic}-0: replicas: {third},{first},{second}. adding: {third}. removing: {second}."
        assert moving in listed.splitlines()
        described = wait_for("described", lambda: _moving(tool.good("kafka-topics", "--describe", "--topic", topic)))
        assert "ReplicationFactor: 2\t" in described
        assert f"Adding Replicas: {third}\tRemoving Replicas: {second}\t" in described
        tool.own("reassign", "cancel", f"{topic}-0")
        assert tool.own("reassign", "list") == "No partition is being moved.\n"
    finally:
        three.restart(third)
    wait_for("it is back", lambda: str(third) in _live(tool))


def test_to_18_what_is_not_executed(tool: Tools, three: Cluster, topic: str, tmp_path: Path) -> None:
    first, second, third = three.brokers
    tool.good("kafka-topics", "--create", "--topic", topic, "--replica-assignment", f"{first}:{second}")
    file = tmp_path / "move.json"

    def refused(replicas: list[int], of: str = topic) -> str:
        file.write_text(json.dumps({"version": 1, "partitions": [{"topic": of, "partition": 0, "replicas": replicas}]}))
        return tool.bad("kafka-reassign-partitions", "--execute", "--reassignment-json-file", str(file))

    assert "Unknown broker id 99" in refused([99])
    assert "may not contain duplicate entries" in refused([first, first])
    assert "replica list cannot be empty" in refused([])
    assert "Topic nope not found" in refused([first], of="nope")
    file.write_text(json.dumps({"version": 1, "partitions": []}))
    execute = ["--execute", "--reassignment-json-file", str(file)]
    assert "cannot be empty" in tool.bad("kafka-reassign-partitions", *execute)
    three.kill(third)
    try:
        tool.own("reassign", "start", f"{topic}-0={third},{first}")
        assert "there is an existing partition assignment" in refused([second, first])
        tool.good("kafka-reassign-partitions", *execute, "--additional")
        wait_for("the other one", lambda: tool.own("reassign", "list") == "No partition is being moved.\n")
    finally:
        three.restart(third)
    line = tool.good("kafka-topics", "--describe", "--topic", topic).splitlines()[1]
    assert f"Replicas: {second},{first}\t" in line
    wait_for("the third is back", lambda: str(third) in _live(tool))


def test_to_40_to_do_it_again_does_no_harm(tool: Tools, three: Cluster, topic: str, tmp_path: Path) -> None:
    first, second, _third = three.brokers
    tool.good("kafka-topics", "--create", "--topic", topic, "--replica-assignment", f"{first}:{second}")
    tool.good("kafka-console-producer", "--topic", topic, stdin="kept\n")
    file = tmp_path / "move.json"
    file.write_text(json.dumps({"version": 1, "partitions": [{"topic": topic, "partition": 0, "replicas": [second, first]}]}))
    which = ["--reassignment-json-file", str(file)]
    for _ in range(2):
        tool.good("kafka-reassign-partitions", "--execute", *which, "--throttle", "1000000")
        wait_for("it is done", lambda: "is completed." in tool.good("kafka-reassign-partitions", "--verify", *which))
        assert "is completed." in tool.good("kafka-reassign-partitions", "--verify", *which)
    assert "throttled" not in tool.good("kafka-configs", "--topic", topic, "--describe")
    assert three.consume(topic, at_least=1) == ["kept"]


def test_to_40_an_interrupted_consumer_leaves_its_group(tool: Tools, topic: str) -> None:
    tool.create(topic)
    tool.good("kafka-console-producer", "--topic", topic, stdin="1\n")
    group = f"of-{topic}"
    command = [sys.executable, "-m", "kraftlite", "compat", "kafka-console-consumer", "--bootstrap-server", tool.bootstrap]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    consumer = subprocess.Popen(
        [*command, "--topic", topic, "--group", group, "--from-beginning"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
    )
    try:
        assert consumer.stdout is not None and consumer.stdout.readline() == "1\n"
        consumer.send_signal(signal.SIGINT)
        _rest, complaints = consumer.communicate(timeout=60)
    finally:
        consumer.kill()
        consumer.wait()
    assert "Traceback" not in complaints and "Processed a total of 1 messages" in complaints
    row = tool.good("kafka-consumer-groups", "--describe", "--group", group).split()[-9:]
    assert row == [group, topic, "0", "1", "1", "0", "-", "-", "-"], "it has committed and left"


def _live(tool: Tools) -> list[str]:
    result = CliRunner().invoke(cli, ["compat", "kafka-cluster", "list-endpoints", "--bootstrap-server", tool.bootstrap])
    return [line.split()[0] for line in result.stdout.splitlines()[1:]]


def _moving(text: str) -> str | None:
    return text if "Adding Replicas" in text else None


def test_to_16_leader_election(tool: Tools, topic: str) -> None:
    tool.create(topic, 1, 3)
    one = ["--election-type", "PREFERRED", "--topic", topic, "--partition", "0"]
    said = tool.good("kafka-leader-election", *one)
    assert said == f"Valid replica already elected for partitions {topic}-0\n"
    said = tool.bad("kafka-leader-election", "--election-type", "preferred", "--topic", "nope", "--partition", "0")
    assert "1 replica(s) could not be elected" in said
    assert "nope-0: org.apache.kafka.common.errors.UnknownTopicOrPartitionException: No such topic as nope" in said
    tool.good("kafka-leader-election", "--election-type", "UNCLEAN", "--all-topic-partitions")


def test_to_20_quorum_to_25_features_to_36_cluster(tool: Tools, three: Cluster) -> None:
    status = tool.good("kafka-metadata-quorum", "describe", "--status")
    assert re.search(r"^ClusterId: +[\w-]{22}$", status, re.MULTILINE) and "CurrentVoters:" in status
    assert tool.good("kafka-metadata-quorum", "describe", "--replication").splitlines()[0].split()[0] == "NodeId"
    assert "One of --status or --replication" in tool.bad("kafka-metadata-quorum", "describe")
    lines = tool.good("kafka-features", "describe").splitlines()
    shape = r"Feature: {} +SupportedMinVersion: \S+ +SupportedMaxVersion: \S+ +FinalizedVersionLevel: {} +Epoch: \d+"
    assert any(re.fullmatch(shape.format("metadata.version", r"\d\.\d-IV\d"), line) for line in lines)
    assert tool.own("feature", "describe").splitlines()[0].startswith("Feature: ")
    said = tool.bad("kafka-features", "downgrade", "--metadata", "3.4-IV0", "--dry-run")
    assert "Can not downgrade metadata.version to 8." in said and "1 out of 1 operation(s) failed." in said
    assert "Could not upgrade nonsense to 3." in tool.bad("kafka-features", "upgrade", "--feature", "nonsense=3")
    assert tool.good("kafka-features", "upgrade", "--feature", "metadata.version=30").startswith("metadata.version was upgraded")
    versions = tool.good("kafka-broker-api-versions")
    assert versions.count(" -> (") == 3 and "\tProduce(0): 0 to " in versions and "ShareFetch(78): UNSUPPORTED" in versions
    server = ["--bootstrap-server", tool.bootstrap]
    invoke = CliRunner().invoke
    found = invoke(cli, ["compat", "kafka-cluster", "cluster-id", *server]).stdout
    assert found == f"Cluster ID: {three.state.cluster_id}\n"
    assert _live(tool) == [str(node) for node in three.brokers]
    refused = invoke(cli, ["compat", "kafka-cluster", "unregister", "--id", "99", *server])
    assert refused.exit_code == 1 and "not currently registered" in refused.output


# --- without a cluster


def test_to_01_to_07_storage_and_installing(tmp_path: Path) -> None:
    invoke = CliRunner().invoke
    assert re.fullmatch(r"[\w-]{22}\n", invoke(cli, ["compat", "kafka-storage.sh", "random-uuid"]).stdout)
    assert invoke(cli, ["compat", "kafka-storage", "version-mapping", "-r", "3.9"]).stdout.startswith("metadata.version=21 (3.9)")
    wrong = invoke(cli, ["compat", "kafka-storage", "format", "-t", "x"])
    assert wrong.exit_code == 1 and "--config" in wrong.output
    unknown = invoke(cli, ["compat", "kafka-nothing"])
    assert unknown.exit_code == 2 and "kafka-topics" in unknown.output
    directory = tmp_path / "bin"
    assert invoke(cli, ["compat", "--install", str(directory)]).exit_code == 0
    assert len(list(directory.iterdir())) == 2 * len(TOOLS)
    path = f"{directory}{os.pathsep}{os.environ['PATH']}"
    environment = {**os.environ, "PATH": path, "PYTHONPATH": os.pathsep.join(sys.path)}
    found = subprocess.run(
        ["kafka-topics.sh", "--version"], env=environment, capture_output=True, text=True, timeout=60, check=True
    )
    assert found.stdout == f"4.3.1 (kraftlite {__version__})\n"


def test_every_tool_has_help() -> None:
    for name in TOOLS:
        result = CliRunner().invoke(cli, ["compat", name, "--help"])
        assert result.exit_code == 0 and name in result.output, (name, result.output)
