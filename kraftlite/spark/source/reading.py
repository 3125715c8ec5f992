"""One task of a query: the records of an offset range as Arrow record batches.

Fetch, check the CRC, parse, cut to the range. A leader that moves is the client's to find; what is gone is `DataLoss`, or is
skipped when the query may. Everything that a task needs travels in its `Task`: the reader that planned it lives elsewhere.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from kraftlite.client.errors import ClientError, OffsetOutOfRange, UnknownTopic
from kraftlite.client.kafka_client import KafkaClient, client_for
from kraftlite.client.settings import ClientSettings
from kraftlite.spark.offsets import EARLIEST, Range, report_loss

if TYPE_CHECKING:
    import pyarrow as pa


EMPTY_WAIT_S: Final = 0.05
"""Between fetches that bring nothing although the range has not been read: a new leader does not know its high watermark yet."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """`columns` in the order in which Spark wants them."""

    range: Range
    columns: tuple[str, ...]
    settings: ClientSettings
    fail_on_data_loss: bool
    parser: str = "auto"
    batch_rows: int = 10_000


def read_range(task: Task) -> Iterator[pa.RecordBatch]:
    """Ends when the range is read.

    Raises DataLoss, ApiError(CORRUPT_MESSAGE), and the client's errors once its patience is over.
    """
    from kraftlite.columns.records import parse_records  # with numpy and Arrow: not in the processes that only plan

    client = client_for(task.settings)
    tp, end = task.range.tp, task.range.end
    offset = task.range.start
    waiting_since: float | None = None
    while offset < end:
        try:
            fetched = client.fetch(tp, offset)
        except (OffsetOutOfRange, UnknownTopic) as error:
            found = _behind_the_loss(task, client, offset, error)
            if found is None:
                return
            offset = found
            continue
        parsed = parse_records(
            fetched.records,
            tp=tp,
            start=offset,
            end=end,
            columns=task.columns,
            aborted=fetched.aborted,
            read_committed=task.settings.read_committed,
            parser=task.parser,
            max_rows=task.batch_rows,
        )
        yield from parsed.batches
        if parsed.next_offset > offset:
            offset, waiting_since = parsed.next_offset, None
            continue
        visible = fetched.last_stable_offset if task.settings.read_committed else fetched.high_watermark
        if visible >= end and not len(fetched.records):
            return  # compaction has left nothing from here to the end
        now = time.monotonic()
        waiting_since = now if waiting_since is None else waiting_since
        if (now - waiting_since) * 1000 > task.settings.retry_timeout_ms:
            report_loss(f"{tp} ends at offset {visible}, though {end} had been seen as its end", task.fail_on_data_loss)
            return
        time.sleep(EMPTY_WAIT_S)


def _behind_the_loss(task: Task, client: KafkaClient, offset: int, error: ClientError) -> int | None:
    """Return where to go on after an offset that is not there; None when there is nothing to go on with. Raises DataLoss."""
    tp = task.range.tp
    report_loss(f"offset {offset} of {tp} cannot be read: {error}", task.fail_on_data_loss)
    try:
        earliest = client.list_offsets({tp: EARLIEST})[tp].offset
    except UnknownTopic:
        return None
    return earliest if offset < earliest < task.range.end else None
