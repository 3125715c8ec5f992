"""Sends traces to a collector of OpenTelemetry, by OTLP over HTTP in JSON."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from typing import Any, Final
from urllib.parse import urlsplit, urlunsplit

import click

from kraftlite.model.shown import printable

_PATH: Final = "/v1/traces"
_TIMEOUT_S: Final = 10
_MOST_BYTES: Final = 64 << 10
"""Bytes of an answer that are read."""


class _Stays(urllib.request.HTTPRedirectHandler):
    """Follows no redirection: traces for one collector do not go to another that it names."""

    def redirect_request(self, *args: Any) -> None:
        return None


def send(url: str, traces: str) -> str:
    """Send, and return where to. A URL without a path gets that of OTLP. Raises ClickException in one line."""
    target = _target(url)
    request = urllib.request.Request(target, traces.encode(), {"Content-Type": "application/json"}, method="POST")
    try:
        with urllib.request.build_opener(_Stays).open(request, timeout=_TIMEOUT_S) as answer:
            refused = _refused(answer.read(_MOST_BYTES))
    except urllib.error.HTTPError as error:
        said = printable(error.read(200).decode("utf-8", "replace")).strip()
        raise click.ClickException(f"{target} answers {error.code}{f': {said}' if said else ''}") from None
    except (OSError, ValueError) as error:
        raise click.ClickException(f"{target} cannot be reached: {getattr(error, 'reason', error)}") from None
    if refused:
        raise click.ClickException(f"{target} has refused a part: {refused}")
    return target


def _target(url: str) -> str:
    try:
        parts = urlsplit(url)
        known = parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port is None or parts.port > 0)
    except ValueError:
        known = False
    if not known:
        raise click.UsageError(f"--otlp {printable(url[:80])}: allowed is http://HOST:PORT or https://HOST:PORT, of a collector")
    return urlunsplit(parts._replace(path=parts.path if parts.path.strip("/") else _PATH, fragment=""))


def _refused(body: bytes) -> str:
    """The words of a partial success; a collector that took everything says nothing."""
    try:
        said = json.loads(body or b"{}")["partialSuccess"]
        count = int(said.get("rejectedSpans", 0))
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return ""
    return f"{count} spans: {printable(str(said.get('errorMessage', ''))[:200])}" if count else ""
