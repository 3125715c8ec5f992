"""`make mutants`: `python -m tests.sim.mutants [--seeds 200] [--only NAME]`. Exit status 1 when a mutant survives."""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

from tests.sim.mutants import report
from tests.sim.mutants.catalog import mutants
from tests.sim.mutants.runner import Attempt, Record, hunt

PAGE = Path(__file__).resolve().parents[3] / "docs" / "MUTANTS.md"


def main() -> int:
    parser = argparse.ArgumentParser(prog="tests.sim.mutants", description=__doc__)
    parser.add_argument("--seeds", type=int, default=200, help="how many seeds a mutant gets at most (default: 200)")
    parser.add_argument(
        "--only", action="append", default=[], metavar="NAME", help="this mutant, or those of this area; repeatable"
    )
    parser.add_argument("--workers", type=int, default=2, help="processes (default: 2)")
    parser.add_argument("--stories", action="store_true", help="also print what was found, in words")
    parser.add_argument("--list", action="store_true", help="only name the mutants and what they break")
    options = parser.parse_args()
    known = mutants()
    unknown = [it for it in options.only if it not in known and it not in {m.area for m in known.values()}]
    if unknown:
        parser.error(f"no mutant or area is named {', '.join(unknown)}")
    wanted = [m for m in known.values() if not options.only or m.name in options.only or m.area in options.only]
    if options.list:
        for it in wanted:
            print(f"{it.area:<12} {it.name:<32} {it.breaks}")
        return 0
    began = time.monotonic()

    def tell(record: Record) -> None:
        first = record.first
        verdict = f"survived {len(record.tried)} seeds" if first is None else f"seed {first.seed}: {first.by}"
        print(f"[{time.monotonic() - began:5.0f} s] {record.mutant.name:<32} {verdict}", flush=True)
        if options.stories and first is not None:
            print("    " + first.story.replace("\n", "\n    "), flush=True)

    def tick(record: Record, tried: Attempt) -> None:
        if tried.fails_anyway:
            print(f"    seed {tried.seed} fails without a mutant, too: {tried.story.splitlines()[0]}", flush=True)
        elif len(record.tried) % 25 == 0 and record.first is None:
            print(f"    {record.mutant.name}: {len(record.tried)} seeds", flush=True)

    records = hunt(wanted, seeds=options.seeds, workers=options.workers, on_done=tell, on_attempt=tick)
    print()
    print(report.plain(records))
    if not options.only:
        report.write(PAGE, records)
    return 1 if any(it.first is None for it in records) else 0


if __name__ == "__main__":
    sys.exit(main())
