"""kafka-consumer-groups. Source: TO-27, TO-28; Kafka's ConsumerGroupCommand."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from kraftlite.cli.compat.tool import Parser, UsageError, cluster_of, exactly_one, java_exception, whole
from kraftlite.cli.error_texts import TEXTS
from kraftlite.cli.group_reset import INACTIVE, NothingCommitted, Reset, carry_out, plans_of
from kraftlite.cli.groups import KINDS, STATES
from kraftlite.cli.target import Target
from kraftlite.client.errors import RequestRefused
from kraftlite.model.errors import ErrorCode
from kraftlite.model.limits import MAX_INT32

if TYPE_CHECKING:
    from kraftlite.client.cluster import ClusterClient, Partition

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
        parser.add_argument(f"--{name}", type=whole(64) if name in ("to-offset", "shift-by") else str)
    parser.add_argument("--timeout", type=whole(32), metavar="MS", help="How long to wait for answers; default: 30000.")
    return parser


def run(arguments: Sequence[str]) -> int:
    options = _parser().read(arguments)
    message = (
        "Command must include exactly one action: --list, --describe, --delete, --reset-offsets, --delete-offsets or "
        "--validate-regex"
    )
    action = exactly_one(options, ACTIONS, message)
    _check(options, action)
    if action == "validate-regex":
        return _validate(options.validate_regex)
    try:
        if action == "reset-offsets":
            return _reset(options)
        if action == "delete":
            return _delete(_cluster(options), options)
        if action == "delete-offsets":
            return _delete_offsets(_cluster(options), options)
        command = {"list": _list, "describe": _describe}[action](options)
        cluster = _cluster(options)
        if action == "describe" and _missing(cluster, options):
            return 0
        return _invoke(*command, cluster)
    except click.UsageError as error:
        raise UsageError(error.message) from None
    except NothingCommitted as error:
        raise UsageError(error.message) from None
    except click.ClickException as error:
        click.echo(f"\nError: Executing consumer group command failed due to {error.format_message()}")
        return 0  # as Kafka's does


_ONLY_WITH: Final = {
    "members": ("describe",),
    "verbose": ("describe",),
    "offsets": ("describe",),
    "state": ("describe", "list"),
    "type": ("list",),
}
"""Options that some actions have."""


def _check(options: argparse.Namespace, action: str) -> None:
    """Refuse what has no effect, or would have another than was meant: nothing is deleted because an option was left out."""
    for name, actions in _ONLY_WITH.items():
        if _given(options, name) and action not in actions:
            raise UsageError(f"Option(s) [{name}] are unavailable given other options on the command line")
    if action in ("describe", "delete", "reset-offsets") and bool(options.group) == options.all_groups:
        raise UsageError(f"Option [{action}] takes one of these options: [all-groups], [group]")
    if options.group and options.all_groups:
        raise UsageError('Option "[group]" can\'t be used with option "[all-groups]"')
    if action == "delete" and options.topic:
        raise UsageError("The consumer does not support topic-specific offset deletion from a consumer group.")
    if options.group and action == "list":
        raise UsageError('Option "[group]" can\'t be used with option "[list]"')
    if options.topic and action in ("list", "describe"):
        raise UsageError(f'Option "[topic]" can\'t be used with option "[{action}]"')
    if action == "describe" and options.state:
        raise UsageError("Option [describe] does not take a value for [state]")
    if action == "delete-offsets" and not (options.group and options.topic):
        raise UsageError("Option [delete-offsets] takes the following options: [topic], [group]")
    if action == "delete-offsets" and len(options.group) > 1:
        raise UsageError("Found multiple arguments for option group, but you asked for only one")


def _cluster(options: argparse.Namespace) -> ClusterClient:
    """`--timeout` is how long each call goes on trying."""
    return cluster_of(options, more={} if options.timeout is None else {"default.api.timeout.ms": str(options.timeout)})


def _missing(cluster: ClusterClient, options: argparse.Namespace) -> bool:
    """Groups that do not exist cannot be described: said as Kafka's tool says it."""
    from kraftlite.cli.group_view import describe_groups

    missing = [view.group for view in describe_groups(cluster, list(dict.fromkeys(options.group))) if not view.exists]
    if missing:
        reason = java_exception(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {missing[0]} not found.")
        click.echo(f"\nError: Executing consumer group command failed due to {reason}")
    return bool(missing)


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
    return "groups", "describe", [*arguments, *(["--all-groups"] if options.all_groups else sorted(options.group))]


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


_REFUSED: Final = frozenset(
    {
        ErrorCode.INVALID_GROUP_ID,
        ErrorCode.GROUP_ID_NOT_FOUND,
        ErrorCode.GROUP_AUTHORIZATION_FAILED,
        ErrorCode.NON_EMPTY_GROUP,
    }
)
"""Refusals of the request as a whole that Kafka's tool tells in their own words."""


def _delete_offsets(cluster: ClusterClient, options: argparse.Namespace) -> int:
    from kraftlite.cli.group_view import columns
    from kraftlite.client.groups import delete_offsets

    group = options.group[0]
    partitions, unknown = _named_partitions(cluster, options.topic)
    results: dict[Partition, ErrorCode] = {(topic, -1): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION for topic in unknown}
    try:
        found = delete_offsets(cluster, group, partitions)
    except RequestRefused as error:
        words = TEXTS[error.code] if error.code in _REFUSED else f"Encountered some unknown error: {error.code.name}"
        click.echo(f"\nError: {words}")
        found = dict.fromkeys(partitions, error.code)
    else:
        if any(code is not ErrorCode.NONE for code in found.values()):
            click.echo("\nError: Encountered some partition-level error, see the follow-up details.")
        else:
            click.echo(f"Request succeeded for deleting offsets from group {group}.")
    rows = [
        (topic, None if index < 0 else index, "Successful" if code is ErrorCode.NONE else f"Error: {java_exception(code)}")
        for (topic, index), code in sorted({**results, **found}.items())
    ]
    columns(("TOPIC", "PARTITION", "STATUS"), rows, (15, 10, 15))
    return 0  # as Kafka's does, even then


def _named_partitions(cluster: ClusterClient, items: Sequence[str]) -> tuple[list[Partition], list[str]]:
    """The partitions of `--topic t` and `--topic t:0,2`, whether there are such or not, and the topics without numbers that do
    not exist."""
    known = cluster.topics()
    found: dict[Partition, None] = {}
    unknown = []
    for item in items:
        name, colon, numbers = item.partition(":")
        if colon:
            found.update(dict.fromkeys((name, index) for index in _indexes(item, numbers)))
        elif name in known:
            found.update(dict.fromkeys((name, int(one.partition_index)) for one in known[name].partitions))
        else:
            unknown.append(name)
    return sorted(found), unknown


def _indexes(item: str, numbers: str) -> list[int]:
    found = []
    for number in numbers.split(","):
        if not number.isdecimal() or len(number) > 10 or int(number) > MAX_INT32:
            raise UsageError(f"Invalid partition '{number}' specified in topic arg '{item}'")
        found.append(int(number))
    return found


def _reset(options: argparse.Namespace) -> int:
    from kraftlite.cli.group_view import describe_groups, list_groups

    wanted = _scenario(options)
    cluster = _cluster(options)
    names = [group.group for group in list_groups(cluster)] if options.all_groups else list(dict.fromkeys(options.group))
    views = describe_groups(cluster, names)
    for view in views:
        if view.state not in INACTIVE:
            click.echo(
                f"\nError: Assignments can only be reset if the group '{view.group}' is inactive, but the current state is "
                f"{view.state}."
            )
    inactive = [view.group for view in views if view.state in INACTIVE]
    several = len(options.group) != 1
    plans = plans_of(cluster, inactive, wanted, () if options.all_topics else options.topic, several=several)
    if names:
        carry_out(cluster, plans, execute=options.execute, export=options.export, several=several)
    return 0


def _scenario(options: argparse.Namespace) -> Reset:
    exactly_one(
        options,
        SCENARIOS,
        "Option [reset-offsets] takes exactly one of the following: [to-offset], [shift-by], [to-datetime], [by-duration], "
        "[to-earliest], [to-latest], [from-file], [to-current]",
    )
    if options.execute and options.dry_run:
        raise UsageError("Option [reset-offsets] only accepts one of the following options: [execute], [dry-run]")
    if not (options.execute or options.dry_run):
        click.echo(
            "WARN: No action will be performed as the --execute option is missing. In version 5.0, this command will require "
            "either --dry-run or --execute to be specified. You should add the --dry-run option explicitly if you are scripting "
            "this command and want to keep the current default behavior without prompting.",
            err=True,
        )
    if options.from_file is not None and not Path(options.from_file).exists():
        raise UsageError(f"--from-file {options.from_file}: there is no such file")
    if options.from_file is None and not (options.topic or options.all_topics):
        raise UsageError("One of the reset scopes should be defined: --all-topics, --topic.")
    values = {name.replace("-", "_"): getattr(options, name.replace("-", "_")) for name in SCENARIOS}
    return Reset(**{**values, "from_file": None if options.from_file is None else Path(options.from_file)})


def _given(options: argparse.Namespace, name: str) -> bool:
    return getattr(options, name.replace("-", "_")) not in (None, False)


def _validate(pattern: str) -> int:
    from kraftlite.coordinator.modern.regex import problem

    reason = problem(pattern)
    verdict = "valid" if reason is None else f"invalid: {reason}"
    click.echo(f"The regular expression `{pattern}` is {verdict}.")
    return 0  # as Kafka's does, even then
