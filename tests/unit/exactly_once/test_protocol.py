"""The protocol of the exactly-once sink in every history within bounds, and the mistakes that the histories find.

Source: SX-01, SX-03; docs/spec/spark-sink.md.
"""

from __future__ import annotations

from pathlib import Path
from types import ModuleType

import pytest

from kraftlite.exactly_once import protocol_core
from tests.harness.sink_model import Bounds, Explorer, Rows

AB = (("a",), ("b",))
ONE = (("a",),)
ALONE = Bounds(splits=(AB,), twins=1, timeouts=1)
TWO = Bounds(splits=(AB, AB))
TWINS = Bounds(splits=(ONE, ONE), twins=1)
TIMEOUT = Bounds(splits=(AB, AB), timeouts=1)
SHORT_TIMEOUT = Bounds(splits=(ONE, ONE), timeouts=1)
THREE = Bounds(splits=(ONE, ONE, ONE))
SPLIT = Bounds(splits=((("a", "b"), ("c",)), (("a",), ("b", "c"))))
FEWER = Bounds(splits=(AB, (("a", "b"),)))
ORDER = Bounds(splits=((("a", "b"),), (("b", "a"),)))


@pytest.mark.parametrize(
    ("bounds", "ends"),
    [
        (ALONE, {"Refused", "CommitFailed", "TooLate", "committed"}),
        (TWO, {"Refused", "CommitFailed", "TooLate", "committed"}),
        (TWINS, {"Refused", "CommitFailed", "TooLate", "committed"}),
        (SHORT_TIMEOUT, {"Refused", "CommitFailed", "TooLate", "committed"}),
        (SPLIT, {"Refused", "CommitFailed", "TooLate", "SplitChanged", "committed"}),
        (FEWER, {"Refused", "CommitFailed", "TooLate", "SplitChanged", "committed"}),
        (ORDER, {"Refused", "CommitFailed", "TooLate", "committed"}),
        pytest.param(THREE, {"Refused", "CommitFailed", "TooLate", "committed"}, marks=pytest.mark.slow),
        pytest.param(TIMEOUT, {"Refused", "CommitFailed", "TooLate", "committed"}, marks=pytest.mark.slow),
    ],
    ids=["alone", "two", "twins", "timeout", "split", "fewer", "order", "three", "long-timeout"],
)
def test_sx_03_rows_are_seen_once_whatever_happens(bounds: Bounds, ends: set[str]) -> None:
    """Two drivers, twins of tasks, transactions that time out, answers that are lost, and death at every call: nobody ever sees
    a row twice or one that nobody has decided, a commit that returns is complete and stays so, nothing stays open behind it, and
    a run alone completes it."""
    explorer = Explorer(bounds)
    assert explorer.broken() is None
    assert explorer.outcomes == ends, "the bounds do not hold what they are for"


def by_order(rows: Rows) -> str:
    return f"{int.from_bytes(''.join(rows).encode()):032x}"


RECORD = """    if decision is not None and not decided:
        cluster.record(driver, producer, decision)
"""
END = """    _end(cluster, f"batch {batch} of {query}", [entry for entry in entries if entry.task not in kept])
"""
LOOK = """            fate = cluster.fate(last.query, last.batch, old)
            fenced.append(old.task)
"""
LATE = """        if self._cluster.decided(self._query, self._batch, self._since):
"""
MUTANTS = {
    "a task that comes too late stages": (LATE, "        if False:\n", ALONE),
    "a task whose driver is dead stages behind the next one's commit": (LATE, "        if False:\n", TWO),
    "the decision comes after the end": (RECORD + END, END + RECORD, TWO),
    "nothing is decided": (RECORD, "", TWO),
    "a task commits": (
        "        partition, offset = self._cluster.mark(self.transactional_id, self._producer, marker)\n",
        "        partition, offset = self._cluster.mark(self.transactional_id, self._producer, marker)\n"
        "        self._cluster.end(self.transactional_id, self._producer, commit=True)\n",
        TWO,
    ),
    "what is open counts as aborted": (
        "        if fate is Fate.OPEN:\n            cluster.take_over(old.transactional_id)\n" + LOOK,
        "        if fate is Fate.OPEN:\n            fate = Fate.ABORTED\n            fenced.append(-1)\n",
        FEWER,
    ),
    "what was open is not looked at again": (
        LOOK,
        "            fate = Fate.ABORTED\n            fenced.append(old.task)\n",
        FEWER,
    ),
    "what is committed is written again": ("            kept[old.task] = old\n", "            pass\n", TWO),
    "rows are not compared": (
        "    return new is not None and (old.rows, old.fingerprint) == (new.rows, new.fingerprint)\n",
        "    return new is not None\n",
        SPLIT,
    ),
    "a refused end is passed over": ("    if refused:\n", "    if False:\n", TWO),
    "what is kept is left out of the next decision": (
        "    decision = Decision(query=query, batch=batch, run=run, entries=entries) if entries else None\n",
        "    fresh = tuple(it for it in entries if it.task not in kept)\n"
        "    decision = Decision(query=query, batch=batch, run=run, entries=fresh) if fresh else None\n",
        TWO,
    ),
    "a batch is decided once only": (
        "    decided = last is not None and (last.batch, last.run, last.entries) == (batch, run, entries)\n",
        "    decided = last is not None and last.batch == batch\n",
        TWO,
    ),
    "a run that keeps everything is not decided": (
        "    decided = last is not None and (last.batch, last.run, last.entries) == (batch, run, entries)\n",
        "    decided = last is not None and (last.batch, last.entries) == (batch, entries)\n",
        TWINS,
    ),
    "what has come in the place of a copy stays": (
        "        if not cluster.end(entry.transactional_id, entry.producer, commit=False):\n"
        "            cluster.take_over(entry.transactional_id)\n",
        "        cluster.end(entry.transactional_id, entry.producer, commit=False)\n",
        TWINS,
    ),
    "the last decision is read before the drivers are fenced": (
        "    producer = cluster.take_over(driver)\n    last = cluster.last_decision(query)\n",
        "    last = cluster.last_decision(query)\n    producer = cluster.take_over(driver)\n",
        TWO,
    ),
    "an attempt goes on with what it was given": (
        "        producer = self._cluster.take_over(self.transactional_id)\n",
        "        producer = Producer(1, 0)\n",
        TWO,
    ),
}


@pytest.mark.parametrize("name", MUTANTS)
def test_sx_03_the_histories_find_every_mistake(name: str) -> None:
    old, new, bounds = MUTANTS[name]
    text = Path(protocol_core.__file__).read_text()
    assert text.count(old) == 1, "the mutant quotes what is not there"
    mutant = ModuleType("mutant")
    mutant.__dict__["__name__"] = protocol_core.__name__
    exec(compile(text.replace(old, new), name, "exec"), mutant.__dict__)
    assert Explorer(bounds, mutant).broken() is not None


def test_sx_03_a_fingerprint_by_order_would_refuse_what_is_the_same() -> None:
    found = Explorer(Bounds(splits=ORDER.splits, fingerprint=by_order))
    assert found.broken() is None and "SplitChanged" in found.outcomes
