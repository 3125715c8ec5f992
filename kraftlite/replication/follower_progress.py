"""The leader's knowledge of one follower. Source: RP-19, RP-20."""

from __future__ import annotations

from kraftlite.model.ids import NodeId


class FollowerProgress:
    """The progress of one follower, learned from its fetches alone. `leo` None: it has not fetched in this leader epoch."""

    __slots__ = (
        "broker_id",
        "last_caught_up_ms",
        "last_fetch_leader_leo",
        "last_fetch_ms",
        "leo",
        "log_start_offset",
        "replica_epoch",
    )

    def __init__(self, broker_id: NodeId, last_caught_up_ms: int | None) -> None:
        self.broker_id = broker_id
        self.leo: int | None = None
        self.log_start_offset = -1
        self.replica_epoch: int | None = None
        self.last_caught_up_ms = last_caught_up_ms
        self.last_fetch_ms: int | None = None
        self.last_fetch_leader_leo = -1

    def fetched(self, fetch_offset: int, log_start_offset: int, replica_epoch: int, leader_leo: int, now_ms: int) -> None:
        """A fetch at `fetch_offset` confirms everything below it.

        Caught up now if it reached the leader's LEO; or as of the previous fetch if it reached the LEO of then (RP-20).
        """
        if fetch_offset >= leader_leo:
            self.last_caught_up_ms = now_ms
        elif self.last_fetch_ms is not None and fetch_offset >= self.last_fetch_leader_leo:
            # The caught-up time is a fetch's time, so it is never later than that of the previous fetch.
            self.last_caught_up_ms = self.last_fetch_ms
        self.leo = fetch_offset
        self.log_start_offset = log_start_offset
        self.replica_epoch = replica_epoch
        self.last_fetch_ms = now_ms
        self.last_fetch_leader_leo = leader_leo

    def was_caught_up(self, leader_leo: int, fetched_ms: int) -> None:
        """A fetch at `fetched_ms` left this partition unnamed because nothing had changed: it was at the LEO then."""
        if self.last_caught_up_ms is None or fetched_ms > self.last_caught_up_ms:
            self.last_caught_up_ms = fetched_ms
        self.last_fetch_ms = fetched_ms
        self.last_fetch_leader_leo = leader_leo

    def is_caught_up(self, leader_leo: int, now_ms: int, lag_time_max_ms: int) -> bool:
        """Return whether the follower is caught up (RP-19)."""
        if self.leo == leader_leo:
            return True
        return self.last_caught_up_ms is not None and now_ms - self.last_caught_up_ms <= lag_time_max_ms
