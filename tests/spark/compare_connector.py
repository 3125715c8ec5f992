"""Puts the same queries to Spark's own Kafka connector and to `format("kraftlite")`, on one cluster, and prints what differs.

    python -m tests.spark.compare_connector                     on Apache Kafka; exit status 1 if a difference is not explained
    python -m tests.spark.compare_connector --on kraftlite      on kraftlite, without transactions
    python -m tests.spark.compare_connector offsets pattern     only cases whose names contain one of these
    python -m tests.spark.compare_connector --all               what is explained, and the errors of both sides, too

Rows, schema, tasks and batches must be equal; where one fails the other must fail, too, with the words that the case asks for.
Needs Java, and Maven once. What differs on purpose is in `KNOWN`, and in docs/SPARK.md.
"""

from __future__ import annotations

import argparse
import re
import sys
import time
from typing import Any, Final

from tests.spark import compare_reads, compare_stories, compare_writes
from tests.spark.compare_reads import Case
from tests.spark.compare_sides import FORMATS, Different, Outcome, World, world

NOT_THERE: Final = "a named partition that is not there is an error, and not left out"
KNOWN: Final[dict[str, str]] = {
    "(batch|stream): assign a partition that is not there": NOT_THERE,
    "batch: assign is empty": "an assignment of nothing is an error",
    "batch: internal topic by name": "internal topics are read when they are named",
    "batch: minPartitions 3": "partitions with nothing to read do not count, as in the connector's own streams",
    "batch: maxRecordsPerPartition (1|4|7|10)": "kept in batches, too: the connector forgets it there",
    "batch: transactions(| in pieces), READ_COMMITTED": "Kafka's values are taken in any case",
    "stream: maxOffsetsPerTrigger (0|-1)": "a query that would never read anything is an error",
    "stream: minOffsetsPerTrigger and maxOffsetsPerTrigger": "availableNow reads what is there, and does not wait for enough",
    "story: topic deleted, failOnDataLoss=false": "goes on with the other topics: the connector fails, whatever the option says",
    "story: made again while it runs, failOnDataLoss=(true|false)": "topic ids tell: a loss, or read from its beginning",
    "write: mode (None|errorifexists)": "Spark does not offer that mode to data sources in Python",
    "write: stream, update": "Spark does not offer that mode to data sources in Python",
    "write: two columns of one name": "Spark hands no such rows to Python",
}
"""By regular expressions of whole names of cases: why they differ."""


def reason(name: str) -> str | None:
    return next((why for pattern, why in KNOWN.items() if re.fullmatch(pattern, name)), None)


def ask(there: World, case: Case, form: str) -> Outcome:
    try:
        return case.run(there, form)
    except (Different, RuntimeError) as error:
        return Outcome(seen=[f"{type(error).__name__}: {error}"])


def alike(value: Any) -> str:
    """Topics are named after the format that uses them."""
    return re.sub(r"-(kafka|kraftlite)\b", "", repr(value))


def shown(outcome: Outcome) -> str:
    text = outcome.told or alike(outcome.seen)
    return f"{text[:600]}{' …' if len(text) > 600 else ''}"


def differs(first: Outcome, second: Outcome) -> str | None:
    """Where, with what each has; None when they do not."""
    if alike(first.seen) == alike(second.seen):
        return None
    if isinstance(first.seen, dict) and isinstance(second.seen, dict):
        keys = [key for key in first.seen if alike(first.seen[key]) != alike(second.seen.get(key))]
        told = ((key, _first(first, second, key), _first(second, first, key)) for key in keys)
        return "".join(f"\n  {key}:\n    kafka     {kafka}\n    kraftlite {ours}" for key, kafka, ours in told)
    return f"\n    kafka     {shown(first)}\n    kraftlite {shown(second)}"


def _first(one: Outcome, other: Outcome, key: str) -> str:
    """The first elements that are not the same, and how many there are."""
    mine, theirs = one.seen[key], other.seen[key]
    if not isinstance(mine, list) or not isinstance(theirs, list):
        return alike(mine)[:900]
    pairs = enumerate(zip(mine, theirs, strict=False))
    at = next((i for i, (a, b) in pairs if alike(a) != alike(b)), min(len(mine), len(theirs)))
    return f"{len(mine)}, from {at} on: {alike(mine[at : at + 3])[:700]}"


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.spark.compare_connector")
    parser.add_argument("--on", choices=("kafka", "kraftlite"), default="kafka", help="the cluster")
    parser.add_argument("--all", action="store_true", help="print what is explained, and errors, too")
    parser.add_argument("only", nargs="*")
    told = parser.parse_args()
    every = [*compare_reads.cases(), *compare_stories.cases(), *compare_writes.cases()]
    cases = [it for it in every if not told.only or any(word in it.name for word in told.only)]
    counts = {"the same": 0, "explained": 0, "not explained": 0, "explained without need": 0}
    began = time.monotonic()
    with world(apache=told.on == "kafka") as there:
        compare_reads.fill(there)
        print(f"topics are filled after {time.monotonic() - began:.0f} s", flush=True)
        for case in cases:
            if case.apache and not there.apache:
                continue
            kafka, ours = (ask(there, case, form) for form in FORMATS)
            found, why = differs(kafka, ours), reason(case.name)
            kind = ("the same", "explained without need") if found is None else ("not explained", "explained")
            counts[kind[why is not None]] += 1
            if found is not None and (why is None or told.all):
                print(f"{case.name}{f'  [{why}]' if why else ''}{found}", flush=True)
            elif found is None and why is not None:
                print(f"{case.name}: does not differ, though it is said to: {why}", flush=True)
            elif told.all and kafka.told:
                print(f"{case.name}, the same:\n    kafka     {kafka.told}\n    kraftlite {ours.told}", flush=True)
    told_all = ", ".join(f"{number} {kind}" for kind, number in counts.items())
    print(f"{sum(counts.values())} cases in {time.monotonic() - began:.0f} s: {told_all}")
    return 1 if counts["not explained"] or counts["explained without need"] else 0


if __name__ == "__main__":
    sys.exit(main())
