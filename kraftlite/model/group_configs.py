"""Keys of the configs of groups and of client metrics subscriptions.

Of a group those of consumer groups only: share and streams groups there are none. Source: KIP-848, KIP-714.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from kraftlite.model.configdef import ConfigKey, ConfigType, at_least, by_name, protocol_message
from kraftlite.model.errors import ApiError, ErrorCode
from kraftlite.model.regex import compiled

SESSION_TIMEOUT: Final = "consumer.session.timeout.ms"
HEARTBEAT_INTERVAL: Final = "consumer.heartbeat.interval.ms"
ASSIGNMENT_INTERVAL: Final = "consumer.assignment.interval.ms"
ASSIGNMENT_INTERVAL_KEY: Final = f"group.{ASSIGNMENT_INTERVAL}"
"""The broker's key, which may be changed while it runs."""

GROUP_CONFIGS: Final[Mapping[str, ConfigKey]] = by_name(
    (
        ConfigKey(
            name=SESSION_TIMEOUT,
            type=ConfigType.INT,
            default="45000",
            doc="Time without a heartbeat after which a member is removed from the consumer group.",
            allowed=at_least(1),
            server_key="group.consumer.session.timeout.ms",
            dynamic="per-broker",
        ),
        ConfigKey(
            name=HEARTBEAT_INTERVAL,
            type=ConfigType.INT,
            default="5000",
            doc="Period at which the members of the consumer group send heartbeats.",
            allowed=at_least(1),
            server_key="group.consumer.heartbeat.interval.ms",
            dynamic="per-broker",
        ),
        ConfigKey(
            name=ASSIGNMENT_INTERVAL,
            type=ConfigType.INT,
            default="1000",
            doc="How long a target assignment of the consumer group lasts at least.",
            allowed=at_least(0),
            server_key="group.consumer.assignment.interval.ms",
            dynamic="per-broker",
        ),
    )
)

CLIENT_METRICS_CONFIGS: Final[Mapping[str, ConfigKey]] = by_name(
    (
        ConfigKey(name="metrics", type=ConfigType.LIST, default="", doc="Prefixes of the metrics that clients are to send."),
        ConfigKey(name="interval.ms", type=ConfigType.INT, default="300000", doc="Period at which clients send them."),
        ConfigKey(name="match", type=ConfigType.LIST, default="", doc="selector=regex of the clients that are meant."),
    )
)

_BOUNDS: Final = (
    (SESSION_TIMEOUT, "group.consumer.min.session.timeout.ms", 45_000, "group.consumer.max.session.timeout.ms", 60_000),
    (HEARTBEAT_INTERVAL, "group.consumer.min.heartbeat.interval.ms", 5_000, "group.consumer.max.heartbeat.interval.ms", 15_000),
    (ASSIGNMENT_INTERVAL, "group.consumer.min.assignment.interval.ms", 0, "group.consumer.max.assignment.interval.ms", 15_000),
)
_MIN_INTERVAL_MS: Final = 100
_MAX_INTERVAL_MS: Final = 3_600_000
_MAX_REGEX_LENGTH: Final = 1_000
_SELECTORS: Final = (
    "client_instance_id",
    "client_id",
    "client_software_name",
    "client_software_version",
    "client_source_address",
    "client_source_port",
)


def validate_group_configs(values: Mapping[str, str], broker_values: Mapping[str, str]) -> None:
    """A group's overrides, one by one, against the brokers' bounds, and together. Raises ApiError(INVALID_CONFIG)."""
    parsed: dict[str, int] = {}
    for name, text in values.items():
        key = GROUP_CONFIGS.get(name)
        if key is None:
            raise ApiError(ErrorCode.INVALID_CONFIG, f"Unknown group config name: {name}")
        try:
            parsed[name] = key.parse(text)
        except ValueError as error:
            raise ApiError(ErrorCode.INVALID_CONFIG, protocol_message(error)) from None
    for name, least_key, least, most_key, most in _BOUNDS:
        if name not in parsed:
            continue
        low, high = int(broker_values.get(least_key, least)), int(broker_values.get(most_key, most))
        if parsed[name] < low:
            raise ApiError(ErrorCode.INVALID_CONFIG, f"{name} must be greater than or equal to {least_key}")
        if parsed[name] > high:
            raise ApiError(ErrorCode.INVALID_CONFIG, f"{name} must be less than or equal to {most_key}")

    def effective(name: str) -> int:
        key = GROUP_CONFIGS[name]
        assert key.server_key is not None and key.default is not None
        return parsed[name] if name in parsed else int(broker_values.get(key.server_key, key.default))

    if effective(SESSION_TIMEOUT) <= effective(HEARTBEAT_INTERVAL):
        raise ApiError(ErrorCode.INVALID_CONFIG, f"{SESSION_TIMEOUT} must be greater than {HEARTBEAT_INTERVAL}")


def validate_client_metrics_configs(values: Mapping[str, str]) -> None:
    """Raises ApiError: INVALID_REQUEST for an unknown key or interval out of bounds, INVALID_CONFIG for what cannot be read."""
    for name, text in values.items():
        key = CLIENT_METRICS_CONFIGS.get(name)
        if key is None:
            raise ApiError(ErrorCode.INVALID_REQUEST, f"Unknown client metrics configuration: {name}")
        try:
            value = key.parse(text)
        except ValueError as error:
            raise ApiError(ErrorCode.INVALID_CONFIG, protocol_message(error)) from None
        if name == "interval.ms" and not _MIN_INTERVAL_MS <= value <= _MAX_INTERVAL_MS:
            raise ApiError(
                ErrorCode.INVALID_REQUEST,
                f"Invalid value {value} for interval.ms, interval must be between {_MIN_INTERVAL_MS} and {_MAX_INTERVAL_MS} "
                "(1 hour)",
            )
        if name == "match":
            matches_of(value)


def matches_of(patterns: Iterable[str]) -> dict[str, str]:
    """The expressions of a `match`, by selector; of two for one selector the later. Raises ApiError(INVALID_CONFIG).

    As Kafka reads them: two parts around one equals sign, neither empty. An expression is one of RE2.
    """
    found: dict[str, str] = {}
    for pattern in patterns:
        parts = [part.strip() for part in pattern.rstrip("=").split("=")]
        if len(parts) != 2 or parts[0] not in _SELECTORS or not _is_regex(parts[1]):
            raise ApiError(ErrorCode.INVALID_CONFIG, f"Illegal client matching pattern: {pattern}")
        found[parts[0]] = parts[1]
    return found


def _is_regex(text: str) -> bool:
    import re2

    try:
        compiled(text)
    except re2.error:
        return False
    return len(text) <= _MAX_REGEX_LENGTH
