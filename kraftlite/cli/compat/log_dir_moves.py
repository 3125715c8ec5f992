"""Moves between the directories of brokers, as kafka-reassign-partitions starts and verifies them. Source: JB-14; KIP-113."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import click

from kraftlite.cli.compat.tool import Terse, ToolError
from kraftlite.cli.partition_lists import numbers_of, partition_of, read_rows, texts_of
from kraftlite.client.admin import Partition, alter_replica_log_dirs, describe_log_dirs
from kraftlite.client.cluster import ClusterClient
from kraftlite.client.errors import ClientError
from kraftlite.model.errors import ErrorCode

Replica = tuple[Partition, int]
"""A partition and one of its brokers."""
ANY: Final = "any"
TIMEOUT_S: Final = 10.0
_ANSWER_MS: Final = 3_000
"""The time that a broker has to say where its replicas are, before they are printed as `any`."""
_AGAIN: Final = (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.REPLICA_NOT_AVAILABLE)


def read_directories(path: str) -> dict[Replica, str]:
    """The directory of each replica that a reassignment names one for. Raises ToolError."""
    found: dict[Replica, str] = {}
    try:
        rows = [
            (partition_of(row), numbers_of(row, "replicas"), texts_of(row, "log_dirs"))
            for row in read_rows(path, "partitions", version=1)
        ]
    except ValueError as error:
        raise ToolError(f"{path}: not a valid reassignment: {error}") from None
    for (topic, index), replicas, named in rows:
        directories = named or [ANY] * len(replicas)
        if len(replicas) != len(directories):
            raise ToolError(
                f"Size of replicas list {replicas} is different from size of log dirs list [{', '.join(directories)}] for "
                f"partition {topic}-{index}"
            )
        for broker, directory in zip(replicas, directories, strict=True):
            if directory != ANY:
                found[(topic, index), broker] = directory
    return found


def directories_of(cluster: ClusterClient, replicas: Mapping[Partition, Sequence[int]]) -> dict[Replica, str]:
    """The directory that each of these replicas is in, of brokers that answer."""
    found: dict[Replica, str] = {}
    for broker in sorted({broker for brokers in replicas.values() for broker in brokers} & set(cluster.brokers())):
        mine = {f"{topic}-{index}": (topic, index) for (topic, index), brokers in replicas.items() if broker in brokers}
        try:
            directories = describe_log_dirs(cluster, broker, list(mine.values()), timeout_ms=_ANSWER_MS)
        except ClientError:
            continue  # it is down, and not fenced yet
        for directory in directories:
            for one in directory["partitions"]:
                if not one["isFuture"] and one["partition"] in mine:
                    found[mine[one["partition"]], broker] = directory["logDir"]
    return found


def ask(cluster: ClusterClient, wanted: Mapping[Replica, str]) -> list[Replica]:
    """Ask the brokers once; returns the replicas that are not there yet, and whose directory is remembered. Raises ToolError."""
    later: list[Replica] = []
    for broker in sorted({broker for _, broker in wanted}):
        mine = {partition: path for (partition, one), path in wanted.items() if one == broker}
        for partition, code in alter_replica_log_dirs(cluster, broker, mine).items():
            if code in _AGAIN:
                later.append((partition, broker))
            elif code is not ErrorCode.NONE:
                raise ToolError(f"Failed to alter dir for {_name((partition, broker))}: {code.name}")
    return later


def start(cluster: ClusterClient, wanted: Mapping[Replica, str], timeout_ms: int | None) -> None:
    """Ask until all replicas are there and on their way. Raises ToolError when the time is up."""
    deadline = time.monotonic() + (TIMEOUT_S if timeout_ms is None else timeout_ms / 1000)
    left = dict(wanted)
    while left:
        later = ask(cluster, left)
        left = {replica: left[replica] for replica in later}
        if left and time.monotonic() >= deadline:
            names = ",".join(map(_name, sorted(left)))
            raise Terse(f"Timed out before log directory move{_plural(left)} could be started for: {names}")
        if left:
            time.sleep(0.1)
    for (topic, index), broker in sorted(wanted):
        path = wanted[(topic, index), broker]
        click.echo(f"Successfully started moving log directory to {path} for replica {topic}-{index} with broker {broker} ")


def verify(cluster: ClusterClient, wanted: Mapping[Replica, str]) -> bool:
    """Print of each move whether it is over; returns whether all are."""
    over = True
    for broker in sorted({broker for _, broker in wanted}):
        mine = {partition: path for (partition, one), path in wanted.items() if one == broker}
        directories = describe_log_dirs(cluster, broker, list(mine)) if broker in cluster.brokers() else []
        for partition, path in sorted(mine.items()):
            state, done = _state(partition, broker, path, directories)
            click.echo(state)
            over &= done
    return over


def under_way(cluster: ClusterClient, wanted: Iterable[Replica]) -> dict[Replica, str]:
    """Find those of the replicas that are being copied to another directory, each with the one that it is in."""
    found: dict[Replica, str] = {}
    replicas = set(wanted)
    for broker in sorted({broker for _, broker in replicas} & set(cluster.brokers())):
        mine = sorted(partition for partition, one in replicas if one == broker)
        directories = describe_log_dirs(cluster, broker, mine)
        for partition in mine:
            current, copy = _places(partition, directories)
            if current is not None and copy is not None:
                found[partition, broker] = current
    return found


def _places(partition: Partition, directories: Iterable[Mapping[str, Any]]) -> tuple[str | None, str | None]:
    """Find the directory of a partition, and the one that it is being copied to."""
    name = f"{partition[0]}-{partition[1]}"
    current = copy = None
    for directory in directories:
        for one in directory["partitions"]:
            if one["partition"] == name:
                current, copy = (current, directory["logDir"]) if one["isFuture"] else (directory["logDir"], copy)
    return current, copy


def _state(partition: Partition, broker: int, target: str, directories: Sequence[Mapping[str, Any]]) -> tuple[str, bool]:
    replica, name = _name((partition, broker)), f"{partition[0]}-{partition[1]}"
    current, copy = _places(partition, directories)
    if current is None:
        where = f"Partition {name} is not found in any live log dir on broker {broker}."
        return f"{where} There is likely an offline log directory on the broker.", False
    if copy is None and current == target:
        return f"Reassignment of replica {replica} completed successfully.", True
    if copy == target:
        return f"Reassignment of replica {replica} is still in progress.", False
    if copy is None:
        return f"Partition {name} on broker {broker} is not being moved from log dir {current} to {target}.", True
    return f"Partition {name} on broker {broker} is being moved to log dir {copy} instead of {target}.", False


def _name(replica: Replica) -> str:
    (topic, index), broker = replica
    return f"{topic}-{index}-{broker}"


def _plural(found: Mapping[Replica, str]) -> str:
    return "" if len(found) == 1 else "s"
