"""The calls that tell what is recorded: annotations for a board, events, records of the metadata log, claims, exports."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterable
from itertools import islice
from typing import Any, Final, TypeVar

from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response

from kraftlite.obs.explain import History, Recorded, Subject, UnknownSubject, WallClock, explain
from kraftlite.obs.export import FORMATS
from kraftlite.obs.recording_reader import RecordingError, read_bytes
from kraftlite.ui.annotations import TAGS, marks
from kraftlite.ui.answers import DEFAULT_SPAN_MS, refusal, shown_of
from kraftlite.ui.calls import DEFAULT_EVENTS, EXPORTS, FAULTS, HTML, JSONL, MAX_EVENTS, MAX_NAME, PYTEST
from kraftlite.ui.claims import partition_claims
from kraftlite.ui.export import html_of
from kraftlite.ui.fault_lines import fault_lines
from kraftlite.ui.fold import CONTROLLER, quorum_of
from kraftlite.ui.guard import OPERATOR
from kraftlite.ui.hear import now_ms
from kraftlite.ui.pytest_lines import pytest_lines
from kraftlite.ui.quorum_tail import records, votes
from kraftlite.ui.replay import tape_of
from kraftlite.ui.timeline import epochs_of
from kraftlite.ui.watch import Watcher

T = TypeVar("T")
_DIGITS: Final = 15


class Wrong(Exception):
    """A part of a question makes no sense; the text says what is allowed."""


def whole_of(request: Request, name: str, default: int, *, least: int = 0, most: int = 10**_DIGITS) -> int:
    """A whole number of the query. Raises Wrong."""
    given = request.query_params.get(name)
    if given is None:
        return default
    if not (given.isascii() and given.isdigit() and len(given) <= _DIGITS and least <= int(given) <= most):
        raise Wrong(f"{name}: allowed is a whole number from {least} to {most}")
    return int(given)


class Told:
    """Answers from the history that `watcher` has read. What takes long runs on a thread, one at a time (`telling`)."""

    def __init__(self, watcher: Watcher, telling: asyncio.Lock, interesting: Callable[[], list[str]]) -> None:
        self._watcher = watcher
        self._telling = telling
        self._interesting = interesting
        self.handlers: dict[str, Callable[[Request], Any]] = {
            name: checked(answer)
            for name, answer in (
                ("annotations", self._annotations),
                ("events", self._events),
                ("metadata", self._metadata),
                ("quorum", self._quorum),
                ("claims", self._claims),
                ("export", self._export),
            )
        }

    async def _off_loop(self, work: Callable[[History], T]) -> T:
        async with self._telling:
            return await asyncio.to_thread(lambda: work(self._watcher.record.history()))

    async def _annotations(self, request: Request) -> Response:
        from_ms, until_ms = _range(request)
        names = shown_of(request, self._interesting)
        given = request.query_params.get("tags", "")
        tags = frozenset(given.split(",") if given else TAGS)
        if not tags <= set(TAGS):
            raise Wrong(f"tags: allowed are {', '.join(TAGS)}, with commas between them")
        return JSONResponse(await self._off_loop(lambda history: marks(history, from_ms, until_ms, names, tags)))

    async def _events(self, request: Request) -> Response:
        from_ms, until_ms = _range(request)
        node, name = whole_of(request, "node", -1), request.query_params.get("name")
        limit = whole_of(request, "limit", DEFAULT_EVENTS, least=1, most=MAX_EVENTS)

        def find(history: History) -> list[dict[str, Any]]:
            newest = (
                event
                for event in reversed(history.events)
                if from_ms <= event.ms <= until_ms and node in (-1, event.node) and name in (None, event.event)
            )
            return _lines(islice(newest, limit))[::-1]

        return JSONResponse({"events": await self._off_loop(find), "recorded": self._watcher.record.version})

    async def _metadata(self, request: Request) -> Response:
        most = whole_of(request, "max", DEFAULT_EVENTS, least=1, most=MAX_EVENTS)
        first = whole_of(request, "from", -1)

        def find(history: History) -> list[dict[str, Any]]:
            offsets = sorted(offset for offset in history.records if offset >= first)
            chosen = offsets[:most] if first >= 0 else offsets[-most:]
            return _lines(history.records[offset] for offset in chosen)

        return JSONResponse({"records": await self._off_loop(find), "recorded": self._watcher.record.version})

    async def _quorum(self, request: Request) -> Response:
        first = whole_of(request, "from", -1)
        most = whole_of(request, "max", DEFAULT_EVENTS, least=1, most=MAX_EVENTS)
        tail = await self._off_loop(lambda history: {"votes": votes(history), "records": records(history, first, most)})
        return JSONResponse({**tail, "recorded": self._watcher.record.version})

    async def _claims(self, request: Request) -> Response:
        about = request.query_params.get("about", CONTROLLER)[:MAX_NAME]
        at_ms, nodes = now_ms(), self._watcher.sorted_nodes()
        if about == CONTROLLER:
            quorum = quorum_of(nodes, at_ms, self._watcher.judge.memory)
            return JSONResponse({"about": about, "verdict": quorum["verdict"], "claims": quorum["claims"], "epochs": []})
        rows = self._watcher.partitions(at_ms)["rows"]
        row = next((it for it in rows if it["name"] == about), None)
        if row is None:
            return refusal(404, f"about {about}: nobody has spoken of it; allowed are {CONTROLLER}, and names such as orders-0")
        found = partition_claims(nodes, (row["topic"], row["partition"]), at_ms)
        told = {"about": about, "verdict": row["verdict"], "claims": [claim.to_dict() for claim in found]}
        return JSONResponse({**told, "epochs": await self._off_loop(lambda history: epochs_of(history, about))})

    async def _export(self, request: Request) -> Response:
        form = request.query_params.get("format", JSONL)
        if form not in EXPORTS:
            raise Wrong(f"format: allowed are {', '.join(EXPORTS)}")
        if form == HTML:
            return await self._save(request)
        since_ms = whole_of(request, "since", now_ms() - DEFAULT_SPAN_MS)
        try:
            subject = Subject.parse(request.query_params.get("kind", "cluster"), request.query_params.get("name") or None)
        except ValueError as error:
            raise Wrong(str(error)) from None

        def render(history: History) -> str | None:
            if form == JSONL:
                found = _lines(event for event in history.events if event.ms >= since_ms)
                return "".join(f"{json.dumps(line)}\n" for line in found)
            if form == FAULTS:
                return "".join(f"{line}\n" for line in fault_lines(history.faults, since_ms, now_ms()))
            if form == PYTEST:
                cluster = self._watcher.cluster
                return pytest_lines(history.faults, since_ms, controllers=cluster.controllers, brokers=cluster.brokers)
            told = explain(history, subject, since_ms=since_ms, clock=WallClock())
            return FORMATS[form](told) if told.stories else None

        try:
            text = await self._off_loop(render)
        except UnknownSubject as error:
            return refusal(404, str(error))
        if text is None:
            return refusal(404, f"{subject}: no story to export: nothing that changed it is recorded in this time")
        name = "test_kraftlite_faults.py" if form == PYTEST else f"kraftlite-{form}.txt"
        return PlainTextResponse(text, headers=_as_file(name))

    async def _save(self, request: Request) -> Response:
        """The page of what was heard lately, in one file."""
        if request.scope["role"] != OPERATOR:
            return refusal(403, "this link is for looking only: the operator's link may save")
        data = self._watcher.saved()
        try:
            async with self._telling:
                page = await asyncio.to_thread(lambda: html_of(tape_of(lambda: read_bytes(data))))
        except RecordingError as error:
            return refusal(404, str(error))
        # To be kept, and not to be shown here: its policy is its own.
        return Response(page, media_type="application/octet-stream", headers=_as_file("kraftlite.html"))


def _as_file(name: str) -> dict[str, str]:
    return {"Content-Disposition": f'attachment; filename="{name}"'}


def checked(answer: Callable[[Request], Any]) -> Callable[[Request], Any]:
    async def serve(request: Request) -> Response:
        try:
            found: Response = await answer(request)
        except Wrong as error:
            return refusal(400, str(error))
        return found

    return serve


def _range(request: Request) -> tuple[int, int]:
    """Raises Wrong."""
    until_ms = whole_of(request, "to", now_ms())
    from_ms = whole_of(request, "from", max(0, until_ms - DEFAULT_SPAN_MS))
    if from_ms > until_ms:
        raise Wrong("from: allowed is a moment before to")
    return from_ms, until_ms


def _lines(events: Iterable[Recorded]) -> list[dict[str, Any]]:
    """Make lines of a trace file."""
    return [{"ts": it.ms, "node": it.node, "event": it.event, **it.told} for it in events]
