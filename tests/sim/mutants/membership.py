"""Who votes: sets of voters in the log, and how they change."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from kraftlite.log.control import ControlRecord
from kraftlite.model.errors import ErrorCode
from kraftlite.model.ids import NodeId
from kraftlite.model.messages.raft import AddVoterRequest
from kraftlite.raft import leadership
from kraftlite.raft.changes import Changes
from kraftlite.raft.context import RaftContext
from kraftlite.raft.elections import Elections
from kraftlite.raft.following import Following
from kraftlite.raft.joining import Joining
from kraftlite.raft.leadership import Leadership
from kraftlite.raft.membership import Membership
from kraftlite.raft.voters import VoterSet
from kraftlite.sim.workloads.membership import QuorumAdmin
from tests.sim.mutants.catalog import mutant
from tests.sim.mutants.lenses import configured
from tests.sim.mutants.patching import Patch

_REMOVED_COUNTS = """offsets[ctx.node_id] = min(ctx.metalog.log.recovery_point, ctx.metalog.leo)
    ends = sorted((offsets.get(it, -1) for it in {*ctx.voters.ids, ctx.node_id}), reverse=True)
    hw = min(ends[len(ctx.voters) // 2], ctx.metalog.leo)"""


@mutant("removed-leader-counts-itself", "a leader that is removed counts its own log for the high watermark", expects=("78", "6"))
def removed_leader_counts_itself(patch: Patch) -> None:
    """KAFKA-16530: with its own log counted, what one voter less than a majority has was committed."""
    patch.edit(Leadership, "update_hw", ("hw = min(ctx.voters.majority_offset(offsets), ctx.metalog.leo)", _REMOVED_COUNTS))


@mutant("single-voter-steps-down", "the only voter resigns because nobody fetches from it", expects=("CheckQuorum", "liveness"))
def single_voter_steps_down(patch: Patch) -> None:
    """KAFKA-16144: check-quorum, which had only just come, made every controller that was alone resign again and again."""
    deadline = "check_quorum_deadline_ms=None if alone else ctx.now_ms"
    patch.edit(Leadership, "become_leader", (deadline, "check_quorum_deadline_ms=ctx.now_ms"))


@mutant("removed-controller-crashes", "the active controller ends itself when its removal is committed", expects=("crash", "14"))
def removed_controller_crashes(patch: Patch) -> None:
    """KAFKA-17608: the resignation of a leader that was not a voter any more ran into an assertion, and ended the process."""
    resign = 'self.resign("its removal from the voters is committed", self.successors(leader))'
    patch.edit(Leadership, "poll", (resign, "raise AssertionError('a leader is a voter')"))


@mutant(
    "removed-leader-never-resigns",
    "a leader goes on leading when its removal is committed",
    expects=("84",),
)
def removed_leader_never_resigns(patch: Patch) -> None:
    """DQ-34, and the Raft dissertation, §4.2.2: a removed leader that stays is a leader outside of its cluster."""
    patch.edit(Leadership, "poll", ("if not ctx.is_voter and leader.hw is not None", "if False and leader.hw is not None"))


@mutant(
    "nobody-asks-bootstrap-servers",
    "a node without voters never asks the bootstrap servers for the leader",
    expects=("liveness",),
)
def nobody_asks_bootstrap_servers(patch: Patch) -> None:
    """KAFKA-17030: a voter that had missed its own removal never found the leader again, and disturbed others with elections."""
    patch.edit(Following, "_look_for_leader", ("others += ctx.bootstrap", "others += ()"))


@mutant("update-voter-not-sent", "a voter never tells the leader its listeners and its range of kraft.version", expects=("84",))
def update_voter_not_sent(patch: Patch) -> None:
    """KAFKA-18001: UpdateRaftVoter was not known to the channel, so that it was never sent: no entry was ever mended, and no
    configured quorum could be upgraded."""
    patch.edit(Joining, "_ask", ("if voter is not None and ctx.requests", "if False and voter is not None and ctx.requests"))


@mutant("uncommitted-voters-ignored", "a set of voters counts only when it is committed", expects=("77", "14", "crash"))
def uncommitted_voters_ignored(patch: Patch) -> None:
    """Raft dissertation, §4.1: a server uses the latest configuration in its log. Two leaders can count by sets without a common
    majority, where each waits for the commit of its own."""
    known = "(self.membership.at(self.hw - 1)[1] or self.membership.voters) if self.hw else self.membership.voters"
    patch.edit(RaftContext, "voters", ("return self.membership.voters", f"return {known}"))


@mutant(
    "truncated-voters-stay", "a set of voters stays in force when its record is cut off", expects=("77",), scene="added-alone"
)
def truncated_voters_stay(patch: Patch) -> None:
    """DQ-03. Vanlightly's model of KIP-853 has a transition for it: a reconfiguration that is undone is easily forgotten."""
    patch.edit(Membership, "truncate_to", ("self._voters.truncate_to(end)", "pass"))


@mutant(
    "snapshot-has-newest-voters",
    "a snapshot says the newest voters and not those at its end",
    expects=("87",),
    scene="snapshot-amid-a-change",
)
def snapshot_has_newest_voters(patch: Patch) -> None:
    """DQ-05: who loads such a snapshot counts by a set that was never committed, and has no record to take back."""

    def newest(original: Callable[..., Any], self: Membership, end_offset: int) -> Any:
        return original(self, self.next_offset)

    patch.around(Membership, "snapshot_controls", newest)


@mutant(
    "loaded-snapshot-says-no-voters",
    "a node that loads a snapshot does not read its voters",
    expects=("77", "liveness"),
    scene="snapshot-amid-a-change",
)
def loaded_snapshot_says_no_voters(patch: Patch) -> None:
    """DQ-05: behind the start of the log only the snapshot knows who votes."""

    def without(original: Callable[..., Any], self: Membership, controls: Iterable[ControlRecord], end_offset: int) -> Any:
        return original(self, controls if end_offset == 0 else (), end_offset)

    patch.around(Membership, "load", without)


@mutant(
    "two-changes-at-once",
    "a change of the voters begins before the last one is committed",
    expects=("89", "76"),
    scene="snapshot-amid-a-change",
)
def two_changes_at_once(patch: Patch) -> None:
    """Raft dissertation, §4.1: changes one server at a time are safe only one at a time."""
    patch.edit(Changes, "_is_settled", ("leader.hw is not None and leader.hw > last", "True"))
    patch.edit(Changes, "_check_ready", ("if self._pending is not None:", "if False and self._pending is not None:"))


@mutant(
    "directories-do-not-count",
    "a voter is known by its id alone: a new disk acknowledges in the name of the old one",
    expects=("78", "79", "5", "77", "10"),
)
def directories_do_not_count(patch: Patch) -> None:
    """KIP-853 has directory ids because of this: a voter that has lost its disk has forgotten what it acknowledged."""
    named = "voter is not None and (voter.directory_id is None or voter.directory_id == key.directory_id)"
    patch.edit(VoterSet, "contains", (named, "voter is not None"))


@mutant(
    "votes-of-any-directory",
    "a node grants a vote that was asked of the directory that it had before",
    expects=("79", "5"),
    scene="new-disk-votes",
)
def votes_of_any_directory(patch: Patch) -> None:
    """KIP-853, DQ-14: a new disk has forgotten its votes, and what it acknowledged, and would elect anybody."""

    def any_directory(self: Elections, voter_id: NodeId, directory_id: Any) -> bool:
        return bool(self._ctx.node_id == voter_id)

    patch.set(Elections, "_is_for_us", any_directory)


@mutant(
    "change-answered-at-append",
    "a change of the voters is answered when it is in the leader's log only",
    expects=("88",),
)
def change_answered_at_append(patch: Patch) -> None:
    """DQ-32: whoever is told that a controller is removed takes it away, and the next leader may still need its vote."""
    committed = "pending.offset is not None and leader.hw is not None and leader.hw > pending.offset"
    patch.edit(Changes, "poll", (committed, "pending.offset is not None"))


@mutant("refused-and-done", "an addition that is refused as a duplicate is written all the same", expects=("88", "76", "89"))
def refused_and_done(patch: Patch) -> None:
    """ZOOKEEPER-2172: a reconfiguration that its caller was told had failed was in force afterwards."""

    def added(original: Callable[..., Any], self: Changes, request_id: int, request: AddVoterRequest) -> None:
        original(self, request_id, request)
        pending = self._pending
        if pending is not None and pending.adds is not None and pending.request_id == request_id:
            self._finish(ErrorCode.DUPLICATE_VOTER, "it is said to be one already")
            self._pending = pending
            self._ctx.reply = lambda *args, reply=self._ctx.reply: None if args[0] == request_id else reply(*args)  # type: ignore[method-assign]

    patch.around(Changes, "on_add_request", added)


@mutant("last-voter-removed", "the last voter can be removed", expects=("76", "77", "crash", "14"), scene="few-are-left")
def last_voter_removed(patch: Patch) -> None:
    """DQ-33: a quorum without voters never commits anything again."""
    patch.edit(Changes, "on_remove_request", ("if len(ctx.voters) == 1:", "if False and len(ctx.voters) == 1:"))


@mutant(
    "new-disk-never-joins",
    "a controller with a new disk does not ask for its old entry to be removed",
    expects=("84", "liveness"),
    scene="disk-replaced-amid-changes",
)
def new_disk_never_joins(patch: Patch) -> None:
    """KIP-1186, DQ-38: an addition is refused while an entry with the same id is there."""
    patch.edit(Joining, "_ask", ("elif own is not None:", "elif False:"))


@mutant(
    "change-before-a-commit",
    "a leader changes the voters before it has committed anything in its epoch",
    expects=("89", "76", "77", "14"),
    scene="asked-before-a-commit",
)
def change_before_a_commit(patch: Patch) -> None:
    """DQ-35, Ongaro 2015: the change of the leader before may be committed by the old majority, this one by the new."""
    patch.edit(Changes, "_check_ready", ("if leader.hw is None:", "if False:"))
    patch.edit(Changes, "_is_settled", ("leader.hw is not None and leader.hw > last", "leader.hw is None or leader.hw > last"))


@mutant(
    "voter-sleeps-on", "a voter that follows does not look when its leader has been silent for too long", expects=("liveness",)
)
def voter_sleeps_on(patch: Patch) -> None:
    """KAFKA-17751: the time until the next poll was that of an observer."""
    patch.edit(
        Following,
        "poll",
        ("if state.fetch_deadline_ms <= ctx.now_ms and", "if not ctx.is_voter and state.fetch_deadline_ms <= ctx.now_ms and"),
    )


@mutant(
    "configuration-against-the-quorum",
    "who has read no log yet believes in no leader beside its configuration",
    expects=("crash", "liveness"),
    scene="led-by-a-newcomer",
)
def configuration_against_the_quorum(patch: Patch) -> None:
    """DQ-16."""
    patch.edit(RaftContext, "incredible", ("unknown and (not asked or", "unknown and (True or"))


@mutant(
    "no-snapshot-of-a-newcomer",
    "who has read no log yet takes no snapshot from a leader beside its configuration, in whom it believes",
    expects=("crash", "liveness"),
    scene="led-by-a-newcomer",
)
def no_snapshot_of_a_newcomer(patch: Patch) -> None:
    """DQ-16: its answers do not tell again where it is, so that they were refused, and a new disk stayed empty."""
    patch.edit(RaftContext, "incredible", ("unknown = unknown and (epoch != self.epoch or named_id != known)", "pass"))


@mutant(
    "change-outlives-its-office",
    "a change of the voters is not answered by a leader that has ceased to lead",
    expects=("SelfCheck", "crash", "14", "96"),
)
def change_outlives_its_office(patch: Patch) -> None:
    """DQ-32: who asked waits, and the next leadership of this node begins with the change of an earlier one."""
    patch.edit(Changes, "left_office", ("if self._pending is not None:", "if False:"))


@mutant(
    "upgrade-outlives-its-office",
    "a leader whose kraft.version was never committed takes it for done when it leads again",
    expects=("SelfCheck", "crash", "14", "18"),
)
def upgrade_outlives_its_office(patch: Patch) -> None:
    """DQ-40: what a leader has prepared is its epoch's. Who asks again is told that it is done, and the voters stay configured
    ones."""
    patch.edit(
        Changes, "left_office", ("self._last_offset, self._upgraded_to = -1, KRAFT_VERSION_STATIC", "self._last_offset = -1")
    )


@mutant("truncated-level-stays", "a kraft.version stays in force when its record is cut off", expects=("77",))
def truncated_level_stays(patch: Patch) -> None:
    """DQ-03, of the other one of two histories that are kept side by side: the voters are configured ones again, and a node
    thinks that they can be changed."""
    patch.edit(Membership, "truncate_to", ("self._versions.truncate_to(end)", "pass"))


@mutant("voter-added-before-it-has-the-log", "a replica is made a voter whether it has the log or not", expects=("76",))
def voter_added_before_it_has_the_log(patch: Patch) -> None:
    """KIP-853: nothing is committed until it has fetched everything, if another voter fails meanwhile."""
    patch.edit(
        Changes,
        "_is_caught_up",
        ("return self._ctx.now_ms - progress.last_fetch_at_ms <= CAUGHT_UP_WITHIN_MS", "return True"),
        (
            "if progress is None or progress.last_caught_up_ms is None or progress.last_fetch_at_ms is None:",
            "if progress is None:",
        ),
    )


@mutant(
    "who-has-everything-is-not-caught-up",
    "DescribeQuorum does not tell of a voter that it has caught up when its fetch comes to the end of the log",
    expects=("QuorumDescribed",),
)
def who_has_everything_is_not_caught_up(patch: Patch) -> None:
    """RF-57: KAFKA-13837's fields; who replaces a controller waits until the new one has caught up."""
    patch.edit(Leadership, "note_fetch", ("if offset >= leo:", "if offset > leo:"))


@mutant(
    "end-of-the-log-for-all",
    "DescribeQuorum tells of each replica that it has all that the leader has",
    expects=("QuorumDescribed",),
)
def end_of_the_log_for_all(patch: Patch) -> None:
    """RF-57: a voter that is behind is not seen before it is missed."""
    patch.edit(leadership, "_line", ("log_end_offset=progress.end_offset", "log_end_offset=ctx.metalog.leo"))


def asking_first(patch: Patch) -> None:
    """Who upgrades a quorum mostly asks only whether that may be done."""
    patch.edit(QuorumAdmin, "upgrade", ("self.rng.randrange(8) == 0", "self.rng.randrange(8) != 0"))


@mutant(
    "asked-and-upgraded",
    "an update that asks only whether kraft.version may be raised raises it",
    expects=("88",),
    lens=asking_first,
)
def asked_and_upgraded(patch: Patch) -> None:
    """DQ-40: there is no way back to a kraft.version of before."""
    patch.edit(Changes, "upgrade", ("if not validate_only:", "if True:"))


def nobody_else_changes_voters(patch: Patch) -> None:
    """The scene alone does: no controller joins by itself, and the administrator only looks."""
    patch.edit(QuorumAdmin, "run", ("await self._draw(found)", "pass"))
    configured(controller_quorum_auto_join_enable="false")(patch)


@mutant(
    "alone-no-more-and-unchecked",
    "a leader that was the only voter does not mind when the voters that were added since do not fetch",
    expects=("CheckQuorum", "liveness"),
    scene="alone-no-more",
    lens=nobody_else_changes_voters,
)
def alone_no_more_and_unchecked(patch: Patch) -> None:
    """RF-18, DQ-10: it leads on in a part of the network where it can commit nothing, and its clients stay with it."""
    patch.edit(Leadership, "_follow_voters", ("elif leader.check_quorum_deadline_ms is None:", "elif False:"))
