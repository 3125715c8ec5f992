"""What the last run of each mutant found (known.toml). A run that asks whether each is still caught begins with those seeds, and
the table of docs/MUTANTS.md is made of it, so that a run of some mutants renews their rows alone."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.sim.mutants.catalog import Mutant
from tests.sim.mutants.runner import Attempt, Record

PATH: Final = Path(__file__).with_name("known.toml")
_HEAD: Final = """\
# What the last run of each mutant found, as `python -m tests.sim.mutants` wrote it: the seed that caught it, who did, and the
# seconds of processor time that its seeds took. `by` is empty for one that survived. --afresh looks for all of them anew.

[mutants]
"""


@dataclass(frozen=True, slots=True)
class Known:
    """`seed` None: no seed has ever caught it. `by` is empty when the last run did not."""

    seed: int | None
    by: str
    seconds: int


def read(path: Path = PATH) -> dict[str, Known]:
    """By the names of the mutants; empty without a file."""
    if not path.exists():
        return {}
    found = tomllib.loads(path.read_text())["mutants"]
    return {name: Known(it.get("seed"), it["by"], it["seconds"]) for name, it in found.items()}


def seeds(known: Mapping[str, Known]) -> dict[str, int]:
    """The seeds to try first."""
    return {name: it.seed for name, it in known.items() if it.seed is not None}


def of_record(record: Record, before: Known | None) -> Known:
    """A mutant that survived keeps the seed of `before`: it may be caught again."""
    first = record.first
    if first is not None:
        return Known(first.seed, first.by, round(record.seconds))
    return Known(None if before is None else before.seed, "", round(record.seconds))


def record_of(mutant: Mutant, known: Known) -> Record:
    """The inverse, as far as a table needs it."""
    if not known.by or known.seed is None:
        return Record(mutant=mutant, tried={-1: Attempt(mutant=mutant.name, seed=-1, seconds=known.seconds)})
    tried = Attempt(mutant=mutant.name, seed=known.seed, by=known.by, seconds=known.seconds)
    return Record(mutant=mutant, tried={known.seed: tried})


def write(known: Mapping[str, Known], order: Sequence[str], path: Path = PATH) -> None:
    """Those that are not in `order` are mutants no more."""
    path.write_text(_HEAD + "".join(f"{name} = {_text(known[name])}\n" for name in order if name in known))


def _text(it: Known) -> str:
    seed = "" if it.seed is None else f"seed = {it.seed}, "
    return f'{{ {seed}by = "{it.by}", seconds = {it.seconds} }}'
