"""Raw connections to a node, and the good client whose records must survive whatever others send."""

from __future__ import annotations

import socket
import struct
import time
from collections.abc import Mapping
from typing import Any, Final

from kraftlite.log.batch import iter_batches, iter_records
from tests.fuzz import batches, values
from tests.fuzz.sound import flaw
from tests.harness.wire_fakes import decode_response, request_bytes

PATIENCE_S: Final = 30.0
"""What takes milliseconds on a quiet machine; only what hangs takes all of it."""
PRODUCE, FETCH, LIST_OFFSETS, METADATA, API_VERSIONS, CREATE_TOPICS = 0, 1, 2, 3, 18, 19


class Gone(Exception):
    """The node has closed the connection."""


class Silent(Exception):
    """Nothing came within the time."""


class Conn:
    """One blocking connection."""

    def __init__(self, address: tuple[str, int]) -> None:
        self.sock = socket.create_connection(address, timeout=PATIENCE_S)
        self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._received = bytearray()

    def send(self, data: bytes, cuts: tuple[int, ...] = ()) -> None:
        """In pieces that end at `cuts`. Raises Gone."""
        self.sock.settimeout(PATIENCE_S)
        try:
            start = 0
            for end in (*cuts, len(data)):
                self.sock.sendall(data[start:end])
                start = end
        except TimeoutError:
            raise Silent("the node does not read") from None
        except OSError as error:
            raise Gone(str(error)) from None

    def frame(self, timeout_s: float = PATIENCE_S) -> bytes:
        """The next frame without its size. Raises Gone or Silent."""
        deadline = time.monotonic() + timeout_s
        while True:
            if len(self._received) >= 4:
                (size,) = struct.unpack_from(">i", self._received)
                if len(self._received) >= size + 4:
                    found = bytes(self._received[4 : size + 4])
                    del self._received[: size + 4]
                    return found
            self._more(deadline)

    def _more(self, deadline: float) -> None:
        self.sock.settimeout(max(0.001, deadline - time.monotonic()))
        try:
            data = self.sock.recv(1 << 20)
        except TimeoutError:
            raise Silent("no answer") from None
        except OSError as error:
            raise Gone(str(error)) from None
        if not data:
            raise Gone("closed")
        self._received += data

    def drain(self) -> bool:
        """Read what is there; False when the node has closed."""
        self.sock.settimeout(0.001)
        try:
            while data := self.sock.recv(1 << 20):
                self._received += data
        except TimeoutError:
            return True
        except OSError:
            return False
        return False

    def close(self) -> None:
        self.sock.close()


class Client:
    """Asks properly and waits. A connection that was closed is opened again once."""

    def __init__(self, address: tuple[str, int]) -> None:
        self.address = address
        self._conn: Conn | None = None
        self._correlation = 0

    def call(self, key: int, version: int, body: Mapping[str, Any]) -> Any:
        """Raises Gone, Silent, or OSError when nobody listens."""
        self._correlation += 1
        payload = request_bytes(key, version, body, self._correlation, "good")
        if self._conn is None:
            self._conn = Conn(self.address)
        try:
            self._conn.send(struct.pack(">i", len(payload)) + payload)
            return decode_response(key, version, self._conn.frame(), self._correlation)
        except (Gone, Silent):
            self.close()
            raise

    def close(self) -> None:
        if self._conn is not None:
            self._conn.close()
            self._conn = None


class Canary(Client):
    """Produces and reads back on a topic of its own; what was acknowledged must stay, byte for byte."""

    def __init__(self, address: tuple[str, int]) -> None:
        super().__init__(address)
        self.acknowledged: list[bytes] = []
        self._checked: dict[tuple[str, int], int] = {}

    def ping(self) -> None:
        self.call(API_VERSIONS, 0, {})

    def prepare(self) -> None:
        """All topics that are meant to exist do."""
        names = (*values.TOPICS, values.CANARY)
        flags = {"include_cluster_authorized_operations": False, "include_topic_authorized_operations": False}
        body = {"topics": [{"name": name} for name in names], "allow_auto_topic_creation": False, **flags}
        answer = self.call(METADATA, 8, body)
        missing = [str(it.name) for it in answer.topics if int(it.error_code) == 3]
        if missing:
            self.call(CREATE_TOPICS, 5, {"topics": [_topic(name) for name in missing], "timeout": 10_000, "validate_only": False})
            deadline = time.monotonic() + PATIENCE_S
            while any(p.leader_id < 0 for it in answer.topics for p in it.partitions) or any(
                int(it.error_code) for it in answer.topics
            ):
                assert time.monotonic() < deadline, f"not led: {[(it.name, it.error_code) for it in answer.topics]}"
                time.sleep(0.02)
                answer = self.call(METADATA, 8, body)

    def sing(self) -> None:
        """One record more, acknowledged and read back. Raises AssertionError."""
        value = b"canary-%d" % len(self.acknowledged)
        record = batches.Rec(offset_delta=0, key=None, value=value)
        data = batches.Batch(records=(record,)).encode()
        part = {"index": 0, "records": data}
        topic = {"name": values.CANARY, "partition_data": [part]}
        answer = self.call(PRODUCE, 8, {"transactional_id": None, "acks": -1, "timeout": 20_000, "topic_data": [topic]})
        (told,) = (it for found in answer.responses for it in found.partition_responses)
        assert int(told.error_code) == 0, f"the good client's record was refused: {told.error_code}"
        assert told.base_offset == len(self.acknowledged), f"offset {told.base_offset} for record {len(self.acknowledged)}"
        self.acknowledged.append(value)
        found = list(self.read(values.CANARY, 0, told.base_offset))
        assert found[:1] == [value], f"the good client reads {found[:1]} where it wrote {value!r}"

    def verify(self) -> None:
        """Everything that was acknowledged is there."""
        found: list[bytes] = []
        while len(found) < len(self.acknowledged):
            error, data, hw = fetch(self, values.CANARY, 0, len(found))
            more = values_of(data)
            assert more, f"the good client's topic ends at {len(found)} of {len(self.acknowledged)}: error {error}, HW {hw}"
            found += more
        assert found == self.acknowledged, "the good client's records are others now"

    def read(self, topic: str, partition: int, offset: int) -> list[bytes]:
        """The values of one fetch."""
        _error, data, _hw = fetch(self, topic, partition, offset)
        return values_of(data)

    def unsound(self) -> str | None:
        """What is wrong with what the other topics serve since this was asked last, by rules that are not the node's."""
        for topic in values.TOPICS:
            for partition in range(values.PARTITIONS):
                if wrong := self._unsound(topic, partition):
                    return f"{topic}-{partition}: {wrong}"
        return None

    def _unsound(self, topic: str, partition: int) -> str | None:
        at = self._checked.get((topic, partition), 0)
        while True:
            error, data, hw = fetch(self, topic, partition, at)
            if error == 1:  # deleted and made anew, or records were deleted
                at = self._earliest(topic, partition)
                self._checked[topic, partition] = at
                error, data, hw = fetch(self, topic, partition, at)
            if error or not data:
                short = hw > at and not error
                return f"nothing is served at {at} below the high watermark {hw}" if short else None
            end, wrong = flaw(data, at, dense="compacted" not in topic)
            if wrong is not None:
                return wrong
            if end == at:
                return f"the batch at {at} does not fit an answer of 8 MiB"
            at = self._checked[topic, partition] = end

    def _earliest(self, topic: str, partition: int) -> int:
        asked = {"partition_index": partition, "current_leader_epoch": -1, "timestamp": -2}
        body = {"replica_id": -1, "isolation_level": 0, "topics": [{"name": topic, "partitions": [asked]}]}
        answer = self.call(LIST_OFFSETS, 4, body)
        (told,) = (it for found in answer.topics for it in found.partitions)
        return max(0, int(told.offset))


def fetch(client: Client, topic: str, partition: int, offset: int) -> tuple[int, bytes, int]:
    """(error, record data, HW)."""
    asked = {
        "partition": partition,
        "current_leader_epoch": -1,
        "fetch_offset": offset,
        "log_start_offset": -1,
        "partition_max_bytes": 8 << 20,
    }
    body = {
        "replica_id": -1,
        "max_wait": 0,
        "min_bytes": 0,
        "max_bytes": 16 << 20,
        "isolation_level": 0,
        "session_id": 0,
        "session_epoch": -1,
        "topics": [{"topic": topic, "partitions": [asked]}],
        "forgotten_topics_data": [],
        "rack_id": "",
    }
    answer = client.call(FETCH, 11, body)
    (told,) = (it for found in answer.responses for it in found.partitions)
    return int(told.error_code), bytes(told.records or b""), int(told.high_watermark)


def values_of(data: bytes) -> list[bytes]:
    """By the node's own reader."""
    return [bytes(it.value or b"") for _header, raw in iter_batches(data) for it in iter_records(raw)]


def _topic(name: str) -> dict[str, Any]:
    configs = [{"name": "retention.ms", "value": "-1"}]
    if "compacted" in name:
        configs.append({"name": "cleanup.policy", "value": "compact"})
    count = 1 if name == values.CANARY else values.PARTITIONS
    return {"name": name, "num_partitions": count, "replication_factor": 1, "assignments": [], "configs": configs}
