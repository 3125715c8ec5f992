"""kafka-consumer-groups. Source: TO-27, TO-28; Kafka's ConsumerGroupCommand."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from kraftlite.cli.compat.tool import Parser, UsageError, cluster_of, exactly_one, java_exception
from kraftlite.cli.groups import KINDS, STATES
from kraftlite.cli.target import Target
from kraftlite.client.errors import RequestRefused
from kraftlite.model.errors import ErrorCode

if TYPE_CHECKING:
    from kraftlite.client.cluster import ClusterClient

ACTIONS = ("list", "describe", "delete", "reset-offsets", "delete-offsets", "validate-regex")
SCENARIOS = (
    "to-earliest",
    "to-latest",
    "to-current",
    "to-offset",
    "shift-by",
    "to-datetime",
    "by-duration",
    "from-file",
)
_FLAGS = SCENARIOS[:3]


def _parser() -> Parser:
    parser = Parser(
        "kafka-consumer-groups",
        "This tool helps to list all consumer groups, describe a consumer group, delete consumer group info, or reset consumer "
        "group offsets.",
    )
    parser.connection()
    for name in ("list", "describe", "delete", "reset-offsets", "delete-offsets", "all-groups", "all-topics"):
        parser.add_argument(f"--{name}", action="store_true")
    for name in ("execute", "dry-run", "export", "members", "offsets", "verbose", *_FLAGS):
        parser.add_argument(f"--{name}", action="store_true")
    parser.add_argument("--validate-regex", metavar="REGEX")
    for name in ("group", "topic"):
        parser.add_argument(f"--{name}", action="append", default=[])
    for name in ("state", "type"):
        parser.add_argument(f"--{name}", nargs="?", const="")
    for name in SCENARIOS[3:]:
        parser.add_argument(f"--{name}")
    parser.add_argument("--timeout", type=int, default=5000)
    return parser


def run(arguments: Sequence[str]) -> int:
    options = _parser().read(arguments)
    message = (
        "Command must include exactly one action: --list, --describe, --delete, --reset-offsets, --delete-offsets or "
        "--validate-regex"
    )
    action = exactly_one(options, ACTIONS, message)
    if action == "validate-regex":
        return _validate(options.validate_regex)
    if action in ("describe", "delete", "reset-offsets") and bool(options.group) == options.all_groups:
        raise UsageError(f"Option [{action}] takes one of these options: [all-groups], [group]")
    if action == "delete-offsets" and not (options.group and options.topic):
        raise UsageError("Option [delete-offsets] takes the following options: [topic], [group]")
    if action == "delete":
        return _delete(cluster_of(options), options)
    if action == "delete-offsets":
        return _delete_offsets(cluster_of(options), options)
    command = {"list": _list, "describe": _describe, "reset-offsets": _reset}[action](options)
    cluster = cluster_of(options)
    if action in ("describe", "reset-offsets") and _refused(cluster, action, options):
        return 0
    try:
        return _invoke(*command, cluster)
    except click.UsageError as error:
        raise UsageError(error.message) from None
    except click.ClickException as error:
        click.echo(f"\nError: Executing consumer group command failed due to {error.format_message()}")
        return 0  # as Kafka's does


def _refused(cluster: ClusterClient, action: str, options: argparse.Namespace) -> bool:
    """Groups that do not exist cannot be described, and those with members not be reset: said as Kafka's tool says it."""
    from kraftlite.cli.group_reset import INACTIVE
    from kraftlite.cli.group_view import columns, describe_groups

    views = describe_groups(cluster, list(dict.fromkeys(options.group)))
    if action == "describe":
        missing = [view.group for view in views if not view.exists]
        if missing:
            reason = java_exception(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {missing[0]} not found.")
            click.echo(f"\nError: Executing consumer group command failed due to {reason}")
        return bool(missing)
    active = [view for view in views if view.state not in INACTIVE]
    for view in active:
        click.echo(
            f"\nError: Assignments can only be reset if the group '{view.group}' is inactive, but the current state is "
            f"{view.state}."
        )
    if active:
        columns(("GROUP", "TOPIC", "PARTITION", "NEW-OFFSET"), (), (15, 15, 10, 15))
    return bool(active)


def _invoke(module: str, name: str, arguments: list[str], cluster: ClusterClient) -> int:
    """The own command that does the same, in the same layout."""
    from importlib import import_module

    command = getattr(import_module(f"kraftlite.cli.{module}"), name)
    status = command.main(
        args=arguments, prog_name="kafka-consumer-groups", standalone_mode=False, obj=Target(None, None, cluster)
    )
    return status if isinstance(status, int) else 0


_Command = tuple[str, str, list[str]]


_FILTERS: Final = {"state": STATES[:-1], "type": KINDS[:2]}


def _list(options: argparse.Namespace) -> _Command:
    arguments = []
    for name in ("state", "type"):
        value = getattr(options, name)
        if value is not None:
            unknown = {one.strip().lower() for one in value.split(",")} - {one.lower() for one in _FILTERS[name]}
            if value and unknown:
                what = "state list" if name == "state" else "types list"
                raise UsageError(f"Invalid {what} '{value}'. Valid {name}s are: {', '.join(_FILTERS[name])}")
            arguments.append(f"--{name}={value}" if value else f"--{name}")
    return "groups", "list_groups_command", arguments


def _describe(options: argparse.Namespace) -> _Command:
    chosen = [name for name in ("members", "offsets") if getattr(options, name)]
    chosen += ["state"] if options.state is not None else []
    if len(chosen) > 1:
        raise UsageError("Option [describe] takes at most one of these options: [members], [offsets], [state]")
    arguments = [f"--{name}" for name in chosen] + (["--verbose"] if options.verbose else [])
    return "groups", "describe", [*arguments, *(["--all-groups"] if options.all_groups else options.group)]


def _delete(cluster: ClusterClient, options: argparse.Namespace) -> int:
    from kraftlite.cli.group_view import list_groups
    from kraftlite.cli.groups import delete_groups, quoted

    names = [group.group for group in list_groups(cluster)] if options.all_groups else list(dict.fromkeys(options.group))
    done, failed = delete_groups(cluster, names, lambda error: java_exception(error.code or ErrorCode.REQUEST_TIMED_OUT))
    if not failed:
        click.echo(f"Deletion of requested consumer groups ({quoted(done)}) was successful.")
        return 0
    click.echo("\nError: Deletion of some consumer groups failed:\n" + "\n".join(failed))
    if done:
        click.echo(f"\nThese consumer groups were deleted successfully: {quoted(done)}")
    return 0  # as Kafka's does


def _delete_offsets(cluster: ClusterClient, options: argparse.Namespace) -> int:
    from kraftlite.cli.group_view import columns, selected
    from kraftlite.client.groups import delete_offsets

    group = options.group[0]
    try:
        results = delete_offsets(cluster, group, selected(cluster, options.topic, ()))
    except RequestRefused as error:
        click.echo(f"\nError: {java_exception(error.code)}")
        return 0  # as Kafka's does
    if any(code is not ErrorCode.NONE for code in results.values()):
        click.echo("\nError: Encountered some partition-level error, see the follow-up details.")
    else:
        click.echo(f"Request succeeded for deleting offsets from group {group}.")
    rows = [
        (topic, index, "Successful" if code is ErrorCode.NONE else f"Error: {java_exception(code)}")
        for (topic, index), code in sorted(results.items())
    ]
    columns(("TOPIC", "PARTITION", "STATUS"), rows, (15, 10, 15))
    return 0


def _reset(options: argparse.Namespace) -> _Command:
    exactly_one(
        options,
        SCENARIOS,
        "Option [reset-offsets] takes exactly one of the following: [to-offset], [shift-by], [to-datetime], [by-duration], "
        "[to-earliest], [to-latest], [from-file], [to-current]",
    )
    if options.execute and options.dry_run:
        raise UsageError("Option [reset-offsets] only accepts one of the following options: [execute], [dry-run]")
    if not (options.execute or options.dry_run or options.export):
        click.echo(
            "WARN: No action will be performed as the --execute option is missing. In version 5.0, this command will require "
            "either --dry-run or --execute to be specified. You should add the --dry-run option explicitly if you are scripting "
            "this command and want to keep the current default behavior without prompting.",
            err=True,
        )
    if options.from_file is not None and not Path(options.from_file).exists():
        raise UsageError(f"--from-file {options.from_file}: there is no such file")
    arguments = [f"--{name}" for name in ("execute", "dry-run", "export", "all-topics", *_FLAGS) if _given(options, name)]
    arguments += [f"--{name}={getattr(options, name.replace('-', '_'))}" for name in SCENARIOS[3:] if _given(options, name)]
    arguments += [f"--topic={topic}" for topic in options.topic]
    return "group_reset", "reset_offsets", [*arguments, *(["--all-groups"] if options.all_groups else options.group)]


def _given(options: argparse.Namespace, name: str) -> bool:
    return getattr(options, name.replace("-", "_")) not in (None, False)


def _validate(pattern: str) -> int:
    import re

    try:
        re.compile(pattern)
    except re.error as error:
        click.echo(f"The regular expression `{pattern}` is invalid: {error}.", err=True)
        return 1
    click.echo(f"The regular expression `{pattern}` is valid.")
    return 0
