"""The ledger as lines of the simulator: each is one that it takes, or a comment that says why there is none."""

from __future__ import annotations

from typing import Any

import pytest

from kraftlite.model.faults import KINDS, Injection
from kraftlite.obs.faults import KINDS as LEDGER_KINDS
from kraftlite.obs.faults import Author, Fault
from kraftlite.sim.fault_plan import parse
from kraftlite.ui.fault_lines import BEGIN_MS, fault_lines

ANNA = Author(who="anna", door="cli")


def fault(kind: str, asked_ms: int, ended_ms: int | None = None, **more: Any) -> Fault:
    return Fault(id=f"f{asked_ms}", kind=kind, node=4, by=ANNA, asked_ms=asked_ms, ended_ms=ended_ms, **more)


def test_what_was_done_is_done_again_in_the_same_rhythm() -> None:
    ledger = [
        fault("kill", 500, 900),
        fault("kill", 10_000, 14_000),
        fault("start", 14_000),
        fault("slow", 15_000, 20_000, other=1, amount=250_000),
        fault("wall-jump", 16_000, 17_000, amount=-5_000),
        fault("cut", 18_000, None, other=-1),
        fault("pause", 19_000),
        fault("pause", 19_500, failed="no process"),
    ]
    assert list(fault_lines(ledger, 1_000, 21_000)) == [
        "3000 kill 4 for 4000",
        "# start of node 4 by anna (cli): it ends the fault before it",
        "8000 slow 4 and 1 for 5000 amount 250000",
        "9000 wall-jump 4 for 1000 amount -5000",
        "# cut of node 4 and its clients by anna (cli): the simulator has no link to clients",
        "12000 pause 4 for 2000",
    ]


@pytest.mark.parametrize("kind", LEDGER_KINDS)
def test_every_kind_of_the_ledger_is_a_line_that_the_simulator_takes_or_a_comment(kind: str) -> None:
    more = {"other": 5} if kind in KINDS and KINDS[kind].family == "network" else {}
    (line,) = fault_lines([fault(kind, 1, 2, amount=3, **more)], 0, 9)
    if not line.startswith("#"):
        assert parse(line).at_ms == BEGIN_MS


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"kind": "slow", "other": 1, "amount": 250_000}, "250 ms later"),
        ({"kind": "lossy", "other": 1, "amount": 50_000}, "5 %"),
        ({"kind": "wall-jump", "amount": -3_600_000}, "-3600000 ms"),
        ({"kind": "disk-slow", "amount": 20_000, "path": "/d"}, "/d 20 ms later"),
        ({"kind": "api-error", "api": "Produce", "error": 6, "count": 3}, "Produce NOT_LEADER_OR_FOLLOWER 3 times"),
        ({"kind": "cut", "other": -1}, ""),
    ],
)
def test_the_ledger_says_how_much_in_the_same_words_by_every_door(given: dict[str, Any], words: str) -> None:
    assert Injection(id="x", for_ms=1_000, **given).what == words
