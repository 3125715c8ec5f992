"""Outcomes of transactions that strangers write, asked of both clusters: WriteTxnMarkers by whoever, about whomever."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from tests.clients.compare_sides import Side
from tests.clients.compare_transactions import END, MARKERS, PRODUCERS, TOPIC, Talk, Who, codes, ongoing, prepared

HIGHEST_EPOCH: Final = 2**15 - 1
FAR: Final = 2**63 - 1


def _markers() -> Iterator[tuple[str, Mapping[str, Any]]]:
    """What is odd in one. A producer of nobody has to be another in each, so that one does not spoil the next."""
    for coordinator in (-1, -2, 2**31 - 1, -(2**31)):
        yield f"coordinator {coordinator}", {"coordinator_epoch": coordinator}
    for epoch in (-1, -2, 0, HIGHEST_EPOCH, -(2**15)):
        yield f"epoch {epoch}", {"producer_epoch": epoch}
    for version in (0, 1, 2, 3, -1, 127):
        yield f"transaction version {version}", {"transaction_version": version}
    for producer in (-1, -2, FAR, -FAR - 1):
        yield f"producer {producer}", {"producer_id": producer}
    for what, topics in {
        "no topics": {},
        "no partitions": {TOPIC: ()},
        "a partition twice": {TOPIC: (0, 0)},
        "a partition below 0": {TOPIC: (-1,)},
        "some that are not there": {TOPIC: (0, 7), "nope": (0,)},
        "no name": {"": (0,)},
        "a bad name": {"bad name!": (0,)},
    }.items():
        yield what, {"topics": [{"name": name, "partition_indexes": some} for name, some in topics.items()]}


def strangers(side: Side) -> Any:
    """Of a producer that nobody knows, of one that has nothing open, and of one that has."""
    prepared(side)
    talk = Talk(side)
    told: dict[str, Any] = {}
    for kind in ("unknown", "known", "open"):
        for version in (1, 2):
            for commits in (False, True):
                for at, (what, odd) in enumerate([("plain", {}), *_markers()]):
                    who = _producer(talk, kind, 7_000_000 + 1000 * version + 100 * commits + at)
                    marker = {"producer_id": who.producer_id, "producer_epoch": who.epoch, "transaction_result": commits}
                    marker |= {"coordinator_epoch": 3, "transaction_version": 2}
                    marker["topics"] = [{"name": TOPIC, "partition_indexes": (0,)}]
                    answer = side.call(MARKERS, version, {"markers": [{**marker, **odd}]}, node=talk.leader)
                    where = f"{kind}, v{version}, {'commit' if commits else 'abort'}, {what}"
                    told[where] = [codes(answer), _shown(talk, who)]
                    _finish(talk, who, kind)
    return told


def _producer(talk: Talk, kind: str, unknown: int) -> Who:
    if kind == "unknown":
        return Who("nobody", unknown, 5)
    who = ongoing(talk, True)
    return who if kind == "open" else _finish(talk, who, "open")


def _finish(talk: Talk, who: Who, kind: str) -> Who:
    """What is open holds up those who read what is committed."""
    if kind != "open":
        return who
    answer = talk.ask(END, 5, {**who.values(), "committed": False})
    talk.settled(who.name)
    return who._replace(epoch=answer["producer_epoch"])


def _shown(talk: Talk, who: Who) -> Any:
    """What the leader of the partition knows of the producer."""
    answer = talk.side.call(PRODUCERS, 0, {"topics": [{"name": TOPIC, "partition_indexes": (0,)}]}, node=talk.leader)
    (found,) = (it for one in answer["topics"] for it in one["partitions"])
    return [
        [it["producer_epoch"] - who.epoch, it["last_sequence"], it["coordinator_epoch"], it["current_txn_start_offset"] >= 0]
        for it in found["active_producers"]
        if it["producer_id"] == who.producer_id
    ]


STORIES: Final[Mapping[str, Callable[[Side], Any]]] = {"markers of strangers": strangers}
