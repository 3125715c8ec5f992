"""group reset-offsets, in the layout of kafka-consumer-groups --reset-offsets (TO-28)."""

from __future__ import annotations

import csv
import io
import re
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from kraftlite.cli.error_texts import explained
from kraftlite.cli.files import read_text
from kraftlite.cli.group_view import (
    columns,
    committed_offsets,
    describe_groups,
    list_groups,
    log_offsets,
    selected,
    told,
)
from kraftlite.cli.target import Target, target_options
from kraftlite.cli.times import since_1970_ms
from kraftlite.client.errors import ClientError
from kraftlite.model.errors import ErrorCode
from kraftlite.model.limits import MAX_INT32, MAX_INT64
from kraftlite.protocol.record_requests import EARLIEST, LATEST

if TYPE_CHECKING:
    from kraftlite.client.cluster import ClusterClient, Partition

_DURATION = re.compile(r"P(?:(\d+)D)?(?:T(?=\d)(?:(\d+)H)?(?:(\d+)M)?(?:(\d+(?:\.\d+)?)S)?)?")
INACTIVE = ("Empty", "Dead")
_CSV_ALLOWED = "allowed is [group,]topic,partition,offset"


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
@target_options
def reset_offsets(
    groups: tuple[str, ...],
    all_groups: bool,
    topics: tuple[str, ...],
    all_topics: bool,
    execute: bool,
    dry_run: bool,
    export: bool,
    target: Target,
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
    cluster = target.cluster()
    names = [group.group for group in list_groups(cluster)] if all_groups else list(dict.fromkeys(groups))
    active = [f"'{view.group}' is {view.state}" for view in describe_groups(cluster, names) if view.state not in INACTIVE]
    if active:
        raise click.ClickException(f"Assignments can only be reset if the group is inactive, but {', '.join(active)}.")
    plans = plans_of(cluster, names, wanted, topics, several=len(names) > 1)
    carry_out(cluster, plans, execute=execute, export=export, several=len(names) > 1)


def carry_out(
    cluster: ClusterClient, plans: Mapping[str, Mapping[Partition, int]], *, execute: bool, export: bool, several: bool
) -> None:
    """Commit the new offsets if so told, and print them: as a table, or (`export`) as the rows that `--from-file` takes, which
    name the group where there are `several`."""
    if execute:
        for name, planned in plans.items():
            _commit(cluster, name, planned)
    rows = [(name, *partition, offset) for name, offsets in plans.items() for partition, offset in sorted(offsets.items())]
    if export:
        for row in rows:
            click.echo(",".join(str(cell) for cell in (row if several else row[1:])))
    else:
        columns(("GROUP", "TOPIC", "PARTITION", "NEW-OFFSET"), rows, (15, 15, 10, 15))


class NothingCommitted(click.ClickException):
    """An offset that does not exist cannot be shifted."""


def plans_of(
    cluster: ClusterClient, names: Sequence[str], wanted: Reset, topics: Sequence[str], *, several: bool
) -> dict[str, dict[Partition, int]]:
    """Compute the new offsets of each group. `several`: a file names the groups, too. ClickException for what cannot be."""
    committed = {
        name: {partition: one.offset for partition, one in offsets.items()}
        for name, offsets in committed_offsets(cluster, names).items()
    }
    return {name: plan(cluster, name, committed[name], wanted, topics, several=several) for name in names}


def plan(
    cluster: ClusterClient,
    group: str,
    committed: Mapping[Partition, int],
    wanted: Reset,
    topics: Sequence[str],
    *,
    several: bool,
) -> dict[Partition, int]:
    """Compute the new offset of each partition."""
    if wanted.from_file is not None:
        asked = read_csv(wanted.from_file, group, several=several)
        if not asked:
            click.echo(f"No reset plan for group {group} found in {wanted.from_file}", err=True)
        return clamp(cluster, asked)
    partitions = selected(cluster, topics, committed)
    if wanted.to_earliest:
        return log_offsets(cluster, partitions, EARLIEST, sure=True)
    ends = log_offsets(cluster, partitions, LATEST, sure=True)
    if wanted.to_latest:
        return ends
    if wanted.to_current:
        return {
            partition: committed.get(partition, ends[partition]) for partition in partitions if partition in {**ends, **committed}
        }
    if wanted.to_offset is not None:
        return clamp(cluster, dict.fromkeys(partitions, wanted.to_offset), ends)
    if wanted.shift_by is not None:
        missing = [f"{topic}-{index}" for topic, index in partitions if (topic, index) not in committed]
        if missing:
            raise NothingCommitted(f"Cannot shift offset for partition {', '.join(missing)}: nothing is committed")
        return clamp(cluster, {partition: committed[partition] + wanted.shift_by for partition in partitions}, ends)
    if wanted.to_datetime is not None:
        when_ms = datetime_ms(wanted.to_datetime)
    else:
        assert wanted.by_duration is not None, "one scenario is given"
        when_ms = int(time.time() * 1000) - duration_ms(wanted.by_duration)
    if when_ms < 0:  # to the broker these are special, or nothing
        raise click.UsageError("times before 1970 cannot be looked up; --to-earliest is the first offset of all")
    later = log_offsets(cluster, partitions, when_ms, sure=True)
    for topic, index in sorted({*ends} - {*later}):
        note = f"Partition {index} from topic {topic} has no record of that time or later: its new offset is its end."
        click.echo(note, err=True)
    return {**ends, **later}


def clamp(
    cluster: ClusterClient,
    asked: Mapping[Partition, int],
    ends: Mapping[Partition, int] | None = None,
    find: Callable[[ClusterClient, Iterable[Partition], int], dict[Partition, int]] = log_offsets,
) -> dict[Partition, int]:
    """Into [start, end] of each log; a note on standard error for each that was out of range."""
    starts = find(cluster, asked, EARLIEST)
    ends = find(cluster, asked, LATEST) if ends is None else ends
    found = {}
    for partition, offset in asked.items():
        if partition not in starts or partition not in ends:
            raise click.ClickException(f"{partition[0]}-{partition[1]} has no leader to ask for its offsets")
        found[partition] = min(max(offset, starts[partition]), ends[partition])
        if found[partition] != offset:
            side = "lower than earliest" if offset < starts[partition] else "higher than latest"
            click.echo(f"New offset ({offset}) is {side} offset for {partition[0]}-{partition[1]}.", err=True)
    return found


def _commit(cluster: ClusterClient, group: str, offsets: Mapping[Partition, int]) -> None:
    from kraftlite.client.groups import alter_offsets

    if not offsets:
        return
    try:
        codes = alter_offsets(cluster, group, offsets)
    except ClientError as error:
        raise click.ClickException(f"group {group}: {told(error)}") from None
    failed = [f"{topic}-{index}: {explained(code)}" for (topic, index), code in codes.items() if code is not ErrorCode.NONE]
    if failed:
        raise click.ClickException("; ".join(failed))


def read_csv(path: Path, group: str, *, several: bool) -> dict[Partition, int]:
    """`topic,partition,offset` per line, or with several groups `group,topic,partition,offset`."""
    found: dict[Partition, int] = {}
    try:
        text = read_text(path)
    except ValueError as error:
        raise click.ClickException(f"{path}: {error}; {_CSV_ALLOWED}") from None
    except OSError as error:
        raise click.ClickException(f"{path}: {error.strerror}") from None
    rows = csv.reader(io.StringIO(text, newline=""))
    try:
        for row in rows:
            if not row:
                continue
            cells = row[1:] if len(row) == 4 else row
            if len(row) not in (3, 4) or (several and len(row) != 4):
                raise ValueError
            partition, offset = _at_most(cells[1], MAX_INT32), _at_most(cells[2], MAX_INT64)
            if len(row) == 3 or row[0].strip() == group:
                found[cells[0].strip(), partition] = offset
    except (ValueError, csv.Error):
        raise click.ClickException(f"{path}:{rows.line_num}: {_CSV_ALLOWED}") from None
    return found


def _at_most(cell: str, most: int) -> int:
    """Raises ValueError."""
    digits = cell.strip()
    if not digits.isdecimal() or len(digits) > 30 or int(digits) > most:
        raise ValueError(digits)
    return int(digits)


def datetime_ms(text: str) -> int:
    """Without a zone it is UTC, as in Kafka's tool."""
    try:
        when = datetime.fromisoformat(text)
    except ValueError:
        raise click.UsageError(f"--to-datetime {text}: allowed is YYYY-MM-DDThh:mm:ss[.sss][zone]") from None
    return since_1970_ms(when if when.tzinfo is not None else when.replace(tzinfo=UTC))


def duration_ms(text: str) -> int:
    match = _DURATION.fullmatch(text.upper())
    if match is None or not any(match.groups()):
        raise click.UsageError(f"--by-duration {text}: allowed is an ISO 8601 duration such as P1DT2H30M or PT90S")
    days, hours, minutes, seconds = (float(part) if part else 0.0 for part in match.groups())
    found = (((days * 24 + hours) * 60 + minutes) * 60 + seconds) * 1000
    if found > MAX_INT64:
        raise click.UsageError(f"--by-duration {text[:40]}: that is more than a time can be")
    return int(found)
