"""The life of brokers: registration, heartbeats, fencing, controlled shutdown."""

from __future__ import annotations

from kraftlite.broker.lifecycle_core import BrokerLifecycleCore
from kraftlite.broker.publisher import BrokerMetadataPublisher
from kraftlite.controller.broker_control import BrokerControl
from kraftlite.controller.cluster_control import ClusterControl
from kraftlite.controller.election_control import ElectionControl
from kraftlite.controller.heartbeats import HeartbeatManager, HeartbeatTracker
from kraftlite.replication.role_queue import RoleQueue
from kraftlite.sim.quorum_scenes import leaves_while_another_lags
from kraftlite.sim.scenes import two_failovers
from tests.sim.mutants.catalog import mutant
from tests.sim.mutants.lenses import playing, tuned
from tests.sim.mutants.patching import Patch


def one_a_turn(patch: Patch) -> None:
    """A broker applies one partition a turn, and has much else to do in between: in production it is dozens, more than most
    updates of a run touch, and virtual turns take no time."""
    tuned(partitions_per_step=1, roles_per_step=1)(patch)
    patch.edit(BrokerMetadataPublisher, "_take", ("await self._ports.clock.sleep(0)", "await self._ports.clock.sleep(200)"))


@mutant(
    "new-incarnation-keeps-isr",
    "a broker that restarted is still in the ISRs of the one before it",
    expects=("19", "27", "24", "72", "SelfCheck"),
)
def new_incarnation_keeps_isr(patch: Patch) -> None:
    """KIP-966: an unclean restart may have lost the log's tail, and who is in the ISR may lead."""
    rule = "yield from self._elections.broker_restarted(request.broker_id, records, clean=clean)"
    patch.edit(BrokerControl, "register", (rule, "pass"))


@mutant("unfenced-before-caught-up", "a broker is unfenced before it has the metadata and its logs", expects=("19", "22", "33"))
def unfenced_before_caught_up(patch: Patch) -> None:
    """CM-06, BL-07: a broker that is told to be alive, and elected, before it knows of any partition."""
    patch.edit(HeartbeatManager, "next_state", ("if not request.want_fence and caught_up:", "if True:"))


@mutant(
    "shutdown-does-not-wait",
    "a broker may go as soon as it leads nothing, though the others do not know yet",
    expects=("19", "22"),
)
def shutdown_does_not_wait(patch: Patch) -> None:
    """CM-08: clients and followers still ask the broker that has gone; KAFKA-13944 is from the same corner."""
    rule = "if not has_leaderships() and state.controlled_shutdown_offset <= self.lowest_active_offset():"
    patch.edit(HeartbeatManager, "next_state", (rule, "if not has_leaderships():"))


@mutant("heartbeat-does-not-renew", "a session is over after its timeout, heartbeats or not", expects=("37",))
def heartbeat_does_not_renew(patch: Patch) -> None:
    """CE-25: sessions that run out on brokers that have sent all their heartbeats."""
    rule = "    self._contact_ms[key] = now_ms"
    patch.edit(HeartbeatTracker, "touch", (rule, "    self._contact_ms.setdefault(key, now_ms)"))


@mutant(
    "sessions-forgotten",
    "a controller that becomes active begins no session for the brokers that it finds",
    expects=("37",),
    lens=playing(two_failovers),
)
def sessions_forgotten(patch: Patch) -> None:
    """CE-26: a broker that died shortly before a failover stays unfenced for ever, and leads."""
    rule = "if not registration.fenced:"
    patch.edit(ClusterControl, "activate", (rule, "if False:"))


@mutant(
    "leaving-broker-is-not-fenced",
    "a broker that led much loses its leaderships when its session is over, and stays in all ISRs",
    expects=("37", "50"),
    lens=tuned(leaders_first=1),
)
def leaving_broker_is_not_fenced(patch: Patch) -> None:
    """CM-10: nobody can write with acks=all where it followed, until its leaders take it out."""
    rule = "if now_ms >= leaving.due_ms or live.lowest_active_offset() >= leaving.offset:"
    patch.edit(BrokerControl, "fence_one_stale", (rule, "if False:"))


@mutant(
    "work-asked-for-too-early",
    "a broker that has the metadata says that it is ready before it has loaded its logs",
    expects=("19",),
)
def work_asked_for_too_early(patch: Patch) -> None:
    """BL-07, CM-06: it is unfenced and elected for partitions of which it knows nothing yet."""
    patch.edit(BrokerLifecycleCore, "_run_due", ("not self._ready,", "not (self._ready or self.caught_up),"))


@mutant(
    "says-loaded-not-applied",
    "a heartbeat names the metadata offset that is loaded, not the one that is applied",
    expects=("19",),
    lens=one_a_turn,
)
def says_loaded_not_applied(patch: Patch) -> None:
    """BL-11: the controller lets a broker go whose leaderships the others have not taken over yet."""
    patch.set(BrokerMetadataPublisher, "applied_offset", lambda self, loaded: loaded)


@mutant(
    "joined-update-not-applied",
    "an update that comes while another is applied changes no replica",
    expects=("31", "33", "19", "liveness"),
    lens=one_a_turn,
)
def joined_update_not_applied(patch: Patch) -> None:
    """ML-21: a broker that is behind takes several updates as one, and each of them has to have its effect."""
    patch.edit(BrokerMetadataPublisher, "_join", ("self._replicas.add_delta(update.topics, update.image)", "pass"))


@mutant(
    "next-update-before-the-last",
    "a replica is left as an earlier update has it when a later one has come meanwhile",
    expects=("31", "33", "19", "liveness"),
    lens=one_a_turn,
)
def next_update_before_the_last(patch: Patch) -> None:
    """ML-17: a change that waits is overtaken by a later one of the same replica, and not the other way round."""
    patch.edit(RoleQueue, "_read", ("latest[tp] = local", "latest.setdefault(tp, local)"))


@mutant("second-incarnation-in-a-session", "a broker is registered anew while its former self has a session", expects=("22",))
def second_incarnation_in_a_session(patch: Patch) -> None:
    """CM-01: two processes with one id displace each other again and again."""
    rule = "another = existing is not None and existing.incarnation_id != request.incarnation_id"
    patch.edit(ClusterControl, "check_registration", (rule, "another = False"))


@mutant(
    "the-dead-hold-up-shutdowns", "a broker that goes waits for what fenced brokers have not heard", expects=("ShutdownsEnd",)
)
def the_dead_hold_up_shutdowns(patch: Patch) -> None:
    """CM-08: KAFKA-14392's neighbourhood: a rolling restart stands still while a broker is down."""
    patch.edit(HeartbeatManager, "lowest_active_offset", ("it.fenced or ", ""))


@mutant(
    "one-is-left-between-two-parts",
    "of a broker that is fenced in parts one partition between two of them keeps it",
    expects=("SelfCheck", "19", "20"),
    lens=tuned(changes_per_part=1),
)
def one_is_left_between_two_parts(patch: Patch) -> None:
    """CM-10: a failed broker of tens of thousands of partitions leads one of ten thousand on."""
    patch.edit(
        ElectionControl,
        "_leave_from",
        ("partial(self._leave_from, end, partitions", "partial(self._leave_from, end + 1, partitions"),
    )


@mutant(
    "wish-in-flight-waits", "what a broker has to say while a heartbeat is under way waits an interval", expects=("WishesTold",)
)
def wish_in_flight_waits(patch: Patch) -> None:
    """BL-06: a broker that is ready, or wants to stop, or has lost a directory, says so at once."""
    patch.edit(BrokerLifecycleCore, "_wish", ("self._immediate = True", "pass"))


@mutant(
    "leaving-for-ever",
    "a broker that led much and was fenced counts as one that is to be fenced, also when it is back",
    expects=("SelfCheck",),
    lens=tuned(leaders_first=1),
)
def leaving_for_ever(patch: Patch) -> None:
    """CM-10: it leads nothing any more, and nobody who leaves waits for it."""
    patch.edit(HeartbeatManager, "register", ("self.leaving.pop(broker_id, None)", "pass"))


@mutant(
    "shutdown-offset-moves-on",
    "a broker that leaves waits until the others know what was written at its last heartbeat",
    expects=("ShutdownsEnd",),
    lens=playing(leaves_while_another_lags),
)
def shutdown_offset_moves_on(patch: Patch) -> None:
    """CM-08: Kafka's BrokerHeartbeatManager sets the offset once, for on a busy cluster somebody is always a little behind."""
    patch.edit(HeartbeatManager, "fix_controlled_shutdown_offset", (" and state.controlled_shutdown_offset is None", ""))
