"""Replication that is throttled: on the side of the leader, on that of the follower, and when the throttle is lifted."""

from __future__ import annotations

from kraftlite.replication.fetcher_core import FetcherCore
from kraftlite.replication.sessions import FetchServer
from kraftlite.replication.throttle import ReplicationThrottle, ReplicationThrottles
from kraftlite.sim.workloads import throttle_settings
from kraftlite.sim.workloads import throttles as workload
from tests.sim.mutants.catalog import mutant
from tests.sim.mutants.lenses import playing
from tests.sim.mutants.patching import Patch


def throttled_replication(patch: Patch) -> None:
    """Every run has the administrator who throttles replication, and no faults but those that he makes himself."""
    patch.set(throttle_settings, "comes_with", lambda seed: True, also=(workload,))
    playing(lambda rng, shape, at_ms: [])(patch)


@mutant(
    "throttled-leader-sends-all",
    "a leader that is over its throttle goes on sending to replicas that are not in sync",
    expects=("99",),
    shape="1+3",
    lens=throttled_replication,
)
def throttled_leader_sends_all(patch: Patch) -> None:
    """QU-10: a move fills the network."""
    patch.edit(FetchServer, "_held_back", ("return self._throttle.exceeded()", "return False"))


@mutant(
    "throttle-holds-the-isr-back",
    "a leader that is over its throttle sends nothing to members of the ISR either",
    expects=("99",),
    shape="1+3",
    lens=throttled_replication,
)
def throttle_holds_the_isr_back(patch: Patch) -> None:
    """QU-10: they leave the ISR, and nothing is committed with acks=all."""
    patch.edit(FetchServer, "_held_back", ("session.replica_id in leader.isr.committed or ", ""))


@mutant(
    "throttle-holds-all-partitions",
    "a throttled leader keeps back partitions that are not listed",
    expects=("99",),
    shape="1+3",
    lens=throttled_replication,
)
def throttle_holds_all_partitions(patch: Patch) -> None:
    """QU-10: only the listed ones are."""
    patch.edit(FetchServer, "_held_back", (" or not self._throttle.lists(partition.tp)", ""))


@mutant(
    "throttle-counts-nothing",
    "a leader does not count what it sends of throttled partitions",
    expects=("99",),
    shape="1+3",
    lens=throttled_replication,
)
def throttle_counts_nothing(patch: Patch) -> None:
    """QU-10: so it is never over its rate."""
    patch.edit(FetchServer, "sent", ("self._throttle.record(entry.partition.tp, result.records_length)", "pass"))


@mutant(
    "throttled-follower-fetches-all",
    "a follower that is over its throttle goes on fetching what it lacks",
    expects=("99",),
    shape="1+3",
    lens=throttled_replication,
)
def throttled_follower_fetches_all(patch: Patch) -> None:
    """QU-10."""
    patch.edit(FetcherCore, "request", ("self._hold_back(now_ms)", "pass"))


@mutant(
    "follower-holds-back-in-sync",
    "a follower that is over its throttle leaves out partitions of which it has everything",
    expects=("99", "26", "shrink"),
    shape="1+3",
    lens=throttled_replication,
)
def follower_holds_back_in_sync(patch: Patch) -> None:
    """QU-10: it falls behind, and out of the ISR."""
    patch.edit(FetcherCore, "_hold_back", ("not followed.in_sync and ", ""))


@mutant(
    "held-back-for-ever",
    "a follower does not come back to a partition that its throttle has left out",
    expects=("99", "liveness"),
    shape="1+3",
    lens=throttled_replication,
)
def held_back_for_ever(patch: Patch) -> None:
    """QU-10: the replica never gets into the ISR, also when the throttle is lifted."""
    patch.edit(FetcherCore, "_hold_back", ("now_ms + self._config.fetch_backoff_ms", "-1"))


@mutant(
    "lifted-list-stays",
    "partitions that are listed no more stay throttled",
    expects=("99",),
    shape="1+3",
    lens=throttled_replication,
)
def lifted_list_stays(patch: Patch) -> None:
    """QU-10: until the broker restarts."""
    patch.edit(ReplicationThrottle, "set_topic", ("self._topics.pop(topic, None)", "pass"))


@mutant(
    "lifted-rate-stays",
    "a throttle that is removed stays in force",
    expects=("99",),
    shape="1+3",
    lens=throttled_replication,
)
def lifted_rate_stays(patch: Patch) -> None:
    """QU-10: until the broker restarts."""
    rule = "throttle.bound = int(bound) if bound < MAX_INT64 else None"
    patch.edit(ReplicationThrottles, "update_rates", (rule, "throttle.bound = min(int(bound), throttle.bound or int(bound))"))
