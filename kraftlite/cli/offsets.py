"""offsets TOPIC: first offset, HW, and each replica's LEO as far as it can be known."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence
from typing import Any

import click

from kraftlite.cli.common import bootstrap_of, bootstrap_option, data_dir_of, output_option, print_json, print_table
from kraftlite.cli.kafka import admin, kafka_errors, list_topics
from kraftlite.local.client import client_config

_RPC_TIMEOUT_MS = 2000


@click.command("offsets")
@click.argument("topic")
@bootstrap_option
@output_option
def offsets(topic: str, bootstrap_server: str | None, output: str) -> None:
    """First offset and high watermark of TOPIC's partitions; on a local cluster each replica's log end offset, too."""
    from confluent_kafka import Consumer, TopicPartition

    bootstrap = bootstrap_of(bootstrap_server)
    found = list_topics(admin(bootstrap)).topics.get(topic)
    if found is None:
        raise click.ClickException(f"Topic '{topic}' does not exist as expected")
    leos = _local_leos(bootstrap, topic)
    consumer = Consumer({**client_config(bootstrap), "group.id": "kraftlite-offsets"})
    rows = []
    try:
        for index, partition in sorted(found.partitions.items()):
            earliest = hw = None
            if partition.leader >= 0:
                with kafka_errors(f"{topic}-{index}"):
                    earliest, hw = consumer.get_watermark_offsets(TopicPartition(topic, index), timeout=10.0)
            rows.append(
                {
                    "partition": index,
                    "leader": partition.leader if partition.leader >= 0 else None,
                    "earliest": earliest,
                    "high_watermark": hw,
                    "log_end_offsets": {str(node): leos.get((index, node)) for node in partition.replicas},
                }
            )
    finally:
        consumer.close()
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
