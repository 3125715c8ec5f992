"""The table of mutants, for the terminal and for docs/MUTANTS.md."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from tests.sim.mutants.runner import Record

BEGIN: Final = "<!-- mutants: begin (written by `make mutants`) -->"
END: Final = "<!-- mutants: end -->"
_HEAD: Final = ("mutant", "what it breaks", "caught by", "first seed", "CPU seconds")


def rows(records: Sequence[Record]) -> list[tuple[str, ...]]:
    """A line for each. A `*` behind who caught it: somebody else than the mutant expects. The seconds are those of this run: of
    one seed where the known one has caught the mutant again."""
    found: list[tuple[str, ...]] = []
    for record in records:
        first = record.first
        by = "**survived**" if first is None else first.by + ("" if record.as_expected else " *")
        seed = "" if first is None else str(first.seed)
        found.append((record.mutant.name, record.mutant.breaks, by, seed, f"{record.seconds:.0f}"))
    return found


def summary(records: Sequence[Record]) -> str:
    firsts = [it.first.seed for it in records if it.first is not None]
    median = f" The median of their first seeds is {statistics.median(firsts):g}." if firsts else ""
    return f"{len(firsts)} of {len(records)} mutants are caught.{median}"


def markdown(records: Sequence[Record]) -> str:
    lines = [summary(records), ""]
    lines.append("| " + " | ".join(_HEAD) + " |")
    lines.append("|---" * len(_HEAD) + "|")
    lines += ["| " + " | ".join(row) + " |" for row in rows(records)]
    if any(it.first is not None and not it.as_expected for it in records):
        lines += ["", "`*`: another check than expected saw it first."]
    return "\n".join(lines)


def plain(records: Sequence[Record]) -> str:
    table = [_HEAD, *rows(records)]
    widths = [max(len(row[column]) for row in table) for column in range(len(_HEAD))]
    return "\n".join("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in table)


def write(path: Path, records: Sequence[Record]) -> None:
    """Put the table between the markers. Raises ValueError when the file has not both of them."""
    text = path.read_text()
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"{path} has no lines {BEGIN!r} and {END!r} to write the table between")
    path.write_text(f"{before}{BEGIN}\n\n{markdown(records)}\n\n{END}{after}")
