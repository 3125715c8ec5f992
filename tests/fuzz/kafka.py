"""The Kafka door: what is sent to a client listener, and in which order."""

from __future__ import annotations

import random
import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final

from tests.fuzz import batches, mutate, values
from tests.fuzz.cases import Step
from tests.fuzz.tree import Maker, Value
from tests.fuzz.values import Known, uvarint

PRODUCE, FETCH, METADATA, OFFSET_COMMIT, FIND_COORDINATOR, JOIN, HEARTBEAT, LEAVE, SYNC = 0, 1, 3, 8, 10, 11, 12, 13, 14
ADD_PARTITIONS, ADD_OFFSETS, END_TXN, WRITE_MARKERS, TXN_OFFSETS = 24, 25, 26, 27, 28
DESCRIBE_PRODUCERS, DESCRIBE_TRANSACTIONS, LIST_TRANSACTIONS = 61, 65, 66
OF_TRANSACTIONS: Final = (22, 24, 25, 26, 27, 28, 61, 65, 66)
INIT_PRODUCER_ID, CREATE_TOPICS, CONSUMER_HEARTBEAT, API_VERSIONS, UNREGISTER_BROKER = 22, 19, 68, 18, 64
MAY_WAIT: Final = frozenset({FETCH, JOIN, SYNC})
"""Their answers may come much later, by what the request asks for."""
HOLDS_THE_NODE: Final = frozenset({UNREGISTER_BROKER, 57})
"""What an administrator may do to the only node is not drawn: unregister it, change its features."""


@dataclass(slots=True)
class Offered:
    """What the node says that it takes: API key → its versions."""

    versions: dict[int, tuple[int, int]]
    weights: list[int] = field(default_factory=list)
    keys: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.keys = sorted(set(self.versions) - HOLDS_THE_NODE)
        self.weights = [
            8 if key in (PRODUCE, FETCH) else 3 if key in (METADATA, JOIN, OFFSET_COMMIT, 68, 9, *OF_TRANSACTIONS) else 1
            for key in self.keys
        ]


class Drawer:
    """Draws the steps of cases. `known` grows by what is answered."""

    def __init__(self, rng: random.Random, offered: Offered, known: Known) -> None:
        self.rng = rng
        self.offered = offered
        self.known = known
        self.maker = Maker(rng, known, batches.batch)
        self._correlation = 1

    def case(self) -> Iterator[Step]:
        """Each step is drawn when the one before it has been answered."""
        kind = self.rng.randrange(10)
        if kind < 6 or (kind < 8 and FIND_COORDINATOR not in self.offered.versions):  # a controller has no such stories
            for _ in range(self.rng.choice((1, 1, 2, 4))):
                yield self._step(self._any_request())
        elif kind < 8:
            yield from self._story()
        elif kind == 8:
            yield self._pipelined()
        else:
            yield self._stream()

    def _any_request(self) -> tuple[int, int, bytes, str]:
        key = self.rng.choices(self.offered.keys, self.offered.weights)[0]
        return self._request(key)

    def _request(
        self, key: int, version: int | None = None, *, change: bool = True, client: bytes | None = None, **fixed: Any
    ) -> tuple[int, int, bytes, str]:
        """(key, version, the frame without its size, what it is). `fixed` are values of fields, wherever they are. `client`: the
        client id, when it matters."""
        rng = self.rng
        low, high = self.offered.versions[key]
        if version is None:
            version = rng.randint(low, high)
        root = self.maker.request(key, max(version, 3) if key == PRODUCE else version)
        for name, value in fixed.items():
            for it in root.find(name):
                it.value = value
        notes = mutate.mutate(root, rng) if change and rng.randrange(5) else []
        body = root.encode()
        if change and rng.randrange(4) == 0:
            body = mutate.damage(body, rng)
            notes.append("bytes damaged")
        return (
            key,
            version,
            self._head(key, version, root.flexible, change, client) + body,
            f"{key} v{version}: {', '.join(notes) or 'valid'}",
        )

    def _head(self, key: int, version: int, flexible: bool, change: bool, named: bytes | None) -> bytes:
        rng = self.rng
        self._correlation += 1
        client: bytes | None = named or rng.choice((b"fuzz", b"fuzz", b"", None))
        tags = b"\x00"
        if named is None and change and rng.randrange(30) == 0:
            client = rng.choice((b"\xff\xfe", b"\x1b[2J\x07", b"c" * 30_000))
        if change and rng.randrange(30) == 0:
            tags = rng.choice(
                (b"\x01\x05\x01x", uvarint(2**31), b"\x02\x00\x00\x00\x00", b"\xff" * 10, uvarint(1) + uvarint(2**40) + b"\x00")
            )
        length = -1 if client is None else len(client)
        if change and rng.randrange(60) == 0:
            length = values.integer(rng, 16)
        head = struct.pack(">hhih", key, version, self._correlation, length) + (client or b"")
        return head + (tags if flexible else b"")

    def _step(self, request: tuple[int, int, bytes, str], conn: int | None = None) -> Step:
        key, _version, payload, note = request
        if conn is None:
            conn = self.rng.choice((0, 0, 0, 1))
        data = struct.pack(">i", len(payload)) + payload
        cuts: tuple[int, ...] = ()
        if self.rng.randrange(8) == 0:
            cuts = tuple(sorted(self.rng.sample(range(1, len(data)), min(len(data) - 1, self.rng.choice((1, 2, 5))))))
        return Step(conn, data, self._answers(key), cuts, note)

    @staticmethod
    def _answers(key: int) -> int:
        """Produce may be of acks 0, after a mutation nobody knows."""
        return 0 if key in MAY_WAIT or key == PRODUCE else 1

    # --- several at once, and what is no request

    def _pipelined(self) -> Step:
        """Several frames in one write, cut anywhere."""
        found = [self._any_request() for _ in range(self.rng.choice((2, 3, 10, 40)))]
        data = b"".join(struct.pack(">i", len(payload)) + payload for _key, _version, payload, _note in found)
        if self.rng.randrange(3) == 0:
            data = mutate.damage(data, self.rng)
        note = "; ".join(note for *_, note in found)
        return Step(0, data, 0, (), f"pipelined: {note}"[:300])

    def _stream(self) -> Step:
        """What is not framed as it should be."""
        rng = self.rng
        _key, _version, payload, note = self._any_request()
        kind = rng.randrange(5)
        if kind == 0:
            size = values.integer(rng, 32)
            return Step(2, struct.pack(">i", size) + payload, 0, (), f"size {size}: {note}")
        if kind == 1:
            data = struct.pack(">i", len(payload)) + payload
            return Step(2, data[: rng.randrange(len(data))], 0, (), f"cut: {note}")
        if kind == 2:
            data = rng.choice(
                (b"GET / HTTP/1.1\r\n\r\n", b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", values.junk(rng), b"\x00" * 64)
            )
            return Step(2, data, 0, (), "no frame")
        key, version = values.integer(rng, 16), values.integer(rng, 16)
        head = struct.pack(">hhih", key, version, 7, -1)
        if kind == 3:
            head = head[: rng.randrange(len(head))]
        body = values.junk(rng)
        return Step(2, struct.pack(">i", len(head) + len(body)) + head + body, 0, (), f"api {key} v{version}")

    # --- stories: requests that follow from each other

    def _story(self) -> Iterator[Step]:
        groups, logs = (self._classic_group, self._modern_group), (self._fetch_session, self._producer, self._topics)
        yield from self.rng.choice((*groups, *logs, self._transaction, self._transaction, self._coordinator_records))()

    def _at(self, key: int, **fixed: Any) -> Step:
        """A request of a story: often as it ought to be."""
        return self._step(self._request(key, change=self.rng.randrange(3) == 0, **fixed), conn=3)

    def _classic_group(self) -> Iterator[Step]:
        group = values.GROUPS[0]
        yield self._at(
            JOIN, group_id=group, protocol_type="consumer", session_timeout=10_000, rebalance_timeout=100, group_instance_id=None
        )
        yield self._at(
            JOIN, group_id=group, protocol_type="consumer", session_timeout=10_000, rebalance_timeout=100, group_instance_id=None
        )
        yield self._at(SYNC, group_id=group)
        for _ in range(self.rng.choice((1, 3))):
            yield self._at(self.rng.choice((OFFSET_COMMIT, 9, HEARTBEAT, SYNC, LEAVE, JOIN, 15, 42, 47)), group_id=group)

    def _modern_group(self) -> Iterator[Step]:
        group = values.GROUPS[1]
        epoch: Any = 0
        for _ in range(self.rng.choice((2, 4))):
            yield self._at(CONSUMER_HEARTBEAT, group_id=group, member_epoch=epoch)
            epoch = self.known.pick(self.rng, "member_epoch") or self.rng.choice((-1, -2, 0, 1))
        yield self._at(self.rng.choice((OFFSET_COMMIT, 9, 69, 15, 42)), group_id=group)

    def _fetch_session(self) -> Iterator[Step]:
        yield self._at(FETCH, session_id=0, session_epoch=0, max_wait=0)
        for _ in range(self.rng.choice((1, 3))):
            yield self._at(FETCH, max_wait=0)

    def _producer(self) -> Iterator[Step]:
        yield self._at(INIT_PRODUCER_ID, transactional_id=None)
        producer_id = self.known.pick(self.rng, "producer_id") or 1
        for n in range(self.rng.choice((2, 4))):
            batch = batches.sound(self.rng, count=self.rng.choice((1, 3)))
            sequence = self.rng.choice((0, n, 1, 2**31 - 1, -1))
            data = batches.replace(
                batch, producer_id=producer_id, producer_epoch=self.rng.choice((0, 0, 1, -1)), base_sequence=sequence
            )
            step = self._at(PRODUCE, records=data.encode(), acks=-1, name=values.TOPICS[0], index=0)
            yield step

    def _transaction(self) -> Iterator[Step]:
        """A transactional producer, often as it ought to be; its batches may come before their partition is added."""
        rng = self.rng
        name, topic = rng.choice(values.TRANSACTIONS), rng.choice(values.TOPICS)
        ids: dict[str, Any] = {"transactional_id": name, "v3_and_below_transactional_id": name}
        yield self._at(FIND_COORDINATOR, key_type=1)
        yield self._at(INIT_PRODUCER_ID, transactional_id=name, producer_id=-1, producer_epoch=-1, transaction_timeout=1000)
        for _ in range(rng.choice((1, 3, 6))):
            key = rng.choice((ADD_PARTITIONS, ADD_PARTITIONS, ADD_OFFSETS, PRODUCE, PRODUCE, TXN_OFFSETS, *OF_TRANSACTIONS))
            if key == PRODUCE:
                data = replace_identity(batches.sound(rng), self.known, rng)
                yield self._at(PRODUCE, records=data, acks=-1, name=topic, index=0, **ids)
            else:
                yield self._at(key, **(ids if key != INIT_PRODUCER_ID else {}))
        yield self._at(END_TXN, **ids)
        yield self._at(rng.choice((DESCRIBE_TRANSACTIONS, LIST_TRANSACTIONS, DESCRIBE_PRODUCERS, WRITE_MARKERS)))

    def _coordinator_records(self) -> Iterator[Step]:
        """Records of the coordinators' topics, as an administrator may write them: sound, damaged, and of later versions. They
        are read when the node starts again."""
        rng = self.rng
        topic, partition = rng.choice(values.STATE_TOPICS), rng.randrange(3)
        data = batches.coordinator_records(rng).encode()
        fixed: dict[str, Any] = {"records": data, "acks": -1, "name": topic, "index": partition, "transactional_id": None}
        yield self._step(self._request(PRODUCE, 8, change=False, client=b"__admin_client", **fixed), conn=3)

    def _topics(self) -> Iterator[Step]:
        """One of the fuzzed topics goes and comes again; the runner makes what is missing."""
        yield self._at(METADATA)
        key = self.rng.choice((20, 21, 37, CREATE_TOPICS, 44, 33))
        if key in self.offered.versions:
            yield self._at(key)
        yield self._at(PRODUCE)
        yield self._at(FETCH, max_wait=0)


def replace_identity(batch: batches.Batch, known: Known, rng: random.Random) -> bytes:
    """The batch as one of a transaction, by the last producer that was told, as a rule."""
    producer_id = known.pick(rng, "producer_id") or 1
    epoch = known.pick(rng, "producer_epoch") or rng.choice((0, 0, 1))
    attributes = rng.choice((0x10, 0x10, 0x10, 0x30, 0x20, 0x50, 0))
    changed = {
        "producer_id": producer_id,
        "producer_epoch": epoch,
        "base_sequence": rng.choice((0, 0, 1, -1)),
        "attributes": attributes,
    }
    return batches.replace(batch, **changed).encode()


__all__ = ["Drawer", "Offered", "Value"]
