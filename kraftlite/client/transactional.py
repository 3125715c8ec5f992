"""The producer's side of transactions: taking an id over, adding partitions, ending.

The rules of `transaction.version` 0 and 1 are spoken, which brokers of all releases know: a transaction's partitions are added
before they are written to, and its end leaves the epoch as it is. Whoever begins each transaction with `init_transactions` has an
epoch for each all the same. A broker that does not verify what is written in transactions is refused, because there a late
write of a transaction could become a part of the one after it.

Source: KIP-98, KIP-360, KIP-890.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from kraftlite.client.connection import Connection, code_of
from kraftlite.client.errors import ClientError
from kraftlite.client.routing import FAILURES, RetryBudget, Routing, told
from kraftlite.model.errors import ErrorCode, error_code
from kraftlite.model.producer import Producer
from kraftlite.model.topic_partition import TopicPartition, by_topic
from kraftlite.protocol.api_keys import ADD_PARTITIONS_TO_TXN, END_TXN, INIT_PRODUCER_ID
from kraftlite.protocol.errors import ProtocolViolation

VERIFYING_VERSION: Final = 4
"""The version of AddPartitionsToTxn that brokers which verify transactions offer one another."""
ENDED_OTHERWISE: Final = frozenset(
    {
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.PRODUCER_FENCED,
        ErrorCode.INVALID_PRODUCER_ID_MAPPING,
        ErrorCode.INVALID_TXN_STATE,
        ErrorCode.TRANSACTIONAL_ID_NOT_FOUND,
    }
)
"""The answers by which a coordinator says for good that a producer cannot end its transaction so: it was fenced, has timed out,
or was ended in the other way."""

E = ErrorCode


class Transactional(Routing):
    """A client that talks to coordinators of transactions. Methods raise ClientError when they fail for good."""

    def init_transactions(self, transactional_id: str, timeout_ms: int) -> Producer:
        """Take an id over. When it returns, every other producer of the id is fenced, and their transactions have ended, in every
        partition. `timeout_ms`: how long a transaction of the id may be open."""
        producer = {"producer_id": -1, "producer_epoch": -1}
        values = {"transactional_id": transactional_id, "transaction_timeout": timeout_ms, **producer}
        budget = self._budget(f"take over transactional id {transactional_id}")
        answer = self._ask_of_transactions(transactional_id, INIT_PRODUCER_ID, values, budget, code_of)
        found = Producer(int(answer.producer_id), int(answer.producer_epoch))
        if min(found) < 0:
            raise ClientError(f"transactional id {transactional_id}: the coordinator gave {found}")
        return found

    def add_partitions(self, transactional_id: str, producer: Producer, tps: Iterable[TopicPartition]) -> None:
        """Make these a part of the producer's transaction, which the first call begins. Idempotent."""
        wanted = sorted({*tps})
        if not wanted:
            return
        topics = [{"name": name, "partitions": [tp.partition for tp in them]} for name, them in by_topic(wanted).items()]
        values = {
            "v3_and_below_transactional_id": transactional_id,
            "v3_and_below_producer_id": producer.producer_id,
            "v3_and_below_producer_epoch": producer.producer_epoch,
            "v3_and_below_topics": topics,
        }
        budget = self._budget(f"add partitions to a transaction of {transactional_id}")
        self._ask_of_transactions(transactional_id, ADD_PARTITIONS_TO_TXN, values, budget, _added(wanted))

    def end_transaction(self, transactional_id: str, producer: Producer, *, commit: bool) -> bool:
        """Return whether the producer's transaction has ended so, now or at an earlier call; False: it has ended in the other
        way, or another producer has taken the id over. Raises ClientError when neither is known."""
        values = {
            "transactional_id": transactional_id,
            "producer_id": producer.producer_id,
            "producer_epoch": producer.producer_epoch,
            "committed": commit,
        }
        budget = self._budget(f"{'commit' if commit else 'abort'} of a transaction of {transactional_id}")
        try:
            self._ask_of_transactions(transactional_id, END_TXN, values, budget, code_of)
        except ClientError as error:
            if error.code not in ENDED_OTHERWISE:
                raise
            return False
        return True

    def _ask_of_transactions(
        self,
        transactional_id: str,
        api_key: int,
        values: Mapping[str, object],
        budget: RetryBudget,
        code: Callable[[Any], ErrorCode],
    ) -> Any:
        """The answer of the id's coordinator, who is asked again while `code` of it says that it may go better elsewhere or
        later."""
        while True:
            address = self._transaction_coordinators.get(transactional_id)
            if address is None:
                address = self._find_coordinator(transactional_id, budget, of_transactions=True)
            deadline = budget.deadline()
            try:
                connection = self._connect(address, deadline)
                check_verifies(connection)
                answer = connection.ask(api_key, values, deadline)
                found = code(answer)
            except FAILURES as error:
                self._lost(address)
                self._transaction_coordinators.pop(transactional_id, None)
                budget.pause(told(address, error), E.NETWORK_EXCEPTION)
                continue
            if found is E.NONE:
                return answer
            if found is not E.CONCURRENT_TRANSACTIONS:
                self._transaction_coordinators.pop(transactional_id, None)
                if not found.retriable:
                    raise ClientError(f"transactional id {transactional_id}: {found.name}", found)
            budget.pause(found.name, found)


def _added(wanted: list[TopicPartition]) -> Callable[[Any], ErrorCode]:
    """The error of an AddPartitionsToTxn: the first that says why, or none. Raises ProtocolViolation when one is missing."""

    def code(answer: Any) -> ErrorCode:
        codes = {
            TopicPartition(str(topic.name), int(one.partition_index)): error_code(int(one.partition_error_code))
            for topic in answer.results_by_topic_v3_and_below
            for one in topic.results_by_partition
        }
        if sorted(codes) != wanted:
            raise ProtocolViolation(f"answers for {sorted(codes)}, not for {wanted}")
        bad = [it for _, it in sorted(codes.items()) if it is not E.NONE]
        return next((it for it in bad if it is not E.OPERATION_NOT_ATTEMPTED), bad[0] if bad else E.NONE)

    return code


def check_verifies(connection: Connection) -> None:
    """Raises ClientError for a broker that would let a late write into the transaction after its own."""
    if not connection.offers(ADD_PARTITIONS_TO_TXN, VERIFYING_VERSION):
        text = "the broker does not verify what is written in transactions: Apache Kafka 3.6 or newer, or kraftlite, is needed"
        raise ClientError(text, E.UNSUPPORTED_VERSION)
