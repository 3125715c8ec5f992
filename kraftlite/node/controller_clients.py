"""Kafka clients of a controller: what they are answered from (CB-01). What it takes is imported when the first of them comes."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from kraftlite.broker.metadata_cache import MetadataCache
from kraftlite.config.server import ServerConfig
from kraftlite.metadata.delta import MetadataDelta
from kraftlite.metadata.image import MetadataImage
from kraftlite.metadata.publisher import Manifest
from kraftlite.raft.client import LeaderAndEpoch, RaftClient
from kraftlite.runtime.ports import Handlers, Ports

if TYPE_CHECKING:
    from kraftlite.wire.apis import KafkaApis


class ControllerClients:
    """A `MetadataPublisher` that keeps the latest image, and what makes the APIs of a controller's listeners.

    `handlers` are those that serve other nodes: clients reach the same ones.
    """

    name = "ControllerClients"

    def __init__(self, ports: Ports, config: ServerConfig, cluster_id: str, raft: RaftClient, handlers: Handlers) -> None:
        self._ports = ports
        self._config = config
        self._raft = raft
        self._handlers = handlers
        self._metadata = MetadataCache(cluster_id)
        self._known = asyncio.Event()

    async def apis(self, listener: str) -> KafkaApis:
        """Wait until the cluster's metadata is known, and import what clients need, off the loop."""
        await self._known.wait()
        return await self._ports.tasks.run_blocking(lambda: self._make(listener))

    def _make(self, listener: str) -> KafkaApis:
        import kraftlite.protocol.kio_codec  # noqa: F401
        from kraftlite.broker.handlers.at_controller import OwnController
        from kraftlite.broker.handlers.context import NodeContext
        from kraftlite.wire.controller_apis import controller_apis

        context = NodeContext(
            node_id=self._config.node_id,
            cluster_id=self._metadata.cluster_id,
            config=self._config,
            metadata=self._metadata,
            controller=OwnController(self._handlers),
            raft=self._raft,
            ports=self._ports,
            config_sources=self._config.sources,
        )
        return controller_apis(context, listener)

    # --- MetadataPublisher

    def on_metadata_update(self, delta: MetadataDelta, image: MetadataImage, manifest: Manifest) -> None:
        self._metadata.set_image(image)
        self._known.set()

    def on_controller_change(self, leader: LeaderAndEpoch) -> None:
        return None

    def close(self) -> None:
        return None
