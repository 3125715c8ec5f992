"""Plans of runs as data: printed, read again, and changed a little.

The text of a plan is one line of JSON, which `kraftlite sim --plan` takes: `{"seed": 12, "faults": ["100 kill 2"]}`.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Final

from kraftlite.model.broker_configs import BROKER_CONFIGS
from kraftlite.sim.fault_plan import FaultPlan, parse
from kraftlite.sim.run import RunPlan
from kraftlite.sim.shape import NAMED
from kraftlite.sim.themes import KNOBS, PLAIN, THEMES

MAX_SEED: Final = 2**63 - 1
MAX_DURATION_MS: Final = 3_600_000
MAX_TEXT: Final = 1 << 20
_SEEDS: Final = ("shape_seed", "knobs_seed", "faults_seed")
_FIELDS: Final = ("seed", "theme", "duration_ms", *_SEEDS, "shape", "knobs", "faults")


def text_of(plan: RunPlan) -> str:
    """The plan as a line of JSON, without what is its default. Raises ValueError for a shape that has no name."""
    found: dict[str, Any] = {"seed": plan.seed}
    if plan.theme != PLAIN:
        found["theme"] = plan.theme
    if plan.duration_ms != RunPlan(seed=0).duration_ms:
        found["duration_ms"] = plan.duration_ms
    found |= {name: value for name in _SEEDS if (value := getattr(plan, name)) is not None}
    if plan.shape is not None:
        found["shape"] = _name_of(plan)
    if plan.knobs is not None:
        found["knobs"] = dict(plan.knobs)
    if plan.faults is not None:
        found["faults"] = [str(it) for it in plan.faults]
    return json.dumps(found)


def _name_of(plan: RunPlan) -> str:
    for name, shape in NAMED.items():
        if shape == plan.shape:
            return name
    raise ValueError(f"the shape {plan.shape} has no name; a plan has one of {', '.join(NAMED)}, or the seed of a shape")


def parse_plan(text: str) -> RunPlan:
    """The inverse of `text_of`. Raises ValueError that says what is wrong with the text."""
    try:
        if len(text) > MAX_TEXT:
            raise ValueError(f"{len(text)} characters; allowed are at most {MAX_TEXT}")
        found = json.loads(text)
        if not isinstance(found, dict):
            raise ValueError("it is not an object of JSON")
        unknown = sorted(set(found) - set(_FIELDS))
        if unknown:
            raise ValueError(f"unknown {', '.join(unknown)}: known are {', '.join(_FIELDS)}")
        if "seed" not in found:
            raise ValueError("seed is missing")
        numbers = {name: _number(found, name, 0) for name in ("seed", *_SEEDS) if name in found}
        if "duration_ms" in found:
            numbers["duration_ms"] = _number(found, "duration_ms", 100, MAX_DURATION_MS)
        if "shape" in found and found["shape"] not in list(NAMED):
            raise ValueError(f"shape {found['shape']!r}: allowed is one of {', '.join(NAMED)}")
        theme = found.get("theme", PLAIN)
        if theme not in list(THEMES):
            raise ValueError(f"theme {theme!r}: allowed is one of {', '.join(THEMES)}")
        return RunPlan(
            **numbers,
            theme=theme,
            shape=NAMED[found["shape"]] if "shape" in found else None,
            knobs=_knobs(found["knobs"]) if "knobs" in found else None,
            faults=tuple(map(parse, _texts(found["faults"]))) if "faults" in found else None,
        )
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{text[:200]!r} is no plan of a run: {error}") from None


def _number(found: dict[str, Any], name: str, low: int, high: int = MAX_SEED) -> int:
    value = found[name]
    if type(value) is not int or not low <= value <= high:
        raise ValueError(f"{name} {value!r}: allowed is a whole number from {low} to {high}")
    return value


def _knobs(value: Any) -> dict[str, str]:
    if not isinstance(value, dict) or not all(isinstance(it, str) for it in value.values()):
        raise ValueError(f"knobs {value!r}: allowed are keys of the configuration with texts")
    for key, text in value.items():
        if key not in BROKER_CONFIGS:
            raise ValueError(f"knobs: {key!r} is no key of the configuration")
        BROKER_CONFIGS[key].parse(text)
    return value


def _texts(value: Any) -> list[str]:
    if not isinstance(value, list) or not all(isinstance(it, str) for it in value):
        raise ValueError(f"faults {value!r}: allowed are lines like '12000 kill leader t1-0 for 3000'")
    return value


# --- changes

Change = Callable[[random.Random, RunPlan, RunPlan], RunPlan]


def mutated(rng: random.Random, plan: RunPlan, other: RunPlan) -> RunPlan:
    """The plan with one part changed, or one that it has from another plan."""
    return rng.choice(CHANGES)(rng, plan, other)


def pinned(plan: RunPlan) -> RunPlan:
    """The same run, with the seed of each part spelled out."""
    shape, knobs, faults = (plan.seed if it is None else it for it in (plan.shape_seed, plan.knobs_seed, plan.faults_seed))
    return replace(plan, shape_seed=shape, knobs_seed=knobs if plan.theme == KNOBS else plan.knobs_seed, faults_seed=faults)


def _fresh(rng: random.Random) -> int:
    return rng.randrange(1 << 31)


def _other_workload(rng: random.Random, plan: RunPlan, other: RunPlan) -> RunPlan:
    return replace(pinned(plan), seed=_fresh(rng))


def _other_faults(rng: random.Random, plan: RunPlan, other: RunPlan) -> RunPlan:
    return replace(pinned(plan), faults=None, faults_seed=_fresh(rng))


def _other_knobs(rng: random.Random, plan: RunPlan, other: RunPlan) -> RunPlan:
    return replace(pinned(plan), knobs=None, knobs_seed=_fresh(rng))


def _other_shape(rng: random.Random, plan: RunPlan, other: RunPlan) -> RunPlan:
    """Faults name nodes and topics of a shape: they are drawn anew for another one."""
    return replace(pinned(plan), shape=None, shape_seed=_fresh(rng), faults=None)


def _knobs_of_another(rng: random.Random, plan: RunPlan, other: RunPlan) -> RunPlan:
    return replace(pinned(plan), knobs=other.knobs, knobs_seed=pinned(other).knobs_seed)


def _workload_of_another(rng: random.Random, plan: RunPlan, other: RunPlan) -> RunPlan:
    return replace(pinned(plan), seed=other.seed)


def _fewer_faults(rng: random.Random, plan: RunPlan, other: RunPlan) -> RunPlan:
    return _with_faults(plan, [it for it in plan.drawn()[1] if rng.randrange(3)])


def _faults_moved(rng: random.Random, plan: RunPlan, other: RunPlan) -> RunPlan:
    """Some faults happen earlier or later, or twice."""
    found: list[FaultPlan] = []
    for it in plan.drawn()[1]:
        at_ms = rng.randrange(plan.duration_ms)
        found += ([it], [it, replace(it, at_ms=at_ms)], [replace(it, at_ms=at_ms)])[rng.choice((0, 0, 1, 2))]
    return _with_faults(plan, found)


def _with_faults(plan: RunPlan, faults: Sequence[FaultPlan]) -> RunPlan:
    return replace(plan, faults=tuple(sorted(faults, key=lambda it: it.at_ms)))


CHANGES: Final[tuple[Change, ...]] = (
    _other_workload,
    _other_faults,
    _other_knobs,
    _other_shape,
    _knobs_of_another,
    _workload_of_another,
    _fewer_faults,
    _faults_moved,
)
