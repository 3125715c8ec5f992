"""Failures are timed from a metadata log, traces and histories that were made by hand, so that every number is known."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from click.testing import CliRunner, Result

pytest.importorskip("numpy")
pytest.importorskip("pyarrow")

import pyarrow.parquet as pq

from kraftlite.cli.pipeline_failover import failover_report_command
from kraftlite.failover.analysis import Failure, RunReport, percentile
from kraftlite.failover.page import page
from kraftlite.local.layout import plan
from kraftlite.local.state import save
from kraftlite.log.batch import Record, build_batch
from kraftlite.log.control import LeaderChange, SnapshotFooter, SnapshotHeader, control_batch
from kraftlite.metadata.codec import MetadataSerde
from kraftlite.metadata.records import (
    BrokerRegistrationChangeRecord,
    ClearElrRecord,
    PartitionChangeRecord,
    PartitionRecord,
    RegisterBrokerRecord,
    TopicRecord,
)
from kraftlite.model.ids import NodeId
from kraftlite.spark.jobs.failover_report import AuditInputError, FailoverReport, HistoryError, failover_report

TOPIC_ID = UUID(int=500)
SERDE = MetadataSerde()
N4, N5, N6 = NodeId(4), NodeId(5), NodeId(6)
ALL = (N4, N5, N6)
KILLED, FENCED, REPLACED, BACK, WHOLE, END = 20_000, 29_000, 32_000, 35_000, 36_500, 90_000


class Run:
    """A run's directory. `add` appends records to its metadata log, in one batch."""

    def __init__(self, path: Path, *, base: int = 0) -> None:
        self.path = path
        self.directory = path / "node-1" / "data" / "__cluster_metadata-0"
        self.directory.mkdir(parents=True)
        self._base = self._offset = base
        self._data = b""
        self._trace: list[dict[str, Any]] = []
        self._history: list[dict[str, Any]] = []

    def add(self, time_ms: int, *records: Any, epoch: int = 1) -> None:
        encoded = [Record(None, SERDE.encode(record)) for record in records]
        self._data += build_batch(encoded, base_offset=self._offset, leader_epoch=epoch, timestamp_ms=time_ms)
        self._offset += len(records)

    def leads(self, time_ms: int, node: int, epoch: int) -> None:
        change = LeaderChange(leader_id=NodeId(node), voters=(NodeId(1), NodeId(2)), granting_voters=(NodeId(node),))
        self._data += control_batch([change], timestamp_ms=time_ms, leader_epoch=epoch, base_offset=self._offset)
        self._offset += 1

    def event(self, time_ms: int, node: int, name: str, **facts: Any) -> None:
        self._trace.append({"ts": time_ms, "node": node, "event": name, **facts})

    def line(self, **fields: Any) -> None:
        self._history.append(fields)

    def acks(self, partition: int, *spans: tuple[int, int]) -> None:
        """Acknowledged every 10 ms from each span's beginning to its end, inclusive."""
        offset = 0
        for first, last in spans:
            for time_ms in range(first, last + 1, 10):
                self.line(topic="orders", partition=partition, offset=offset, time_ms=time_ms)
                offset += 1

    def write(self) -> Path:
        (self.directory / f"{self._base:020d}.log").write_bytes(self._data)
        (self.path / "node-1" / "trace.jsonl").write_text("".join(json.dumps(event) + "\n" for event in self._trace))
        if self._history:
            (self.path / "history.jsonl").write_text("".join(json.dumps(line) + "\n" for line in self._history))
        return self.path


def registered(run: Run, time_ms: int, node: NodeId) -> None:
    run.add(
        time_ms,
        RegisterBrokerRecord(
            broker_id=node,
            incarnation_id=UUID(int=int(node)),
            broker_epoch=int(node),
            listeners=(),
            features=(),
            rack=None,
            fenced=True,
            in_controlled_shutdown=False,
            log_dirs=(),
        ),
        BrokerRegistrationChangeRecord(broker_id=node, broker_epoch=int(node), fenced=False),
    )


def made(partition: int, leader: NodeId) -> PartitionRecord:
    return PartitionRecord(
        topic_id=TOPIC_ID, partition=partition, replicas=ALL, isr=ALL, leader=leader, leader_epoch=0, partition_epoch=0
    )


def changed(partition: int, **changes: Any) -> PartitionChangeRecord:
    return PartitionChangeRecord(topic_id=TOPIC_ID, partition=partition, **changes)


def begin(path: Path) -> Run:
    """Three brokers; node 4 leads partition 0, node 5 partition 1; all is well from 1 s on."""
    run = Run(path)
    run.leads(900, 1, 1)
    for node in ALL:
        registered(run, 1000, node)
    run.add(1000, TopicRecord(name="orders", topic_id=TOPIC_ID), made(0, N4), made(1, N5))
    return run


def fence(run: Run, node: NodeId = N4) -> None:
    run.add(
        FENCED,
        BrokerRegistrationChangeRecord(broker_id=node, broker_epoch=4, fenced=True),
        changed(0, isr=(N5, N6), leader=N5),
        changed(1, isr=(N5, N6)),
    )


def come_back(run: Run) -> None:
    run.add(BACK, BrokerRegistrationChangeRecord(broker_id=N4, broker_epoch=9, fenced=False), epoch=2)
    run.add(WHOLE - 100, changed(1, isr=(N5, N6, N4)), epoch=2)
    run.add(WHOLE, changed(0, isr=(N5, N6, N4)), epoch=2)
    run.add(END, changed(1, isr=(N5, N6, N4)), epoch=2)  # something that says how long the run was


def whole_run(path: Path) -> Run:
    """A broker is killed, then the controller; both come back."""
    run = begin(path)
    fence(run)
    run.leads(REPLACED, 2, 2)
    come_back(run)
    run.event(FENCED - 1, 1, "controller.broker_session_expired", broker_id=4, broker_epoch=4, silent_ms=9200)
    run.event(REPLACED - 10, 2, "raft.fetch_timed_out", leader_id=1, raft_epoch=1, silent_ms=1990)
    return run


def report(*runs: Path, **options: Any) -> FailoverReport:
    return failover_report(runs, engine="local", **options)


def spans(failure: Failure) -> tuple[int | None, ...]:
    return failure.detected_ms, failure.elected_ms, failure.written_ms, failure.caught_up_ms


def test_the_ledger_of_faults_says_what_the_failure_was(tmp_path: Path) -> None:
    """The report names the kill and who did it, instead of what followed; a history that lists it as well counts once."""
    run = whole_run(tmp_path / "run")
    lines = [
        {"ts": KILLED, "node": 4, "event": "fault.asked", "id": "a", "kind": "kill", "who": "anna", "door": "cli"},
        {"ts": 34_000, "node": 4, "event": "fault.ended", "id": "a", "how": "start", "who": "anna", "door": "cli"},
        {"ts": 50_000, "node": 5, "event": "fault.asked", "id": "b", "kind": "kill", "who": "anna", "door": "cli"},
        {"ts": 50_001, "node": 5, "event": "fault.failed", "id": "b", "why": "it is not running"},
        {"ts": 60_000, "node": 6, "event": "fault.asked", "id": "c", "kind": "stop", "who": "anna", "door": "cli"},
    ]
    path = run.write()
    (path / "faults.ledger").write_text("".join(json.dumps(line) + "\n" for line in lines))
    told = [(it.kind, it.node, it.event, it.source, it.began_ms) for it in report(path).runs[0].failures]
    assert told[0] == ("broker", 4, "kill", "ledger: anna (cli)", KILLED)
    assert [(node, event) for _, node, event, _, _ in told[1:]] == [(1, "replaced")]
    run.line(event="kill", node=4, time_ms=KILLED + 20)
    again = report(run.write()).runs[0].failures
    assert [(it.node, it.event, it.source) for it in again if it.node == 4] == [(4, "kill", "injected")]


def test_a_cut_from_the_controller_is_what_a_broker_was_fenced_for(tmp_path: Path) -> None:
    """The report names the cut, and who did it; a cut from another broker is no reason to be fenced."""
    for other, blamed in ((1, True), (5, False)):
        run = whole_run(tmp_path / f"run-{other}")
        cut = {"ts": KILLED, "node": 4, "event": "fault.asked", "id": "a", "kind": "cut", "other": other, "for_ms": 60_000}
        path = run.write()
        (path / "faults.ledger").write_text(json.dumps({**cut, "who": "anna", "door": "cli"}) + "\n")
        first = report(path).runs[0].failures[0]
        assert first.node == 4
        assert ((first.event, first.source) == ("cut", "ledger: anna (cli)")) is blamed


def test_injected_failures_are_timed_to_the_millisecond(tmp_path: Path) -> None:
    run = whole_run(tmp_path / "run")
    run.line(event="kill", node=4, time_ms=KILLED)
    run.line(event="kill", node=1, time_ms=30_000)
    run.line(event="start", node=4, time_ms=34_000)
    run.acks(0, (10_000, 19_990), (29_300, 80_000))
    run.acks(1, (10_000, 20_010), (29_050, 80_000))
    run.line(topic="orders", partition=0, error="REQUEST_TIMED_OUT", time_ms=25_000)
    run.line(topic="orders", error="REQUEST_TIMED_OUT", time_ms=25_000)
    found = report(run.write())
    first, second = found.runs[0].failures
    assert (first.kind, first.node, first.event, first.source, first.began_ms) == ("broker", 4, "kill", "injected", KILLED)
    assert spans(first) == (8999, 9000, 9300, 16_500)
    assert (first.led, first.affected) == (1, 2)
    assert (second.kind, second.node, spans(second)) == ("controller", 1, (1990, 2000, None, None))
    leader, follower = found.runs[0].outages
    assert (leader.role, leader.unavailable_ms, leader.last_ack_ms, leader.first_ack_ms) == ("leader", 9300, 19_990, 29_300)
    assert (leader.leader_before, leader.leader_after, leader.leader_epoch, leader.errors, leader.source) == (4, 5, 1, 1, "acks")
    assert (follower.role, follower.unavailable_ms, follower.leader_after) == ("follower", 9040, 5)
    assert found.ok and found.runs[0].refused == 2


def test_without_histories_the_trace_says_when_it_began(tmp_path: Path) -> None:
    run = whole_run(tmp_path / "run")
    run.event(KILLED + 5, 5, "fetcher.request_failed", leader_id=4, error="gone")
    run.event(KILLED + 7, 6, "fetcher.request_failed", leader_id=5, error="of another node")
    run.event(29_120, 5, "partition.first_produce_acknowledged", tp=["orders", 0], leader_epoch=0, offset=1)
    run.event(29_150, 5, "partition.first_produce_acknowledged", tp=["orders", 0], leader_epoch=1, offset=9)
    found = report(run.write()).runs[0]
    first, second = found.failures
    assert (found.acknowledged, found.refused) == (None, None)  # unknown is not 0
    assert "how many records were acknowledged is not known" in page([found], [], [])
    assert (first.event, first.source, first.began_ms) == ("fenced", "trace", KILLED + 5)
    assert spans(first) == (8994, 8995, 9145, 16_495)
    assert (second.event, second.source, second.began_ms, second.node) == ("replaced", "trace", 30_000, 1)


def test_with_nothing_but_the_metadata_log_a_failure_begins_where_it_was_noticed(tmp_path: Path) -> None:
    run = begin(tmp_path / "run")
    fence(run)
    come_back(run)
    found = report(run.write()).runs[0]
    assert [(f.source, f.began_ms, spans(f)) for f in found.failures] == [("record", FENCED, (0, 0, None, 7500))]
    assert [(o.source, o.unavailable_ms) for o in found.outages] == [("records", 0), ("records", 0)]


def test_an_orderly_shutdown_is_no_failure(tmp_path: Path) -> None:
    run = begin(tmp_path / "run")
    leaving = BrokerRegistrationChangeRecord(broker_id=N4, broker_epoch=4, in_controlled_shutdown=True)
    run.add(20_000, leaving, changed(0, isr=(N5, N6), leader=N5), changed(1, isr=(N5, N6)))
    run.add(20_500, BrokerRegistrationChangeRecord(broker_id=N4, broker_epoch=4, fenced=True))
    run.event(21_000, 1, "node.stopping", reason="signal", graceful=True)
    run.leads(21_500, 2, 2)
    found = report(run.write()).runs[0]
    assert (found.failures, found.planned, found.closed_ms) == ([], 1, 20_000)
    assert [row.shrinks for row in found.isr] == [0, 0]  # how a run is ended is no flapping


def test_flapping_is_counted_per_partition(tmp_path: Path) -> None:
    run = begin(tmp_path / "run")
    for turn in range(3):
        run.add(20_000 + turn * 10_000, changed(1, isr=(N5, N6)))
        run.add(24_000 + turn * 10_000, changed(1, isr=ALL))
    run.add(100_000, changed(1, isr=(N5, N6)))
    run.add(600_000, changed(1, isr=ALL))  # too late to be a flap
    still, flapped = report(run.write()).runs[0].isr
    assert (still.shrinks, still.flaps, still.short_ms) == (0, 0, 0)
    assert (flapped.shrinks, flapped.expands, flapped.flaps, flapped.short_ms) == (4, 4, 3, 3 * 4000 + 500_000)


def killed(path: Path, finish: Callable[[Run], None]) -> FailoverReport:
    run = begin(path)
    run.line(event="kill", node=4, time_ms=KILLED)
    finish(run)
    run.add(END, changed(1, isr=(N5, N6)))
    return report(run.write())


def test_a_partition_that_got_no_leader_is_a_violation(tmp_path: Path) -> None:
    def finish(run: Run) -> None:
        run.add(FENCED, BrokerRegistrationChangeRecord(broker_id=N4, broker_epoch=4, fenced=True), changed(0, leader=None))

    found = killed(tmp_path / "run", finish)
    assert not found.ok and found.problems == ("run, failure 1: orders-0 had no other leader",)
    assert found.runs[0].failures[0].elected_ms is None


def test_a_leader_from_outside_of_the_isr_is_a_violation(tmp_path: Path) -> None:
    def finish(run: Run) -> None:
        run.add(15_000, changed(0, isr=(N4, N5)))
        run.add(
            FENCED, BrokerRegistrationChangeRecord(broker_id=N4, broker_epoch=4, fenced=True), changed(0, isr=(N6,), leader=N6)
        )

    found = killed(tmp_path / "run", finish)
    assert found.problems == ("run, failure 1: orders-0: node 6 was elected from outside of the ISR",)
    assert [row.unclean for row in found.runs[0].isr] == [1, 0]


def test_who_was_eligible_until_the_sets_were_cleared_is_elected_uncleanly(tmp_path: Path) -> None:
    """`min.insync.replicas` is changed while nobody is in the ISR: by Kafka's rules nobody may lead cleanly then."""
    run = Run(tmp_path)
    for node in ALL:
        registered(run, 1_000, node)
    run.add(1_500, TopicRecord(name="orders", topic_id=TOPIC_ID), made(0, N4))
    gone = PartitionChangeRecord(topic_id=TOPIC_ID, partition=0, leader=None, isr=(), elr=(N5, N6))
    run.add(KILLED, gone, BrokerRegistrationChangeRecord(broker_id=N4, broker_epoch=4, fenced=True))
    run.add(KILLED + 100, ClearElrRecord(topic_name="orders"))
    run.add(KILLED + 200, PartitionChangeRecord(topic_id=TOPIC_ID, partition=0, leader=N5, isr=(N5,), recovering=True))
    found = report(run.write())
    assert found.problems == (f"{tmp_path.name}, failure 1: orders-0: node 5 was elected from outside of the ISR",)


def test_a_partition_that_is_not_written_again_is_a_violation(tmp_path: Path) -> None:
    def finish(run: Run) -> None:
        fence(run)
        run.acks(0, (10_000, 19_990))
        run.acks(1, (10_000, 20_010), (29_050, 80_000))

    assert killed(tmp_path / "run", finish).problems == ("run, failure 1: orders-0 was never written again",)


def test_a_node_that_comes_back_and_does_not_catch_up_is_a_violation(tmp_path: Path) -> None:
    def finish(run: Run) -> None:
        fence(run)
        run.add(BACK, BrokerRegistrationChangeRecord(broker_id=N4, broker_epoch=9, fenced=False))
        run.add(WHOLE, changed(0, isr=(N5, N6, N4)))

    assert killed(tmp_path / "run", finish).problems == ("run, failure 1: node 4 came back, and not every ISR is whole",)


def test_a_limit_makes_slowness_a_violation(tmp_path: Path) -> None:
    run = whole_run(tmp_path / "run")
    run.line(event="kill", node=4, time_ms=KILLED)
    path = run.write()
    assert report(path, max_unavailable_ms=9000).ok
    problems = report(path, max_unavailable_ms=8999).problems
    assert problems[0] == "run, failure 1: orders-0 was unavailable for 9000 ms, allowed are 8999"


def test_a_log_that_begins_with_a_snapshot(tmp_path: Path) -> None:
    """The topic and the brokers are only in the snapshot."""
    run = Run(tmp_path / "run", base=100)
    run.line(event="kill", node=4, time_ms=KILLED)
    for node in ALL:
        registered(run, 1000, node)
    run.add(1000, TopicRecord(name="orders", topic_id=TOPIC_ID), made(0, N4), made(1, N5))
    header = control_batch([SnapshotHeader(last_contained_log_timestamp_ms=1000)], timestamp_ms=1000)
    footer = control_batch([SnapshotFooter()], timestamp_ms=1000, base_offset=1_000)
    (run.directory / f"{100:020d}-{1:010d}.checkpoint").write_bytes(header + run._data + footer)
    run._data, run._offset = b"", 100
    run.leads(1500, 1, 1)
    fence(run)
    come_back(run)
    (failure,) = report(run.write()).runs[0].failures
    assert spans(failure) == (9000, 9000, None, 16_500)


def test_percentiles_are_over_all_runs(tmp_path: Path) -> None:
    paths = []
    for number in range(10):
        run = whole_run(tmp_path / f"run-{number}")
        run.line(event="kill", node=4, time_ms=KILLED + number * 100)
        paths.append(run.write())
    rows = {(row["kind"], row["metric"]): row for row in report(*paths).percentiles}
    elected = rows["broker", "elected_ms"]
    assert [elected[name] for name in ("count", "min_ms", "p50_ms", "p90_ms", "p99_ms", "max_ms")] == [
        10,
        8100,
        8500,
        8900,
        9000,
        9000,
    ]
    assert percentile([], 0.5) is None and percentile([7], 0.99) == 7


def test_tables_json_and_page_are_written(tmp_path: Path) -> None:
    run = whole_run(tmp_path / "run <b>")
    run.line(event="kill", node=4, time_ms=KILLED)
    run.acks(0, (10_000, 19_990), (29_300, 80_000))
    found = report(run.write(), out=tmp_path / "out")
    tables = {name: pq.read_table(tmp_path / "out" / name).to_pylist() for name in ("failures", "outages", "isr", "percentiles")}
    assert [(row["node"], row["elected_ms"], row["problems"]) for row in tables["failures"]] == [(4, 9000, []), (1, 2000, [])]
    assert tables["outages"][0]["unavailable_ms"] == 9300
    assert len(tables["isr"]) == 2 and tables["percentiles"] == list(found.percentiles)
    stored = json.loads((tmp_path / "out" / "report.json").read_text())
    assert stored["ok"] is True and stored["failures"][0]["written_ms"] == 9300
    report(run.write(), out=tmp_path / "out")  # is replaced, not added to
    assert len(pq.read_table(tmp_path / "out" / "failures")) == 2
    check_page((tmp_path / "out" / "report.html").read_text(), "run &lt;b&gt;")


class Checker(HTMLParser):
    """That tags are closed, and nothing is fetched."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.count: dict[str, int] = {}

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert tag not in ("script", "link", "img", "iframe") and not {"src", "href"} & {name for name, _ in attrs}
        self.count[tag] = self.count.get(tag, 0) + 1
        if tag != "meta":
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.count[tag] = self.count.get(tag, 0) + 1

    def handle_endtag(self, tag: str) -> None:
        assert self.open and self.open.pop() == tag


def check_page(text: str, name: str) -> None:
    checker = Checker()
    checker.feed(text)
    assert checker.open == [] and checker.count["svg"] >= 2
    assert name in text and "http" not in text and "url(" not in text and "@import" not in text
    assert "prefers-color-scheme: dark" in text
    for words in ("1: kill 4", "2: replaced 1", "orders-0", "9.30 s", "16.50 s"):
        assert words in text
    used = set(re.findall(r"var\((--\w+)\)", text))
    assert used <= set(re.findall(r"(--\w+):", text))
    widths = [float(width) for width in re.findall(r'<rect class="\w+" x="[\d.]+" y="[\d.]+" width="([-\d.]+)"', text)]
    assert widths and min(widths) > 0 and max(widths) <= 1000


def test_labels_of_failures_at_the_same_time_are_in_rows_of_their_own() -> None:
    run = RunReport(run="r", began_ms=0, end_ms=100_000)
    run.failures = [
        Failure(run="r", number=n, node=n, kind="broker", event="kill", source="injected", began_ms=50_000 + n, detected_ms=9000)
        for n in range(1, 4)
    ]
    run.spans = []
    assert page([run], [], []).count("<svg") == 1  # no lanes, no timeline: but the page holds
    from kraftlite.failover.analysis import Span

    run.spans = [Span(lane="node 1", state="up", from_ms=0, until_ms=100_000)]
    text = page([run], [], ["a <problem>"])
    rows = re.findall(r'y="(\d+)" style="[^"]*">(\d): kill', text)
    assert [row for row, _ in rows] == ["22", "40", "58"]
    assert "a &lt;problem&gt;" in text and "1 problem." in text


def test_the_copy_of_a_local_cluster_is_a_run(tmp_path: Path) -> None:
    run = begin(tmp_path / "cluster")
    fence(run)
    save(plan(tmp_path / "cluster", controllers=1, brokers=1, combined=True))
    run.write()
    shutil.copytree(tmp_path / "cluster", tmp_path / "copy")
    (original,), (copy,) = (report(tmp_path / name).runs for name in ("cluster", "copy"))
    assert [replace(failure, run=original.run) for failure in copy.failures] == original.failures != []


def test_what_cannot_be_reported_is_said(tmp_path: Path) -> None:
    with pytest.raises(AuditInputError, match="no such directory"):
        report(tmp_path / "nowhere")
    (tmp_path / "empty").mkdir()
    with pytest.raises(AuditInputError, match="there is no __cluster_metadata-0"):
        report(tmp_path / "empty")
    run = begin(tmp_path / "run")
    run.line(event="explode", node=1, time_ms=1)
    path = run.write()
    with pytest.raises(HistoryError, match=r"history\.jsonl:1"):
        report(path)
    with pytest.raises(AuditInputError, match=r"clients-\*\.jsonl: there is no such file"):
        report(path, history=["clients-*.jsonl"])
    with pytest.raises(AuditInputError, match="no run is given"):
        report()
    with pytest.raises(ValueError, match="allowed are spark, local"):
        failover_report([path], engine="flink")


def test_the_command_ends_with_what_it_found(tmp_path: Path) -> None:
    run = whole_run(tmp_path / "run")
    run.line(event="kill", node=4, time_ms=KILLED)
    path = str(run.write())

    def command(*arguments: str) -> Result:
        return CliRunner().invoke(failover_report_command, ["--engine", "local", *arguments])

    good = command("--run", path, "--out", str(tmp_path / "out"))
    assert good.exit_code == 0 and "kill broker 4" in good.stdout and "16.50 s" in good.stdout
    assert (tmp_path / "out" / "report.html").exists()
    assert command("--run", path, "--max-unavailable", "10").exit_code == 1
    assert json.loads(command("--run", path, "--json").stdout)["failures"][0]["elected_ms"] == 9000
    for wrong in (("--run", str(tmp_path / "nowhere")), ("--run", path, "--history", "none-*.jsonl")):
        found = command(*wrong)
        assert found.exit_code == 2 and "there is no such" in found.stderr
