"""The replication throttles that are in force at a broker, and bounds of the rates that it measures (QU-10, KIP-73)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

from kraftlite.model.ids import NodeId
from kraftlite.model.topic_partition import TopicPartition
from kraftlite.sim.checkers.model import BROKER, TOPIC, MetadataState

LEADER: Final = "leader"
FOLLOWER: Final = "follower"
MARGIN_MS: Final = 100
"""A broker counts what it sends and gets a little before or after it is seen here."""
_NEVER: Final = (1 << 63) - 1
_KEPT_MS: Final = 60_000


class Throttle(NamedTuple):
    """One side of one broker. `listed`: its partitions by topic, None for all of them. `bound` None: any rate is allowed."""

    bound: int | None
    listed: Mapping[str, frozenset[int] | None]

    def holds_for(self, tp: TopicPartition) -> bool:
        return self.bound is not None and self.lists(tp)

    def lists(self, tp: TopicPartition) -> bool:
        if tp.topic not in self.listed:
            return False
        partitions = self.listed[tp.topic]
        return partitions is None or tp.partition in partitions


def throttle_of(state: MetadataState, static: Mapping[str, str], node_id: NodeId, side: str) -> Throttle:
    """The rate of the broker, else that of the cluster, else that of the file; the replicas that the topics list."""
    rate, replicas = f"{side}.replication.throttled.rate", f"{side}.replication.throttled.replicas"
    bound = _NEVER
    for values in (state.configs.get((BROKER, str(node_id)), {}), state.configs.get((BROKER, ""), {}), static):
        if rate in values:
            bound = int(values[rate])
            break
    listed: dict[str, frozenset[int] | None] = {}
    for (kind, name), values in state.configs.items():
        text = values.get(replicas) if kind == TOPIC else None
        if text == "*":
            listed[name] = None
        elif text:
            pairs = [item.split(":") for item in text.split(",")]
            listed[name] = frozenset(int(partition) for partition, broker in pairs if broker == str(node_id))
    return Throttle(bound if bound < _NEVER else None, listed)


@dataclass(eq=False, slots=True)
class Counted:
    """Bytes that a broker has counted, or may have. `sure_ms`: when it was certain that it had; None: it is not."""

    at_ms: int
    size: int
    sure_ms: int | None


class Tally:
    """The bytes that one side of one incarnation has counted, by its own clock."""

    def __init__(self, samples: int, window_ms: int) -> None:
        self._samples = samples
        self._window_ms = window_ms
        self._counted: list[Counted] = []

    def note(self, now_ms: int, size: int, *, surely: bool) -> Counted:
        it = Counted(now_ms, size, now_ms if surely else None)
        self._counted = [old for old in self._counted if old.at_ms > now_ms - _KEPT_MS]
        self._counted.append(it)
        return it

    def at_least(self, now_ms: int) -> float:
        """A rate that the broker's own is not below. It has all samples of the last windows, and one that reaches into them; it
        measures since the oldest began, though that may have been empty."""
        whole_ms = self._samples * self._window_ms
        surely = [it for it in self._counted if it.sure_ms is not None and it.at_ms > now_ms - whole_ms + MARGIN_MS]
        return sum(it.size for it in surely) * 1000 / (whole_ms + self._window_ms + MARGIN_MS)

    def at_most(self, now_ms: int, before_ms: int = 0) -> float:
        """A rate that the broker's own is not above, and was not in the last `before_ms` either."""
        whole_ms = self._samples * self._window_ms
        reach_ms = now_ms - before_ms - whole_ms - self._window_ms - MARGIN_MS
        possibly = [it for it in self._counted if it.sure_ms is None or it.sure_ms > reach_ms]
        since_ms, then_ms = now_ms - whole_ms + MARGIN_MS, now_ms - before_ms
        kept = [it.sure_ms for it in self._counted if it.sure_ms is not None and since_ms < it.at_ms and it.sure_ms <= then_ms]
        elapsed_ms = max(then_ms - min(kept) - MARGIN_MS if kept else 0, self._window_ms)
        return sum(it.size for it in possibly) * 1000 / elapsed_ms
