"""Requests of transactions in odd orders: stories as those of `orders`.

Where the outcome of a transaction is carried out behind an answer, the story waits for that, so that what it tells does not
depend on who is faster.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable
from typing import Any, Final, NamedTuple

from tests.clients.orders import PID, PRODUCE, Story, batch, filled
from tests.clients.probes import TOPIC
from tests.harness.local import wait_for

# isort: split
from kio.index import load_request_schema

FIND, ADD, ADD_OFFSETS, END, MARKERS, COMMIT, OFFSETS, DESCRIBE, LIST = 10, 24, 25, 26, 27, 28, 9, 65, 66
MINUTE: Final = datetime.timedelta(minutes=1)


class Who(NamedTuple):
    """A transactional id, and the identity of its producer."""

    name: str
    producer_id: int
    epoch: int

    def at(self, epoch: int) -> Who:
        return self._replace(epoch=self.epoch + epoch)


def _quiet(story: Story, api_key: int, version: int, /, **values: Any) -> Any:
    """Not told."""
    return story.connection.ask(filled(load_request_schema(api_key, version), values))


def _settled(story: Story, name: str) -> None:
    """Wait until nothing of an id is under way."""

    def done() -> bool:
        found = _quiet(story, LIST, 0, state_filters=[], producer_id_filters=[]).transaction_states
        return any(it.transactional_id == name and not str(it.transaction_state).startswith("Prepare") for it in found)

    wait_for(f"{name} is settled", done)


def _init(story: Story, name: str, *, version: int = 4, expected: Who | None = None, timeout: datetime.timedelta = MINUTE) -> Who:
    """Tells the epoch, too."""
    has = {"producer_id": -1, "producer_epoch": -1}
    if expected is not None:
        has = {"producer_id": expected.producer_id, "producer_epoch": expected.epoch}
    answer = story.ask(PID, version, transactional_id=name, transaction_timeout=timeout, **has)
    story.told[-1] += f" epoch {answer.producer_epoch}"
    return Who(name, int(answer.producer_id), int(answer.producer_epoch))


def _begin(story: Story, name: str, version: int) -> Who:
    def found() -> bool:
        return int(_quiet(story, FIND, 3, key=name, key_type=1).error_code) == 0

    def ready() -> Any:
        values = {"transactional_id": name, "transaction_timeout": MINUTE, "producer_id": -1, "producer_epoch": -1}
        answer = _quiet(story, PID, version, **values)
        return int(answer.error_code) == 0 and answer

    wait_for("a coordinator of transactions", found)
    answer = wait_for("a producer id", ready)
    return Who(name, int(answer.producer_id), int(answer.producer_epoch))


def _add(story: Story, who: Who, *topics: tuple[str, list[int]], version: int = 3, verify: bool = False) -> None:
    wanted = [{"name": name, "partitions": partitions} for name, partitions in topics or ((TOPIC, [0]),)]
    identity = {"transactional_id": who.name, "producer_id": who.producer_id, "producer_epoch": who.epoch}
    if version >= 4:
        story.ask(ADD, version, transactions=[{**identity, "verify_only": verify, "topics": wanted}])
    else:
        old = {f"v3_and_below_{name}": value for name, value in identity.items()}
        story.ask(ADD, version, **old, v3_and_below_topics=wanted)


def _add_offsets(story: Story, who: Who, group: str, *, version: int = 3) -> None:
    identity = {"transactional_id": who.name, "producer_id": who.producer_id, "producer_epoch": who.epoch}
    story.ask(ADD_OFFSETS, version, **identity, group_id=group)


def _end(story: Story, who: Who, *, commit: bool, version: int = 3) -> Who:
    """Tells the epoch, where the answer has one."""
    identity = {"transactional_id": who.name, "producer_id": who.producer_id, "producer_epoch": who.epoch}
    answer = story.ask(END, version, **identity, committed=commit)
    if version < 5:
        return who
    story.told[-1] += f" epoch {answer.producer_epoch}"
    return Who(who.name, int(answer.producer_id), int(answer.producer_epoch))


def _produce(
    story: Story, who: Who, sequence: int, *, version: int = 9, name: str | None = "", transactional: bool = True, index: int = 0
) -> None:
    """`name` "": that of the producer."""
    records = batch(transactional=transactional, producer_id=who.producer_id, producer_epoch=who.epoch, base_sequence=sequence)
    topics = [{"name": TOPIC, "partition_data": [{"index": index, "records": bytes(records)}]}]
    told = who.name if name == "" else name
    story.ask(PRODUCE, version, acks=-1, transactional_id=told, topic_data=topics, timeout=MINUTE)


def _commit(story: Story, who: Who, group: str, *, version: int = 3, **more: Any) -> None:
    member = {"generation_id": -1, "member_id": "", "group_instance_id": None}
    partition = {"partition_index": more.pop("index", 0), "committed_offset": 5, "committed_leader_epoch": -1}
    partition["committed_metadata"] = more.pop("metadata", "")
    topics = [{"name": more.pop("topic", TOPIC), "partitions": [partition]}]
    identity = {"transactional_id": who.name, "producer_id": who.producer_id, "producer_epoch": who.epoch}
    story.ask(COMMIT, version, **identity, **{**member, "group_id": group, **more}, topics=topics)


def _offsets(story: Story, group: str, *, stable: bool) -> None:
    answer = story.ask(OFFSETS, 7, group_id=group, topics=[{"name": TOPIC, "partition_indexes": [0]}], require_stable=stable)
    story.told[-1] += f" offset {answer.topics[0].partitions[0].committed_offset}"


def transactions_of_old_clients(story: Story) -> None:
    """transaction.version 0 and 1: the client adds its partitions, and keeps its epoch."""
    who = _begin(story, "old", 4)
    for timeout in (0, -1, 900_001):
        _init(story, "old", timeout=datetime.timedelta(milliseconds=timeout))
    _init(story, "")
    for half in (Who("old", who.producer_id, -1), Who("old", -1, 0)):
        _init(story, "old", expected=half)
    for version in (0, 3):
        for stranger in (Who("nobody", 1, 0), Who("", 1, 0), who._replace(producer_id=99999), who.at(1), who.at(-1)):
            _add(story, stranger, version=version)
            _add_offsets(story, stranger, "tg", version=version)
            _end(story, stranger, commit=True, version=version)
    _add(story, who, (TOPIC, [0, 9]), ("nosuch-here", [0]))
    _add(story, who, (TOPIC, [0]), ("__consumer_offsets", [0]))
    for commit in (True, False):
        _end(story, who, commit=commit)
    for version in (9, 11):
        _produce(story, who, 0, version=version)
    for _ in range(2):
        _add(story, who)
    _produce(story, who, 0)
    _produce(story, who, 0)  # again
    _produce(story, who, 1, name=None)
    _produce(story, who, 1, transactional=False)
    _produce(story, who, 5)
    for version in (3, 4):
        _commit(story, who, "tg", version=version)  # it is not part of it
    _add_offsets(story, who, "tg")
    _commit(story, who, "tg")
    _offsets(story, "tg", stable=True)
    _offsets(story, "tg", stable=False)
    _commit(story, who, "tg", index=9)
    _commit(story, who, "tg", topic="nosuch-here")
    _commit(story, who, "tg", metadata="m" * 5000)
    _commit(story, who, "tg", generation_id=3, member_id="stranger")
    _commit(story, who, "tg", member_id="stranger")
    _commit(story, who, "")
    _commit(story, who.at(1), "tg")
    _commit(story, who._replace(producer_id=99999), "tg")
    answer = story.ask(DESCRIBE, 0, transactional_ids=["old"])
    story.told[-1] += f" {answer.transaction_states[0].transaction_state}"
    _end(story, who, commit=True)
    _settled(story, "old")
    wait_for("the offset is there", lambda: _offset_of(story, "tg") == 5)
    _offsets(story, "tg", stable=True)
    for commit in (True, False):
        _end(story, who, commit=commit)
    _produce(story, who, 1, version=11)  # it is over


def _offset_of(story: Story, group: str) -> int:
    answer = _quiet(story, OFFSETS, 7, group_id=group, topics=[{"name": TOPIC, "partition_indexes": [0]}], require_stable=True)
    return int(answer.topics[0].partitions[0].committed_offset)


def transactions_that_are_fenced(story: Story) -> None:
    """KIP-360, and who comes too late."""
    first = _begin(story, "fenced", 4)
    second = _init(story, "fenced")
    for version in (1, 3):
        _add(story, first, version=version)
        _end(story, first, commit=True, version=version)
    third = _init(story, "fenced", expected=second)
    _init(story, "fenced", expected=second)  # its answer was lost
    for version in (3, 4):
        _init(story, "fenced", version=version, expected=first)
    _init(story, "fenced", expected=third._replace(producer_id=99999))
    _add(story, third)
    _produce(story, third, 0)
    _init(story, "fenced")  # aborts first
    _settled(story, "fenced")
    fourth = _init(story, "fenced")
    _add(story, third)
    _produce(story, third, 1)
    _end(story, third, commit=True)
    _add(story, fourth)
    _produce(story, fourth, 0)
    _produce(story, third, 1)
    _end(story, fourth, commit=False)
    _settled(story, "fenced")
    _end(story, fourth, commit=True)


def transactions_of_new_clients(story: Story) -> None:
    """transaction.version 2: an epoch for each transaction, and partitions are added by writing."""
    who = _begin(story, "new", 5)
    _produce(story, who, 3, version=12)  # the first must be 0
    _produce(story, who, 0, version=12)
    _add(story, who, version=5, verify=True)
    _add(story, who, (TOPIC, [0]), ("nosuch-here", [0]), version=5, verify=True)
    _add(story, who, ("__consumer_offsets", [0]), version=5, verify=True)
    _add(story, who.at(1), version=5, verify=True)
    _commit(story, who, "tn", version=5)
    _commit(story, who.at(1), "tn", version=5)
    _offsets(story, "tn", stable=True)
    for stranger in (who.at(1), who.at(-1), who._replace(producer_id=99999), Who("nobody", 1, 0), Who("", 1, 0)):
        _end(story, stranger, commit=True, version=5)
    after = _end(story, who, commit=True, version=5)
    _settled(story, "new")
    wait_for("the offset is there", lambda: _offset_of(story, "tn") == 5)
    for commit in (True, False):
        _end(story, who, commit=commit, version=5)  # again
    _end(story, after, commit=True, version=5)
    later = _end(story, after, commit=False, version=5)  # of nothing
    _settled(story, "new")
    _produce(story, who, 1, version=12)
    _produce(story, later, 0, version=12)
    _commit(story, after, "tn", version=5)
    last = _end(story, later, commit=False, version=5)
    _settled(story, "new")
    _end(story, later, commit=True, version=5)
    _produce(story, last, 0, version=11)  # as an old client


def transactions_and_administrators(story: Story) -> None:
    _begin(story, "watched", 4)
    who = _init(story, "watched")
    _add(story, who)
    _produce(story, who, 0)

    def mark(epoch: int, *, coordinator: int = 0, version: int = 1, topic: str = TOPIC, index: int = 0) -> None:
        topics = [{"name": topic, "partition_indexes": [index]}]
        marker = {"producer_id": who.producer_id, "producer_epoch": who.epoch + epoch, "topics": topics}
        marker |= {"transaction_result": False, "coordinator_epoch": coordinator, "transaction_version": 2}
        story.ask(MARKERS, version, markers=[marker])

    mark(0, topic="nosuch-here")
    mark(0, index=9)
    mark(-1)
    mark(0, version=2)  # a transaction of this epoch is open
    mark(0, coordinator=7)
    mark(0, coordinator=3)
    mark(0, coordinator=7)  # again
    mark(0, coordinator=7, version=2)
    filters: tuple[dict[str, Any], ...] = (
        {"state_filters": ["Ongoing"]},
        {"state_filters": ["Ongoing", "Nonsense", "Dead"]},
        {"state_filters": ["Nonsense"]},
        {"producer_id_filters": [who.producer_id]},
        {"producer_id_filters": [99999]},
        {"duration_filter": 1_000_000},
        {"duration_filter": -7},
        {"transactional_id_pattern": "watch.*"},
        {"transactional_id_pattern": "watch"},
        {"transactional_id_pattern": ""},
        {"transactional_id_pattern": "("},
    )
    for some in filters:
        wanted = {"state_filters": [], "producer_id_filters": [], "duration_filter": -1, "transactional_id_pattern": None, **some}
        answer = story.ask(LIST, 2, **wanted)
        shown = [it.transaction_state for it in answer.transaction_states if it.transactional_id == "watched"]
        story.told[-1] += f" {shown} {list(answer.unknown_state_filters)}"
    story.ask(DESCRIBE, 0, transactional_ids=["watched"])
    _end(story, who, commit=False)


STORIES_OF_TRANSACTIONS: Final[tuple[Callable[[Story], None], ...]] = (
    transactions_of_old_clients,
    transactions_that_are_fenced,
    transactions_of_new_clients,
    transactions_and_administrators,
)
