"""Plans that reached something new: kept in a directory, tried first the next time, and changed a little in between.

A plan is kept with nothing but itself. What it reaches is found out again when it is tried, since the code may be another one
by then; a plan that brings nothing new any more is not kept again.
"""

from __future__ import annotations

import contextlib
import os
import random
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Literal

from kraftlite.host.files import MAX_TEXT_BYTES, read_bounded
from kraftlite.sim.plans import mutated, parse_plan, text_of
from kraftlite.sim.run import RunPlan
from kraftlite.sim.themes import SETTLED, of_seed

MAX_PLANS: Final = 300
FILE: Final = "plans.jsonl"

Origin = Literal["corpus", "changed", "seed"]
"""The origin of a plan: an earlier swarm, a plan of this one that was changed, or the next seed."""


def default_dir(env: Mapping[str, str]) -> Path:
    """The user's cache directory."""
    base = env.get("XDG_CACHE_HOME") or ""
    return (Path(base) if Path(base).is_absolute() else Path.home() / ".cache") / "kraftlite" / "corpus"


def load(directory: Path) -> list[RunPlan]:
    """The plans of an earlier swarm; none when there was none. Raises ValueError naming the line that is no plan; OSError."""
    path = directory / FILE
    try:
        text = read_bounded(path, MAX_TEXT_BYTES).decode()
    except FileNotFoundError:
        return []
    found = []
    for number, line in enumerate(text.splitlines(), 1):
        try:
            found.append(parse_plan(line))
        except ValueError as error:
            raise ValueError(f"{path}:{number}: {error}; delete the file to begin anew") from None
    return found


def save(directory: Path, plans: Iterable[str]) -> None:
    """Replace what is kept by these texts of plans. Raises OSError."""
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / FILE
    scratch = path.with_name(f"{FILE}.{os.getpid()}")
    try:
        scratch.write_text("".join(f"{plan}\n" for plan in plans), encoding="utf-8")
        scratch.replace(path)
    finally:
        with contextlib.suppress(FileNotFoundError):
            scratch.unlink()


@dataclass(frozen=True, slots=True)
class Point:
    """The sums of what was known after so many runs."""

    runs: int
    pairs: int
    features: int
    arcs: int


@dataclass(slots=True)
class Discovery:
    """Everything that runs have reached so far, and the curve of it over their number: at powers of two, and at the end."""

    seen: set[tuple[str, object]] = field(default_factory=set)
    runs: Counter[Origin] = field(default_factory=Counter)
    found: Counter[Origin] = field(default_factory=Counter)
    """The number of things that runs of each origin were the first to reach."""
    arcs: int = 0
    curve: list[Point] = field(default_factory=list)

    def add(self, origin: Origin, features: Iterable[tuple[str, object]], new_arcs: int) -> int:
        """Return how much of it is new."""
        before = len(self.seen)
        self.seen.update(features)
        new = len(self.seen) - before + new_arcs
        self.arcs += new_arcs
        self.runs[origin] += 1
        self.found[origin] += new
        runs = self.runs.total()
        if runs & (runs - 1) == 0:
            self.curve.append(self.now)
        return new

    @property
    def now(self) -> Point:
        pairs = sum(kind in ("raft", "events") for kind, _ in self.seen)
        return Point(self.runs.total(), pairs, len(self.seen), self.arcs)

    @property
    def points(self) -> list[Point]:
        """The curve up to now."""
        return self.curve if self.curve and self.curve[-1].runs == self.runs.total() else [*self.curve, self.now]


class Plans:
    """Seeds as they are, one after the other, as plans; their themes take turns."""

    def __init__(self, seeds: Iterable[int], duration_ms: int, themes: tuple[str, ...] = SETTLED) -> None:
        self._seeds = iter(seeds)
        self._duration_ms = duration_ms
        self._themes = themes

    def next(self) -> tuple[Origin, RunPlan] | None:
        seed = next(self._seeds, None)
        if seed is None:
            return None
        return "seed", RunPlan(seed=seed, theme=of_seed(seed, self._themes), duration_ms=self._duration_ms)

    def learn(self, plan: RunPlan, new: int) -> None:
        """The plan was run and reached so much that is new."""


class GuidedPlans(Plans):
    """First the plans of the corpus; then, in turn, the next seed and a changed plan of those that reached something new. A plan
    that reached more is chosen more often. Ends after `runs` plans."""

    def __init__(
        self,
        seeds: Iterable[int],
        duration_ms: int,
        themes: tuple[str, ...] = SETTLED,
        *,
        runs: int,
        corpus: Iterable[RunPlan],
        rng: random.Random,
    ) -> None:
        super().__init__(seeds, duration_ms, themes)
        self._left = runs
        old = list(corpus)
        most = max(1, runs // 2)
        self._corpus: Iterator[RunPlan] = iter(old[:most])
        self._rest = old[most:]
        self._rng = rng
        self._turn = 0
        self.kept: dict[str, int] = {}
        """Plans, as text, with how much was new that they reached."""

    def next(self) -> tuple[Origin, RunPlan] | None:
        if self._left <= 0:
            return None
        self._left -= 1
        old = next(self._corpus, None)
        if old is not None:
            return "corpus", old
        self._turn += 1
        if self._turn % 2 and self.kept:
            plan, other = self._rng.choices(list(self.kept), weights=list(self.kept.values()), k=2)
            return "changed", mutated(self._rng, parse_plan(plan), parse_plan(other))
        return super().next()

    def keeps(self) -> list[str]:
        """Plans for the next swarm to try first: those that reached most, then those of the corpus that had no turn."""
        best = sorted(self.kept, key=lambda it: -self.kept[it])
        return list(dict.fromkeys([*best, *map(text_of, self._corpus), *map(text_of, self._rest)]))[:MAX_PLANS]

    def learn(self, plan: RunPlan, new: int) -> None:
        if new:
            self.kept[text_of(plan)] = new
            if len(self.kept) > MAX_PLANS:
                del self.kept[min(self.kept, key=lambda it: self.kept[it])]
