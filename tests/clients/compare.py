"""Puts the same questions to kraftlite and to a real Apache Kafka, and prints where the answers differ.

    python -m tests.clients.compare                  everything; exit status 1 if docs/DIFFERENCES.md does not explain one
    python -m tests.clients.compare produce groups   only stories and tools whose names contain one of these
    python -m tests.clients.compare --all            the explained differences, too

Needs Java and Maven (tests/clients/java). A line is `story.path: Kafka's answer | kraftlite's`.
"""

from __future__ import annotations

import argparse
import difflib
import sys
from collections.abc import Iterator
from dataclasses import dataclass

from tests.clients import compare_known, compare_requests, compare_tools
from tests.clients.compare_sides import Side, both, flat


@dataclass(frozen=True)
class Difference:
    where: str
    kafka: str
    ours: str

    def __str__(self) -> str:
        return f"{self.where}: {self.kafka} | {self.ours}"


def differences(sides: tuple[Side, Side], only: list[str]) -> Iterator[Difference]:
    yield from _of_requests(sides, compare_requests.stories(only))
    for name, steps in compare_tools.stories(only):
        for kafka_step, our_step in zip(steps(sides[0]), steps(sides[1]), strict=True):
            yield from _lines(f"{name}: {kafka_step[0]}", kafka_step[1], our_step[1])
    yield from _of_requests(sides, compare_requests.stories(only, compare_requests.LAST))


def _of_requests(sides: tuple[Side, Side], stories: Iterator[tuple[str, compare_requests.Story]]) -> Iterator[Difference]:
    for name, story in stories:
        kafka, ours = (flat(story(side), name) for side in sides)
        for path in sorted({*kafka, *ours}):
            if kafka.get(path) != ours.get(path):
                yield Difference(path, kafka.get(path, "(not there)"), ours.get(path, "(not there)"))


def _lines(where: str, kafka: list[str], ours: list[str]) -> Iterator[Difference]:
    for tag, a, b, c, d in difflib.SequenceMatcher(a=kafka, b=ours, autojunk=False).get_opcodes():
        if tag != "equal":
            yield Difference(where, " / ".join(kafka[a:b]) or "(nothing)", " / ".join(ours[c:d]) or "(nothing)")


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.clients.compare")
    parser.add_argument("--all", action="store_true", help="print what is explained, too")
    parser.add_argument("only", nargs="*")
    told = parser.parse_args()
    unexplained = explained = 0
    with both() as sides:
        for it in differences(sides, told.only):
            reason = compare_known.reason(str(it))
            explained += reason is not None
            unexplained += reason is None
            if reason is None or told.all:
                print(it if reason is None else f"({reason}) {it}", flush=True)
    print(f"{unexplained} differences to be explained, {explained} that are (docs/DIFFERENCES.md)")
    return 1 if unexplained else 0


if __name__ == "__main__":
    sys.exit(main())
