"""The clients by which the command line and the demonstration reach a cluster: our own, and librdkafka for records."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, TypeVar

from kraftlite.client.errors import ClientError
from kraftlite.client.properties import settings_from
from kraftlite.client.settings import ClientSettings
from kraftlite.model.errors import ErrorCode
from kraftlite.protocol.api_keys import DESCRIBE_QUORUM

if TYPE_CHECKING:  # the client loads kio, which takes longer than most commands
    from kraftlite.client.cluster import ClusterClient
    from kraftlite.client.controllers import ControllersClient
    from kraftlite.local.state import LocalCluster
    from kraftlite.rpc.transport import GrpcTransport

T = TypeVar("T")
RPC_MS: Final = 3_000
"""The wait for the answer of a node to one question."""
CLIENT_ID: Final = "kraftlite-cli"
VOTERS_UPGRADE: Final = "kraftlite feature upgrade --feature kraft.version=1"
"""Puts configured voters into the log (KIP-853)."""
_PROBE_TIMEOUT_S: Final = 5.0
"""For a connection, up to the answer to ApiVersions: long enough for a broker on a busy machine, short enough to be told of a
port that is silent."""
_UNREACHABLE_S: Final = 5.0
"""For how long addresses that give no connection are tried again: as long as a broker may take to start."""
_DEFAULTS: Final = {
    "client.id": CLIENT_ID,
    "default.api.timeout.ms": "30000",
    "request.timeout.ms": "60000",
    "retry.backoff.ms": "250",
    "socket.connection.setup.timeout.ms": f"{_PROBE_TIMEOUT_S * 1000:.0f}",
}
_QUORUM_TRIES: Final = 40
_QUORUM_PAUSE_S: Final = 0.25
_QUORUM_TIMEOUT_MS: Final = 15_000


def client_config(bootstrap: str) -> dict[str, Any]:
    """Return the settings that every librdkafka client of ours has in common: quiet, and quick to try again."""
    return {
        "bootstrap.servers": bootstrap,
        "client.id": CLIENT_ID,
        "log_level": 0,
        "error_cb": lambda error: None,
        "socket.connection.setup.timeout.ms": 5000,
        "reconnect.backoff.ms": 20,
        "reconnect.backoff.max.ms": 500,
    }


def admin_settings(options: Mapping[str, str]) -> ClientSettings:
    """Return the settings of our own client, from Kafka's names for the properties of an admin client. Raises ValueError, as
    `settings_from` does."""
    return replace(settings_from({**_DEFAULTS, **options}), unreachable_timeout_ms=round(_UNREACHABLE_S * 1000))


def cluster_at(bootstrap: str, security: Mapping[str, str] | None = None) -> ClusterClient:
    """A client. `bootstrap`: host:port, several separated by commas; `security`: its TLS and SASL, in Kafka's names."""
    from kraftlite.client.cluster import ClusterClient

    return ClusterClient(admin_settings({**(security or {}), "bootstrap.servers": bootstrap}))


def controllers_at(addresses: str, security: Mapping[str, str] | None = None) -> ControllersClient:
    """A client of the controllers themselves, which also answer when no broker runs."""
    from kraftlite.client.controllers import ControllersClient

    return ControllersClient(admin_settings({**(security or {}), "bootstrap.servers": addresses}))


def fetch_quorum(bootstrap: str, security: Mapping[str, str] | None = None) -> dict[str, Any]:
    """Do as `quorum_of`, by a client that is made for this call."""
    with cluster_at(bootstrap, security) as cluster:
        return quorum_of(cluster)


def quorum_of(cluster: ClusterClient) -> dict[str, Any]:
    """The quorum as its leader describes it. While an election runs it is asked again, for ten seconds. Raises ClientError."""
    from kraftlite.client.connection import code_of

    asked = {"topics": [{"topic_name": "__cluster_metadata", "partitions": [{"partition_index": 0}]}]}
    reason = ""
    for _ in range(_QUORUM_TRIES):
        answer = cluster.call(DESCRIBE_QUORUM, 2, asked, timeout_ms=_QUORUM_TIMEOUT_MS)
        partition = answer.topics[0].partitions[0] if answer.topics and answer.topics[0].partitions else None
        code = code_of(answer)
        if code is ErrorCode.NONE and partition is not None:
            code = code_of(partition)
            if code is ErrorCode.NONE:
                return _as_dict(partition, answer.nodes)
        reason = answer.error_message or code.name
        time.sleep(_QUORUM_PAUSE_S)
    raise ClientError(f"the quorum did not answer: {reason}")


def voter_directories(cluster: ClusterClient) -> dict[int, str | None]:
    """The voters by node id, and the directories by which the quorum knows them; None: they are configured, and cannot be changed
    before `VOTERS_UPGRADE`. Raises ClientError."""
    return {voter["id"]: voter["directory_id"] for voter in quorum_of(cluster)["voters"]}


def _as_dict(partition: Any, nodes: Any) -> dict[str, Any]:
    from kraftlite.model.ids import uuid_to_str

    endpoints = {int(node.node_id): [f"{item.name}://{item.host}:{item.port}" for item in node.listeners] for node in nodes}

    def replica(item: Any) -> dict[str, Any]:
        directory = item.replica_directory_id
        return {
            "id": int(item.replica_id),
            "directory_id": None if directory is None or directory.int == 0 else uuid_to_str(directory),
            "log_end_offset": int(item.log_end_offset),
            "last_fetch_timestamp": int(item.last_fetch_timestamp),
            "last_caught_up_timestamp": int(item.last_caught_up_timestamp),
            "endpoints": endpoints.get(int(item.replica_id), []),
        }

    return {
        "leader_id": int(partition.leader_id),
        "leader_epoch": int(partition.leader_epoch),
        "high_watermark": int(partition.high_watermark),
        "voters": sorted((replica(item) for item in partition.current_voters), key=lambda item: item["id"]),
        "observers": sorted((replica(item) for item in partition.observers), key=lambda item: item["id"]),
    }


@asynccontextmanager
async def to_nodes(cluster: LocalCluster) -> AsyncIterator[GrpcTransport]:
    """Connections to the nodes of a local cluster by the protocol between nodes, as the administrator where they want to know who
    asks."""
    from kraftlite.local.secure import peer_tls
    from kraftlite.rpc.transport import GrpcTransport

    transport = GrpcTransport()
    try:
        tls = peer_tls(cluster)
        transport.protect(lambda _service: tls)
        yield transport
    finally:
        await transport.close()


def ask_nodes(cluster: LocalCluster, ask: Callable[[GrpcTransport], Awaitable[T]]) -> T:
    """Ask the nodes by `to_nodes`, and wait for the answers."""

    async def run() -> T:
        async with to_nodes(cluster) as transport:
            return await ask(transport)

    # In a thread of its own: whoever calls may have a loop already, and waits like any caller of this package.
    with ThreadPoolExecutor(1, thread_name_prefix="nodes") as thread:
        return thread.submit(lambda: asyncio.run(run())).result()
