"""Every command against a live cluster, as a user types it: layouts, JSON shapes, exit statuses, and one line per mistake."""

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

from kraftlite.cli.main import cli
from tests.harness.local import CALM, PATIENCE_S, Cluster, running, wait_for

pytestmark = [pytest.mark.cluster, pytest.mark.xdist_group("cli")]


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with running(controllers=1, brokers=3, config=CALM) as found:
        yield found


@pytest.fixture(autouse=True)
def surroundings(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """The cluster is found by its directory, as in a user's shell."""
    monkeypatch.setenv("KRAFTLITE_DATA_DIR", str(cluster.data_dir))
    monkeypatch.delenv("KRAFTLITE_BOOTSTRAP_SERVER", raising=False)


def run(*arguments: object, stdin: str | None = None) -> Result:
    return CliRunner().invoke(cli, [str(argument) for argument in arguments], input=stdin)


def good(*arguments: object, stdin: str | None = None) -> str:
    result = run(*arguments, stdin=stdin)
    assert result.exit_code == 0, result.output
    return result.stdout


def process(*arguments: object, stdin: str = "", timeout_s: float = 2 * PATIENCE_S) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "kraftlite", *map(str, arguments)],
        input=stdin,
        capture_output=True,
        text=True,
        timeout=timeout_s,
        check=False,
    )


# --- topics -----------------------------------------------------------------------------------------------------------


def test_to_09_to_11_a_topic_is_created_and_described(cluster: Cluster) -> None:
    assert good("create-topic", "orders", "--partitions", 3, "--replication-factor", 3, "--config", "min.insync.replicas=2") == (
        "Created topic orders.\n"
    )
    cluster.wait_whole("orders")
    nodes = r"[234],[234],[234]"
    wanted = [
        r"Topic: orders\tTopicId: [\w-]{22}\tPartitionCount: 3\tReplicationFactor: 3\tConfigs: min\.insync\.replicas=2",
        *(
            rf"\tTopic: orders\tPartition: {index}\tLeader: [234]\tReplicas: {nodes}\tIsr: {nodes}\tElr: \tLastKnownElr: "
            for index in range(3)
        ),
    ]

    def told() -> bool:
        lines = good("describe", "orders").splitlines()
        return len(lines) == len(wanted) and all(re.fullmatch(*it) for it in zip(wanted, lines, strict=True))

    # Each command may ask another broker, and each broker learns of the topic in its own time.
    wait_for("the topic is described", told)
    wait_for("it is listed", lambda: good("topic", "list") == "orders\n")
    wait_for("no partition is under-replicated", lambda: good("describe", "--under-replicated-partitions") == "")
    described = json.loads(good("describe", "orders", "-o", "json"))["topics"][0]
    assert described["topic"] == "orders"
    assert [partition["partition"] for partition in described["partitions"]] == [0, 1, 2]
    assert json.loads(good("topic", "list", "-o", "json")) == {"topics": ["orders"]}
    assert good("topic", "alter", "orders", "--partitions", 4) == "Topic orders has 4 partitions.\n"


def test_offsets_tell_every_replicas_leo(cluster: Cluster) -> None:
    good("create-topic", "offsets", "--partitions", 1, "--replication-factor", 3)
    cluster.wait_whole("offsets")  # the answer to a creation may be ahead of the broker that is asked next
    good("produce", "offsets", stdin="a\nb\n")
    leos = {str(broker): 2 for broker in cluster.brokers}

    def told() -> bool:
        partition = json.loads(good("offsets", "offsets", "-o", "json"))["partitions"][0]
        return bool((partition["earliest"], partition["high_watermark"], partition["log_end_offsets"]) == (0, 2, leos))

    wait_for("every replica has both records", told)
    header, row = good("offsets", "offsets").splitlines()
    assert header.split() == ["PARTITION", "LEADER", "EARLIEST", "HIGH-WATERMARK", "LOG-END-OFFSETS"]
    assert row.split()[2:4] == ["0", "2"]


MISTAKES: list[tuple[tuple[str, ...], int, str]] = [
    (("create-topic", "taken"), 1, "TOPIC_ALREADY_EXISTS: Topic 'taken' already exists."),
    (("create-topic", "bad/name"), 1, "INVALID_TOPIC_EXCEPTION: "),
    (("create-topic", ""), 1, "INVALID_TOPIC_EXCEPTION: "),
    (("create-topic", "x" * 250), 1, "INVALID_TOPIC_EXCEPTION: "),
    (("create-topic", "n", "--replication-factor", "9"), 1, "only 3 broker(s) are registered"),
    (("create-topic", "n", "--partitions", "0"), 2, "1<=x<=100000"),
    (("create-topic", "n", "--partitions", "1000000"), 2, "1<=x<=100000"),
    (("create-topic", "n", "--config", "nosuch=1"), 1, "Unknown topic config name: nosuch"),
    (("create-topic", "n", "--config", "min.insync.replicas=x"), 1, "Invalid value x for configuration min.insync.replicas"),
    (("create-topic", "n", "--config", "cleanup.policy=shred"), 1, "Invalid value shred for configuration cleanup.policy"),
    (("create-topic", "n", "--replica-assignment", "2:2"), 1, "the broker 2 more than once"),
    (("create-topic", "n", "--replica-assignment", "2:99"), 1, "broker 99, but no such broker"),
    (("create-topic", "n", "--replica-assignment", "2:a"), 2, "allowed is broker ids"),
    (("topic", "alter", "taken", "--partitions", "1"), 1, "INVALID_PARTITIONS"),
    (("topic", "alter", "absent", "--partitions", "2"), 1, "UNKNOWN_TOPIC_OR_PARTITION"),
    (("topic", "delete", "absent"), 1, "Topic 'absent' does not exist as expected"),
    (("describe", "absent"), 1, "Topic 'absent' does not exist as expected"),
    (("offsets", "absent"), 1, "Topic 'absent' does not exist as expected"),
    (("consume", "absent"), 1, "Topic 'absent' does not exist as expected"),
    (("produce", "absent"), 1, "kraftlite create-topic absent"),
    (("produce", "taken", "--input", "/absent"), 1, "/absent: No such file"),
    (("produce", "taken", "--input", "/"), 1, "/: Is a directory"),
    (("produce", "taken", "--producer-property", "nosuch=1"), 1, 'No such configuration property: "nosuch"'),
    (("consume", "taken", "--partition", "7"), 1, "no partition 7"),
    (("consume", "taken", "--format", "%q"), 2, "%q is unknown"),
    (("consume", "taken", "--timeout", "-1"), 2, "x>=0"),
    (("consume", "taken", "--offset", "99"), 1, "out of range"),
    (("config", "describe", "--topic", "absent"), 1, "UNKNOWN_TOPIC_OR_PARTITION"),
    (("config", "describe", "--broker", "99"), 1, "live brokers are 2, 3, 4"),
    (("config", "alter", "--topic", "taken", "--set", "nosuch=1"), 1, "Unknown topic config name: nosuch"),
    (("config", "alter", "--topic", "taken", "--append", "retention.ms=1"), 1, "its type is not LIST"),
    (("config", "alter", "--broker", "2", "--set", "node.id=9"), 1, "Cannot update these configs dynamically"),
    (("config", "alter", "--broker", "99", "--set", "log.retention.ms=1"), 1, "broker 99 is not there; live brokers are 2, 3, 4"),
    (("elect-leaders", "--topic", "absent"), 1, "Topic 'absent' does not exist as expected"),
    (("elect-leaders", "--topic", "taken", "--partition", "9"), 1, "UNKNOWN_TOPIC_OR_PARTITION"),
    (("elect-leaders", "--path-to-json-file", "/absent"), 1, "/absent: No such file"),
    (("quorum", "describe", "--status", "--replication"), 2, "give one of"),
    (("topic", "list", "-b", "nonsense"), 2, "allowed is host:port"),
    (("topic", "list", "-b", "localhost:0"), 2, "allowed is host:port"),
    (("log", "dump", "/absent"), 2, "does not exist"),
    (("log", "dump", "/dev/null"), 1, "is not a file of a log"),
    (("kill", "9"), 1, "there is no node 9"),
    (("pause", "9"), 1, "there is no node 9"),
    (("up", "--detach", "--brokers", "5"), 1, "1 controllers and 3 brokers"),
    (("up", "--detach", "--config", "num.partitions=2"), 1, "stop it with kraftlite down"),
    (("up", "--detach", "--data-dir", "/dev/null"), 1, "cannot be used as the directory of a cluster"),
    (("ps", "--data-dir", "/absent"), 1, "there is no local cluster in /absent"),
]


@pytest.fixture(scope="module")
def taken(cluster: Cluster) -> None:
    cluster.create_topic("taken", partitions=2)


@pytest.mark.parametrize(
    ("arguments", "status", "words"), MISTAKES, ids=lambda value: " ".join(value)[:50] if isinstance(value, tuple) else ""
)
def test_a_mistake_is_one_clear_line(
    taken: None, capfd: pytest.CaptureFixture[str], arguments: tuple[str, ...], status: int, words: str
) -> None:
    """Through the program's own entry point, in this process: what it prints and exits with is what a shell sees."""
    from kraftlite.cli.main import main

    with pytest.raises(SystemExit) as ended:
        main(list(arguments))
    out, err = capfd.readouterr()
    assert ended.value.code == status
    lines = [line for line in err.splitlines() if "acknowledged" not in line and not line.startswith("%")]
    assert words in " ".join(lines)
    assert len(lines) == 1 or "Processed a total" in err, err
    assert out == ""
    assert "KRAFTLITE_DEBUG" not in err


def test_to_39_brokers_that_do_not_answer_are_named_by_every_command() -> None:
    commands = (("topic", "list"), ("describe",), ("produce", "t"), ("cluster", "describe"))
    asked = [started(*arguments, "-b", "127.0.0.1:1,localhost:2", stdin=subprocess.DEVNULL) for arguments in commands]
    for command in asked:
        _, err = command.communicate(timeout=2 * PATIENCE_S)
        assert command.returncode == 1
        assert err == "error: no broker answered (127.0.0.1:1: Connection refused; localhost:2: Connection refused)\n"


# --- configurations, elections, quorum --------------------------------------------------------------------------------


def test_to_14_configurations(cluster: Cluster) -> None:
    good("create-topic", "configured")
    cluster.wait_topic("configured")
    assert good("config", "describe", "--topic", "configured") == "Dynamic configs for topic configured are:\n"
    assert good("config", "alter", "--topic", "configured", "--set", "retention.ms=5000") == (
        "Completed updating config for topic configured.\n"
    )
    line = "  retention.ms=5000 sensitive=false synonyms={DYNAMIC_TOPIC_CONFIG:retention.ms=5000"
    wait_for("the value is known", lambda: line in good("config", "describe", "--topic", "configured"))
    good("config", "alter", "--topic", "configured", "--delete", "retention.ms")
    wait_for("the value is gone", lambda: "5000" not in good("config", "describe", "--topic", "configured"))
    good("config", "alter", "--broker-defaults", "--set", "log.retention.ms=7000")
    wait_for("brokers know it", lambda: "log.retention.ms=7000" in good("config", "describe", "--broker", "2"))
    good("config", "alter", "--broker-defaults", "--delete", "log.retention.ms")
    good("config", "alter", "--broker", "2", "--set", "my.plugin.key=secret")
    unknown = "  my.plugin.key=null sensitive=true synonyms={DYNAMIC_BROKER_CONFIG:my.plugin.key=null}"
    wait_for("a key of nobody is shown, and hidden", lambda: unknown in good("config", "describe", "--broker", "2").splitlines())
    good("config", "alter", "--broker", "2", "--delete", "my.plugin.key")
    assert "log.segment.bytes=" in good("config", "describe", "--broker", "2", "--all")


def test_to_16_elections(cluster: Cluster) -> None:
    cluster.create_topic("elected", assignment=[[2, 3, 4]])
    already = "Valid replica already elected for partitions elected-0\n"
    assert good("elect-leaders", "--topic", "elected") == already
    cluster.kill(2)
    cluster.wait_leader("elected", not_in=(2,))
    failed = run("elect-leaders", "--topic", "elected")
    assert failed.exit_code == 1
    assert (
        "Error completing leader election (PREFERRED) for partition: elected-0: PREFERRED_LEADER_NOT_AVAILABLE" in failed.stderr
    )
    assert good("describe", "elected", "--under-replicated-partitions").startswith("\tTopic: elected\tPartition: 0\tLeader: ")
    assert good("restart", 2) == "node 2 restarted\n"
    cluster.wait_whole("elected")
    assert good("elect-leaders", "--topic", "elected", "--partition", 0) in (
        "Successfully completed leader election (PREFERRED) for partitions elected-0\n",
        "Valid replica already elected for partitions elected-0\n",
    )
    cluster.wait_leader("elected", not_in=(3, 4))  # what the controller has decided each broker learns a moment later


def test_to_20_the_quorum_and_the_cluster(cluster: Cluster) -> None:
    names = [line.split(":")[0] for line in good("quorum", "describe", "--status").splitlines()]
    assert " ".join(names) == (
        "ClusterId LeaderId LeaderEpoch HighWatermark MaxFollowerLag MaxFollowerLagTimeMs CurrentVoters CurrentObservers"
    )
    header, leader, *observers = [line.split("\t") for line in good("quorum", "describe", "--replication").splitlines()]
    assert [cell.strip() for cell in header[:7]] == [
        "NodeId", "DirectoryId", "LogEndOffset", "Lag", "LastFetchTimestamp", "LastCaughtUpTimestamp", "Status",
    ]  # fmt: skip
    assert (leader[0].strip(), leader[6].strip()) == ("1", "Leader")
    assert sorted(row[0].strip() for row in observers if row[6].strip() == "Observer") == ["2", "3", "4"]
    described = json.loads(good("cluster", "describe", "-o", "json"))
    assert described["controller"] == 1
    assert [broker["id"] for broker in described["brokers"]] == [2, 3, 4]


# --- records ----------------------------------------------------------------------------------------------------------


def test_to_31_keys_formats_and_limits(cluster: Cluster, tmp_path: Path) -> None:
    good("create-topic", "words", "--partitions", 2, "--replication-factor", 3)
    cluster.wait_whole("words")
    (tmp_path / "input").write_text("k→1\nk→2\n", encoding="utf-8")
    done = json.loads(
        good("produce", "words", "--input", tmp_path / "input", "--key-separator", "→", "--partition", 1, "-o", "json")
    )
    assert (done["sent"], done["acknowledged"], done["failed"]) == (2, 2, 0)
    good("produce", "words", "--key-separator", "\\t", "--partition", 0, stdin="t\tab\n")
    read = process("consume", "words", "--from-beginning", "--timeout", 0.5, "--format", "%p %o %k=%s\\n")
    assert sorted(read.stdout.splitlines()) == ["0 0 t=ab", "1 0 k=1", "1 1 k=2"]
    assert read.stderr == "Processed a total of 3 messages\n"
    one = process("consume", "words", "--partition", 1, "--offset", 1, "--max-messages", 1, "-o", "json")
    assert json.loads(one.stdout)["value"] == "2"
    assert one.returncode == 0


def test_what_was_read_before_a_bad_line_is_written_and_counted(cluster: Cluster) -> None:
    good("create-topic", "partly")
    cluster.wait_topic("partly")
    for line, words in (
        ("no separator", "line 3 has no key separator ':'"),
        ("k:" + "x" * 2_000_000, "line 3: MESSAGE_TOO_LARGE"),
    ):
        done = process("produce", "partly", "--key-separator", ":", stdin=f"a:1\nb:2\n{line}\nc:3\n")
        assert done.returncode == 1
        assert "2 of 2 records acknowledged" in done.stderr
        assert done.stderr.splitlines()[-1].startswith(f"error: {words}")
    assert cluster.consume("partly", at_least=4) == ["1", "2", "1", "2"]


def started(*arguments: object, stdin: int | None = None) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "kraftlite", *map(str, arguments)],
        stdin=stdin,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
    )


def test_ctrl_c_ends_consume_and_produce_with_what_they_did(cluster: Cluster) -> None:
    good("create-topic", "interrupted")
    cluster.wait_topic("interrupted")
    good("produce", "interrupted", stdin="a\n")
    reader = started("consume", "interrupted", "--from-beginning")
    assert reader.stdout is not None
    assert reader.stdout.readline() == "a\n"
    reader.send_signal(signal.SIGINT)
    _, err = reader.communicate(timeout=PATIENCE_S)
    assert (reader.returncode, err) == (0, "Processed a total of 1 messages\n")
    writer = started("produce", "interrupted", stdin=subprocess.PIPE)
    assert writer.stdin is not None
    writer.stdin.write("b\n" * 600)
    writer.stdin.flush()
    wait_for("the writer writes", lambda: '"high_watermark": 1,' not in good("offsets", "interrupted", "-o", "json"))
    writer.send_signal(signal.SIGINT)
    _, err = writer.communicate(timeout=PATIENCE_S)
    assert writer.returncode == 130, err
    assert err.splitlines()[-1] == "interrupted"
    sent, acknowledged = re.findall(r"(\d+) of (\d+) records acknowledged", err)[0]
    assert sent == acknowledged


# --- files ------------------------------------------------------------------------------------------------------------


def test_to_23_to_24_log_dump_of_a_whole_cluster(cluster: Cluster) -> None:
    good("create-topic", "dumped", "--partitions", 1, "--replication-factor", 1)
    cluster.wait_topic("dumped")
    good("produce", "dumped", "--key-separator", ":", stdin="k:v\n")
    everything = good("log", "dump", cluster.data_dir)
    assert "key: k payload: v" in everything
    assert '"type":"TOPIC_RECORD"' in everything
    assert "SnapshotHeader" in everything
    assert "node.log" not in everything
    leader = cluster.leader("dumped")
    log = Path(cluster.node(leader).data_dir) / "dumped-0" / f"{0:020d}.log"
    lines = good("log", "dump", log).splitlines()
    assert lines[:2] == [f"Dumping {log}", "Log starting offset: 0"]
    assert re.match(
        r"baseOffset: 0 lastOffset: 0 count: 1 baseSequence: 0 lastSequence: 0 producerId: \d+ producerEpoch: 0 "
        r"partitionLeaderEpoch: 0 isTransactional: false isControl: false deleteHorizonMs: OptionalLong.empty position: 0 "
        r"CreateTime: \d+ size: \d+ magic: 2 compresscodec: none crc: \d+ isvalid: true$",
        lines[2],
    )
    assert re.match(
        r"\| offset: 0 CreateTime: \d+ keySize: 1 valueSize: 1 sequence: 0 headerKeys: \[\] key: k payload: v$", lines[3]
    )
    for line in good("log", "dump", log, "-o", "json").splitlines():
        json.loads(line)


# --- nodes ------------------------------------------------------------------------------------------------------------


def test_ps_and_the_states_of_nodes(cluster: Cluster) -> None:
    def states() -> dict[int, str]:
        return {node["id"]: node["state"] for node in json.loads(good("ps", "-o", "json"))["nodes"]}

    nodes = json.loads(good("ps", "-o", "json"))["nodes"]
    assert [list(node) for node in nodes] == [["id", "roles", "pid", "state", "data_dir", "addresses"]] * 4
    assert nodes[0]["roles"] == ["controller"]
    assert nodes[1]["roles"] == ["broker"]
    assert all(list(node["addresses"]) == ["kafka", "grpc"] for node in nodes)
    assert set(states().values()) == {"running"}

    assert good("pause", 3) == "node 3 paused\n"
    assert states()[3] == "paused"
    assert good("pause", 3) == "node 3 paused\n"
    assert good("resume", 3) == "node 3 resumed\n"
    assert states()[3] == "running"

    pid = nodes[3]["pid"]
    assert good("kill", 4) == "node 4 killed\n"
    dead = next(node for node in json.loads(good("ps", "-o", "json"))["nodes"] if node["id"] == 4)
    assert (dead["state"], dead["pid"]) == ("stopped", None)
    for command in (("kill", 4), ("kill", 4, "--signal", "TERM"), ("pause", 4), ("resume", 4)):
        refused = run(*command)
        assert (refused.exit_code, refused.stderr) == (1, "Error: node 4 is not running\n")
    assert good("restart", 4) == "node 4 restarted\n"
    again = next(node for node in json.loads(good("ps", "-o", "json"))["nodes"] if node["id"] == 4)
    assert again["state"] == "running"
    assert again["pid"] != pid

    good("pause", 2)
    assert good("restart", 2) == "node 2 restarted\n"
    assert good("kill", 3, "--signal", "term") == "node 3 told to stop\n"
    wait_for("node 3 has ended", lambda: states()[3] == "stopped")
    assert good("up", "--detach").count("running") == 4


def test_down_twice_and_up_twice(cluster: Cluster) -> None:
    good("create-topic", "kept", "--replication-factor", 3)
    cluster.wait_topic("kept")
    good("produce", "kept", stdin="a\n")
    for _ in range(2):
        assert good("down").startswith("stopped")
    assert {node["state"] for node in json.loads(good("ps", "-o", "json"))["nodes"]} == {"stopped"}
    nobody = run("topic", "list")
    assert nobody.exit_code == 1
    assert "kraftlite up" in nobody.stderr
    for _ in range(2):
        assert "Cluster" in good("up", "--detach")
    assert cluster.consume("kept", at_least=1) == ["a"]


def test_a_configuration_that_no_node_accepts_leaves_nothing_behind(tmp_path: Path) -> None:
    place = tmp_path / "other"
    done = process("up", "--detach", "--data-dir", place, "--config", "num.partitions=x", "--config", "log.retention.ms=0")
    assert done.returncode == 1
    assert done.stderr.count("num.partitions=x") == 1
    assert "log.retention.ms=0" in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert not place.exists()


def test_up_in_the_foreground_ends_with_ctrl_c(tmp_path: Path) -> None:
    place = tmp_path / "front"
    front = started("up", "--controllers", 1, "--brokers", 1, "--data-dir", place, "--config", "nosuch.key=1")
    try:
        assert front.stderr is not None
        lines = []
        while "Press Ctrl-C" not in (line := front.stderr.readline()):
            assert line, "it ended"
            lines.append(line)
        assert any(line.startswith("warning: unknown configuration key nosuch.key") for line in lines)
        front.send_signal(signal.SIGINT)
        front.communicate(timeout=2 * PATIENCE_S)
        assert front.returncode == 0
        assert {node["state"] for node in json.loads(good("ps", "-o", "json", "--data-dir", place))["nodes"]} == {"stopped"}
    finally:
        if front.poll() is None:
            front.kill()
        good("down", "--wipe", "--data-dir", place)
    assert not place.exists()
