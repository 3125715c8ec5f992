"""A transactional producer beside the damaged files: its id goes on through every repair, and what it committed stays committed.

Its state is in `__transaction_state`, whose files are damaged as all others; two of three brokers still have them.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from kraftlite.log.batch import check_crc, iter_batches, iter_records
from kraftlite.testing import SyncCluster
from tests.fuzz.batches import Batch, Rec
from tests.fuzz.client import PRODUCE, Client, Gone, Silent, fetch

TOPIC: Final = "paid"
NAME: Final = "payer"
PATIENCE_S: Final = 20.0
FIND, INIT, ADD, END, DESCRIBE = 10, 22, 24, 26, 65


@dataclass(slots=True)
class Payer:
    """One transactional id; each payment is a transaction of its own over all partitions of `paid`."""

    cluster: SyncCluster
    partitions: int
    committed: list[bytes] = field(default_factory=list)

    def pay(self) -> None:
        """One transaction more, of a new instance. Raises AssertionError when it cannot be committed."""
        value = b"payment-%d" % len(self.committed)
        deadline = time.monotonic() + PATIENCE_S
        told = "nothing"
        while time.monotonic() < deadline:
            try:
                told = self._try_to_pay(value)
            except (Gone, Silent, OSError) as error:
                told = f"{type(error).__name__}: {error}"
            if not told:
                self.committed.append(value)
                return
            time.sleep(0.05)
        raise AssertionError(f"{NAME} cannot pay: {told}")

    def _try_to_pay(self, value: bytes) -> str:
        """Empty when it is committed. What is refused is tried again by the next instance, which aborts what this one left."""
        where = self._ask(1, FIND, 3, {"key": NAME, "key_type": 1})
        if int(where.error_code):
            return f"no coordinator: {int(where.error_code)}"
        node = int(where.node_id)
        has = {"producer_id": -1, "producer_epoch": -1}
        began = self._ask(node, INIT, 4, {"transactional_id": NAME, "transaction_timeout": 60_000, **has})
        if int(began.error_code):
            return f"InitProducerId: {int(began.error_code)}"
        identity = {"producer_id": began.producer_id, "producer_epoch": began.producer_epoch}
        old = {f"v3_and_below_{name}": it for name, it in {"transactional_id": NAME, **identity}.items()}
        topics = [{"name": TOPIC, "partitions": list(range(self.partitions))}]
        added = self._ask(node, ADD, 3, {**old, "v3_and_below_topics": topics})
        errors = [int(it.partition_error_code) for t in added.results_by_topic_v3_and_below for it in t.results_by_partition]
        if any(errors):
            return f"AddPartitionsToTxn: {errors}"
        for partition in range(self.partitions):
            if error := self._produce(partition, value, identity):
                return f"Produce: {error}"
        ended = int(self._ask(node, END, 3, {"transactional_id": NAME, **identity, "committed": True}).error_code)
        return f"EndTxn: {ended}" if ended else self._carried_out(node)

    def _produce(self, partition: int, value: bytes, identity: Mapping[str, Any]) -> int:
        record = Rec(offset_delta=0, key=None, value=value)
        data = Batch(records=(record,), attributes=0x10, base_sequence=0, **identity).encode()
        part = {"name": TOPIC, "partition_data": [{"index": partition, "records": data}]}
        leader = self.cluster.leader(TOPIC, partition)
        if leader is None:
            return -1
        answer = self._ask(leader, PRODUCE, 8, {"transactional_id": NAME, "acks": -1, "timeout": 5000, "topic_data": [part]})
        return int(answer.responses[0].partition_responses[0].error_code)

    def _carried_out(self, node: int) -> str:
        """It is decided: a repeated payment would be another one."""

        def done() -> bool:
            (state,) = self._ask(node, DESCRIBE, 0, {"transactional_ids": [NAME]}).transaction_states
            return bool(state.transaction_state == "CompleteCommit")

        _until("the payment is carried out", done)
        return ""

    def check(self) -> None:
        """Every committed payment is in each partition, once."""
        for partition in range(self.partitions):
            leader = self.cluster.leader(TOPIC, partition)
            assert leader is not None, f"{TOPIC}-{partition} has no leader"
            found = self._read(leader, partition)
            if found is None:
                continue
            for value in self.committed:
                assert value in found, f"{TOPIC}-{partition} has lost {value!r}"

    def _read(self, leader: int, partition: int) -> list[bytes] | None:
        """None: a reader that checks CRCs notices, as with any batch that was closed in order and changed afterwards (LG-27)."""
        client, at, found = self._client(leader), 0, list[bytes]()
        try:
            while True:
                _error, data, hw = fetch(client, TOPIC, partition, at)
                for header, raw in iter_batches(data):
                    if not check_crc(raw, header):
                        return None
                    at = header.next_offset
                    if not header.is_control:
                        found += [bytes(it.value or b"") for it in iter_records(raw)]
                if at >= hw or not data:
                    return found
        finally:
            client.close()

    def _ask(self, node: int, key: int, version: int, values: Mapping[str, Any]) -> Any:
        client = self._client(node)
        try:
            return client.call(key, version, dict(values))
        finally:
            client.close()

    def _client(self, node: int) -> Client:
        if node not in self.cluster.nodes or self.cluster.nodes[node].kafka is None:
            node = next(it for it in self.cluster.nodes if self.cluster.nodes[it].kafka is not None)
        host, _, port = str(self.cluster.nodes[node].kafka).rpartition(":")
        return Client((host, int(port)))


def _until(what: str, holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not holds():
        assert time.monotonic() < deadline, f"never: {what}"
        time.sleep(0.02)
