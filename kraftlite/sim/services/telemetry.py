"""The clients' word on themselves (KIP-714): the subscriptions that a broker has for them, and their pushes."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final
from uuid import UUID

from kraftlite.broker.handlers.context import BrokerContext
from kraftlite.broker.handlers.telemetry import push_telemetry, telemetry_of
from kraftlite.broker.telemetry import ClientTelemetry, Decoded, Push, PushingClient
from kraftlite.model.errors import ApiError, ErrorCode
from kraftlite.model.method import Method
from kraftlite.node.build import Node
from kraftlite.runtime.ports import Handlers, route

MAX_BYTES: Final = 100
"""The limit of a push: small, so that a client can be over it."""
UNREADABLE: Final = b"?"
_NOBODY: Final = UUID(int=0)


@dataclass(frozen=True, slots=True)
class SubscribeAsk:
    """`instance_id` of zeros: a client that has none yet."""

    instance_id: UUID
    client_id: str


@dataclass(frozen=True, slots=True)
class SubscribeTold:
    error: ErrorCode
    instance_id: UUID = _NOBODY
    subscription_id: int = 0
    interval_ms: int = 0
    metrics: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class PushAsk:
    push: Push
    client_id: str


@dataclass(frozen=True, slots=True)
class PushTold:
    error: ErrorCode


SUBSCRIBE: Final = Method("Client", "GetTelemetrySubscriptions", SubscribeAsk, SubscribeTold)
PUSH: Final = Method("Client", "PushTelemetry", PushAsk, PushTold)


class _Receiver:
    """Reads everything but one payload, and keeps nothing."""

    def decode(self, codec: int, payload: bytes, /) -> Decoded:
        if payload == UNREADABLE:
            raise ValueError("it is no text of metrics")
        return payload

    def take(self, instance_id: UUID, client: PushingClient, keep_ms: int, decoded: Decoded, /) -> None:
        return None


def routes(node: Node) -> Handlers:
    assert node.broker is not None
    context, ports = node.broker.context, node.broker.context.ports
    configs = context.metadata
    telemetry = ClientTelemetry(
        lambda: configs.image.configs,
        _Receiver(),
        max_bytes=MAX_BYTES,
        now_ms=ports.clock.now_ms,
        entropy=ports.entropy,
    )
    service = _Service(replace(context, telemetry=telemetry))
    return dict((route(SUBSCRIBE, service.subscribe), route(PUSH, service.push)))


class _Service:
    def __init__(self, context: BrokerContext) -> None:
        self._context = context

    async def subscribe(self, ask: SubscribeAsk) -> SubscribeTold:
        try:
            found = telemetry_of(self._context).subscribe(ask.instance_id, _client(ask.client_id), lambda: False)
        except ApiError as error:
            return SubscribeTold(error.code)
        return SubscribeTold(ErrorCode.NONE, found.id, found.subscription_id, found.interval_ms, found.metrics)

    async def push(self, ask: PushAsk) -> PushTold:
        try:
            await push_telemetry(self._context, ask.push, _client(ask.client_id), lambda: False)
        except ApiError as error:
            return PushTold(error.code)
        return PushTold(ErrorCode.NONE)


def _client(client_id: str) -> PushingClient:
    return PushingClient(client_id=client_id, software_name="sim", software_version="1", address="10.0.0.1", port=4000)
