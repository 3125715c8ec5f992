"""The calls of the page's API: one description, of which the routes are made and the OpenAPI document that tells of them.

`GET /api/v1/openapi.json` is the document of the page that is asked: a live one and that of a recording have other calls.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import kraftlite
from kraftlite.local.workload import MAX_RATE
from kraftlite.model.faults import CLIENTS, MAX_COUNT, MAX_FOR_MS
from kraftlite.model.limits import MAX_INT32
from kraftlite.obs.export import FORMATS
from kraftlite.ui.acts import KINDS, MAX_ID
from kraftlite.ui.annotations import TAGS
from kraftlite.ui.schemas import (
    EVENT,
    FLAG,
    MOMENT,
    STATE,
    TEXT,
    WHOLE,
    array,
    maybe,
    obj,
    some,
    text,
    whole,
)
from kraftlite.ui.stream import MAX_FILTER

Schema = dict[str, Any]
ROOT: Final = "/api/v1/"
_EVENTS: Final = "text/event-stream"
LIVE, TAPE = "live", "tape"
MAX_TOKEN: Final = 200
MAX_NAME: Final = 300
MAX_EVENTS: Final = 5_000
DEFAULT_EVENTS: Final = 500
JSONL: Final = "jsonl"
FAULTS: Final = "faults"
PYTEST: Final = "pytest"
HTML: Final = "html"
EXPORTS: Final = (JSONL, FAULTS, PYTEST, HTML, *FORMATS)
MAX_FILES: Final = 2_000
DEFAULT_PATH: Final = "/image"


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """`name` is its operation id, and the rest of its path unless `at` is that, which may have parts in braces (`parts`).
    `operator`: the viewer's link may not. `media`: of its answer."""

    name: str
    pages: tuple[str, ...]
    words: str
    answer: Schema
    status: int = 200
    method: str = "GET"
    query: Mapping[str, tuple[Schema, str]] = field(default_factory=dict)
    body: Schema | None = None
    refusals: tuple[int, ...] = ()
    operator: bool = False
    media: str = "application/json"
    at: str | None = None
    parts: Mapping[str, tuple[Schema, str]] = field(default_factory=dict)

    @property
    def path(self) -> str:
        return ROOT + (self.name if self.at is None else self.at)

    @property
    def writes(self) -> bool:
        return self.method != "GET"

    @property
    def stream(self) -> bool:
        return self.media == _EVENTS


_REFUSALS: Final = {
    400: "The request makes no sense; the text says what is allowed.",
    401: "No session, and no token of this page.",
    403: "Another page asks, another Host is named, or the token is that of the viewer.",
    404: "Nobody has told of this.",
    408: "The body did not come in time.",
    409: "It is not possible now.",
    413: "The body is too large.",
    415: "The body is not application/json.",
    429: "Too many.",
    503: "Too many pages watch.",
}
_BODY: Final = (400, 403, 408, 413, 415)
_DONE: Final = obj({"done": {"type": ["string", "boolean"]}})
_FILTER: Final = {"q": (text(MAX_FILTER), "A part of the names of the partitions that are wanted.")}
_SINCE: Final = {"since": (MOMENT, "Wall time in milliseconds. Default: ten minutes ago.")}
_RANGE: Final = {
    "from": (MOMENT, "Wall time in milliseconds. Default: ten minutes ago."),
    "to": (MOMENT, "Wall time in milliseconds. Default: now."),
}
_FAULT: Final = {
    **some(
        {
            "kind": {"enum": list(KINDS)},
            "node": whole(0, MAX_INT32),
            "for_ms": whole(1, MAX_FOR_MS),
            "other": whole(CLIENTS, MAX_INT32),
            "amount": WHOLE,
            "count": whole(0, MAX_COUNT),
            "path": TEXT,
            "api": TEXT,
            "error": TEXT,
            "id": text(MAX_ID),
        }
    ),
    "required": ["kind"],
}
_REPORT: Final = some({"kind": {"const": "report"}, "client": text(60), "topic": text(249), "at": MOMENT, "sent": WHOLE})
_START: Final = obj({"kind": {"const": "start"}, "topic": text(249), "rate": whole(1, MAX_RATE)})

CALLS: Final = (
    Call(
        name="session",
        pages=(LIVE, TAPE),
        method="POST",
        words="Exchange the token of a link for a cookie. Programs send the token itself, as Authorization: Bearer.",
        body=obj({"token": text(MAX_TOKEN)}),
        answer=obj({"role": {"enum": ["operator", "viewer"]}}),
        refusals=_BODY,
    ),
    Call(
        name="openapi.json",
        pages=(LIVE, TAPE),
        words="This document.",
        answer=some({"openapi": TEXT, "paths": some({})}),
    ),
    Call(
        name="cluster",
        pages=(LIVE,),
        words="Ids, addresses, what this token may do, and the times after which the cluster notices a failure.",
        answer=obj(
            {
                "cluster_id": TEXT,
                "data_dir": TEXT,
                "controllers": WHOLE,
                "brokers": WHOLE,
                "bootstrap_servers": TEXT,
                "role": {"enum": ["operator", "viewer"]},
                "read_only": FLAG,
                "traces": FLAG,
                "faults": array(TEXT),
                "timings_ms": {"type": "object", "additionalProperties": maybe(WHOLE)},
            }
        ),
    ),
    Call(
        name="cluster",
        pages=(TAPE,),
        words="Whose recording it is, and whether its run can be run again.",
        answer=some({"what_if": maybe(some({"may": FLAG}))}),
    ),
    Call(
        name="state",
        pages=(LIVE,),
        words="What every node says, who leads, which faults there are, and what is wrong; with at, what was heard until then.",
        query={**_FILTER, "at": (MOMENT, "Wall time in milliseconds, of the last minutes. Default: now.")},
        answer=STATE,
        refusals=(400, 404),
    ),
    Call(
        name="stream",
        pages=(LIVE,),
        words="The state, again and again: events `state` and `partitions`. Who is slow skips some.",
        query=_FILTER,
        answer=TEXT,
        refusals=(503,),
        media=_EVENTS,
    ),
    Call(
        name="stories",
        pages=(LIVE,),
        words="What happened to one subject, and why; without a kind, what happened lately.",
        query={
            "kind": (TEXT, "As in kraftlite explain: partition, topic, node, controller, record, transaction."),
            "name": (TEXT, "Which one, such as orders-0."),
            "quiet": ({"enum": ["1"]}, "Of what nobody has told of there are no stories, instead of a 404."),
            **_SINCE,
        },
        answer=obj({"stories": array(some({"kind": TEXT, "title": TEXT})), "recorded": WHOLE}),
        refusals=(400, 404),
    ),
    Call(
        name="timeline",
        pages=(LIVE,),
        words="What happened as spans, by lane.",
        query={"partition": (text(MAX_NAME), "Whose lanes. Default: those with trouble."), **_SINCE},
        answer=obj(
            {
                "since": MOMENT,
                "until": MOMENT,
                "lanes": array(TEXT),
                "spans": array(some({"lane": TEXT, "kind": TEXT, "label": TEXT})),
            }
        ),
    ),
    Call(
        name="outages",
        pages=(LIVE,),
        words="What clients missed, and the stories of the time in which the cluster acknowledged nothing there.",
        answer=obj({"outages": array(some({"client": TEXT, "name": TEXT, "from": MOMENT, "until": maybe(MOMENT)}))}),
    ),
    Call(
        name="annotations",
        pages=(LIVE,),
        words="What a board marks: faults of the ledger, who began to lead, who was fenced, started, stood still.",
        query={
            **_RANGE,
            "partition": (text(MAX_NAME), "Whose leaders. Default: those with trouble."),
            "tags": (text(MAX_NAME), f"Some of {','.join(TAGS)}. Default: all."),
        },
        answer=array(
            obj(
                {"time": MOMENT, "timeEnd": MOMENT, "text": TEXT, "tags": array(TEXT)},
                required=("time", "text", "tags"),
            )
        ),
        refusals=(400,),
    ),
    Call(
        name="events",
        pages=(LIVE,),
        words="What nodes recorded, the oldest first; of more than limit, the newest.",
        query={
            **_RANGE,
            "node": (MOMENT, "Of this node alone."),
            "name": (text(MAX_NAME), "Only events of this name, such as partition.leader_started."),
            "limit": (whole(1, MAX_EVENTS), f"Default: {DEFAULT_EVENTS}."),
        },
        answer=obj({"events": array(EVENT), "recorded": WHOLE}),
        refusals=(400,),
    ),
    Call(
        name="metadata",
        pages=(LIVE,),
        words="Records of the metadata log, as the controllers recorded them, the oldest first; without from, the newest.",
        query={
            "from": (MOMENT, "The offset of the first one."),
            "max": (whole(1, MAX_EVENTS), f"Default: {DEFAULT_EVENTS}."),
        },
        answer=obj({"records": array(EVENT), "recorded": WHOLE}),
        refusals=(400,),
    ),
    Call(
        name="record",
        at="metadata/{offset}",
        parts={"offset": (MOMENT, "Where it is in the metadata log.")},
        pages=(LIVE,),
        words="One record of the metadata log, also one that was lost and one that took its place, why it was written, and what "
        "nodes made of it.",
        answer=obj(
            {
                "offset": MOMENT,
                "records": array(some({"ts": MOMENT, "by": WHOLE, "offset": MOMENT, "record": TEXT, "lost": maybe(MOMENT)})),
                "stories": array(some({"kind": TEXT, "title": TEXT})),
            }
        ),
        refusals=(400, 404),
    ),
    Call(
        name="image",
        pages=(LIVE,),
        words="The metadata after one record, from the log of a controller of this machine: what kraftlite metadata shell shows, "
        "without credentials.",
        query={
            "at_offset": (
                MOMENT,
                "The record. Default: the last that is committed, or when no quorum answers the last there is.",
            ),
            "path": (
                text(MAX_NAME),
                f"Which part, with wildcards, such as /image/topics/byName/orders. Default: {DEFAULT_PATH}.",
            ),
        },
        answer=obj(
            {
                "offset": WHOLE,
                "epoch": WHOLE,
                "committed": FLAG,
                "files": {"type": "object", "additionalProperties": TEXT},
                "more": FLAG,
                "notes": array(TEXT),
            }
        ),
        refusals=(400, 404, 409),
    ),
    Call(
        name="quorum",
        pages=(LIVE,),
        words="Who voted for whom, and the records of the metadata log as controllers appended them, also those that were lost "
        "with their controller; without from, the newest.",
        query={
            "from": (MOMENT, "The offset of the first one."),
            "max": (whole(1, MAX_EVENTS), f"Default: {DEFAULT_EVENTS}."),
        },
        answer=obj(
            {
                "votes": array(some({"ts": MOMENT, "node": WHOLE, "epoch": WHOLE, "candidate": WHOLE, "granted": FLAG})),
                "records": array(some({"ts": MOMENT, "by": WHOLE, "offset": MOMENT, "record": TEXT, "lost": maybe(MOMENT)})),
                "recorded": WHOLE,
            }
        ),
        refusals=(400,),
    ),
    Call(
        name="claims",
        pages=(LIVE,),
        words="Who says who leads, each by its own word, the verdict of all, and the leader epochs of a partition.",
        query={"about": (text(MAX_NAME), "controller, or a partition such as orders-0. Default: controller.")},
        answer=obj(
            {
                "about": TEXT,
                "verdict": some({"kind": TEXT, "leader": maybe(WHOLE), "epoch": maybe(WHOLE)}),
                "claims": array(some({"by": WHOLE, "leader": maybe(WHOLE), "epoch": WHOLE, "fresh": FLAG, "own": FLAG})),
                "epochs": array(some({"ts": MOMENT, "epoch": WHOLE, "start": MOMENT, "leader": WHOLE})),
            }
        ),
        refusals=(404,),
    ),
    Call(
        name="export",
        pages=(LIVE,),
        words="What happened, for another tool: the stories of one subject; with jsonl the events, a line each; with faults the "
        "ledger as kraftlite sim --fault takes it; with pytest the same as a test of an embedded cluster; with html the page of "
        "the last minutes in one file, by the operator's link.",
        query={
            "format": ({"enum": list(EXPORTS)}, "Default: jsonl."),
            "kind": (TEXT, "As of stories. Default: cluster."),
            "name": (TEXT, "Which one, such as orders-0."),
            **_SINCE,
        },
        answer=TEXT,
        refusals=(400, 404),
        media="text/plain",
    ),
    Call(
        name="stop-client",
        at="clients",
        pages=(LIVE,),
        method="DELETE",
        words="Stop the client of the page.",
        status=202,
        answer=_DONE,
        refusals=(403, 409),
        operator=True,
    ),
    Call(
        name="end-faults",
        at="faults",
        pages=(LIVE,),
        method="DELETE",
        words="End all faults that nodes cause to themselves.",
        status=202,
        answer=_DONE,
        refusals=(403, 409, 429),
        operator=True,
    ),
    Call(
        name="end-fault",
        at="faults/{id}",
        parts={"id": (text(MAX_ID), "That of the ledger.")},
        pages=(LIVE,),
        method="DELETE",
        words="End one of them.",
        status=202,
        answer=_DONE,
        refusals=(400, 403, 409, 429),
        operator=True,
    ),
    Call(
        name="clients",
        pages=(LIVE,),
        method="POST",
        words="Start or stop the client of the page, or report what another client was told.",
        body={"oneOf": [_START, obj({"kind": {"const": "stop"}}), _REPORT]},
        status=202,
        answer=_DONE,
        refusals=(*_BODY, 409),
        operator=True,
    ),
    Call(
        name="faults",
        pages=(LIVE,),
        method="POST",
        words="Kill, pause, restart a node, or have it cause a fault to itself; `end` with an id, or of all.",
        body=_FAULT,
        status=202,
        answer=_DONE,
        refusals=(*_BODY, 409, 429),
        operator=True,
    ),
    Call(name="tape", pages=(TAPE,), words="The whole recording: frames, stories, lanes.", answer=some({"cluster": some({})})),
    Call(
        name="what-if",
        pages=(TAPE,),
        method="POST",
        words="Run the seed of the recording again, with a change.",
        body=obj({"seed": WHOLE, "changes": array({"type": "array", "minItems": 2, "maxItems": 2})}, required=()),
        answer=some({"tape": some({})}),
        refusals=(*_BODY, 409, 429),
        operator=True,
    ),
)


_OURS: Final[dict[str, Any]] = {
    "name": "X-Kraftlite",
    "in": "header",
    "required": True,
    "schema": {"const": "1"},
    "description": "What no foreign page may send without being asked first.",
}


def calls(page: str) -> Iterable[Call]:
    return (call for call in CALLS if page in call.pages)


def document(page: str) -> dict[str, Any]:
    """The OpenAPI document of one kind of page."""
    paths: dict[str, dict[str, Any]] = {}
    for call in calls(page):
        paths.setdefault(call.path, {})[call.method.lower()] = _operation(call)
    paths["/healthz"] = {
        "get": {
            "operationId": "healthz",
            "summary": "ok, without a token.",
            "security": [],
            "responses": {"200": _response("It serves.", TEXT, "text/plain")},
        }
    }
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "kraftlite: the page on which a failover is watched",
            "version": kraftlite.__version__,
            "description": "Served to the machine itself: any other Host is refused.",
        },
        "security": [{"token": []}, {"session": []}],
        "paths": paths,
        "components": {
            "securitySchemes": {
                "token": {"type": "http", "scheme": "bearer"},
                "session": {"type": "apiKey", "in": "cookie", "name": "kraftlite_PORT"},
            },
            "schemas": {"Error": obj({"error": TEXT})},
        },
    }


def _operation(call: Call) -> dict[str, Any]:
    open_to_all = call.name == "session"
    refused = sorted({*call.refusals, 401, 403})
    found: dict[str, Any] = {
        "operationId": call.name,
        "summary": call.words + (" Only by the operator's link." if call.operator else ""),
        "responses": {
            str(call.status): _response("Done." if call.writes else "The answer.", call.answer, call.media),
            **{str(status): _response(_REFUSALS[status], {"$ref": "#/components/schemas/Error"}) for status in refused},
        },
    }
    parameters: list[dict[str, Any]] = [
        {"name": name, "in": "query", "schema": schema, "description": words} for name, (schema, words) in call.query.items()
    ]
    parameters += [
        {"name": name, "in": "path", "required": True, "schema": schema, "description": words}
        for name, (schema, words) in call.parts.items()
    ]
    if call.writes:
        parameters.append(_OURS)
    if call.body is not None:
        found["requestBody"] = {"required": True, "content": {"application/json": {"schema": call.body}}}
    if parameters:
        found["parameters"] = parameters
    return {**found, "security": []} if open_to_all else found


def _response(words: str, schema: Schema, media: str = "application/json") -> dict[str, Any]:
    return {"description": words, "content": {media: {"schema": schema}}}
