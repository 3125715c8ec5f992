"""Each call gets one verdict, and the verdict is true."""

from __future__ import annotations

from kraftlite.sim.checkers.base import LivenessViolation
from kraftlite.sim.checkers.history_checker import HistoryChecker
from kraftlite.sim.history import Admin, Produce, Verdict


class OneVerdict(HistoryChecker):
    """Whatever a client began has ended by the end of a run, not before it began; what was acknowledged has an offset that no
    other record of the partition was given; what was refused for certain was never read. (What the final log makes of it is
    checked by `h_acknowledged` and `h_consumed`.)"""

    def at_end(self) -> None:
        calls: list[Produce | Admin] = [*self.history.produces, *self.history.admins]
        for call in calls:
            self._check_times(call)
        self._check_refused()
        self._check_offsets()

    def _check_times(self, call: Produce | Admin) -> None:
        what = f"{call.tp} {call.value}" if isinstance(call, Produce) else f"{call.kind} {dict(call.facts)}"
        if call.verdict is Verdict.OPEN:
            raise LivenessViolation(self.name, f"{what} of {call.client}, begun at {call.invoked_us} us, has no verdict")
        if call.returned_us is None or call.returned_us < call.invoked_us:
            self.fail(f"{what} of {call.client} began at {call.invoked_us} us and ended at {call.returned_us}")
        if call.verdict is Verdict.OK and call.error is not None:
            self.fail(f"{what} of {call.client} succeeded with {call.error}")

    def _check_refused(self) -> None:
        refused = {(it.tp, it.value): it for it in self.history.produces if it.verdict is Verdict.FAILED}
        for read in self.history.consumed:
            for offset, value in read.records:
                it = refused.get((read.tp, value))
                if it is not None:
                    self.fail(f"{read.tp}: {value} was refused with {it.error}, and {read.client} read it at offset {offset}")

    def _check_offsets(self) -> None:
        taken: dict[tuple[object, ...], Produce] = {}
        for it in self.history.produces:
            if it.verdict is not Verdict.OK or it.offset < 0 or it.acks != -1 or self.is_excused(it.tp, it.topic_id):
                continue
            other = taken.setdefault((it.tp, it.topic_id, it.offset), it)
            if other is not it:
                self.fail(f"{it.tp}: {other.value} and {it.value} were both acknowledged at offset {it.offset}")
