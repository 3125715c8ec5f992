"""Checks a ConsumerGroupHeartbeat before anybody looks at its group.

Source: `GroupCoordinatorService.throwIfConsumerGroupHeartbeatRequestIsInvalid` of Kafka 4; CP-42.
"""

from __future__ import annotations

from typing import Final

from kraftlite.coordinator.api import ConsumerHeartbeatRequest
from kraftlite.coordinator.config import GroupConfig
from kraftlite.coordinator.modern.member import JOIN_EPOCH, LEAVE_EPOCH, STATIC_LEAVE_EPOCH
from kraftlite.model.errors import ApiError, ErrorCode

MEMBER_ID_REQUIRED_FROM: Final = 1
"""Members make their own ids from this version of ConsumerGroupHeartbeat on."""


def check_heartbeat(request: ConsumerHeartbeatRequest, version: int, config: GroupConfig) -> None:
    """Raise ApiError(INVALID_REQUEST or UNSUPPORTED_ASSIGNOR) for a heartbeat that is malformed."""
    epoch = request.member_epoch
    if not request.member_id and (version >= MEMBER_ID_REQUIRED_FROM or epoch > 0 or epoch == LEAVE_EPOCH):
        raise _invalid("MemberId can't be empty.")
    if not request.group_id:
        raise _invalid("GroupId can't be empty.")
    if request.instance_id == "":
        raise _invalid("InstanceId can't be empty.")
    if request.rack_id == "":
        raise _invalid("RackId can't be empty.")
    if epoch == JOIN_EPOCH:
        _check_join(request)
    elif epoch == STATIC_LEAVE_EPOCH and request.instance_id is None:
        raise _invalid("InstanceId can't be null.")
    elif epoch < STATIC_LEAVE_EPOCH:
        raise _invalid("MemberEpoch is invalid.")
    if request.server_assignor is not None and request.server_assignor not in config.consumer_assignors:
        raise ApiError(
            ErrorCode.UNSUPPORTED_ASSIGNOR,
            f"ServerAssignor {request.server_assignor} is not supported. Supported assignors: "
            f"{', '.join(config.consumer_assignors)}.",
        )


def _check_join(request: ConsumerHeartbeatRequest) -> None:
    if request.rebalance_timeout_ms is None:
        raise _invalid("RebalanceTimeoutMs must be provided in first request.")
    if request.owned is None or request.owned:
        raise _invalid("TopicPartitions must be empty when (re-)joining.")
    if request.topics is None and request.regex is None:
        raise _invalid("Either SubscribedTopicNames or SubscribedTopicRegex must be non-null when (re-)joining.")


def _invalid(message: str) -> ApiError:
    return ApiError(ErrorCode.INVALID_REQUEST, message)
