"""Transactions between brokers: markers to the leaders of partitions, and questions to the coordinators of transactional ids.

Either may be this broker itself, which is then spared the network and nothing else. Source: KIP-98, KIP-890; TX-50, TP-03, TP-26.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from itertools import chain
from typing import Final, Protocol
from uuid import UUID

from kraftlite.coordinator.core.placement import OFFSETS_TOPIC, TRANSACTION_TOPIC
from kraftlite.coordinator.core.walks import pieces
from kraftlite.coordinator.transactions.coordinator import TransactionCoordinator
from kraftlite.metadata.image import MetadataImage
from kraftlite.model.errors import ApiError, ErrorCode
from kraftlite.model.ids import ZERO_UUID, Endpoint, NodeId
from kraftlite.model.limits import MAX_ENROLLED_PARTITIONS, MAX_MARKERS_PER_REQUEST
from kraftlite.model.messages.methods import ENROLL, WRITE_MARKERS
from kraftlite.model.messages.transactions import (
    EnrolledPartition,
    EnrollRequest,
    EnrollResponse,
    TransactionMarker,
    WriteMarkersRequest,
    WriteMarkersResponse,
)
from kraftlite.model.producer import Producer
from kraftlite.model.topic_partition import TopicPartition
from kraftlite.replication.api import MarkerEntry
from kraftlite.replication.enrol_driver import ADDS_FROM
from kraftlite.replication.ports import NO_TOPIC_IDS
from kraftlite.runtime.ports import Handlers, Ports, TransportError, route
from kraftlite.runtime.turns import Turns

ANSWER_TIME_MS: Final = 1_000
"""The time that an answer has to arrive, beyond that for which the peer may work on it."""


class WritesMarkers(Protocol):
    """The part of `ReplicaManager` that writes markers."""

    def write_markers(
        self, markers: Sequence[MarkerEntry], /, *, timeout_ms: int, on_done: Callable[[list[ErrorCode]], None]
    ) -> None: ...


class CompletesTransactions(Protocol):
    """The part of `GroupCoordinator` that ends transactions in `__consumer_offsets`. It answers in the words of a partition's
    leader."""

    def complete_transaction(self, tp: TopicPartition, marker: MarkerEntry, /) -> Awaitable[ErrorCode]: ...


class Peers:
    """The addresses of brokers, as the metadata has them."""

    def __init__(self, node_id: NodeId, cluster_id: str, listener: str, image: Callable[[], MetadataImage]) -> None:
        self.node_id = node_id
        self.cluster_id = cluster_id
        self.image = image
        self._listener = listener

    def endpoint(self, node: NodeId) -> Endpoint:
        """Raises TransportError when the broker is not known or has no such listener."""
        found = self.image().cluster.endpoint(node, self._listener)
        if found is None:
            raise TransportError(f"broker {node} is not registered with a listener {self._listener}")
        return found

    def check_cluster(self, cluster_id: str) -> None:
        """Raises ApiError(INCONSISTENT_CLUSTER_ID)."""
        if cluster_id != self.cluster_id:
            raise ApiError(ErrorCode.INCONSISTENT_CLUSTER_ID, f"this is cluster {self.cluster_id}, not {cluster_id}")


class MarkerWriting:
    """Writes markers, here or by the broker that leads; serves WRITE_MARKERS."""

    def __init__(
        self, ports: Ports, peers: Peers, replicas: WritesMarkers, groups: CompletesTransactions, timeout_ms: int
    ) -> None:
        self._transport = ports.transport
        self._peers = peers
        self._replicas = replicas
        self._groups = groups
        self._timeout_ms = timeout_ms
        self._turns = Turns(ports.clock)

    async def write(self, node: NodeId, markers: Sequence[MarkerEntry]) -> Sequence[ErrorCode]:
        """One error for each, in order, when all are below the high watermark. Raises TransportError, ApiError."""
        if node == self._peers.node_id:
            return await self.write_here(markers, self._timeout_ms)
        request = WriteMarkersRequest(
            cluster_id=self._peers.cluster_id, timeout_ms=self._timeout_ms, markers=tuple(map(_marker, markers))
        )
        endpoint = self._peers.endpoint(node)
        response = await self._transport.call(endpoint, WRITE_MARKERS, request, self._timeout_ms + ANSWER_TIME_MS)
        return response.errors

    async def write_here(self, markers: Sequence[MarkerEntry], timeout_ms: int) -> list[ErrorCode]:
        """Write markers to partitions that this broker leads. Those of `__consumer_offsets` are written by its coordinator,
        behind the commits that it has queued, and are answered when the offsets show (TP-26, TG-10)."""
        offsets = [it for it in markers if it.tp.topic == OFFSETS_TOPIC]
        logs = [it for it in markers if it.tp.topic != OFFSETS_TOPIC]
        writing = [self._write_logs(some, timeout_ms) async for some in self._turns.each(pieces(logs))]
        found = await asyncio.gather(*writing, *map(self._complete, offsets))
        written, completed = chain.from_iterable(found[: len(writing)]), chain.from_iterable(found[len(writing) :])
        return [next(completed if it.tp.topic == OFFSETS_TOPIC else written) for it in markers]

    def _write_logs(self, markers: Sequence[MarkerEntry], timeout_ms: int) -> asyncio.Future[list[ErrorCode]]:
        done: asyncio.Future[list[ErrorCode]] = asyncio.get_running_loop().create_future()

        def written(errors: list[ErrorCode]) -> None:
            if not done.done():
                done.set_result(errors)

        self._replicas.write_markers(markers, timeout_ms=timeout_ms, on_done=written)
        return done

    async def _complete(self, marker: MarkerEntry) -> list[ErrorCode]:
        return [await self._groups.complete_transaction(marker.tp, marker)]

    async def serve(self, request: WriteMarkersRequest) -> WriteMarkersResponse:
        self._peers.check_cluster(request.cluster_id)
        if len(request.markers) > MAX_MARKERS_PER_REQUEST:
            message = f"{len(request.markers)} markers: at most {MAX_MARKERS_PER_REQUEST} are written at once"
            raise ApiError(ErrorCode.INVALID_REQUEST, message)
        markers = [_entry(it) for it in request.markers]
        timeout_ms = min(request.timeout_ms, self._timeout_ms)
        return WriteMarkersResponse(errors=tuple(await self.write_here(markers, timeout_ms)))


def _marker(entry: MarkerEntry) -> TransactionMarker:
    return TransactionMarker(
        producer_id=entry.producer_id,
        producer_epoch=entry.producer_epoch,
        coordinator_epoch=entry.coordinator_epoch,
        commit=entry.commit,
        transaction_version=entry.version,
        topic=entry.tp.topic,
        topic_id=entry.topic_id or ZERO_UUID,
        partition=entry.tp.partition,
    )


def _entry(marker: TransactionMarker) -> MarkerEntry:
    return MarkerEntry(
        producer_id=marker.producer_id,
        producer_epoch=marker.producer_epoch,
        coordinator_epoch=marker.coordinator_epoch,
        commit=marker.commit,
        version=marker.transaction_version,
        tp=TopicPartition(marker.topic, marker.partition),
        topic_id=None if marker.topic_id == ZERO_UUID else marker.topic_id,
    )


class Enrolling:
    """Asks the coordinator of a transactional id about partitions, or adds them; serves ENROLL. Implements `TransactionGate`."""

    def __init__(self, ports: Ports, peers: Peers, coordinator: TransactionCoordinator, timeout_ms: int) -> None:
        self._transport = ports.transport
        self._peers = peers
        self._coordinator = coordinator
        self._timeout_ms = timeout_ms

    async def ask(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        partitions: Sequence[TopicPartition],
        *,
        add: bool,
        topic_ids: Mapping[TopicPartition, UUID] = NO_TOPIC_IDS,
    ) -> Mapping[TopicPartition, ErrorCode]:
        """The coordinator's code for each partition, within `request.timeout.ms`; NETWORK_EXCEPTION where it cannot be reached.
        An ApiError counts for all partitions."""
        producer = Producer(producer_id, producer_epoch)
        leader = self._leader(transactional_id)
        if leader == self._peers.node_id:
            return await self._ask_here(transactional_id, producer, partitions, topic_ids, add=add)
        request = EnrollRequest(
            cluster_id=self._peers.cluster_id,
            transactional_id=transactional_id,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            add=add,
            partitions=tuple(
                EnrolledPartition(topic=tp.topic, partition=tp.partition, topic_id=topic_ids.get(tp)) for tp in partitions
            ),
        )
        try:
            endpoint = self._peers.endpoint(leader)
            response = await self._transport.call(endpoint, ENROLL, request, self._timeout_ms)
        except TransportError:
            return dict.fromkeys(partitions, ErrorCode.NETWORK_EXCEPTION)
        if len(response.errors) != len(partitions):
            return dict.fromkeys(partitions, ErrorCode.NETWORK_EXCEPTION)
        return dict(zip(partitions, response.errors, strict=True))

    def _leader(self, transactional_id: str) -> NodeId:
        tp = TopicPartition(TRANSACTION_TOPIC, self._coordinator.partition_of(transactional_id))
        registration = self._peers.image().topics.registration(tp)
        if registration is None or registration.leader is None:
            raise ApiError(ErrorCode.COORDINATOR_NOT_AVAILABLE, f"{tp} has no leader")
        return registration.leader

    async def _ask_here(
        self,
        transactional_id: str,
        producer: Producer,
        partitions: Sequence[TopicPartition],
        topic_ids: Mapping[TopicPartition, UUID],
        *,
        add: bool,
    ) -> Mapping[TopicPartition, ErrorCode]:
        """A partition that the coordinator's broker does not know (yet), or as one of an older topic of that name, is not written
        to: its marker would never be sent (TX-52). That does not hinder the others."""
        found = {tp: error for tp in partitions if (error := self._unready(tp, topic_ids.get(tp), add)) is not None}
        ready = frozenset(partitions) - found.keys()
        if ready and add:
            found |= dict.fromkeys(ready, await self._add(transactional_id, producer, ready))
        elif ready:
            found |= await self._coordinator.verify_partitions(transactional_id, producer, ready)
        return found

    async def _add(self, transactional_id: str, producer: Producer, partitions: frozenset[TopicPartition]) -> ErrorCode:
        try:
            await self._coordinator.add_partitions(
                transactional_id, producer, partitions, version=ADDS_FROM, timeout_ms=self._timeout_ms
            )
        except ApiError as error:
            if error.code is not ErrorCode.REQUEST_TIMED_OUT:
                raise
            return ErrorCode.NETWORK_EXCEPTION
        return ErrorCode.NONE

    def _unready(self, tp: TopicPartition, topic_id: UUID | None, add: bool) -> ErrorCode | None:
        topics = self._peers.image().topics
        if topics.registration(tp) is None:
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if add else ErrorCode.COORDINATOR_NOT_AVAILABLE if topic_id else None
        topic = topics.topic(tp.topic)
        same = topic_id is None or (topic is not None and topic.topic_id == topic_id)
        return None if same else ErrorCode.COORDINATOR_NOT_AVAILABLE

    async def serve(self, request: EnrollRequest) -> EnrollResponse:
        self._peers.check_cluster(request.cluster_id)
        if len(request.partitions) > MAX_ENROLLED_PARTITIONS:
            message = f"{len(request.partitions)} partitions: at most {MAX_ENROLLED_PARTITIONS} are enrolled at once"
            raise ApiError(ErrorCode.INVALID_REQUEST, message)
        partitions = [TopicPartition(it.topic, it.partition) for it in request.partitions]
        producer = Producer(request.producer_id, request.producer_epoch)
        topic_ids = {tp: it.topic_id for tp, it in zip(partitions, request.partitions, strict=True) if it.topic_id is not None}
        found = await self._ask_here(request.transactional_id, producer, partitions, topic_ids, add=request.add)
        return EnrollResponse(errors=tuple(found[tp] for tp in partitions))


def handlers(markers: MarkerWriting, enrolling: Enrolling) -> Handlers:
    return dict((route(WRITE_MARKERS, markers.serve), route(ENROLL, enrolling.serve)))
