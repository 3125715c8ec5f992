"""Shorthand for tests of the log layer."""

from __future__ import annotations

import random
from uuid import UUID

from kraftlite.log.batch import Record, build_batch, iter_batches, iter_records
from kraftlite.log.config import LogConfig
from kraftlite.log.control import EndTxnMarker, control_batch
from kraftlite.log.guards import TransactionTerms
from kraftlite.log.log import AppendInfo, AppendOrigin, Log, OpenLog
from kraftlite.model.limits import PRODUCER_BATCHES
from kraftlite.model.topic_partition import TopicPartition
from kraftlite.runtime.ports import Disk
from kraftlite.runtime.trace import ListTracer
from tests.harness.disk import MemDisk

TP = TopicPartition("orders", 0)
TOPIC_ID = UUID(int=12345)
DIR = "/data/orders-0"
NOW = 1_700_000_000_000


def open_log(
    disk: Disk | None = None,
    config: LogConfig | None = None,
    *,
    recovery_point: int = 0,
    log_start_offset: int = 0,
    clean: bool = False,
    tracer: ListTracer | None = None,
    entropy: random.Random | None = None,
    wall_ms: int = NOW,
    directory: str = DIR,
    sibling: str | None = None,
    max_epoch: int | None = None,
    producer_batches: int = PRODUCER_BATCHES,
) -> Log:
    return Log(
        OpenLog(
            disk=disk if disk is not None else MemDisk(),
            directory=directory,
            tp=TP,
            topic_id=TOPIC_ID,
            config=config or LogConfig(),
            log_start_offset=log_start_offset,
            recovery_point=recovery_point,
            clean=clean,
            wall_ms=wall_ms,
            entropy=entropy,
            tracer=tracer or ListTracer(),
            sibling=sibling,
            max_epoch=max_epoch,
            producer_batches=producer_batches,
        )
    )


def batch(
    *values: str | bytes,
    base_offset: int = 0,
    epoch: int = -1,
    ts: int = NOW,
    codec: int = 0,
    pid: int = -1,
    pepoch: int = 0,
    seq: int = 0,
    txn: bool = False,
    key: bytes | None = b"k",
    deltas: tuple[int, ...] = (),
) -> bytearray:
    """A batch with one record per value."""
    records = [
        Record(key, value.encode() if isinstance(value, str) else value, timestamp_delta=deltas[i] if deltas else 0)
        for i, value in enumerate(values)
    ]
    return bytearray(
        build_batch(
            records,
            base_offset=base_offset,
            leader_epoch=epoch,
            timestamp_ms=ts,
            codec=codec,
            transactional=txn,
            producer_id=pid,
            producer_epoch=pepoch if pid >= 0 else -1,
            base_sequence=seq if pid >= 0 else -1,
        )
    )


def append(
    log: Log,
    *values: str | bytes,
    epoch: int = 0,
    wall_ms: int = NOW,
    terms: TransactionTerms | None = None,
    origin: AppendOrigin = AppendOrigin.CLIENT,
    **kw: object,
) -> AppendInfo:
    """One batch through the leader's door, as a client."""
    made = batch(*values, **kw)  # type: ignore[arg-type]
    return log.append_as_leader(made, leader_epoch=epoch, wall_ms=wall_ms, origin=origin, terms=terms)


def end_txn(
    log: Log,
    pid: int,
    *,
    commit: bool,
    pepoch: int = 0,
    coordinator_epoch: int = 0,
    epoch: int = 0,
    version: int | None = None,
    wall_ms: int = NOW,
) -> AppendInfo:
    """`version`: the transaction.version of the transaction; None says none, which is 0."""
    marker = control_batch(
        [EndTxnMarker(commit=commit, coordinator_epoch=coordinator_epoch)],
        timestamp_ms=wall_ms,
        producer_id=pid,
        producer_epoch=pepoch,
    )
    terms = None if version is None else TransactionTerms(version=version)
    return log.append_as_leader(
        bytearray(marker), leader_epoch=epoch, wall_ms=wall_ms, origin=AppendOrigin.COORDINATOR, terms=terms
    )


def everything(log: Log, *, max_bytes: int = 1 << 20) -> bytes:
    """All bytes of the log, by sequential reads."""
    offset, parts = log.log_start_offset, []
    while offset < log.leo:
        data = log.read(offset, max_bytes, up_to=log.leo)
        if not data:
            break
        parts.append(data)
        offset = [header for header, _ in iter_batches(data)][-1].next_offset
    return b"".join(parts)


def values(log: Log) -> list[tuple[int, bytes | None]]:
    """(offset, value) of every data record."""
    found = []
    for header, view in iter_batches(everything(log)):
        if not header.is_control:
            found += [(header.base_offset + record.offset_delta, record.value) for record in iter_records(view)]
    return found
