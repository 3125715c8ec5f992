"""This controller's own registration with the active one.

Source: KIP-919; Kafka's ControllerRegistrationManager; CM-13, FV-09.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

from kraftlite.controller.config import ControllerConfig
from kraftlite.metadata.delta import MetadataDelta
from kraftlite.metadata.features import supports_controller_registration
from kraftlite.metadata.image import MetadataImage
from kraftlite.metadata.publisher import Manifest
from kraftlite.model.errors import ApiError, ErrorCode
from kraftlite.model.ids import random_uuid, uuid_to_str
from kraftlite.model.messages import methods
from kraftlite.model.messages.controller import ControllerRegistrationRequest
from kraftlite.raft.client import LeaderAndEpoch, RaftClient
from kraftlite.runtime.ports import Ports, TaskHandle, TransportError
from kraftlite.runtime.trace.node import ControllerRegistrationFailed, ControllerRegistrationSent

_RETRY_MS: Final = 500
_REFUSED_RETRY_MS: Final = 10_000
_CLAIMS: Final = 10
"""The attempts that may find a leader that has not claimed the controller yet, before that is told: it is so at each start."""


class ControllerRegistrar:
    """Sends the registration until the active controller has committed it.

    A `MetadataPublisher`: it waits while `metadata.version` has no such registrations, sends as soon as it has, and sends again
    when the metadata log had this incarnation under its id and has another one, or none.
    """

    name = "ControllerRegistrar"

    def __init__(
        self,
        ports: Ports,
        config: ControllerConfig,
        raft: RaftClient,
        register_here: Callable[[ControllerRegistrationRequest], Awaitable[None]],
    ) -> None:
        self._ports = ports
        self._config = config
        self._raft = raft
        self._register_here = register_here
        self._task: TaskHandle | None = None
        self._request: ControllerRegistrationRequest | None = None
        self._level: int | None = None
        """The `metadata.version` that this node has seen committed; None before the first."""
        self._seen = False
        """True once the registration of this incarnation was in the metadata; until then an older one may be on its way."""
        self._news: asyncio.Future[None] | None = None
        self.registered = False

    def start(self) -> None:
        if self._config.listeners:
            self._task = self._ports.tasks.spawn(self._run(), name="controller-registration")

    def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()

    async def _run(self) -> None:
        request = self._request = ControllerRegistrationRequest(
            controller_id=self._config.node_id,
            cluster_id=self._config.cluster_id,
            incarnation_id=random_uuid(self._ports.entropy),
            listeners=self._config.listeners,
            features=self._config.supported_features,
        )
        emit = self._ports.tracer.emit
        emit(ControllerRegistrationSent(incarnation_id=uuid_to_str(request.incarnation_id)))
        told: str | None = None
        claims = _CLAIMS
        while True:
            if self.registered or (self._level is not None and not supports_controller_registration(self._level)):
                told, claims = None, _CLAIMS
                await self._pause(None)
                continue
            reason, delay_ms = None, _RETRY_MS
            try:
                self.registered = await self._send(request)
            except TransportError as error:
                reason = str(error)
            except ApiError as error:
                claims -= 1
                reason = None if error.code is ErrorCode.NOT_CONTROLLER and claims >= 0 else str(error)
                if not error.code.retriable:
                    delay_ms = _REFUSED_RETRY_MS
            if reason is not None and (reason != told or delay_ms == _REFUSED_RETRY_MS):
                emit(ControllerRegistrationFailed(reason=reason, retry_in_ms=delay_ms))
                told = reason
            if not self.registered:
                await self._pause(delay_ms)

    async def _pause(self, delay_ms: int | None) -> None:
        """Wait for news of the metadata, for `delay_ms` at most."""
        news = self._news = asyncio.get_running_loop().create_future()
        timer = None if delay_ms is None else self._ports.clock.call_later(delay_ms, self._wake)
        try:
            await news
        finally:
            self._news = None
            if timer is not None:
                timer.cancel()

    def _wake(self) -> None:
        if self._news is not None and not self._news.done():
            self._news.set_result(None)

    async def _send(self, request: ControllerRegistrationRequest) -> bool:
        leader_id = self._raft.leader_and_epoch().leader_id
        if leader_id is None:
            return False
        if leader_id == self._config.node_id:
            await self._register_here(request)
            return True
        endpoint = self._raft.leader_endpoint()
        if endpoint is None:
            return False
        await self._ports.transport.call(endpoint, methods.REGISTER_CONTROLLER, request, self._config.request_timeout_ms)
        return True

    # --- MetadataPublisher

    def on_metadata_update(self, delta: MetadataDelta, image: MetadataImage, manifest: Manifest) -> None:
        node_id = self._config.node_id
        if image.features.metadata_version != self._level:
            self._level = image.features.metadata_version
            self._wake()
        if delta.cluster is not None and node_id in delta.cluster.changed_controllers and self._request is not None:
            found = image.cluster.controllers.get(node_id)
            if found is not None and found.incarnation_id == self._request.incarnation_id:
                self._seen = True
            elif self._seen:
                self._seen = self.registered = False
                self._wake()

    def on_controller_change(self, leader: LeaderAndEpoch) -> None:
        return None

    def close(self) -> None:
        return None
