"""PushTelemetry: a push that is in order goes to the receiver, decoded off the loop. Source: KIP-714; TM-03."""

from __future__ import annotations

from collections.abc import Callable

from kraftlite.broker.handlers.context import BrokerContext
from kraftlite.broker.telemetry import ClientTelemetry, Push, PushingClient
from kraftlite.model.errors import ApiError, ErrorCode


def telemetry_of(ctx: BrokerContext) -> ClientTelemetry:
    """The APIs are offered only where it is there."""
    assert ctx.telemetry is not None
    return ctx.telemetry


async def push_telemetry(ctx: BrokerContext, push: Push, client: PushingClient, gone: Callable[[], bool]) -> None:
    """Raises ApiError: that of `ClientTelemetry.admit`, or INVALID_RECORD for what the receiver cannot read."""
    telemetry = telemetry_of(ctx)
    instance = telemetry.admit(push, client, gone)
    if push.payload:
        receiver = telemetry.receiver
        try:
            decoded = await ctx.off_loop.run(len(push.payload), lambda: receiver.decode(push.codec, push.payload))
        except (ApiError, ValueError) as error:
            telemetry.done(instance, ErrorCode.INVALID_RECORD)
            raise ApiError(ErrorCode.INVALID_RECORD, str(error)) from error
        receiver.take(instance.id, instance.client, instance.memory_ms, decoded)
    telemetry.done(instance)
