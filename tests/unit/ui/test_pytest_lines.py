"""The ledger as a test of an embedded cluster: it does the same faults, in the same order, at the same pace."""

from __future__ import annotations

from typing import Any

import pytest

from kraftlite.model.faults import KINDS, Injection
from kraftlite.obs.faults import KINDS as LEDGER_KINDS
from kraftlite.obs.faults import Author, Fault
from kraftlite.testing import CLIENTS
from kraftlite.testing.faults import FaultCalls, Injected, Request
from kraftlite.ui.pytest_lines import pytest_lines

ANNA = Author(who="anna\n    import os", door="cli")


def fault(kind: str, asked_ms: int, ended_ms: int | None = None, **more: Any) -> Fault:
    return Fault(id=f"f{asked_ms}", kind=kind, node=4, by=ANNA, asked_ms=asked_ms, ended_ms=ended_ms, **more)


class Calls(FaultCalls):
    """A cluster that notes what it is told."""

    bootstrap_servers = "none"

    def __init__(self) -> None:
        self.told: list[str] = []

    brokers = (4, 5, 6)

    def _check(self, node_id: object) -> int:
        assert isinstance(node_id, int) and 1 <= node_id <= 6
        return node_id

    def _inject(self, requests: Any, for_s: float | None) -> Injected:
        self.told += [f"{it.node}: {it.fault.kind} {it.fault.facts} for {for_s}" for it in requests if isinstance(it, Request)]
        return Injected(lambda: None)

    def _end_delays(self, pairs: Any) -> None:
        pass

    def __getattr__(self, name: str) -> Any:
        return lambda *args, **more: self.told.append(" ".join([name, *map(str, args)]))


def run(*faults: Fault) -> list[str]:
    """What the exported test tells a cluster, with the times at which it waits."""
    text = pytest_lines(faults, 0, controllers=3, brokers=3)
    calls, body = Calls(), text.partition("        # Here your client begins")[2].partition("        cluster.heal()")[0]
    told: list[str] = calls.told
    lines = [line.strip() for line in body.splitlines()[1:]]
    compile(text, "test_faults.py", "exec")
    for line in lines:
        exec(line, {"at": lambda s: told.append(f"at {s}"), "cluster": calls, "CLIENTS": CLIENTS})
    return told


def test_the_same_faults_at_the_same_pace() -> None:
    ledger = [
        fault("kill", 10_000, 14_000, ended_how="restart"),
        fault("restart", 14_000),
        fault("slow", 15_000, 20_000, other=1, amount=250_000),
        fault("pause", 19_000, 19_500, ended_how="its time is over"),
        fault("cut", 20_000, 21_000, other=-1),
        fault("cut-one-way", 22_000, 23_000, other=5),
        fault("api-error", 24_000, 25_000, what="Produce NOT_LEADER_OR_FOLLOWER 5 ms later 3 times"),
        fault("pause", 26_000, failed="no process"),
    ]
    assert run(*ledger) == [
        *("at 0.0", "kill 4", "at 4.0", "restart 4"),
        *("at 5.0", "4: slow 1 250 ms later for 5"),
        *("at 9.0", "pause 4", "at 9.5", "resume 4"),
        *("at 10.0", "4: cut clients for 1"),
        *("at 12.0", "4: cut-one-way 5 for 1"),
        *("at 14.0", "4: api-error Produce NOT_LEADER_OR_FOLLOWER 5 ms later 3 times for 1"),
    ]


@pytest.mark.parametrize("kind", LEDGER_KINDS)
def test_every_kind_is_a_call_or_a_comment(kind: str) -> None:
    """What a node was told is what the call tells it."""
    known = KINDS.get(kind)
    given: dict[str, Any] = {}
    if known is not None:
        given = {"other": 5} if known.family == "network" else {}
        given |= {"api": "Fetch", "error": 6} if kind == "api-error" else {"api": "Fetch"} if kind == "api-slow" else {}
        given["amount"] = min(known.most, 20_000) if known.most else 0
    told = Injection(id="f", kind=kind, for_ms=2_000, **given)
    found = run(fault(kind, 1, 2_001, other=told.other, amount=told.amount, what=told.what))
    if known is None:
        assert found[1].split()[0] in (kind, "restart")
    elif kind == "disk-error":
        assert found == []
    else:
        assert found == ["at 0.0", f"4: {kind} {told.facts} for 2"]
