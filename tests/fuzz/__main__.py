"""`python -m tests.fuzz --minutes 10 [--seed N] [--door kafka|controller|sasl|tls|grpc|metrics|files|config] [--in-process]`.

Exit status 1 when something was found. A finding is made small and written to `tests/fuzz/corpus`, where it is a test that fails.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import Final

from tests.fuzz import configs, files
from tests.fuzz.campaign import Hunt
from tests.fuzz.cases import CORPUS
from tests.fuzz.run import LOOP_LIMIT_S

SHARES: Final = {
    "kafka": 0.4,
    "controller": 0.1,
    "sasl": 0.06,
    "tls": 0.04,
    "grpc": 0.1,
    "metrics": 0.03,
    "files": 0.22,
    "config": 0.05,
}
"""Of the time, when no door is named."""


def say(text: str) -> None:
    print(text, flush=True)


def hunt(door: str, seed: int, seconds: float, out: Path, in_process: bool) -> Counter[str]:
    say(f"== {door}, seed {seed}, {seconds:.0f} s")
    if door == "files":
        return files.hunt(seed, seconds, say)
    if door == "config":
        return configs.hunt(seed, seconds, say)
    kind = "embedded" if in_process and door == "kafka" else "secured" if door in ("sasl", "tls") else "process"
    # In this process the collector of garbage also visits what the fuzzer holds.
    it = Hunt(door, seed, kind, out, say, loop_limit_s=1.0 if kind == "embedded" else LOOP_LIMIT_S)
    found = it.run(seconds=seconds)
    for error, count in it.tolerated.items():
        say(f"{door}: {count} requests failed inside: {error}")
    slow, note = it.slowest
    say(f"{door}: {it.cases} cases, {it.steps} steps; the costliest took {slow * 1000:.0f} ms of the loop ({note[:80]})")
    return found


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--seed", type=int, default=None, help="default: a new one, which is printed")
    parser.add_argument("--door", choices=sorted(SHARES), default=None)
    parser.add_argument("--in-process", action="store_true", help="the client door of a node in this process: quicker")
    parser.add_argument("--out", type=Path, default=CORPUS, help="where findings are written")
    given = parser.parse_args()
    seed = given.seed if given.seed is not None else random.SystemRandom().randrange(1_000_000)
    given.out.mkdir(parents=True, exist_ok=True)
    found: Counter[str] = Counter()
    for door, share in SHARES.items():
        if given.door in (None, door):
            seconds = given.minutes * 60 * (1.0 if given.door else share)
            found.update(
                {f"{door}: {kind}": count for kind, count in hunt(door, seed, seconds, given.out, given.in_process).items()}
            )
    for kind, count in sorted(found.items()):
        say(f"{count:5} × {kind}")
    say("nothing was found" if not found else f"{len(found)} kinds of failure, seed {seed}")
    return 1 if found else 0


if __name__ == "__main__":
    tempfile.tempdir = tempfile.gettempdir()
    sys.exit(main())
