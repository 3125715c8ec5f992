"""The guard before every route, and the sessions behind the links.

A link has a token behind `#`, which no server log and no Referer ever sees. The page exchanges it for a cookie. A cookie alone
does not make a request one of ours: another page on this machine, at another port, is the same site to a browser. So the guard
looks at Host (another name that resolves to here is refused), at Sec-Fetch-Site and at Origin, and a write must carry a header
that no foreign page may send without being asked first.
"""

from __future__ import annotations

import hmac
import json
import os
import re
import secrets
import stat
from collections import OrderedDict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from kraftlite.client.opening import open_at_once

OPERATOR, VIEWER = "operator", "viewer"
TOKEN_VARIABLE: Final = "KRAFTLITE_UI_TOKEN"
_LEAST: Final = 22
"""The letters of 128 bits in base64."""
_TOKEN: Final = re.compile(rf"[A-Za-z0-9_-]{{{_LEAST},128}}", re.ASCII)
_MAX_FILE: Final = 4096
MAX_SESSIONS: Final = 64
_NAMES: Final = ("127.0.0.1", "localhost", "[::1]")
_HTTP: Final = 80
"""The port that a browser leaves out of Host and Origin."""
POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "frame-ancestors 'none'; base-uri 'none'; form-action 'none'; require-trusted-types-for 'script'"
)
_HEADERS: Final = (
    (b"content-security-policy", POLICY.encode()),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"cache-control", b"no-store"),
)
_WRITES: Final = ("POST", "PUT", "PATCH", "DELETE")
_OPEN: Final = ("/api/v1/session",)
"""Paths of the API that are answered without a session: where one gets it."""


class WeakToken(Exception):
    """A token that was given is too short, has other letters, or lies open."""


@dataclass(frozen=True, slots=True)
class Tokens:
    """128 bits each, made at each start unless they are given. The viewer's shows everything and does nothing. Without an
    operator's nobody can do anything: the page is for looking only."""

    operator: str | None
    viewer: str

    @classmethod
    def make(cls, *, read_only: bool = False) -> Tokens:
        return cls(None if read_only else secrets.token_urlsafe(16), secrets.token_urlsafe(16))

    @classmethod
    def of(cls, env: Mapping[str, str], file: Path | None = None, *, read_only: bool = False) -> Tokens:
        """Made at this start, or those that are given: the lines of `file`, or `KRAFTLITE_UI_TOKEN`. The first one is the
        operator's, the second the viewer's; `read_only`: there is one, the viewer's. Raises WeakToken for one that can be guessed
        or read by others."""
        made = cls.make(read_only=read_only)
        where = TOKEN_VARIABLE if file is None else str(file)
        given = [it for it in [env.get(TOKEN_VARIABLE, "")] if it] if file is None else _lines_of(file)
        if not given:
            return made
        for token in given:
            if not _TOKEN.fullmatch(token):
                raise WeakToken(f"{where}: allowed are {_LEAST} to 128 letters, digits, - and _, as kraftlite random-uuid prints")
        if len(given) > (1 if read_only else 2) or len(set(given)) != len(given):
            raise WeakToken(f"{where}: allowed is {'one token' if read_only else 'a token, and another one for looking only'}")
        if read_only:
            return cls(None, given[0])
        return cls(given[0], given[1] if len(given) > 1 else made.viewer)

    def role(self, given: str) -> str | None:
        """The role of a token; None for one that is none of ours."""
        found = None
        for role, token in ((OPERATOR, self.operator), (VIEWER, self.viewer)):
            if token is not None and hmac.compare_digest(given.encode("utf-8", "replace"), token.encode()):
                found = role
        return found


def _lines_of(file: Path) -> list[str]:
    """The tokens in a file that nobody else may read. Raises WeakToken."""
    try:
        with open_at_once(file) as opened:
            if stat.S_IMODE(os.fstat(opened.fileno()).st_mode) & 0o077:
                raise WeakToken(f"{file}: others may read it; allowed is a file for its owner alone: chmod 600 {file}")
            text = opened.read(_MAX_FILE + 1).decode("ascii", "replace")
    except OSError as error:
        raise WeakToken(f"{file}: {error.strerror or error}") from None
    found = text.split() if len(text) <= _MAX_FILE else []
    if not found:
        raise WeakToken(f"{file}: there is no token in it; kraftlite random-uuid prints one")
    return found


class Sessions:
    """The cookies that tokens were exchanged for; the oldest ends when there are too many."""

    def __init__(self) -> None:
        self._roles: OrderedDict[str, str] = OrderedDict()

    def open(self, role: str) -> str:
        found = secrets.token_urlsafe(24)
        self._roles[found] = role
        while len(self._roles) > MAX_SESSIONS:
            self._roles.popitem(last=False)
        return found

    def role(self, session: str) -> str | None:
        return self._roles.get(session)


class Guard:
    """ASGI middleware. `scope["role"]` is who asks: operator, viewer, or None where no session is needed."""

    def __init__(self, app: ASGIApp, *, port: int, tokens: Tokens, sessions: Sessions) -> None:
        self._app = app
        self._tokens = tokens
        self._sessions = sessions
        self.hosts = {f"{name}:{port}" for name in _NAMES} | (set(_NAMES) if port == _HTTP else set())
        self.cookie = f"kraftlite_{port}"
        """The port is in the name, because cookies do not know ports."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            if scope["type"] == "lifespan":
                await self._app(scope, receive, send)
            elif scope["type"] == "websocket":
                await send({"type": "websocket.close", "code": 1008})
            return

        async def guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                message = {**message, "headers": [*message.get("headers", []), *_HEADERS]}
            await send(message)

        refusal = self._refusal(scope)
        if refusal is None:
            await self._app(scope, receive, guarded)
        else:
            status, why = refusal
            await answer(guarded, status, {"error": why})

    def _refusal(self, scope: Scope) -> tuple[int, str] | None:
        headers = _singles(scope)
        if headers is None:
            return 400, "a header that must come once comes twice"
        host = headers.get("host", "").lower()
        if host not in self.hosts:
            return 403, "the page is served to this machine alone: the Host of the request is another one"
        if scope["path"] == "/healthz":
            return None
        # A link may be followed from anywhere: the bare page says nothing, and sends no cookie in that first request.
        followed = scope["method"] == "GET" and scope["path"] == "/" and headers.get("sec-fetch-mode") == "navigate"
        if headers.get("sec-fetch-site", "none") not in ("same-origin", "none") and not followed:
            return 403, "another page asked for this; open the link itself"
        if "origin" in headers and headers["origin"].lower() != f"http://{host}":
            return 403, "the request comes from another page"
        scope["role"], bearer = self._role(headers)
        if scope["method"] in _WRITES:
            if not bearer and "origin" not in headers:
                return 403, "a write needs an Origin, or a token as Authorization: Bearer"
            if headers.get("x-kraftlite") != "1":
                return 403, "a write needs the header X-Kraftlite: 1"
        if scope["role"] is None and scope["path"].startswith("/api/") and scope["path"] not in _OPEN:
            return 401, "no session: open the link that `kraftlite ui` printed"
        return None

    def _role(self, headers: dict[str, str]) -> tuple[str | None, bool]:
        """The role, and whether a bearer token says so, which no browser sends by itself."""
        scheme, _, token = headers.get("authorization", "").partition(" ")
        if scheme.lower() == "bearer":
            return self._tokens.role(token.strip()), True
        return next(filter(None, map(self._sessions.role, _cookies(headers.get("cookie", ""), self.cookie))), None), False


def _cookies(header: str, wanted: str) -> Iterator[str]:
    """The values of our cookie. A browser sends those of all other servers of this machine beside it, whatever they are like."""
    for part in header.split(";"):
        name, _, value = part.strip().partition("=")
        if name == wanted:
            yield value


_SINGLE: Final = ("host", "origin", "cookie", "authorization", "sec-fetch-site", "sec-fetch-mode", "x-kraftlite")


def _singles(scope: Scope) -> dict[str, str] | None:
    """The headers that the guard looks at; None when one of them is there twice."""
    found: dict[str, str] = {}
    for raw_name, raw_value in scope["headers"]:
        name = raw_name.decode("latin-1").lower()
        if name in _SINGLE:
            if name in found:
                return None
            found[name] = raw_value.decode("latin-1")
    return found


async def answer(send: Send, status: int, value: dict[str, Any]) -> None:
    """A whole answer in JSON."""
    body = json.dumps(value).encode()
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
