from __future__ import annotations

import asyncio
import io
import json
import logging
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import ClassVar
from uuid import UUID

import pytest

from kraftlite.controller.metrics import EventTimes
from kraftlite.model.ids import NodeId
from kraftlite.obs.log import LINES_PER_SECOND, LogSink, capture_python_logging
from kraftlite.obs.metrics import Metrics, MetricsServer
from kraftlite.obs.stock import register_controller
from kraftlite.obs.timeline import TimelineFile, merge_timelines, read_timeline, read_timelines
from kraftlite.obs.tracer import HostTracer, open_tracer
from kraftlite.runtime.durations import DurationSummary
from kraftlite.runtime.trace import TraceEvent
from kraftlite.runtime.trace.node import ListenerOpened
from tests.harness.clock import FakeClock

NODE = NodeId(4)


@dataclass(frozen=True, slots=True, kw_only=True)
class Moved(TraceEvent):
    event: ClassVar[str] = "partition.moved"
    partition: str
    replicas: tuple[int, ...] = ()
    topic_id: UUID | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Whispered(TraceEvent):
    event: ClassVar[str] = "partition.whispered"
    level: ClassVar[str] = "debug"


def test_a_log_line_is_json_off_a_terminal() -> None:
    stream = io.StringIO()
    tracer = open_tracer(NODE, FakeClock(), stream=stream)
    tracer.emit(Moved(partition="t-0", replicas=(1, 2), topic_id=UUID(int=5), cause="record@7"))
    tracer.emit(Whispered())
    lines = stream.getvalue().splitlines()
    assert len(lines) == 1
    found = json.loads(lines[0])
    assert found["event"] == "partition.moved"
    assert (found["node"], found["level"], found["partition"], found["replicas"]) == (4, "info", "t-0", [1, 2])
    assert found["cause"] == "record@7"
    assert found["timestamp"].endswith("Z")


@dataclass(frozen=True, slots=True, kw_only=True)
class Broken(TraceEvent):
    event: ClassVar[str] = "partition.broken"
    level: ClassVar[str] = "error"


def test_a_log_beside_a_trace_file_says_once_that_it_leaves_out_what_comes_by_the_thousands(tmp_path: Path) -> None:
    stream, clock, path = io.StringIO(), FakeClock(), tmp_path / "trace.jsonl"
    tracer = open_tracer(NODE, clock, stream=stream, timeline_path=str(path))
    for number in range(LINES_PER_SECOND + 50):
        tracer.emit(Moved(partition=f"t-{number}"))
        tracer.emit(Broken())
    clock.jump_wall(1_000)
    tracer.emit(Moved(partition="later"))
    tracer.close()
    lines = [json.loads(line) for line in stream.getvalue().splitlines()]
    moved = [line["partition"] for line in lines if line["event"] == "partition.moved"]
    assert moved == [*(f"t-{number}" for number in range(LINES_PER_SECOND)), "later"]
    assert [(line["kind"], line["level"]) for line in lines if line["event"] == "log.shortened"] == [("partition.moved", "info")]
    assert sum(line["event"] == "partition.broken" for line in lines) == LINES_PER_SECOND + 50
    assert sum(event["event"] == "partition.moved" for event in read_timeline(path)) == LINES_PER_SECOND + 51


def test_without_a_trace_file_the_log_has_every_line() -> None:
    stream = io.StringIO()
    tracer = open_tracer(NODE, FakeClock(), stream=stream)
    for _ in range(LINES_PER_SECOND * 2):
        tracer.emit(Moved(partition="t"))
    assert len(stream.getvalue().splitlines()) == LINES_PER_SECOND * 2


def test_text_for_people() -> None:
    stream = io.StringIO()
    open_tracer(NODE, FakeClock(), stream=stream, log_format="text").emit(Moved(partition="t-0"))
    assert "partition.moved" in stream.getvalue()
    assert "partition=t-0" in stream.getvalue()


@pytest.mark.parametrize("log_format", ["json", "text"])
def test_what_a_client_calls_itself_does_not_reach_the_terminal_raw(log_format: str) -> None:
    stream = io.StringIO()
    name = "a\x1b[2J\x9b31m\u202eb\x07é"
    open_tracer(NODE, FakeClock(), stream=stream, log_format=log_format).emit(Moved(partition=name))
    line = stream.getvalue().rstrip("\n")
    assert line.isprintable()
    assert "é" in line
    assert "\\x1b[2J" in line


def test_of_a_timeline_without_an_end_of_line_only_pieces_are_read(tmp_path: Path) -> None:
    path = tmp_path / "trace.jsonl"
    event = {"ts": 1, "node": 1, "event": "node.started"}
    path.write_text(json.dumps({**event, "name": "x" * 3_000_000}) + "\n" + json.dumps(event) + "\n" + "[" * 100_000 + "\n")
    assert list(read_timeline(path)) == [event]


def test_a_stream_that_is_gone_breaks_nothing() -> None:
    stream = io.StringIO()
    tracer = open_tracer(NODE, FakeClock(), stream=stream)
    stream.close()
    tracer.emit(Moved(partition="t-0"))
    tracer.emit(Moved(partition="t-1"))


def test_pythons_own_logging_goes_the_same_way() -> None:
    stream = io.StringIO()
    root = logging.getLogger()
    before, level = root.handlers[:], root.level
    try:
        capture_python_logging(LogSink(NODE, stream, "json"))
        logging.getLogger("grpc").warning("odd %s", "thing")
        logging.getLogger("grpc").info("chatter")
    finally:
        root.handlers[:] = before
        root.setLevel(level)
    found = [json.loads(line) for line in stream.getvalue().splitlines()]
    assert [(line["event"], line["level"], line["logger"]) for line in found] == [("odd thing", "warning", "grpc")]


def test_what_grpc_says_is_a_line_now_and_then_and_never_a_stack() -> None:
    stream = io.StringIO()
    root = logging.getLogger()
    before, level = root.handlers[:], root.level
    try:
        capture_python_logging(LogSink(NODE, stream, "json"))
        handler = root.handlers[0]
        for number in range(1_000):
            record = logging.LogRecord("grpc._cython.cygrpc", logging.ERROR, "", 0, "Unexpected [%s]", ("x" * 10_000,), None)
            record.created = 1_000 + number / 100
            record.exc_info = (ValueError, ValueError("odd"), None)
            handler.handle(record)
        callback = logging.LogRecord(
            "asyncio", logging.ERROR, "", 0, "Exception in callback PollerCompletionQueue._handle_events()", None, None
        )
        callback.created = 1_011
        handler.handle(callback)
    finally:
        root.handlers[:] = before
        root.setLevel(level)
    found = [json.loads(line) for line in stream.getvalue().splitlines()]
    assert [(line["level"], line.get("error"), line.get("unsaid")) for line in found] == [
        ("warning", "ValueError: odd", None),
        ("warning", None, 999),
    ]
    assert all(len(line["event"]) <= 500 and "exception" not in line for line in found)


def test_the_timeline_keeps_at_least_its_last_half(tmp_path: Path) -> None:
    path = tmp_path / "new" / "trace.jsonl"
    clock = FakeClock()
    sink = TimelineFile(str(path), NODE, max_bytes=4000)
    tracer = HostTracer(NODE, clock, [sink])
    for number in range(200):
        tracer.emit(Moved(partition=f"t-{number}"))
    total = sum(file.stat().st_size for file in path.parent.iterdir())
    events = list(read_timeline(path))
    assert total <= 4000
    assert events[-1]["partition"] == "t-199"
    numbers = [int(event["partition"][2:]) for event in events]
    assert numbers == list(range(numbers[0], 200))
    tracer.close()
    tracer.emit(Moved(partition="t-200"))


def test_a_torn_line_is_left_out(tmp_path: Path) -> None:
    path = tmp_path / "trace.jsonl"
    path.write_bytes(b'{"ts":1,"node":1,"event":"a"}\n\xff\xfe\n[]\n{"ts":2,"no')
    assert [event["event"] for event in read_timeline(path)] == ["a"]
    assert list(read_timeline(tmp_path / "absent")) == []


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="this system has no named pipes")
def test_a_pipe_in_the_place_of_a_trace_holds_nobody_up(tmp_path: Path) -> None:
    path = tmp_path / "trace.jsonl"
    os.mkfifo(path)
    sink = TimelineFile(str(path), NodeId(1))
    sink(1_000, ListenerOpened(listener="CLIENT", endpoint="h:1"), {})
    sink.close()
    assert list(read_timeline(path)) == []


def test_timelines_merge_by_time(tmp_path: Path) -> None:
    (tmp_path / "1").write_text('{"ts":5,"event":"b"}\n{"ts":1,"event":"a"}\n')
    (tmp_path / "2").write_text('{"ts":6,"event":"c"}\n')
    merged = merge_timelines([tmp_path / "1", tmp_path / "2"], since_ms=2)
    assert [event["event"] for event in merged] == ["b", "c"]


def test_timelines_are_read_as_of_one_moment(tmp_path: Path) -> None:
    """An effect is never read without its cause: what is written during the reading is left out."""
    first, second = tmp_path / "1", tmp_path / "2"
    first.write_text('{"ts":1,"event":"a"}\n')
    second.write_text('{"ts":2,"event":"b"}\n')
    events = read_timelines([first, second])
    found = [next(events)["event"]]
    for path in (first, second):
        path.write_text(path.read_text() + '{"ts":3,"event":"late"}\n')
    assert [*found, *(event["event"] for event in events)] == ["a", "b"]


def test_a_directory_that_cannot_be_written_breaks_nothing(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    sink = TimelineFile(str(tmp_path / "file" / "trace.jsonl"), NODE)
    HostTracer(NODE, FakeClock(), [sink]).emit(Moved(partition="t-0"))


async def fetch(port: int, request: bytes) -> bytes:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(request)
    answer = await reader.read()
    writer.close()
    return answer


async def test_the_metrics_page() -> None:
    metrics = Metrics({"node": "4"})
    value: float | None = 1
    metrics.gauge("kafka_controller_kafkacontroller_activecontrollercount", "One on the active controller.", lambda: value)
    metrics.gauge("kraftlite_lag", "By partition.", lambda: 5, labels={"partition": "t-0"})
    metrics.gauge("kraftlite_lag", "By partition.", lambda: 6, labels={"partition": "t-1"})
    metrics.gauge("kraftlite_absent", "Not now.", lambda: None)
    metrics.counter("kraftlite_elections", "Rises.", lambda: 3)
    tracer = HostTracer(NODE, FakeClock(), [metrics])
    tracer.emit(Moved(partition="t-0"))
    server = MetricsServer(metrics)
    endpoint = await server.start("127.0.0.1", 0)
    page = (await fetch(endpoint.port, b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n")).decode()
    assert page.startswith("HTTP/1.1 200 OK")
    assert 'kafka_controller_kafkacontroller_activecontrollercount{node="4"} 1.0' in page
    assert 'kraftlite_lag{node="4",partition="t-1"} 6.0' in page
    assert 'kraftlite_elections_total{node="4"} 3.0' in page
    assert 'kraftlite_trace_events_total{event="partition.moved",node="4"} 1.0' in page
    assert "kraftlite_absent" not in page
    assert (await fetch(endpoint.port, b"GET /other HTTP/1.1\r\n\r\n")).startswith(b"HTTP/1.1 404")
    assert (await fetch(endpoint.port, b"POST /metrics HTTP/1.1\r\n\r\n")).startswith(b"HTTP/1.1 405")
    assert (await fetch(endpoint.port, b"\r\n\r\n")).startswith(b"HTTP/1.1 400")
    await server.stop()


@pytest.mark.parametrize(("level", "count"), [("debug", 2), ("info", 1), ("error", 0)])
def test_levels(level: str, count: int) -> None:
    seen: list[str] = []
    tracer = HostTracer(NODE, FakeClock(), [lambda wall_ms, event, facts: seen.append(event.event)], level)
    tracer.emit(Moved(partition="t-0"))
    tracer.emit(Whispered())
    assert len(seen) == count


class Numbers:
    """A controller that has counted."""

    last_applied_record_offset = 40
    last_applied_record_timestamp_ms = 1000
    new_active_controllers_count = 2
    timed_out_broker_heartbeat_count = 1
    operations_started_count = 11
    operations_timed_out_count = 2
    metadata_error_count = 1
    last_applied_record_lag_ms: int | None = 25
    controlled_shutdown_broker_count = 1
    queue_time = DurationSummary(count=5, total_us=30_500, max_us=20_000)
    processing_time = DurationSummary(count=6, total_us=7_001, max_us=4_250, recent=[1_000, 250, 4_250])
    deferred_delay = DurationSummary(count=2, total_us=900, max_us=800, recent=[100, 800])
    events: Mapping[str, EventTimes] = MappingProxyType(
        {"create_topics": EventTimes(waited=DurationSummary(total_us=70, max_us=60), worked=DurationSummary(3, 500, 300))}
    )
    active_controller_count = 1
    last_committed_record_offset = 39
    event_queue_size = 3
    fenced_broker_count = 1
    active_broker_count = 2
    global_topic_count = 6
    global_partition_count = 12
    offline_partitions_count = 0
    preferred_replica_imbalance_count = 4
    unclean_elections_count = 7
    elections_from_elr_count = 3

    def idle_ratio(self) -> float:
        return 0.75

    def silences_ms(self) -> list[tuple[str, int]]:
        return [("1", 40), ("2", 9_000)]


def test_ce_30_tm_11_tm_12_the_controllers_numbers_have_kafkas_names() -> None:
    metrics = Metrics()
    numbers = Numbers()
    register_controller(metrics, numbers)
    page = metrics.render().decode()
    for line in (
        "kafka_controller_kafkacontroller_activecontrollercount 1.0",
        "kafka_controller_kafkacontroller_newactivecontrollerscount 2.0",
        "kafka_controller_kafkacontroller_lastappliedrecordoffset 40.0",
        "kafka_controller_kafkacontroller_lastcommittedrecordoffset 39.0",
        "kafka_controller_kafkacontroller_timedoutbrokerheartbeatcount 1.0",
        "kafka_controller_kafkacontroller_fencedbrokercount 1.0",
        "kafka_controller_kafkacontroller_activebrokercount 2.0",
        "kafka_controller_kafkacontroller_offlinepartitionscount 0.0",
        "kafka_controller_kafkacontroller_preferredreplicaimbalancecount 4.0",
        "kafka_controller_kafkacontroller_globaltopiccount 6.0",
        "kafka_controller_kafkacontroller_globalpartitioncount 12.0",
        "kafka_controller_controllerstats_uncleanleaderelections_total 7.0",
        "# TYPE kafka_controller_controllereventmanager_eventqueuetimems summary",
        "kafka_controller_controllereventmanager_eventqueuetimems_count 5.0",
        "kafka_controller_controllereventmanager_eventqueuetimems_sum 30.5",
        "kafka_controller_controllereventmanager_eventqueueprocessingtimems_count 6.0",
        "kafka_controller_controllereventmanager_eventqueueprocessingtimems_sum 7.001",
        "kafka_controller_controllereventmanager_eventqueueprocessingtimems_max 4.25",
        'kafka_controller_controllereventmanager_eventqueueprocessingtimems{quantile="0.5"} 1.0',
        'kafka_controller_controllereventmanager_eventqueueprocessingtimems{quantile="0.999"} 4.25',
        "kafka_controller_controllereventmanager_avgidleratio 0.75",
        "kafka_controller_kafkacontroller_lastappliedrecordlagms 25.0",
        "kafka_controller_kafkacontroller_controlledshutdownbrokercount 1.0",
        "kafka_controller_kafkacontroller_eventqueueoperationsstartedcount 11.0",
        "kafka_controller_kafkacontroller_eventqueueoperationstimedoutcount 2.0",
        "kafka_controller_kafkacontroller_metadataerrorcount 1.0",
        'kafka_controller_kafkacontroller_timesincelastheartbeatreceivedms{broker="1"} 40.0',
        'kafka_controller_kafkacontroller_timesincelastheartbeatreceivedms{broker="2"} 9000.0',
        'kraftlite_controller_events_total{event="create_topics"} 3.0',
        'kraftlite_controller_event_work_seconds_total{event="create_topics"} 0.0005',
        'kraftlite_controller_event_wait_seconds_max{event="create_topics"} 6e-05',
        "kraftlite_controller_deferred_delay_seconds_count 2.0",
        "kraftlite_controller_deferred_delay_seconds_sum 0.0009",
        'kraftlite_controller_deferred_delay_seconds{quantile="0.99"} 0.0008',
    ):
        assert line in page.splitlines(), line
    assert "eventqueuetimems{quantile" not in page, "of nothing there are no quantiles"
    numbers.last_applied_record_lag_ms = None
    assert "lastappliedrecordlagms" not in metrics.render().decode()
    numbers.active_controller_count = 0
    assert "activecontrollercount 0.0" in metrics.render().decode()


def test_the_trace_file_keeps_what_a_quiet_log_leaves_out(tmp_path: Path) -> None:
    path, stream = tmp_path / "trace.jsonl", io.StringIO()
    tracer = open_tracer(NODE, FakeClock(), level="warning", stream=stream, timeline_path=str(path))
    tracer.emit(Moved(partition="t-0"))
    tracer.emit(Whispered())
    tracer.close()
    assert [event["partition"] for event in read_timeline(path)] == ["t-0"]
    assert stream.getvalue() == ""


def names(stream: io.StringIO) -> list[str]:
    return [json.loads(line)["event"] for line in stream.getvalue().splitlines()]


@pytest.mark.parametrize("with_file", [False, True])
def test_cb_07_the_level_of_a_logger_changes_while_the_node_runs(tmp_path: Path, with_file: bool) -> None:
    path, stream = tmp_path / "trace.jsonl", io.StringIO()
    tracer = open_tracer(NODE, FakeClock(), stream=stream, timeline_path=str(path) if with_file else None)
    loud, quiet, other = Moved(partition="t-0"), Whispered(), ListenerOpened(listener="A", endpoint="b:1")
    whispered, moved = Whispered.event, Moved.event
    component = f"kraftlite.{moved.partition('.')[0]}"
    assert whispered.partition(".")[0] == moved.partition(".")[0] and not tracer.hears(Whispered)

    def told() -> list[str]:
        stream.seek(0)
        stream.truncate()
        for event in (loud, quiet, other):
            tracer.emit(event)
        return names(stream)

    assert told() == [moved, other.event]
    tracer.set_level(component, "DEBUG")
    assert tracer.hears(Whispered) and told() == [moved, whispered, other.event]
    tracer.set_level(component, "ERROR")
    assert told() == [other.event]
    tracer.set_level("root", "FATAL")
    assert told() == []
    tracer.set_level(component, "TRACE")
    assert told() == [moved, whispered]
    tracer.set_level(component, None)
    assert told() == []
    tracer.set_level("root", "INFO")
    assert told() == [moved, other.event]
    assert tracer.loggers()["root"] == tracer.loggers()[component] == "INFO"
    tracer.close()
    if with_file:
        assert [event["event"] for event in read_timeline(path)].count(moved) == 7, (
            "the trace file has what happened all the same"
        )
