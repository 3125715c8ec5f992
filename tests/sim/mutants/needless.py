"""What is done without need, or not when it is needed: nothing is lost, and a cluster is busy or somebody waits."""

from __future__ import annotations

from kraftlite.controller.broker_control import BrokerControl
from kraftlite.controller.cluster_control import ClusterControl
from kraftlite.controller.heartbeats import HeartbeatTracker
from kraftlite.metadata.snapshotter import SnapshotGenerator
from kraftlite.raft.leadership import Leadership
from kraftlite.raft.states import Follower
from tests.sim.mutants.catalog import mutant
from tests.sim.mutants.lenses import configured, playing
from tests.sim.mutants.patching import Patch
from tests.sim.mutants.scenes import long_absences_and_failovers, quick_restarts, suspended_controllers


@mutant(
    "pre-vote-despite-a-leader",
    "a follower that hears its leader says that it would vote for another node",
    expects=("PreVotesDeserved",),
)
def pre_vote_despite_a_leader(patch: Patch) -> None:
    """KIP-996: who comes back from a partition of the network deposes a leader that is well, which the pre-vote is to prevent."""
    patch.edit(Follower, "can_grant", (" and not self.leader_is_live", ""))


@mutant("contact-renews-nothing", "a leader resigns although its voters fetch", expects=("CheckQuorum",))
def contact_renews_nothing(patch: Patch) -> None:
    """RF-18: the quorum elects somebody every few seconds."""
    renewed = "leader.check_quorum_deadline_ms = self._ctx.now_ms + self._check_quorum_ms"
    patch.edit(Leadership, "note_contact", (renewed, "pass"))


@mutant(
    "session-outlives-a-shutdown",
    "a broker that has stopped in order keeps its session, and is not let in again before that is over",
    expects=("22",),
    lens=playing(quick_restarts),
)
def session_outlives_a_shutdown(patch: Patch) -> None:
    """CM-01: each rolling restart takes a session timeout longer for each broker."""
    patch.edit(BrokerControl, "heartbeat", ("if following is BrokerControlState.SHUTDOWN_NOW:", "if False:"))


@mutant(
    "the-fenced-get-sessions",
    "a controller that becomes active gives a session to brokers that are fenced, too",
    expects=("22",),
    lens=playing(long_absences_and_failovers),
)
def the_fenced_get_sessions(patch: Patch) -> None:
    """CE-26: a broker that comes back behind a failover of the controller waits for the end of a session that nobody has."""
    patch.edit(ClusterControl, "activate", ("if not registration.fenced:", "if True:"))


@mutant(
    "suspended-and-fences",
    "a controller whose process stood still ends the sessions of all brokers that it could not hear",
    expects=("37",),
    shape="1+3",
    lens=playing(suspended_controllers),
)
def suspended_and_fences(patch: Patch) -> None:
    """CE-25: a machine is suspended, and nothing has a leader when it goes on."""
    patch.edit(HeartbeatTracker, "excuse", ("self._contact_ms[key] = min(now_ms, contact_ms + deaf_ms)", "pass"))


@mutant("every-update-makes-a-snapshot", "the bytes before a metadata snapshot count for the next one, too", expects=("11",))
def every_update_makes_a_snapshot(patch: Patch) -> None:
    """ML-20: each record is followed by a snapshot of everything."""
    patch.edit(SnapshotGenerator, "_reset", ("self._bytes = 0", "pass"))


@mutant(
    "no-snapshot-by-time",
    "metadata snapshots are written for their bytes only",
    expects=("liveness",),
    lens=configured(metadata_log_max_snapshot_interval_ms="2000", metadata_log_max_record_bytes_between_snapshots="20971520"),
)
def no_snapshot_by_time(patch: Patch) -> None:
    """KIP-876: a cluster in which little happens keeps its log for ever."""
    rule = "return self._max_interval_ms > 0 and now_ms - self._since_ms >= self._max_interval_ms"
    patch.edit(SnapshotGenerator, "_is_due", (rule, "return False"))
