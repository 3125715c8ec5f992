"""The routes of the page: its files, and the API that it is made of."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import FileResponse, JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

from kraftlite.config.server import ConfigError
from kraftlite.config.server import load as load_config
from kraftlite.obs.explain import History, Subject, UnknownSubject
from kraftlite.ui.acts import END, KINDS, Acts, Refused
from kraftlite.ui.answers import DEFAULT_SPAN_MS, refusal, shown_of
from kraftlite.ui.calls import LIVE, MAX_TOKEN, TAPE, calls, document
from kraftlite.ui.fold import page_of
from kraftlite.ui.guard import OPERATOR, Guard, Sessions, Tokens
from kraftlite.ui.hear import now_ms
from kraftlite.ui.kept import Kept
from kraftlite.ui.past import Past
from kraftlite.ui.reports import outages
from kraftlite.ui.stream import MAX_FILTER, Streams
from kraftlite.ui.timeline import lane_names, lanes_of, recent_stories, stories_of
from kraftlite.ui.told import Told
from kraftlite.ui.watch import Watcher

if TYPE_CHECKING:
    from kraftlite.ui.rerun import Reruns

STATIC: Final = Path(__file__).parent / "static"
MAX_BODY: Final = 64 << 10
BODY_S: Final = 5.0
_TYPES: Final = {".html": "text/html", ".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml"}
_TIMINGS: Final = ("broker.session.timeout.ms", "controller.quorum.fetch.timeout.ms", "replica.lag.time.max.ms")


class Front:
    """The common part of all pages: their files, the door behind which their links lead, and the guard before it."""

    def __init__(self, tokens: Tokens, port: int, page: str, handlers: Mapping[str, Any]) -> None:
        """`page`: its kind in `calls`; `handlers`: of its calls, by name."""
        self.sessions = Sessions()
        self._document = document(page)
        self._tokens = tokens
        files = [Route(f"/{path.name}", self._file(path)) for path in sorted(STATIC.iterdir()) if path.suffix in _TYPES]
        common = [
            Route("/healthz", self._health),
            Route("/", self._file(STATIC / "index.html")),
            *files,
        ]
        every = {"session": self._session, "openapi.json": self._openapi, **handlers}
        routes = [Route(call.path, every.pop(call.name), methods=[call.method]) for call in calls(page)]
        assert not every, f"nobody describes {', '.join(every)}"
        self.routes = [*common, *routes]
        self.guard = Guard(Starlette(routes=self.routes), port=port, tokens=tokens, sessions=self.sessions)

    def _file(self, path: Path) -> Callable[[Request], Any]:
        async def serve(request: Request) -> Response:
            return FileResponse(path, media_type=_TYPES[path.suffix])

        return serve

    async def _health(self, request: Request) -> Response:
        return PlainTextResponse("ok")

    async def _openapi(self, request: Request) -> Response:
        return JSONResponse(self._document)

    async def _session(self, request: Request) -> Response:
        value = await _body(request)
        if isinstance(value, Response):
            return value
        token = value.get("token")
        role = self._tokens.role(token) if isinstance(token, str) and len(token) <= MAX_TOKEN else None
        if role is None:
            return refusal(401, "this link is not, or no more, one of this page: kraftlite ui prints a new one at each start")
        found = JSONResponse({"role": role})
        found.set_cookie(self.guard.cookie, self.sessions.open(role), httponly=True, samesite="strict", path="/")
        return found

    def close(self) -> None:
        """End what is open: the server would wait for it."""


class TapePage(Front):
    """The page of a recording: all of it in one answer, and where it is the run of a seed, the same run with a change."""

    def __init__(self, tape: dict[str, Any], tokens: Tokens, port: int, reruns: Reruns | None = None) -> None:
        self._cluster = tape["cluster"]
        self._tape = json.dumps(tape, separators=(",", ":")).encode()
        self._reruns = reruns
        super().__init__(tokens, port, TAPE, {"cluster": self._about, "tape": self._whole, "what-if": self._what_if})

    async def _about(self, request: Request) -> Response:
        what_if = None if self._reruns is None else {**self._reruns.about, "may": request.scope["role"] == OPERATOR}
        return JSONResponse({**self._cluster, "what_if": what_if})

    async def _what_if(self, request: Request) -> Response:
        value = await _body(request)
        if isinstance(value, Response):
            return value
        if self._reruns is None:
            return refusal(409, "this is not the recording of a run that can be run again")
        try:
            found = await self._reruns.run(value, operator=request.scope["role"] == OPERATOR)
        except Refused as error:
            return refusal(error.status, str(error))
        return JSONResponse(found)

    async def _whole(self, request: Request) -> Response:
        return Response(self._tape, media_type="application/json")


class Page(Front):
    """The live page. What takes long (stories) is made on a thread, one at a time, and kept until something new is recorded."""

    def __init__(self, watcher: Watcher, acts: Acts, tokens: Tokens, port: int) -> None:
        self.watcher = watcher
        self.acts = acts
        self.streams = Streams(watcher)
        watcher.kept = Kept()
        self._told: tuple[object, list[dict[str, Any]]] | None = None
        self._telling = asyncio.Lock()
        self._past = Past(watcher, self._telling)
        handlers = {
            "cluster": self._cluster,
            "state": self._state,
            "stream": self.streams,
            "stories": self._stories,
            "timeline": self._timeline,
            "outages": self._outages,
            "clients": self._client,
            "faults": self._fault,
            "end-faults": self._end_fault,
            "end-fault": self._end_fault,
            "stop-client": self._stop_client,
            **Told(watcher, self._telling, self._interesting).handlers,
            **self._past.handlers,
        }
        super().__init__(tokens, port, LIVE, handlers)

    def close(self) -> None:
        self.streams.close()

    async def _cluster(self, request: Request) -> Response:
        cluster = self.watcher.cluster
        return JSONResponse(
            {
                "cluster_id": cluster.cluster_id,
                "data_dir": cluster.data_dir,
                "controllers": cluster.controllers,
                "brokers": cluster.brokers,
                "bootstrap_servers": cluster.bootstrap_servers,
                "role": request.scope["role"],
                "read_only": self._tokens.operator is None,
                "traces": self.watcher.whom.traces,
                "faults": list(KINDS) if request.scope["role"] == OPERATOR else [],
                "timings_ms": await asyncio.to_thread(self._timings),
            }
        )

    def _timings(self) -> dict[str, int | None]:
        """The times after which the cluster notices; None where the configuration cannot be read."""
        node = next((it for it in self.watcher.cluster.nodes if it.is_controller), None)
        try:
            config = None if node is None else load_config(node.config_path)
        except ConfigError:
            config = None
        return {key: None if config is None else config.get_int(key) for key in _TIMINGS}

    async def _state(self, request: Request) -> Response:
        if "at" in request.query_params:
            then: Response = await self._past.state(request)
            return then
        state = self.watcher.state()
        rows = self.watcher.partitions(state["t"])["rows"]
        return JSONResponse({**state, **page_of(rows, request.query_params.get("q", "")[:MAX_FILTER])})

    async def _stories(self, request: Request) -> Response:
        """`kind` and `name` as in `kraftlite explain`; without them, what happened lately."""
        kind, name = request.query_params.get("kind"), request.query_params.get("name", "")
        since_ms = _since(request)
        try:
            subject = None if kind is None else Subject.parse(kind, name or None)
        except ValueError as error:
            return refusal(400, str(error))
        try:
            stories = await self._tell(subject, since_ms)
        except UnknownSubject as error:
            if request.query_params.get("quiet") != "1":
                return refusal(404, str(error))
            stories = []
        return JSONResponse({"stories": stories, "recorded": self.watcher.record.version})

    async def _tell(self, subject: Subject | None, since_ms: int) -> list[dict[str, Any]]:
        names = self._interesting()

        def tell() -> list[dict[str, Any]]:
            history = self.watcher.record.history()
            if subject is not None:
                return stories_of(history, subject, since_ms)
            return recent_stories(history, names, since_ms)

        async with self._telling:
            asked = (self.watcher.record.version, subject, since_ms // 60_000, tuple(names))
            if self._told is None or self._told[0] != asked:
                self._told = asked, await asyncio.to_thread(tell)
            return self._told[1]

    def _interesting(self) -> list[str]:
        return self.watcher.judge.interesting(self.watcher.sorted_nodes(), now_ms())

    async def _timeline(self, request: Request) -> Response:
        since_ms = _since(request)
        names = shown_of(request, self._interesting)

        def lanes() -> tuple[History, list[dict[str, Any]]]:
            history = self.watcher.record.history()
            return history, lanes_of(history, since_ms, names)

        async with self._telling:
            history, spans = await asyncio.to_thread(lanes)
        named = lane_names(history, names)
        missed = self.watcher.clients.spans(since_ms)
        if missed:
            named.insert(1, "clients")
        return JSONResponse({"since": since_ms, "until": now_ms(), "lanes": named, "spans": [*spans, *missed]})

    async def _outages(self, request: Request) -> Response:
        """The outages of clients, and what the cluster says of the same time."""
        gaps = self.watcher.clients.gaps()
        async with self._telling:
            found = await asyncio.to_thread(lambda: outages(gaps, self.watcher.record.history()))
        return JSONResponse({"outages": found})

    async def _client(self, request: Request) -> Response:
        """`start` the page's own client, `stop` it, or take the `report` of another one."""
        value = await _body(request)
        if isinstance(value, Response):
            return value
        clients, operator = self.watcher.clients, request.scope["role"] == OPERATOR
        try:
            match value.get("kind"):
                case "start":
                    await clients.start(value.get("topic"), value.get("rate"), operator=operator)
                case "stop":
                    await clients.stop(operator=operator)
                case "report":
                    clients.report(value, operator=operator)
                case _:
                    return refusal(400, "kind: allowed are start, stop, report")
        except Refused as error:
            return refusal(error.status, str(error))
        return JSONResponse({"done": True}, status_code=202)

    async def _fault(self, request: Request) -> Response:
        value = await _body(request)
        if isinstance(value, Response):
            return value
        return await self._act(request, value)

    async def _end_fault(self, request: Request) -> Response:
        """End the fault that the path names, or all."""
        return await self._act(request, {"kind": END, **request.path_params})

    async def _stop_client(self, request: Request) -> Response:
        try:
            await self.watcher.clients.stop(operator=request.scope["role"] == OPERATOR)
        except Refused as error:
            return refusal(error.status, str(error))
        return JSONResponse({"done": True}, status_code=202)

    async def _act(self, request: Request, value: Mapping[str, Any]) -> Response:
        door = "api" if request.headers.get("authorization") else "page"
        try:
            operator = request.scope["role"] == OPERATOR
            done = await self.acts.do(value.get("kind"), value.get("node"), operator=operator, door=door, rest=value)
        except Refused as error:
            return refusal(error.status, str(error))
        finally:
            self.watcher.hurry()
        return JSONResponse({"done": done}, status_code=202)


def _since(request: Request) -> int:
    """`since` in wall milliseconds, by default ten minutes ago."""
    text = request.query_params.get("since", "")
    given = int(text) if text.isascii() and text.isdigit() and len(text) < 16 else 0
    return given or now_ms() - DEFAULT_SPAN_MS


async def _body(request: Request) -> dict[str, Any] | Response:
    """An object in JSON, of a bounded size, within a bounded time; else the refusal."""
    if request.headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
        return refusal(415, "the body must be application/json")
    data = bytearray()
    try:
        async with asyncio.timeout(BODY_S):
            async for chunk in request.stream():
                data += chunk
                if len(data) > MAX_BODY:
                    return refusal(413, f"the body has more than {MAX_BODY} bytes")
    except TimeoutError:
        return refusal(408, f"the body did not come within {BODY_S:g} s")
    try:
        value = json.loads(bytes(data))
    except (ValueError, RecursionError):
        value = None
    return value if isinstance(value, dict) else refusal(400, "the body must be an object in JSON")
