"""The authorizer of a node, and what keeps its entries up to date. Source: SE-30, SE-33, SE-34."""

from __future__ import annotations

from typing import Any

from kraftlite.config.server import ServerConfig
from kraftlite.metadata.delta import MetadataDelta
from kraftlite.metadata.image import MetadataImage
from kraftlite.metadata.publisher import Manifest
from kraftlite.model.acls import Operation
from kraftlite.model.errors import ApiError, ErrorCode
from kraftlite.model.method import AnyMethod
from kraftlite.model.principal import Requester
from kraftlite.raft.client import LeaderAndEpoch
from kraftlite.runtime.caller import caller
from kraftlite.runtime.ports import AnyHandler, Handlers, Ports
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


def for_nodes(handlers: Handlers, gate: Gate | None) -> Handlers:
    """The same handlers, for callers that may act as nodes: CLUSTER_ACTION on the cluster, which super users have (SE-06, SE-40).

    Where the transport says who calls, a certificate of the right authority is not enough: users have such certificates, too.
    Anybody else is refused with ApiError(CLUSTER_AUTHORIZATION_FAILED).
    """
    if gate is None:
        return handlers
    return {method: _for_nodes(method, handler, gate) for method, handler in handlers.items()}


def _for_nodes(method: AnyMethod, handler: AnyHandler, gate: Gate) -> AnyHandler:
    async def handle(request: Any) -> Any:
        principal = caller()
        if principal is not None and not gate.authorizer.is_super(principal):
            if not gate.authorizer.is_loaded:
                message = f"{principal} is not among super.users, and the access control entries are not loaded yet"
                raise ApiError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED, message)
            gate.rights(Requester(principal, "", None), method.name).need_cluster(Operation.CLUSTER_ACTION)
        return await handler(request)

    return handle


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
