"""Events of authorization: what was refused to whom. Nothing here is emitted for what is allowed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from kraftlite.runtime.trace import TraceEvent


@dataclass(frozen=True, slots=True, kw_only=True)
class AccessDenied(TraceEvent):
    """One request was refused one resource (SE-38). `resource`: `Topic:LITERAL:orders`. `rule`: DefaultDeny, or the access
    control entry that denies it. `left_out`: refusals before this one that were not told, because there were too many."""

    event: ClassVar[str] = "security.access_denied"
    principal: str
    host: str
    client_id: str | None
    api: str
    operation: str
    resource: str
    rule: str
    left_out: int | None = None
