"""A client that asks brokers whether they lead partitions, and costs next to nothing: what it asks is hardly more than bytes.

An admin client makes an object, a future and a callback for each partition, and looks for its leader first. With tens of
thousands of partitions that takes longer than the failover which is to be measured.
"""

from __future__ import annotations

import itertools
import socket
import struct
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

_API_KEY: Final = 2
_VERSION: Final = 1
_LATEST: Final = -1
_HEAD: Final = struct.Struct(">hhih")
_ASKED: Final = struct.Struct(">iq")
_ANSWERED: Final = struct.Struct(">ihqq")
EVERY_S: Final = 0.05
"""The pause of one who was told that nobody leads yet, or somebody else."""


class Asker:
    """ListOffsets of some partitions of one topic at a time, over connections that are kept."""

    def __init__(self, addresses: Mapping[int, str]) -> None:
        """`addresses`: host:port, by broker."""
        self._addresses = addresses
        self._sockets: dict[int, socket.socket] = {}
        self._ids = itertools.count(1)

    def close(self) -> None:
        for connection in self._sockets.values():
            connection.close()
        self._sockets.clear()

    def led(self, topic: str, asked: Mapping[int, Sequence[int]]) -> list[int]:
        """Return those of the partitions that a broker answers for as their leader. `asked`: by broker; all are asked at once."""
        name = topic.encode()
        numbers = {broker: self._ask(broker, name, partitions) for broker, partitions in asked.items()}
        answers = [self._answers(self._answer(broker, number), len(name)) for broker, number in numbers.items()]
        return [index for answer in answers for index, error in answer if not error]

    def _answers(self, answer: bytes, name_bytes: int) -> Iterator[tuple[int, int]]:
        position = 4 + 2 + name_bytes
        (count,) = struct.unpack_from(">i", answer, position)
        for number in range(count):
            index, error, _, _ = _ANSWERED.unpack_from(answer, position + 4 + number * _ANSWERED.size)
            yield index, error

    def _ask(self, broker: int, name: bytes, partitions: Sequence[int]) -> int:
        number = next(self._ids)
        head = _HEAD.pack(_API_KEY, _VERSION, number, -1)
        body = struct.pack(">iih", -1, 1, len(name)) + name + struct.pack(">i", len(partitions))
        request = head + body + b"".join(_ASKED.pack(index, _LATEST) for index in partitions)
        self._connection(broker).sendall(struct.pack(">i", len(request)) + request)
        return number

    def _answer(self, broker: int, number: int) -> bytes:
        connection = self._connection(broker)
        (size,) = struct.unpack(">i", self._read(connection, 4))
        answer = self._read(connection, size)
        assert struct.unpack_from(">i", answer) == (number,), "the answer to another request"
        return answer[4:]

    def _connection(self, broker: int) -> socket.socket:
        found = self._sockets.get(broker)
        if found is None:
            host, port = self._addresses[broker].rsplit(":", 1)
            found = self._sockets[broker] = socket.create_connection((host, int(port)), timeout=60)
            found.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return found

    @staticmethod
    def _read(connection: socket.socket, size: int) -> bytes:
        parts = bytearray()
        while len(parts) < size:
            part = connection.recv(size - len(parts))
            if not part:
                raise ConnectionError("the broker has closed the connection")
            parts += part
        return bytes(parts)


Candidates = Mapping[str, Mapping[int, Sequence[int]]]
"""Topic, partition: the brokers that may lead it, the likeliest first."""


def all_led(asker: Asker, candidates: Candidates, timeout_s: float) -> float:
    """Return when each partition is answered for by one of its candidates; the moment (`perf_counter`) of the first of them."""
    deadline = time.perf_counter() + timeout_s
    first = 0.0
    for topic, partitions in candidates.items():
        turns = {index: itertools.cycle(brokers) for index, brokers in partitions.items()}
        left = dict.fromkeys(partitions)
        while left:
            by_broker: dict[int, list[int]] = {}
            for index in left if first else list(left)[:1]:  # one is enough as long as nobody leads
                by_broker.setdefault(next(turns[index]), []).append(index)
            for index in asker.led(topic, by_broker):
                first = first or time.perf_counter()
                del left[index]
            if left:
                if time.perf_counter() > deadline:
                    raise RuntimeError(f"not within {timeout_s} s: {topic}, {len(left)} partitions")
                time.sleep(EVERY_S)
    return first
