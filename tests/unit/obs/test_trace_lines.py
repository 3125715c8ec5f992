"""No damage of the lines of a trace ends its history: those of the first version, with facts that are damaged."""

from __future__ import annotations

import json
import random
import tarfile
import time
from pathlib import Path
from typing import Any

import pytest

from kraftlite.obs.explain import History, Subject, explain
from kraftlite.obs.explain_events import words
from kraftlite.obs.trace_lines import TraceLines

_TRACES = Path(__file__).parents[2] / "compat_dirs" / "0.1.0" / "directories.tar.gz"
_ODD: tuple[Any, ...] = (None, "x", -1, 2**70, 1.5, [], {}, [1], ["a", 2, 3], True, float("nan"), "a-b-c")


@pytest.fixture(scope="module")
def lines(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    folder = tmp_path_factory.mktemp("traces")
    with tarfile.open(_TRACES) as archive:
        archive.extractall(folder, filter="data")
    found = [line for path in sorted(folder.rglob("*.jsonl")) for line in path.read_text().splitlines()]
    assert len(found) > 100
    return found


@pytest.mark.parametrize("seed", range(20))
def test_no_damage_of_lines_ends_a_history(seed: int, lines: list[str]) -> None:
    chance = random.Random(seed)
    parsed: list[dict[str, Any]] = [json.loads(line) for line in lines]
    for line in chance.sample(parsed, 60):
        name = chance.choice(list(line))
        del line[name]
        if chance.random() < 0.5:
            line[name] = chance.choice(_ODD)
    read = TraceLines()
    history = History(read.events(parsed))
    assert len(history.events) > 100 and read.damaged > 0
    assert "damaged and left out: " in str(read.problem())
    subjects = [Subject.parse("cluster", None), *(Subject.parse("partition", it) for it in history.partitions())]
    subjects += [Subject.parse("node", str(it)) for it in history.nodes() if it >= 0]
    for subject in subjects:
        assert list(explain(history, subject).lines())


def test_what_is_sound_is_all_there(lines: list[str]) -> None:
    read = TraceLines()
    assert len(list(read.events(json.loads(line) for line in lines))) == len(lines)
    assert read.problem() is None


@pytest.mark.parametrize(
    ("event", "facts"),
    [
        ("partition.isr_committed", {"tp": ["orders", 0], "isr": [4]}),
        ("partition.isr_committed", {"partition_epoch": 2, "isr": [4]}),
        ("node.starting", {"roles": "broker", "tp": "orders-0"}),
        ("raft.leader_elected", {"raft_epoch": 1, "tp": [["orders", 0]]}),
        ("node.starting", {"roles": "broker", "partition": ["orders", 0]}),
    ],
)
def test_facts_by_which_an_event_is_placed_are_sound_in_every_event(event: str, facts: dict[str, Any]) -> None:
    role = {"tp": ["orders", 0], "leader_epoch": 1, "partition_epoch": 1, "isr": [4], "leader_id": 4}
    sound = {"ts": 1, "node": 4, "event": "partition.leader_started", **role, "cause": "record@5"}
    read = TraceLines()
    history = History(read.events([sound, {"ts": 2, "node": 4, "event": event, **facts}]))
    assert [it.event for it in history.events] == ["partition.leader_started"] and read.damaged == 1
    assert list(explain(history, Subject.parse("partition", "orders-0")).lines())


def test_a_long_word_costs_its_length() -> None:
    text = "9" * 60_000
    began = time.process_time()
    assert words(f"{text} name=orders isr=(1,2) {text}") == {"name": "orders", "isr": (1, 2)}
    assert time.process_time() - began < 0.5
