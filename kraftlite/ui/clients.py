"""Clients that say what they were told: one that the page runs, and those that report to it, as a test does.

A report is what a client knows and nothing of it is merged with what the cluster says. `outages` puts both beside each other.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

from kraftlite.local.process import own_environment
from kraftlite.local.workload import MAX_PARTITIONS, MAX_RATE
from kraftlite.model.shown import printable
from kraftlite.obs import recording_checks as c
from kraftlite.obs.explain import History, Subject, UnknownSubject, WallClock, explain
from kraftlite.obs.explain_story import Story
from kraftlite.ui.acts import Refused, check_operator
from kraftlite.ui.timeline import Span

MAX_CLIENTS: Final = 8
MAX_GAPS: Final = 100
"""The newest of one client."""
OWN: Final = "page"
"""The name of the client that the page runs."""
SILENT_MS: Final = 2_000
"""A client whose last report is older does not report any more."""
_OUTAGES: Final = ("not_writable", "hw_stalled")
"""The kinds of stories of a partition that tell why nothing was acknowledged."""
_STOP_S: Final = 15.0
_MAX_LINE: Final = 256 << 10
_COUNT: Final = c.whole(0, 1 << 62)
_TIME: Final = c.TIME
_REPORT: Final = {
    "client": c.text(60),
    "topic": c.text(249),
    "at": _TIME,
    "sent": _COUNT,
    "consumed": c.maybe(_COUNT),
    "p50": c.maybe(_COUNT),
    "p99": c.maybe(_COUNT),
}
_PARTITION: Final = (c.whole(0, (1 << 31) - 1), _COUNT, _COUNT, _COUNT, _COUNT, c.maybe(_TIME))
"""Partition, acknowledged, refused, in doubt, outstanding, and since when it waits."""
_GAP: Final = (c.whole(0, (1 << 31) - 1), _TIME, _TIME)


def _row(checks: tuple[c.Check, ...]) -> c.Check:
    def check(value: Any) -> list[Any]:
        if not isinstance(value, list) or len(value) != len(checks):
            raise ValueError(f"allowed is a list of {len(checks)}")
        return [one(it) for one, it in zip(checks, value, strict=True)]

    return check


def checked(value: Mapping[str, object]) -> dict[str, Any]:
    """A report, as the page may show it. Raises ValueError."""
    given = c.obj(value)
    found = c.each(_REPORT, given)
    missing = [name for name in _REPORT if name not in found]
    if missing:
        raise ValueError(f"the report has no {', '.join(missing)}")
    errors = c.obj(given.get("errors", {}))
    if len(errors) > 20:
        raise ValueError("errors: allowed are 20")
    found["errors"] = {c.text(60)(name): _COUNT(count) for name, count in errors.items()}
    found["partitions"] = c.many(_row(_PARTITION), MAX_PARTITIONS)(given.get("partitions", []))
    found["gaps"] = c.many(_row(_GAP), MAX_GAPS)(given.get("gaps", []))
    return found


def _silences(history: History, partition: str) -> list[Story]:
    """The times in which the cluster acknowledged nothing there, and why; none of a partition that nobody has told of."""
    try:
        found = explain(history, Subject("partition", partition), since_ms=0, clock=WallClock())
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


def outages(gaps: Sequence[Gap], history: History) -> list[dict[str, Any]]:
    """Each gap, with the stories of the time in which the cluster acknowledged nothing there. Pure, and may take its time."""
    told = {name: _silences(history, name) for name in {gap.partition for gap in gaps}}
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


class Clients:
    """The last report of each client, the gaps of all, and the process of the one that the page runs."""

    def __init__(self, data_dir: Path) -> None:
        self._data_dir = data_dir
        self._last: dict[str, dict[str, Any]] = {}
        self._gaps: dict[str, dict[tuple[int, int], int]] = {}
        self._child: asyncio.subprocess.Process | None = None
        self._reading: asyncio.Task[None] | None = None
        self._why: str | None = None
        """The reason why the page's client ended by itself."""

    # --- what they say

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

    def report(self, value: Mapping[str, object], *, operator: bool) -> None:
        """Take the report of a client of somebody else. Raises Refused."""
        check_operator(operator)
        if value.get("client") == OWN:
            raise Refused(400, f"client: {OWN} is the page's own")
        try:
            self.take(value)
        except ValueError as error:
            raise Refused(400, str(error)) from None

    def words(self, at_ms: int) -> list[dict[str, Any]]:
        """For the state: totals, and each partition."""
        found: list[dict[str, Any]] = []
        for name, report in sorted(self._last.items()):
            acked, refused, in_doubt, outstanding = (sum(row[at] for row in report["partitions"]) for at in (1, 2, 3, 4))
            waits = [row[5] for row in report["partitions"] if row[5] is not None]
            totals = {"acked": acked, "refused": refused, "in_doubt": in_doubt, "outstanding": outstanding}
            longest = max((until - since for (_, since), until in self._gaps[name].items()), default=None)
            running = name == OWN and self.running
            found.append(
                {**report, **totals, "waits_ms": min(waits, default=None), "longest_ms": longest, "running": running}
                | {"old": at_ms - report["at"] > SILENT_MS}
            )
        return found

    def about(self) -> dict[str, Any]:
        """Return what the page's own client does."""
        return {"running": self.running, "why": self._why}

    def headlines(self, at_ms: int) -> list[dict[str, Any]]:
        """Return a line for each client that misses an acknowledgement for more than a second."""
        found = []
        for words in self.words(at_ms):
            late = [row for row in words["partitions"] if row[5] is not None and at_ms - row[5] > 1_000]
            if late and not words["old"]:
                names = ", ".join(f"{words['topic']}-{row[0]}" for row in late[:3]) + (" …" if len(late) > 3 else "")
                text = f"the client {words['client']} has no acknowledgement from {names}"
                since_ms = min(row[5] for row in late)
                found.append({"level": "alarm", "text": text, "since_ms": since_ms, "since_exact": True, "about": None})
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

    # --- the one that the page runs

    @property
    def running(self) -> bool:
        return self._child is not None and self._child.returncode is None

    async def start(self, topic: object, rate: object, *, operator: bool) -> None:
        """Raises Refused."""
        check_operator(operator)
        if not isinstance(topic, str) or not 0 < len(topic) <= 249 or topic.startswith("-"):
            raise Refused(400, "topic: allowed is the name of a topic")
        if not isinstance(rate, int) or isinstance(rate, bool) or not 1 <= rate <= MAX_RATE:
            raise Refused(400, f"rate: allowed is a whole number from 1 to {MAX_RATE}")
        if self.running:
            raise Refused(409, "the page's client runs already: stop it first")
        await self.close()
        self._last.pop(OWN, None)
        self._gaps.pop(OWN, None)
        self._why = None
        command = ["-m", "kraftlite.local.workload", "--data-dir", str(self._data_dir), "--topic", topic, "--rate", str(rate)]
        self._child = await asyncio.create_subprocess_exec(
            sys.executable,
            *command,
            "--client",
            OWN,
            "--until-eof",
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            limit=_MAX_LINE,
            env=own_environment(),
            start_new_session=True,
        )
        self._reading = asyncio.create_task(self._read(self._child))

    async def _read(self, child: asyncio.subprocess.Process) -> None:
        assert child.stdout is not None and child.stderr is not None
        errors = asyncio.create_task(child.stderr.read(_MAX_LINE))
        while line := await child.stdout.readline():
            self.take(json.loads(line))
        said = (await errors).decode(errors="replace").strip().splitlines()
        if await child.wait():
            self._why = printable(said[-1].removeprefix("Error: ")[:300]) if said else "it ended without a word"

    async def stop(self, *, operator: bool) -> None:
        """Raises Refused."""
        check_operator(operator)
        if not self.running:
            raise Refused(409, "the page's client does not run")
        assert self._child is not None and self._child.stdin is not None
        self._child.stdin.close()

    async def close(self) -> None:
        """End the client: what it has under way gets some seconds."""
        child, reading = self._child, self._reading
        if child is None or reading is None:
            return
        assert child.stdin is not None
        child.stdin.close()
        done, _ = await asyncio.wait({reading}, timeout=_STOP_S)
        if not done:
            child.kill()
            await asyncio.wait({reading})
        self._child = self._reading = None
        reading.result()
