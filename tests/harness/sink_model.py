"""Every history of the protocol within bounds: two drivers of a query, two tasks, attempts that are repeated, crashes anywhere.

An actor is a piece of the real protocol (`Staging` or `commit`) over a fake cluster. It is a function of what the cluster has
answered so far: to go one step further it is run again from its beginning with the answers it had, and stopped at its next call.
So an actor can be stopped at every call, die there, and go on at any later time, and equal situations are looked at once.

A world is what the cluster has, and where every actor is. `explore` goes through all worlds; `Rule` says what must hold.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from types import ModuleType
from typing import Any, NamedTuple

from kraftlite.exactly_once import protocol_core
from kraftlite.exactly_once.records import Decision, Entry, Marker
from kraftlite.model.producer import Producer
from kraftlite.sim.workloads.sink_steps import Answers, Asked, Call

QUERY, BATCH, PREFIX = "q", 3, "p"
Rows = tuple[str, ...]
Split = tuple[Rows, ...]
"""The rows of each task."""

AGAIN = -1
"""The attempt, of a task or the driver, of a run of its own that comes when all others are dead."""
OPEN, COMMITTED, ABORTED = "open", "committed", "aborted"


class Transaction(NamedTuple):
    """One of an id's. `rows` are in order of their writing."""

    name: str
    epoch: int
    state: str
    rows: Rows = ()
    marker: Marker | None = None


class Cluster(NamedTuple):
    """What brokers have. An id's producer id never changes here, and each of its transactions has an epoch: that is what
    `take_over` promises."""

    epochs: tuple[tuple[str, int], ...] = ()
    transactions: tuple[Transaction, ...] = ()
    decisions: tuple[tuple[str, int, Decision], ...] = ()
    """(id, epoch, decision), committed ones, in order."""

    def epoch(self, name: str) -> int:
        return dict(self.epochs).get(name, -1)

    def find(self, name: str, epoch: int) -> int | None:
        return next((at for at, it in enumerate(self.transactions) if (it.name, it.epoch) == (name, epoch)), None)

    def changed(self, at: int, **fields: Any) -> Cluster:
        many = list(self.transactions)
        many[at] = many[at]._replace(**fields)
        return self._replace(transactions=tuple(many))

    def fenced(self, name: str) -> Cluster:
        """What is open of the id is aborted, and its epoch is another one."""
        many = tuple(it._replace(state=ABORTED) if it.name == name and it.state == OPEN else it for it in self.transactions)
        epochs = dict(self.epochs)
        epochs[name] = self.epoch(name) + 1
        return self._replace(epochs=tuple(sorted(epochs.items())), transactions=many)

    @property
    def visible(self) -> Rows:
        """What readers of committed records see of the batch."""
        return tuple(sorted(row for it in self.transactions if it.state == COMMITTED for row in it.rows))


class Refused(Exception):
    """What a client raises."""


class Port(Answers):
    """The protocol's cluster: answers from the past, and then a pause. An answer may be Refused."""

    def _given(self, answer: Any) -> Any:
        if answer is Refused:
            raise Refused
        return answer

    def write(self, transactional_id: str, producer: Producer, row: str) -> None:
        """A task's own."""
        self._ask("write", transactional_id, producer, row)


def carried_out(cluster: Cluster, call: Call, core: ModuleType) -> Iterator[tuple[Cluster, Any]]:
    """Everything that a cluster may do with a call, and answer. An answer that is lost is Refused, after what was done."""
    arguments = call.arguments
    if call.method == "take_over":
        found = cluster.fenced(arguments[0])
        yield found, Producer(1, found.epoch(arguments[0]))
    elif call.method == "decided":
        query, batch, since = arguments
        yield cluster, any(it.query == query and it.batch >= batch for _name, _epoch, it in cluster.decisions[since:])
    elif call.method == "last_decision":
        yield cluster, cluster.decisions[-1][2] if cluster.decisions else None
    elif call.method == "record":
        name, producer, decision = arguments
        if cluster.epoch(name) != producer.producer_epoch:
            yield cluster, Refused
            return
        found = cluster._replace(decisions=(*cluster.decisions, (name, producer.producer_epoch, decision)))
        yield found, None
        yield found, Refused
        yield cluster, Refused
    elif call.method == "fate":
        entry = arguments[2]
        at = cluster.find(entry.transactional_id, entry.epoch)
        assert at is not None
        yield cluster, core.Fate(cluster.transactions[at].state)
    else:
        yield from _in_transaction(cluster, call)


def _in_transaction(cluster: Cluster, call: Call) -> Iterator[tuple[Cluster, Any]]:
    name, producer = call.arguments[:2]
    at = cluster.find(name, producer.producer_epoch)
    fenced = cluster.epoch(name) != producer.producer_epoch
    if call.method == "end":
        commit = call.arguments[2]
        state = None if at is None else cluster.transactions[at].state
        if fenced or at is None:
            yield cluster, False
        elif state == OPEN:
            found = cluster.changed(at, state=COMMITTED if commit else ABORTED)
            yield found, True
            if commit:
                yield found, Refused
        else:
            yield cluster, (state == COMMITTED) == commit
        return
    if fenced or (at is not None and cluster.transactions[at].state != OPEN):
        yield cluster, Refused
        return
    if at is None:
        cluster = cluster._replace(transactions=(*cluster.transactions, Transaction(name, producer.producer_epoch, OPEN)))
        at = len(cluster.transactions) - 1
    if call.method == "write":
        yield cluster.changed(at, rows=(*cluster.transactions[at].rows, call.arguments[2])), None
    else:
        yield cluster.changed(at, marker=call.arguments[2]), (1, producer.producer_epoch * 10 + call.arguments[2].task)


# --- actors


class Actor(NamedTuple):
    """An attempt of a task, or the driver's commit. `since`: so many decisions were there when its run began. `done`: its result;
    `failed`: what it raised."""

    driver: int
    task: int | None
    attempt: int
    since: int
    staged: tuple[Entry, ...] = ()
    answers: tuple[Any, ...] = ()
    done: Any = None
    failed: str | None = None

    @property
    def running(self) -> bool:
        return self.done is None and self.failed is None


@dataclass(frozen=True)
class Bounds:
    """What may happen. `splits`: how each driver's rows are split into tasks. `fingerprint`: of a task's rows."""

    splits: tuple[Split, ...]
    twins: int = 0
    """So many attempts may be begun while another one of the same task is there."""
    timeouts: int = 0
    fingerprint: Callable[[Rows], str] = lambda rows: f"{sum(map(ord, ''.join(rows))):032x}"

    @property
    def rows(self) -> Rows:
        return tuple(sorted(row for part in self.splits[0] for row in part))


class World(NamedTuple):
    cluster: Cluster
    actors: tuple[Actor, ...]
    twins: int
    timeouts: int


class Explorer:
    """All worlds within bounds, each looked at once. `core`: the protocol, or a mutant of it."""

    def __init__(self, bounds: Bounds, core: ModuleType = protocol_core) -> None:
        self.bounds, self.core = bounds, core
        self.worlds = 0
        self.outcomes: set[str] = set()
        """How commits ended, to be sure that the bounds hold something."""
        self._calls: dict[Actor, Actor | Call] = {}
        self._alone: dict[Cluster, str | None] = {}

    def broken(self, most: int = 400_000) -> str | None:
        """The first rule that does not hold, and where; None: all hold in all worlds."""
        start = World(Cluster(), self._tasks(0, 0), self.bounds.twins, self.bounds.timeouts)
        seen = {start}
        stack = [start]
        while stack:
            world = stack.pop()
            self.worlds += 1
            assert self.worlds < most, "the bounds are too wide"
            for after in self._next(world):
                if after not in seen:
                    problem = self._wrong(after)
                    if problem is not None:
                        return problem
                    seen.add(after)
                    stack.append(after)
        return None

    # --- what may happen next

    def _next(self, world: World) -> Iterator[World]:
        for at, actor in enumerate(world.actors):
            if actor.running:
                call = self._played(actor)
                assert isinstance(call, Call)
                for cluster, answer in carried_out(world.cluster, call, self.core):
                    after = self._played(actor._replace(answers=(*actor.answers, answer)))
                    moved = actor._replace(answers=(*actor.answers, answer)) if isinstance(after, Call) else after
                    yield world._replace(cluster=cluster, actors=(*world.actors[:at], moved, *world.actors[at + 1 :]))
        for driver in {it.driver for it in world.actors}:
            yield from self._of_driver(world, driver)
        begun = 1 + max(it.driver for it in world.actors)
        if begun < len(self.bounds.splits):
            since = len(world.cluster.decisions)
            yield world._replace(actors=(*world.actors, *self._tasks(begun, since)))
        if world.timeouts:
            for name in sorted({it.name for it in world.cluster.transactions if it.state == OPEN}):
                yield world._replace(cluster=world.cluster.fenced(name), timeouts=world.timeouts - 1)

    def _of_driver(self, world: World, driver: int) -> Iterator[World]:
        mine = [it for it in world.actors if it.driver == driver]
        if any(it.task is None for it in mine):
            return
        attempts = [[it for it in mine if it.task == task] for task in range(len(self.bounds.splits[driver]))]
        if world.twins:
            for them in attempts:
                twin = Actor(driver, them[0].task, len(them), them[0].since)
                yield world._replace(actors=(*world.actors, twin), twins=world.twins - 1)
        finished = [[it.done for it in them if it.done is not None] for them in attempts]
        for staged in _choices(finished):
            yield world._replace(actors=(*world.actors, Actor(driver, None, 0, mine[0].since, staged)))

    def _tasks(self, driver: int, since: int) -> tuple[Actor, ...]:
        return tuple(Actor(driver, task, 0, since) for task in range(len(self.bounds.splits[driver])))

    def _played(self, actor: Actor) -> Actor | Call:
        if actor not in self._calls:
            self._calls[actor] = self._play(actor)
        return self._calls[actor]

    def _play(self, actor: Actor) -> Actor | Call:
        port = Port(actor.answers)
        run = f"r{actor.driver}" if actor.attempt != AGAIN else f"again-{actor.driver}"
        try:
            if actor.task is None:
                result = (
                    self.core.commit(port, prefix=PREFIX, query=QUERY, batch=BATCH, run=run, staged=actor.staged) or "nothing"
                )
            else:
                result = self._stage(port, actor, actor.task, run)
        except Asked as asked:
            return asked.call
        except (Refused, self.core.CommitFailed) as error:
            self.outcomes.add(type(error).__name__)
            return actor._replace(answers=(), staged=(), failed=type(error).__name__)
        return actor._replace(answers=(), staged=(), done=result)

    def _stage(self, port: Port, actor: Actor, task: int, run: str) -> Entry:
        rows = self.bounds.splits[actor.driver][task]
        staging = self.core.Staging(port, prefix=PREFIX, query=QUERY, batch=BATCH, run=run, since=actor.since, task=task)
        producer = staging.begin()
        for row in rows:
            port.write(staging.transactional_id, producer, row)
        found: Entry = staging.mark(len(rows), self.bounds.fingerprint(rows))
        return found

    # --- what must hold

    def _wrong(self, world: World) -> str | None:
        visible = world.cluster.visible
        left = list(self.bounds.rows)
        for row in visible:
            if row not in left:
                return f"readers see {visible}"
            left.remove(row)
        if visible and not world.cluster.decisions:
            return f"readers see {visible}, and nobody has decided"
        committed = [it.driver for it in world.actors if it.task is None and it.done is not None]
        if committed and left:
            return f"driver {committed[0]} has committed, and readers do not see {left}"
        if committed:
            self.outcomes.add("committed")
            held = self._held(world, {f"r{it}" for it in committed})
            if held and not any(it.running for it in world.actors):
                return f"all have ended, driver {committed[-1]} has committed, and {held} stay open and hold readers back"
        if world.cluster not in self._alone:
            self._alone[world.cluster] = self._stuck(world.cluster)
        return self._alone[world.cluster]

    def _held(self, world: World, committed: set[str]) -> list[str]:
        """What these runs have open, and those that began before the last decision was made; nothing, if the run of that one has
        not committed, and none has without a decision."""
        decisions = world.cluster.decisions
        undecided = any(it.since == len(decisions) for it in world.actors if f"r{it.driver}" in committed)
        if not decisions or (decisions[-1][2].run not in committed and not undecided):
            return []
        written = {entry.transactional_id for entry in decisions[-1][2].entries}
        late = committed | {f"r{it.driver}" for it in world.actors if it.since < len(decisions)}
        open_ = [it for it in world.cluster.transactions if it.state == OPEN and it.name in written]
        return [it.name for it in open_ if it.marker is not None and it.marker.run in late]

    def _stuck(self, cluster: Cluster) -> str | None:
        """Everybody is dead, and the batch runs once more with nobody beside it: with the options it began with it is completed,
        with others it is completed or refused."""
        problems = []
        for driver in range(len(self.bounds.splits)):
            visible, ended = self._run_alone(cluster, driver)
            if ended == "committed" and visible != self.bounds.rows:
                return f"a run alone commits, and readers see {visible}"
            if ended != "committed" and visible != cluster.visible:
                return f"a run alone fails by {ended}, and changes what readers see to {visible}"
            if ended not in ("committed", "SplitChanged"):
                return f"a run alone fails by {ended}"
            problems.append(ended)
        return None if "committed" in problems else "no options complete the batch"

    def _run_alone(self, cluster: Cluster, driver: int) -> tuple[Rows, str]:
        staged = []
        since = len(cluster.decisions)
        for actor in self._tasks(driver, since):
            cluster, ended = self._to_its_end(cluster, actor._replace(attempt=AGAIN))
            if ended.done is None:
                return cluster.visible, str(ended.failed)
            staged.append(ended.done)
        cluster, ended = self._to_its_end(cluster, Actor(driver, None, AGAIN, since, tuple(staged)))
        return cluster.visible, ended.failed or "committed"

    def _to_its_end(self, cluster: Cluster, actor: Actor) -> tuple[Cluster, Actor]:
        while True:
            played = self._played(actor)
            if isinstance(played, Actor):
                return cluster, played
            cluster, answer = next(carried_out(cluster, played, self.core))
            actor = actor._replace(answers=(*actor.answers, answer))


def _choices(finished: list[list[Entry]]) -> Iterator[tuple[Entry, ...]]:
    """One attempt of every task; none, while a task has none."""
    if not finished:
        yield ()
        return
    for first in finished[0]:
        for others in _choices(finished[1:]):
            yield (first, *others)
