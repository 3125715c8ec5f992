"""Invariant 48: offsets are told by time and by name as the records have them (KIP-79, KIP-734, KIP-320)."""

from __future__ import annotations

from typing import ClassVar, Final

from kraftlite.log.log import Log
from kraftlite.model.errors import ErrorCode
from kraftlite.model.topic_partition import TopicPartition
from kraftlite.replication.api import OffsetResult
from kraftlite.sim.checkers.base import Checker, World
from kraftlite.sim.checkers.log_files import Rec, batches_in, files_of, records_of, running_log
from kraftlite.sim.service import OFFSETS, OffsetAsk
from kraftlite.sim.services.logs import EPOCH_END, LIST, EpochEnd, EpochEndAsk, ListAsk
from kraftlite.simhost.host import SimHost
from kraftlite.simhost.network import AnyExchange

LATEST: Final = -1
EARLIEST: Final = (-2, -4)
MAX_TIMESTAMP: Final = -3
TIERED: Final = (-5, -6)


class OffsetsTold(Checker):
    """An answer of a leader is what its files say at that moment, read without any index: the HW, or the
    last stable offset for who reads what is committed; the log start; of the first
    record below the HW with a time at or behind the one asked for, its offset, time and leader epoch; of the first record of the
    whole log with the largest time the same; nothing where there is none below the HW (LG-51). The end of a leader epoch lies
    behind every batch of that and of older epochs, and not behind a batch of a later one (RP-29)."""

    numbers: ClassVar[tuple[int, ...]] = (48,)

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self._arrived: dict[AnyExchange, tuple[int, int, int, int]] = {}
        """A question under way → boots of its broker, log start, HW and LEO when it came."""

    def on_arrival(self, exchange: AnyExchange) -> None:
        if exchange.method in (LIST, OFFSETS, EPOCH_END) and (here := self._log(exchange, exchange.request.tp)) is not None:
            self._arrived[exchange] = self._state(*here)

    def _state(self, node: SimHost, log: Log) -> tuple[int, int, int, int]:
        return node.boots, log.log_start_offset, log.hw, log.leo

    def on_served(self, exchange: AnyExchange, response: object) -> None:
        if exchange.method not in (LIST, OFFSETS, EPOCH_END):
            return
        was, here = self._arrived.pop(exchange, None), self._log(exchange, exchange.request.tp)
        if was is not None and here is not None and was != self._state(*here):
            return  # the log moved between the question and the answer, which may be of either moment
        if exchange.method is LIST:
            ask = exchange.request
            assert isinstance(ask, ListAsk) and isinstance(response, OffsetResult)
            self._listed(exchange, ask.tp, ask.timestamp, response, read_committed=ask.read_committed)
        elif exchange.method is OFFSETS:
            old = exchange.request
            assert isinstance(old, OffsetAsk) and isinstance(response, OffsetResult)
            self._listed(exchange, old.tp, old.timestamp, response)
        elif exchange.method is EPOCH_END:
            end = exchange.request
            assert isinstance(end, EpochEndAsk) and isinstance(response, EpochEnd)
            self._ended(exchange, end, response)

    def _log(self, exchange: AnyExchange, tp: TopicPartition) -> tuple[SimHost, Log] | None:
        node = self.world.nodes[exchange.target]
        log = running_log(node, tp)
        return None if log is None or (node.node_id, tp) in self.world.losses.damaged else (node, log)

    def _listed(
        self, exchange: AnyExchange, tp: TopicPartition, timestamp: int, answer: OffsetResult, *, read_committed: bool = False
    ) -> None:
        here = self._log(exchange, tp)
        if here is None or answer.error is not ErrorCode.NONE:
            return
        node, log = here
        expected: tuple[int, int] | None = None
        found: Rec | None = None
        if timestamp == LATEST:
            expected = (log.last_stable_offset if read_committed else log.hw, -1)
        elif timestamp in EARLIEST:
            expected = (log.log_start_offset, -1)
        elif timestamp not in TIERED:
            found = _latest(node, log) if timestamp == MAX_TIMESTAMP else _at(node, log, timestamp)
        if expected is None:
            expected = (-1, -1) if found is None else (found.offset, found.timestamp)
        told = (answer.offset, answer.timestamp)
        what = f"{tp} on node {node.node_id}: asked for the offset at {timestamp}, it tells {answer}"
        if told != expected:
            self.fail(f"{what}; the files have {found or expected} in [{log.log_start_offset},{log.hw})")
        if found is not None and answer.leader_epoch != found.epoch:
            self.fail(f"{what}; the files have {found}")

    def _ended(self, exchange: AnyExchange, ask: EpochEndAsk, answer: EpochEnd) -> None:
        here = self._log(exchange, ask.tp)
        if here is None or answer.error is not ErrorCode.NONE or answer.leader_epoch < 0:
            return
        node, log = here
        what = f"{ask.tp} on node {node.node_id}: asked for the end of leader epoch {ask.leader_epoch}, it tells {answer}"
        if answer.leader_epoch > ask.leader_epoch or answer.end_offset > log.leo:
            self.fail(f"{what}; the log ends at {log.leo}")
        for _base, data in files_of(node, log.directory):
            for header, _ in batches_in(data):
                epoch = header.partition_leader_epoch
                if header.next_offset <= log.log_start_offset:
                    continue
                if epoch <= ask.leader_epoch and header.next_offset > answer.end_offset:
                    self.fail(f"{what}; a batch of epoch {epoch} ends at {header.next_offset}")
                if epoch > ask.leader_epoch and max(header.base_offset, log.log_start_offset) < answer.end_offset:
                    self.fail(f"{what}; a batch of epoch {epoch} begins at {header.base_offset}")


def _at(node: SimHost, log: Log, timestamp: int) -> Rec | None:
    return next((it for it in records_of(node, log) if it.timestamp >= timestamp), None)


def _latest(node: SimHost, log: Log) -> Rec | None:
    """The first record of the whole log with the largest time; none if it is not below the HW, also when others are."""
    latest: Rec | None = None
    for it in records_of(node, log, up_to=log.leo):
        if latest is None or it.timestamp > latest.timestamp:
            latest = it
    return latest if latest is not None and latest.offset < log.hw else None
