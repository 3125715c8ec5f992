"""group reset-offsets, in the layout of kafka-consumer-groups --reset-offsets (TO-28)."""

from __future__ import annotations

import csv
import re
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click

from kraftlite.cli.common import bootstrap_of, bootstrap_option
from kraftlite.cli.group_view import (
    REQUEST_TIMEOUT_S,
    Partition,
    at_time,
    columns,
    committed_offsets,
    describe_groups,
    earliest,
    latest,
    list_groups,
    log_offsets,
    selected,
)
from kraftlite.cli.kafka import admin, kafka_errors, result

_DURATION = re.compile(r"P(?:(\d+)D)?(?:T(?:(\d+)H)?(?:(\d+)M)?(?:(\d+(?:\.\d+)?)S)?)?")
INACTIVE = ("Empty", "Dead")


@dataclass(frozen=True)
class Reset:
    """The reset that was asked for: exactly one of Kafka's scenarios."""

    to_earliest: bool = False
    to_latest: bool = False
    to_current: bool = False
    to_offset: int | None = None
    shift_by: int | None = None
    to_datetime: str | None = None
    by_duration: str | None = None
    from_file: Path | None = None

    def check(self) -> None:
        flags = (self.to_earliest, self.to_latest, self.to_current)
        values = (self.to_offset, self.shift_by, self.to_datetime, self.by_duration, self.from_file)
        if sum(flags) + sum(value is not None for value in values) != 1:
            raise click.UsageError(
                "give exactly one of --to-earliest, --to-latest, --to-current, --to-offset, --shift-by, --to-datetime, "
                "--by-duration and --from-file"
            )


@click.command("reset-offsets")
@click.argument("groups", nargs=-1)
@click.option("--all-groups", is_flag=True, help="Every group.")
@click.option("--topic", "topics", multiple=True, metavar="TOPIC[:P,…]", help="Which partitions; repeatable.")
@click.option("--all-topics", is_flag=True, help="Every partition that the group has committed.")
@click.option("--to-earliest", is_flag=True, help="To the first offsets.")
@click.option("--to-latest", is_flag=True, help="To the ends.")
@click.option("--to-current", is_flag=True, help="To what is committed; where nothing is, to the end.")
@click.option("--to-offset", type=int, metavar="N", help="To this offset.")
@click.option("--shift-by", type=int, metavar="N", help="Forward by N, or back when negative.")
@click.option("--to-datetime", metavar="YYYY-MM-DDThh:mm:ss[.sss]", help="To the first record at that time or after it.")
@click.option("--by-duration", metavar="PnDTnHnMnS", help="To the first record not older than this.")
@click.option("--from-file", type=click.Path(path_type=Path, exists=True, dir_okay=False), help="CSV as --export prints it.")
@click.option("--execute", is_flag=True, help="Do it. Default: only show what would be done.")
@click.option("--dry-run", is_flag=True, help="Only show what would be done (default).")
@click.option("--export", is_flag=True, help="Print CSV, to keep for --from-file.")
@bootstrap_option
def reset_offsets(
    groups: tuple[str, ...],
    all_groups: bool,
    topics: tuple[str, ...],
    all_topics: bool,
    execute: bool,
    dry_run: bool,
    export: bool,
    bootstrap_server: str | None,
    **scenario: Any,
) -> None:
    """Set the committed offsets of GROUPS, which must have no members. Offsets out of range are clamped to the log."""
    wanted = Reset(**scenario)
    wanted.check()
    if bool(groups) == all_groups:
        raise click.UsageError("give either GROUPS or --all-groups")
    if wanted.from_file is None and bool(topics) == all_topics:
        raise click.UsageError("give either --topic or --all-topics")
    if execute and (dry_run or export):
        raise click.UsageError("--execute cannot be combined with --dry-run or --export")
    client = admin(bootstrap_of(bootstrap_server))
    names = [name for name, _, _ in list_groups(client)] if all_groups else list(dict.fromkeys(groups))
    active = [f"'{view.group}' is {view.state}" for view in describe_groups(client, names) if view.state not in INACTIVE]
    if active:
        raise click.ClickException(f"Assignments can only be reset if the group is inactive, but {', '.join(active)}.")
    plans = {name: _plan(client, name, wanted, topics, several=len(names) > 1) for name in names}
    if execute:
        for name, offsets in plans.items():
            _commit(client, name, offsets)
    rows = [(name, *partition, offset) for name, offsets in plans.items() for partition, offset in sorted(offsets.items())]
    if export:
        for row in rows:
            click.echo(",".join(str(cell) for cell in (row if len(names) > 1 else row[1:])))
    else:
        columns(("GROUP", "TOPIC", "PARTITION", "NEW-OFFSET"), rows, (15, 15, 10, 15))


def _plan(client: Any, group: str, wanted: Reset, topics: Sequence[str], *, several: bool) -> dict[Partition, int]:
    """Compute the new offset of each partition."""
    committed = committed_offsets(client, group)
    if wanted.from_file is not None:
        asked = read_csv(wanted.from_file, group, several=several)
        return clamp(client, asked)
    partitions = selected(client, topics, committed)
    if wanted.to_earliest:
        return log_offsets(client, partitions, earliest())
    ends = log_offsets(client, partitions, latest())
    if wanted.to_latest:
        return ends
    if wanted.to_current:
        return {partition: committed.get(partition, ends.get(partition, 0)) for partition in partitions}
    if wanted.to_offset is not None:
        return clamp(client, dict.fromkeys(partitions, wanted.to_offset), ends)
    if wanted.shift_by is not None:
        missing = [f"{topic}-{index}" for topic, index in partitions if (topic, index) not in committed]
        if missing:
            raise click.ClickException(f"Cannot shift offset for partition {', '.join(missing)}: nothing is committed")
        return clamp(client, {partition: committed[partition] + wanted.shift_by for partition in partitions}, ends)
    if wanted.to_datetime is not None:
        when_ms = datetime_ms(wanted.to_datetime)
    else:
        assert wanted.by_duration is not None, "one scenario is given"
        when_ms = int(time.time() * 1000) - duration_ms(wanted.by_duration)
    return {**ends, **log_offsets(client, partitions, at_time(when_ms))}


def clamp(
    client: Any,
    asked: Mapping[Partition, int],
    ends: Mapping[Partition, int] | None = None,
    find: Callable[[Any, Iterable[Partition], Any], dict[Partition, int]] = log_offsets,
) -> dict[Partition, int]:
    """Into [start, end] of each log; a note on standard error for each that was out of range."""
    starts = find(client, asked, earliest())
    ends = find(client, asked, latest()) if ends is None else ends
    found = {}
    for partition, offset in asked.items():
        if partition not in starts or partition not in ends:
            raise click.ClickException(f"{partition[0]}-{partition[1]} has no leader to ask for its offsets")
        found[partition] = min(max(offset, starts[partition]), ends[partition])
        if found[partition] != offset:
            side = "lower than earliest" if offset < starts[partition] else "higher than latest"
            click.echo(f"New offset ({offset}) is {side} offset for {partition[0]}-{partition[1]}.", err=True)
    return found


def _commit(client: Any, group: str, offsets: Mapping[Partition, int]) -> None:
    from confluent_kafka import ConsumerGroupTopicPartitions, TopicPartition

    if not offsets:
        return
    wanted = [TopicPartition(topic, index, offset) for (topic, index), offset in sorted(offsets.items())]
    request = [ConsumerGroupTopicPartitions(group, wanted)]
    futures = client.alter_consumer_group_offsets(request, request_timeout=REQUEST_TIMEOUT_S)
    with kafka_errors(f"group {group}"):
        done = result(futures[group])
    failed = [f"{tp.topic}-{tp.partition}: {tp.error.str()}" for tp in done.topic_partitions if tp.error is not None]
    if failed:
        raise click.ClickException("; ".join(failed))


def read_csv(path: Path, group: str, *, several: bool) -> dict[Partition, int]:
    """`topic,partition,offset` per line, or with several groups `group,topic,partition,offset`."""
    found: dict[Partition, int] = {}
    with path.open(newline="") as file:
        for number, row in enumerate(csv.reader(file), 1):
            if not row:
                continue
            cells = row[1:] if len(row) == 4 else row
            if len(row) not in (3, 4) or (several and len(row) != 4) or not all(cell.strip().isdecimal() for cell in cells[1:]):
                raise click.ClickException(f"{path}:{number}: allowed is [group,]topic,partition,offset")
            if len(row) == 3 or row[0].strip() == group:
                found[cells[0].strip(), int(cells[1])] = int(cells[2])
    return found


def datetime_ms(text: str) -> int:
    """Without a zone it is UTC, as in Kafka's tool."""
    try:
        when = datetime.fromisoformat(text)
    except ValueError:
        raise click.UsageError(f"--to-datetime {text}: allowed is YYYY-MM-DDThh:mm:ss[.sss][zone]") from None
    return int((when if when.tzinfo is not None else when.replace(tzinfo=UTC)).timestamp() * 1000)


def duration_ms(text: str) -> int:
    match = _DURATION.fullmatch(text.upper())
    if match is None or not any(match.groups()):
        raise click.UsageError(f"--by-duration {text}: allowed is an ISO 8601 duration such as P1DT2H30M or PT90S")
    days, hours, minutes, seconds = (float(part) if part else 0.0 for part in match.groups())
    return int((((days * 24 + hours) * 60 + minutes) * 60 + seconds) * 1000)
