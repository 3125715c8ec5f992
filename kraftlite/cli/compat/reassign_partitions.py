"""kafka-reassign-partitions. Source: TO-17 to TO-19, JB-14; Kafka's ReassignPartitionsCommand."""

from __future__ import annotations

import argparse
import json
import random
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import click

from kraftlite.cli.compat.log_dir_moves import ANY, Replica, ask, directories_of, read_directories, start, under_way, verify
from kraftlite.cli.compat.tool import Parser, ToolError, UsageError, cluster_of, exactly_one
from kraftlite.cli.partition_lists import named_twice, numbers_of, partition_of, read_rows, topic_of
from kraftlite.client.admin import (
    Partition,
    alter_configs,
    alter_reassignments,
    describe_configs,
    list_reassignments,
)
from kraftlite.client.cluster import ClusterClient
from kraftlite.controller.placement import StripedPlacer, UsableBroker
from kraftlite.model.errors import ErrorCode
from kraftlite.model.ids import NodeId
from kraftlite.model.messages.choices import AlterConfigOp, ConfigResourceType

ACTIONS = ("generate", "execute", "verify", "cancel", "list")
_REPLICATION_RATES = ("leader.replication.throttled.rate", "follower.replication.throttled.rate")
_MOVES_RATE = "replica.alter.log.dirs.io.max.bytes.per.second"
_BROKER_THROTTLES = (*_REPLICATION_RATES, _MOVES_RATE)
_TOPIC_THROTTLES = ("leader.replication.throttled.replicas", "follower.replication.throttled.replicas")
Assignment = dict[Partition, list[int]]


def _parser() -> Parser:
    parser = Parser("kafka-reassign-partitions", "This tool helps to move topic partitions between replicas.")
    parser.connection()
    for name in (*ACTIONS, "disable-rack-aware", "additional", "preserve-throttles", "disallow-replication-factor-change"):
        parser.add_argument(f"--{name}", action="store_true")
    for name in ("reassignment-json-file", "topics-to-move-json-file", "broker-list"):
        parser.add_argument(f"--{name}")
    for name in ("throttle", "replica-alter-log-dirs-throttle", "timeout"):
        parser.add_argument(f"--{name}", type=int)
    return parser


def run(arguments: Sequence[str]) -> int:
    options = _parser().read(arguments)
    message = "Command must include exactly one action: --cancel, --execute, --generate, --list, --verify."
    action = exactly_one(options, ACTIONS, message)
    needed = {
        "generate": ("topics-to-move-json-file", "broker-list"),
        **dict.fromkeys(("execute", "verify", "cancel"), ("reassignment-json-file",)),
    }
    for name in needed.get(action, ()):
        if not getattr(options, name.replace("-", "_")):
            raise UsageError(f'Missing required argument "[{name}]"')
    cluster = cluster_of(options)
    _RUN[action](cluster, options)
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
    """Raises ToolError for what is not `{"version": 1, "partitions": [{"topic", "partition", "replicas"}]}`."""
    try:
        found = [(partition_of(row), numbers_of(row, "replicas")) for row in read_rows(path, "partitions")]
    except ValueError as error:
        raise ToolError(f"{path}: not a valid reassignment: {error}") from None
    if not found:
        raise ToolError("Partition reassignment list cannot be empty")
    twice = named_twice(partition for partition, _replicas in found)
    if twice:
        raise ToolError(f"Partition reassignment contains duplicate topic partitions: {_names(twice)}")
    for partition, replicas in found:
        if not replicas:
            raise ToolError(f"Partition replica list cannot be empty: {_names([partition])}")
        if len(set(replicas)) != len(replicas):
            raise ToolError(
                f"Partition replica lists may not contain duplicate entries: {_names([partition])} contains {replicas}"
            )
    return dict(found)


def _names(partitions: Sequence[Partition]) -> str:
    return ",".join(f"{topic}-{index}" for topic, index in sorted(partitions))


def _present(cluster: ClusterClient, topics: list[str]) -> dict[Partition, list[int]]:
    known = cluster.topics(topics)
    missing = sorted(set(topics) - set(known))
    if missing:
        raise ToolError(f"Topic {missing[0]} not found.")
    return {
        (name, int(part.partition_index)): [int(node) for node in part.replica_nodes]
        for name, topic in known.items()
        for part in topic.partitions
    }


# --- generate


def _generate(cluster: ClusterClient, options: argparse.Namespace) -> None:
    try:
        topics = list(dict.fromkeys(topic_of(row) for row in read_rows(options.topics_to_move_json_file, "topics")))
    except ValueError as error:
        raise ToolError(f"{options.topics_to_move_json_file}: not a valid topic list: {error}") from None
    try:
        brokers = [int(one) for one in options.broker_list.split(",")]
    except ValueError:
        raise ToolError(f"--broker-list {options.broker_list}: allowed is 1,2,3") from None
    if len(set(brokers)) != len(brokers):
        raise ToolError("Broker list contains duplicate entries")
    live = cluster.brokers()
    missing = [one for one in brokers if one not in live]
    if missing:
        raise ToolError(f"Unknown broker id {missing[0]}")
    current = _present(cluster, topics)
    racks = {} if options.disable_rack_aware else {one: live[one].rack for one in brokers}
    usable = [UsableBroker(broker_id=NodeId(one), rack=racks.get(one), fenced=False) for one in brokers]
    placer = StripedPlacer(random.Random())
    proposed: Assignment = {}
    for topic in topics:
        partitions = sorted(index for name, index in current if name == topic)
        factor = len(current[topic, partitions[0]])
        if factor > len(brokers):
            raise ToolError(f"Replication factor: {factor} larger than available brokers: {len(brokers)}.")
        placed = placer.place(len(partitions), factor, usable)
        proposed.update({(topic, index): list(map(int, nodes)) for index, nodes in zip(partitions, placed, strict=True)})
    click.echo(f"Current partition replica assignment\n{as_json(current, directories_of(cluster, current))}\n")
    click.echo(f"Proposed partition reassignment configuration\n{as_json(proposed, {})}")


# --- execute


def _execute(cluster: ClusterClient, options: argparse.Namespace) -> None:
    wanted = read_assignment(options.reassignment_json_file)
    directories = read_directories(options.reassignment_json_file)
    current = _present(cluster, sorted({topic for topic, _index in wanted}))
    unknown = [partition for partition in wanted if partition not in current]
    if unknown:
        raise ToolError(f"The proposed assignment contains non-existent partitions: {_names(unknown)}")
    strangers = sorted({node for replicas in wanted.values() for node in replicas} - set(cluster.brokers()))
    if strangers:
        raise ToolError(f"Unknown broker id {strangers[0]}")
    if not options.additional and list_reassignments(cluster):
        raise ToolError(
            "Cannot execute because there is an existing partition assignment.  Use --additional to override this and create a "
            "new partition assignment in addition to the existing one. The --additional flag can also be used to change the "
            "throttle by resubmitting the current reassignment."
        )
    rollback = {partition: current[partition] for partition in wanted}
    click.echo(f"Current partition replica assignment\n\n{as_json(rollback, directories_of(cluster, rollback))}\n")
    click.echo("Save this to use as the --reassignment-json-file option during rollback")
    _set_throttles(cluster, wanted, current, directories, options)
    if directories:
        ask(cluster, directories)  # a replica that is not there yet is then made where it belongs
    results = alter_reassignments(cluster, wanted, any_factor=not options.disallow_replication_factor_change)
    failed = {partition: error for partition, error in results.items() if error[0] is not ErrorCode.NONE}
    if failed:
        lines = [f"{topic}-{index}: {message or code.name}" for (topic, index), (code, message) in sorted(failed.items())]
        raise ToolError("Error reassigning partition(s):\n" + "\n".join(lines))
    plural = "" if len(wanted) == 1 else "s"
    click.echo(f"Successfully started partition reassignment{plural} for {_names(list(wanted))}")
    if directories:
        start(cluster, directories, options.timeout)


def _set_throttles(
    cluster: ClusterClient,
    wanted: Assignment,
    current: Mapping[Partition, list[int]],
    directories: Mapping[Replica, str],
    options: argparse.Namespace,
) -> None:
    between, moves = options.throttle, options.replica_alter_log_dirs_throttle
    if max(-1 if rate is None else rate for rate in (between, moves)) < 0:
        return
    click.echo(
        "Warning: You must run --verify periodically, until the reassignment completes, to ensure the throttle is removed."
    )
    if between is not None and between >= 0:
        _set_replication_throttles(cluster, wanted, current, between)
    if moves is not None and moves >= 0:
        for broker in sorted({broker for _, broker in directories}):
            alter_configs(cluster, ConfigResourceType.BROKER, str(broker), [(_MOVES_RATE, AlterConfigOp.SET, str(moves))])
        click.echo(f"The replica-alter-dir throttle limit was set to {moves} B/s")


def _set_replication_throttles(
    cluster: ClusterClient, wanted: Assignment, current: Mapping[Partition, list[int]], rate: int
) -> None:
    nodes: set[int] = set()
    for topic in sorted({topic for topic, _index in wanted}):
        leaders, followers = [], []
        for (name, index), target in sorted(wanted.items()):
            if name != topic:
                continue
            before = current[name, index]
            leaders += [f"{index}:{node}" for node in before]
            followers += [f"{index}:{node}" for node in target if node not in before]
            nodes.update((*before, *target))
        lists = (",".join(leaders), ",".join(followers))
        changes = [(key, AlterConfigOp.SET, value) for key, value in zip(_TOPIC_THROTTLES, lists, strict=True)]
        alter_configs(cluster, ConfigResourceType.TOPIC, topic, changes)
    for node in sorted(nodes & set(cluster.brokers())):
        changes = [(key, AlterConfigOp.SET, str(rate)) for key in _REPLICATION_RATES]
        alter_configs(cluster, ConfigResourceType.BROKER, str(node), changes)
    click.echo(f"The inter-broker throttle limit was set to {rate} B/s")


# --- verify, cancel, list


def _verify(cluster: ClusterClient, options: argparse.Namespace) -> None:
    wanted = read_assignment(options.reassignment_json_file)
    moving = list_reassignments(cluster, wanted)
    topics = sorted({topic for topic, _index in wanted})
    current = _present(cluster, sorted(set(topics) & set(cluster.topics(topics))))
    click.echo("Status of partition reassignment:")
    for (topic, index), target in sorted(wanted.items()):
        name = f"{topic}-{index}"
        if (topic, index) in moving:
            click.echo(f"Reassignment of partition {name} is still in progress.")
        elif (topic, index) not in current:
            click.echo(f"There is no active reassignment of partition {name}, but the partition does not exist.")
        elif current[topic, index] == target:
            click.echo(f"Reassignment of partition {name} is completed.")
        else:
            found, should = ",".join(map(str, current[topic, index])), ",".join(map(str, target))
            click.echo(f"There is no active reassignment of partition {name}, but replica set is {found} rather than {should}.")
    moved = verify(cluster, read_directories(options.reassignment_json_file))
    if moved and not list_reassignments(cluster) and not options.preserve_throttles:
        _clear_throttles(cluster, sorted({topic for topic, _index in current}))


def _clear_throttles(cluster: ClusterClient, topics: list[str]) -> None:
    brokers = [str(node) for node in cluster.brokers()]
    click.echo(f"\nClearing broker-level throttles on broker{'' if len(brokers) == 1 else 's'} {','.join(brokers)}")
    for broker in brokers:
        _remove(cluster, ConfigResourceType.BROKER, broker, _BROKER_THROTTLES, source=2)
    if topics:
        click.echo(f"Clearing topic-level throttles on topic{'' if len(topics) == 1 else 's'} {','.join(topics)}")
    for topic in topics:
        _remove(cluster, ConfigResourceType.TOPIC, topic, _TOPIC_THROTTLES, source=1)


def _remove(cluster: ClusterClient, kind: int, name: str, keys: Sequence[str], *, source: int) -> None:
    entries: list[Any] = describe_configs(cluster, kind, name)
    present = [str(one.name) for one in entries if str(one.name) in keys and int(one.config_source) == source]
    if present:
        alter_configs(cluster, kind, name, [(key, AlterConfigOp.DELETE, None) for key in present])


def _cancel(cluster: ClusterClient, options: argparse.Namespace) -> None:
    wanted = read_assignment(options.reassignment_json_file)
    moving = list(list_reassignments(cluster, wanted))
    if not moving:
        click.echo("None of the specified partition reassignments are active.")
    else:
        results = alter_reassignments(cluster, dict.fromkeys(moving))
        failed = [(partition, found) for partition, found in sorted(results.items()) if found[0] is not ErrorCode.NONE]
        if failed:
            lines = [f"{topic}-{index}: {message or code.name}" for (topic, index), (code, message) in failed]
            raise ToolError("Error cancelling partition reassignment(s) for:\n" + "\n".join(lines))
        plural = "" if len(moving) == 1 else "s"
        click.echo(f"Successfully cancelled partition reassignment{plural} for: {_names(moving)}")
    take_back(cluster, read_directories(options.reassignment_json_file), options.timeout)
    if not options.preserve_throttles:
        _clear_throttles(cluster, sorted({topic for topic, _index in wanted} & set(cluster.topics())))


def take_back(cluster: ClusterClient, replicas: Iterable[Replica], timeout_ms: int | None) -> None:
    """Move those of the replicas that are on their way to another directory to the one that they are in."""
    back = under_way(cluster, replicas)
    if back:
        start(cluster, back, timeout_ms)
    else:
        click.echo("None of the specified partition moves are active.")


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
