"""The loggers of this node: their levels, described and changed while it runs.

Source: KIP-412, KIP-919; Kafka's ConfigAdminManager and LoggingController; CB-07.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from kraftlite.broker.handlers.context import NodeContext
from kraftlite.model.errors import ApiError, ErrorCode
from kraftlite.model.messages.controller import (
    AlterConfigOp,
    AlterConfigsResult,
    ConfigChange,
    ConfigResourceChange,
    LegacyConfigResource,
)
from kraftlite.model.shown import shown
from kraftlite.runtime.ports import HasLoggers

ROOT: Final = "root"
LEVELS: Final = ("DEBUG", "ERROR", "FATAL", "INFO", "TRACE", "WARN")


def levels(ctx: NodeContext) -> Mapping[str, str]:
    """Return the level in force of every logger; none where the trace goes to nobody who has any."""
    tracer = ctx.ports.tracer
    return tracer.loggers() if isinstance(tracer, HasLoggers) else {}


def alter_logger(
    ctx: NodeContext, resource: ConfigResourceChange | LegacyConfigResource, *, validate_only: bool
) -> AlterConfigsResult:
    """All changes of a resource, or none."""
    code, message = ErrorCode.NONE, None
    try:
        if isinstance(resource, LegacyConfigResource):
            raise ApiError(ErrorCode.INVALID_REQUEST, "Unknown resource type BROKER_LOGGER")
        if resource.resource_name != str(ctx.node_id):
            told = f"Unexpected broker id, expected {ctx.node_id}, but received {shown(resource.resource_name)}"
            raise ApiError(ErrorCode.INVALID_REQUEST, told)
        wanted = list(_checked(levels(ctx), resource.changes))
        tracer = ctx.ports.tracer
        if not validate_only and isinstance(tracer, HasLoggers):
            for logger, level in wanted:
                tracer.set_level(logger, level)
    except ApiError as error:
        code, message = error.code, error.message
    return AlterConfigsResult(
        resource_type=resource.resource_type, resource_name=resource.resource_name, error=code, message=message
    )


def _checked(known: Mapping[str, str], changes: tuple[ConfigChange, ...]) -> Iterator[tuple[str, str | None]]:
    """Raises ApiError for the first change that cannot be made."""
    for change in changes:
        if change.op not in (AlterConfigOp.SET, AlterConfigOp.DELETE):
            name = AlterConfigOp(change.op).name if change.op in tuple(AlterConfigOp) else f"Unknown type {change.op}"
            raise ApiError(ErrorCode.INVALID_REQUEST, f"{name} operation is not allowed for the BROKER_LOGGER resource")
        if change.name not in known:
            raise ApiError(ErrorCode.INVALID_CONFIG, f"Logger {shown(change.name)} does not exist!")
        if change.op == AlterConfigOp.DELETE:
            if change.name == ROOT:
                raise ApiError(ErrorCode.INVALID_REQUEST, f"Removing the log level of the {ROOT} logger is not allowed")
            yield change.name, None
        elif change.value not in LEVELS:
            told = f"Cannot set the log level of {shown(change.name)} to {shown(change.value or 'null')}"
            valid = f"Valid log levels are {', '.join(LEVELS)}"
            raise ApiError(ErrorCode.INVALID_CONFIG, f"{told} as it is not a supported log level. {valid}")
        else:
            yield change.name, change.value
