"""GetTelemetrySubscriptions and PushTelemetry on the wire. Offered where there is a receiver. Source: KIP-714; TM-01."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Mapping
from typing import Any, Final

from kraftlite.broker.handlers.telemetry import push_telemetry, telemetry_of
from kraftlite.broker.telemetry import COMPRESSION_TYPES, Push, PushingClient
from kraftlite.model.errors import ApiError, ErrorCode
from kraftlite.wire.apis.call import Call, cold
from kraftlite.wire.frames import Connection

LONGEST_CLIENT_ID: Final = 1_024
"""Characters of a client id that an instance keeps: a connection may make 16,384 of them, each with an id of 32 KiB."""


def _client(call: Call) -> PushingClient:
    name, version = call.connection.software
    return PushingClient(
        client_id=(call.client_id or "")[:LONGEST_CLIENT_ID],
        software_name=name,
        software_version=version,
        address=call.requester.host,
        port=call.connection.peer_port,
    )


def _gone(connection: Connection) -> Callable[[], bool]:
    """Return what says whether it is lost, without keeping it."""
    known = weakref.ref(connection)

    def gone() -> bool:
        found = known()
        return found is None or found.lost

    return gone


async def _subscriptions(call: Call, request: Any) -> Mapping[str, object]:
    answer: dict[str, object] = {
        "throttle_time": 0,
        "error_code": ErrorCode.NONE,
        "client_instance_id": None,
        "subscription_id": 0,
        "accepted_compression_types": (),
        "push_interval": 0,
        "telemetry_max_bytes": 0,
        "delta_temporality": False,
        "requested_metrics": (),
    }
    telemetry = telemetry_of(call.ctx)
    try:
        found = telemetry.subscribe(request.client_instance_id, _client(call), _gone(call.connection))
    except ApiError as error:
        return {**answer, "error_code": error.code}
    return {
        **answer,
        "client_instance_id": found.id,
        "subscription_id": found.subscription_id,
        "accepted_compression_types": COMPRESSION_TYPES,
        "push_interval": found.interval_ms,
        "telemetry_max_bytes": telemetry.max_bytes,
        "delta_temporality": True,
        "requested_metrics": found.metrics,
    }


async def _push(call: Call, request: Any) -> Mapping[str, object]:
    push = Push(
        instance_id=request.client_instance_id,
        subscription_id=request.subscription_id,
        terminating=request.terminating,
        codec=request.compression_type,
        payload=bytes(request.metrics or b""),
    )
    try:
        await push_telemetry(call.ctx, push, _client(call), _gone(call.connection))
    except ApiError as error:
        return {"throttle_time": 0, "error_code": error.code}
    return {"throttle_time": 0, "error_code": ErrorCode.NONE}


GET_TELEMETRY_SUBSCRIPTIONS = cold(71, "GetTelemetrySubscriptions", versions=(0, 0), flexible_from=0, adapt=_subscriptions)
PUSH_TELEMETRY = cold(72, "PushTelemetry", versions=(0, 0), flexible_from=0, adapt=_push)
