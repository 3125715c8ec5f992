"""regressions.toml: failures of the past, as seeds and fault schedules that must pass for ever."""

from __future__ import annotations

import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kraftlite.host.files import MAX_TEXT_BYTES, read_bounded
from kraftlite.sim.fault_plan import parse
from kraftlite.sim.plans import parse_plan, text_of
from kraftlite.sim.run import RunPlan

if TYPE_CHECKING:
    from kraftlite.sim.swarm import Summary


@dataclass(frozen=True, slots=True)
class Regression:
    """`story` in one line: what was wrong."""

    story: str
    plan: RunPlan


def load(path: Path) -> list[Regression]:
    """Raises ValueError naming the entry that cannot be used, or a file of more than 64 MiB; OSError."""
    found = []
    for number, entry in enumerate(tomllib.loads(read_bounded(path, MAX_TEXT_BYTES).decode()).get("regression", []), 1):
        found.append(_regression(path, number, entry))
    return found


def _regression(path: Path, number: int, entry: dict[str, Any]) -> Regression:
    try:
        if "plan" in entry:
            return Regression(str(entry["story"]), parse_plan(str(entry["plan"])))
        faults = entry.get("faults")
        plan = RunPlan(
            seed=int(entry["seed"]),
            knobs={},
            duration_ms=int(entry.get("duration_ms", 15_000)),
            faults=None if faults is None else tuple(parse(line) for line in faults),
        )
        return Regression(str(entry["story"]), plan)
    except (KeyError, ValueError) as error:
        raise ValueError(f"{path}: regression {number}: {error}") from None


def append(path: Path, failures: Sequence[Summary]) -> None:
    """Add failing runs, for somebody to write their story."""
    with path.open("a", encoding="utf-8") as out:
        for it in failures:
            story = f"{it.outcome.name} {it.checker}: {it.story.splitlines()[0]}".replace("\\", "/").replace('"', "'")
            out.write(f"\n[[regression]]\nstory = \"{story}\"\nplan = '{text_of(it.failing)}'\n")
