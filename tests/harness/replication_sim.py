"""A seeded simulation of one partition on three brokers: messages are delayed, lost and cut off, brokers crash and come back,
metadata arrives late; after every event the invariants of partition replication are checked.

Everything is drawn from `random.Random(seed)`, nothing from time or hash order: the same seed is the same run.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from kraftlite.log.config import LogConfig
from kraftlite.metadata.records import PartitionChangeRecord
from kraftlite.model.errors import ApiError, ErrorCode
from kraftlite.model.ids import NodeId
from kraftlite.model.messages.methods import REPLICA_OFFSETS
from kraftlite.model.messages.replica import ReplicaFetchResponse
from kraftlite.replication.api import ProduceResult
from kraftlite.replication.fetcher_core import FetcherCore
from tests.harness.replication_cluster import TOPIC_ID, TP, Node, StepCluster, log_values, read_values, run_now


class Violation(AssertionError):
    """An invariant does not hold. The message names it, the seed and the last events."""


@dataclass
class Message:
    """In flight from `source` to `target`; `deliver` and `lose` are what its arrival or loss does."""

    source: str
    target: str
    text: str
    deliver: Callable[[], None]
    lose: Callable[[], None]


@dataclass(eq=False)
class Call:
    """A fetch under way."""

    response: ReplicaFetchResponse | None = None
    lost: bool = False


@dataclass
class Write:
    value: str
    acks: int
    result: ProduceResult | None = None


class ReplicationSim:
    """One run. `step` does one random event and checks; `converge` heals everything and demands that all is well."""

    def __init__(self, seed: int, *, unclean: bool = False) -> None:
        self.seed = seed
        self.rng = random.Random(seed)
        self.unclean = unclean
        self.min_isr = self.rng.choice((1, 2, 2))
        config = LogConfig(min_insync_replicas=self.min_isr, segment_bytes=self.rng.choice((400, 1 << 20)))
        self.c = StepCluster(lag_time_max_ms=10_000, log_config=config, fetch_max_bytes=self.rng.choice((100, 1 << 20)))
        self.c.controller.unclean = unclean
        self.c.create()
        self.network: list[Message] = []
        self.fetching: dict[tuple[NodeId, NodeId], tuple[FetcherCore | None, list[Call]]] = {}
        self.altering: set[NodeId] = set()
        self.incarnation: dict[NodeId, int] = dict.fromkeys(self.c.nodes, 0)
        self.cut: set[tuple[str, str]] = set()
        self.expires: dict[NodeId, int] = {}
        self.history: list[str] = []
        self.writes: list[Write] = []
        self.committed: dict[int, str] = {}
        self.read: dict[int, str] = {}
        self.latest: dict[int, int] = {}
        """Leader epoch -> largest latest-offset answer."""
        self.hws: dict[tuple[NodeId, int, int], int] = {}
        self._cache: dict[NodeId, tuple[Any, list[tuple[int, str]]]] = {}

    # --- events -------------------------------------------------------------------------------------------------------

    EVENTS: tuple[tuple[str, int], ...] = (
        ("deliver", 30),
        ("fetch", 24),
        ("produce", 14),
        ("consume", 6),
        ("metadata", 10),
        ("alter", 8),
        ("time", 6),
        ("lose", 3),
        ("cut", 2),
        ("heal", 3),
        ("crash", 2),
        ("restart", 4),
        ("unfence", 5),
        ("checkpoint", 1),
        ("flush", 1),
        ("elect", 1),
        ("reassign", 1),
        ("latest", 3),
    )
    _NAMES = tuple(name for name, _ in EVENTS)
    _WEIGHTS = tuple(weight for _, weight in EVENTS)

    def step(self) -> None:
        name = self.rng.choices(self._NAMES, self._WEIGHTS)[0]
        try:
            getattr(self, f"_{name}")()
            self.check()
        except Violation:
            raise
        except Exception as error:
            raise Violation(self.explain(f"{name} raised {error!r}")) from error

    def explain(self, what: str) -> str:
        recent = "\n  ".join(self.history[-60:])
        return f"seed {self.seed}{' unclean' if self.unclean else ''}: {what}\n  {recent}"

    def note(self, text: str) -> None:
        self.history.append(f"{len(self.history)} {text}")

    def _up(self) -> list[Node]:
        return [node for node in self.c.nodes.values() if node.up]

    def _hosting(self) -> list[Node]:
        return [node for node in self._up() if node.manager.partition(TP) is not None]

    def _send(self, source: Any, target: Any, text: str, deliver: Callable[[], None], lose: Callable[[], None]) -> None:
        self.network.append(Message(str(source), str(target), text, deliver, lose))

    def _deliver(self) -> None:
        if not self.network:
            return
        message = self.network.pop(self.rng.randrange(len(self.network)) if self.rng.random() < 0.3 else 0)
        if (message.source, message.target) in self.cut:
            self.note(f"cut: {message.source}>{message.target} {message.text}")
            message.lose()
        else:
            self.note(f"{message.source}>{message.target} {message.text}")
            message.deliver()

    def _lose(self) -> None:
        if self.network:
            message = self.network.pop(self.rng.randrange(len(self.network)))
            self.note(f"lost: {message.source}>{message.target} {message.text}")
            message.lose()

    def _fetch(self) -> None:
        """As the driver does: a second request only while the first is under way and there is something to say."""
        choices = []
        for node in self._up():
            for leader, core in node.fetchers().items():
                calls = self._calls(node, leader)
                if not calls or (len(calls) == 1 and core.has_news):
                    choices.append((node, leader, calls))
        if not choices:
            return
        node, leader, calls = self.rng.choice(choices)
        request = node.fetch_request(leader)
        if request is None:
            return
        call = Call()
        calls.append(call)

        def lost() -> None:
            call.lost = True
            self._take_answers(node, leader, calls)

        def arrive() -> None:
            target = self.c.nodes[leader]
            if not target.up:
                lost()
                return
            response = target.serve_fetch(request)

            def answer() -> None:
                call.response = response
                self._take_answers(node, leader, calls)

            self._send(leader, node.id, f"Fetched epoch={request.session_epoch}", answer, lost)

        asked = [p.fetch_offset for p in request.partitions]
        self._send(node.id, leader, f"Fetch epoch={request.session_epoch} offset={asked}", arrive, lost)

    def _calls(self, node: Node, leader: NodeId) -> list[Call]:
        """What this fetcher of the follower has under way, oldest first. A fetcher that ended takes its calls with it."""
        core = node.fetchers().get(leader) if node.up else None
        found = self.fetching.get((node.id, leader))
        if found is None or found[0] is not core:
            found = self.fetching[node.id, leader] = (core, [])
        return found[1]

    def _take_answers(self, node: Node, leader: NodeId, calls: list[Call]) -> None:
        """In the order of sending; a lost one ends the session and all that is under way in it."""
        if calls is not self._calls(node, leader) or not node.up:
            return
        while calls and (calls[0].lost or calls[0].response is not None):
            call = calls.pop(0)
            if call.response is None:
                calls.clear()
                node.fail_fetch(leader)
            elif node.take_response(leader, call.response):
                self._resolve_offsets(node, leader)
            else:
                calls.clear()

    def _resolve_offsets(self, node: Node, leader: NodeId) -> None:
        core, target = node.fetchers().get(leader), self.c.nodes[leader]
        offsets = None if core is None else core.offsets_request()
        if core is None or offsets is None:
            return
        cut = (str(node.id), str(leader)) in self.cut or not target.up
        answers = () if cut else run_now(target.manager.handlers()[REPLICA_OFFSETS](offsets)).partitions  # type: ignore[arg-type]
        core.handle_offsets(answers, self.c.clock.now_ms())

    def _produce(self) -> None:
        hosts = self._hosting()
        if not hosts:
            return
        node = self.rng.choice([n for n in hosts if n.partition().is_leader] or hosts)
        write = Write(f"w{len(self.writes)}", self.rng.choice((-1, -1, 1)))
        self.writes.append(write)

        def done(result: ProduceResult) -> None:
            if write.result is not None:
                raise Violation(self.explain(f"{write.value} got two verdicts"))
            write.result = result
            self.note(f"{write.value} acks={write.acks} -> {result.error.name} base={result.base_offset}")
            if result.error is ErrorCode.NONE and write.acks == -1:
                self._commit(result.base_offset, write.value, "acked")

        self.note(f"produce {write.value} acks={write.acks} at {node.id}")
        node.produce([write.value], acks=write.acks, timeout_ms=self.rng.choice((100, 30_000)), on_done=done)

    def _consume(self) -> None:
        hosts = self._hosting()
        if not hosts:
            return
        node = self.rng.choice(hosts)
        log = node.log()
        found = node.consume(self.rng.randint(log.log_start_offset, log.leo))
        for offset, value in read_values(found.records):
            if self.read.setdefault(offset, value) != value and not self.unclean:
                raise Violation(self.explain(f"29: offset {offset} was read as {self.read[offset]} and as {value}"))

    def _latest(self) -> None:
        """32: what a leader says is the latest offset never goes back, within its epoch and across epochs."""
        for node in self._hosting():
            partition = node.partition()
            if partition.leader is None:
                continue
            found = node.manager.list_offset(TP, None, -1, current_leader_epoch=None, read_committed=False)
            if found.error is ErrorCode.NONE and not self.unclean:
                epoch = partition.leader_epoch
                before = max((offset for known, offset in self.latest.items() if known <= epoch), default=0)
                if found.offset < before:
                    raise Violation(self.explain(f"32: {node.id} says {found.offset}, {before} was known"))
                self.latest[epoch] = max(found.offset, self.latest.get(epoch, 0))

    def _metadata(self) -> None:
        behind = [node for node in self._up() if node.applied < len(self.c.controller.records)]
        if behind:
            node = self.rng.choice(behind)
            end = len(self.c.controller.records)
            # A broker's first image contains its own registration (BL-07).
            first = max(node.applied, node.broker_epoch) + 1
            node.catch_up(end if self.rng.random() < 0.7 else self.rng.randint(min(first, end), end))
            self.note(f"metadata to {node.id}: {node.applied} of {end}")

    def _alter(self) -> None:
        choices = [node for node in self._up() if node.id not in self.altering]
        if not choices:
            return
        node = self.rng.choice(choices)
        request = node.alter_request()
        if request is None:
            return
        born = self.incarnation[node.id]
        self.altering.add(node.id)

        def finish(response: Any) -> None:
            if self.incarnation[node.id] == born and node.up:
                self.altering.discard(node.id)
                node.take_alter(response)

        def arrive() -> None:
            try:
                response = self.c.controller.alter_partition(request)
            except ApiError:
                finish(None)
                return
            self._send(
                "C", node.id, f"Altered {response.partitions[0].error.name}", lambda: finish(response), lambda: finish(None)
            )

        item = request.partitions[0]
        isr = [int(member.broker_id) for member in item.new_isr]
        self._send(node.id, "C", f"Alter isr={isr} epoch={item.partition_epoch}", arrive, lambda: finish(None))

    def _time(self) -> None:
        self.c.clock.advance(self.rng.choice((10, 200, 2_000, 6_000)))
        for broker_id, due in sorted(self.expires.items()):
            if self.c.clock.now_ms() >= due:
                del self.expires[broker_id]
                if not self.c.nodes[broker_id].up or self._isolated(broker_id):
                    self.note(f"fence {broker_id}")
                    self.c.controller.set_fenced(broker_id, True)
        for node in self._up():
            if self.rng.random() < 0.7:
                self.c.check_isrs(node)

    def _isolated(self, broker_id: NodeId) -> bool:
        return (str(broker_id), "C") in self.cut

    def _cut(self) -> None:
        a, b = self.rng.sample(["1", "2", "3", "C"], 2)
        self.cut.add((a, b))
        if self.rng.random() < 0.7:
            self.cut.add((b, a))
        self.note(f"cut {a} {b}")
        for name in (a, b):
            if "C" in (a, b) and name != "C" and (name, "C") in self.cut:
                self.expires[NodeId(int(name))] = self.c.clock.now_ms() + 9_000

    def _heal(self) -> None:
        if self.cut:
            self.note("heal")
            self.cut.clear()

    def _crash(self) -> None:
        """A crash may lose the page cache only where the ISR survives without it: RP-45 says what happens otherwise."""
        if len(self._up()) < 2:
            return
        node = self.rng.choice(self._up())
        isr = self.c.controller.registration().isr
        survives = self.unclean or any(member != node.id and self.c.nodes[member].up for member in isr)
        loses = survives and self.rng.random() < 0.5
        self.note(f"crash {node.id}{' loses page cache' if loses else ''}")
        node.crash(self.rng, lose_page_cache=loses)
        self.altering.discard(node.id)
        self.incarnation[node.id] += 1
        if loses:
            self.c.controller.set_fenced(node.id, True)
        else:
            self.expires[node.id] = self.c.clock.now_ms() + 9_000

    def _restart(self) -> None:
        down = [node for node in self.c.nodes.values() if not node.up]
        if down:
            node = self.rng.choice(down)
            self.note(f"restart {node.id}")
            node.boot()
            node.broker_epoch = self.c.controller.register(node.id, fenced=True)

    def _unfence(self) -> None:
        """A broker may serve once it has caught up with its own registration (BL-07)."""
        for node in self._up():
            broker = self.c.controller.image.cluster.brokers[node.id]
            ready = broker.broker_epoch == node.broker_epoch and node.applied > node.broker_epoch
            if broker.fenced and ready and not self._isolated(node.id) and self.rng.random() < 0.5:
                self.note(f"unfence {node.id}")
                self.c.controller.set_fenced(node.id, False)

    def _checkpoint(self) -> None:
        for node in self._up():
            node.manager._write_hws()

    def _flush(self) -> None:
        for node in self._hosting():
            if self.rng.random() < 0.5:
                node.log().flush_sync()

    def _elect(self) -> None:
        state = self.c.controller.registration()
        choices = [member for member in state.isr if member != state.leader and self.c.controller.live(member)]
        if choices and state.leader is not None:
            leader = self.rng.choice(choices)
            self.note(f"elect {leader}")
            self.c.controller.elect(leader)

    def _reassign(self) -> None:
        """Remove a follower and add it again; both may reach a broker in one metadata update (RP-21)."""
        state = self.c.controller.registration()
        victims = [r for r in state.replicas if r != state.leader and any(m != r for m in state.isr)]
        if state.leader is None or not victims:
            return
        out = self.rng.choice(victims)
        kept = tuple(r for r in state.replicas if r != out)
        isr = tuple(member for member in state.isr if member != out)
        self.note(f"remove and add {out}")
        self.c.controller.write(PartitionChangeRecord(topic_id=TOPIC_ID, partition=0, replicas=kept, isr=isr))
        self.c.controller.write(PartitionChangeRecord(topic_id=TOPIC_ID, partition=0, replicas=state.replicas))

    # --- invariants ---------------------------------------------------------------------------------------------------

    def _commit(self, offset: int, value: str, how: str) -> None:
        if self.committed.setdefault(offset, value) != value and not self.unclean:
            raise Violation(self.explain(f"30: offset {offset} was {self.committed[offset]}, now {how} as {value}"))

    def values(self, node: Node) -> list[tuple[int, str]]:
        log = node.log()
        key = (log, log.leo, log.log_start_offset, log.epoch_entries)
        found = self._cache.get(node.id)
        if found is None or found[0] != key:
            found = self._cache[node.id] = (key, log_values(log))
        return found[1]

    def check(self) -> None:
        state = self.c.controller.registration()
        hosts = self._hosting()
        for node in hosts:
            self._check_replica(node)
        if self.unclean:
            return
        for node in hosts:
            partition, log = node.partition(), node.log()
            if partition.leader is not None:
                for offset, value in self.values(node)[max(0, self.hws_seen(node)) : log.hw]:
                    self._commit(offset, value, f"below the HW of {node.id}")
        for node in hosts:
            # A replica that has not yet opened its log again, or was told to delete it, is not "running".
            if node.id in state.isr and node.partition().leader_epoch >= 0:
                self._check_complete(node)
        self._check_isr(state)
        self._check_matching(hosts)

    def hws_seen(self, node: Node) -> int:
        return 0 if len(self.committed) < node.log().hw else node.log().hw

    def _check_replica(self, node: Node) -> None:
        partition, log = node.partition(), node.log()
        if not log.log_start_offset <= log.hw <= log.leo:
            raise Violation(self.explain(f"{node.id}: log start {log.log_start_offset}, HW {log.hw}, LEO {log.leo}"))
        offsets = [offset for offset, _ in self.values(node)]
        if offsets != list(range(log.log_start_offset, log.leo)):
            raise Violation(self.explain(f"28: {node.id} is not dense: {offsets}, LEO {log.leo}"))
        source = node.manager.fetched_from(TP)
        expected = None if partition.leader is not None else partition.leader_id
        if source != expected:
            raise Violation(self.explain(f"31: {node.id} fetches from {source}, should from {expected}"))
        if source is not None and sum(TP in core for core in node.fetchers().values()) != 1:
            raise Violation(self.explain(f"31: {node.id} has the partition in several fetchers"))
        if partition.leader is not None:
            key = (node.id, self.incarnation[node.id], partition.leader_epoch)
            if log.hw < self.hws.get(key, 0):
                raise Violation(self.explain(f"{node.id}: the leader's HW went back to {log.hw}"))
            self.hws[key] = log.hw

    def _check_complete(self, node: Node) -> None:
        """24, 25: a leader or a candidate has all that is committed."""
        have = self.values(node)
        start = node.log().log_start_offset
        if len(self.committed) > len(have) + start:
            missing = sorted(offset for offset in self.committed if offset >= node.log().leo)
            raise Violation(self.explain(f"25: {node.id} is in the ISR and lacks {missing[:5]}, LEO {node.log().leo}"))
        for offset, value in have:
            if self.committed.get(offset, value) != value:
                raise Violation(
                    self.explain(f"25: {node.id} is in the ISR, {offset} is {value}, committed {self.committed[offset]}")
                )

    def _check_isr(self, state: Any) -> None:
        """26: what the HW waits for contains everyone who may be elected."""
        for node in self._hosting():
            partition = node.partition()
            leader = partition.leader
            if leader is None or partition.leader_epoch != state.leader_epoch:
                continue
            if not set(state.isr) <= set(leader.isr.maximal):
                raise Violation(self.explain(f"26: ISR {state.isr}, maximal ISR of {node.id} {leader.isr.maximal}"))
            settled = leader.isr.pending is None and partition.partition_epoch == state.partition_epoch
            if settled and set(leader.isr.maximal) != set(state.isr):
                raise Violation(self.explain(f"26: nothing pending, but {leader.isr.maximal} is not {state.isr}"))

    def _check_matching(self, hosts: list[Node]) -> None:
        """28: below the smaller HW all replicas are the same."""
        for a, b in pairwise(hosts):
            bound = min(a.log().hw, b.log().hw)
            start = max(a.log().log_start_offset, b.log().log_start_offset)
            left = self.values(a)[start - a.log().log_start_offset : bound - a.log().log_start_offset]
            right = self.values(b)[start - b.log().log_start_offset : bound - b.log().log_start_offset]
            if left != right:
                raise Violation(self.explain(f"28: {a.id} and {b.id} differ below {bound}: {left} {right}"))

    # --- liveness -----------------------------------------------------------------------------------------------------

    def converge(self) -> None:
        """33: without faults everyone is in the ISR, all logs are the same and committed, and every write has its verdict."""
        self.note("converge")
        self.cut.clear()
        self.expires.clear()
        for node in self.c.nodes.values():
            if not node.up:
                node.boot()
                node.broker_epoch = self.c.controller.register(node.id, fenced=True)
        for _ in range(400):
            while self.network:
                self._deliver()
                self.check()
            for node in self._up():
                node.catch_up()
                broker = self.c.controller.image.cluster.brokers[node.id]
                if broker.fenced:
                    self.c.controller.set_fenced(node.id, False)
            self.c.publish()
            for _ in range(8):
                self._fetch()
                self._alter()
            self.c.clock.advance(500)
            self.check()
            if self._converged():
                break
        else:
            raise Violation(self.explain(f"33: not converged: {self.describe()}"))
        self.c.clock.advance(40_000)
        open_writes = [write.value for write in self.writes if write.result is None and not self._died(write)]
        if open_writes:
            raise Violation(self.explain(f"33: no verdict for {open_writes}"))

    def _died(self, write: Write) -> bool:
        """Its broker crashed: the client lost its connection, which is a verdict, too."""
        return any(count for count in self.incarnation.values())

    def _converged(self) -> bool:
        state = self.c.controller.registration()
        logs = [self.values(node) for node in self._hosting()]
        return (
            set(state.isr) == set(state.replicas)
            and len(logs) == 3
            and all(log == logs[0] for log in logs)
            and all(node.log().hw == node.log().leo for node in self._hosting())
        )

    def describe(self) -> str:
        state = self.c.controller.registration()
        nodes = ", ".join(f"{node.id}: leo {node.log().leo} hw {node.log().hw}" for node in self._hosting())
        return f"isr {state.isr} leader {state.leader} epoch {state.leader_epoch}; {nodes}"
