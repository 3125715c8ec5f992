"""One replica of one partition: leads, follows, or waits to be told. Decides; never waits.

Source: Kafka's Partition; RP-02 to RP-09, RP-11 to RP-14, RP-19 to RP-28; KIP-101, KIP-497, KIP-903, KIP-966.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from uuid import UUID

from kraftlite.log.config import LogConfig
from kraftlite.log.guards import TransactionTerms
from kraftlite.log.log import AppendInfo, AppendOrigin, Log
from kraftlite.log.validation import Verdict
from kraftlite.metadata.registrations import PartitionRegistration
from kraftlite.model.errors import ApiError, ErrorCode
from kraftlite.model.ids import NodeId
from kraftlite.model.messages.controller import AlterPartitionItem, AlterPartitionResult, IsrMember
from kraftlite.model.topic_partition import TopicPartition
from kraftlite.replication.api import LeaderHint
from kraftlite.replication.isr import KEEP_PENDING, REVERT, IsrState, PendingIsr, in_order
from kraftlite.replication.leader import DirectoryOnline, Eligible, LeaderState
from kraftlite.replication.partition_trace import PartitionTrace
from kraftlite.replication.traffic import Traffic
from kraftlite.replication.waiting import Observer, Waiter, WaitingProduces, doubt_all, wake_all
from kraftlite.runtime.ports import Tracer
from kraftlite.runtime.trace.partition import (
    FollowerStarted,
    HwAdvanced,
    IsrChangeRefused,
    IsrExpandProposed,
    LeadershipPutOff,
    LeaderStarted,
    PartitionOffline,
    PartitionRemoved,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionEnv:
    """The environment that all partitions of a broker share."""

    broker_id: NodeId
    lag_time_max_ms: int
    eligible: Eligible
    broker_epoch: Callable[[], int | None]
    on_isr_proposed: Callable[[Partition], None]
    directory_online: DirectoryOnline = lambda broker_id, replicas, directories: True
    tracer: Tracer
    trace_hot: bool = False


class Partition:
    """A local replica. Times are monotonic milliseconds, handed in.

    What must hold at any time, `check` asserts. While leading the HW passes no member of the maximal ISR, never goes back, and
    stands still while |committed ISR| < minISR (RP-06). `leader` is None unless this broker leads. Raises ApiError for refusals,
    before anything is mutated; OSError when the log's disk fails: then the owner calls `go_offline`.
    """

    def __init__(self, tp: TopicPartition, topic_id: UUID, env: PartitionEnv) -> None:
        self.tp = tp
        self.topic_id = topic_id
        self.log: Log | None = None
        self.offline_reason: str | None = "not opened yet"
        self.replicas: tuple[NodeId, ...] = ()
        self._directories: tuple[UUID, ...] = ()
        self.leader_id: NodeId | None = None
        self.leader_epoch = -1
        self.partition_epoch = -1
        self.committed_isr: tuple[NodeId, ...] = ()
        self.leader: LeaderState | None = None
        self.min_isr = 1
        self._unheard: tuple[int, tuple[NodeId, ...]] | None = None
        """The partition epoch of a smaller ISR that the controller has answered and the metadata has not said yet, and whose
        leaving lets the HW go on then."""
        self.traffic = Traffic()
        self.waiting = WaitingProduces()
        self.observers: list[Observer] = []
        self.waiters: dict[Waiter, None] = {}
        self.start_waiters: dict[Waiter, None] = {}
        """The waiters for the followers' log starts."""
        self._env = env

    # --- facts --------------------------------------------------------------------------------------------------------

    @property
    def is_leader(self) -> bool:
        return self.leader is not None and self.log is not None

    @property
    def under_replicated(self) -> bool:
        return self.leader is not None and len(self.committed_isr) < len(self.replicas)

    @property
    def under_min_isr(self) -> bool:
        return self.leader is not None and len(self.committed_isr) < self.min_isr

    def hint(self) -> LeaderHint:
        return LeaderHint(leader_id=self.leader_id, leader_epoch=self.leader_epoch)

    def online_log(self) -> Log:
        """Raises KAFKA_STORAGE_ERROR when the replica is offline."""
        if self.log is None:
            raise ApiError(ErrorCode.KAFKA_STORAGE_ERROR, f"{self.tp} is offline: {self.offline_reason}")
        return self.log

    def check_epoch(self, leader_epoch: int | None) -> None:
        """Refuse another leader epoch (RP-34). None: the caller does not know any."""
        if leader_epoch is not None and leader_epoch != self.leader_epoch:
            older = leader_epoch < self.leader_epoch
            raise ApiError(
                ErrorCode.FENCED_LEADER_EPOCH if older else ErrorCode.UNKNOWN_LEADER_EPOCH,
                f"{self.tp} is in leader epoch {self.leader_epoch}, the request in {leader_epoch}",
            )

    def leading(self, leader_epoch: int | None = None) -> tuple[LeaderState, Log]:
        """The leader's state and log; refuses when this broker does not lead (in `leader_epoch`)."""
        log = self.online_log()
        self.check_epoch(leader_epoch)
        if (leader := self.leader) is None:
            raise ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"{self.tp} is led by {self.leader_id}")
        return leader, log

    def check(self, *, producers: bool = False) -> None:
        """Raise AssertionError when an invariant does not hold. `producers`: see `Log`."""
        if self.log is not None:
            self.log.check(producers=producers)
            if self.leader is not None:
                self.log.check_guards(self.leader_epoch)
        self.check_role()

    def check_role(self) -> None:
        """Do as `check` does, but without the log, which a change of role leaves as it is."""
        tp, log, leader = self.tp, self.log, self.leader
        assert (log is None) == (self.offline_reason is not None), f"{tp}: log {log}, offline because {self.offline_reason!r}"
        if leader is None:
            self.waiting.check(tp, None)
            return
        assert log is not None, f"{tp} is led without a log"
        assert self.leader_id == self._env.broker_id, f"{tp} is led here, its leader is {self.leader_id}"
        self.waiting.check(tp, log.hw)
        leader.isr.check(tp, self.committed_isr)
        leader.check(tp, self._env.broker_id, self.replicas, (self.leader_epoch, self.partition_epoch), log.leo)

    # --- roles --------------------------------------------------------------------------------------------------------

    def attach_log(self, log: Log, checkpointed_hw: int) -> None:
        """The HW starts from its checkpoint, within [log start, leo] (RP-16). Its role is yet to be heard of. Raises OSError."""
        log.update_hw(checkpointed_hw)  # may read the log, which may fail
        self.log, self.offline_reason, self.leader_epoch, self.partition_epoch = log, None, -1, -1

    def fail_to_open(self, registration: PartitionRegistration, reason: str) -> None:
        """The log is not to be had: stay offline, but know who leads."""
        self._adopt(registration)
        self.offline_reason = reason
        self._env.tracer.emit(PartitionOffline(tp=self.tp, reason=reason))

    def become_leader(self, registration: PartitionRegistration, now_ms: int, cause: str | None = None) -> bool:
        """Lead, or take over a change; return whether a new leader epoch began. Older metadata is ignored (RP-24). `cause`: the
        record that says so, for the trace."""
        log = self.online_log()
        same_epoch = self.leader is not None and self.leader_epoch == registration.leader_epoch
        if not self._is_news(registration, same_epoch):
            if same_epoch and self._unheard is not None and registration.partition_epoch >= self._unheard[0]:
                left, self._unheard = self._unheard[1], None
                self.maybe_advance_hw(now_ms, by=left)
            return False
        if log.latest_epoch is not None and log.latest_epoch > registration.leader_epoch:
            # Metadata from before a restart that newer metadata will follow: the log has epochs that this leader never saw.
            self._adopt(registration)
            put_off = LeadershipPutOff(tp=self.tp, leader_epoch=registration.leader_epoch, log_epoch=log.latest_epoch)
            self._env.tracer.emit(put_off)
            return False
        old_isr, old_replicas = self.committed_isr, self.replicas
        self._adopt(registration)
        self.committed_isr = isr = in_order(registration.isr, registration.replicas)
        if not same_epoch:
            start = log.leo
            trace = PartitionTrace(self._env.tracer, self.tp, registration.leader_epoch, start, now_ms)
            self.leader = LeaderState(IsrState(isr, registration.recovering), trace)
            log.assign_epoch_start(registration.leader_epoch, start)
        leader = self.leader
        assert leader is not None
        asked_out = () if leader.isr.pending is None else leader.isr.pending.removed
        leader.isr.commit(isr, registration.recovering)
        if not same_epoch or self.replicas is not old_replicas:
            leader.assign([r for r in self.replicas if r != self._env.broker_id], now_ms)
        if not same_epoch:
            leading = LeaderStarted(
                tp=self.tp,
                leader_epoch=self.leader_epoch,
                partition_epoch=self.partition_epoch,
                isr=isr,
                min_isr=self.min_isr,
                epoch_start_offset=leader.epoch_start_offset,
                hw=log.hw,
                recovering=registration.recovering,
                cause=cause,
            )
            self._env.tracer.emit(leading)
            self._role_changed()
        else:
            leader.trace.isr_committed(old_isr, isr, self.partition_epoch, self.min_isr, cause)
        leader.strike((it for it in old_isr if it not in isr and it not in asked_out), isr, now_ms)
        self._after_isr_change(now_ms, old_isr)
        self.check_role()
        return not same_epoch

    def become_follower(self, registration: PartitionRegistration, cause: str | None = None) -> bool:
        """Follow; return whether a new leader epoch began. A former leader's waiting requests end at once (RP-09)."""
        log = self.online_log()
        same_epoch = self.leader is None and self.leader_epoch == registration.leader_epoch
        if not self._is_news(registration, same_epoch):
            return False
        self._adopt(registration)
        self.committed_isr = in_order(registration.isr, registration.replicas)
        self.leader = None
        self.fail_waiting(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        if not same_epoch:
            following = FollowerStarted(
                tp=self.tp,
                leader_id=self.leader_id,
                leader_epoch=self.leader_epoch,
                partition_epoch=self.partition_epoch,
                leo=log.leo,
                hw=log.hw,
                cause=cause,
            )
            self._env.tracer.emit(following)
            self._role_changed()
        self.check_role()
        return not same_epoch

    def _is_news(self, registration: PartitionRegistration, same_role: bool) -> bool:
        if registration.leader_epoch < self.leader_epoch:
            return False
        newer = registration.partition_epoch - self.partition_epoch
        return newer > 0 if same_role else newer >= 0

    def _adopt(self, registration: PartitionRegistration) -> None:
        self.replicas = registration.replicas
        self._directories = registration.directories
        self.leader_id = registration.leader
        self.leader_epoch = registration.leader_epoch
        self.partition_epoch = registration.partition_epoch
        self._unheard = None
        self._set_min_isr()

    def _set_min_isr(self) -> None:
        """Take over `min.insync.replicas` (RP-05)."""
        self.min_isr = min(1 if self.log is None else self.log.config.min_insync_replicas, len(self.replicas))

    def announce_config(self, config: LogConfig) -> None:
        """Take over a configuration before the changes of partitions with which it came: until `update_config` says that they
        are made, the larger `min.insync.replicas` counts."""
        before = self.min_isr
        self.online_log().update_config(config)
        self._set_min_isr()
        self.min_isr = max(self.min_isr, before)

    def update_config(self, config: LogConfig, now_ms: int) -> None:
        log = self.online_log()
        log.update_config(config)
        self._set_min_isr()
        if self.leader is not None:
            self._after_isr_change(now_ms, self.committed_isr)

    def go_offline(self, reason: str) -> None:
        if self.log is None:
            self.offline_reason = reason
            return
        self.log, self.leader, self.offline_reason = None, None, reason
        self._env.tracer.emit(PartitionOffline(tp=self.tp, reason=reason))
        self.fail_waiting(ErrorCode.KAFKA_STORAGE_ERROR)
        self._role_changed()

    def remove(self) -> None:
        """The replica is to be deleted; nobody may use this object any more."""
        self.log = self.leader = self.leader_id = None
        self.offline_reason = "deleted"
        self._env.tracer.emit(PartitionRemoved(tp=self.tp))
        self.fail_waiting(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        self._role_changed()

    def _role_changed(self) -> None:
        if self.log is not None:
            self.log.drop_guards()
        for observer in self.observers:
            observer.on_moved()
        self.wake_waiters()

    # --- appending ----------------------------------------------------------------------------------------------------

    def append(
        self,
        records: bytearray | memoryview,
        *,
        wall_ms: int,
        now_ms: int,
        origin: AppendOrigin,
        all_acks: bool,
        verdict: Verdict | None = None,
        terms: TransactionTerms | None = None,
    ) -> AppendInfo:
        """Append one batch as the leader. NOT_ENOUGH_REPLICAS when all must acknowledge and they are too few (RP-02).
        `verdict`: of its records, when they were checked before. `terms`: see `Log`."""
        leader, log = self.leader, self.log
        if leader is None or log is None:
            leader, log = self.leading()
        if all_acks and len(leader.isr.committed) < self.min_isr:
            raise ApiError(
                ErrorCode.NOT_ENOUGH_REPLICAS, f"{self.tp} has {len(leader.isr.committed)} in-sync replicas of {self.min_isr}"
            )
        old_leo = log.leo
        info = log.append_as_leader(
            records, leader_epoch=leader.leader_epoch, wall_ms=wall_ms, origin=origin, verdict=verdict, terms=terms
        )
        if log.leo != old_leo:
            trace = leader.trace
            self.traffic.appended(log.leo - old_leo, len(records))
            nothing_waited = log.hw == old_leo
            if nothing_waited or trace.first_append_ms is None:
                trace.appended(nothing_waited, now_ms)
            if not trace.acknowledged and not all_acks:
                trace.acknowledge(log.hw, now_ms)
            for observer in self.observers:
                observer.on_append(old_leo)
            if len(leader.isr.maximal) == 1:
                self.maybe_advance_hw(now_ms)
        return info

    def fail_waiting(self, error: ErrorCode) -> None:
        self.waiting.fail(error)

    # --- the high watermark -------------------------------------------------------------------------------------------

    def maybe_advance_hw(self, now_ms: int, cause: str = "isr", by: tuple[NodeId, ...] = ()) -> bool:
        """`cause` and `by` say what may have made the difference, for the trace."""
        leader, log = self.leader, self.log
        if leader is None or log is None or len(leader.isr.committed) < self.min_isr or self._unheard is not None:
            return False
        if (old := log.hw) == log.leo:
            return False
        new = leader.hw_bound(log.leo, now_ms, self._env.lag_time_max_ms, self._eligible)
        if new <= old:
            return False
        log.update_hw(new)
        leader.trace.hw_moved(old, new, log.leo, now_ms, cause, by)
        if self._env.trace_hot:
            self._env.tracer.emit(HwAdvanced(tp=self.tp, old=old, new=new))
        self.hw_changed(new)
        return True

    def hw_changed(self, hw: int) -> None:
        self.waiting.reached(hw)
        for observer in self.observers:
            observer.on_change()
        if self.waiters:
            wake_all(self.waiters)

    def log_start_changed(self, *, urgent: bool) -> None:
        """Followers hear of it: at once if somebody waits for them to follow (LG-40), else with the next answer."""
        for observer in self.observers:
            observer.on_moved() if urgent else observer.on_change()

    def wake_waiters(self) -> None:
        for waiters in (self.waiters, self.start_waiters):
            wake_all(waiters)

    # --- the ISR ------------------------------------------------------------------------------------------------------

    def follower_fetched(
        self, broker_id: NodeId, replica_epoch: int, fetch_offset: int, log_start_offset: int, now_ms: int
    ) -> None:
        """A follower confirmed everything below `fetch_offset`. May advance the HW and propose that it join the ISR."""
        leader, log = self.leading()
        follower = leader.followers[broker_id]
        old_leo, old_start = follower.leo, follower.log_start_offset
        follower.fetched(fetch_offset, log_start_offset, replica_epoch, log.leo, now_ms)
        if old_leo is not None and fetch_offset < old_leo:
            doubt_all(self.observers)
        if old_start != log_start_offset and self.start_waiters:
            wake_all(self.start_waiters)
        if broker_id not in leader.isr.maximal:
            leader.struck = tuple([it for it in leader.struck if it != broker_id])
            self._maybe_expand(now_ms, fetched_by=broker_id)
        if old_leo != fetch_offset:
            self.maybe_advance_hw(now_ms, "fetch", (broker_id,))

    def check_isr(self, now_ms: int) -> None:
        """Propose to remove members that lag; to be called every half of `lag_time_max_ms` (RP-19)."""
        leader, log = self.leader, self.log
        if leader is None or log is None:
            return
        leader.forget_struck(now_ms - self._env.lag_time_max_ms)
        self._maybe_expand(now_ms)
        leader.trace.look(log.hw, log.leo, leader.isr, leader.followers, self.min_isr, now_ms)
        if len(leader.isr.committed) < len(self.replicas):
            doubt_all(self.observers)
        if leader.isr.pending is None and (out := leader.lagging(log.leo, now_ms, self._env.lag_time_max_ms)):
            self._propose(leader, tuple(it for it in leader.isr.committed if it not in out), added=(), removed=out)
            leader.trace.shrink_proposed(leader.isr.maximal, [leader.followers[it] for it in out], log.leo, now_ms)
            self._env.on_isr_proposed(self)

    def recheck(self, now_ms: int) -> None:
        """Brokers came, went or changed: someone may now join, and the HW need not wait for who no longer may."""
        if self.leader is not None and self.log is not None:
            self.leader.struck = ()
            self._maybe_expand(now_ms)
            self.maybe_advance_hw(now_ms)
            wake_all(self.start_waiters)

    def _maybe_expand(self, now_ms: int, fetched_by: NodeId | None = None) -> None:
        leader, log = self.leader, self.log
        if leader is None or log is None or leader.isr.pending is not None or len(leader.isr.committed) == len(self.replicas):
            return
        added = leader.joining(log.leo, log.hw, now_ms, self._env.lag_time_max_ms, self._eligible, fetched_by)
        if added:
            self._propose(leader, in_order((*leader.isr.committed, *added), self.replicas), added=added, removed=())
            self._env.tracer.emit(IsrExpandProposed(tp=self.tp, added=added, maximal_isr=leader.isr.maximal))
            self._env.on_isr_proposed(self)

    def _propose(
        self, leader: LeaderState, isr: tuple[NodeId, ...], *, added: tuple[NodeId, ...], removed: tuple[NodeId, ...]
    ) -> None:
        """Every proposal says RECOVERED: the leader has its log, whatever the election was like (RP-26)."""
        item = AlterPartitionItem(
            topic_id=self.topic_id,
            partition=self.tp.partition,
            leader_epoch=self.leader_epoch,
            partition_epoch=self.partition_epoch,
            new_isr=tuple(IsrMember(broker_id=member, broker_epoch=self._epoch_of(leader, member)) for member in isr),
            recovering=False,
        )
        leader.isr.propose(PendingIsr(item=item, added=added, removed=removed), self.replicas)

    def _eligible(self, member: NodeId, replica_epoch: int | None) -> bool:
        """A replica whose log directory is offline may not be in the ISR, and the HW need not wait for it."""
        return self._env.directory_online(member, self.replicas, self._directories) and self._env.eligible(member, replica_epoch)

    def _epoch_of(self, leader: LeaderState, member: NodeId) -> int | None:
        if member == self._env.broker_id:
            return self._env.broker_epoch()
        follower = leader.followers.get(member)
        return None if follower is None else follower.replica_epoch

    @property
    def pending_isr(self) -> PendingIsr | None:
        return None if self.leader is None else self.leader.isr.pending

    def handle_alter_result(self, pending: PendingIsr, result: AlterPartitionResult, now_ms: int) -> bool:
        """Take the controller's answer to `pending`, and return whether the same proposal must be sent again (RP-23)."""
        leader = self.leader
        if leader is None or leader.isr.pending is not pending:
            return False
        error = result.error
        if error is ErrorCode.NONE:
            if result.leader_epoch != self.leader_epoch or result.partition_epoch < self.partition_epoch:
                return False
            old_isr = self.committed_isr
            self.committed_isr = in_order(result.isr, self.replicas)
            self.partition_epoch = result.partition_epoch
            if len(self.committed_isr) < len(old_isr):
                # A larger min.insync.replicas may come before it in the metadata, and is not known here yet.
                enough = len(self.committed_isr) >= self.min_isr
                left = tuple(member for member in old_isr if enough and member not in self.committed_isr)
                self._unheard = result.partition_epoch, left
            leader.isr.commit(self.committed_isr, result.recovering)
            cause = "request:alter_partition"
            leader.trace.isr_committed(old_isr, self.committed_isr, self.partition_epoch, self.min_isr, cause)
            # A replica that was refused is proposed again when its next fetch, or newer metadata, says so: not in a circle.
            self._after_isr_change(now_ms, old_isr, may_expand=not pending.withdrawn)
            return False
        then = "reverted" if error in REVERT else "kept" if error in KEEP_PENDING else "retried"
        if then == "reverted" and pending.added:
            then = "withdrawn"
        self._env.tracer.emit(IsrChangeRefused(tp=self.tp, error=error.name, then=then))
        if then == "withdrawn":
            leader.isr.withdraw(tuple(IsrMember(broker_id=member, broker_epoch=None) for member in leader.isr.committed))
        elif then == "reverted":
            leader.isr.revert()
            doubt_all(self.observers)  # their next fetches ask for the change again, if it is still due
            self.maybe_advance_hw(now_ms)
        return then in ("retried", "withdrawn")

    def _after_isr_change(self, now_ms: int, old: tuple[NodeId, ...], *, may_expand: bool = True) -> None:
        """The ISR can be down to this broker alone; or below minISR, which no waiting produce survives (RP-03)."""
        self.maybe_advance_hw(now_ms, "isr", tuple(member for member in old if member not in self.committed_isr))
        if self.under_min_isr:
            self.fail_waiting(ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND)
        if may_expand:
            self._maybe_expand(now_ms)
        wake_all(self.start_waiters)  # replicas may have been taken away
