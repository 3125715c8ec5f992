"""Votes, epochs and leaders of the metadata quorum."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

from kraftlite.raft import states
from kraftlite.raft.context import RaftContext
from kraftlite.raft.core import RaftCore
from kraftlite.raft.elections import Elections
from kraftlite.raft.following import Following
from kraftlite.raft.leadership import Leadership
from kraftlite.raft.quorum_state import QuorumStateStore
from kraftlite.raft.states import Candidate, Resigned
from kraftlite.raft.voters import VoterSet
from kraftlite.sim.fault_plan import FaultPlan
from kraftlite.sim.scenes import contested_election, deposed_leader
from kraftlite.sim.shape import Shape
from tests.sim.mutants.catalog import mutant
from tests.sim.mutants.lenses import configured, playing, together
from tests.sim.mutants.patching import Patch
from tests.sim.mutants.scenes import small_sides


def _idle_and_hasty(patch: Patch) -> None:
    """A quorum that writes little, with short requests, whose brokers die at once: their sessions must end."""
    configured(controller_quorum_request_timeout_ms="500", metadata_max_idle_interval_ms="60000")(patch)
    playing(_brokers_lose_power, pause_ms=4_000)(patch)


def _brokers_lose_power(rng: random.Random, shape: Shape, at_ms: int) -> Sequence[FaultPlan]:
    return [FaultPlan(at_ms=at_ms, kind="power-all", for_ms=500, amount=1)]


_PERSIST = "self._disk.write_file_atomically(self.path, render(state))"


@mutant("vote-not-persisted", "a vote is in memory only when it is answered", expects=("3", "1"))
def vote_not_persisted(patch: Patch) -> None:
    """Raft §5.1 has votedFor among what must be on stable storage before an answer: a voter that restarts within an
    election votes again."""
    without = "self._disk.write_file_atomically(self.path, render(ElectionState(epoch=state.epoch, leader_id=state.leader_id)))"
    patch.edit(QuorumStateStore, "write", (_PERSIST, without))


@mutant("quorum-state-not-written", "the epoch is in memory only", expects=("2", "3", "1"))
def quorum_state_not_written(patch: Patch) -> None:
    """ZOOKEEPER-1653: the accepted and the current epoch in files that a crash could leave apart; a node comes back in an
    epoch of long ago."""
    patch.edit(QuorumStateStore, "write", (_PERSIST, "pass"))


@mutant(
    "two-votes-in-one-epoch",
    "a voter that has voted votes for the next candidate, too",
    expects=("3", "1"),
    lens=playing(contested_election),
)
def two_votes_in_one_epoch(patch: Patch) -> None:
    """Raft §5.2: at most one vote per term, first come, first served. The first thing that a re-implementation forgets."""
    patch.edit(states, "_can_grant_unless_decided", ("return voted.matches(candidate)", "return log_is_up_to_date"))


@mutant(
    "vote-for-an-older-log",
    "a vote does not look at the candidate's log",
    expects=("5", "6", "8"),
    lens=playing(contested_election),
)
def vote_for_an_older_log(patch: Patch) -> None:
    """Raft §5.4.1. ZOOKEEPER-1154 and ZOOKEEPER-2845: a server with an older history won, and committed
    transactions were gone."""
    compare = "return OffsetAndEpoch(epoch=last_epoch, offset=end_offset) >= self.metalog.end"
    patch.edit(RaftContext, "log_is_up_to_date", (compare, "return True"))


@mutant(
    "vote-for-the-longer-log",
    "the longer log wins an election, whatever its last epoch",
    expects=("5", "6", "8"),
    lens=playing(deposed_leader),
)
def vote_for_the_longer_log(patch: Patch) -> None:
    """Raft §5.4.1 compares the last term first. Elections by the length of the log are what Redis Sentinel's replica choice
    does, and why it may lose writes."""
    compare = "return OffsetAndEpoch(epoch=last_epoch, offset=end_offset) >= self.metalog.end"
    patch.edit(RaftContext, "log_is_up_to_date", (compare, "return end_offset >= self.metalog.leo"))


@mutant("pre-vote-raises-epoch", "a node that only asks whether it could win takes a new epoch already", expects=("10", "1"))
def pre_vote_raises_epoch(patch: Patch) -> None:
    """KIP-996: that the epoch stays is the point of the pre-vote. Raft dissertation §9.6: without it a node that comes back
    from a partition deposes a leader that was well."""
    patch.edit(Elections, "become_prospective", ("epoch=ctx.epoch,", "epoch=ctx.epoch + 1,"))


@mutant("half-is-a-majority", "with an even number of voters, half of them elect a leader", expects=("79", "1", "5"))
def half_is_a_majority(patch: Patch) -> None:
    """(n + 1) / 2 instead of n / 2 + 1. Elasticsearch's minimum_master_nodes, set by hand, was this mistake in the field."""
    patch.edit(VoterSet, "majority", ("return len(self.voters) // 2 + 1", "return (len(self.voters) + 1) // 2"))


@mutant("resumes-old-epoch", "a restarted leader goes on writing in the epoch it led", expects=("1", "4", "17"))
def resumes_old_epoch(patch: Patch) -> None:
    """KIP-595 has a restarted leader come up as Resigned for this: what it had not flushed is gone, and its followers have
    it. The same offset and epoch would then mean two entries."""

    def init(original: Any, self: Any, *, config: Any, disk: Any, serde: Any, entropy: Any, tracer: Any, now_ms: Any,
             wall_ms: Any = None, trace_appends: Any = False) -> None:  # fmt: skip
        original(
            self, config=config, disk=disk, serde=serde, entropy=entropy, tracer=tracer, now_ms=now_ms, wall_ms=wall_ms,
            trace_appends=trace_appends,
        )  # fmt: skip
        was = self._ctx.state
        if isinstance(was, Resigned):
            self._leadership.become_leader(
                Candidate(
                    epoch=was.epoch,
                    voted=self._ctx.key,
                    election_deadline_ms=was.election_deadline_ms,
                    retries=1,
                    granted=set(self._ctx.voters.ids),
                )
            )

    patch.around(RaftCore, "__init__", init)


@mutant(
    "check-quorum-missing",
    "a leader that no voter fetches from stays the leader",
    expects=("CheckQuorum", "10", "15"),
    lens=playing(deposed_leader),
)
def check_quorum_missing(patch: Patch) -> None:
    """KAFKA-15489: KIP-595 has it and the implementation had left it out until 3.7, so that a partition gave two active
    controllers. RATIS-981 is the same."""
    patch.edit(Leadership, "_check_quorum_ms", ("return self._ctx.config.fetch_timeout_ms * 3 // 2", "return 1 << 40"))


@mutant(
    "fetch-outlasts-its-request",
    "a follower asks an idle leader to hold a fetch for longer than its request may take",
    expects=("crash", "liveness", "37"),
    lens=_idle_and_hasty,
)
def fetch_outlasts_its_request(patch: Patch) -> None:
    """RF-25: no fetch of an idle leader succeeds, and a leader that nobody hears is replaced, without end."""
    patch.edit(Following, "_fetch", (", config.request_timeout_ms // 2)", ")"))


@mutant("vote-taken-along", "who hears of a new leader keeps the vote of the epoch before", expects=("3", "14"))
def vote_taken_along(patch: Patch) -> None:
    """RF-02: the vote would be granted once more in an epoch that has a leader already."""
    patch.edit(RaftContext, "become_follower", ("election.voted if epoch == election.epoch else None", "election.voted"))


@mutant(
    "one-fetcher-is-enough",
    "who has heard a majority once goes on leading as long as any voter fetches",
    expects=("CheckQuorum",),
    shape="5+5",
    lens=together(
        configured(controller_quorum_fetch_timeout_ms="1000", controller_quorum_election_timeout_ms="500"),
        playing(small_sides, pause_ms=1_500),
    ),
)
def one_fetcher_is_enough(patch: Patch) -> None:
    """RF-18: the voters that have fetched are counted over all time. With three voters one is a majority, and nobody sees it."""
    patch.edit(Leadership, "note_contact", ("leader.fetched_voters.clear()", "pass"))


@mutant("advertised-once", "a leader tells a voter that is silent once that it leads, and never again", expects=("VotersTold",))
def advertised_once(patch: Patch) -> None:
    """KAFKA-16536 made it a heartbeat: before, a voter that had answered once, and had forgotten it in a restart, was not told
    again."""
    patch.edit(
        Leadership,
        "_begin_epoch",
        ("leader.begin_epoch_deadline_ms = ctx.now_ms + period", "leader.begin_epoch_deadline_ms = None"),
    )
