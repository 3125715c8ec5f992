"""Requests of transactions that both clusters are sent: each API in each version, in each state, from whoever is right or wrong.

A case is a request in a version, from a producer that has the identity of the transactional id or another one, while the id is in
some state. What is compared is the answer, and the state and epoch in which it leaves the id. Nothing is asked while an outcome
is still being carried out: what is said then depends on who is faster.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from tests.clients.compare_sides import Side
from tests.clients.orders import batch

PRODUCE, FETCH, OFFSETS, FIND, INIT, ADD, ADD_OFFSETS, END, MARKERS, COMMIT = 0, 1, 2, 10, 22, 24, 25, 26, 27, 28
PRODUCERS, DESCRIBE, LIST = 61, 65, 66
LONG_MS: Final = 900_000
"""As long as a transaction may take: none of these times out by itself."""
PATIENCE_S: Final = 60
_FLAGS: Final = {"allow_auto_topic_creation": False, "include_topic_authorized_operations": False}
TOPIC: Final = "in-transactions"
GROUP: Final = "group-in-transactions"


class Who(NamedTuple):
    """A transactional id, and what a producer says of itself."""

    name: str
    producer_id: int
    epoch: int

    def values(self) -> dict[str, Any]:
        return {"transactional_id": self.name, "producer_id": self.producer_id, "producer_epoch": self.epoch}


RELATIONS: Final[Mapping[str, Callable[[Who], Who]]] = {
    "of the epoch before": lambda who: who._replace(epoch=who.epoch - 1),
    "of the epoch after": lambda who: who._replace(epoch=who.epoch + 1),
    "of another producer": lambda who: who._replace(producer_id=who.producer_id + 1_000_000),
    "of an unknown name": lambda who: who._replace(name="nobody"),
    "of no name": lambda who: who._replace(name=""),
}


def codes(answer: Any) -> list[Any]:
    """All error codes of an answer, in its order, whatever is around them."""
    if isinstance(answer, dict):
        if answer.get("closed"):
            return ["closed"]
        here = [value for name, value in answer.items() if name.endswith("error_code")]
        return here + [code for value in answer.values() for code in codes(value)]
    if isinstance(answer, list):
        return [code for it in answer for code in codes(it)]
    return []


class Talk:
    """With one side: a transactional id's requests go to its coordinator, a group's to that of the group."""

    def __init__(self, side: Side) -> None:
        self.side = side
        self.leader = side.leader(TOPIC)
        self.coordinator = self.found("any", 1)
        self.of_group = self.found(GROUP, 0)
        self._names = 0

    def found(self, key: str, kind: int) -> int:
        """Waits for one: whoever asks first has the internal topic made."""
        deadline = time.monotonic() + PATIENCE_S
        while True:
            (found,) = self.side.call(FIND, 6, {"key_type": kind, "coordinator_keys": (key,)})["coordinators"]
            if found["error_code"] == "none":
                return int(found["node_id"])
            assert time.monotonic() < deadline, f"{self.side.name}: {key} has no coordinator: {found}"
            time.sleep(0.1)

    def ask(self, key: int, version: int, values: Mapping[str, Any]) -> Any:
        return self.side.call(key, version, values, node=self.coordinator)

    def described(self, name: str) -> Any:
        (found,) = self.ask(DESCRIBE, 0, {"transactional_ids": (name,)})["transaction_states"]
        return found

    def settled(self, name: str) -> Any:
        """The description of an id of which nothing is under way."""
        deadline = time.monotonic() + PATIENCE_S
        while True:
            found = self.described(name)
            if not found["transaction_state"].startswith("Prepare"):
                return found
            assert time.monotonic() < deadline, f"{self.side.name}: {found}"
            time.sleep(0.005)

    def begun(self, version: int, name: str | None = None) -> Who:
        """A producer of this name, or of a new one."""
        self._names += 1
        name = name or f"id-{self._names}"
        deadline = time.monotonic() + PATIENCE_S
        while True:
            answer = self.ask(INIT, version, init_values(name))
            if answer["error_code"] == "none":
                return Who(name, answer["producer_id"], answer["producer_epoch"])
            assert time.monotonic() < deadline, f"{self.side.name}: {answer}"
            time.sleep(0.01)

    def produce(self, who: Who, version: int, *, sequence: int = 0, index: int = 0, topic: str = TOPIC) -> Any:
        records = batch(transactional=True, producer_id=who.producer_id, producer_epoch=who.epoch, base_sequence=sequence)
        topics = [{"name": topic, "partition_data": [{"index": index, "records": bytes(records)}]}]
        values = {"transactional_id": who.name, "acks": -1, "timeout": 20_000, "topic_data": topics}
        return self.side.call(PRODUCE, version, values, node=self.leader if topic == TOPIC else self.side.leader(topic))


def init_values(name: str | None, *, producer_id: int = -1, epoch: int = -1, timeout_ms: int = LONG_MS) -> dict[str, Any]:
    who = {"transactional_id": name, "producer_id": producer_id, "producer_epoch": epoch}
    return {**who, "transaction_timeout": timeout_ms}


# --- the requests

Send = Callable[[Talk, Who], Any]


@dataclass(frozen=True)
class Request:
    """`send` asks a side in the name of somebody."""

    name: str
    send: Send


def add(version: int, *, verify: bool = False, topics: Mapping[str, tuple[int, ...]] | None = None) -> Send:
    wanted = [{"name": name, "partitions": some} for name, some in (topics or {TOPIC: (0,)}).items()]

    def send(talk: Talk, who: Who) -> Any:
        if version >= 4:
            return talk.ask(ADD, version, {"transactions": [{**who.values(), "verify_only": verify, "topics": wanted}]})
        old = {f"v3_and_below_{key}": value for key, value in who.values().items()}
        return talk.ask(ADD, version, {**old, "v3_and_below_topics": wanted})

    return send


def offset_commit(version: int, **more: Any) -> Send:
    partition = {"partition_index": 0, "committed_offset": 5, "committed_leader_epoch": -1, "committed_metadata": ""}
    topics = [{"name": more.pop("topic", TOPIC), "partitions": [partition | more.pop("partition", {})]}]
    member = {"group_id": GROUP, "generation_id": -1, "member_id": "", "group_instance_id": None, **more}

    def send(talk: Talk, who: Who) -> Any:
        return talk.side.call(COMMIT, version, {**who.values(), **member, "topics": topics}, node=talk.of_group)

    return send


def _asked(key: int, version: int, **more: Any) -> Send:
    """What is asked with nothing but the identity and `more`."""
    return lambda talk, who: talk.ask(key, version, {**who.values(), **more})


def _produced(version: int) -> Send:
    return lambda talk, who: talk.produce(who, version)


def _go_on(version: int) -> Send:
    return lambda talk, who: talk.ask(INIT, version, init_values(who.name, producer_id=who.producer_id, epoch=who.epoch))


def _afresh(version: int) -> Send:
    return lambda talk, who: talk.ask(INIT, version, init_values(who.name))


def requests() -> Iterator[Request]:
    """In an order in which one does not spoil the state for the next when it is refused."""
    for version in range(6):
        yield Request(f"AddPartitionsToTxn v{version}", add(version))
    for version in (4, 5):
        yield Request(f"AddPartitionsToTxn v{version} to verify", add(version, verify=True))
    for version in range(5):
        yield Request(f"AddOffsetsToTxn v{version}", _asked(ADD_OFFSETS, version, group_id=GROUP))
    for version in range(6):
        yield Request(f"TxnOffsetCommit v{version}", offset_commit(version))
    for version in (9, 11, 12):
        yield Request(f"Produce v{version}", _produced(version))
    for version in range(6):
        yield Request(f"EndTxn v{version} to commit", _asked(END, version, committed=True))
        yield Request(f"EndTxn v{version} to abort", _asked(END, version, committed=False))
    for version in (3, 4, 5):
        yield Request(f"InitProducerId v{version} to go on", _go_on(version))
    for version in range(6):
        yield Request(f"InitProducerId v{version} afresh", _afresh(version))


# --- the states


def _empty(talk: Talk, new: bool) -> Who:
    return talk.begun(5 if new else 4)


def ongoing(talk: Talk, new: bool) -> Who:
    who = _empty(talk, new)
    answer = talk.produce(who, 12) if new else add(3)(talk, who)
    assert set(codes(answer)) <= {"none"}, (talk.side.name, answer)
    return who


def _ended(commit: bool) -> Callable[[Talk, bool], Who]:
    def prepare(talk: Talk, new: bool) -> Who:
        who = ongoing(talk, new)
        answer = talk.ask(END, 5 if new else 4, {**who.values(), "committed": commit})
        assert answer["error_code"] == "none", (talk.side.name, answer)
        talk.settled(who.name)
        return who._replace(producer_id=answer["producer_id"], epoch=answer["producer_epoch"]) if new else who

    return prepare


def _fenced(talk: Talk, new: bool) -> Who:
    """Its transaction was aborted, because another instance has come."""
    who = ongoing(talk, new)
    return talk.begun(5 if new else 4, who.name)


STATES: Final[Mapping[str, Callable[[Talk, bool], Who]]] = {
    "empty": _empty,
    "ongoing": ongoing,
    "committed": _ended(True),
    "aborted": _ended(False),
    "taken over": _fenced,
}


def told_of(talk: Talk, who: Who, answer: Any) -> Any:
    """The codes of the answer; what it says of the identity; how the id is then. Identities are told as those of `who`; how many
    others were given out since is chance: a request that is sent again takes another one."""
    told = [codes(answer)]
    if "producer_epoch" in answer:
        given = answer["producer_id"]
        told.append(["none" if given < 0 else "the same" if given == who.producer_id else "another"])
        told.append([answer["producer_epoch"] - who.epoch if answer["producer_epoch"] >= 0 else None])
    after = talk.settled(who.name)
    partitions = [[it["topic"], it["partitions"]] for it in after["topics"]]
    return [*told, after["transaction_state"], after["producer_epoch"] - who.epoch, sorted(partitions)]


def cases(side: Side) -> Any:
    """Each request in each state: from the right producer on an id of its own, from wrong ones on one that they share."""
    prepared(side)
    talk = Talk(side)
    told: dict[str, Any] = {}
    for new in (False, True):
        clients = "new clients" if new else "old clients"
        for state, prepare in STATES.items():
            for relation, as_seen in RELATIONS.items():
                shared = prepare(talk, new)
                for request in requests():
                    if "afresh" in request.name:
                        continue  # it says nothing of who asks
                    answer = request.send(talk, as_seen(shared))
                    told[f"{clients}, {state}, {relation}: {request.name}"] = told_of(talk, shared, answer)
            for request in requests():
                who = prepare(talk, new)
                told[f"{clients}, {state}: {request.name}"] = told_of(talk, who, request.send(talk, who))
    return told


def prepared(side: Side) -> None:
    """The topic, which all stories share, and the coordinators."""
    known = side.call(3, 12, {**_FLAGS, "topics": [{"topic_id": None, "name": TOPIC}]})["topics"][0]
    if known["error_code"] != "none":
        side.create(TOPIC, [[1, 2, 3], [1, 2, 3]])
    deadline = time.monotonic() + PATIENCE_S
    talk = Talk(side)
    while _group_answers(talk) != "none":
        assert time.monotonic() < deadline, f"{side.name}: the group's coordinator does not answer"
        time.sleep(0.1)


def _group_answers(talk: Talk) -> Any:
    values = {"groups": (GROUP,), "include_authorized_operations": False}
    return talk.side.call(15, 5, values, node=talk.of_group)["groups"][0]["error_code"]
