"""The conditions that a test can wait for, and how they are told."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Who:
    """A condition on a node id, None standing for nobody: `other_than(4)`, `SOMEBODY`, `NOBODY`."""

    text: str
    excluded: frozenset[int] = frozenset()
    nobody: bool = False

    def matches(self, node_id: int | None) -> bool:
        return self.nobody if node_id is None else not self.nobody and node_id not in self.excluded

    def __str__(self) -> str:
        return self.text


SOMEBODY = Who("somebody")
NOBODY = Who("nobody", nobody=True)


def other_than(*node_ids: int) -> Who:
    """Some node, but none of these."""
    return Who(f"other than {', '.join(str(it) for it in node_ids)}", frozenset(node_ids))


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionView:
    """A partition as the newest committed metadata and its leader have it.

    `leader` is who leads and knows it: None while the one that the metadata names is down or has not heard of it yet. Consumers
    read below its `hw`; `leo` is where its log ends. Both are None without a leader.
    """

    leader: int | None
    leader_epoch: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    hw: int | None
    leo: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """All that is not None must hold at the same moment. Raises ValueError when it makes no sense."""

    topic: str | None = None
    partition: int = 0
    leader: int | Who | None = None
    isr: Collection[int] | None = None
    hw: int | None = None
    controller: int | Who | None = None
    brokers: Collection[int] | None = None

    def __post_init__(self) -> None:
        of_partition = {"leader": self.leader, "isr": self.isr, "hw": self.hw}
        given = [name for name, value in of_partition.items() if value is not None]
        if given and self.topic is None:
            raise ValueError(f"{', '.join(given)}: name the partition with topic=… (and partition=…)")
        if self.topic is not None and not given:
            raise ValueError(f"topic={self.topic!r}: nothing to wait for; say leader=…, isr=… or hw=…")
        if not given and self.controller is None and self.brokers is None:
            raise ValueError("nothing to wait for; say leader=…, isr=…, hw=…, controller=… or brokers=…")

    @property
    def node_ids(self) -> list[int]:
        """Every node that is named."""
        found = [*(self.isr or ()), *(self.brokers or ())]
        for who in (self.leader, self.controller):
            found += sorted(who.excluded) if isinstance(who, Who) else [] if who is None else [who]
        return found

    def unmet(self, view: PartitionView | None, controller: int | None, brokers: Sequence[int]) -> list[str]:
        """Say which conditions do not hold, and what was seen instead. `view` None: there is no such partition."""
        found = []

        def check(name: str, holds: bool, wanted: object, seen: object) -> None:
            if not holds:
                found.append(f"{name}: wanted {wanted}, seen {seen}")

        if self.topic is not None:
            tp = f"{self.topic}-{self.partition}"
            if view is None:
                found.append(f"there is no partition {tp}")
            else:
                if self.leader is not None:
                    seen = "nobody" if view.leader is None else f"{view.leader} in epoch {view.leader_epoch}"
                    check(f"leader of {tp}", matches(self.leader, view.leader), self.leader, seen)
                if self.isr is not None:
                    check(f"ISR of {tp}", set(view.isr) == set(self.isr), _ids(self.isr), _ids(view.isr))
                if self.hw is not None:
                    holds = view.hw is not None and view.hw >= self.hw
                    check(f"HW of {tp}", holds, f"at least {self.hw}", "none (no leader)" if view.hw is None else view.hw)
        if self.controller is not None:
            seen = "nobody" if controller is None else str(controller)
            check("active controller", matches(self.controller, controller), self.controller, seen)
        if self.brokers is not None:
            check("brokers that are not fenced", set(brokers) == set(self.brokers), _ids(self.brokers), _ids(brokers))
        return found


def matches(wanted: int | Who, node_id: int | None) -> bool:
    """Return whether the node is the one that is wanted, None standing for nobody."""
    return wanted.matches(node_id) if isinstance(wanted, Who) else wanted == node_id


def _ids(node_ids: Collection[int]) -> str:
    return "{" + ", ".join(str(it) for it in sorted(node_ids)) + "}"
