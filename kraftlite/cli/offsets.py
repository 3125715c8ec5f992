"""offsets TOPIC: first offset, HW, and each replica's LEO as far as it can be known."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from kraftlite.cli.common import data_dir_of, output_option, print_json, print_table
from kraftlite.cli.target import Target, target_options
from kraftlite.model.errors import ErrorCode
from kraftlite.protocol.record_requests import EARLIEST, LATEST

if TYPE_CHECKING:
    from kraftlite.client.cluster import ClusterClient, Partition

_RPC_TIMEOUT_MS = 2000


@click.command("offsets")
@click.argument("topic")
@target_options
@output_option
def offsets(topic: str, target: Target, output: str) -> None:
    """First offset and high watermark of TOPIC's partitions; on a local cluster each replica's log end offset, too."""
    cluster = target.cluster()
    found = cluster.topics([topic]).get(topic)
    if found is None:
        raise click.ClickException(f"Topic '{topic}' does not exist as expected")
    leos = _local_leos(target.bootstrap, topic)
    partitions = sorted(found.partitions, key=lambda one: int(one.partition_index))
    leaders = {(topic, int(one.partition_index)): int(one.leader_id) for one in partitions if one.leader_id >= 0}
    first, end = _offsets(cluster, leaders, EARLIEST), _offsets(cluster, leaders, LATEST)
    rows: list[dict[str, Any]] = [
        {
            "partition": int(one.partition_index),
            "leader": leaders.get((topic, int(one.partition_index))),
            "earliest": first.get((topic, int(one.partition_index))),
            "high_watermark": end.get((topic, int(one.partition_index))),
            "log_end_offsets": {str(node): leos.get((int(one.partition_index), int(node))) for node in one.replica_nodes},
        }
        for one in partitions
    ]
    if output == "json":
        print_json({"topic": topic, "partitions": rows})
        return
    print_table(
        ("PARTITION", "LEADER", "EARLIEST", "HIGH-WATERMARK", "LOG-END-OFFSETS"),
        [
            (
                row["partition"],
                "none" if row["leader"] is None else row["leader"],
                row["earliest"],
                row["high_watermark"],
                " ".join(f"{node}:{'?' if leo is None else leo}" for node, leo in row["log_end_offsets"].items()),
            )
            for row in rows
        ],
    )


def _offsets(cluster: ClusterClient, leaders: dict[Partition, int], timestamp: int) -> dict[Partition, int]:
    from kraftlite.client.admin import list_offsets

    found = {}
    for partition, (code, offset, _timestamp) in list_offsets(cluster, dict.fromkeys(leaders, timestamp), leaders).items():
        if code is not ErrorCode.NONE:
            raise click.ClickException(f"{partition[0]}-{partition[1]}: {code.name}")
        found[partition] = offset
    return found


def _local_leos(bootstrap: str, topic: str) -> dict[tuple[int, int], int]:
    """(partition, node) → LEO, from the nodes of the local cluster if that is the one that is asked."""
    from kraftlite.local.process import RUNNING
    from kraftlite.local.state import LocalError, load

    try:
        cluster = load(data_dir_of(None))
    except LocalError:
        return {}
    addresses = {address.strip() for address in bootstrap.split(",")}
    if not addresses & {str(node.kafka) for node in cluster.nodes if node.kafka}:
        return {}
    nodes = [node for node in cluster.nodes if node.replication is not None and node.state == RUNNING]
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")
    return asyncio.run(_ask_nodes([(node.id, str(node.replication)) for node in nodes], topic))


async def _ask_nodes(nodes: Sequence[tuple[int, str]], topic: str) -> dict[tuple[int, int], int]:
    from kraftlite.model.errors import ApiError
    from kraftlite.model.ids import Endpoint
    from kraftlite.model.messages.introspection import ReplicaStatesRequest
    from kraftlite.model.messages.methods import REPLICA_STATES
    from kraftlite.rpc.transport import GrpcTransport
    from kraftlite.runtime.ports import TransportError

    transport: Any = GrpcTransport()

    async def one(node_id: int, address: str) -> dict[tuple[int, int], int]:
        host, _, port = address.rpartition(":")
        try:
            answer = await transport.call(
                Endpoint(host, int(port)), REPLICA_STATES, ReplicaStatesRequest(topics=(topic,)), _RPC_TIMEOUT_MS
            )
        except (TransportError, ApiError):
            return {}
        return {(replica.partition, node_id): replica.leo for replica in answer.replicas}

    found: dict[tuple[int, int], int] = {}
    try:
        for part in await asyncio.gather(*(one(node_id, address) for node_id, address in nodes)):
            found.update(part)
    finally:
        await transport.close()
    return found
