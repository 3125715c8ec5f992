"""Limits between the values of two keys of a broker that can be changed while it runs.

Source: Kafka's AbstractKafkaConfig and LogCleaner.validateReconfiguration; docs/spec/defaults.md, "Checked against each other".
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from kraftlite.model.limits import MIB

CLEANER_KEYS: Final = (
    "log.cleaner.threads",
    "log.cleaner.dedupe.buffer.size",
    "log.cleaner.min.compaction.lag.ms",
    "log.cleaner.max.compaction.lag.ms",
)


def cleaner_problems(value: Callable[[str], int]) -> list[str]:
    """Return what is wrong with the values of `CLEANER_KEYS` together, in words."""
    problems = []
    threads, buffer, least, most = map(value, CLEANER_KEYS)
    if least > most:
        problems.append(f"log.cleaner.min.compaction.lag.ms={least} must not exceed log.cleaner.max.compaction.lag.ms={most}")
    if buffer < threads * MIB:
        problems.append(
            f"log.cleaner.dedupe.buffer.size={buffer} must be at least {threads * MIB}, "
            f"1 MiB for each of log.cleaner.threads={threads}"
        )
    return problems


def cleaner_change_problems(now: Callable[[str], int], then: Callable[[str], int]) -> list[str]:
    """Return why a broker that runs with the values `now` refuses those of `then`, in words."""
    problems = cleaner_problems(then)
    old, new = now("log.cleaner.threads"), then("log.cleaner.threads")
    if not old // 2 <= new <= old * 2:
        problems.append(f"log.cleaner.threads={new}: one change may at most halve or double the {old} of now")
    return problems
