"""kafka-transactions. Source: TA-04; KIP-664, KIP-994, KIP-1152; Kafka's TransactionsCommand."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Final

import click

from kraftlite.cli.compat.tool import Parser, UsageError, cluster_of, java_exception, whole
from kraftlite.cli.error_texts import TEXTS
from kraftlite.cli.transaction_view import (
    DEFAULT_MAX_TIMEOUT_MIN,
    MINUTE_MS,
    NoSuchTopic,
    NoSuchTransaction,
    NotDescribed,
    abort_at,
    hanging,
    now_ms,
    open_transactions,
    partitions_of,
)
from kraftlite.client.errors import ClientError, RequestRefused
from kraftlite.client.transactions import (
    NOT_SET,
    Abort,
    abort_transaction,
    describe_producers,
    describe_transactions,
    fence_producer,
    list_transactions,
)
from kraftlite.model.errors import ApiError, ErrorCode
from kraftlite.model.shown import printable
from kraftlite.model.topic_name import validate_topic_name

if TYPE_CHECKING:
    from kraftlite.client.cluster import ClusterClient, Partition

_NONE: Final = "None"
COMMANDS: Final = ("list", "describe", "describe-producers", "abort", "find-hanging", "forceTerminateTransaction")


class Failed(Exception):
    """The tool ends with this on standard error."""


def parser() -> Parser:
    found = Parser(
        "kafka-transactions",
        "This tool is used to analyze the transactional state of producers in the cluster. It can be used to detect and recover "
        "from hanging transactions.",
    )
    found.connection()
    actions = found.add_subparsers(dest="command", metavar="COMMAND")
    command = {name: actions.add_parser(name, tool=f"kafka-transactions {name}") for name in COMMANDS}
    command["list"].add_argument("--duration-filter", type=whole(64), help="only those that run for longer, in milliseconds")
    command["list"].add_argument("--transactional-id-pattern", help="only ids that match as a whole")
    command["describe"].add_argument("--transactional-id", required=True)
    for name in ("describe-producers", "abort"):
        command[name].add_argument("--topic", required=True)
        command[name].add_argument("--partition", type=whole(32), required=True)
    for name in ("describe-producers", "find-hanging"):
        command[name].add_argument("--broker-id", type=whole(32))
    command["abort"].add_argument("--start-offset", type=whole(64))
    for name, bits in (("producer-id", 64), ("producer-epoch", 16), ("coordinator-epoch", 32)):
        command["abort"].add_argument(f"--{name}", type=whole(bits))
    command["find-hanging"].add_argument(
        "--max-transaction-timeout", type=whole(32), default=DEFAULT_MAX_TIMEOUT_MIN, help="minutes"
    )
    command["find-hanging"].add_argument("--topic")
    command["find-hanging"].add_argument("--partition", type=whole(32))
    command["forceTerminateTransaction"].add_argument("--transactionalId", required=True)
    return found


def run(arguments: Sequence[str]) -> int:
    options = parser().read(arguments)
    if options.command is None:
        raise UsageError(f"too few arguments: one of {', '.join(COMMANDS)}")
    return carry_out(options, cluster_of(options))


def carry_out(options: argparse.Namespace, cluster: ClusterClient) -> int:
    """Print what the tool prints, and return its exit status."""
    try:
        _ACTIONS[options.command](options, cluster)
    except Failed as error:
        click.echo(str(error), err=True)
        return 1
    return 0


def _failed(what: str, why: str) -> Failed:
    return Failed(f"{what}: {why}. Enable debug logging for additional detail.")


def _unexpected(error: ClientError, why: str) -> str:
    """Kafka's client keeps its own words for refusals, and does not pass on the broker's."""
    return why if isinstance(error, RequestRefused) else str(error)


def _table(header: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    texts = [list(header), *[[_NONE if cell is None else printable(str(cell)) for cell in row] for row in rows]]
    widths = [max(len(row[at]) for row in texts) for at in range(len(header))]
    for row in texts:
        click.echo("".join(cell.ljust(width) + "\t" for cell, width in zip(row, widths, strict=True)))


def _list(options: argparse.Namespace, cluster: ClusterClient) -> None:
    duration = NOT_SET if options.duration_filter is None else options.duration_filter
    try:
        found = list_transactions(cluster, longer_than_ms=duration, pattern=options.transactional_id_pattern)
    except ClientError as error:
        why = str(error)
        if isinstance(error, RequestRefused):
            why = f"ListTransactions request sent to broker {min(cluster.brokers())} failed with an unexpected exception"
        raise _failed("Failed to list transactions", why) from error
    rows = [(it.transactional_id, it.coordinator, it.producer_id, it.state) for it in found]
    _table(("TransactionalId", "Coordinator", "ProducerId", "TransactionState"), rows)


def _describe(options: argparse.Namespace, cluster: ClusterClient) -> None:
    name = options.transactional_id
    found = describe_transactions(cluster, [name])[name]
    if isinstance(found, ClientError):
        unknown = found.code is ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
        reason = "because the ID could not be found" if unknown else "due to unexpected error"
        why = f"DescribeTransactions request for transactionalId `{name}` failed {reason}"
        raise _failed(f"Failed to describe transaction state of transactional-id `{name}`", _unexpected(found, why))
    header = (
        "CoordinatorId",
        "TransactionalId",
        "ProducerId",
        "ProducerEpoch",
        "TransactionState",
        "TransactionTimeoutMs",
        "CurrentTransactionStartTimeMs",
        "TransactionDurationMs",
        "TopicPartitions",
    )
    row = (
        found.coordinator,
        name,
        found.producer_id,
        found.producer_epoch,
        found.state,
        found.timeout_ms,
        found.start_ms,
        None if found.start_ms is None else now_ms() - found.start_ms,
        ",".join(f"{topic}-{index}" for topic, index in found.partitions),
    )
    _table(header, [row])


def _describe_producers(options: argparse.Namespace, cluster: ClusterClient) -> None:
    partition = (options.topic, options.partition)
    name, broker = f"{options.topic}-{options.partition}", options.broker_id
    where = "leader" if broker is None else f"broker {broker}"
    try:
        found = describe_producers(cluster, [partition], broker=broker)[partition]
    except ClientError as error:
        raise _failed(f"Failed to describe producers for partition {name} on {where}", str(error)) from error
    if isinstance(found, ClientError):
        raise _failed(f"Failed to describe producers for partition {name} on {where}", _not_described(partition, broker, found))
    header = (
        "ProducerId",
        "ProducerEpoch",
        "LatestCoordinatorEpoch",
        "LastSequence",
        "LastTimestamp",
        "CurrentTransactionStartOffset",
    )
    rows = [
        (
            it.producer_id,
            it.producer_epoch,
            NOT_SET if it.coordinator_epoch is None else it.coordinator_epoch,
            it.last_sequence,
            it.last_timestamp_ms,
            it.start_offset,
        )
        for it in found
    ]
    _table(header, rows)


def _not_described(partition: Partition, broker: int | None, error: ClientError) -> str:
    """Say why the producers of a partition are not told. Kafka's client asks again for what there is not until its time is up."""
    name = f"{partition[0]}-{partition[1]}"
    if not isinstance(error, RequestRefused):
        return str(error)
    if broker is not None:
        return f"Failed to describe active producers for partition {name} on brokerId {broker}"
    if not _valid(partition[0]):
        return f"Failed to fetch metadata for partition {name} due to invalid topic `{partition[0]}`"
    if error.code in (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.LEADER_NOT_AVAILABLE):
        return f"Failed to describe active producers for partition {name}: {TEXTS[error.code].rstrip('.')}"
    return f"Failed to describe active producers for partition {name} due to unexpected error"


def _valid(topic: str) -> bool:
    try:
        validate_topic_name(topic)
    except ApiError:
        return False
    return True


def _abort(options: argparse.Namespace, cluster: ClusterClient) -> None:
    abort = _abort_spec(options, cluster)
    name = f"{abort.partition[0]}-{abort.partition[1]}"
    spec = (
        f"AbortTransactionSpec(topicPartition={name}, producerId={abort.producer_id}, producerEpoch={abort.producer_epoch}, "
        f"coordinatorEpoch={abort.coordinator_epoch})"
    )
    try:
        abort_transaction(cluster, abort)
    except ClientError as error:
        asked = f"WriteTxnMarkers request with {spec} failed"
        if error.code is ErrorCode.INVALID_PRODUCER_EPOCH:
            why = f"{asked} due an invalid producer epoch"
        elif error.code is ErrorCode.TRANSACTION_COORDINATOR_FENCED:
            epoch = abort.coordinator_epoch
            why = f"{asked} since the provided coordinator epoch {epoch} has been fenced by the active coordinator"
        elif error.code is None:
            why = str(error)
        else:
            why = f"{asked} due to unexpected error: {java_exception(error.code).partition(': ')[2]}"
        raise _failed(f"Failed to abort transaction {spec}", why) from error


def _abort_spec(options: argparse.Namespace, cluster: ClusterClient) -> Abort:
    partition = (options.topic, options.partition)
    name = f"{options.topic}-{options.partition}"
    if options.start_offset is not None:
        try:
            return abort_at(cluster, partition, options.start_offset)
        except NoSuchTransaction:
            text = f"Could not find any open transactions starting at offset {options.start_offset} on partition {name}"
            raise Failed(text) from None
        except ClientError as error:
            why = _not_described(partition, None, error)
            raise _failed(f"Failed to validate producer state for partition {name}", why) from error
    if options.producer_id is None:
        raise Failed(
            "The transaction to abort must be identified either with --start-offset (for brokers on 3.0 or above) or with "
            "--producer-id, --producer-epoch, and --coordinator-epoch (for older brokers)"
        )
    for missing in ("producer_epoch", "coordinator_epoch"):
        if getattr(options, missing) is None:
            raise Failed(f"Missing required argument --{missing.replace('_', '-')}")
    # A producer whose first transaction hangs has no coordinator epoch yet: 0 is not above that of any coordinator.
    return Abort(partition, options.producer_id, options.producer_epoch, max(0, options.coordinator_epoch))


def _find_hanging(options: argparse.Namespace, cluster: ClusterClient) -> None:
    topic, partition, broker = options.topic, options.partition, options.broker_id
    if topic is None and broker is None:
        raise Failed("The `find-hanging` command requires either --topic or --broker-id to limit the scope of the search")
    if partition is not None and topic is None:
        raise Failed("The --partition argument requires --topic to be provided")
    try:
        wanted = partitions_of(cluster, topic, partition, broker)
    except NoSuchTopic:
        valid = topic is None or _valid(topic)
        reason = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if valid else ErrorCode.INVALID_TOPIC_EXCEPTION
        raise _failed("Failed to describe 1 topics", TEXTS[reason]) from None
    since_ms = now_ms() - options.max_transaction_timeout * MINUTE_MS
    try:
        candidates = open_transactions(cluster, wanted, broker=broker, since_ms=since_ms)
    except ClientError as error:
        where = "Optional.empty" if broker is None else f"Optional[{broker}]"
        why = _not_described(error.partition, broker, error) if isinstance(error, NotDescribed) else str(error)
        raise _failed(f"Failed to describe producers for {len(wanted)} partitions on broker {where}", why) from error
    try:
        found = hanging(cluster, candidates)
    except ClientError as error:
        producers = len({one.producer.producer_id for one in candidates})
        raise _failed(f"Failed to list transactions for {producers} producers", str(error)) from error
    header = (
        "Topic",
        "Partition",
        "ProducerId",
        "ProducerEpoch",
        "CoordinatorEpoch",
        "StartOffset",
        "LastTimestamp",
        "Duration(min)",
    )
    at_ms = now_ms()
    rows = [
        (
            *one.partition,
            one.producer.producer_id,
            one.producer.producer_epoch,
            NOT_SET if one.producer.coordinator_epoch is None else one.producer.coordinator_epoch,
            one.producer.start_offset,
            one.producer.last_timestamp_ms,
            (at_ms - one.producer.last_timestamp_ms) // MINUTE_MS,
        )
        for one in found
    ]
    _table(header, rows)


def _force_terminate(options: argparse.Namespace, cluster: ClusterClient) -> None:
    name = options.transactionalId
    try:
        fence_producer(cluster, name)
    except ClientError as error:
        why = f"InitProducerId request for transactionalId `{name}` failed due to unexpected error"
        raise _failed(f"Failed to force terminate transactionalId `{name}`", _unexpected(error, why)) from error


_ACTIONS: Final[dict[str, Callable[[argparse.Namespace, ClusterClient], None]]] = {
    "list": _list,
    "describe": _describe,
    "describe-producers": _describe_producers,
    "abort": _abort,
    "find-hanging": _find_hanging,
    "forceTerminateTransaction": _force_terminate,
}
