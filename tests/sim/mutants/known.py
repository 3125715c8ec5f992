"""The seeds that caught the mutants last time (known.toml). A run that asks whether each is still caught begins with them."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from tests.sim.mutants.runner import Record

PATH: Final = Path(__file__).with_name("known.toml")
_HEAD: Final = """\
# The first seed that catches each mutant, as `make mutants` found it; AFRESH=1 looks for all of them anew.

[seeds]
"""


def read(path: Path = PATH) -> dict[str, int]:
    """Seeds by the names of the mutants; empty without a file."""
    if not path.exists():
        return {}
    found: dict[str, int] = tomllib.loads(path.read_text())["seeds"]
    return found


def write(records: Sequence[Record], path: Path = PATH, before: Mapping[str, int] | None = None) -> None:
    """Write the seed that caught each mutant now. One that survived keeps the seed of `before`: it may be caught again."""
    seeds = {it.mutant.name: it.first.seed if it.first is not None else (before or {}).get(it.mutant.name) for it in records}
    path.write_text(_HEAD + "".join(f"{name} = {seed}\n" for name, seed in seeds.items() if seed is not None))
