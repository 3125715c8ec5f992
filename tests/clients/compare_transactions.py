"""Requests of transactions that both clusters are sent: each API in each version, in each state, from whoever is right or wrong.

A case is a request in a version, from a producer that has the identity of the transactional id or another one, while the id is in
some state. What is compared is the answer, and the state and epoch in which it leaves the id. Nothing is asked while an outcome is
still being carried out: what is said then depends on who is faster.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from tests.clients.compare_sides import NODES, Side
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
            answer = self.ask(INIT, version, _init(name))
            if answer["error_code"] == "none":
                return Who(name, answer["producer_id"], answer["producer_epoch"])
            assert time.monotonic() < deadline, f"{self.side.name}: {answer}"
            time.sleep(0.01)

    def produce(self, who: Who, version: int, *, sequence: int = 0, index: int = 0) -> Any:
        records = batch(transactional=True, producer_id=who.producer_id, producer_epoch=who.epoch, base_sequence=sequence)
        topics = [{"name": TOPIC, "partition_data": [{"index": index, "records": bytes(records)}]}]
        values = {"transactional_id": who.name, "acks": -1, "timeout": 20_000, "topic_data": topics}
        return self.side.call(PRODUCE, version, values, node=self.leader)


def _init(name: str | None, *, producer_id: int = -1, epoch: int = -1, timeout_ms: int = LONG_MS) -> dict[str, Any]:
    who = {"transactional_id": name, "producer_id": producer_id, "producer_epoch": epoch}
    return {**who, "transaction_timeout": timeout_ms}


# --- the requests


@dataclass(frozen=True)
class Request:
    """`send` asks a side in the name of somebody."""

    name: str
    send: Callable[[Talk, Who], Any]


def _add(
    version: int, *, verify: bool = False, topics: Mapping[str, tuple[int, ...]] | None = None
) -> Callable[[Talk, Who], Any]:
    wanted = [{"name": name, "partitions": some} for name, some in (topics or {TOPIC: (0,)}).items()]

    def send(talk: Talk, who: Who) -> Any:
        if version >= 4:
            return talk.ask(ADD, version, {"transactions": [{**who.values(), "verify_only": verify, "topics": wanted}]})
        old = {f"v3_and_below_{key}": value for key, value in who.values().items()}
        return talk.ask(ADD, version, {**old, "v3_and_below_topics": wanted})

    return send


def _offset_commit(version: int, **more: Any) -> Callable[[Talk, Who], Any]:
    partition = {"partition_index": 0, "committed_offset": 5, "committed_leader_epoch": -1, "committed_metadata": ""}
    topics = [{"name": more.pop("topic", TOPIC), "partitions": [partition | more.pop("partition", {})]}]
    member = {"group_id": GROUP, "generation_id": -1, "member_id": "", "group_instance_id": None, **more}

    def send(talk: Talk, who: Who) -> Any:
        return talk.side.call(COMMIT, version, {**who.values(), **member, "topics": topics}, node=talk.of_group)

    return send


def requests() -> Iterator[Request]:
    """In an order in which one does not spoil the state for the next when it is refused."""
    for version in range(6):
        yield Request(f"AddPartitionsToTxn v{version}", _add(version))
    for version in (4, 5):
        yield Request(f"AddPartitionsToTxn v{version} to verify", _add(version, verify=True))
    for version in range(5):
        yield Request(
            f"AddOffsetsToTxn v{version}",
            lambda talk, who, version=version: talk.ask(ADD_OFFSETS, version, {**who.values(), "group_id": GROUP}),
        )
    for version in range(6):
        yield Request(f"TxnOffsetCommit v{version}", _offset_commit(version))
    for version in (9, 11, 12):
        yield Request(f"Produce v{version}", lambda talk, who, version=version: talk.produce(who, version))
    for version in range(6):
        for commit in (True, False):
            yield Request(
                f"EndTxn v{version} to {'commit' if commit else 'abort'}",
                lambda talk, who, version=version, commit=commit: talk.ask(END, version, {**who.values(), "committed": commit}),
            )
    for version in (3, 4, 5):
        yield Request(
            f"InitProducerId v{version} to go on",
            lambda talk, who, version=version: talk.ask(
                INIT, version, _init(who.name, producer_id=who.producer_id, epoch=who.epoch)
            ),
        )
    for version in range(6):
        yield Request(
            f"InitProducerId v{version} afresh", lambda talk, who, version=version: talk.ask(INIT, version, _init(who.name))
        )


# --- the states


def _empty(talk: Talk, new: bool) -> Who:
    return talk.begun(5 if new else 4)


def _ongoing(talk: Talk, new: bool) -> Who:
    who = _empty(talk, new)
    answer = talk.produce(who, 12) if new else _add(3)(talk, who)
    assert set(codes(answer)) <= {"none"}, (talk.side.name, answer)
    return who


def _ended(commit: bool) -> Callable[[Talk, bool], Who]:
    def prepare(talk: Talk, new: bool) -> Who:
        who = _ongoing(talk, new)
        answer = talk.ask(END, 5 if new else 4, {**who.values(), "committed": commit})
        assert answer["error_code"] == "none", (talk.side.name, answer)
        talk.settled(who.name)
        return who._replace(producer_id=answer["producer_id"], epoch=answer["producer_epoch"]) if new else who

    return prepare


def _fenced(talk: Talk, new: bool) -> Who:
    """Its transaction was aborted, because another instance has come."""
    who = _ongoing(talk, new)
    return talk.begun(5 if new else 4, who.name)


STATES: Final[Mapping[str, Callable[[Talk, bool], Who]]] = {
    "empty": _empty,
    "ongoing": _ongoing,
    "committed": _ended(True),
    "aborted": _ended(False),
    "taken over": _fenced,
}


def _told(talk: Talk, who: Who, answer: Any) -> Any:
    """The codes of the answer; what it says of the identity; how the id is then. Identities are told as those of `who`."""
    told = [codes(answer)]
    if "producer_epoch" in answer:
        told.append([answer["producer_id"] - who.producer_id if answer["producer_id"] >= 0 else None])
        told.append([answer["producer_epoch"] - who.epoch if answer["producer_epoch"] >= 0 else None])
    after = talk.settled(who.name)
    partitions = [[it["topic"], it["partitions"]] for it in after["topics"]]
    return [*told, after["transaction_state"], after["producer_epoch"] - who.epoch, sorted(partitions)]


def cases(side: Side) -> Any:
    """Each request in each state: from the right producer on an id of its own, from wrong ones on one that they share."""
    _prepared(side)
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
                    told[f"{clients}, {state}, {relation}: {request.name}"] = _told(talk, shared, answer)
            for request in requests():
                who = prepare(talk, new)
                told[f"{clients}, {state}: {request.name}"] = _told(talk, who, request.send(talk, who))
    return told


# --- what is odd in itself, and where it is asked


def coordinators(side: Side) -> Any:
    """FindCoordinator in each version, and each API at a broker that does not coordinate the id or the group."""
    _prepared(side)
    talk = Talk(side)
    told: dict[str, Any] = {}
    for version in range(7):
        for kind in (0, 1, 2, 9, -1) if version else (0,):
            for name in ("any", "", "x" * 500):
                asked = {"key": name, "key_type": kind} if version < 4 else {"coordinator_keys": (name,), "key_type": kind}
                answer = side.call(FIND, version, asked)
                told[f"v{version}, kind {kind}, {name[:5]!r}"] = [codes(answer), _told_nodes(answer)]
        if version >= 4:
            told[f"v{version}, several"] = codes(
                side.call(FIND, version, {"coordinator_keys": ("a", "", "b", "a"), "key_type": 1})
            )
            told[f"v{version}, none"] = codes(side.call(FIND, version, {"coordinator_keys": (), "key_type": 1}))
    who = talk.begun(5)
    talk.coordinator = next(it for it in NODES if it != talk.coordinator)
    talk.of_group = next(it for it in NODES if it != talk.of_group)
    for request in requests():
        if not request.name.startswith("Produce"):
            told[f"elsewhere: {request.name}"] = codes(request.send(talk, who))
    told["elsewhere: DescribeTransactions"] = codes(talk.ask(DESCRIBE, 0, {"transactional_ids": (who.name, "nobody", "")}))
    told["elsewhere: ListTransactions"] = talk.ask(LIST, 0, {"state_filters": (), "producer_id_filters": ()})
    return told


def _told_nodes(answer: Any) -> list[bool]:
    return [it["node_id"] >= 0 for it in answer.get("coordinators", (answer,)) if "node_id" in it]


def identities(side: Side) -> Any:
    """InitProducerId in each version with what is odd in it."""
    _prepared(side)
    talk = Talk(side)
    told: dict[str, Any] = {}
    for version in range(6):
        for what, values in {
            "no id": _init(None),
            "no id, no time": _init(None, timeout_ms=0),
            "no id, less than no time": _init(None, timeout_ms=-1),
            "no id, too long": _init(None, timeout_ms=LONG_MS + 1),
            "no id, half of an identity": _init(None, producer_id=5),
            "no id, an identity": _init(None, producer_id=5, epoch=0),
            "empty id": _init(""),
            "no time": _init("odd", timeout_ms=0),
            "less than no time": _init("odd", timeout_ms=-1),
            "too long": _init("odd", timeout_ms=LONG_MS + 1),
            "a producer without an epoch": _init("odd", producer_id=5),
            "an epoch without a producer": _init("odd", epoch=0),
            "an identity of nobody": _init(f"odd-{version}", producer_id=5, epoch=0),
            "odd id": _init("\u00e9 \n/" + "x" * 1000),
        }.items():
            if version < 3 and (values["producer_id"], values["producer_epoch"]) != (-1, -1):
                continue  # it has no room for them
            answer = talk.ask(INIT, version, values)
            told[f"v{version}, {what}"] = [codes(answer), answer.get("producer_epoch")]
    return told


def odd_parts(side: Side) -> Any:
    """Partitions, groups and members that are not there, by a producer whose transaction is open."""
    _prepared(side)
    talk = Talk(side)
    told: dict[str, Any] = {}
    topics: Mapping[str, Mapping[str, tuple[int, ...]]] = {
        "no topics": {},
        "no partitions": {TOPIC: ()},
        "an unknown topic": {"nope": (0,)},
        "an unknown topic among others": {TOPIC: (0,), "nope": (0,)},
        "an unknown partition": {TOPIC: (0, 7)},
        "a partition below 0": {TOPIC: (-1,)},
        "an internal topic": {TOPIC: (0,), "__consumer_offsets": (0,)},
        "the topic of transactions": {"__transaction_state": (0,)},
        "a bad name": {"bad name!": (0,)},
        "no name": {"": (0,)},
        "the same twice": {TOPIC: (0, 0)},
    }
    for new in (False, True):
        clients = "new clients" if new else "old clients"
        who = _ongoing(talk, new)
        for what, wanted in topics.items():
            for version in range(6):
                for verify in (False, True) if version >= 4 else (False,):
                    if not wanted and version >= 4:
                        continue  # Kafka never answers
                    answer = _add(version, verify=verify, topics=wanted)(talk, who)
                    told[f"{clients}, AddPartitionsToTxn v{version}, {what}, verify {verify}"] = _told(talk, who, answer)
        for version in range(5):
            answer = talk.ask(ADD_OFFSETS, version, {**who.values(), "group_id": ""})
            told[f"{clients}, AddOffsetsToTxn v{version}, no group"] = _told(talk, who, answer)
        for version in range(6):
            for what, more in _ODD_OFFSETS.items():
                if version < 3 and {"generation_id", "member_id", "group_instance_id"} & set(more):
                    continue
                answer = _offset_commit(version, **more)(talk, who)
                told[f"{clients}, TxnOffsetCommit v{version}, {what}"] = _told(talk, who, answer)
    return told


_ODD_OFFSETS: Final[Mapping[str, Mapping[str, Any]]] = {
    "an unknown topic": {"topic": "nope"},
    "an unknown partition": {"partition": {"partition_index": 7}},
    "long metadata": {"partition": {"committed_metadata": "m" * 5000}},
    "no metadata": {"partition": {"committed_metadata": None}},
    "an offset below 0": {"partition": {"committed_offset": -1}},
    "a generation": {"generation_id": 3},
    "a member": {"member_id": "stranger"},
    "a member of a generation": {"generation_id": 3, "member_id": "stranger"},
    "an instance": {"generation_id": 3, "member_id": "stranger", "group_instance_id": "i"},
    "no group": {"group_id": ""},
}


# --- readers and administrators


def readers(side: Side) -> Any:
    """What readers of both kinds are told of a partition with a committed, an aborted and an open transaction."""
    _prepared(side)
    talk = Talk(side)
    told: dict[str, Any] = {}
    for commit in (True, False, None):
        who = talk.begun(5)
        assert set(codes(talk.produce(who, 12, index=1))) == {"none"}
        if commit is not None:
            talk.ask(END, 5, {**who.values(), "committed": commit})
            talk.settled(who.name)
    for level in (0, 1):
        for version in (4, 7, 10, 12):
            for offset in (0, 1, 2, 3, 4, 5, 9):
                told[f"Fetch v{version}, isolation {level}, offset {offset}"] = _fetched(talk, version, level, offset)
        for version in (2, 5, 7, 9):
            for at in (-1, -2, -3):
                row = {"partition_index": 1, "current_leader_epoch": -1, "timestamp": at}
                values = {"replica_id": -1, "isolation_level": level, "timeout": 20_000}
                answer = side.call(
                    OFFSETS, version, {**values, "topics": [{"name": TOPIC, "partitions": [row]}]}, node=talk.leader
                )
                (it,) = (it for one in answer["topics"] for it in one["partitions"])
                told[f"ListOffsets v{version}, isolation {level}, {at}"] = [it["error_code"], it["offset"]]
    return told


def _fetched(talk: Talk, version: int, level: int, offset: int) -> Any:
    row = {"partition": 1, "current_leader_epoch": -1, "fetch_offset": offset, "last_fetched_epoch": -1, "log_start_offset": -1}
    limits = {"replica_id": -1, "max_wait": 0, "min_bytes": 0, "max_bytes": 100_000, "isolation_level": level}
    session = {"session_id": 0, "session_epoch": -1, "forgotten_topics_data": [], "rack_id": ""}
    topics = [{"topic": TOPIC, "partitions": [{**row, "partition_max_bytes": 100_000}]}]
    answer = talk.side.call(FETCH, version, {**limits, **session, "topics": topics}, node=talk.leader)
    (it,) = (it for one in answer["responses"] for it in one["partitions"])
    aborted = None if it["aborted_transactions"] is None else [one["first_offset"] for one in it["aborted_transactions"]]
    return [it["error_code"], it["high_watermark"], it["last_stable_offset"], aborted, bool(it["records"])]


def administrators(side: Side) -> Any:
    """Markers that administrators write, what is described, and what is listed by each filter."""
    _prepared(side)
    talk = Talk(side)
    told: dict[str, Any] = {}
    who = talk.begun(5, "watched")
    who = talk.begun(5, "watched")
    talk.produce(who, 12)

    def producers() -> Any:
        wanted = [{"name": TOPIC, "partition_indexes": (0, 7)}, {"name": "nope", "partition_indexes": (0,)}]
        answer = side.call(PRODUCERS, 0, {"topics": wanted}, node=talk.leader)
        rows = [it for one in answer["topics"] for it in one["partitions"]]
        ours = [it for one in rows for it in one["active_producers"] if it["producer_id"] == who.producer_id]
        shown = [
            [it["producer_epoch"] - who.epoch, it["last_sequence"], it["coordinator_epoch"], it["current_txn_start_offset"] >= 0]
            for it in ours
        ]
        return [codes(answer), shown]

    def mark(version: int, *, epoch: int = 0, coordinator: int = 0, topic: str = TOPIC, index: int = 0, node: int = 0) -> Any:
        marker = {"producer_id": who.producer_id, "producer_epoch": who.epoch + epoch, "transaction_result": False}
        marker |= {"coordinator_epoch": coordinator, "transaction_version": 2}
        marker["topics"] = [{"name": topic, "partition_indexes": (index,)}]
        return [codes(side.call(MARKERS, version, {"markers": [marker]}, node=node or talk.leader)), producers()]

    told["producers"] = producers()
    told["producers, at a follower"] = codes(_producers_at(side, next(it for it in NODES if it != talk.leader)))
    for version in (1, 2):
        told[f"WriteTxnMarkers v{version}, an unknown topic"] = mark(version, topic="nope")
        told[f"WriteTxnMarkers v{version}, an unknown partition"] = mark(version, index=7)
        told[f"WriteTxnMarkers v{version}, at a follower"] = mark(version, node=next(it for it in NODES if it != talk.leader))
        told[f"WriteTxnMarkers v{version}, the epoch before"] = mark(version, epoch=-1)
        told[f"WriteTxnMarkers v{version}, nothing"] = codes(side.call(MARKERS, version, {"markers": []}, node=talk.leader))
    for version, epoch, coordinator in ((2, 0, 9), (2, 1, 9), (1, 1, 9), (1, 1, 3), (1, 2, 9), (2, 3, 10)):
        told[f"WriteTxnMarkers v{version}, epoch +{epoch}, by {coordinator}"] = mark(
            version, epoch=epoch, coordinator=coordinator
        )
    for version in range(3):
        for what, some in _FILTERS.items():
            told[f"ListTransactions v{version}, {what}"] = _listed(talk, who, version, some)
    for what, names in {
        "known": ("watched",),
        "unknown": ("nobody",),
        "both": ("nobody", "watched"),
        "empty": ("",),
        "none": (),
    }.items():
        told[f"DescribeTransactions, {what}"] = [
            [it["error_code"], it["transactional_id"], it["transaction_state"], it["transaction_timeout"], it["topics"]]
            for it in talk.ask(DESCRIBE, 0, {"transactional_ids": names})["transaction_states"]
        ]
    return told


def _producers_at(side: Side, node: int) -> Any:
    return side.call(PRODUCERS, 0, {"topics": [{"name": TOPIC, "partition_indexes": (0,)}]}, node=node)


_FILTERS: Final[Mapping[str, Mapping[str, Any]]] = {
    "all": {},
    "a state": {"state_filters": ("Ongoing",)},
    "states": {"state_filters": ("Ongoing", "Nonsense", "Dead", "Empty")},
    "an unknown state": {"state_filters": ("Nonsense",)},
    "an unknown producer": {"producer_id_filters": (10**9,)},
    "long": {"duration_filter": 1_000_000},
    "any duration": {"duration_filter": 0},
    "less than no duration": {"duration_filter": -7},
    "a pattern": {"transactional_id_pattern": "watch.*"},
    "a part of a name": {"transactional_id_pattern": "watch"},
    "an empty pattern": {"transactional_id_pattern": ""},
    "a bad pattern": {"transactional_id_pattern": "("},
}


def _listed(talk: Talk, who: Who, version: int, some: Mapping[str, Any]) -> Any:
    wanted = {"state_filters": (), "producer_id_filters": (), "duration_filter": -1, "transactional_id_pattern": None, **some}
    answer = talk.ask(LIST, version, wanted)
    shown = [it["transaction_state"] for it in answer["transaction_states"] if it["transactional_id"] == who.name]
    return [codes(answer), shown, sorted(answer["unknown_state_filters"])]


def _prepared(side: Side) -> None:
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


STORIES: Final[Mapping[str, Callable[[Side], Any]]] = {
    "transactions in each state": cases,
    "coordinators of transactions": coordinators,
    "identities of producers": identities,
    "odd parts of transactions": odd_parts,
    "readers of transactions": readers,
    "administrators of transactions": administrators,
}
