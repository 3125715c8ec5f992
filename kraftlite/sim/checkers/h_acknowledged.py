"""No record is lost that was acknowledged (RP-42)."""

from __future__ import annotations

from kraftlite.sim.checkers.history_checker import HistoryChecker
from kraftlite.sim.history import Verdict


class AcknowledgedKept(HistoryChecker):
    """A record that all in-sync replicas acknowledged is at its offset at the end. Those that only the leader acknowledged may be
    missing: `world.notes["acks1_lost"]` counts them."""

    def at_end(self) -> None:
        finals = {tp: dict(records) for tp, records in self.history.final_logs.items()}
        values = self.final_values()
        lost_of_leader = 0
        for it in self.judged(self.history.produces):
            if it.verdict is not Verdict.OK or it.acks == 0:
                continue
            if it.offset >= 0:
                here = finals[it.tp].get(it.offset) == it.value or it.offset < self.log_start(it.tp)
            else:
                here = it.value in values[it.tp] or self.log_start(it.tp) > 0
            if here:
                continue
            if it.acks == 1:
                lost_of_leader += 1
                continue
            found = finals[it.tp].get(it.offset)
            elsewhere = values[it.tp].get(it.value, [])
            self.fail(
                f"{it.tp}: {it.value} was acknowledged at offset {it.offset} at {(it.returned_us or 0) // 1000} ms; at the end "
                f"there is {found!r}, and {it.value} is at {elsewhere}, of {len(finals[it.tp])} records"
            )
        self.world.notes["acks1_lost"] = lost_of_leader
