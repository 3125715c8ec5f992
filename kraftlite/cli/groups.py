"""group list, describe, delete and delete-offsets, in the layout of kafka-consumer-groups (TO-27, TO-28)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import click

from kraftlite.cli.common import bootstrap_of, bootstrap_option, output_option, print_json, printable
from kraftlite.cli.group_view import (
    REQUEST_TIMEOUT_S,
    GroupView,
    Partition,
    columns,
    committed_epochs,
    committed_offsets,
    describe_groups,
    latest,
    list_groups,
    log_offsets,
    selected,
    with_epochs,
)
from kraftlite.cli.kafka import admin, kafka_message, result
from kraftlite.client.errors import ClientError
from kraftlite.local.client import cluster_at
from kraftlite.model.errors import ErrorCode
from kraftlite.protocol.api_keys import OFFSET_DELETE

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
OFFSET_WIDTHS = (15, 15, 10, 15, 15, 15, 15, 15, 0)


@click.command("list")
@click.option("--state", is_flag=False, flag_value="", default=None, metavar="STATE,…", help="Show states; only these.")
@click.option("--type", "kind", is_flag=False, flag_value="", default=None, metavar="TYPE,…", help="Show types; only these.")
@bootstrap_option
@output_option
def list_groups_command(state: str | None, kind: str | None, bootstrap_server: str | None, output: str) -> None:
    """Names of all groups, one a line."""
    states = {one.strip().lower() for one in (state or "").split(",") if one.strip()}
    kinds = {one.strip().lower() for one in (kind or "").split(",") if one.strip()}
    client = admin(bootstrap_of(bootstrap_server))
    found = [
        group
        for group in list_groups(client)
        if (not states or group[1].lower() in states) and (not kinds or group[2].lower() in kinds)
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
        columns([header[i] for i in shown], [[group[i] for i in shown] for group in found], [first, 20, 20][: len(shown)])


@click.command("describe")
@click.argument("groups", nargs=-1)
@click.option("--all-groups", is_flag=True, help="Every group.")
@click.option("--offsets", "what", flag_value="offsets", default=True, help="Positions and lag (default).")
@click.option("--members", "what", flag_value="members", help="Who is in the group.")
@click.option("--state", "what", flag_value="state", help="State, coordinator and strategy.")
@click.option("--verbose", is_flag=True, help="Epochs, and with --members who has which partitions.")
@bootstrap_option
@output_option
def describe(
    groups: tuple[str, ...], all_groups: bool, what: str, verbose: bool, bootstrap_server: str | None, output: str
) -> None:
    """Describe GROUPS: where they stand, who is in them, or their state. Exit 1 when one does not exist."""
    bootstrap = bootstrap_of(bootstrap_server)
    client = admin(bootstrap)
    names = _names(client, groups, all_groups)
    views = describe_groups(client, names)
    if verbose:
        views = [with_epochs(bootstrap, view) if view.exists else view for view in views]
    if output == "json":
        print_json([_as_json(client, view) for view in views if view.exists])
    else:
        for view in views:
            if view.exists:
                _note(view)
                _SHOW[what](client, view, verbose)
    missing = [view.group for view in views if not view.exists]
    if missing:
        raise click.ClickException("; ".join(f"Consumer group '{group}' does not exist." for group in missing))


def _names(client: Any, groups: Sequence[str], all_groups: bool) -> list[str]:
    if bool(groups) == all_groups:
        raise click.UsageError("give either GROUPS or --all-groups")
    return [name for name, _, _ in list_groups(client)] if all_groups else list(dict.fromkeys(groups))


def _note(view: GroupView) -> None:
    """Print a note on standard error, as Kafka's tool does."""
    if view.state == "Empty":
        click.echo(f"\nConsumer group '{printable(view.group)}' has no active members.", err=True)
    elif view.state in ("PreparingRebalance", "CompletingRebalance"):
        click.echo(f"\nWarning: Consumer group '{printable(view.group)}' is rebalancing.", err=True)


def offset_rows(client: Any, view: GroupView) -> list[tuple[Any, ...]]:
    """List committed and assigned partitions as rows: (group, topic, partition, current, end, lag, member, host, client)."""
    committed = committed_offsets(client, view.group)
    owners = {partition: member for member in view.members for partition in member.partitions}
    partitions: list[Partition] = sorted({*committed, *owners})
    ends = log_offsets(client, partitions, latest())
    rows = []
    for partition in partitions:
        current, end, owner = committed.get(partition), ends.get(partition), owners.get(partition)
        lag = None if current is None or end is None else max(end - current, 0)
        member = (None, None, None) if owner is None else (owner.member_id, owner.host, owner.client_id)
        rows.append((view.group, *partition, current, end, lag, *member))
    return rows


def _show_offsets(client: Any, view: GroupView, verbose: bool) -> None:
    rows = offset_rows(client, view)
    if not rows:
        return
    if not verbose:
        columns(OFFSET_COLUMNS, rows, OFFSET_WIDTHS)
        return
    epochs = committed_epochs(client, view.group)
    wide = [(*row[:3], epochs.get((row[1], row[2])), *row[3:]) for row in rows]
    columns((*OFFSET_COLUMNS[:3], "LEADER-EPOCH", *OFFSET_COLUMNS[3:]), wide, (*OFFSET_WIDTHS[:3], 15, *OFFSET_WIDTHS[3:]))


def _show_members(_client: Any, view: GroupView, verbose: bool) -> None:
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


def _show_state(_client: Any, view: GroupView, verbose: bool) -> None:
    row: list[Any] = [view.group, view.coordinator, view.strategy or None, view.state]
    header = ["GROUP", "COORDINATOR (ID)", "ASSIGNMENT-STRATEGY", "STATE"]
    if verbose:
        header += ["GROUP-EPOCH", "TARGET-ASSIGNMENT-EPOCH"]
        row += [view.group_epoch, view.target_epoch]
    widths = (15, 25, 20, 20, *((15, 25) if verbose else ()), 0)
    columns([*header, "#MEMBERS"], [[*row, len(view.members)]], widths)


_SHOW = {"offsets": _show_offsets, "members": _show_members, "state": _show_state}


def _as_json(client: Any, view: GroupView) -> dict[str, object]:
    names = ("topic", "partition", "current_offset", "log_end_offset", "lag", "consumer_id", "host", "client_id")
    return {
        "group": view.group,
        "state": view.state,
        "coordinator": view.coordinator,
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
        "offsets": [dict(zip(names, row[1:], strict=True)) for row in offset_rows(client, view)],
    }


@click.command("delete")
@click.argument("groups", nargs=-1)
@click.option("--all-groups", is_flag=True, help="Every group.")
@bootstrap_option
def delete(groups: tuple[str, ...], all_groups: bool, bootstrap_server: str | None) -> None:
    """Delete GROUPS without members, and their offsets. Exit 1 when one could not be deleted."""
    client = admin(bootstrap_of(bootstrap_server))
    names = _names(client, groups, all_groups)
    if not names:
        return
    done, failed = delete_groups(client, names, kafka_message)
    if not failed:
        click.echo(f"Deletion of requested consumer groups ({quoted(done)}) was successful.")
        return
    if done:
        click.echo(f"These consumer groups were deleted successfully: {quoted(done)}")
    raise click.ClickException("\n".join(["Deletion of some consumer groups failed:", *failed]))


def delete_groups(client: Any, names: Sequence[str], reason: Callable[[Any], str]) -> tuple[list[str], list[str]]:
    """(deleted, a line for each that was not, with the `reason` of its KafkaException)."""
    from confluent_kafka import KafkaException

    futures = client.delete_consumer_groups(list(names), request_timeout=REQUEST_TIMEOUT_S) if names else {}
    done, failed = [], []
    for name in names:
        try:
            result(futures[name])
            done.append(name)
        except KafkaException as error:
            failed.append(f"* Group '{printable(name)}' could not be deleted due to: {reason(error)}")
    return done, failed


def quoted(names: Sequence[str]) -> str:
    return ", ".join(f"'{printable(name)}'" for name in names)


@click.command("delete-offsets")
@click.argument("group")
@click.option("--topic", "topics", multiple=True, required=True, metavar="TOPIC[:P,…]", help="Whose offsets; repeatable.")
@bootstrap_option
def delete_offsets(group: str, topics: tuple[str, ...], bootstrap_server: str | None) -> None:
    """Delete offsets of GROUP for topics that it does not read. Exit 1 when one could not be deleted."""
    bootstrap = bootstrap_of(bootstrap_server)
    partitions = selected(admin(bootstrap), topics, ())
    error, results = request_offset_delete(bootstrap, group, partitions)
    if error is not ErrorCode.NONE:
        raise click.ClickException(f"{error.name}: offsets of group '{group}' were not deleted")
    click.echo(f"Request succeeded for deleting offsets from group {group}.")
    rows = [
        (topic, index, "Successful" if code is ErrorCode.NONE else f"Error: {code.name}")
        for (topic, index), code in results.items()
    ]
    columns(("TOPIC", "PARTITION", "STATUS"), rows, (15, 10, 15))
    if any(code is not ErrorCode.NONE for code in results.values()):
        raise click.ClickException("not all offsets were deleted")


def request_offset_delete(
    bootstrap: str, group: str, partitions: Sequence[Partition]
) -> tuple[ErrorCode, dict[Partition, ErrorCode]]:
    """OffsetDelete at the group's coordinator: librdkafka's Python client has no call for it."""
    from kraftlite.client.connection import code_of

    topics: dict[str, list[dict[str, int]]] = {}
    for topic, index in partitions:
        topics.setdefault(topic, []).append({"partition_index": index})
    values = {"group_id": group, "topics": [{"name": name, "partitions": wanted} for name, wanted in topics.items()]}
    try:
        answer = cluster_at(bootstrap).call_coordinator(group, OFFSET_DELETE, 0, values, code_of)
    except ClientError as error:
        if error.code is None:
            raise
        return error.code, {}
    results = {(str(topic.name), int(one.partition_index)): code_of(one) for topic in answer.topics for one in topic.partitions}
    return code_of(answer), results
