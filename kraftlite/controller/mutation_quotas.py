"""The quota of changes to topics: how many partitions a client may create, add and delete a second.

Token buckets of the active controller, which a new one begins full. Source: KIP-599; QU-07. The client is the one that asked the
broker, not the broker (KAFKA-14351, KAFKA-14215).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from kraftlite.model.errors import ApiError, ErrorCode
from kraftlite.model.messages.controller import MutationClient
from kraftlite.quotas.matching import MUTATION, Quotas, Scope, matching
from kraftlite.quotas.rates import QuotaWindows, TokenBucket

IDLE_MS: Final = 3_600_000
MAX_BUCKETS: Final = 10_000
"""A client may call itself anything; the bucket that was used longest ago goes first."""


class Bucket:
    """The tokens of one scope. `bound`: those that it gets a second."""

    __slots__ = ("bound", "last_used_ms", "scope", "tokens")

    def __init__(self, scope: Scope, bound: float, tokens: TokenBucket) -> None:
        self.scope = scope
        self.bound = bound
        self.tokens = tokens
        self.last_used_ms = 0

    @property
    def left(self) -> float:
        """The tokens that were left when it was used last."""
        return self.tokens.tokens


class MutationQuota:
    """The quota as one request meets it. Nothing is charged before `settle`: what is only computed may be given up.

    A strict request has each topic refused once nothing is left; before that a topic is taken whole, however large it is. Any
    other request is carried out whatever it costs, and its client is told to wait.
    """

    def __init__(self, bucket: Bucket, *, strict: bool, now_ms: int) -> None:
        self._bucket = bucket
        self._strict = strict
        self._now_ms = now_ms
        self._charged = 0
        self._refused = False

    def charge(self, partitions: int) -> None:
        """Raises ApiError(THROTTLING_QUOTA_EXCEEDED)."""
        bucket = self._bucket
        if self._strict and (self._refused or self._exhausted()):
            self._refused = True
            raise ApiError(
                ErrorCode.THROTTLING_QUOTA_EXCEEDED,
                f"The throttling quota has been exceeded: {bucket.scope} may change {bucket.bound:g} partitions a second.",
            )
        self._charged += partitions

    def settle(self) -> int:
        """Charge what was taken. Returns the milliseconds that the client should wait."""
        bucket = self._bucket
        bucket.tokens.take(self._charged, bucket.bound, self._now_ms)
        self._charged = 0
        return bucket.tokens.wait_ms(bucket.bound, self._now_ms) if self._refused or not self._strict else 0

    def _exhausted(self) -> bool:
        bucket = self._bucket
        bucket.tokens.refill(bucket.bound, self._now_ms)
        return bucket.tokens.tokens < self._charged


class MutationQuotas:
    """One per controller. `quotas` are those of its own state, so a change holds from the next request on."""

    def __init__(self, windows: QuotaWindows, quotas: Quotas, most_buckets: int = MAX_BUCKETS) -> None:
        self._windows = windows
        self._most_buckets = most_buckets
        self._quotas = quotas
        self._buckets: dict[Scope, Bucket] = {}
        """Least recently used first."""

    def quota_for(self, client: MutationClient | None, now_ms: int) -> MutationQuota | None:
        """None: this client may change as much as it likes."""
        found = None if client is None else matching(self._quotas, MUTATION, client.user, client.client_id)
        if client is None or found is None:
            return None
        bucket = self._buckets.pop(found.scope, None)
        if bucket is None:
            bucket = Bucket(found.scope, found.bound, TokenBucket(self._windows, found.bound, now_ms))
        bucket.bound, bucket.last_used_ms = found.bound, now_ms
        self._buckets[found.scope] = bucket
        self._forget(now_ms)
        return MutationQuota(bucket, strict=client.strict, now_ms=now_ms)

    def buckets(self) -> Iterator[Bucket]:
        return iter(self._buckets.values())

    def _forget(self, now_ms: int) -> None:
        while self._buckets:
            scope, oldest = next(iter(self._buckets.items()))
            if len(self._buckets) <= self._most_buckets and now_ms - oldest.last_used_ms < IDLE_MS:
                return
            del self._buckets[scope]
