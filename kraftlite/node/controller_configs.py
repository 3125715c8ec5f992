"""The configuration in force at a node that is a controller alone: what its file says, overlaid by what the metadata log says.

A broker's publisher does this for a node that has that role, too. Source: KIP-919, KIP-226; CB-07.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kraftlite.broker.dynamic_configs import DynamicConfigs
from kraftlite.config.server import ServerConfig
from kraftlite.metadata.delta import MetadataDelta
from kraftlite.metadata.image import ClientQuotasImage, MetadataImage
from kraftlite.metadata.publisher import Manifest
from kraftlite.quotas.matching import IpQuotas
from kraftlite.raft.client import LeaderAndEpoch
from kraftlite.runtime.ports import Ports

if TYPE_CHECKING:
    from kraftlite.node.listeners import NodeListeners


class ControllerConfigs:
    """A `MetadataPublisher` that hands dynamic values to the node's listeners: limits of connections, certificates, quotas of
    addresses. It comes before `ControllerClients`, so that no client is served by older ones than those of the first image
    (KAFKA-16126)."""

    name = "ControllerConfigs"

    def __init__(self, ports: Ports, config: ServerConfig, listeners: NodeListeners) -> None:
        self._configs = DynamicConfigs(config.node_id, config.values, ports.tracer)
        self._listeners = listeners
        self._quotas = ClientQuotasImage.EMPTY

    def on_metadata_update(self, delta: MetadataDelta, image: MetadataImage, manifest: Manifest) -> None:
        self._configs.set_image(image)
        if delta.configs is not None and any(self._configs.concerns_this_broker(*found) for found in delta.configs.changed):
            self._listeners.update_broker_values(self._configs.broker_values())
        if image.client_quotas is not self._quotas:
            self._quotas = image.client_quotas
            self._listeners.update_ip_quotas(IpQuotas(image.client_quotas.entities).of)

    def on_controller_change(self, leader: LeaderAndEpoch) -> None:
        return None

    def close(self) -> None:
        return None
