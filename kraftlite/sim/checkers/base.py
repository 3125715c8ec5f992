"""The interface of a checker, and what it is given to look at."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

from kraftlite.model.ids import NodeId
from kraftlite.model.method import AnyMethod
from kraftlite.model.topic_partition import TopicPartition
from kraftlite.runtime.trace import TraceEvent
from kraftlite.sim.history import History
from kraftlite.simhost.host import SimHost
from kraftlite.simhost.network import AnyExchange

if TYPE_CHECKING:
    from kraftlite.sim.cluster import SimCluster


class Violation(AssertionError):
    """An invariant does not hold. `checker` is the name of what found it."""

    def __init__(self, checker: str, text: str) -> None:
        super().__init__(f"{checker}: {text}")
        self.checker = checker
        self.text = text


class LivenessViolation(Violation):
    """Something that must happen once the faults are over did not."""


@dataclass(eq=False)
class Losses:
    """The losses to which a run's faults entitle the cluster.

    Without eligible leader replicas, a replica that lost unsynced bytes in a power cut may still be the last member of an ISR and
    then leads with a hole (KIP-966). `tainted` has the replicas that lost bytes of a partition and were not out of the ISR since;
    a partition that such a replica led, or that was led by an unclean election, is `excused`: of it, acknowledged records may be
    missing. `wiped` nodes lost their disks; of the `damaged` replicas files were lost or changed while their broker was down.

    Nothing that a disk has promised is among it: see `i36_promises_kept`.
    """

    tainted: dict[TopicPartition, set[NodeId]] = field(default_factory=dict)
    excused: dict[TopicPartition, str] = field(default_factory=dict)
    wiped: set[NodeId] = field(default_factory=set)
    damaged: set[tuple[NodeId, TopicPartition]] = field(default_factory=set)
    forgetful: dict[NodeId, int] = field(default_factory=dict)
    """Counts how often a node that has no vote lost files that it fetches anew: its metadata log, and the epoch that it knew."""


@dataclass(eq=False)
class World:
    """Everything that a checker may see; it changes nothing of it."""

    cluster: SimCluster
    history: History
    losses: Losses
    rng: random.Random
    faults_over: bool = False
    notes: dict[str, Any] = field(default_factory=dict)
    """Shared between checkers, by the name of who writes it."""

    @property
    def nodes(self) -> dict[NodeId, SimHost]:
        return self.cluster.nodes


class Checker:
    """One invariant, or a few that look at the same facts. Override what is needed; `fail` reports.

    All methods are called outside every node's process, synchronously, and must be cheap: `on_step` runs after every callback of
    a node, so compare a small stamp first and look closer only when it changed.
    """

    numbers: ClassVar[tuple[int, ...]] = ()
    """Those of docs/spec/invariants.md."""

    only_events: ClassVar[tuple[type[TraceEvent], ...] | None] = None
    """The events that `on_event` looks at, by their exact types; None: all. Those that are left out cost nothing."""

    only_methods: ClassVar[tuple[AnyMethod, ...] | None] = None
    """The methods that `on_call`, `on_answer`, `on_arrival` and `on_served` look at; None: all."""

    def __init__(self, world: World) -> None:
        self.world = world

    @property
    def name(self) -> str:
        numbers = ",".join(str(it) for it in self.numbers)
        return f"{type(self).__name__}[{numbers}]" if numbers else type(self).__name__

    def fail(self, text: str) -> None:
        raise Violation(self.name, text)

    def minds_event(self, kind: type[TraceEvent]) -> bool:
        """Return whether `on_event` looks at events of this type. Asked once, when the first of them comes."""
        return self.only_events is None or kind in self.only_events

    def minds_method(self, method: AnyMethod) -> bool:
        """Return the same of the four hooks that are told of messages."""
        return self.only_methods is None or method in self.only_methods

    def on_event(self, now_us: int, node: SimHost, event: TraceEvent) -> None:
        """Every trace event of every node, hot ones included, in order. The event's cause may not be complete at this point."""

    def on_step(self, node: SimHost) -> None:
        """Called after a callback of this node's process ran. `node.node` may be None or not yet started."""

    def on_boot(self, node: SimHost) -> None:
        """A new incarnation was built and is about to start."""

    def on_death(self, node: SimHost, how: str) -> None:
        """An incarnation ended: killed, power, stopped, failed, wiped."""

    def on_loss(self, node: SimHost, paths: Sequence[str]) -> None:
        """Files of a running node have lost bytes that were not durable."""

    def on_call(self, source: NodeId, target: NodeId, method: AnyMethod, request: object) -> None:
        """A request leaves (also when it will be lost)."""

    def on_answer(self, source: NodeId, target: NodeId, method: AnyMethod, request: object, response: object) -> None:
        """A response reaches its caller `source`."""

    def on_arrival(self, exchange: AnyExchange) -> None:
        """A request reaches a handler: perhaps late, perhaps for a second time, perhaps when its caller is dead."""

    def on_served(self, exchange: AnyExchange, response: object) -> None:
        """A handler has answered, without an error; the answer may never arrive. Of a request that arrived twice, each time."""

    def unsettled(self) -> str | None:
        """Say what has not happened yet and must, when the faults are over; None when nothing is left. Asked again and again."""
        return None

    def at_end(self) -> None:
        """Called after the liveness phase: all nodes run, all links are whole, the cluster has converged."""


CheckerFactory = Callable[[World], Checker]
