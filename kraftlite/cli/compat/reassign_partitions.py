"""kafka-reassign-partitions. Source: TO-17 to TO-19, JB-14; Kafka's ReassignPartitionsCommand."""

from __future__ import annotations

import argparse
import json
import random
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

import click

from kraftlite.cli.compat.log_dir_moves import ANY, Replica, ask, directories_of, read_directories, start, under_way, verify
from kraftlite.cli.compat.tool import (
    Parser,
    Terse,
    ToolError,
    UsageError,
    cluster_of,
    exactly_one,
    java_exception,
    java_int,
    whole,
)
from kraftlite.cli.compat.topic_filter import comma_list
from kraftlite.cli.partition_lists import named_twice, numbers_of, partition_of, read_rows, topic_of
from kraftlite.client.admin import (
    Partition,
    alter_configs,
    alter_reassignments,
    list_reassignments,
)
from kraftlite.client.cluster import ClusterClient
from kraftlite.client.controllers import ControllersClient
from kraftlite.client.errors import ClientError, RequestRefused
from kraftlite.controller.placement import StripedPlacer, UsableBroker
from kraftlite.model.errors import ApiError, ErrorCode
from kraftlite.model.ids import NodeId
from kraftlite.model.messages.choices import AlterConfigOp, ConfigResourceType
from kraftlite.model.shown import shown

ACTIONS = ("generate", "execute", "verify", "cancel", "list")
_REPLICATION_RATES = ("leader.replication.throttled.rate", "follower.replication.throttled.rate")
_MOVES_RATE = "replica.alter.log.dirs.io.max.bytes.per.second"
_BROKER_THROTTLES = (*_REPLICATION_RATES, _MOVES_RATE)
_TOPIC_THROTTLES = ("leader.replication.throttled.replicas", "follower.replication.throttled.replicas")
Assignment = dict[Partition, list[int]]


_NEEDED = {
    "generate": ("topics-to-move-json-file", "broker-list"),
    **dict.fromkeys(("execute", "verify", "cancel"), ("reassignment-json-file",)),
}
_PERMITTED = {
    "generate": ("bootstrap-server", "disable-rack-aware"),
    "execute": (
        "bootstrap-server", "additional", "throttle", "replica-alter-log-dirs-throttle", "timeout",
        "disallow-replication-factor-change",
    ),
    "verify": ("bootstrap-server", "preserve-throttles"),
    "cancel": ("bootstrap-server", "bootstrap-controller", "preserve-throttles", "timeout"),
    "list": ("bootstrap-server", "bootstrap-controller"),
}  # fmt: skip
_FLAGS = ("disable-rack-aware", "additional", "preserve-throttles", "disallow-replication-factor-change")
_FILES = ("reassignment-json-file", "topics-to-move-json-file", "broker-list")
_RATES = ("throttle", "replica-alter-log-dirs-throttle", "timeout")


def _parser() -> Parser:
    parser = Parser("kafka-reassign-partitions", "This tool helps to move topic partitions between replicas.")
    parser.connection(controller=True)
    for name in (*ACTIONS, *_FLAGS):
        parser.add_argument(f"--{name}", action="store_true")
    for name in _FILES:
        parser.add_argument(f"--{name}")
    for name in _RATES:
        parser.add_argument(f"--{name}", type=whole(64))
    return parser


def _read(arguments: Sequence[str]) -> argparse.Namespace:
    options = _parser().read(arguments)
    message = f"Command must include exactly one action: {', '.join(f'--{name}' for name in ACTIONS)}"
    options.action = exactly_one(options, ACTIONS, message)
    if options.bootstrap_server is not None and options.bootstrap_controller is not None:
        raise UsageError("Please don't specify both --bootstrap-server and --bootstrap-controller")
    needed = _NEEDED.get(options.action, ())
    for name in needed:
        if not _given(options, name):
            raise UsageError(f'Missing required argument "[{name}]"')
    for name in ("bootstrap-server", "bootstrap-controller", *_FLAGS, *_FILES, *_RATES):
        if _given(options, name) and name not in (*needed, *_PERMITTED[options.action]):
            raise UsageError(f'Option "[{name}]" can\'t be used with action "[{options.action}]"')
    return options


def _given(options: argparse.Namespace, name: str) -> bool:
    return getattr(options, name.replace("-", "_")) not in (None, False)


def run(arguments: Sequence[str]) -> int:
    """Kafka's tool says on standard output why it failed, too."""
    options = _read(arguments)
    cluster = cluster_of(options)
    try:
        _RUN[options.action](cluster, options)
    except Terse as error:
        click.echo(f"{error}")
        return 1
    except RequestRefused as error:
        click.echo(f"Error: {java_exception(error.code, error.reason)}")
        return 1
    except (ToolError, ClientError) as error:
        click.echo(f"Error: {error}")
        return 1
    except OSError as error:
        click.echo(f"Error: Unable to read file {error.filename}: {error.strerror}")
        return 1
    return 0


def as_json(assignment: Mapping[Partition, Sequence[int]], directories: Mapping[Replica, str]) -> str:
    partitions = [
        {
            "topic": topic,
            "partition": index,
            "replicas": list(replicas),
            "log_dirs": [directories.get(((topic, index), broker), ANY) for broker in replicas],
        }
        for (topic, index), replicas in sorted(assignment.items())
    ]
    return json.dumps({"version": 1, "partitions": partitions}, separators=(",", ":"))


def read_assignment(path: str) -> Assignment:
    """Raises ToolError for what is not `{"version": 1, "partitions": [{"topic", "partition", "replicas"}]}`, or cannot be
    executed."""
    found = _read_moves(path)
    if not found:
        raise ToolError("Partition reassignment list cannot be empty")
    if not all(replicas for _partition, replicas in found):
        raise ToolError("Partition replica list cannot be empty")
    twice = named_twice(partition for partition, _replicas in found)
    if twice:
        raise ToolError(f"Partition reassignment contains duplicate topic partitions: {_names(twice)}")
    repeated = [
        f"{_names([partition])} contains multiple entries for {','.join(map(str, ids))}"
        for partition, replicas in found
        if (ids := sorted(node for node, count in Counter(replicas).items() if count > 1))
    ]
    if repeated:
        raise ToolError(f"Partition replica lists may not contain duplicate entries: {'. '.join(repeated)}")
    return dict(found)


def _read_moves(path: str) -> list[tuple[Partition, list[int]]]:
    try:
        return [(partition_of(row), numbers_of(row, "replicas")) for row in read_rows(path, "partitions", version=1)]
    except ValueError as error:
        raise ToolError(f"{path}: not a valid reassignment: {error}") from None


def _names(partitions: Iterable[Partition]) -> str:
    return ",".join(f"{topic}-{index}" for topic, index in sorted(partitions))


def _present(cluster: ClusterClient, topics: list[str]) -> dict[Partition, list[int]]:
    known = cluster.topics(topics) if topics else {}
    missing = sorted(set(topics) - set(known))
    if missing:
        raise ToolError(java_exception(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"Topic {missing[0]} not found."))
    return _replicas(known)


def _replicas(topics: Mapping[str, Any]) -> dict[Partition, list[int]]:
    return {
        (name, int(part.partition_index)): [int(node) for node in part.replica_nodes]
        for name, topic in topics.items()
        for part in topic.partitions
    }


# --- generate


def brokers_of(text: str) -> list[int]:
    """The ids between commas. Raises ToolError."""
    found = [java_int(one) for one in comma_list(text)]
    brokers = [one for one in found if one is not None]
    if len(brokers) < len(found):
        raise ToolError(f"--broker-list {shown(text)}: allowed is 1,2,3")
    return brokers


def _generate(cluster: ClusterClient, options: argparse.Namespace) -> None:
    brokers = brokers_of(options.broker_list)
    _refuse_duplicates(brokers, "Broker list contains duplicate entries")
    try:
        topics = [topic_of(row) for row in read_rows(options.topics_to_move_json_file, "topics", version=1)]
    except ValueError as error:
        raise ToolError(f"{options.topics_to_move_json_file}: not a valid topic list: {error}") from None
    _refuse_duplicates(topics, "List of topics to reassign contains duplicate entries")
    current = _present(cluster, topics)
    live = cluster.brokers()
    racks = {one: None if options.disable_rack_aware else live[one].rack for one in brokers if one in live}
    if len({rack is None for rack in racks.values()}) > 1:
        raise ToolError(
            "Not all brokers have rack information. Add --disable-rack-aware in command line to make replica assignment without "
            "rack information."
        )
    usable = [UsableBroker(broker_id=NodeId(one), rack=rack, fenced=False) for one, rack in racks.items()]
    placer = StripedPlacer(random.Random())
    proposed: Assignment = {}
    for topic in topics:
        partitions = sorted(index for name, index in current if name == topic)
        try:
            placed = placer.place(len(partitions), len(current[topic, partitions[0]]), usable)
        except ApiError as error:
            raise ToolError(str(error.message).partition(" time(s): ")[2] or error.message) from None
        proposed.update({(topic, index): list(map(int, nodes)) for index, nodes in zip(partitions, placed, strict=True)})
    click.echo(f"Current partition replica assignment\n{as_json(current, directories_of(cluster, current))}\n")
    click.echo(f"Proposed partition reassignment configuration\n{as_json(proposed, {})}")


def _refuse_duplicates(found: Sequence[int] | Sequence[str], message: str) -> None:
    counts: Counter[int | str] = Counter(found)
    twice = [str(one) for one, count in counts.items() if count > 1]
    if twice:
        raise ToolError(f"{message}: [{', '.join(twice)}]")


# --- execute


def _execute(cluster: ClusterClient, options: argparse.Namespace) -> None:
    wanted = read_assignment(options.reassignment_json_file)
    directories = read_directories(options.reassignment_json_file)
    moving = list_reassignments(cluster)
    if not options.additional and moving:
        raise Terse(
            "Cannot execute because there is an existing partition assignment.  Use --additional to override this and create a "
            "new partition assignment in addition to the existing one. The --additional flag can also be used to change the "
            "throttle by resubmitting the current reassignment."
        )
    strangers = sorted({node for replicas in wanted.values() for node in replicas} - set(cluster.brokers()))
    if strangers:
        raise ToolError(f"Unknown broker id {strangers[0]}")
    current = _present(cluster, sorted({topic for topic, _index in wanted}))
    unknown = [f"{topic}-{index}" for topic, index in sorted(wanted) if (topic, index) not in current]
    if unknown:
        message = f"Unable to find partition: {', '.join(unknown)}"
        raise ToolError(java_exception(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, message))
    rollback = {partition: current[partition] for partition in wanted}
    click.echo(f"Current partition replica assignment\n\n{as_json(rollback, directories_of(cluster, rollback))}\n")
    click.echo("Save this to use as the --reassignment-json-file option during rollback")
    _set_throttles(cluster, moves_of(moving, wanted, current), directories, options)
    if directories:
        ask(cluster, directories)  # a replica that is not there yet is then made where it belongs
    results = alter_reassignments(cluster, wanted, any_factor=not options.disallow_replication_factor_change)
    failed = {partition: error for partition, error in results.items() if error[0] is not ErrorCode.NONE}
    if failed:
        lines = [f"{topic}-{index}: {message or code.name}" for (topic, index), (code, message) in sorted(failed.items())]
        raise Terse("Error reassigning partition(s):\n" + "\n".join(lines))
    click.echo(f"Successfully started partition reassignment{_plural(wanted)} for {_names(wanted)}")
    if directories:
        start(cluster, directories, options.timeout)


Move = tuple[set[int], set[int]]
"""The brokers that a partition is copied from, and those that it is copied to."""


def moves_of(
    moving: Mapping[Partition, Any], wanted: Assignment, current: Mapping[Partition, list[int]]
) -> dict[Partition, Move]:
    """The moves under way and those that are asked for: the throttled replicas of a topic are one list, which is written anew. A
    partition that is moving is copied from where it was before."""
    moves: dict[Partition, Move] = {}
    for partition, one in moving.items():
        added = set(map(int, one.adding_replicas))
        moves[partition] = set(map(int, one.replicas)) - added, added
    for partition, target in wanted.items():
        sources = moves[partition][0] if partition in moves else set(current[partition])
        moves[partition] = sources, set(target) - sources
    return moves


def _set_throttles(
    cluster: ClusterClient, moves: Mapping[Partition, Move], directories: Mapping[Replica, str], options: argparse.Namespace
) -> None:
    between, within = options.throttle, options.replica_alter_log_dirs_throttle
    if max(-1 if rate is None else rate for rate in (between, within)) < 0:
        return
    click.echo(
        "Warning: You must run --verify periodically, until the reassignment completes, to ensure the throttle is removed."
    )
    if between is not None and between >= 0:
        _set_replication_throttles(cluster, moves, between)
    if within is not None and within >= 0:
        for broker in sorted({broker for _, broker in directories}):
            alter_configs(cluster, ConfigResourceType.BROKER, str(broker), [(_MOVES_RATE, AlterConfigOp.SET, str(within))])
        click.echo(f"The replica-alter-dir throttle limit was set to {within} B/s")


def _set_replication_throttles(cluster: ClusterClient, moves: Mapping[Partition, Move], rate: int) -> None:
    lists: dict[str, tuple[list[str], list[str]]] = {}
    for (topic, index), sides in moves.items():
        for listed, nodes in zip(lists.setdefault(topic, ([], [])), sides, strict=True):
            listed += [f"{index}:{node}" for node in nodes]
    for topic, both in sorted(lists.items()):
        values = [",".join(sorted(one)) for one in both]
        changes = [(key, AlterConfigOp.SET, value) for key, value in zip(_TOPIC_THROTTLES, values, strict=True)]
        alter_configs(cluster, ConfigResourceType.TOPIC, topic, changes)
    nodes = {node for sides in moves.values() for side in sides for node in side}
    for node in sorted(nodes & set(cluster.brokers())):
        changes = [(key, AlterConfigOp.SET, str(rate)) for key in _REPLICATION_RATES]
        alter_configs(cluster, ConfigResourceType.BROKER, str(node), changes)
    click.echo(f"The inter-broker throttle limit was set to {rate} B/s")


# --- verify, cancel, list


def _verify(cluster: ClusterClient, options: argparse.Namespace) -> None:
    wanted = dict(_read_moves(options.reassignment_json_file))
    directories = read_directories(options.reassignment_json_file)
    moving = list_reassignments(cluster)
    topics = sorted({topic for topic, _index in wanted})
    current = _replicas(cluster.topics(topics) if topics else {})
    click.echo("Status of partition reassignment:")
    for (topic, index), target in sorted(wanted.items()):
        name, found = f"{topic}-{index}", current.get((topic, index), [])
        if (topic, index) in moving:
            click.echo(f"Reassignment of partition {name} is still in progress.")
        elif found == target:
            click.echo(f"Reassignment of partition {name} is completed.")
        else:
            told = f"replica set is {','.join(map(str, found))} rather than {','.join(map(str, target))}"
            click.echo(f"There is no active reassignment of partition {name}, but {told}.")
    moved = verify(cluster, directories)
    if not directories:
        click.echo()  # Kafka's tool prints the states of no moves as one empty line
    if moved and not moving and not options.preserve_throttles:
        _clear_throttles(cluster, wanted)


def _clear_throttles(cluster: ClusterClient, wanted: Mapping[Partition, Sequence[int]]) -> None:
    """Clear those of all live brokers; by way of the controllers, who do not say which these are, of the brokers that are
    named."""
    named = sorted({node for replicas in wanted.values() for node in replicas})
    brokers = named if isinstance(cluster, ControllersClient) else list(cluster.brokers())
    topics = sorted({topic for topic, _index in wanted})
    click.echo(f"Clearing broker-level throttles on broker{_plural(brokers)} {','.join(map(str, brokers))}")
    for broker in brokers:
        alter_configs(
            cluster, ConfigResourceType.BROKER, str(broker), [(key, AlterConfigOp.DELETE, None) for key in _BROKER_THROTTLES]
        )
    click.echo(f"Clearing topic-level throttles on topic{_plural(topics)} {','.join(topics)}")
    for topic in topics:
        alter_configs(cluster, ConfigResourceType.TOPIC, topic, [(key, AlterConfigOp.DELETE, None) for key in _TOPIC_THROTTLES])


def _plural(found: Collection[object]) -> str:
    return "" if len(found) == 1 else "s"


def _cancel(cluster: ClusterClient, options: argparse.Namespace) -> None:
    wanted = dict(_read_moves(options.reassignment_json_file))
    directories = read_directories(options.reassignment_json_file)
    listed = list_reassignments(cluster, wanted) if wanted else {}
    moving = [partition for partition, one in listed.items() if one.adding_replicas or one.removing_replicas]
    if not moving:
        click.echo("None of the specified partition reassignments are active.")
    else:
        results = alter_reassignments(cluster, dict.fromkeys(moving))
        failed = [(partition, found) for partition, found in sorted(results.items()) if found[0] is not ErrorCode.NONE]
        if failed:
            lines = [f"{topic}-{index}: {message or code.name}" for (topic, index), (code, message) in failed]
            raise Terse(f"Error cancelling partition reassignment{_plural(failed)} for:\n" + "\n".join(lines))
        click.echo(f"Successfully cancelled partition reassignment{_plural(moving)} for: {_names(moving)}")
    if directories and isinstance(cluster, ControllersClient):
        raise ToolError("moves between directories are asked of brokers: --bootstrap-server takes them back")
    take_back(cluster, directories, options.timeout)
    if not options.preserve_throttles:
        _clear_throttles(cluster, wanted)


def take_back(cluster: ClusterClient, replicas: Iterable[Replica], timeout_ms: int | None) -> None:
    """Move those of the replicas that are on their way to another directory to the one that they are in."""
    back = under_way(cluster, replicas)
    if back:
        start(cluster, back, timeout_ms)
    else:
        click.echo("None of the specified partition moves are active.", nl=False)  # as Kafka's does


def _list(cluster: ClusterClient, _options: argparse.Namespace) -> None:
    moving = list_reassignments(cluster)
    if not moving:
        click.echo("No partition reassignments found.")
        return
    click.echo("Current partition reassignments:")
    for (topic, index), one in sorted(moving.items()):
        line = f"{topic}-{index}: replicas: {','.join(map(str, one.replicas))}."
        line += f" adding: {','.join(map(str, one.adding_replicas))}." if one.adding_replicas else ""
        line += f" removing: {','.join(map(str, one.removing_replicas))}." if one.removing_replicas else ""
        click.echo(line)


_RUN = {"generate": _generate, "execute": _execute, "verify": _verify, "cancel": _cancel, "list": _list}
