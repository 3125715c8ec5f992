"""group list, describe, delete and delete-offsets, in the layout of kafka-consumer-groups (TO-27, TO-28)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import click

from kraftlite.cli.common import output_option, print_json
from kraftlite.cli.group_view import (
    columns,
    committed_offsets,
    coordinator_text,
    describe_groups,
    list_groups,
    log_offsets,
    selected,
    told,
)
from kraftlite.cli.target import Target, target_options
from kraftlite.client.errors import ClientError, RequestRefused
from kraftlite.model.errors import ErrorCode
from kraftlite.model.shown import printable
from kraftlite.protocol.record_requests import LATEST

if TYPE_CHECKING:
    from kraftlite.client.cluster import ClusterClient, Partition
    from kraftlite.client.groups import Committed, GroupDescription

OFFSET_COLUMNS = (
    "GROUP",
    "TOPIC",
    "PARTITION",
    "CURRENT-OFFSET",
    "LOG-END-OFFSET",
    "LAG",
    "CONSUMER-ID",
    "HOST",
    "CLIENT-ID",
)
STATES = ("Empty", "PreparingRebalance", "CompletingRebalance", "Stable", "Dead", "Assigning", "Reconciling", "NotReady")
KINDS = ("Classic", "Consumer", "Share", "Streams")
"""The states and types of groups, those of an Apache Kafka, too."""
OFFSET_WIDTHS = (15, 15, 10, 15, 15, 15, 15, 15, 0)


@click.command("list")
@click.option("--state", is_flag=False, flag_value="", default=None, metavar="STATE,…", help="Show states; only these.")
@click.option("--type", "kind", is_flag=False, flag_value="", default=None, metavar="TYPE,…", help="Show types; only these.")
@target_options
@output_option
def list_groups_command(state: str | None, kind: str | None, target: Target, output: str) -> None:
    """Names of all groups, one a line."""
    states, kinds = _chosen("--state", state, STATES), _chosen("--type", kind, KINDS)
    found = [
        group
        for group in list_groups(target.cluster())
        if (not states or group.state.lower() in states) and (not kinds or group.kind.lower() in kinds)
    ]
    if output == "json":
        print_json([{"group": name, "state": its_state, "type": its_kind} for name, its_state, its_kind in found])
    elif state is None and kind is None:
        for name, _, _ in found:
            click.echo(printable(name))
    else:
        shown = [0] + ([2] if kind is not None else []) + ([1] if state is not None else [])
        header = ("GROUP", "STATE", "TYPE")
        first = 10 + max(15, *(len(group[0]) for group in found), 15)
        rows = [[group[i] for i in shown] for group in found]
        columns([header[i] for i in shown], rows, [first, 20, 20][: len(shown)], before=False)


def _chosen(option: str, text: str | None, known: Sequence[str]) -> set[str]:
    found = {one.strip().lower(): one.strip() for one in (text or "").split(",") if one.strip()}
    for lower, one in found.items():
        if lower not in {name.lower() for name in known}:
            raise click.UsageError(f"{option} {one}: allowed are {', '.join(known)}")
    return set(found)


@click.command("describe")
@click.argument("groups", nargs=-1)
@click.option("--all-groups", is_flag=True, help="Every group.")
@click.option("--offsets", "what", flag_value="offsets", default=True, help="Positions and lag (default).")
@click.option("--members", "what", flag_value="members", help="Who is in the group.")
@click.option("--state", "what", flag_value="state", help="State, coordinator and strategy.")
@click.option("--verbose", is_flag=True, help="Epochs, and with --members who has which partitions.")
@target_options
@output_option
def describe(groups: tuple[str, ...], all_groups: bool, what: str, verbose: bool, target: Target, output: str) -> None:
    """Describe GROUPS: where they stand, who is in them, or their state. Exit 1 when one does not exist."""
    cluster = target.cluster()
    views = describe_groups(cluster, _names(cluster, groups, all_groups))
    there = [view for view in views if view.exists]
    offsets = offset_rows(cluster, there) if output == "json" or what == "offsets" else {}
    if output == "json":
        print_json([_as_json(view, offsets[view.group]) for view in there])
    else:
        for view in there:
            _note(view)
            if what == "offsets":
                _show_offsets(offsets[view.group], verbose)
            elif what == "members":
                _show_members(view, verbose)
            else:
                _show_state(view, verbose)
    missing = [view.group for view in views if not view.exists]
    if missing:
        raise click.ClickException("; ".join(f"Consumer group '{group}' does not exist." for group in missing))


def _names(cluster: ClusterClient, groups: Sequence[str], all_groups: bool) -> list[str]:
    if bool(groups) == all_groups:
        raise click.UsageError("give either GROUPS or --all-groups")
    return [group.group for group in list_groups(cluster)] if all_groups else list(dict.fromkeys(groups))


def _note(view: GroupDescription) -> None:
    """Print a note on standard error, as Kafka's tool does."""
    if view.state == "Empty":
        click.echo(f"\nConsumer group '{printable(view.group)}' has no active members.", err=True)
    elif view.state in ("PreparingRebalance", "CompletingRebalance"):
        click.echo(f"\nWarning: Consumer group '{printable(view.group)}' is rebalancing.", err=True)


OffsetRow = tuple["Partition", "Committed | None", tuple[Any, ...]]
"""A partition, what is committed there, and the columns of `OFFSET_COLUMNS`."""


def offset_rows(cluster: ClusterClient, views: Sequence[GroupDescription]) -> dict[str, list[OffsetRow]]:
    """By group: a row for each partition in which it has committed, or which a member has."""
    committed = committed_offsets(cluster, [view.group for view in views])
    owners = {view.group: {partition: member for member in view.members for partition in member.partitions} for view in views}
    partitions = {view.group: sorted({*committed[view.group], *owners[view.group]}) for view in views}
    ends = log_offsets(cluster, sorted({one for theirs in partitions.values() for one in theirs}), LATEST)
    found: dict[str, list[OffsetRow]] = {}
    for view in views:
        rows = found[view.group] = []
        for partition in partitions[view.group]:
            at, owner = committed[view.group].get(partition), owners[view.group].get(partition)
            current, end = None if at is None else at.offset, ends.get(partition)
            lag = None if current is None or end is None else max(end - current, 0)
            member = (None, None, None) if owner is None else (owner.member_id, owner.host, owner.client_id)
            rows.append((partition, at, (view.group, *partition, current, end, lag, *member)))
    return found


def _show_offsets(rows: Sequence[OffsetRow], verbose: bool) -> None:
    if not rows:
        return
    if not verbose:
        columns(OFFSET_COLUMNS, [row for _partition, _at, row in rows], OFFSET_WIDTHS)
        return
    wide = [(*row[:3], None if at is None else at.leader_epoch, *row[3:]) for _partition, at, row in rows]
    columns((*OFFSET_COLUMNS[:3], "LEADER-EPOCH", *OFFSET_COLUMNS[3:]), wide, (*OFFSET_WIDTHS[:3], 15, *OFFSET_WIDTHS[3:]))


def _show_members(view: GroupDescription, verbose: bool) -> None:
    static = any(member.instance_id for member in view.members)
    header = ["GROUP", "CONSUMER-ID", *(["GROUP-INSTANCE-ID"] if static else []), "HOST", "CLIENT-ID", "#PARTITIONS"]
    rows: list[list[Any]] = []
    for member in view.members:
        row: list[Any] = [view.group, member.member_id, *([member.instance_id] if static else []), member.host, member.client_id]
        row.append(len(member.partitions))
        if verbose:
            target = None if member.target is None else assignment_text(member.target)
            row += [member.epoch, assignment_text(member.partitions), view.target_epoch, target]
        rows.append(row)
    more = ["CURRENT-EPOCH", "CURRENT-ASSIGNMENT", "TARGET-EPOCH", "TARGET-ASSIGNMENT"] if verbose else []
    columns([*header, *more], rows, [15] * len(header) + ([15, 20, 15, 20] if verbose else []))


def assignment_text(partitions: Sequence[Partition]) -> str | None:
    """`orders:0,2;payments:1`."""
    by_topic: dict[str, list[int]] = {}
    for topic, index in partitions:
        by_topic.setdefault(topic, []).append(index)
    return ";".join(f"{topic}:{','.join(map(str, indexes))}" for topic, indexes in by_topic.items()) or None


def _show_state(view: GroupDescription, verbose: bool) -> None:
    row: list[Any] = [view.group, coordinator_text(view.coordinator), view.strategy or None, view.state]
    header = ["GROUP", "COORDINATOR (ID)", "ASSIGNMENT-STRATEGY", "STATE"]
    if verbose:
        header += ["GROUP-EPOCH", "TARGET-ASSIGNMENT-EPOCH"]
        row += [view.group_epoch, view.target_epoch]
    widths = (15, 25, 20, 20, *((15, 25) if verbose else ()), 0)
    columns([*header, "#MEMBERS"], [[*row, len(view.members)]], widths)


def _as_json(view: GroupDescription, offsets: Sequence[OffsetRow]) -> dict[str, Any]:
    names = ("topic", "partition", "current_offset", "log_end_offset", "lag", "consumer_id", "host", "client_id")
    return {
        "group": view.group,
        "state": view.state,
        "coordinator": coordinator_text(view.coordinator),
        "assignment_strategy": view.strategy,
        "members": [
            {
                "consumer_id": member.member_id,
                "group_instance_id": member.instance_id,
                "host": member.host,
                "client_id": member.client_id,
                "partitions": [{"topic": topic, "partition": index} for topic, index in member.partitions],
            }
            for member in view.members
        ],
        "offsets": [dict(zip(names, row[1:], strict=True)) for _partition, _at, row in offsets],
    }


@click.command("delete")
@click.argument("groups", nargs=-1)
@click.option("--all-groups", is_flag=True, help="Every group.")
@target_options
def delete(groups: tuple[str, ...], all_groups: bool, target: Target) -> None:
    """Delete GROUPS without members, and their offsets. Exit 1 when one could not be deleted."""
    cluster = target.cluster()
    names = _names(cluster, groups, all_groups)
    if not names:
        return
    done, failed = delete_groups(cluster, names, told)
    if not failed:
        click.echo(f"Deletion of requested consumer groups ({quoted(done)}) was successful.")
        return
    if done:
        click.echo(f"These consumer groups were deleted successfully: {quoted(done)}")
    raise click.ClickException("\n".join(["Deletion of some consumer groups failed:", *failed]))


def delete_groups(
    cluster: ClusterClient, names: Sequence[str], reason: Callable[[ClientError], str]
) -> tuple[list[str], list[str]]:
    """(deleted, a line for each that was not, with the `reason` of its error)."""
    from kraftlite.client import groups

    done, failed = [], []
    for name, error in groups.delete_groups(cluster, names).items():
        if error is None:
            done.append(name)
        else:
            failed.append(f"* Group '{printable(name)}' could not be deleted due to: {reason(error)}")
    return done, failed


def quoted(names: Sequence[str]) -> str:
    return ", ".join(f"'{printable(name)}'" for name in names)


@click.command("delete-offsets")
@click.argument("group")
@click.option("--topic", "topics", multiple=True, required=True, metavar="TOPIC[:P,…]", help="Whose offsets; repeatable.")
@target_options
def delete_offsets(group: str, topics: tuple[str, ...], target: Target) -> None:
    """Delete offsets of GROUP for topics that it does not read. Exit 1 when one could not be deleted."""
    from kraftlite.client import groups

    cluster = target.cluster()
    try:
        results = groups.delete_offsets(cluster, group, selected(cluster, topics, ()))
    except RequestRefused as error:
        raise click.ClickException(f"{error.code.name}: offsets of group '{group}' were not deleted") from None
    click.echo(f"Request succeeded for deleting offsets from group {group}.")
    rows = [
        (topic, index, "Successful" if code is ErrorCode.NONE else f"Error: {code.name}")
        for (topic, index), code in results.items()
    ]
    columns(("TOPIC", "PARTITION", "STATUS"), rows, (15, 10, 15))
    if any(code is not ErrorCode.NONE for code in results.values()):
        raise click.ClickException("not all offsets were deleted")
