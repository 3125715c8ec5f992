"""The quotas in force at one broker, as the metadata says them, and who is throttled. Source: QU-01, QU-02, QU-12."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from kraftlite.metadata.image import ClientQuotasImage
from kraftlite.model.broker_configs import value_of
from kraftlite.quotas.matching import FETCH, PRODUCE, REQUEST, IpQuotas
from kraftlite.quotas.rates import QuotaWindows
from kraftlite.quotas.usage import ClientQuotas, Usage
from kraftlite.runtime.ports import Ports, TimerHandle
from kraftlite.runtime.trace.wire import ClientThrottled, ClientThrottlingEnded

SWEEP_MS: Final = 5_000
_BANDWIDTH: Final = (PRODUCE, FETCH)


class BrokerQuotas:
    """Client quotas as of the latest image. The trace says when a client begins and ends to be throttled, not each time."""

    def __init__(self, ports: Ports, values: Mapping[str, str], *, now_us: Callable[[], int] | None = None) -> None:
        self._ports = ports
        windows = QuotaWindows(value_of(values, "quota.window.num"), value_of(values, "quota.window.size.seconds") * 1_000)
        self.clients = ClientQuotas(windows, self, now_us=ports.clock.now_us if now_us is None else now_us)
        self._image = ClientQuotasImage.EMPTY
        self._of_addresses = IpQuotas({})
        self._in_force: ClientQuotas | None = None
        self._timer: TimerHandle | None = None

    def apply(self, image: ClientQuotasImage) -> ClientQuotas | None:
        """Take over the quotas of an image. Returns what requests are counted by; None while no request is bounded."""
        if image is self._image:
            return self._in_force
        self._image, self._of_addresses = image, IpQuotas(image.entities)
        bounded = measures_time = False
        for entity in image.entities:
            values = image.entities[entity]
            bounded = bounded or any(key in values for key in _BANDWIDTH)
            measures_time = measures_time or REQUEST in values
        self.clients.set_quotas(image.entities, measures_time=measures_time)
        self._in_force = self.clients if bounded or measures_time else None
        if self._timer is None:
            self._timer = self._ports.clock.call_later(SWEEP_MS, self._sweep)
        return self._in_force

    def ip_quota(self, address: str) -> float | None:
        """The connections per second that an address may make; None: it is not bounded."""
        return self._of_addresses.of(address)

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def _sweep(self) -> None:
        self.clients.sweep(self._ports.clock.now_ms())
        needed = self._in_force is not None or next(self.clients.usages(), None) is not None
        self._timer = self._ports.clock.call_later(SWEEP_MS, self._sweep) if needed else None

    # --- UsageObserver -------------------------------------------------------------------------------------------------

    def throttling_began(self, usage: Usage, rate: float) -> None:
        self._ports.tracer.emit(
            ClientThrottled(
                quota=usage.key, user=usage.scope.user, client_id=usage.scope.client_id, bound=usage.bound, rate=round(rate, 1)
            )
        )

    def throttling_ended(self, usage: Usage) -> None:
        self._ports.tracer.emit(
            ClientThrottlingEnded(
                quota=usage.key,
                user=usage.scope.user,
                client_id=usage.scope.client_id,
                lasted_ms=usage.throttled_until_ms - usage.throttled_since_ms,
                times=usage.throttled_times,
            )
        )
