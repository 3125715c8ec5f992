"""Invariant 41: generations and epochs only grow, and a generation has one assignment (CP-29, CP-31, CG-02, CG-08)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from kraftlite.coordinator.api import JoinRequest, JoinResult
from kraftlite.coordinator.classic.group import GroupState
from kraftlite.coordinator.modern.records import CurrentKey, EpochKey, MemberKey, TargetEpochKey
from kraftlite.coordinator.records import GroupKey, GroupValue
from kraftlite.model.errors import ErrorCode
from kraftlite.model.method import AnyMethod
from kraftlite.runtime.trace import TraceEvent
from kraftlite.runtime.trace.group import GroupStateChanged
from kraftlite.sim.checkers.base import World
from kraftlite.sim.checkers.group_log import Change, GroupChecker, GroupLog
from kraftlite.sim.services.groups import JOIN
from kraftlite.simhost.host import SimHost
from kraftlite.simhost.network import AnyExchange


class EpochsGrow(GroupChecker):
    """No epoch of a group goes back, unless the group was deleted in between. A group that changes its protocol goes on where it
    was; one without members begins anew, also when the log did not take that they are gone. No member is in an epoch that its
    group has not reached, nor goes back to an earlier one. A join is answered with no generation below one that was stored when
    it was asked."""

    numbers: ClassVar[tuple[int, ...]] = (41,)
    only_events = (GroupStateChanged,)

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self._stored: dict[AnyExchange, int] = {}
        """Joins under way: the generation or epoch that was stored when they arrived."""
        self._emptied: dict[str, int] = {}
        """Groups that have lost their last member since they were last stored, or have begun in the place of an empty one, and
        the leader epoch of their coordinator."""

    def on_event(self, now_us: int, node: SimHost, event: TraceEvent) -> None:
        if not isinstance(event, GroupStateChanged):
            return
        begins = event.state == GroupState.PREPARING_REBALANCE.value and event.generation == 0  # a classic one where nobody was
        if event.state == GroupState.EMPTY.value or begins:
            driver = self.groups.driver(node, event.group)
            if driver is not None and self.groups.is_current(driver, node):
                self._emptied[event.group] = driver.leader_epoch

    def on_records(self, log: GroupLog, changes: Sequence[Change]) -> None:
        ended: dict[str, int] = {}
        """Groups with members whose records of one protocol are deleted in this batch, and their last epoch."""
        left = {it.key.group_id for it in changes if isinstance(it.key, MemberKey) and it.old is not None and it.new is None}
        for change in changes:
            if isinstance(change.key, GroupKey) and change.old is not None and change.new is None and change.old.members:
                ended[change.key.group_id] = change.old.generation
            elif isinstance(change.key, EpochKey) and change.new is None and change.key.group_id in left:
                ended[change.key.group_id] = change.old
        joined = {it.key.group_id for it in changes if isinstance(it.key, MemberKey) and it.new is not None}
        anew: dict[str, None] = {}
        """Groups that begin where nobody is, though the log does not say so."""
        for change in changes:
            if isinstance(change.key, GroupKey | EpochKey) and change.new is not None and change.key.group_id in self._emptied:
                del self._emptied[change.key.group_id]
                ended.pop(change.key.group_id, None)
                if change.key.group_id in joined:
                    anew[change.key.group_id] = None
        for change in changes:
            key = change.key
            if isinstance(key, EpochKey | TargetEpochKey) and key.group_id in anew:
                continue
            if isinstance(key, EpochKey) and change.new is not None:
                self._grown(log, change, "group epoch", ended.get(key.group_id) if change.old is None else change.old)
            elif isinstance(key, GroupKey) and change.new is not None:
                if change.old is not None:
                    self._next_generation(log, change, change.old, change.new)
                elif change.new.members:
                    self._grown(log, change, "generation", ended.get(key.group_id), change.new.generation)
            elif isinstance(key, TargetEpochKey) and change.new is not None:
                self._grown(log, change, "epoch of the target assignment", change.old)
            elif isinstance(key, CurrentKey) and change.new is not None:
                self._member(log, change)
        for group_id in sorted({it.key.group_id for it in changes if isinstance(it.key, TargetEpochKey)}):
            group = log.consumers.get(group_id)
            if group is not None and group.target_epoch > group.epoch:
                self.fail_in(log, changes[-1], f"has target epoch {group.target_epoch} of {group_id} in epoch {group.epoch}")

    def _grown(self, log: GroupLog, change: Change, what: str, old: int | None, new: int | None = None) -> None:
        now = change.new if new is None else new
        if old is not None and now < old:
            self.fail_in(log, change, f"takes the {what} of group {change.key.group_id} from {old} back to {now}")

    def _next_generation(self, log: GroupLog, change: Change, old: GroupValue, new: GroupValue) -> None:
        self._grown(log, change, "generation", old.generation, new.generation)
        if new.generation != old.generation:
            return
        before, now = (sorted(it.assignment for it in value.members) for value in (old, new))
        if old.members and before != now:
            self.fail_in(
                log,
                change,
                f"gives generation {new.generation} of group {change.key.group_id} another assignment: {now}, not {before}",
            )

    def _member(self, log: GroupLog, change: Change) -> None:
        group = log.consumers.get(change.key.group_id)
        if group is None:
            return
        epoch, old = change.new.epoch, 0 if change.old is None else change.old.epoch
        if epoch > group.epoch:
            self.fail_in(log, change, f"has member {change.key.member_id} in epoch {epoch}, its group is in {group.epoch}")
        if 0 < epoch < old:
            self.fail_in(log, change, f"takes member {change.key.member_id} from epoch {old} back to {epoch}")

    # --- clients

    def _stored_epoch(self, method: AnyMethod, request: object) -> int:
        assert isinstance(request, JoinRequest)
        log = self.groups.log_of(request.group_id)
        if log is None:
            return -1
        classic, consumers = log.classic.get(request.group_id), log.consumers.get(request.group_id)
        if consumers is not None and consumers.members:
            return 0  # a member that is behind is told the epoch it is in
        return classic.generation if classic is not None and classic.members else -1

    def on_arrival(self, exchange: AnyExchange) -> None:
        if exchange.method is JOIN:
            node = self.world.nodes[exchange.target]
            driver = self.groups.driver(node, exchange.request.group_id)
            if driver is None or not driver.loaded or not self.groups.is_current(driver, node):
                return
            if self._emptied.get(exchange.request.group_id) != driver.leader_epoch:  # else nothing that is stored is left
                self._stored[exchange] = self._stored_epoch(exchange.method, exchange.request)

    def on_served(self, exchange: AnyExchange, response: object) -> None:
        if exchange.method is JOIN:
            assert isinstance(response, JoinResult)
            stored = self._stored.pop(exchange, -1)
            if response.error is ErrorCode.NONE and response.generation < stored:
                self.fail(
                    f"group {exchange.request.group_id}: {response.member_id} joins generation {response.generation} at node "
                    f"{exchange.target}, when it came {stored} was stored"
                )
