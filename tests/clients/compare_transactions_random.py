"""Requests of transactions in any order: both clusters are asked the same walks, which are drawn from a seed.

A walk has one transactional id, and every identity that anybody was ever given for it. Each step is a request in some version, in
the name of one of them or of nobody's: old and new clients are mixed within one transaction, ends are asked twice, offsets are
committed for groups that were never added, and strangers write markers. What is told of a step is its answer, and how the id is
when nothing of it is under way any more.
"""

from __future__ import annotations

import argparse
import random
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from tests.clients.compare_sides import Side, both
from tests.clients.compare_transactions import (
    ADD_OFFSETS,
    COMMIT,
    END,
    FETCH,
    INIT,
    MARKERS,
    OFFSETS,
    PRODUCE,
    Talk,
    Who,
    add,
    codes,
    init_values,
    prepared,
)
from tests.clients.orders import batch
from tests.harness.local import wait_for

FETCH_OFFSETS: Final = 9
WALKS: Final = 60
STEPS: Final = 18
STRANGER: Final = 1_000_000
"""Further than any producer id is from another one of a run."""


@dataclass
class Walk:
    """What one side has said so far, about a transactional id, a topic and a group of one name. `given`: identities, in their
    order; at first nobody has any. `new`: batches are those of new clients: a guard that a refusal leaves behind, with the rules
    of its time, is Kafka's alone. `producers`: in the order in which they came up. `sequences`: the next of each identity."""

    talk: Talk
    name: str
    new: bool
    rng: random.Random
    given: list[Who] = field(default_factory=list)
    producers: list[int] = field(default_factory=list)
    sequences: dict[tuple[int, int, int], int] = field(default_factory=dict)

    def who(self) -> Who:
        """Mostly the newest; now and then one before it, or nobody's."""
        rng, known = self.rng, self.given
        draw, older, part = rng.random(), rng.randrange(1 << 16), rng.randrange(5)
        if not known:
            return Who(self.name, 5, 0)
        if draw < 0.68:
            return known[-1]
        if draw < 0.84:
            return known[older % len(known)]
        newest = known[-1]
        return (
            newest._replace(epoch=newest.epoch + 1),
            newest._replace(epoch=newest.epoch - 1),
            newest._replace(producer_id=newest.producer_id + STRANGER),
            newest._replace(name=f"{self.name}-nobody"),
            newest._replace(epoch=newest.epoch + 2),
        )[part]

    def was_given(self, answer: Mapping[str, Any]) -> None:
        if answer.get("error_code") == "none" and answer.get("producer_epoch", -1) >= 0:
            who = Who(self.name, answer["producer_id"], answer["producer_epoch"])
            if who not in self.given[-1:]:
                self.given.append(who)

    def letter(self, producer_id: int) -> Any:
        """The same for the same producer on both sides."""
        if producer_id not in self.producers:
            self.producers.append(producer_id)
        return self.producers.index(producer_id)


Step = Callable[[Walk], tuple[str, Any]]


def _init(walk: Walk) -> tuple[str, Any]:
    version, has = walk.rng.randrange(6), walk.rng.random() < 0.5
    who = walk.who()
    expected = {"producer_id": who.producer_id, "epoch": who.epoch} if has and version >= 3 else {}
    answer = walk.talk.ask(INIT, version, init_values(walk.name, **expected))
    return f"InitProducerId v{version}{' with an identity' if expected else ''}", answer


def _add(walk: Walk) -> tuple[str, Any]:
    version, verify, index = walk.rng.randrange(6), walk.rng.random() < 0.4, walk.rng.randrange(2)
    verify = verify and version >= 4
    answer = add(version, verify=verify, topics={walk.name: (index,)})(walk.talk, walk.who())
    return f"AddPartitionsToTxn v{version}{' to verify' if verify else ''}, {index}", answer


def _add_offsets(walk: Walk) -> tuple[str, Any]:
    version = walk.rng.randrange(5)
    return f"AddOffsetsToTxn v{version}", walk.talk.ask(ADD_OFFSETS, version, {**walk.who().values(), "group_id": walk.name})


def _commit_offset(walk: Walk) -> tuple[str, Any]:
    version, offset = walk.rng.randrange(6), walk.rng.randrange(1000)
    partition = {"partition_index": 0, "committed_offset": offset, "committed_leader_epoch": -1, "committed_metadata": ""}
    values = {"group_id": walk.name, "generation_id": -1, "member_id": "", "group_instance_id": None}
    values |= {**walk.who().values(), "topics": [{"name": walk.name, "partitions": [partition]}]}
    return f"TxnOffsetCommit v{version}", walk.talk.side.call(COMMIT, version, values, node=walk.talk.of_group)


def _produce(walk: Walk) -> tuple[str, Any]:
    version, index, skip = (
        12 if walk.new else walk.rng.choice((9, 11)),
        walk.rng.randrange(2),
        walk.rng.choice((0, 0, 0, 0, 1, -1)),
    )
    who = walk.who()
    at = (who.producer_id, who.epoch, index)
    sequence = max(0, walk.sequences.get(at, 0) + skip)
    return produced(walk, who, version, index, sequence)


def produced(walk: Walk, who: Who, version: int, index: int, sequence: int) -> tuple[str, Any]:
    at = (who.producer_id, who.epoch, index)
    records = batch(transactional=True, producer_id=who.producer_id, producer_epoch=who.epoch, base_sequence=sequence)
    topics = [{"name": walk.name, "partition_data": [{"index": index, "records": bytes(records)}]}]
    values = {"transactional_id": who.name, "acks": -1, "timeout": 20_000, "topic_data": topics}
    answer = walk.talk.side.call(PRODUCE, version, values, node=walk.talk.leader)
    if set(codes(answer)) == {"none"}:
        walk.sequences[at] = max(walk.sequences.get(at, 0), sequence + 1)
    return f"Produce v{version}, {index}, sequence {sequence}", answer


def _end(walk: Walk) -> tuple[str, Any]:
    version, commit = walk.rng.randrange(6), walk.rng.random() < 0.6
    answer = walk.talk.ask(END, version, {**walk.who().values(), "committed": commit})
    return f"EndTxn v{version} to {'commit' if commit else 'abort'}", answer


def _mark(walk: Walk) -> tuple[str, Any]:
    """By a stranger that says to be the first coordinator there ever was: anything newer would keep the real one from its work.
    Of a producer that nobody knows, by any coordinator."""
    version, index, commit, epoch = walk.rng.choice((1, 2)), walk.rng.randrange(2), walk.rng.random() < 0.3, walk.rng.randrange(4)
    foreign = walk.rng.random() < 0.3
    who = walk.given[-1] if walk.given else Who(walk.name, 5, 0)
    if foreign:
        who = who._replace(producer_id=who.producer_id + STRANGER, epoch=epoch)
    return marked(walk, who, version, index, commit=commit, coordinator=epoch if foreign else 0)


def marked(walk: Walk, who: Who, version: int, index: int, *, commit: bool, coordinator: int) -> tuple[str, Any]:
    marker = {"producer_id": who.producer_id, "producer_epoch": who.epoch, "transaction_result": commit}
    marker |= {"coordinator_epoch": coordinator, "transaction_version": 2}
    marker["topics"] = [{"name": walk.name, "partition_indexes": (index,)}]
    answer = walk.talk.side.call(MARKERS, version, {"markers": [marker]}, node=walk.talk.leader)
    return f"WriteTxnMarkers v{version}, {index}, {'commit' if commit else 'abort'}, by {coordinator}", answer


def _wait_led(talk: Talk, name: str) -> None:
    """What the metadata says of a new partition its leader may hear a little later."""
    rows = [{"partition_index": index, "current_leader_epoch": -1, "timestamp": -1} for index in range(2)]
    values = {"replica_id": -1, "isolation_level": 0, "timeout": 20_000, "topics": [{"name": name, "partitions": rows}]}
    wait_for("a leader that knows it", lambda: {*codes(talk.side.call(OFFSETS, 5, values, node=talk.leader))} == {"none"})


def _last_steps(it: Walk) -> dict[str, Any]:
    """Markers of coordinators to come, and who writes behind them. The real coordinator cannot end anything there any more."""
    told: dict[str, Any] = {}
    who = it.given[-1] if it.given else Who(it.name, 5, 0)
    for number, (epoch, version, coordinator) in enumerate(((0, 1, 7), (0, 2, 3), (1, 2, 7), (0, 1, 8), (1, 1, 6), (2, 2, 9))):
        at = who._replace(epoch=who.epoch + epoch)
        what, answer = marked(it, at, version, 0, commit=False, coordinator=coordinator)
        told[f"{STEPS} last {number} {what}, epoch +{epoch}"] = codes(answer)
        sequence = it.sequences.get((who.producer_id, who.epoch, number % 2), 0)
        what, answer = produced(it, who, 12 if it.new else 11, number % 2, sequence)
        told[f"{STEPS} last {number} {what}"] = codes(answer)
    return told


MOVES: Final[Mapping[Step, int]] = {
    _init: 3,
    _add: 4,
    _add_offsets: 2,
    _commit_offset: 3,
    _produce: 7,
    _end: 5,
    _mark: 1,
}


def walk(talk: Talk, seed: int) -> dict[str, Any]:
    """What is told of each step, and of what readers see at the end. Both sides draw the same as long as they say the same."""
    name = f"walk-{seed}"
    talk.side.create(name, [[1, 2, 3], [1, 2, 3]])
    talk.leader, talk.of_group = talk.side.leader(name), talk.found(name, 0)
    _wait_led(talk, name)
    it = Walk(talk, name, seed % 2 == 0, random.Random())
    told: dict[str, Any] = {}
    for number in range(STEPS):
        it.rng.seed(f"{seed}/{number}")  # whatever the step before has drawn
        move = _init if number == 0 else it.rng.choices([*MOVES], [*MOVES.values()])[0]
        what, answer = move(it)
        it.was_given(answer)
        told[f"{number:02} {what}"] = [codes(answer), *_identity(it, answer), *_state(it), _offset(it)]
    told |= _last_steps(it)
    for level in (0, 1):
        told[f"{STEPS} read, isolation {level}"] = [_fetched(it, level, index) for index in range(2)]
    return told


def _identity(it: Walk, answer: Any) -> list[Any]:
    if answer.get("producer_id", -1) < 0:
        return []
    return [f"{it.letter(answer['producer_id'])}:{answer['producer_epoch']}"]


def _state(it: Walk) -> list[Any]:
    found = it.talk.settled(it.name)
    if found["error_code"] != "none":
        return [found["error_code"]]
    partitions = sorted([one["topic"], sorted(one["partitions"])] for one in found["topics"])
    return [found["transaction_state"], f"{it.letter(found['producer_id'])}:{found['producer_epoch']}", partitions]


def _offset(it: Walk) -> Any:
    """The group's, and whether one is pending."""
    wanted = {"group_id": it.name, "topics": [{"name": it.name, "partition_indexes": (0,)}]}
    found = []
    for stable in (False, True):
        answer = it.talk.side.call(FETCH_OFFSETS, 7, {**wanted, "require_stable": stable}, node=it.talk.of_group)
        found += [[one["error_code"], one["committed_offset"]] for topic in answer["topics"] for one in topic["partitions"]]
    return found


def _fetched(it: Walk, level: int, index: int) -> Any:
    row = {"partition": index, "current_leader_epoch": -1, "fetch_offset": 0, "last_fetched_epoch": -1, "log_start_offset": -1}
    limits = {"replica_id": -1, "max_wait": 0, "min_bytes": 0, "max_bytes": 100_000, "isolation_level": level}
    session = {"session_id": 0, "session_epoch": -1, "forgotten_topics_data": [], "rack_id": ""}
    topics = [{"topic": it.name, "partitions": [{**row, "partition_max_bytes": 100_000}]}]
    answer = it.talk.side.call(FETCH, 12, {**limits, **session, "topics": topics}, node=it.talk.leader)
    (one,) = (one for topic in answer["responses"] for one in topic["partitions"])
    aborted = None if one["aborted_transactions"] is None else [some["first_offset"] for some in one["aborted_transactions"]]
    return [one["error_code"], one["high_watermark"], one["last_stable_offset"], aborted]


def ready(side: Side) -> Talk:
    """With a coordinator that has loaded its ids."""
    prepared(side)
    talk = Talk(side)
    talk.begun(5, "the first of all")
    return talk


def walks(side: Side) -> Any:
    """All of them."""
    talk = ready(side)
    return {f"walk {seed}": walk(talk, seed) for seed in range(1, WALKS + 1)}


STORIES: Final[Mapping[str, Callable[[Side], Any]]] = {"transactions in any order": walks}


def explained(step: str, kafka: Any, ours: Any) -> bool:
    """Known from docs/DIFFERENCES.md: a producer of version 2 that one of version 0 or 1 has replaced is fenced; and what a
    refused batch leaves behind at Kafka's leaders refuses other sequences later."""
    if "EndTxn v5" in step:
        return bool(kafka[0] == ["none"] and ours[0] == ["producer_fenced"])
    return "Produce" in step and "out_of_order_sequence_number" in f"{kafka}{ours}"


def main() -> int:
    """`python -m tests.clients.compare_transactions_random --from 1000 --walks 300`: the first difference of each walk."""
    parser = argparse.ArgumentParser(prog="python -m tests.clients.compare_transactions_random")
    parser.add_argument("--from", dest="first", type=int, default=1000)
    parser.add_argument("--walks", type=int, default=200)
    given = parser.parse_args()
    differ = 0
    with both() as sides:
        talks = [ready(side) for side in sides]
        for seed in range(given.first, given.first + given.walks):
            kafka, ours = (walk(talk, seed) for talk in talks)
            steps = [*kafka]
            for at, step in enumerate(steps):
                if kafka[step] != ours.get(step):
                    if explained(step, kafka[step], ours.get(step)):
                        break
                    differ += 1
                    print(f"walk {seed}", *(f"  {one}: {kafka[one]}" for one in steps[:at]), sep="\n")
                    print(f"  {step}: {kafka[step]} | {ours.get(step)}", flush=True)
                    break
    print(f"{differ} of {given.walks} walks differ")
    return 1 if differ else 0


if __name__ == "__main__":
    sys.exit(main())
