"""A recording: what is written is read, and what is damaged or hostile is one line that names the line."""

from __future__ import annotations

import json
import random
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from kraftlite.model.topic_partition import TopicPartition
from kraftlite.obs.explain_events import Recorded
from kraftlite.obs.recording import MAX_LINE, Header, Recorder
from kraftlite.obs.recording_reader import (
    ClientSaid,
    Described,
    End,
    LeftOut,
    Note,
    RecordingError,
    Replicas,
    Silent,
    Status,
    Turn,
    read,
    read_bytes,
)
from kraftlite.runtime.trace.partition import LeaderStarted
from kraftlite.sim import fault_plan
from kraftlite.sim.recorded import run_recorded
from kraftlite.sim.run import RunPlan
from kraftlite.sim.shape import NAMED
from kraftlite.ui.replay import tape_of
from tests.harness.ui import client_report, replica, status

HEADER = Header(source="live", clock="wall", cluster_id="c", every_ms=200, title="t")


def recorder(lines: list[bytes], **more: Any) -> Recorder:
    return Recorder(HEADER, lines.append, **more)


def whole() -> list[bytes]:
    lines: list[bytes] = []
    found = recorder(lines)
    found.node(10, 1, ("controller",), "running")
    found.node(10, 4, ("broker",), "running")
    found.status(10, 1, 9, 3, status(1, active=True))
    found.replicas(10, 4, 8, [replica(leads=True), replica(partition=1)])
    found.status(20, 1, 19, 2, status(1, active=True, epoch=2))
    found.replicas(20, 4, 18, [replica(leads=True, leo=101)])
    found.silent(30, 1, "DEADLINE_EXCEEDED")
    found.client(30, client_report(at=28))
    found.turn(1030)
    facts = {
        "tp": TopicPartition("orders", 0),
        "leader_epoch": 1,
        "leo": 5,
        "hw": 5,
        "partition_epoch": 1,
        "isr": (4,),
        "recovering": False,
    }
    names = [it.name for it in fields(LeaderStarted) if it.name != "cause"]
    found.event(15, 4, LeaderStarted.event, {name: facts.get(name, 0) for name in names})
    found.event(15, 4, "partition.hw_advanced", {"tp": TopicPartition("orders", 0)})
    found.event(16, 4, "fault.asked", {"id": "x", "kind": "kill", "who": "anna", "door": "cli"})
    found.note(17, "isolate 1", 27)
    found.end(1031, "stopped")
    return lines


def test_what_is_written_is_read() -> None:
    found = list(read_bytes(b"".join(whole())))
    assert found[0] == HEADER
    kinds = [type(it) for it in found[1:]]
    assert kinds == [
        Described,
        Described,
        Status,
        Replicas,
        Status,
        Replicas,
        Silent,
        ClientSaid,
        Turn,
        Recorded,
        Recorded,
        Note,
        End,
    ]
    said = found[8]
    assert isinstance(said, ClientSaid) and (said.ts, said.report) == (30, client_report(at=28))
    second = found[5]
    assert isinstance(second, Status) and (second.ts, second.at, second.rtt_ms) == (20, 19, 2)
    assert second.status.raft_epoch == 2 and second.status.roles == ("controller",)  # whole, though only its changes were written
    later = found[6]
    assert isinstance(later, Replicas) and [it.leo for it in later.said] == [101] and later.gone == (("orders", 1),)
    assert later.said[0] == replica(leads=True, leo=101)
    assert isinstance(found[10], Recorded) and found[10].partition == "orders-0"


def test_only_changes_are_written() -> None:
    lines: list[bytes] = []
    found = recorder(lines)
    for at in (10, 10, 20):
        found.node(at, 4, ("broker",), "running")
        found.status(at, 4, at, 3, status(4))
        found.replicas(at, 4, at, [replica()])
        found.turn(at)
    assert [json.loads(line).get("k") for line in lines] == [None, "node", "status", "replicas", "status", "replicas"]
    assert json.loads(lines[4]) == {"ts": 20, "k": "status", "node": 4, "at": 20, "rtt": 3}


def test_a_clock_that_is_set_back_does_not_turn_the_recording_back() -> None:
    lines: list[bytes] = []
    found = recorder(lines)
    found.node(100, 4, ("broker",), "running")
    found.node(50, 4, ("broker",), "paused")
    assert [it.ts for it in read_bytes(b"".join(lines)) if isinstance(it, Described)] == [100, 100]


def test_the_limit_is_kept_and_told() -> None:
    lines: list[bytes] = []
    found = recorder(lines, max_bytes=4000)
    for at in range(1000):
        found.node(at, 4, ("broker",), "running" if at % 2 else "paused")
    assert found.full and sum(map(len, lines)) <= 4000
    last = list(read_bytes(b"".join(lines)))[-1]
    assert isinstance(last, End) and last.outcome == "full" and "4000" in last.text


def test_an_event_that_is_too_long_is_told_of() -> None:
    lines: list[bytes] = []
    found = recorder(lines)
    found.node(1, 4, ("broker",), "running")
    found.event(5, 4, "node.started", {"text": "x" * MAX_LINE})
    found.turn(6)
    told = [it for it in read_bytes(b"".join(lines)) if isinstance(it, LeftOut)]
    assert [(it.ts, it.node, it.event) for it in told] == [(5, 4, "node.started")] and told[0].size > MAX_LINE
    assert tape_of(lambda: read_bytes(b"".join(lines)))["cluster"]["recording"]["left_out"] == 1
    assert max(map(len, lines)) <= MAX_LINE


def test_many_replicas_make_several_lines() -> None:
    lines: list[bytes] = []
    found = recorder(lines)
    found.node(1, 4, ("broker",), "running")
    topic = "t" * 249
    found.replicas(1, 4, 1, [replica(topic=topic, partition=number) for number in range(5000)])
    assert max(map(len, lines)) <= MAX_LINE
    read_back = [it for line in read_bytes(b"".join(lines)) if isinstance(line, Replicas) for it in line.said]
    assert len(read_back) == 5000


def test_replicas_that_are_long_make_lines_that_are_short_enough() -> None:
    lines: list[bytes] = []
    found = recorder(lines)
    found.node(1, 4, ("broker",), "running")
    many = tuple(range(1 << 30, (1 << 30) + 100))
    said = [replica(topic="t" * 249, partition=number, replicas=many, isr=many) for number in range(1500)]
    found.replicas(1, 4, 1, said)
    found.replicas(2, 4, 2, [])
    assert max(map(len, lines)) <= MAX_LINE
    read_back = [it for it in read_bytes(b"".join(lines)) if isinstance(it, Replicas)]
    assert sorted(it.partition for line in read_back for it in line.said) == list(range(1500))
    assert len([key for line in read_back for key in line.gone]) == 1500


@pytest.mark.parametrize("in_memory", [True, False])
def test_a_line_that_is_too_long_is_left_out_and_told_of(tmp_path: Path, in_memory: bool) -> None:
    """What it said of replicas is not known: they are there when a later line has all of them."""
    lines: list[bytes] = []
    found = recorder(lines)
    found.node(1, 4, ("broker",), "running")
    found.replicas(2, 4, 2, [replica()])
    found.replicas(3, 4, 3, [replica(leo=5)])
    found.replicas(4, 4, 4, [replica(leo=5), replica(topic="later")])
    found.note(5, "behind it")
    long = json.loads(lines[2]) | {"more": "x" * 3 * MAX_LINE}
    data = b"".join([*lines[:2], json.dumps(long).encode() + b"\n", *lines[3:]])
    (tmp_path / "r").write_bytes(data)
    read_back = list(read_bytes(data)) if in_memory else list(read(tmp_path / "r"))
    (told,) = [it for it in read_back if isinstance(it, LeftOut)]
    assert (told.ts, told.event) == (1, "line 3") and told.size > 3 * MAX_LINE
    assert [it.topic for line in read_back if isinstance(line, Replicas) for it in line.said] == ["later"]
    assert isinstance(read_back[-1], Note)
    assert tape_of(lambda: read_bytes(data))["cluster"]["recording"]["left_out"] == 1
    with pytest.raises(RecordingError, match="line 3: the replica of orders-0 has no"):
        list(read_bytes(b"".join([*lines[:2], *lines[3:]])))


def test_what_another_version_of_kraftlite_says_otherwise_is_left_out_and_told_of() -> None:
    lines: list[bytes] = []
    found = recorder(lines)
    found.node(1, 4, ("broker",), "running")
    strange = [
        b'{"ts":2,"node":4,"event":"node.started"}',  # a fact came to it since
        b'{"ts":3,"node":4,"event":"node.dreamt","of":"sheep"}',
        b'{"ts":4,"k":"dream","node":4}',
    ]
    data = b"".join([*lines, *(line + b"\n" for line in strange)])
    with pytest.raises(RecordingError, match=r"line 3: node\.started has no roles"):
        list(read_bytes(data))
    other = data.replace(HEADER.made_by.encode(), b"99.1.0", 1)
    told = [it for it in read_bytes(other) if isinstance(it, LeftOut)]
    assert [(it.ts, it.node, it.event) for it in told] == [(2, 4, "node.started"), (3, 4, "node.dreamt"), (4, -1, "dream")]
    assert tape_of(lambda: read_bytes(other))["cluster"]["recording"]["left_out"] == 3


def test_a_last_line_that_is_cut_off_is_left_out(tmp_path: Path) -> None:
    path = tmp_path / "r"
    path.write_bytes(b"".join(whole())[:-5])
    assert not any(isinstance(it, End) for it in read(path))


_STATUS = '{"ts":10,"k":"status","node":1,"at":9,"rtt":3,"status":{"raft_epoch":%s}}'


_CLIENT = (
    '{"ts":10,"k":"client","report":{"client":"x","topic":"t","at":1,"sent":1,"consumed":null,"p50":null,"p99":null,'
    '"partitions":%s}}'
)


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("not JSON", "it is not JSON"),
        ("\xff", "it is not JSON"),
        ("[]", "allowed is an object"),
        ('{"k":"turn"}', "it has no ts"),
        ('{"ts":-1,"k":"turn"}', "ts -1: allowed is a whole number from 0"),
        ('{"ts":true,"k":"turn"}', "ts True: allowed is a whole number"),
        ('{"ts":1e400,"k":"turn"}', "ts inf: allowed is a whole number"),
        ('{"ts":NaN,"k":"turn"}', "NaN is not a number of JSON"),
        ('{"ts":' + "9" * 5000 + "}", "a number has too many digits"),
        ('{"ts":5,"k":"turn"}', "ts 5: allowed is 10 or later"),
        (
            '{"ts":10,"k":"node","node":1,"roles":["king"],"process":"running"}',
            "roles 'king': allowed is one of broker",
        ),
        ('{"ts":10,"k":"status","node":7,"at":9,"rtt":3}', "node 7 has not been described before"),
        (_STATUS % '"x"', "raft_epoch 'x': allowed is a whole number"),
        (_STATUS % "1", "the status of node 1 has no broker_state"),
        ('{"ts":10,"k":"status","node":1,"at":11,"rtt":3}', "at 11: allowed is 10 or earlier"),
        ('{"ts":10,"k":"replicas","node":1,"at":9,"set":[{"topic":"x"}]}', "a replica has no partition"),
        ('{"ts":10,"k":"replicas","node":1,"at":9,"set":[{"topic":"x","partition":0,"leo":1}]}', "the replica of x-0 has no"),
        ('{"ts":10,"k":"replicas","node":1,"at":9,"gone":[[[],0]]}', "allowed is a text"),
        ('{"ts":10,"k":"silent","node":1,"why":"\\ud800"}', "why '\\ud800': allowed is a text"),
        ('{"ts":10,"node":4,"event":"partition.leader_started"}', "partition.leader_started has no"),
        ('{"ts":10,"node":4,"event":"partition.leader_started","tp":[0]}', "tp a list: allowed is a topic and a number"),
        ('{"ts":10,"node":4,"event":"fault.asked","id":{}}', "id a object: allowed is a text"),
        ('{"ts":10,"k":"client"}', "it has no report"),
        ('{"ts":10,"k":"client","report":[]}', "allowed is an object"),
        ('{"ts":10,"k":"client","report":{"client":"x"}}', "the report has no topic, at"),
        (_CLIENT % "[[0,1,2]]", "allowed is a list of 6"),
        (_CLIENT % ("[" + ",".join(["[0,0,0,0,0,null]"] * 51) + "]"), "a list of at most 50"),
        ("[" * 100_000, "it is nested too deeply"),
    ],
)
def test_what_is_wrong_is_named_with_its_line(line: str, why: str, tmp_path: Path) -> None:
    path = tmp_path / "broken.kljsonl"
    good: list[bytes] = []
    recorder(good).node(10, 1, ("controller",), "running")
    path.write_bytes(b"".join(good) + line.encode("latin-1") + b"\n")
    with pytest.raises(RecordingError) as error:
        list(read(path))
    assert str(error.value).startswith("broken.kljsonl line 3: ") and why in str(error.value)
    assert "\n" not in str(error.value) and len(str(error.value)) < 300


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"", "line 1: it is not a recording"),
        (b"{}\n", "line 1: it is not a recording"),
        (b'{"kraftlite_recording":2}\n', "line 1: the recording has version 2; this kraftlite reads version 1"),
        (b"x" * (MAX_LINE + 10), "line 1: it has more than"),
        (b'{"ts":1,"event":"node.starting","node":1}\n', "line 1: it is not a recording"),
    ],
)
def test_another_file(data: bytes, why: str, tmp_path: Path) -> None:
    path = tmp_path / "other"
    path.write_bytes(data)
    with pytest.raises(RecordingError, match=why):
        list(read(path))


def test_too_much(tmp_path: Path) -> None:
    path = tmp_path / "big"
    path.write_bytes(b"".join(whole()))
    with pytest.raises(RecordingError, match="more than 500 bytes"):
        list(read(path, max_bytes=500))
    with pytest.raises(RecordingError, match="No such file"):
        list(read(tmp_path / "none"))


def test_what_is_not_known_is_skipped() -> None:
    more = [b'{"ts":2000,"k":"weather","rain":true}\n', b'{"ts":1,"node":4,"event":"future.thing","x":[{}]}\n']
    assert len(list(read_bytes(b"".join([*whole()[:-1], *more])))) == len(list(read_bytes(b"".join(whole()[:-1]))))


def test_nothing_that_is_changed_in_a_recording_gets_further_than_a_line() -> None:
    """Values, bytes and lines of a real recording are changed at random: it is shown, or refused in one line."""
    lines: list[bytes] = []
    plan = RunPlan(seed=3, shape=NAMED["3+3"], faults=(fault_plan.parse("500 kill leader orders-0 for 1000"),), duration_ms=2000)
    run_recorded(plan, lines.append, checkers=[])
    said = {"ts": json.loads(lines[-1])["ts"], "k": "client"}
    lines[-1:-1] = [json.dumps({**said, "report": client_report(at=it)}).encode() + b"\n" for it in range(40)]
    rng, refused = random.Random(1), 0
    for _ in range(60):
        damaged = list(lines)
        for _ in range(rng.choice((1, 3, 30))):
            at = rng.randrange(len(damaged))
            damaged[at] = _damaged(rng, damaged[at])
        data = b"".join(damaged)
        try:
            tape_of(lambda: read_bytes(data))  # noqa: B023 it is called at once
        except RecordingError as error:
            refused += 1
            assert "\n" not in str(error)
    assert 5 < refused < 60


def _damaged(rng: random.Random, line: bytes) -> bytes:
    what = rng.randrange(4)
    if what == 0 or len(line) < 2:
        return b""
    if what == 1:
        at = rng.randrange(len(line) - 1)
        return line[:at] + bytes([rng.randrange(256)]) + line[at + 1 :]
    try:
        value = json.loads(line)
    except ValueError:
        return line
    name = rng.choice(list(value))
    value[name] = rng.choice([None, -1, 1 << 62, "x", "", [], {}, True, 0, 3.5, [["orders", 0]]])
    if what == 3:
        del value[name]
    return json.dumps(value).encode() + b"\n"


def test_what_a_leader_knows_is_kept_and_an_earlier_recording_does_not_have_it() -> None:
    lines: list[bytes] = []
    made = replica(leads=True, followers=(5, 6), follower_leos=(7, -1), maximal_isr=(4, 5), epoch_start_offset=9)
    found = recorder(lines)
    found.node(10, 4, ("broker",), "running")
    found.replicas(10, 4, 8, [made])
    said = next(it for it in read_bytes(b"".join(lines)) if isinstance(it, Replicas))
    assert said.said == (made,)
    early = json.loads(lines[-1])
    for name in ("followers", "follower_leos", "maximal_isr", "epoch_start_offset"):
        del early["set"][0][name]
    lines[-1] = json.dumps(early).encode() + b"\n"
    before = next(it for it in read_bytes(b"".join(lines)) if isinstance(it, Replicas))
    assert before.said == (replica(leads=True),)
