"""Committed records that a later leader did not have when it began to lead: they are lost, whatever comes after. Pure.

By what leaders say of themselves: how far their high watermark went, and where their epoch starts. Between two looks a high
watermark may have gone on, so at least so many are lost; the story `truncated` has the number when the old leader is back.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple
from uuid import UUID

from kraftlite.model.messages.introspection import ReplicaState
from kraftlite.ui.words import Key

TOLD_MS: Final = 600_000
"""A loss is among the lines on top for so long; beside its partition it stays."""


class _Committed(NamedTuple):
    topic_id: UUID
    epoch: int
    end: int


@dataclass(frozen=True, slots=True)
class Lost:
    """The offsets `first` to `last`, in whose place `leader` began to write in `epoch`."""

    first: int
    last: int
    leader: int
    epoch: int
    seen_ms: int

    @property
    def count(self) -> int:
        return self.last - self.first + 1

    def to_dict(self) -> dict[str, Any]:
        at = {"first": self.first, "last": self.last, "count": self.count}
        return {**at, "leader": self.leader, "epoch": self.epoch, "seen_ms": self.seen_ms}


class Losses:
    """The end of what is known to be committed of each partition, and its last loss."""

    def __init__(self) -> None:
        self._committed: dict[Key, _Committed] = {}
        self._lost: dict[Key, Lost] = {}

    def look(self, key: Key, topic_id: UUID, said: Mapping[int, ReplicaState], now_ms: int) -> Lost | None:
        """`said`: the last words of each broker on its replica. A topic that was made anew has lost nothing of the one before."""
        known = self._committed.get(key)
        if known is None or known.topic_id != topic_id:
            known = _Committed(topic_id, -1, 0)
            self._lost.pop(key, None)
        leaders = sorted((it.leader_epoch, node) for node, it in said.items() if it.is_leader and it.topic_id == topic_id)
        for epoch, node in leaders:
            if epoch < known.epoch:
                continue  # the last words of one who leads no more
            start, end = said[node].epoch_start_offset, known.end
            if epoch > known.epoch and start is not None and start < end:
                self._lost[key] = Lost(start, end - 1, node, epoch, now_ms)
                end = start
            known = _Committed(topic_id, epoch, max(end, said[node].hw))
        self._committed[key] = known
        return self._lost.get(key)

    def forget(self, known: Iterable[Key]) -> None:
        """Forget all but these: topics come and go."""
        kept = set(known)
        for gone in self._committed.keys() - kept:
            del self._committed[gone]
            self._lost.pop(gone, None)
