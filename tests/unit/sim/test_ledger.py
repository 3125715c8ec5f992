"""The faults of a run in the words of the ledger of faults."""

from __future__ import annotations

from kraftlite.obs.faults import faults_of
from kraftlite.sim.fault_plan import parse
from kraftlite.sim.ledger import entries
from kraftlite.sim.run import RunPlan, run
from kraftlite.sim.shape import NAMED

INJECTED = [
    (1_000_000, "kill 4 for 3000 ms"),
    (2_000_000, "cut 5>1 for 4000 ms"),
    (2_500_000, "isolate 2 for 1000 ms"),
    (3_000_000, "pause 6 for 500 ms"),
    (4_000_000, "boot 4"),
    (4_500_000, "disk-slow 5 for 9000 ms"),
    (7_000_000, "all faults end"),
]


def test_faults_have_the_words_of_running_nodes() -> None:
    events, rest = entries(7, INJECTED)
    faults = faults_of(events)
    assert [(it.kind, it.node, it.other, it.asked_ms, it.seen_ms, it.ended_ms, it.ended_how) for it in faults] == [
        ("kill", 4, None, 1_000, 1_000, 4_000, "start"),
        ("cut", 5, 1, 2_000, 2_000, 6_000, "its time was over"),
        ("pause", 6, None, 3_000, 3_000, 3_500, "resume"),
        ("disk-slow", 5, None, 4_500, 4_500, 7_000, "heal"),
    ]
    assert {str(it.by) for it in faults} == {"seed 7 (sim)"}
    assert [text for _, text in rest] == ["isolate 2 for 1000 ms", "all faults end"], "a ledger has no word for these"


def test_what_has_not_ended_is_active() -> None:
    (fault,) = faults_of(entries(7, [(1_000_000, "kill 4")])[0])
    assert fault.active


def test_a_run_names_its_faults() -> None:
    result = run(RunPlan(seed=3, shape=NAMED["3+3"], faults=(parse("3000 kill controller for 1000"),)))
    (fault,) = faults_of(entries(3, result.injected)[0])
    assert fault.kind == "kill" and fault.node in (1, 2, 3) and fault.asked_ms >= 3_000
    assert fault.ended_how == "start" and fault.ended_ms is not None and fault.ended_ms - fault.asked_ms >= 1_000
