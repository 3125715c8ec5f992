"""`make mutants`: `python -m tests.sim.mutants [--seeds 200] [--only NAME] [--afresh]`. Exit status 1 when one survives."""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

from tests.sim.mutants import known, report
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
    parser.add_argument(
        "--afresh",
        action="store_true",
        help="look for the first seed of each again, instead of trying the one of last time first",
    )
    parser.add_argument("--stories", action="store_true", help="also print what was found, in words")
    parser.add_argument("--list", action="store_true", help="only name the mutants and what they break")
    options = parser.parse_args()
    all_of_them = mutants()
    areas = {m.area for m in all_of_them.values()}
    unknown = [it for it in options.only if it not in all_of_them and it not in areas]
    if unknown:
        parser.error(f"no mutant or area is named {', '.join(unknown)}")
    wanted = [m for m in all_of_them.values() if not options.only or m.name in options.only or m.area in options.only]
    if options.list:
        for it in wanted:
            print(f"{it.area:<12} {it.name:<32} {it.breaks}")
        return 0
    began = time.monotonic()
    done = 0
    seeds = {} if options.afresh else known.seeds(known.read())

    def tell(record: Record) -> None:
        nonlocal done
        done += 1
        name = record.mutant.name
        found = known.read()  # another run may have written meanwhile
        found[name] = known.of_record(record, found.get(name))
        known.write(found, list(all_of_them))  # after each: a run that is ended has not been for nothing
        first = record.first
        verdict = f"survived {len(record.tried)} seeds" if first is None else f"seed {first.seed}: {first.by}"
        print(f"[{time.monotonic() - began:5.0f} s {done:>3}/{len(wanted)}] {record.mutant.name:<32} {verdict}", flush=True)
        if options.stories and first is not None:
            print("    " + first.story.replace("\n", "\n    "), flush=True)

    def tick(record: Record, tried: Attempt) -> None:
        if tried.fails_anyway:
            story = tried.story.splitlines()[0]
            print(f"    {record.mutant.name}: seed {tried.seed} fails without a mutant, too: {story}", flush=True)
        elif len(record.tried) % 25 == 0 and record.first is None:
            print(f"    {record.mutant.name}: {len(record.tried)} seeds", flush=True)

    records = hunt(wanted, seeds=options.seeds, workers=options.workers, known=seeds, on_done=tell, on_attempt=tick)
    print()
    print(report.plain(records))
    print(report.summary(records))
    runs, used, seconds = sum(len(it.tried) for it in records), sum(it.seconds for it in records), time.monotonic() - began
    print(f"{runs} runs, {used:.0f} s of processor time, {seconds:.0f} s with {options.workers} workers")
    found = known.read()
    report.write(PAGE, [known.record_of(m, found[m.name]) for m in all_of_them.values() if m.name in found])
    return 1 if any(it.first is None for it in records) else 0


if __name__ == "__main__":
    sys.exit(main())
