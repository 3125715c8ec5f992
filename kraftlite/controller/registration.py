"""This controller's own registration with the active one. Source: KIP-919; CM-13."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final

from kraftlite.controller.config import ControllerConfig
from kraftlite.model.errors import ApiError
from kraftlite.model.ids import random_uuid, uuid_to_str
from kraftlite.model.messages import methods
from kraftlite.model.messages.controller import ControllerRegistrationRequest
from kraftlite.raft.client import RaftClient
from kraftlite.runtime.ports import Ports, TaskHandle, TransportError
from kraftlite.runtime.trace.node import ControllerRegistrationFailed, ControllerRegistrationSent

_RETRY_MS: Final = 500
_REFUSED_RETRY_MS: Final = 10_000


class ControllerRegistrar:
    """Sends the registration until the active controller has committed it; once per process."""

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
        self.registered = False

    def start(self) -> None:
        if self._config.listeners:
            self._task = self._ports.tasks.spawn(self._run(), name="controller-registration")

    def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()

    async def _run(self) -> None:
        request = ControllerRegistrationRequest(
            controller_id=self._config.node_id,
            cluster_id=self._config.cluster_id,
            incarnation_id=random_uuid(self._ports.entropy),
            listeners=self._config.listeners,
            features=self._config.supported_features,
        )
        emit = self._ports.tracer.emit
        emit(ControllerRegistrationSent(incarnation_id=uuid_to_str(request.incarnation_id)))
        told: str | None = None
        while not self.registered:
            reason, delay_ms = None, _RETRY_MS
            try:
                self.registered = await self._send(request)
            except TransportError as error:
                reason = str(error)
            except ApiError as error:
                reason = str(error)
                if not error.code.retriable:
                    delay_ms = _REFUSED_RETRY_MS
            if reason is not None and (reason != told or delay_ms == _REFUSED_RETRY_MS):
                emit(ControllerRegistrationFailed(reason=reason, retry_in_ms=delay_ms))
                told = reason
            if not self.registered:
                await self._ports.clock.sleep(delay_ms)

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
