"""The pieces that all calls of the page have in common."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from kraftlite.ui.calls import MAX_NAME

DEFAULT_SPAN_MS: Final = 10 * 60_000
"""The time of which is told where nobody says which."""
_MOST: Final = 6


def refusal(status: int, why: str) -> Response:
    return JSONResponse({"error": why}, status_code=status)


def shown_of(request: Request, interesting: Callable[[], list[str]]) -> list[str]:
    """Return the partition that is asked for, or some of those with trouble."""
    wanted = request.query_params.get("partition", "")[:MAX_NAME]
    return [wanted] if wanted else interesting()[:_MOST]
