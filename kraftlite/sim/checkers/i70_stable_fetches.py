"""Invariant 70: a stable fetch answers no offset that is older than a transaction that had ended (TG-04, TG-10; KIP-447)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar

from kraftlite.coordinator.api import FetchedOffset
from kraftlite.coordinator.core.placement import TRANSACTION_TOPIC
from kraftlite.model.errors import ErrorCode
from kraftlite.model.producer import Producer
from kraftlite.model.topic_partition import TopicPartition
from kraftlite.sim.checkers.base import World
from kraftlite.sim.checkers.group_log import GroupChecker, GroupLog
from kraftlite.sim.services.groups import OFFSET_FETCH, OffsetFetchAsk, Told
from kraftlite.sim.services.transactions import COMMIT, END, EndAsk, TransactionalCommitAsk
from kraftlite.simhost.network import AnyExchange

Place = tuple[str, TopicPartition]
"""A group and a partition."""


class StableFetches(GroupChecker):
    """A fetch that requires stability, and comes to the coordinator when the commit of a transaction has been acknowledged,
    answers of each partition with the offset of that transaction, a later one, or UNSTABLE_OFFSET_COMMIT. A fetch of all
    offsets leaves out a partition that has none but pending ones, as Kafka's does. No partition is UNSTABLE_OFFSET_COMMIT where
    everything in the log of the group is committed, and no transaction is open there that moves its offset: its consumers would
    wait for ever. Where transactions may have been lost nothing is judged: a coordinator that has forgotten them gives their
    epochs again."""

    numbers: ClassVar[tuple[int, ...]] = (70,)
    only_methods = (COMMIT, END, OFFSET_FETCH)

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self._written: dict[Producer, dict[Place, int]] = {}
        """The offsets in the log of what each producer's open transaction has been acknowledged."""
        self._ended: dict[Place, int] = {}
        """The same of the transactions whose commit was acknowledged; the latest counts."""
        self._asked: dict[AnyExchange, Mapping[TopicPartition, int]] = {}
        self._quiet: dict[AnyExchange, int] = {}
        """Stable fetches under way that came when all was committed: the end of the log then."""
        self.judged = 0

    def on_arrival(self, exchange: AnyExchange) -> None:
        request = exchange.request
        if not isinstance(request, OffsetFetchAsk) or not request.require_stable or not self._is_current(exchange, request):
            return
        wanted = {tp: at for (group_id, tp), at in self._ended.items() if group_id == request.group_id}
        if request.partitions is not None:
            wanted = {tp: at for tp, at in wanted.items() if tp in request.partitions}
        self._asked[exchange] = wanted
        end = self._quiet_end(exchange, request.group_id)
        if end is not None:
            self._quiet[exchange] = end

    def _quiet_end(self, exchange: AnyExchange, group_id: str) -> int | None:
        """Return the end of the log of this group, if all of it is committed and was looked at."""
        broker, log = self.world.nodes[exchange.target].node, self.groups.log_of(group_id)
        partition = None if broker is None or broker.broker is None or log is None else broker.broker.replicas.partition(log.tp)
        if partition is None or partition.log is None or log is None:
            return None
        return log.end if partition.log.leo == partition.log.hw == log.end else None

    def _is_current(self, exchange: AnyExchange, request: OffsetFetchAsk) -> bool:
        node = self.world.nodes[exchange.target]
        return self.groups.is_current(self.groups.driver(node, request.group_id), node)

    def on_served(self, exchange: AnyExchange, response: object) -> None:
        request = exchange.request
        wanted, quiet = self._asked.pop(exchange, None), self._quiet.pop(exchange, None)
        if not isinstance(response, Told) or response.error is not ErrorCode.NONE:
            return
        if any(tp.topic == TRANSACTION_TOPIC for tp in self.world.losses.excused):
            return
        if isinstance(request, TransactionalCommitAsk):
            self._note(request, response.result)
        elif isinstance(request, EndAsk):
            written = self._written.pop(request.producer, {})
            for place, at in written.items() if request.commit else ():
                self._ended[place] = max(at, self._ended.get(place, -1))
        elif isinstance(request, OffsetFetchAsk) and request.require_stable:
            if not self._is_current(exchange, request):
                self.groups.stale[request.group_id] = None
                return
            if quiet is not None and quiet == self._quiet_end(exchange, request.group_id):
                self._check_unstable(exchange, request.group_id, response.result)
            if wanted:
                self._check(exchange, request.group_id, wanted, response.result)

    def _note(self, request: TransactionalCommitAsk, errors: Sequence[ErrorCode]) -> None:
        """An offset of a transaction is acknowledged. Where a marker has ended the transaction already, nothing is pending."""
        log = self.groups.log_of(request.group_id)
        pending = [] if log is None else log.pending.get(request.producer.producer_id, [])
        for (tp, _), error in zip(request.offsets, errors, strict=True):
            for at, key, _value in pending if error is ErrorCode.NONE else ():
                if (key.group_id, key.tp) == (request.group_id, tp):
                    self._written.setdefault(request.producer, {})[(request.group_id, tp)] = at

    def _check(
        self, exchange: AnyExchange, group_id: str, wanted: Mapping[TopicPartition, int], found: Sequence[FetchedOffset]
    ) -> None:
        log = self.groups.log_of(group_id)
        if log is None:
            return
        answers = {it.tp: it for it in found}
        for tp, least in wanted.items():
            answer = answers.get(tp)
            if answer is None or answer.error is not ErrorCode.NONE:
                continue
            self.judged += 1
            versions = log.offsets.get(group_id, {}).get(tp, [])
            told = answer.offset
            if not any(it.at >= least and told == (-1 if it.value is None else it.value.offset) for it in versions):
                self.fail(self._text(log, exchange, group_id, tp, told, least))

    def _check_unstable(self, exchange: AnyExchange, group_id: str, found: Sequence[FetchedOffset]) -> None:
        log = self.groups.log_of(group_id)
        if log is None:
            return
        moved = {key.tp for records in log.pending.values() for _, key, _ in records if key.group_id == group_id}
        for it in found:
            if it.error is ErrorCode.UNSTABLE_OFFSET_COMMIT and it.tp not in moved:
                self.fail(
                    f"{log.tp}: node {exchange.target} answers UNSTABLE_OFFSET_COMMIT for {it.tp} of group {group_id}, and no "
                    f"transaction is open that moves it"
                )

    def _text(self, log: GroupLog, exchange: AnyExchange, group_id: str, tp: TopicPartition, told: int, least: int) -> str:
        versions = log.offsets.get(group_id, {}).get(tp, [])
        return (
            f"{log.tp}: node {exchange.target} answers {told} for {tp} of group {group_id} to a stable fetch; when it came, the "
            f"transaction that wrote the record at {least} had been committed; versions are {versions[-3:]}"
        )
