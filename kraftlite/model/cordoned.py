"""`cordoned.log.dirs`: the log directories of a broker that get no new replicas. Source: KIP-1066; JB-13."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Final

from kraftlite.model.shown import shown

CORDONED_DIRS: Final = "cordoned.log.dirs"
_ALL: Final = "*"


def entries(text: str) -> tuple[str, ...]:
    """Split a list; what is named twice is named once."""
    return tuple(dict.fromkeys(item.strip() for item in text.split(",") if item.strip()))


def cordoned_dirs(text: str, log_dirs: Sequence[str]) -> frozenset[str]:
    """Return the paths that `text` cordons, of `log_dirs`. Raises ValueError that says what is wrong."""
    named = entries(text)
    if _ALL in named:
        if len(named) > 1:
            raise ValueError(f"{CORDONED_DIRS}={shown(text)}: {_ALL} stands alone")
        return frozenset(log_dirs)
    unknown = [path for path in named if path not in log_dirs]
    if unknown:
        raise ValueError(
            f"{CORDONED_DIRS}: {', '.join(map(shown, unknown))} is not in log.dirs; allowed are {_ALL} alone, "
            f"or some of {', '.join(log_dirs)}"
        )
    return frozenset(named)


def is_less(text: str, present: str) -> bool:
    """Return whether `text` names nothing that `present` does not name: that can be seen without knowing the directories."""
    known: Collection[str] = entries(present)
    return all(item in known for item in entries(text))
