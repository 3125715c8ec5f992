"""The reports of clients on what they were told, and beside them what the cluster says of the same time. Pure.

Nothing of a report is merged with what the cluster says: `outages` puts both beside each other.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from kraftlite.obs.client_report import MAX_GAPS, checked
from kraftlite.obs.explain import Clock, History, Subject, UnknownSubject, WallClock, explain
from kraftlite.obs.explain_story import Story
from kraftlite.ui.timeline import Span

MAX_CLIENTS: Final = 8
OWN: Final = "page"
"""The name of the client that the page runs."""
SILENT_MS: Final = 2_000
"""A client whose last report is older does not report any more."""
_OUTAGES: Final = ("not_writable", "hw_stalled")
"""The kinds of stories of a partition that tell why nothing was acknowledged."""


def _silences(history: History, partition: str, clock: Clock) -> list[Story]:
    """The times in which the cluster acknowledged nothing there, and why; none of a partition that nobody has told of."""
    try:
        found = explain(history, Subject("partition", partition), since_ms=0, clock=clock)
    except UnknownSubject:
        return []
    return [it for it in found.stories if it.kind in _OUTAGES]


class Gap(NamedTuple):
    """A time without an acknowledgement, as a client says it. `until_ms` None: it lasts; `heard_ms`: as far as is known."""

    client: str
    partition: str
    since_ms: int
    until_ms: int | None
    heard_ms: int


def outages(gaps: Sequence[Gap], history: History, clock: Clock | None = None) -> list[dict[str, Any]]:
    """Each gap, with the stories of the time in which the cluster acknowledged nothing there. Pure, and may take its time."""
    told = {name: _silences(history, name, clock or WallClock()) for name in {gap.partition for gap in gaps}}
    found = []
    for gap in gaps:
        cluster = [
            {"from": it.from_ms, "until": it.until_ms, "title": it.title}
            for it in told[gap.partition]
            if it.from_ms <= gap.heard_ms and (it.until_ms is None or it.until_ms >= gap.since_ms)
        ]
        at = {"client": gap.client, "name": gap.partition, "from": gap.since_ms, "until": gap.until_ms}
        found.append({**at, "cluster": cluster})
    return found


class Reports:
    """The last report of each client, and the gaps of all."""

    def __init__(self) -> None:
        self._last: dict[str, dict[str, Any]] = {}
        self._gaps: dict[str, dict[tuple[int, int], int]] = {}

    @property
    def count(self) -> int:
        return len(self._last)

    def take(self, value: Mapping[str, object]) -> None:
        """Forgets the one that has said nothing for longest when there are too many. Raises ValueError for what is
        no report."""
        report = checked(value)
        name = report["client"]
        if name not in self._last and len(self._last) >= MAX_CLIENTS:
            oldest = min(self._last, key=lambda it: (it == OWN, self._last[it]["at"]))
            del self._last[oldest], self._gaps[oldest]
        self._last[name] = report
        gaps = self._gaps.setdefault(name, {})
        gaps.update({(partition, since): until for partition, since, until in report.pop("gaps")})
        for old in list(gaps)[:-MAX_GAPS]:
            del gaps[old]

    def words(self, at_ms: int, running: str | None = None) -> list[dict[str, Any]]:
        """For the state: totals, and each partition. `running`: the one that the page runs."""
        found: list[dict[str, Any]] = []
        for name, report in sorted(self._last.items()):
            acked, refused, in_doubt, outstanding = (sum(row[at] for row in report["partitions"]) for at in (1, 2, 3, 4))
            waits = [row[5] for row in report["partitions"] if row[5] is not None]
            totals = {"acked": acked, "refused": refused, "in_doubt": in_doubt, "outstanding": outstanding}
            longest = max((until - since for (_, since), until in self._gaps[name].items()), default=None)
            found.append(
                {**report, **totals, "waits_ms": min(waits, default=None), "longest_ms": longest, "running": name == running}
                | {"old": at_ms - report["at"] > SILENT_MS}
            )
        return found

    def headlines(self, at_ms: int) -> list[dict[str, Any]]:
        """Return a line for each client that misses an acknowledgement for more than a second."""
        found = []
        for words in self.words(at_ms):
            late = [row for row in words["partitions"] if row[5] is not None and at_ms - row[5] > 1_000]
            if late and not words["old"]:
                names = ", ".join(f"{words['topic']}-{row[0]}" for row in late[:3]) + (" …" if len(late) > 3 else "")
                text = f"the client {words['client']} has no acknowledgement from {names}"
                since_ms = min(row[5] for row in late)
                about = {"kind": "client", "name": words["client"]}
                found.append({"level": "alarm", "text": text, "since_ms": since_ms, "since_exact": True, "about": about})
        return found

    def gaps(self) -> list[Gap]:
        """The newest first."""
        found: list[Gap] = []
        for name, gaps in self._gaps.items():
            topic, at_ms = self._last[name]["topic"], self._last[name]["at"]
            found += [Gap(name, f"{topic}-{partition}", since, until, until) for (partition, since), until in gaps.items()]
            waits = [(row[0], row[5]) for row in self._last[name]["partitions"] if row[5] is not None]
            found += [Gap(name, f"{topic}-{at}", since, None, at_ms) for at, since in waits if at_ms - since > 1_000]
        return sorted(found, key=lambda it: -it.since_ms)[:MAX_GAPS]

    def spans(self, since_ms: int) -> list[dict[str, Any]]:
        """The gaps as bars of the timeline."""
        return [
            Span(
                lane="clients",
                kind="stalled",
                label=f"{gap.client}: no ack from {gap.partition}",
                from_ms=gap.since_ms,
                until_ms=gap.until_ms,
            ).to_dict()
            for gap in self.gaps()
            if gap.until_ms is None or gap.until_ms >= since_ms
        ]

    def forget(self, name: str) -> None:
        """A client of this name begins anew."""
        self._last.pop(name, None)
        self._gaps.pop(name, None)

    def since(self, told: dict[str, int]) -> list[dict[str, Any]]:
        """The reports that are newer than these, whole, with the gaps that had not ended then; `told` is brought up to date."""
        found = []
        for name, report in self._last.items():
            before = told.get(name)
            if before != report["at"]:
                gaps = [[*key, until] for key, until in self._gaps[name].items() if before is None or until > before]
                found.append({**report, "gaps": gaps})
                told[name] = report["at"]
        return found


def add_clients(state: dict[str, Any], reports: Reports, at_ms: int, running: str | None = None) -> None:
    """Put what clients say into a state, and what they miss among the lines on top."""
    state["clients"] = reports.words(at_ms, running)
    state["client"] = {"running": False, "why": None}
    missed = reports.headlines(at_ms)
    if missed:
        others = [line for line in state["headlines"] if line["level"] != "ok"]
        state["headlines"] = sorted([*others, *missed], key=lambda line: line["level"] != "alarm")
