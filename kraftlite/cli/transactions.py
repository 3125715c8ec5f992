"""transactions list, describe, describe-producers, find-hanging, abort and fence (TA-01 to TA-07)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from kraftlite.cli.common import output_option, print_json, print_table
from kraftlite.cli.target import Target, target_options
from kraftlite.cli.transaction_view import (
    DEFAULT_MAX_TIMEOUT_MIN,
    MINUTE_MS,
    STATES,
    NoSuchTopic,
    NoSuchTransaction,
    abort_at,
    hanging,
    now_ms,
    open_transactions,
    partitions_of,
)
from kraftlite.client.errors import ClientError
from kraftlite.client.transactions import (
    NOT_SET,
    abort_transaction,
    describe_producers,
    describe_transactions,
    fence_producer,
    list_transactions,
)
from kraftlite.model.shown import printable

if TYPE_CHECKING:
    from kraftlite.client.transactions import TransactionDescription


@click.command("list")
@click.option(
    "--state",
    multiple=True,
    type=click.Choice(STATES, case_sensitive=False),
    metavar="STATE",
    help="Only ids in this state, as Ongoing.",
)
@click.option("--producer-id", type=int, multiple=True, metavar="ID", help="Only the ids that have these producer ids.")
@click.option("--longer-than-ms", type=click.IntRange(min=0), default=None, metavar="MS", help="Only what runs for longer.")
@click.option("--pattern", metavar="REGEX", help="Only ids that match as a whole.")
@target_options
@output_option
def list_command(
    state: tuple[str, ...],
    producer_id: tuple[int, ...],
    longer_than_ms: int | None,
    pattern: str | None,
    target: Target,
    output: str,
) -> None:
    """The transactional ids that the brokers coordinate."""
    longer = NOT_SET if longer_than_ms is None else longer_than_ms
    cluster = target.cluster()
    found = list_transactions(cluster, states=state, producer_ids=producer_id, longer_than_ms=longer, pattern=pattern)
    if output == "json":
        print_json([it._asdict() for it in sorted(found)])
        return
    print_table(("TRANSACTIONAL-ID", "COORDINATOR", "PRODUCER-ID", "STATE"), sorted(found))


@click.command("describe")
@click.argument("transactional_ids", nargs=-1, required=True)
@target_options
@output_option
def describe_command(transactional_ids: tuple[str, ...], target: Target, output: str) -> None:
    """Describe TRANSACTIONAL_IDS: state, producer, age, partitions. Exit 1 when one cannot be described."""
    found = describe_transactions(target.cluster(), transactional_ids)
    known = {name: it for name, it in found.items() if not isinstance(it, ClientError)}
    if output == "json":
        print_json([{"transactional_id": name, **it._asdict()} for name, it in known.items()])
    elif known:
        header = ("TRANSACTIONAL-ID", "STATE", "COORDINATOR", "PRODUCER-ID", "EPOCH", "TIMEOUT-MS", "AGE-MS", "PARTITIONS")
        print_table(header, [_row(name, it) for name, it in known.items()])
    failed = [f"{printable(name)}: {it}" for name, it in found.items() if isinstance(it, ClientError)]
    if failed:
        raise click.ClickException("; ".join(failed))


def _row(name: str, it: TransactionDescription) -> Sequence[object]:
    age_ms = None if it.start_ms is None else now_ms() - it.start_ms
    partitions = ",".join(f"{topic}-{index}" for topic, index in it.partitions) or None
    return name, it.state, it.coordinator, it.producer_id, it.producer_epoch, it.timeout_ms, age_ms, partitions


@click.command("describe-producers")
@click.argument("topic")
@click.argument("partition", type=int)
@click.option("--broker", type=int, metavar="ID", help="Ask this broker, which has a replica, instead of the leader.")
@target_options
@output_option
def producers_command(topic: str, partition: int, broker: int | None, target: Target, output: str) -> None:
    """The producers that wrote to a partition of late, and which have a transaction open there."""
    found = describe_producers(target.cluster(), [(topic, partition)], broker=broker)[topic, partition]
    if isinstance(found, ClientError):
        raise found
    if output == "json":
        print_json([it._asdict() for it in found])
        return
    print_table(("PRODUCER-ID", "EPOCH", "LAST-SEQUENCE", "LAST-TIMESTAMP", "COORDINATOR-EPOCH", "OPEN-SINCE-OFFSET"), found)


@click.command("find-hanging")
@click.option("--topic", metavar="NAME", help="Only this topic.")
@click.option("--partition", type=int, metavar="N", help="Only this partition of it.")
@click.option("--broker", type=int, metavar="ID", help="Only what this broker has replicas of, as it knows it.")
@click.option(
    "--minutes",
    type=click.IntRange(min=0),
    default=DEFAULT_MAX_TIMEOUT_MIN,
    show_default=True,
    help="Only what was written to last before so many minutes.",
)
@target_options
@output_option
def find_hanging_command(
    topic: str | None, partition: int | None, broker: int | None, minutes: int, target: Target, output: str
) -> None:
    """Open transactions that no coordinator will end: their readers wait for ever. `abort` ends one."""
    if partition is not None and topic is None:
        raise click.UsageError("--partition needs --topic")
    cluster = target.cluster()
    since_ms = now_ms() - minutes * MINUTE_MS
    if broker is not None and broker not in (nodes := cluster.brokers()):
        raise click.ClickException(f"broker {broker} is not there; live brokers are {', '.join(map(str, nodes))}")
    try:
        wanted = partitions_of(cluster, topic, partition, broker)
    except NoSuchTopic:
        raise click.ClickException(f"Topic '{printable(topic or '')}' does not exist as expected") from None
    found = hanging(cluster, open_transactions(cluster, wanted, broker=broker, since_ms=since_ms))
    if output == "json":
        print_json([{"topic": it.partition[0], "partition": it.partition[1], **it.producer._asdict()} for it in found])
        return
    rows = [
        (*at, it.start_offset, it.producer_id, it.producer_epoch, it.coordinator_epoch, it.last_timestamp_ms) for at, it in found
    ]
    header = ("TOPIC", "PARTITION", "START-OFFSET", "PRODUCER-ID", "EPOCH", "COORDINATOR-EPOCH", "LAST-TIMESTAMP")
    print_table(header, rows)


@click.command("abort")
@click.argument("topic")
@click.argument("partition", type=int)
@click.argument("start_offset", type=int)
@target_options
def abort_command(topic: str, partition: int, start_offset: int, target: Target) -> None:
    """Abort the transaction that begins at START_OFFSET in one partition, whether or not a coordinator knows it."""
    cluster = target.cluster()
    try:
        abort = abort_at(cluster, (topic, partition), start_offset)
    except NoSuchTransaction:
        raise click.ClickException(f"no open transaction begins at offset {start_offset} of {topic}-{partition}") from None
    abort_transaction(cluster, abort)
    click.echo(f"Aborted the transaction of producer {abort.producer_id} in {printable(topic)}-{partition}.")


@click.command("fence")
@click.argument("transactional_id")
@target_options
def fence_command(transactional_id: str, target: Target) -> None:
    """Take TRANSACTIONAL_ID away from its producer, which aborts its transaction. The producer fails; a new one may begin."""
    producer_id, epoch = fence_producer(target.cluster(), transactional_id)
    click.echo(f"Fenced {printable(transactional_id)}: producer {producer_id}, epoch {epoch}.")
