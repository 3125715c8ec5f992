"""Whatever producers do, whatever becomes of appends and markers, and whenever the coordinator fails: what must hold of
transactional ids. Source: TX-05, TX-06, TX-08, TX-20, TX-47, TX-50, TX-55, TX-60; KIP-98, KIP-890."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import hypothesis.strategies as st
from hypothesis import Phase, settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule, run_state_machine_as_test

from kraftlite.coordinator.transactions.events import Fenced, Marked
from kraftlite.coordinator.transactions.records import encode_value
from kraftlite.coordinator.transactions.states import LAST_EPOCH, PREPARED, Transaction, TransactionState
from kraftlite.model.errors import ErrorCode
from kraftlite.model.producer import Producer
from kraftlite.model.topic_partition import TopicPartition
from tests.harness.transaction_world import TransactionWorld, obeys_the_order

S = TransactionState
TPS = [TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("b", 0)]
NAMES = ("t", "u")
TIMEOUT_MS = 30_000
REFUSALS = (ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.UNKNOWN_SERVER_ERROR, ErrorCode.NOT_LEADER_OR_FOLLOWER)
IN_DOUBT = (ErrorCode.REQUEST_TIMED_OUT, ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND)

names = st.sampled_from(NAMES)
some = st.integers(0, 1_000)
partitions = st.sets(st.sampled_from(TPS), min_size=1)


class Ids(RuleBasedStateMachine):
    """Producers that are new, known, and zombies; one coordinator after the other."""

    def __init__(self) -> None:
        super().__init__()
        self.world = TransactionWorld()
        self.given: dict[str, list[Producer]] = {name: [] for name in NAMES}
        """What clients have ever been told to produce with, in the order of the answers."""
        self.inits: dict[int, str] = {}
        self.ends: dict[int, tuple[str, Producer, bool]] = {}
        self.adds: dict[int, tuple[str, Producer]] = {}
        self.first_given: set[Producer] = set()
        self.owners: dict[int, str] = {}
        self.decided: dict[tuple[str, Producer, int], bool] = {}
        self.decided_by: dict[Producer, bool] = {}
        """Outcomes by what ended them, where each transaction has an epoch of its own."""
        self.looked_at = 0

    @initialize(version=st.sampled_from((0, 1, 2)), used_up=st.booleans())
    def begin(self, version: int, used_up: bool) -> None:
        self.world = TransactionWorld(
            version=version,
            expiration_ms=300_000,
            timeouts_interval_ms=10_000,
            expiry_interval_ms=100_000,
        )
        if used_up:
            near = Producer(7, LAST_EPOCH - 1)
            state = Transaction(
                producer_id=near.producer_id,
                producer_epoch=near.producer_epoch,
                timeout_ms=TIMEOUT_MS,
                state=S.EMPTY,
                updated_ms=self.world.wall_ms,
            )
            self.world.load("t", state)
            self.given["t"].append(near)
            self.owners[near.producer_id] = "t"

    # --- clients

    @rule(name=names)
    def init(self, name: str) -> None:
        self.inits[self.world.init(name, timeout_ms=TIMEOUT_MS)] = name

    @rule(name=names, which=some)
    def go_on(self, name: str, which: int) -> None:
        """KIP-360: with what it has, which may be old."""
        if self.given[name]:
            self.world.init(name, timeout_ms=TIMEOUT_MS, expected=self._one_of(name, which))

    @rule(name=names, which=some, tps=partitions)
    def add(self, name: str, which: int, tps: set[TopicPartition]) -> None:
        if self.given[name]:
            producer = self._one_of(name, which)
            self.adds[self.world.add(producer, *tps, name=name)] = (name, producer)

    @rule(name=names, which=some, commit=st.booleans())
    def end(self, name: str, which: int, commit: bool) -> None:
        if self.given[name]:
            producer = self._one_of(name, which)
            self.ends[self.world.end(producer, commit=commit, name=name)] = (name, producer, commit)

    def _one_of(self, name: str, which: int) -> Producer:
        """Mostly the newest, sometimes an older one."""
        given = self.given[name]
        return given[-1] if which % 4 else given[(which // 4) % len(given)]

    @rule(name=names, tps=partitions, which=some)
    def produce(self, name: str, tps: set[TopicPartition], which: int) -> None:
        """What producers do most: all that is needed for an open transaction, or for its end."""
        if not self.given[name] or not which % 5:
            self.init(name)
            self.world.commit()
            self._look_at_answers()
        if self.given[name]:
            producer = self.given[name][-1]
            self.adds[self.world.add(producer, *tps, name=name)] = (name, producer)
            self.world.commit()
            if which % 3:
                self.ends[self.world.end(producer, commit=bool(which % 2), name=name)] = (name, producer, bool(which % 2))
            if which % 7 > 1:
                self.world.commit()

    # --- the log and its leaders

    @rule(count=st.integers(1, 4))
    def commit(self, count: int) -> None:
        self.world.commit(count)

    @rule(error=st.sampled_from((None, *REFUSALS)), once=st.sampled_from((True, True, True, False)))
    def refuse(self, error: ErrorCode | None, once: bool) -> None:
        """One append, or all until it is over."""
        self.world.refuse_once = once
        self.world.refuse = error

    @precondition(lambda self: self.world.waiting)
    @rule(which=some, error=st.sampled_from(IN_DOUBT))
    def time_out(self, which: int, error: ErrorCode) -> None:
        self.world.time_out(which % self.world.waiting, error)

    @rule(more=st.integers(0, 3))
    def fail_over(self, more: int) -> None:
        world = self.world
        world.fail_over(min(world.hw + more, len(world.log)))

    # --- markers and time

    @precondition(lambda self: self.world.under_way())
    @rule(which=some, answered=st.booleans())
    def deliver(self, which: int, answered: bool) -> None:
        """Late ones of older coordinators, too; what is not answered is sent again."""
        found = self.world.under_way()
        self.world.deliver(*found[which % len(found)], answered=answered)

    @precondition(lambda self: self.world.sent)
    @rule(which=some, fenced=st.booleans())
    def answer_again(self, which: int, fenced: bool) -> None:
        """An answer comes late: its transaction has gone on without it."""
        sent = self.world.sent[-1 - which % len(self.world.sent)]
        mark = sent.mark
        if sent.shard is not self.world.shard or sent.left:
            return
        name, attempt, tps = mark.transactional_id, mark.attempt, frozenset(mark.partitions)
        late = Marked(transactional_id=name, attempt=attempt, partitions=tps)
        self.world.step(Fenced(transactional_id=name, attempt=attempt) if fenced else late)

    @rule(ms=st.sampled_from((50, 500, 10_000, 40_000, 400_000)))
    def pass_time(self, ms: int) -> None:
        self.world.pass_time(ms)

    # --- what must hold

    @invariant()
    def nothing_is_broken(self) -> None:
        self.world.shard.check()
        self._look_at_answers()
        for name in NAMES:
            obeys_the_order(self.world.states(name))
        self._look_at_markers()

    def _look_at_answers(self) -> None:
        for request_id, name in list(self.inits.items()):
            answer = self._taken(self.inits, request_id)
            if isinstance(answer, Producer):
                assert answer not in self.first_given, "two clients were given the same"
                assert answer.producer_epoch <= LAST_EPOCH, "an epoch for fencing was given out"
                self.first_given.add(answer)
                assert self.owners.setdefault(answer.producer_id, name) == name, "two ids share a producer id"
                self.given[name].append(answer)
        for request_id, (_, producer) in list(self.adds.items()):
            answer = self._taken(self.adds, request_id)
            assert not isinstance(answer, Producer) or answer == producer
        for request_id, (name, producer, commit) in list(self.ends.items()):
            answer = self._taken(self.ends, request_id)
            if isinstance(answer, Producer):
                self._ended(name, producer, commit, answer)

    def _taken(self, asked: dict[int, Any], request_id: int) -> Any:
        if request_id not in self.world.answers:
            return None
        del asked[request_id]
        return self.world.answer(request_id)

    def _ended(self, name: str, producer: Producer, commit: bool, answer: Producer) -> None:
        if self.world.version < 2:
            assert answer == producer
            return
        assert answer.producer_epoch <= LAST_EPOCH
        assert answer == Producer(producer.producer_id, producer.producer_epoch + 1) or answer.producer_epoch == 0
        assert self.owners.setdefault(answer.producer_id, name) == name
        assert self.decided_by.setdefault(producer, commit) == commit, "an outcome has flipped"
        if answer not in self.given[name]:
            self.given[name].append(answer)
            self.first_given.add(answer)

    def _look_at_markers(self) -> None:
        """The outcome of a transaction is its Prepare record, and no marker says another."""
        for sent in self.world.sent[self.looked_at :]:
            mark = sent.mark
            position, prepared = self._prepared(mark.transactional_id, mark.producer)
            assert (prepared.state is S.PREPARE_COMMIT) == mark.commit
            assert set(mark.partitions) == prepared.partitions
            assert position < self.world.hw, "markers before the outcome is below the high watermark"
            key = (mark.transactional_id, mark.producer, prepared.start_ms)
            assert self.decided.setdefault(key, mark.commit) == mark.commit, "an outcome has flipped"
        self.looked_at = len(self.world.sent)
        self._look_at_ends()

    def _prepared(self, name: str, producer: Producer) -> tuple[int, Transaction]:
        """The last outcome of an id in the log, and where it is."""
        for position in range(len(self.world.log) - 1, -1, -1):
            for key, state in self.world.log[position].states():
                if key != name or state is None or state.state not in PREPARED:
                    continue
                if Producer(state.producer_id, state.producer_epoch) == producer:
                    return position, state
        raise AssertionError(f"markers of {producer} without an outcome in the log")

    def _look_at_ends(self) -> None:
        """TX-50: Complete is written only behind the markers of all partitions."""
        for name in NAMES:
            states = self.world.states(name)
            for before, after in pairwise(states):
                if before is None or after is None or before.state not in PREPARED or after.state in PREPARED:
                    continue
                for tp in before.partitions:
                    told = [(m.epoch, m.commit) for at, pid, m in self.world.history if (at, pid) == (tp, before.producer_id)]
                    assert (before.producer_epoch, before.state is S.PREPARE_COMMIT) in told, f"{tp} has no marker"

    def teardown(self) -> None:
        """At rest nothing is pending or decided and not carried out, and the memory is what a reload gives."""
        world = self.world
        world.settle()
        world.shard.check()
        stopped = {name for name, it in world.shard._marking.items() if it.stopped}
        for name, entry in world.shard.by_id.items():
            resting = entry.pending is None and entry.current.state not in PREPARED
            assert resting or name in stopped, f"{name} is {entry.current.state.title}"
        assert set(range(1, world.asked + 1)) == world.answers.keys(), "requests without an answer"
        fenced = {name for name, entry in world.shard.by_id.items() if entry.fence_failed}
        memory = self._written()
        world.fail_over()
        for name, value in self._written().items():
            assert value == memory[name] or name in fenced, f"{name} is not what its record says"
        world.settle()
        assert all(entry.current.state not in PREPARED for entry in world.shard.by_id.values())

    def _written(self) -> dict[str, bytes]:
        """What is known of each id, as a record would say it: of those that a record says anything of."""
        world = self.world
        return {
            name: encode_value(entry.current, transaction_version=world.version)
            for name, entry in world.shard.by_id.items()
            if world.states(name)
        }


def test_tx_47_whatever_happens_an_outcome_never_changes() -> None:
    """TX-05, TX-06, TX-08, TX-20, TX-50, TX-55, TX-60."""
    enough = settings(
        max_examples=120,
        stateful_step_count=50,
        derandomize=True,
        database=None,
        phases=(Phase.explicit, Phase.generate),
    )
    run_state_machine_as_test(Ids, settings=enough)
