"""Requests of transactions that are odd, or asked at the wrong broker, and what readers and administrators are told."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from tests.clients import compare_groups, compare_transactions_random
from tests.clients.compare_sides import NODES, Side
from tests.clients.compare_transactions import (
    ADD_OFFSETS,
    DESCRIBE,
    END,
    FETCH,
    FIND,
    INIT,
    LIST,
    LONG_MS,
    MARKERS,
    OFFSETS,
    PRODUCERS,
    TOPIC,
    Talk,
    Who,
    add,
    cases,
    codes,
    init_values,
    offset_commit,
    ongoing,
    prepared,
    requests,
    told_of,
)


def coordinators(side: Side) -> Any:
    """FindCoordinator in each version, and each API at a broker that does not coordinate the id or the group."""
    prepared(side)
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
    prepared(side)
    talk = Talk(side)
    told: dict[str, Any] = {}
    for version in range(6):
        for what, values in {
            "no id": init_values(None),
            "no id, no time": init_values(None, timeout_ms=0),
            "no id, less than no time": init_values(None, timeout_ms=-1),
            "no id, too long": init_values(None, timeout_ms=LONG_MS + 1),
            "no id, half of an identity": init_values(None, producer_id=5),
            "no id, an identity": init_values(None, producer_id=5, epoch=0),
            "empty id": init_values(""),
            "no time": init_values("odd", timeout_ms=0),
            "less than no time": init_values("odd", timeout_ms=-1),
            "too long": init_values("odd", timeout_ms=LONG_MS + 1),
            "a producer without an epoch": init_values("odd", producer_id=5),
            "an epoch without a producer": init_values("odd", epoch=0),
            "an identity of nobody": init_values(f"odd-{version}", producer_id=5, epoch=0),
            "odd id": init_values("\u00e9 \n/" + "x" * 1000),
        }.items():
            if version < 3 and (values["producer_id"], values["producer_epoch"]) != (-1, -1):
                continue  # it has no room for them
            answer = talk.ask(INIT, version, values)
            told[f"v{version}, {what}"] = [codes(answer), answer.get("producer_epoch")]
    return told


def odd_parts(side: Side) -> Any:
    """Partitions, groups and members that are not there, by a producer whose transaction is open."""
    prepared(side)
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
        who = ongoing(talk, new)
        for what, wanted in topics.items():
            for version in range(6):
                for verify in (False, True) if version >= 4 else (False,):
                    if not wanted and version >= 4:
                        continue  # Kafka never answers
                    answer = add(version, verify=verify, topics=wanted)(talk, who)
                    told[f"{clients}, AddPartitionsToTxn v{version}, {what}, verify {verify}"] = told_of(talk, who, answer)
        for version in range(5):
            answer = talk.ask(ADD_OFFSETS, version, {**who.values(), "group_id": ""})
            told[f"{clients}, AddOffsetsToTxn v{version}, no group"] = told_of(talk, who, answer)
        for version in range(6):
            for what, more in _ODD_OFFSETS.items():
                if version < 3 and {"generation_id", "member_id", "group_instance_id"} & set(more):
                    continue
                answer = offset_commit(version, **more)(talk, who)
                told[f"{clients}, TxnOffsetCommit v{version}, {what}"] = told_of(talk, who, answer)
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
    prepared(side)
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
    prepared(side)
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
        marker: dict[str, Any] = {
            "producer_id": who.producer_id,
            "producer_epoch": who.epoch + epoch,
            "transaction_result": False,
        }
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


STORIES: Final[Mapping[str, Callable[[Side], Any]]] = {
    "transactions in each state": cases,
    "coordinators of transactions": coordinators,
    "identities of producers": identities,
    "odd parts of transactions": odd_parts,
    "readers of transactions": readers,
    "administrators of transactions": administrators,
    **compare_groups.STORIES,
    **compare_transactions_random.STORIES,
}
