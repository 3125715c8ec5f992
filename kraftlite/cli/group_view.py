"""The questions of the group commands to a cluster, and the columns of Kafka's tool.

Source: TO-27; kafka-consumer-groups.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import click

from kraftlite.cli.error_texts import explained
from kraftlite.client.errors import ClientError, RequestRefused
from kraftlite.model.errors import ErrorCode
from kraftlite.model.shown import printable

if TYPE_CHECKING:
    from kraftlite.client.cluster import BrokerNode, ClusterClient, Partition
    from kraftlite.client.groups import Committed, GroupDescription, ListedGroup

MIN_WIDTH = 15


def told(error: ClientError) -> str:
    """Kafka's name of the error and its words; or what went wrong, when nobody answered."""
    return explained(error.code, error.message) if isinstance(error, RequestRefused) else str(error)


def coordinator_text(node: BrokerNode) -> str:
    """`host:port  (id)`."""
    return f"{node.address}  ({node.id})"


def list_groups(cluster: ClusterClient) -> list[ListedGroup]:
    """Groups by name. ClickException when a broker could not tell."""
    from kraftlite.client import groups

    try:
        return groups.list_groups(cluster)
    except RequestRefused as error:
        raise click.ClickException(f"not all groups are known: {told(error)}") from None


def describe_groups(cluster: ClusterClient, names: Sequence[str]) -> list[GroupDescription]:
    """Describe groups in the order asked; one that does not exist is Dead."""
    from kraftlite.client import groups

    views = []
    for name, found in groups.describe_groups(cluster, names).items():
        if isinstance(found, ClientError):
            raise click.ClickException(f"group {name}: {told(found)}")
        views.append(found)
    return views


def committed_offsets(cluster: ClusterClient, names: Sequence[str]) -> dict[str, dict[Partition, Committed]]:
    """Return the offsets that each group has committed."""
    from kraftlite.client import groups

    offsets = {}
    for name, found in groups.committed_offsets(cluster, names).items():
        if isinstance(found, ClientError):
            raise click.ClickException(f"offsets of group {name}: {told(found)}")
        offsets[name] = found
    return offsets


def log_offsets(
    cluster: ClusterClient, partitions: Iterable[Partition], timestamp: int, *, sure: bool = False
) -> dict[Partition, int]:
    """Look up where the logs end, start, or have a timestamp (ListOffsets). A partition that has no such offset is left out, and
    one that cannot say; with `sure` that is a ClickException, unless the partition is gone."""
    from kraftlite.client.admin import list_offsets

    wanted = dict.fromkeys(partitions, timestamp)
    if not wanted:
        return {}
    leaders = cluster.leaders(sorted({topic for topic, _index in wanted}))
    found = list_offsets(cluster, wanted, leaders)
    failed = [
        f"{topic}-{index}: {'it has no leader' if leaders[topic, index] is None else explained(code)}"
        for (topic, index), (code, _offset, _at) in sorted(found.items())
        if code is not ErrorCode.NONE and (topic, index) in leaders
    ]
    if sure and failed:
        raise click.ClickException(f"offsets of the log are not known: {'; '.join(failed)}")
    return {partition: offset for partition, (code, offset, _at) in found.items() if code is ErrorCode.NONE and offset >= 0}


def columns(
    header: Sequence[str], rows: Iterable[Sequence[object]], widths: Sequence[int] | None = None, *, before: bool = True
) -> None:
    """A table as Kafka's tool prints it: columns of at least `widths` (15), an empty line `before` it; absent values are `-`."""
    texts = [list(header), *[["-" if cell is None else printable(str(cell)) for cell in row] for row in rows]]
    least = [MIN_WIDTH] * len(header) if widths is None else list(widths)
    found = [max(least[i], *(len(row[i]) for row in texts)) for i in range(len(header))]
    if before:
        click.echo()
    for row in texts:
        click.echo(" ".join(cell.ljust(width) for cell, width in zip(row, found, strict=True)).rstrip())


def selected(cluster: ClusterClient, topics: Sequence[str], known: Iterable[Partition]) -> list[Partition]:
    """The partitions of `--topic t` or `--topic t:0,2`; `known` is the answer when no topic is named.
    ClickException for what there is not."""
    metadata = cluster.topics() if topics else {}
    found: dict[Partition, None] = {}
    for item in topics:
        name, colon, numbers = item.partition(":")
        if not name or (colon and not all(number.isdecimal() for number in numbers.split(","))):
            raise click.UsageError(f"--topic {item}: allowed is a topic, or topic:0,1,…")
        existing = sorted(int(one.partition_index) for one in metadata[name].partitions) if name in metadata else []
        wanted = [int(number) for number in numbers.split(",")] if colon else existing
        if not existing or not set(wanted) <= set(existing):
            missing = name if not existing else f"partition {sorted(set(wanted) - set(existing))} of {name}"
            raise click.ClickException(f"{missing} does not exist")
        found.update(dict.fromkeys((name, index) for index in wanted))
    return sorted(found) if topics else sorted(known)
