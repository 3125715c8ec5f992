"""Rules of KIP-714, without I/O: which metrics clients are asked to push, and which pushes are taken.

State of clients is kept by their instance ids, of the 16,384 that asked last. An instance is forgotten after a minute or three of
its intervals without a request, whichever is longer, and when the connection is lost on which it was first seen.

Source: TM-01, TM-02, TM-03; Kafka's ClientMetricsManager.
"""

from __future__ import annotations

import random
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Protocol, TypeAlias
from uuid import UUID

from crc32c import crc32c

from kraftlite.metadata.image import ConfigurationsImage
from kraftlite.model.errors import ApiError, ErrorCode
from kraftlite.model.group_configs import CLIENT_METRICS_CONFIGS, matches_of
from kraftlite.model.ids import random_uuid, uuid_to_str
from kraftlite.model.messages.choices import ConfigResourceType
from kraftlite.model.regex import compiled

MAX_INSTANCES: Final = 16_384
LEAST_MEMORY_MS: Final = 60_000
EVERYTHING: Final = "*"
COMPRESSION_TYPES: Final = (4, 3, 1, 2)
"""zstd, lz4, gzip, snappy, in the order in which Kafka offers them; none at all is taken as well."""
_CODECS: Final = range(5)
_RESERVED: Final = (UUID(int=0), UUID(int=1))
_KIND: Final = ConfigResourceType.CLIENT_METRICS.value
_NEVER: Final = float("-inf")


@dataclass(frozen=True, slots=True, kw_only=True)
class PushingClient:
    """A client that asks or pushes, as a `match` sees it."""

    client_id: str
    software_name: str
    software_version: str
    address: str
    port: int

    def attributes(self, instance_id: UUID) -> dict[str, str]:
        return {
            "client_instance_id": uuid_to_str(instance_id),
            "client_id": self.client_id,
            "client_software_name": self.software_name,
            "client_software_version": self.software_version,
            "client_source_address": self.address,
            "client_source_port": str(self.port),
        }


class Decoded(Protocol):
    """The content of one push, as a receiver has read it."""


class TelemetryReceiver(Protocol):
    """Takes the metrics that are pushed."""

    def decode(self, codec: int, payload: bytes, /) -> Decoded:
        """Pure, and called on a thread. Raises ValueError or ApiError for what it cannot read."""
        ...

    def take(self, instance_id: UUID, client: PushingClient, keep_ms: int, decoded: Decoded, /) -> None:
        """Called on the loop. `keep_ms`: how long the values stand for the client when nothing follows them."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Push:
    """One PushTelemetry."""

    instance_id: UUID
    subscription_id: int
    terminating: bool
    codec: int
    payload: bytes


@dataclass(frozen=True, slots=True)
class _Subscription:
    metrics: tuple[str, ...]
    interval_ms: int
    matches: dict[str, str]

    def is_for(self, attributes: dict[str, str]) -> bool:
        return all(compiled(pattern).fullmatch(attributes[name]) is not None for name, pattern in self.matches.items())


@dataclass(slots=True, kw_only=True)
class Instance:
    """One client instance. Times are milliseconds; `version` is that of the subscriptions that it was matched with."""

    id: UUID
    client: PushingClient
    gone: Callable[[], bool]
    metrics: tuple[str, ...]
    interval_ms: int
    subscription_id: int
    version: int
    last_get_ms: float = _NEVER
    last_push_ms: float = _NEVER
    forgotten_at_ms: float = 0
    terminating: bool = False
    last_error: ErrorCode = ErrorCode.NONE

    @property
    def memory_ms(self) -> int:
        return max(LEAST_MEMORY_MS, 3 * self.interval_ms)


Configs: TypeAlias = "Callable[[], ConfigurationsImage]"


class ClientTelemetry:
    """The subscriptions of the metadata, and the clients that they were matched with. All methods run on the loop."""

    def __init__(
        self, configs: Configs, receiver: TelemetryReceiver, *, max_bytes: int, now_ms: Callable[[], int], entropy: random.Random
    ) -> None:
        """`max_bytes`: `telemetry.max.bytes`, of a push as it is sent."""
        self._configs = configs
        self._now_ms = now_ms
        self._entropy = entropy
        self._known: ConfigurationsImage | None = None
        self._subscriptions: tuple[_Subscription, ...] = ()
        self._version = 0
        self._instances: OrderedDict[UUID, Instance] = OrderedDict()
        self.receiver = receiver
        self.max_bytes = max_bytes
        self.throttled = self.unknown_subscriptions = self.taken = self.failed = 0

    @property
    def instance_count(self) -> int:
        return len(self._instances)

    def subscribe(self, instance_id: UUID, client: PushingClient, gone: Callable[[], bool]) -> Instance:
        """Tell a client what to push, with a new id for one that has none. Raises THROTTLING_QUOTA_EXCEEDED for one that
        asks again before its interval is over, unless it was told to. Source: TM-02."""
        now = self._now_ms()
        found = self._instance(instance_id if instance_id.int else self._new_id(), client, gone, now)
        if now - max(found.last_get_ms, found.last_push_ms) >= found.interval_ms:
            found.last_get_ms = now
        elif found.last_error not in (ErrorCode.UNKNOWN_SUBSCRIPTION_ID, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE):
            self.throttled += 1
            raise ApiError(ErrorCode.THROTTLING_QUOTA_EXCEEDED, f"client {found.id} asks before its next interval")
        found.last_error = ErrorCode.NONE
        return found

    def admit(self, push: Push, client: PushingClient, gone: Callable[[], bool]) -> Instance:
        """The instance whose push is in order. Raises ApiError with the code of TM-03."""
        if push.instance_id in _RESERVED:
            raise ApiError(ErrorCode.INVALID_REQUEST, f"client instance id {push.instance_id} is reserved")
        now = self._now_ms()
        found = self._instance(push.instance_id, client, gone, now)
        try:
            self._check(push, found, now)
        except ApiError as error:
            found.last_error = error.code
            raise
        finally:
            found.terminating = push.terminating
        return found

    def done(self, instance: Instance, error: ErrorCode = ErrorCode.NONE) -> None:
        """Note what became of a push that was in order."""
        instance.last_error = error
        if error is ErrorCode.NONE:
            self.taken += 1
        else:
            self.failed += 1

    def _check(self, push: Push, found: Instance, now: int) -> None:
        if found.terminating:
            raise ApiError(ErrorCode.INVALID_REQUEST, f"client {found.id} has said that its last push was the last")
        if found.last_get_ms > found.last_push_ms or now - found.last_push_ms >= found.interval_ms:
            found.last_push_ms = now
        elif not push.terminating:
            self.throttled += 1
            raise ApiError(ErrorCode.THROTTLING_QUOTA_EXCEEDED, f"client {found.id} pushes before its next interval")
        if push.subscription_id != found.subscription_id:
            self.unknown_subscriptions += 1
            raise ApiError(
                ErrorCode.UNKNOWN_SUBSCRIPTION_ID, f"subscription {push.subscription_id}: the client's is {found.subscription_id}"
            )
        if push.codec not in _CODECS:
            raise ApiError(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, f"compression type {push.codec}: 0 to 4 are known")
        if len(push.payload) > self.max_bytes:
            raise ApiError(ErrorCode.TELEMETRY_TOO_LARGE, f"{len(push.payload)} bytes: allowed are {self.max_bytes}")

    def _new_id(self) -> UUID:
        while True:
            made = random_uuid(self._entropy)
            if made not in self._instances:
                return made

    def _instance(self, instance_id: UUID, client: PushingClient, gone: Callable[[], bool], now: int) -> Instance:
        """The instance as it is known; a new one for one that is not, and for one that was matched with other subscriptions."""
        self._refresh()
        found = self._instances.get(instance_id)
        if found is None or found.gone() or now >= found.forgotten_at_ms:
            found = self._matched(instance_id, client, gone)
        elif found.version != self._version:
            found = self._matched(instance_id, found.client, found.gone)
        found.forgotten_at_ms = now + found.memory_ms
        self._instances[instance_id] = found
        self._instances.move_to_end(instance_id)
        if len(self._instances) > MAX_INSTANCES:
            self._instances.popitem(last=False)
        return found

    def _matched(self, instance_id: UUID, client: PushingClient, gone: Callable[[], bool]) -> Instance:
        attributes = client.attributes(instance_id)
        metrics: set[str] = set()
        interval_ms = int(CLIENT_METRICS_CONFIGS["interval.ms"].default or 0)
        for subscription in self._subscriptions:
            if subscription.is_for(attributes):
                metrics.update(subscription.metrics)
                interval_ms = min(interval_ms, subscription.interval_ms)
        names = (EVERYTHING,) if EVERYTHING in metrics else tuple(sorted(metrics))
        return Instance(
            id=instance_id,
            client=client,
            gone=gone,
            metrics=names,
            interval_ms=interval_ms,
            subscription_id=_subscription_id(names, interval_ms, instance_id),
            version=self._version,
        )

    def _refresh(self) -> None:
        """Read the subscriptions when any config has changed since."""
        configs = self._configs()
        if configs is self._known:
            return
        self._known = configs
        read = [_read(configs.resources[key]) for key in configs.resources if key[0] == _KIND]
        found = tuple(subscription for subscription in read if subscription is not None)
        if found != self._subscriptions:
            self._subscriptions = found
            self._version += 1


def _read(values: Mapping[str, str]) -> _Subscription | None:
    """None for one that no client matches: controllers of earlier versions took expressions that are none of RE2."""
    typed = {name: key.parse(values.get(name, key.default or "")) for name, key in CLIENT_METRICS_CONFIGS.items()}
    try:
        matches = matches_of(typed["match"])
    except ApiError:
        return None
    return _Subscription(tuple(typed["metrics"]), typed["interval.ms"], matches)


def _subscription_id(metrics: Sequence[str], interval_ms: int, instance_id: UUID) -> int:
    """Kafka's number, but for the order of the metrics: CRC-32C of metrics and interval, xor Java's hash of the instance id."""
    text = f"[{', '.join(metrics)}]{interval_ms}"
    folded = (instance_id.int >> 64) ^ (instance_id.int & (1 << 64) - 1)
    number = crc32c(text.encode()) ^ (folded >> 32) ^ (folded & 0xFFFFFFFF)
    return int(number - (1 << 32) if number >= 1 << 31 else number)
