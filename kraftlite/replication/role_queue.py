"""A queue of what metadata asks of the replicas of one broker and what has not been done yet, in the order of urgency.

Source: ML-17, ML-18.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from operator import itemgetter
from typing import TYPE_CHECKING, Final
from uuid import UUID

from kraftlite.model.ids import NodeId
from kraftlite.model.topic_partition import TopicPartition
from kraftlite.model.tuning import Tuning
from kraftlite.replication.partition import Partition

if TYPE_CHECKING:
    from kraftlite.metadata.delta import LocalChanges, LocalPartition, TopicsDelta

LOOKS_PER_ROLE: Final = 8
"""To look at a partition, or at a change of it, costs an eighth of carrying a change out."""

Action = Callable[[TopicPartition, "LocalPartition"], None]
_Waiting = tuple[TopicPartition, Action, "LocalPartition"]


class RoleQueue:
    """Deltas come in by `add`, also while their actions are being taken: what is urgent in a later one is done before the rest of
    those before it. A change of a replica takes the place of an earlier one that has not had its turn.

    The order: deletions; new leaders; those who have a new leader; new replicas; the rest. Clients wait for the first ones, and
    nobody for an ISR that has changed. New replicas come in the order of their partitions, whatever their role: all brokers make
    the replicas of a partition at about the same time then, and no leader waits for followers that come last elsewhere.

    What nobody waits for takes small steps, as new replicas do: clients are served between them.

    Iterate over it for what is to be done, with its cost; `per_step` of that may be spent before the loop gets a turn.
    """

    def __init__(
        self,
        broker_id: NodeId,
        known: Callable[[], Mapping[TopicPartition, Partition]],
        tuning: Tuning,
        *,
        lead: Action,
        follow: Action,
        delete: Callable[[TopicPartition, UUID], None],
    ) -> None:
        self._broker_id = broker_id
        self._known = known
        self._lead, self._follow, self._delete = lead, follow, delete
        replicas, roles = tuning.partitions_per_step, tuning.roles_per_step
        self.per_step = replicas * roles * LOOKS_PER_ROLE
        self._replica_cost, self._role_cost, self._look_cost = roles * LOOKS_PER_ROLE, replicas * LOOKS_PER_ROLE, replicas
        # Not bounded here: what the metadata log says can neither be refused nor dropped.
        self._unread: deque[tuple[int, Callable[[], LocalChanges]]] = deque()
        self._deletes: deque[tuple[TopicPartition, UUID]] = deque()
        self._latest: dict[TopicPartition, LocalPartition] = {}
        """The change of each replica that waits: what else is in `_turns` has been overtaken."""
        self._elected: deque[_Waiting] = deque()
        self._moved: deque[_Waiting] = deque()
        self._new: deque[_Waiting] = deque()
        self._rest: deque[_Waiting] = deque()

    def add(self, delta: TopicsDelta) -> None:
        self._unread.extend(delta.local_parts(self._broker_id))

    @property
    def elections_left(self) -> bool:
        """Return whether replicas here are yet to lead, or to follow somebody new."""
        return bool(self._elected or self._moved)

    def clear(self) -> None:
        for waiting in (self._unread, self._deletes, self._elected, self._moved, self._new, self._rest):
            waiting.clear()
        self._latest.clear()

    def __iter__(self) -> Iterator[tuple[int, Callable[[], None]]]:
        replica, role = self._replica_cost, self._role_cost
        turns = ((self._elected, role), (self._moved, role), (self._new, replica), (self._rest, replica))
        while True:
            if self._unread:
                count, read = self._unread.popleft()
                yield count * self._look_cost, partial(self._read, read)
            elif self._deletes:
                yield replica, partial(self._delete, *self._deletes.popleft())
            else:
                found = next(((turn, cost) for turn, cost in turns if turn), None)
                if found is None:
                    return
                tp, action, local = found[0].popleft()
                if self._latest.get(tp) is local:
                    del self._latest[tp]
                    yield found[1], partial(action, tp, local)

    def _read(self, read: Callable[[], LocalChanges]) -> None:
        changes, known, latest = read(), self._known(), self._latest
        for tp, topic_id in changes.deletes:
            latest.pop(tp, None)
            self._deletes.append((tp, topic_id))
        new: list[_Waiting] = []
        for action, found, elected in (
            (self._lead, changes.leaders, self._elected),
            (self._follow, changes.followers, self._moved),
        ):
            for tp, local in found.items():
                latest[tp] = local
                partition = known.get(tp)
                if partition is None or (partition.topic_id is not local.topic_id and partition.topic_id != local.topic_id):
                    turn: deque[_Waiting] | list[_Waiting] = new
                elif partition.leader_epoch == local.registration.leader_epoch:
                    turn = self._rest
                else:
                    turn = elected
                turn.append((tp, action, local))
        new.sort(key=itemgetter(0))
        self._new.extend(new)
