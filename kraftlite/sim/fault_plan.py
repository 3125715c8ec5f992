"""Faults as data, so that a schedule can be printed, shortened and run again.

A fault begins at a time, lasts for a while and names whom it hits by id or by role ("controller", "leader t1-0"), resolved
when it begins. Everything a fault did is undone when it ends, at the latest when the run's liveness phase begins.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

NODE_FAULTS: Final = ("kill", "stop", "pause", "power", "wipe", "isolate", "congest")
LINK_FAULTS: Final = ("cut", "cut-one-way", "refuse", "lossy", "slow", "reset")
DISK_FAULTS: Final = ("disk-slow", "disk-stall", "disk-full", "disk-error")
CLOCK_FAULTS: Final = ("wall-jump",)
GROUP_FAULTS: Final = ("split", "kill-all", "power-all")
ALL_FAULTS: Final = NODE_FAULTS + LINK_FAULTS + DISK_FAULTS + CLOCK_FAULTS + GROUP_FAULTS
SCENE_FAULTS: Final = ("late", "churn", "cut-quorum", "damage", "hold")
"""Only drawn as part of a scene, or beside all others."""
SLOW_FAULTS: Final = ("slow-cpu", "stutter", "drift")
TORN_FAULTS: Final = ("fsync-lost", "short-io", "disk-flaky", "power-mid-write")
DIRECTORY_FAULTS: Final = ("dir-error", "dir-full", "dir-read-only", "dir-slow", "dir-empty")
"""`amount` says which of the node's log directories."""
FILE_FAULTS: Final = ("rot", "old-files", "stale")
TIME_FAULTS: Final = ("clocks", "client-clock")
TROUBLES: Final = (*SLOW_FAULTS, *TORN_FAULTS, *DIRECTORY_FAULTS, *FILE_FAULTS, *TIME_FAULTS, "hold")
"""Drawn by `troubles`, from a random stream of their own; `hold` by a scene, too."""
PLACE_FAULTS: Final = ("dir-no-inodes",)
"""Drawn by `log_dir_faults`, from a random stream of their own."""
START_FAULTS: Final = ("false-starts",)
"""Drawn by `start_faults`, from a random stream of their own."""
SWAP_FAULTS: Final = ("power-mid-swap",)
"""Drawn by `swap_faults`, from a random stream of their own."""
MOVE_FAULTS: Final = ("power-mid-move",)
"""Drawn by `move_faults`, from a random stream of their own."""
BOOT_FAULTS: Final = ("kill-amid-bootstrap",)
"""They begin when the cluster boots for the first time, whatever their time. Drawn by `boot_faults`, from a random stream of
their own."""
FETCH_FAULTS: Final = ("repeat-fetch",)
"""Drawn by `fetch_scenes`, from a random stream of their own."""
PUBLISHER_FAULTS: Final = ("slow-publisher",)
"""Drawn by `slow_publishers`, from a random stream of their own."""
SNAPSHOT_FAULTS: Final = ("rot-snapshot",)
"""Drawn by `snapshot_faults`, from a random stream of their own."""
QUORUM_FAULTS: Final = ("new-disk", "new-port", "retire-broker", "add-voter", "remove-voter", "upgrade-voters")
"""Drawn by `membership_scenes`, from a random stream of their own. The last four are the administrator's."""
LEVEL_FAULTS: Final = ("old-software", "raise-level")
"""Played by `level_scenes`. The second is the administrator's; `amount` is a number of levels of `metadata.version`."""
AMBUSHES: Final = tuple(
    f"{deed}-at-{step}"
    for deed in (
        "kill", "power", "pause", "stop", "kill-all", "power-all", "late", "hold", "repeat", "orphan", "alone", "cut-quorum",
    )
    for step in (
        "init", "add", "produce", "question", "answer", "commit", "end", "ending", "ended", "mark", "marker", "marked",
        "adding", "removing", "probe", "probed", "upgrading", "won", "part",
    )
)  # fmt: skip
"""Each waits for a step of a transaction, of a change of the voters, or of the quorum. Drawn by scenes from random streams of
their own."""
ONE_TARGET: Final = frozenset(
    {*NODE_FAULTS, *DISK_FAULTS, *CLOCK_FAULTS, "cut-quorum", "damage", *PLACE_FAULTS, *START_FAULTS, *SWAP_FAULTS, *MOVE_FAULTS}
    | {*SNAPSHOT_FAULTS, *SLOW_FAULTS, *TORN_FAULTS, *DIRECTORY_FAULTS, *FILE_FAULTS, *QUORUM_FAULTS[:-1], "old-software"}
    | {*PUBLISHER_FAULTS}
)
TWO_TARGETS: Final = frozenset({*LINK_FAULTS, "late", "hold", *FETCH_FAULTS})
MOST: Final = 10**12
"""The greatest number of a fault: 31 years of milliseconds."""
_TARGET: Final = re.compile(r"\d+|controller|leader \S+-\d+")


class UnknownNode(ValueError):
    """A fault names a node that the cluster does not have."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FaultPlan:
    """`target` and `other` are node ids, "controller" or "leader TOPIC-PARTITION"; `amount` is the fault's own number."""

    at_ms: int
    kind: str
    target: str = ""
    other: str = ""
    for_ms: int = 0
    amount: int = 0

    def __str__(self) -> str:
        words = [f"{self.at_ms}", self.kind]
        if self.target:
            words.append(self.target)
        if self.other:
            words.append(f"and {self.other}")
        if self.for_ms:
            words.append(f"for {self.for_ms}")
        if self.amount:
            words.append(f"amount {self.amount}")
        return " ".join(words)


def _whole(name: str, text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise ValueError(f"{name} {text[:40]}: allowed is a whole number") from None


def parse(line: str) -> FaultPlan:
    """The inverse of `str`. Raises ValueError naming the line."""
    words = line.split()
    try:
        at_ms, kind = _whole("time", words[0]), words[1]
        disks = PLACE_FAULTS + START_FAULTS + SWAP_FAULTS + MOVE_FAULTS + SNAPSHOT_FAULTS
        apart = disks + BOOT_FAULTS + FETCH_FAULTS + PUBLISHER_FAULTS + QUORUM_FAULTS + LEVEL_FAULTS
        known = tuple(dict.fromkeys(ALL_FAULTS + SCENE_FAULTS + TROUBLES + apart))
        if kind not in known and kind not in AMBUSHES:
            raise ValueError(f"unknown fault {kind!r}: known are {', '.join(known)}, and DEED-at-STEP")
        fields: dict[str, list[str]] = {"target": [], "and": [], "for": [], "amount": []}
        here = "target"
        for word in words[2:]:
            if word in ("and", "for", "amount"):
                here = word
            else:
                fields[here].append(word)
        for_ms, amount = (_whole(name, "".join(fields[name]) or "0") for name in ("for", "amount"))
        for name, number, low in (("time", at_ms, 0), ("for", for_ms, 0), ("amount", amount, -MOST)):
            if not low <= number <= MOST:
                raise ValueError(f"{name} {number}: allowed is a whole number from {low} to {MOST}")
        _check_targets(kind, {name: " ".join(fields[name]) for name in ("target", "and")})
        return FaultPlan(
            at_ms=at_ms,
            kind=kind,
            target=" ".join(fields["target"]),
            other=" ".join(fields["and"]),
            for_ms=for_ms,
            amount=amount,
        )
    except (IndexError, ValueError) as error:
        raise ValueError(f"{line!r} is no fault: expected e.g. '12000 kill leader t1-0 for 3000' ({error})") from None


def _check_targets(kind: str, given: dict[str, str]) -> None:
    """Raises ValueError for a target that cannot be resolved, one that is missing and one that the fault does not take."""
    wanted = 2 if kind in TWO_TARGETS else 1 if kind in ONE_TARGET else 0
    targets = [target for target in given.values() if target]
    if len(targets) != wanted or (wanted == 1 and not given["target"]):
        allowed = ("no target", f"one target, e.g. {kind} 2", f"two targets, e.g. {kind} 2 and 3")[wanted]
        raise ValueError(f"{kind} takes {allowed}")
    for target in targets:
        if not _TARGET.fullmatch(target):
            raise ValueError(f"unknown target {target!r}: allowed are a node id, 'controller' and 'leader TOPIC-PARTITION'")
