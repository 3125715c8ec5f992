"""Clients that say what they were told: one that the page runs, and those that report to it, as a test does.

A report is what a client knows and nothing of it is merged with what the cluster says. `outages` puts both beside each other.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from kraftlite.local.workload import MAX_PARTITIONS, MAX_RATE
from kraftlite.model.shown import printable
from kraftlite.obs import recording_checks as c
from kraftlite.obs.explain import History, Subject, UnknownSubject, WallClock, explain
from kraftlite.ui.acts import Refused
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
        if not operator:
            raise Refused(403, "this link is for looking only: the operator's link may do that")
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

    def _outages(self) -> list[tuple[str, str, int, int | None]]:
        """Client, partition, from, and until; the newest first."""
        found: list[tuple[str, str, int, int | None]] = []
        for name, gaps in self._gaps.items():
            topic = self._last[name]["topic"]
            found += [(name, f"{topic}-{partition}", since, until) for (partition, since), until in gaps.items()]
            waits = [(row[0], row[5]) for row in self._last[name]["partitions"] if row[5] is not None]
            found += [(name, f"{topic}-{at}", since, None) for at, since in waits if self._last[name]["at"] - since > 1_000]
        return sorted(found, key=lambda it: -it[2])[:MAX_GAPS]

    def outages(self, history: History) -> list[dict[str, Any]]:
        """Each gap of a client, with the stories of the time in which the cluster acknowledged nothing there."""
        found = []
        for client, name, since_ms, until_ms in self._outages():
            over_ms = until_ms if until_ms is not None else self._last[client]["at"]
            try:
                told = explain(history, Subject("partition", name), since_ms=0, clock=WallClock()).stories
            except UnknownSubject:
                told = ()
            cluster = [
                {"from": it.from_ms, "until": it.until_ms, "title": it.title}
                for it in told
                if it.kind in _OUTAGES and it.from_ms <= over_ms and (it.until_ms is None or it.until_ms >= since_ms)
            ]
            found.append({"client": client, "name": name, "from": since_ms, "until": until_ms, "cluster": cluster})
        return found

    def spans(self, since_ms: int) -> list[dict[str, Any]]:
        """The gaps as bars of the timeline."""
        return [
            Span(lane="clients", kind="stalled", label=f"{client}: no ack from {name}", from_ms=since, until_ms=until).to_dict()
            for client, name, since, until in self._outages()
            if until is None or until >= since_ms
        ]

    # --- the one that the page runs

    @property
    def running(self) -> bool:
        return self._child is not None and self._child.returncode is None

    async def start(self, topic: object, rate: object, *, operator: bool) -> None:
        """Raises Refused."""
        if not operator:
            raise Refused(403, "this link is for looking only: the operator's link may do that")
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
            env={**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)},
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
        if not operator:
            raise Refused(403, "this link is for looking only: the operator's link may do that")
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
