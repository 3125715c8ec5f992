"""Faults that wait for a step of a transaction, or of the quorum, and strike when somebody takes it: `kill-at-end`,
`hold-at-mark`, `stop-at-probed`, `pause-at-won`.

What a clock meets once in thousands of runs, a step meets each time: the moment between the outcome's record and its markers
lasts for a few hundred microseconds. `amount` is the pause, in microseconds, between the step and the blow.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final, NamedTuple

from kraftlite.model.ids import NodeId
from kraftlite.model.messages.methods import (
    ADD_VOTER,
    BEGIN_QUORUM_EPOCH,
    ENROLL,
    FETCH_SNAPSHOT,
    PROBE_VERSIONS,
    REMOVE_VOTER,
    REPLICA_FETCH,
    UPDATE_FEATURES,
    WRITE_MARKERS,
)
from kraftlite.model.method import AnyMethod
from kraftlite.raft.states import Leader
from kraftlite.sim.fault_plan import AMBUSHES, FaultPlan
from kraftlite.sim.injection import links, nodes
from kraftlite.sim.injection.handler import Handler
from kraftlite.sim.services.transactions import ADD, COMMIT, END, INIT, PRODUCE
from kraftlite.simhost.host import SimHost

if TYPE_CHECKING:
    from kraftlite.sim.injector import Injector

CALLED: Final = "called"
ARRIVED: Final = "arrived"
SERVED: Final = "served"


class Step(NamedTuple):
    """A moment in the life of a call. `hits_caller`: the blow hits who has called, else who is called. The caller of a client's
    method is no node."""

    moment: str
    method: AnyMethod
    hits_caller: bool


STEPS: Final[Mapping[str, Step]] = {
    "init": Step(ARRIVED, INIT, False),
    "add": Step(CALLED, ADD, False),
    "produce": Step(CALLED, PRODUCE, False),
    "question": Step(CALLED, ENROLL, True),
    "answer": Step(SERVED, ENROLL, True),
    "commit": Step(ARRIVED, COMMIT, False),
    "end": Step(ARRIVED, END, False),
    "ending": Step(CALLED, END, False),
    "ended": Step(SERVED, END, False),
    "mark": Step(CALLED, WRITE_MARKERS, True),
    "marker": Step(ARRIVED, WRITE_MARKERS, False),
    "marked": Step(SERVED, WRITE_MARKERS, True),
    "adding": Step(ARRIVED, ADD_VOTER, False),
    "removing": Step(ARRIVED, REMOVE_VOTER, False),
    "probe": Step(CALLED, PROBE_VERSIONS, True),
    "probed": Step(SERVED, PROBE_VERSIONS, True),
    "upgrading": Step(ARRIVED, UPDATE_FEATURES, False),
    "won": Step(CALLED, BEGIN_QUORUM_EPOCH, True),
    "part": Step(CALLED, FETCH_SNAPSHOT, False),
}
"""The steps by their names: an init, a partition that is added, a batch that is sent, the question of its leader and the answer
of the coordinator, an offset, an end that comes, is sent, is answered, a marker that is sent, comes, is written. A voter that is
to be added or removed, the leader's question to a new voter, and its answer; a kraft.version that can be raised now; a leader
that tells of its election, once in an epoch; and one that is asked for a part of a metadata snapshot."""


def ambush(injector: Injector, plan: FaultPlan) -> None:
    """Wait for the step, once. What is late or held is so from this very message on."""
    deed, name = plan.kind.split("-at-")
    step = STEPS[name]
    injector.note(f"{plan.kind} is armed")

    def strike(source: NodeId, target: NodeId) -> None:
        if not _MOMENTOUS.get(name, _always)(injector, source if step.hits_caller else target):
            injector.ambushes[step.moment, step.method].insert(0, strike)
            return
        if deed in _OF_LINKS:
            ends = (target, source) if step.moment == SERVED else (source, target)
            _OF_LINKS[deed](injector, plan, *ends)
            return
        victim = source if step.hits_caller else target
        injector.cluster.network.at(max(1, plan.amount), lambda: _hit(injector, plan, deed, victim))

    injector.ambushes.setdefault((step.moment, step.method), []).append(strike)


def _always(_injector: Injector, _node_id: NodeId) -> bool:
    return True


def _is_first(injector: Injector, leader_id: NodeId) -> bool:
    """Return whether nothing has struck in the epoch of this leader yet, which tells each of the other voters of it."""
    node = injector.cluster.nodes[leader_id].node
    epoch = None if node is None else node.raft.core.epoch
    if epoch is None or epoch in injector.struck_epochs:
        return False
    injector.struck_epochs.add(epoch)
    return True


def _can_upgrade(injector: Injector, leader_id: NodeId) -> bool:
    """Return whether this node leads, and all configured voters have told it that they support voters in the log."""
    node = injector.cluster.nodes[leader_id].node
    state = None if node is None else node.raft.core.state
    described = state.described if isinstance(state, Leader) else None
    return described is not None and all(it.listeners for it in described.voters)


_MOMENTOUS: Final[Mapping[str, Callable[[Injector, NodeId], bool]]] = {"won": _is_first, "upgrading": _can_upgrade}
"""The steps that are often taken for nothing, and say whether this one counts: the fault waits on if not."""


def _hit(injector: Injector, plan: FaultPlan, deed: str, victim: NodeId) -> None:
    node: SimHost | None = injector.cluster.nodes.get(victim)
    if node is None or not node.running or injector.over:
        return
    injector.note(f"{plan.kind} strikes")
    _OF_NODES[deed](injector, FaultPlan(at_ms=plan.at_ms, kind=deed, target=str(victim), for_ms=plan.for_ms, amount=1))


def late(injector: Injector, plan: FaultPlan, source: NodeId, target: NodeId) -> None:
    """Delay this one message for as long as the fault lasts; all others overtake it."""
    _hold(injector, plan, source, target, 1)


def hold(injector: Injector, plan: FaultPlan, source: NodeId, target: NodeId) -> None:
    """Let nothing arrive on this link, in this direction, before the fault is over."""
    _hold(injector, plan, source, target, 1000 * plan.for_ms)


def repeat(injector: Injector, plan: FaultPlan, source: NodeId, target: NodeId) -> None:
    """Delay this message, and break its connection meanwhile: the caller asks again, and both arrive."""
    late(injector, plan, source, target)
    network = injector.cluster.network
    network.at(max(1, plan.amount), lambda: None if injector.over else network.reset(source, target))


def repeat_fetch(injector: Injector, plan: FaultPlan) -> None:
    """Break the connection of a follower (the target) to a leader, delay the fetch with which it opens a session anew for as long
    as the fault lasts, and break the connection again: it opens another one, and the first request arrives last."""
    pair = injector.pair(plan)
    if pair is None:
        return
    waiting = injector.ambushes.setdefault((CALLED, REPLICA_FETCH), [])

    def strike(source: NodeId, target: NodeId) -> None:
        if (source, target) == pair:
            repeat(injector, plan, source, target)
        else:
            waiting.append(strike)

    injector.cluster.network.reset(*pair)
    waiting.append(strike)


def orphan(injector: Injector, plan: FaultPlan, source: NodeId, target: NodeId) -> None:
    """Delay this message, and stop its sender in order: it arrives when another has long done what it was about."""
    late(injector, plan, source, target)
    injector.cluster.network.at(max(1, plan.amount), lambda: _hit(injector, plan, "stop", source))


def _hold(injector: Injector, plan: FaultPlan, source: NodeId, target: NodeId, for_us: int) -> None:
    network = injector.cluster.network
    link, until_us = network.link(source, target), injector.cluster.loop.now_us() + 1000 * plan.for_ms
    injector.note(f"{plan.kind} strikes {source}>{target} for {plan.for_ms} ms")
    link.held_until_us = until_us

    def free() -> None:
        if link.held_until_us == until_us:
            link.held_until_us = 0

    network.at(for_us, free)


def alone(injector: Injector, plan: FaultPlan) -> None:
    """Cut a broker off from all other brokers; controllers and clients go on talking to it, so that it stays a leader."""
    node = injector.one(plan)
    if node is not None:
        others = [it.node_id for it in injector.cluster.brokers if it is not node and not it.config.is_controller]
        links.cut_all(injector, [(node.node_id, it) for it in others], plan)


_OF_LINKS: Final[Mapping[str, Callable[[Injector, FaultPlan, NodeId, NodeId], None]]] = {
    "late": late,
    "hold": hold,
    "repeat": repeat,
    "orphan": orphan,
}
_OF_NODES: Final[Mapping[str, Handler]] = {
    "kill": nodes.kill,
    "power": nodes.power,
    "pause": nodes.pause,
    "stop": nodes.stop,
    "cut-quorum": links.cut_quorum,
    "kill-all": nodes.kill_all,
    "power-all": nodes.power_all,
    "alone": alone,
}

KINDS: Final[Mapping[str, Handler]] = {**dict.fromkeys(AMBUSHES, ambush), "repeat-fetch": repeat_fetch}
"""Every kind of fault, and what carries it out."""
