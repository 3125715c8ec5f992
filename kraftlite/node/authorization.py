"""The authorizer of a node, and what keeps its entries up to date. Source: SE-30, SE-33, SE-34."""

from __future__ import annotations

from kraftlite.config.server import ServerConfig
from kraftlite.metadata.delta import MetadataDelta
from kraftlite.metadata.image import MetadataImage
from kraftlite.metadata.publisher import Manifest
from kraftlite.raft.client import LeaderAndEpoch
from kraftlite.runtime.ports import Ports
from kraftlite.security.authorizer import Authorizer, super_users
from kraftlite.security.gate import Gate


def load_gate(config: ServerConfig, ports: Ports) -> Gate | None:
    """The gate of a node with an authorizer, None for one without."""
    if not config.get_text("authorizer.class.name"):
        return None
    authorizer = Authorizer(
        super_users(config.get_text("super.users")), allow_everyone=config.get_bool("allow.everyone.if.no.acl.found")
    )
    return Gate(authorizer, ports.clock.now_ms, ports.tracer)


class AclPublisher:
    """A `MetadataPublisher` that hands the authorizer each change of the entries, whole."""

    name = "AclPublisher"

    def __init__(self, authorizer: Authorizer) -> None:
        self._authorizer = authorizer

    def on_metadata_update(self, delta: MetadataDelta, image: MetadataImage, manifest: Manifest) -> None:
        if delta.acls is not None:
            self._authorizer.update(delta.acls.changes)
        elif not self._authorizer.is_loaded:
            self._authorizer.update({})

    def on_controller_change(self, leader: LeaderAndEpoch) -> None:
        return None

    def close(self) -> None:
        return None
