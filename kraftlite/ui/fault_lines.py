"""The faults of the ledger as lines of the simulator: what was done to a cluster can be done to a seed. Pure.

`kraftlite sim --seed N --fault LINE …` takes them; each line that the simulator has no word for is a comment that says why.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from kraftlite.model.faults import CLIENTS
from kraftlite.obs.faults import Fault
from kraftlite.sim.fault_plan import DISK_FAULTS, LINK_FAULTS, FaultPlan

BEGIN_MS: Final = 3_000
"""The first fault comes so long after the beginning of a run, whose cluster is whole then."""
_PROCESS: Final = ("kill", "stop", "pause")


def fault_lines(faults: Iterable[Fault], since_ms: int, now_ms: int) -> Iterator[str]:
    """The faults that were asked for since then, by time, the first one at BEGIN_MS. What goes on lasts until `now_ms`."""
    first_ms: int | None = None
    for fault in faults:
        if fault.failed is not None or fault.asked_ms < since_ms:
            continue
        first_ms = fault.asked_ms if first_ms is None else first_ms
        found = _plan(fault, BEGIN_MS + fault.asked_ms - first_ms, now_ms)
        yield str(found) if isinstance(found, FaultPlan) else f"# {fault.about} by {fault.by}: {found}"


def _plan(fault: Fault, at_ms: int, now_ms: int) -> FaultPlan | str:
    """The fault, or the reason why there is no such one in the simulator."""
    for_ms = max(1, (now_ms if fault.ended_ms is None else fault.ended_ms) - fault.asked_ms)
    if fault.kind in ("resume", "start"):
        return "it ends the fault before it"
    if fault.kind == "restart":
        return FaultPlan(at_ms=at_ms, kind="stop", target=str(fault.node), for_ms=1_000)
    if fault.kind in _PROCESS:
        return FaultPlan(at_ms=at_ms, kind=fault.kind, target=str(fault.node), for_ms=for_ms)
    kind, target, amount = fault.kind, str(fault.node), fault.amount
    if kind in LINK_FAULTS:
        if fault.other is None or fault.other == CLIENTS:
            return "the simulator has no link to clients"
        return FaultPlan(at_ms=at_ms, kind=kind, target=target, other=str(fault.other), for_ms=for_ms, amount=amount)
    if kind in (*DISK_FAULTS, "wall-jump"):
        return FaultPlan(at_ms=at_ms, kind=kind, target=target, for_ms=for_ms, amount=amount)
    return "the simulator has no such fault"
