"""Partitions: who joins and leaves the ISR, where replicas part, who fetches from whom."""

from __future__ import annotations

from kraftlite.log.epochs import LeaderEpochCache
from kraftlite.replication import consume, follower_state, manager, sessions
from kraftlite.replication.fetcher_core import FetcherCore
from kraftlite.replication.follower_progress import FollowerProgress
from kraftlite.replication.leader import LeaderState
from kraftlite.replication.manager import ReplicaManager
from kraftlite.replication.partition import Partition
from kraftlite.replication.sessions import FetchServer, SessionEntry
from kraftlite.sim.fetch_scenes import former_selves, late_openings
from kraftlite.sim.scenes import overtaken_join
from kraftlite.sim.workloads import thinning
from tests.sim.mutants.catalog import mutant
from tests.sim.mutants.lenses import configured, playing
from tests.sim.mutants.patching import Patch
from tests.sim.mutants.scenes import lagging_followers, slow_followers, two_histories


@mutant(
    "isr-join-by-stale-fetch",
    "what a follower fetched in an earlier leader epoch counts in this one",
    expects=("25", "26", "32", "SelfCheck", "14"),
)
def isr_join_by_stale_fetch(patch: Patch) -> None:
    """RP-21: progress that is kept over a change of leader, when the follower may have truncated its log since. Raft's leaders
    start nextIndex and matchIndex anew for the same reason."""
    kept = '    self.former = self.leader or getattr(self, "former", None)\n'
    patch.edit(Partition, "become_follower", ("    self.leader = None\n", f"{kept}    self.leader = None\n"))
    rule = "        self.leader = LeaderState(IsrState(isr, registration.recovering), trace)\n"
    before = '        former = self.leader or getattr(self, "former", None)\n'
    after = "        self.leader.followers = {} if former is None else dict(former.followers)\n"
    patch.edit(Partition, "become_leader", (rule, before + rule + after))


@mutant("isr-join-below-epoch-start", "a replica joins the ISR below where the leader's epoch starts", expects=("25", "32"))
def isr_join_below_epoch_start(patch: Patch) -> None:
    """KAFKA-7128: a new leader's HW lags, and a replica that had reached it joined without what the last ISR had committed."""
    patch.edit(LeaderState, "may_join", ("and leo >= self.epoch_start_offset", ""))


@mutant("isr-join-below-hw", "a replica joins the ISR before it has all that is committed", expects=("25", "27", "26", "33"))
def isr_join_below_hw(patch: Patch) -> None:
    """RP-21: in the epoch of its leader, and not yet at the HW. While it is in the ISR the HW would have to go back to it."""
    patch.edit(LeaderState, "may_join", ("and leo >= hw", ""))


@mutant("isr-never-shrinks", "a follower that lags for ever stays in the ISR", expects=("33", "liveness"))
def isr_never_shrinks(patch: Patch) -> None:
    """RP-19: produces that wait for a follower that will not come back."""
    patch.edit(LeaderState, "lagging", ("return tuple(found)", "return ()"))


def followers_that_lag(patch: Patch) -> None:
    """Every run has followers that get one batch with each fetch, and links on which that takes long."""
    playing(lagging_followers)(patch)
    configured(replica_fetch_response_max_bytes="1", replica_lag_time_max_ms="1000", replica_fetch_wait_max_ms="50")(patch)


@mutant(
    "any-fetch-is-caught-up",
    "a follower counts as caught up whenever it fetches, however far behind",
    expects=("IsrLag",),
    lens=followers_that_lag,
)
def any_fetch_is_caught_up(patch: Patch) -> None:
    """RP-20, KIP-16: a member that falls further and further behind holds the HW back, and all who wait for it."""
    patch.edit(FollowerProgress, "fetched", ("if fetch_offset >= leader_leo:", "if True:"))


def followers_that_are_slow(patch: Patch) -> None:
    """Every run has followers to whom everything comes late, and leaders that soon think that one lags."""
    playing(slow_followers)(patch)
    configured(replica_lag_time_max_ms="1500", replica_fetch_wait_max_ms="50")(patch)


@mutant(
    "busy-follower-not-caught-up",
    "a follower is caught up only when it reaches the end of the log of now",
    expects=("ShrinksDeserved",),
    lens=followers_that_are_slow,
)
def busy_follower_not_caught_up(patch: Patch) -> None:
    """RP-20, KIP-16: on a partition that is written to all the time, nobody ever is."""
    rule = "elif self.last_fetch_ms is not None and fetch_offset >= self.last_fetch_leader_leo"
    patch.edit(FollowerProgress, "fetched", (rule, "elif False"))


@mutant(
    "idle-follower-not-caught-up",
    "a follower that had everything is as late as its last fetch that named the partition",
    expects=("ShrinksDeserved",),
    lens=followers_that_are_slow,
)
def idle_follower_not_caught_up(patch: Patch) -> None:
    """RP-20: a session names only what has changed. The first record after a pause took the followers out."""
    patch.edit(SessionEntry, "on_append", ("self.fetch_offset == old_leo", "False"))


@mutant(
    "refused-isr-change-stays",
    "an ISR change that the controller has refused is waited for all the same",
    expects=("33", "liveness"),
    lens=playing(overtaken_join),
)
def refused_isr_change_stays(patch: Patch) -> None:
    """KAFKA-2729: a leader whose ISR update was refused kept what it believed, and never recovered. KIP-841 has it revert
    after INELIGIBLE_REPLICA."""
    patch.edit(Partition, "handle_alter_result", ('"reverted" if error in REVERT', '"kept" if error in REVERT'))


@mutant(
    "refused-expansion-reverted",
    "an ISR expansion that the controller has refused is forgotten at once",
    expects=("26",),
    lens=playing(overtaken_join),
)
def refused_expansion_reverted(patch: Patch) -> None:
    """RP-23: an earlier copy of the question arrives when the replica is eligible again, and the leader does not wait for it."""
    patch.edit(Partition, "handle_alter_result", ('then = "withdrawn"', "pass"))


@mutant("truncates-to-hw", "a new follower cuts its log at its HW, not where the epochs part", expects=("24", "25", "30"))
def truncates_to_hw(patch: Patch) -> None:
    """KIP-101 (KAFKA-1211): the follower's HW is behind what is committed; if its leader dies then, records are lost."""
    patch.edit(follower_state, "prepare_to_follow", ("if log.latest_epoch is None:", "if True:"), also=(manager,))


@mutant("divergence-by-offset", "replicas are compared by length, not by epochs", expects=("28",))
def divergence_by_offset(patch: Patch) -> None:
    """KIP-101, KIP-279 (KAFKA-6361): after two quick changes of leader the logs differ at the same offsets."""
    rule = "if last_fetched_epoch is not None and fetch_offset >= log.log_start_offset:"
    patch.edit(consume, "find_divergence", (rule, "if False:"), also=(sessions,))


@mutant(
    "epoch-end-names-the-epoch-asked",
    "a leader that does not know an epoch gives the end of the one before it in that epoch's name",
    expects=("28", "25", "30", "33", "liveness", "crash"),
    lens=playing(two_histories),
)
def epoch_end_names_the_epoch_asked(patch: Patch) -> None:
    """KIP-279 (KAFKA-6361): the follower takes what it wrote in that epoch for its leader's, and keeps it."""
    patch.edit(LeaderEpochCache, "end_offset_for", ("leader_epoch=floor", "leader_epoch=epoch"))


@mutant("diverging-fetch-counts", "the fetch of a follower whose log has parted counts for HW and ISR", expects=("25", "26"))
def diverging_fetch_counts(patch: Patch) -> None:
    """RP-31: the leader has to look for the divergence before it takes note of the position."""
    rule = "if find_divergence(log, entry.fetch_offset, entry.last_fetched_epoch) is not None:"
    patch.edit(FetchServer, "_confirm", (rule, "if False:"))


@mutant("epoch-starts-at-hw", "a leader's epoch begins at its HW, though its log goes on beyond", expects=("28", "crash"))
def epoch_starts_at_hw(patch: Patch) -> None:
    """KIP-101: an epoch starts at the LEO of its leader; KAFKA-7415: one that was not assigned at the right moment."""
    patch.edit(Partition, "become_leader", ("start = log.leo", "start = log.hw"))


@mutant("other-epochs-answered", "a leader answers whatever leader epoch the request is of", expects=("26", "31"))
def other_epochs_answered(patch: Patch) -> None:
    """KIP-320 (KAFKA-7395): before it a zombie was answered by a leader of another epoch."""
    patch.edit(Partition, "check_epoch", ("if leader_epoch is not None and leader_epoch != self.leader_epoch:", "if False:"))


@mutant("session-misses-appends", "a fetch session does not hear of new records of its partitions", expects=("31",))
def session_misses_appends(patch: Patch) -> None:
    """KIP-227: what an incremental fetch leaves out is taken to be unchanged."""
    patch.edit(SessionEntry, "on_append", ("    session.dirty[self] = None", "    pass"))


@mutant("answer-of-before", "the answer to a fetch counts for the one that has been sent since", expects=("31",))
def answer_of_before(patch: Patch) -> None:
    """KIP-227: two fetches of a session are under way, and both answers have the records that the first one asked for."""
    patch.edit(FetcherCore, "_take", ("followed.last_asked > self._answered or ", ""))


@mutant(
    "nobody-is-doubted",
    "a fetch that tells of less than the one before, being older, is not asked after",
    expects=("31",),
    lens=playing(late_openings),
)
def nobody_is_doubted(patch: Patch) -> None:
    """KIP-227: the follower's session does not name the partition again, and the leader waits for what is there."""
    doubts = "if old_leo is not None and fetch_offset < old_leo:"
    patch.edit(Partition, "follower_fetched", (doubts, "if False:"))


@mutant(
    "late-fetch-of-a-former-self",
    "a fetch of a follower's former incarnation counts although the present one has fetched",
    expects=("31",),
    lens=playing(former_selves),
)
def late_fetch_of_a_former_self(patch: Patch) -> None:
    """KIP-903: what the former one had may have been lost when its machine lost power."""
    rule = "if progress.replica_epoch is not None and progress.replica_epoch > session.replica_epoch:"
    patch.edit(FetchServer, "_checked", (rule, "if False:"))


def replicas_come_and_go(patch: Patch) -> None:
    """Every run has the administrator who takes replicas away and gives them back."""
    patch.set(thinning, "comes_with", lambda theme, seed: True)


@mutant(
    "told-everything-once",
    "a session takes what it has said in one leader epoch for said in the next",
    expects=("31",),
    lens=replicas_come_and_go,
)
def told_everything_once(patch: Patch) -> None:
    """KIP-227: an answer of the former epoch was under way, and the follower does not take it any more."""
    patch.edit(SessionEntry, "ask", ("self.sent_hw = self.sent_log_start = -1", "pass"))


@mutant("leader-still-fetches", "a broker that becomes the leader goes on fetching from the former one", expects=("31",))
def leader_still_fetches(patch: Patch) -> None:
    """Invariant 31; KAFKA-2143 (replicas ahead of their leader) began with a fetcher that was not stopped."""
    patch.edit(ReplicaManager, "_lead", ("self._fetchers.forget(partition)", "pass"))
