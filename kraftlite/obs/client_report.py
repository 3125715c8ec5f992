"""The report of a client: what it was told, in its own words (docs/PAGE.md, "Clients"). It may come from anybody."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from kraftlite.obs import recording_checks as c

MAX_PARTITIONS: Final = 50
"""Partitions of which one client tells."""
MAX_GAPS: Final = 100
"""The newest of one client."""
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
