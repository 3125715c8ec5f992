"""The description of the page's API is what the page does: its routes, its answers, its refusals, and its documentation."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from starlette.routing import Route

from kraftlite.ui.app import Front, Page, TapePage
from kraftlite.ui.calls import CALLS, LIVE, ROOT, TAPE, Call, calls, document
from kraftlite.ui.guard import Tokens
from tests.harness.recordings import split
from tests.harness.schemas import problems
from tests.harness.ui import Answer, ask, idle_page

DOCS = Path(__file__).parents[3] / "docs" / "PAGE.md"
TOKENS = Tokens("operator-token", "viewer-token")
HOST = {"Host": "127.0.0.1:8088"}
OPERATOR = {**HOST, "Authorization": "Bearer operator-token"}
VIEWER = {**HOST, "Authorization": "Bearer viewer-token"}
WRITE = {"Content-Type": "application/json", "X-Kraftlite": "1"}
GOOD = {
    "session": {"token": "viewer-token"},
    "clients": {"kind": "report", "client": "mine", "topic": "orders", "at": 1, "sent": 3, "consumed": None, "p50": 1, "p99": 2},
}
"""What a page whose nodes do not run answers with success."""
FILES = {"image"}
"""What needs the files of a controller that has run."""
ODD = (
    b"",
    b"[]",
    b"{",
    b'{"kind": "kill"}',
    b'{"kind": "kill", "node": 99}',
    b'{"kind": "no"}',
    b'{"kind": "stop"}',
    b'{"kind": "start", "topic": "-x", "rate": 1}',
    b'{"kind": "report"}',
    b'{"token": 1}',
    b'{"token": "wrong"}',
    b'{"seed": -1}',
    b'{"changes": [[1]]}',
    b"[" * 5_000,
    b"x" * 70_000,
)


@pytest.fixture
def live(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Page:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    return idle_page(tmp_path, TOKENS)


@pytest.fixture
def pages(live: Page) -> dict[str, Front]:
    return {LIVE: live, TAPE: TapePage(split()[1], TOKENS, 8088)}


def described(page: str) -> Iterator[tuple[Call, dict[str, Any]]]:
    paths = document(page)["paths"]
    return ((call, paths[call.path][call.method.lower()]) for call in calls(page))


def said(answer: Answer, operation: dict[str, Any], what: str) -> None:
    """The status is one that is described, and the answer is what is described of it."""
    assert str(answer.status) in operation["responses"], f"{what}: {answer.status} {answer.body[:200]!r}"
    schema = operation["responses"][str(answer.status)]["content"]["application/json"]["schema"]
    if "$ref" in schema:
        schema = document(LIVE)["components"]["schemas"][schema["$ref"].rpartition("/")[2]]
    assert problems(json.loads(answer.body), schema) == [], what


@pytest.mark.parametrize("kind", [LIVE, TAPE])
def test_each_route_is_described_and_each_description_has_a_route(pages: dict[str, Front], kind: str) -> None:
    routes = [it for it in pages[kind].routes if isinstance(it, Route) and it.path.startswith(("/api/", "/healthz"))]
    served = {(it.path, method) for it in routes for method in (it.methods or set()) - {"HEAD"}}
    paths = document(kind)["paths"]
    assert served == {(path, method.upper()) for path, operations in paths.items() for method in operations}
    names = [operation["operationId"] for operations in paths.values() for operation in operations.values()]
    assert len(set(names)) == len(names)


@pytest.mark.parametrize("kind", [LIVE, TAPE])
async def test_the_document_is_served_to_who_may_look(pages: dict[str, Front], kind: str) -> None:
    found = await ask(pages[kind].guard, f"{ROOT}openapi.json", headers=VIEWER)
    assert (found.status, json.loads(found.body)) == (200, document(kind))
    assert (await ask(pages[kind].guard, f"{ROOT}openapi.json", headers=HOST)).status == 401


@pytest.mark.parametrize("kind", [LIVE, TAPE])
async def test_each_answer_is_what_is_described(pages: dict[str, Front], kind: str) -> None:
    for call, operation in described(kind):
        if call.stream:
            continue
        body = json.dumps(GOOD.get(call.name, {})).encode() if call.method == "POST" else b""
        found = await ask(pages[kind].guard, call.path, method=call.method, headers={**OPERATOR, **WRITE}, body=body)
        if call.media == "application/json" or found.status != call.status:
            said(found, operation, call.name)
        if (call.method == "GET" and not call.parts and call.name not in FILES) or call.name in GOOD:
            assert found.status == call.status, (call.name, found.body)


@pytest.mark.parametrize("kind", [LIVE, TAPE])
async def test_each_refusal_is_one_that_is_described(pages: dict[str, Front], kind: str) -> None:
    front = pages[kind]
    for call, operation in described(kind):
        if call.method != "POST":
            continue
        for body in ODD:
            found = await ask(front.guard, call.path, method="POST", headers={**OPERATOR, **WRITE}, body=body)
            said(found, operation, f"{call.name} {body[:40]!r}")
        plain = {**OPERATOR, **WRITE, "Content-Type": "text/plain"}
        assert (await ask(front.guard, call.path, method="POST", headers=plain, body=b"{}")).status == 415


@pytest.mark.parametrize(
    ("name", "query", "status"),
    [
        ("stories", "kind=nonsense", 400),
        ("stories", "kind=partition&name=none-0", 404),
        ("timeline", "since=-1", 200),
        ("state", "q=" + "x" * 5_000, 200),
        ("stories", "quiet=1&kind=partition&name=none-0", 200),
        ("annotations", "from=-1", 400),
        ("annotations", "from=2&to=1", 400),
        ("annotations", "tags=fault,leadership&partition=none-0", 200),
        ("annotations", "tags=nonsense", 400),
        ("annotations", "from=" + "9" * 40, 400),
        ("events", "limit=0", 400),
        ("events", "limit=5001", 400),
        ("events", "node=x", 400),
        ("events", "node=99&name=nothing", 200),
        ("metadata", "max=1e9", 400),
        ("metadata", "from=7&max=2", 200),
        ("export", "format=exe", 400),
        ("export", "format=perfetto&kind=nonsense", 400),
        ("export", "format=perfetto&kind=partition&name=none-0", 404),
        ("export", "format=shiviz&since=" + "\u0663", 400),
    ],
)
async def test_questions_that_make_no_sense_are_described_too(live: Page, name: str, query: str, status: int) -> None:
    found = await ask(live.guard, ROOT + name, headers=VIEWER, query=query)
    assert found.status == status
    said(found, document(LIVE)["paths"][ROOT + name]["get"], name)


@pytest.mark.parametrize("kind", [LIVE, TAPE])
async def test_a_viewer_may_do_nothing_that_changes_anything(pages: dict[str, Front], kind: str) -> None:
    """By any door: each call that is a write, but for the one that makes a session, is the operator's."""
    for call, operation in described(kind):
        if call.writes and call.name != "session":
            assert call.operator and "operator" in operation["summary"]
            body = json.dumps(GOOD.get(call.name, {"kind": "end"})).encode() if call.body else b""
            found = await ask(pages[kind].guard, call.path, method=call.method, headers={**VIEWER, **WRITE}, body=body)
            # A recording that cannot be run again says so to everybody.
            assert found.status in ((403,) if kind == LIVE else (403, 409)), call.name


FOREIGN = (
    {"Host": "evil.example:8088"},
    {"Host": "127.0.0.1:8089"},
    {"Origin": "http://127.0.0.1:18779"},
    {"Origin": "null"},
    {"Sec-Fetch-Site": "same-site"},
    {"Sec-Fetch-Site": "cross-site"},
)
"""What requests of a page at another port of this machine, and of one that has rebound its name to here, cannot leave out."""


@pytest.mark.parametrize("kind", [LIVE, TAPE])
async def test_no_call_is_answered_to_a_foreign_page_or_a_stranger(pages: dict[str, Front], kind: str) -> None:
    """Each one, also those that come later: the description has them all."""
    guard = pages[kind].guard
    session = pages[kind].sessions.open("operator")
    for call in calls(kind):
        body = json.dumps(GOOD.get(call.name, {"kind": "end"})).encode() if call.method == "POST" else b""
        cookie = {**HOST, **WRITE, "Origin": "http://127.0.0.1:8088", "Cookie": f"{guard.cookie}={session}"}
        for foreign in FOREIGN:
            found = await ask(guard, call.path, method=call.method, headers={**cookie, **foreign}, body=body)
            assert found.status == 403, (call.name, foreign)
        if call.writes:
            for missing in ("X-Kraftlite", "Origin"):
                headers = {name: value for name, value in cookie.items() if name != missing}
                found = await ask(guard, call.path, method=call.method, headers=headers, body=body)
                assert found.status == 403, (call.name, missing)
        if call.name != "session":
            stranger = {**HOST, **WRITE, "Origin": "http://127.0.0.1:8088"}
            assert (await ask(guard, call.path, method=call.method, headers=stranger, body=body)).status == 401, call.name


def test_what_a_schema_says_is_checked() -> None:
    """The check can fail."""
    call = next(it for it in CALLS if it.name == "faults")
    assert call.body is not None
    assert problems({"kind": "kill", "node": 4}, call.body) == []
    for wrong in (
        {},
        {"kind": "no"},
        {"kind": "kill", "node": -1},
        {"kind": "kill", "node": True},
        {"kind": "end", "id": "x" * 65},
        [],
    ):
        assert problems(wrong, call.body), wrong
    assert problems({"done": True, "more": 1}, call.answer) == ["it has more, which nobody describes"]
    assert problems(1, {"multipleOf": 2}) == ["it: multipleOf is not checked"]


def test_the_documentation_names_each_call() -> None:
    told = {(method, ROOT + rest) for method, rest in re.findall(r"`(GET|POST|DELETE) /api/v1/([\w./{}-]+)", DOCS.read_text())}
    named = re.findall(r"`([\w.-]+)`", DOCS.read_text().partition("The page of a recording has")[2].partition("\n\n")[0])
    told |= {("GET", ROOT + name) for name in named}
    assert {(call.method, call.path) for call in CALLS} <= told
