"""Transactions over the wire, in every version that is offered: the answers of coordinators, and their translation."""

from __future__ import annotations

from typing import Any

import pytest

from kraftlite.coordinator.core.placement import OFFSETS_TOPIC, TRANSACTION_TOPIC, partition_for
from kraftlite.log.batch import parse_header
from kraftlite.log.guards import TransactionTerms
from kraftlite.model.errors import ErrorCode
from kraftlite.model.messages import controller as c
from kraftlite.model.messages import methods as m
from kraftlite.model.producer import Producer
from kraftlite.model.topic_partition import TopicPartition
from kraftlite.runtime.trace.wire import AutoTopicCreationRequested
from tests.harness.offsets_log import GroupHarness
from tests.harness.wire_fakes import RawClient, broker, partition

E = ErrorCode
FIND, INIT, ADD, ADD_OFFSETS, END, MARKERS, COMMIT, DESCRIBE, LIST = 10, 22, 24, 25, 26, 27, 28, 65, 66
TOPICS = {TRANSACTION_TOPIC: [partition([1])] * 2, OFFSETS_TOPIC: [partition([1])] * 3, "t": [partition([1])] * 3}
P = Producer(7, 3)
IDENTITY = {"transactional_id": "x", "producer_id": 7, "producer_epoch": 3}


def code(answer: Any, name: str = "error_code") -> ErrorCode:
    return ErrorCode(int(getattr(answer, name)))


def transactions(**options: Any) -> GroupHarness:
    return GroupHarness(TOPICS, **options)


# --- FindCoordinator -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", range(1, 7))
async def test_tx_01_the_coordinator_leads_the_partition_of_the_id(version: int) -> None:
    topics = {TRANSACTION_TOPIC: [partition([1]), partition([2]), partition([3], leader=None)]}
    async with GroupHarness(topics) as h:
        client = await h.client()
        names = ["a", "b", "c"]  # java: 97, 98 and 99
        if version < 4:
            found = [await client.call(FIND, version, {"key": name, "key_type": 1}) for name in names]
        else:
            found = list((await client.call(FIND, version, {"key_type": 1, "coordinator_keys": names})).coordinators)
        assert [(code(one), one.node_id) for one in found] == [(E.NONE, 2), (E.COORDINATOR_NOT_AVAILABLE, -1), (E.NONE, 1)]


async def test_tx_64_a_look_up_finds_ids_where_they_were_before_the_topic_grew() -> None:
    async with transactions() as h:
        await h.apply({TRANSACTION_TOPIC: [partition([1]), partition([2]), partition([3], leader=None)]})
        client = await h.client()
        h.transactions.partitions = 1
        for name in ("a", "b", "c", ""):
            answer = await client.call(FIND, 3, {"key": name, "key_type": 1})
            assert (code(answer), answer.node_id) == (E.NONE, 1)


async def test_tx_02_the_first_look_up_creates_the_topic() -> None:
    config = {
        "transaction.state.log.num.partitions": "7",
        "transaction.state.log.replication.factor": "1",
        "transaction.state.log.min.isr": "1",
        "transaction.state.log.segment.bytes": "4096",
    }
    async with GroupHarness({}, config=config) as h:
        h.controller.answers[m.CREATE_TOPICS] = lambda request: c.CreateTopicsResponse(
            topics=tuple(c.CreatableTopicResult(name=topic.name, error=E.NONE) for topic in request.topics)
        )
        client = await h.client()
        assert code(await client.call(FIND, 1, {"key": "x", "key_type": 1})) is E.COORDINATOR_NOT_AVAILABLE
        ((method, request, _),) = h.controller.calls
        (topic,) = request.topics
        assert method == m.CREATE_TOPICS
        assert (topic.name, topic.num_partitions, topic.replication_factor) == (TRANSACTION_TOPIC, 7, 1)
        assert {config.name: config.value for config in topic.configs} == {
            "cleanup.policy": "compact",
            "compression.type": "uncompressed",
            "unclean.leader.election.enable": "false",
            "min.insync.replicas": "1",
            "segment.bytes": "4096",
        }


async def test_tx_01_a_fenced_coordinator_is_not_available() -> None:
    async with GroupHarness({TRANSACTION_TOPIC: [partition([2])]}, brokers=[broker(1), broker(2, fenced=True)]) as h:
        answer = await (await h.client()).call(FIND, 1, {"key": "x", "key_type": 1})
        assert code(answer) is E.COORDINATOR_NOT_AVAILABLE


# --- InitProducerId ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", range(6))
async def test_tx_10_init_producer_id_with_a_transactional_id(version: int) -> None:
    async with transactions() as h:
        client = await h.client()
        wanted = {"transactional_id": "x", "transaction_timeout": 60_000}
        answer = await client.call(INIT, version, wanted | {"producer_id": -1, "producer_epoch": -1})
        assert (code(answer), answer.producer_id, answer.producer_epoch) == (E.NONE, 7, 3)
        assert h.transactions.asked == [("init", {"id": "x", "timeout_ms": 60_000, "expected": None})]
        if version >= 3:
            await client.call(INIT, version, wanted | {"producer_id": 5, "producer_epoch": 2})
            assert h.transactions.asked[-1][1]["expected"] == Producer(5, 2)
            for half in ({"producer_id": 5, "producer_epoch": -1}, {"producer_id": -1, "producer_epoch": 2}):
                assert code(await client.call(INIT, version, wanted | half)) is E.INVALID_REQUEST


@pytest.mark.parametrize("version", range(6))
async def test_tx_18_older_clients_know_a_fenced_producer_by_its_epoch(version: int) -> None:
    async with transactions() as h:
        h.transactions.error = E.PRODUCER_FENCED
        answer = await (await h.client()).call(
            INIT, version, {"transactional_id": "x", "transaction_timeout": 1, "producer_id": 7, "producer_epoch": 2}
        )
        assert code(answer) is (E.PRODUCER_FENCED if version >= 4 else E.INVALID_PRODUCER_EPOCH)
        assert (answer.producer_id, answer.producer_epoch) == (-1, -1)


async def test_tx_10_the_order_of_checks() -> None:
    async with transactions(config={"transaction.max.timeout.ms": "1000"}) as h:
        client = await h.client()

        async def init(**values: Any) -> ErrorCode:
            wanted = {"transactional_id": "x", "transaction_timeout": 1000, "producer_id": -1, "producer_epoch": -1} | values
            return code(await client.call(INIT, 5, wanted))

        assert await init(transactional_id="", transaction_timeout=0) is E.INVALID_REQUEST
        for timeout in (0, -1, 1001):
            assert await init(transaction_timeout=timeout) is E.INVALID_TRANSACTION_TIMEOUT
        assert h.transactions.asked == []
        h.transactions.error = E.CONCURRENT_TRANSACTIONS
        assert await init() is E.CONCURRENT_TRANSACTIONS
        await h.apply({})
        assert await init() is E.NOT_COORDINATOR, "there is no topic to coordinate by"


# --- AddPartitionsToTxn --------------------------------------------------------------------------------------------------


async def add(client: RawClient, version: int, *partitions: tuple[str, list[int]], verify: bool = False) -> dict[Any, ErrorCode]:
    topics = [{"name": name, "partitions": indexes} for name, indexes in partitions]
    if version < 4:
        old = {f"v3_and_below_{name}": value for name, value in IDENTITY.items()}
        found = (await client.call(ADD, version, old | {"v3_and_below_topics": topics})).results_by_topic_v3_and_below
    else:
        answer = await client.call(ADD, version, {"transactions": [{**IDENTITY, "verify_only": verify, "topics": topics}]})
        (one,) = answer.results_by_transaction
        assert code(answer) is E.NONE and one.transactional_id == "x"
        found = one.topic_results
    return {
        (topic.name, one.partition_index): code(one, "partition_error_code")
        for topic in found
        for one in topic.results_by_partition
    }


@pytest.mark.parametrize("version", range(6))
async def test_tx_30_partitions_are_added(version: int) -> None:
    async with transactions() as h:
        client = await h.client()
        assert await add(client, version, ("t", [0, 2])) == {("t", 0): E.NONE, ("t", 2): E.NONE}
        assert h.transactions.asked == [
            (
                "add",
                {
                    "id": "x",
                    "producer": P,
                    "partitions": {TopicPartition("t", 0), TopicPartition("t", 2)},
                    "version": 2 if version >= 4 else 0,
                },
            )
        ]


@pytest.mark.parametrize("version", range(6))
async def test_tx_30_a_partition_that_is_asked_for_twice_is_answered_twice(version: int) -> None:
    """The client that asks looks for as many answers; the coordinator is asked once."""
    topics = [{"name": "t", "partitions": [1, 1, 0]}, {"name": "t", "partitions": [1]}]
    async with transactions() as h:
        client = await h.client()
        if version < 4:
            old = {f"v3_and_below_{name}": value for name, value in IDENTITY.items()}
            found = (await client.call(ADD, version, old | {"v3_and_below_topics": topics})).results_by_topic_v3_and_below
        else:
            answer = await client.call(ADD, version, {"transactions": [{**IDENTITY, "verify_only": False, "topics": topics}]})
            found = answer.results_by_transaction[0].topic_results
        (topic,) = found
        assert [it.partition_index for it in topic.results_by_partition] == [1, 1, 0, 1]
        ((_, asked),) = h.transactions.asked
        assert asked["partitions"] == {TopicPartition("t", 0), TopicPartition("t", 1)}


@pytest.mark.parametrize("version", [4, 5])
async def test_tx_34_a_partition_that_is_to_be_verified_twice_is_answered_once(version: int) -> None:
    topics = [{"name": "t", "partitions": [1, 1, 0]}]
    async with transactions() as h:
        client = await h.client()
        answer = await client.call(ADD, version, {"transactions": [{**IDENTITY, "verify_only": True, "topics": topics}]})
        (topic,) = answer.results_by_transaction[0].topic_results
        assert [it.partition_index for it in topic.results_by_partition] == [1, 0]


@pytest.mark.parametrize("version", range(6))
async def test_tx_31_one_bad_partition_and_none_is_added(version: int) -> None:
    async with transactions() as h:
        client = await h.client()
        assert await add(client, version, ("t", [0, 9]), ("nosuch", [0])) == {
            ("t", 0): E.OPERATION_NOT_ATTEMPTED,
            ("t", 9): E.UNKNOWN_TOPIC_OR_PARTITION,
            ("nosuch", 0): E.UNKNOWN_TOPIC_OR_PARTITION,
        }
        assert h.transactions.asked == []
        internal = await add(client, version, ("t", [1]), (OFFSETS_TOPIC, [0]))
        if version < 4:
            assert internal == {("t", 1): E.OPERATION_NOT_ATTEMPTED, (OFFSETS_TOPIC, 0): E.TOPIC_AUTHORIZATION_FAILED}
        else:
            assert internal == {("t", 1): E.NONE, (OFFSETS_TOPIC, 0): E.NONE}, "brokers may"


@pytest.mark.parametrize("version", range(6))
@pytest.mark.parametrize("error", [E.PRODUCER_FENCED, E.CONCURRENT_TRANSACTIONS, E.INVALID_PRODUCER_ID_MAPPING])
async def test_tx_33_a_refusal_is_every_partitions_error(version: int, error: ErrorCode) -> None:
    async with transactions() as h:
        h.transactions.error = error
        told = E.INVALID_PRODUCER_EPOCH if version < 2 and error is E.PRODUCER_FENCED else error
        assert await add(await h.client(), version, ("t", [0, 1])) == {("t", 0): told, ("t", 1): told}


@pytest.mark.parametrize("version", [4, 5])
async def test_tx_34_verification_says_it_of_each_partition(version: int) -> None:
    async with transactions() as h:
        h.transactions.verified = {TopicPartition("t", 1): E.TRANSACTION_ABORTABLE}
        found = await add(await h.client(), version, ("t", [0, 1]), verify=True)
        assert found == {("t", 0): E.NONE, ("t", 1): E.TRANSACTION_ABORTABLE}
        assert [what for what, _ in h.transactions.asked] == ["verify"]


async def test_tx_30_several_transactions_in_one_request() -> None:
    async with transactions() as h:
        client = await h.client()

        def one(name: str, topic: str) -> dict[str, Any]:
            topics = [{"name": topic, "partitions": [0]}]
            return {**IDENTITY, "transactional_id": name, "verify_only": False, "topics": topics}

        answer = await client.call(ADD, 5, {"transactions": [one("a", "t"), one("", "t"), one("c", "nosuch")]})
        found = {it.transactional_id: it.topic_results[0].results_by_partition[0] for it in answer.results_by_transaction}
        assert {name: code(it, "partition_error_code") for name, it in found.items()} == {
            "a": E.NONE,
            "": E.INVALID_REQUEST,
            "c": E.UNKNOWN_TOPIC_OR_PARTITION,
        }
        assert (await client.call(ADD, 5, {"transactions": []})).results_by_transaction == ()


# --- AddOffsetsToTxn, EndTxn ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", range(5))
async def test_tx_35_the_partition_of_the_group_is_added(version: int) -> None:
    async with transactions() as h:
        client = await h.client()
        for group in ("g", "another"):
            assert code(await client.call(ADD_OFFSETS, version, {**IDENTITY, "group_id": group})) is E.NONE
            wanted = {TopicPartition(OFFSETS_TOPIC, partition_for(group, 3))}
            assert h.transactions.asked[-1] == ("add", {"id": "x", "producer": P, "partitions": wanted, "version": 0})
        h.transactions.error = E.PRODUCER_FENCED
        answer = await client.call(ADD_OFFSETS, version, {**IDENTITY, "group_id": "g"})
        assert code(answer) is (E.PRODUCER_FENCED if version >= 2 else E.INVALID_PRODUCER_EPOCH)
        answer = await client.call(ADD_OFFSETS, version, {**IDENTITY, "transactional_id": "", "group_id": "g"})
        assert code(answer) is E.INVALID_REQUEST


async def test_tx_35_a_topic_of_offsets_that_is_not_there_yet_is_created_and_nothing_added() -> None:
    """Clients add a group before anybody looks for its coordinator. A partition that the coordinator of the transaction does not
    know would count as deleted at its end, and get no marker."""
    topics = {name: partitions for name, partitions in TOPICS.items() if name != OFFSETS_TOPIC}
    async with GroupHarness(topics, config={"offsets.topic.num.partitions": "5"}) as h:
        client = await h.client()
        assert code(await client.call(ADD_OFFSETS, 3, {**IDENTITY, "group_id": "g"})) is E.COORDINATOR_NOT_AVAILABLE
        assert h.transactions.asked == []
        created = [it for it in h.tracer.events if isinstance(it, AutoTopicCreationRequested)]
        assert [it.topics for it in created] == [(OFFSETS_TOPIC,)]


@pytest.mark.parametrize("version", range(6))
@pytest.mark.parametrize("commit", [True, False])
async def test_tx_40_end_of_a_transaction(version: int, commit: bool) -> None:
    async with transactions() as h:
        client = await h.client()
        h.transactions.producer = Producer(7, 4)
        answer = await client.call(END, version, {**IDENTITY, "committed": commit})
        assert code(answer) is E.NONE
        asked = {"id": "x", "producer": P, "commit": commit, "version": 2 if version >= 5 else 0}
        assert h.transactions.asked == [("end", asked)]
        if version >= 5:
            assert (answer.producer_id, answer.producer_epoch) == (7, 4)
        h.transactions.error = E.PRODUCER_FENCED
        answer = await client.call(END, version, {**IDENTITY, "committed": commit})
        assert code(answer) is (E.PRODUCER_FENCED if version >= 2 else E.INVALID_PRODUCER_EPOCH)
        if version >= 5:
            assert (answer.producer_id, answer.producer_epoch) == (-1, -1)
        h.transactions.error = None
        assert (
            code(await client.call(END, version, {**IDENTITY, "transactional_id": "", "committed": commit})) is E.INVALID_REQUEST
        )


# --- TxnOffsetCommit -----------------------------------------------------------------------------------------------------


async def commit(client: RawClient, version: int, *offsets: tuple[str, int, int], **values: Any) -> list[ErrorCode]:
    topics = [
        {
            "name": name,
            "partitions": [
                {
                    "partition_index": index,
                    "committed_offset": offset,
                    "committed_leader_epoch": -1,
                    "committed_metadata": "here",
                }
            ],
        }
        for name, index, offset in offsets
    ]
    member = {"group_id": "g", "generation_id": -1, "member_id": "", "group_instance_id": None}
    answer = await client.call(COMMIT, version, {**IDENTITY, **member, "topics": topics} | values)
    return [code(one) for topic in answer.topics for one in topic.partitions]


def fetched(h: GroupHarness, *, stable: bool) -> tuple[int, ErrorCode]:
    (found,) = h.groups.fetch_offsets("g", [TopicPartition("t", 0)], require_stable=stable)
    return found.offset, found.error


@pytest.mark.parametrize("version", range(6))
async def test_tg_01_offsets_of_a_transaction(version: int) -> None:
    async with transactions() as h:
        client = await h.client()
        assert await commit(client, version, ("t", 0, 5), ("nosuch", 0, 5), ("t", 9, 5)) == [
            E.NONE,
            E.UNKNOWN_TOPIC_OR_PARTITION,
            E.UNKNOWN_TOPIC_OR_PARTITION,
        ]
        index = partition_for("g", 3)
        identity = ("x", 7, 3)
        wanted = (identity, TopicPartition(OFFSETS_TOPIC, index), 2 if version >= 5 else 0)
        assert h.replicas.enroller.asked == [wanted]
        (batch,) = h.log.at(index).batches
        header = parse_header(batch)
        assert header.is_transactional and not header.is_control
        assert (header.producer_id, header.producer_epoch, header.base_sequence) == (7, 3, -1)
        assert h.log.terms == [TransactionTerms()]
        assert fetched(h, stable=False) == (-1, E.NONE)
        assert fetched(h, stable=True) == (-1, E.UNSTABLE_OFFSET_COMMIT)


async def test_tg_01_the_order_of_checks() -> None:
    async with transactions() as h:
        client = await h.client()
        h.replicas.enroller.error = E.INVALID_PRODUCER_ID_MAPPING
        both = ("t", 0, 5), ("nosuch", 0, 5)
        assert await commit(client, 3, *both, group_id="") == [E.INVALID_GROUP_ID, E.UNKNOWN_TOPIC_OR_PARTITION]
        assert h.replicas.enroller.asked == []
        refused = [E.INVALID_PRODUCER_ID_MAPPING, E.UNKNOWN_TOPIC_OR_PARTITION]
        assert await commit(client, 3, *both, generation_id=4, member_id="m") == refused, "the transaction comes before the group"
        h.replicas.enroller.error = None
        found = await commit(client, 3, *both, generation_id=4, member_id="m")
        assert found == [E.ILLEGAL_GENERATION, E.UNKNOWN_TOPIC_OR_PARTITION]
        assert await commit(client, 3, ("nosuch", 0, 5), group_id="") == [E.UNKNOWN_TOPIC_OR_PARTITION]
        assert h.log.at(partition_for("g", 3)).batches == []


@pytest.mark.parametrize("version", range(6))
@pytest.mark.parametrize(
    ("error", "told"),
    [
        (E.PRODUCER_FENCED, E.INVALID_PRODUCER_EPOCH),
        (E.INVALID_PRODUCER_EPOCH, E.INVALID_PRODUCER_EPOCH),
        (E.NETWORK_EXCEPTION, E.COORDINATOR_LOAD_IN_PROGRESS),
        (E.COORDINATOR_LOAD_IN_PROGRESS, E.COORDINATOR_LOAD_IN_PROGRESS),
        (E.NOT_COORDINATOR, E.NOT_COORDINATOR),
        (E.NOT_LEADER_OR_FOLLOWER, E.NOT_COORDINATOR),
        (E.CONCURRENT_TRANSACTIONS, E.CONCURRENT_TRANSACTIONS),
        (E.INVALID_TXN_STATE, E.INVALID_TXN_STATE),
        (E.TRANSACTION_ABORTABLE, E.TRANSACTION_ABORTABLE),
    ],
)
async def test_tg_03_what_the_transactions_coordinator_says(version: int, error: ErrorCode, told: ErrorCode) -> None:
    if told is E.COORDINATOR_LOAD_IN_PROGRESS and version < 2:
        told = E.COORDINATOR_NOT_AVAILABLE  # KAFKA-7296
    if error is E.TRANSACTION_ABORTABLE and version < 4:
        told = E.INVALID_TXN_STATE
    async with transactions() as h:
        h.replicas.enroller.error = error
        assert await commit(await h.client(), version, ("t", 0, 5)) == [told]
        assert h.log.at(partition_for("g", 3)).batches == []


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (E.INVALID_PRODUCER_EPOCH, E.INVALID_PRODUCER_EPOCH),
        (E.INVALID_TXN_STATE, E.INVALID_TXN_STATE),
        (E.NOT_LEADER_OR_FOLLOWER, E.NOT_COORDINATOR),
        (E.NOT_ENOUGH_REPLICAS, E.COORDINATOR_NOT_AVAILABLE),
    ],
)
async def test_tg_03_what_the_log_says(error: ErrorCode, told: ErrorCode) -> None:
    async with transactions() as h:
        h.log.at(partition_for("g", 3)).error = error
        assert await commit(await h.client(), 3, ("t", 0, 5)) == [told]
        assert fetched(h, stable=True) == (-1, E.NONE)


async def test_tg_03_metadata_that_is_too_large_is_one_partitions_error() -> None:
    async with transactions(config={"offset.metadata.max.bytes": "3"}) as h:
        assert await commit(await h.client(), 3, ("t", 0, 5)) == [E.OFFSET_METADATA_TOO_LARGE]


@pytest.mark.parametrize("version", range(6))
async def test_tg_03_a_group_that_is_being_loaded(version: int) -> None:
    async with transactions(automatic=False) as h:
        await h.apply({**TOPICS, OFFSETS_TOPIC: [partition([1], leader_epoch=1)] * 3})
        h.log.write(partition_for("g", 3), b"".join(h.log.at(0).batches) or _batch())
        await h.apply({**TOPICS, OFFSETS_TOPIC: [partition([1], leader_epoch=2)] * 3})
        told = E.COORDINATOR_LOAD_IN_PROGRESS if version >= 2 else E.COORDINATOR_NOT_AVAILABLE
        assert await commit(await h.client(), version, ("t", 0, 5)) == [told]
        assert h.replicas.enroller.asked == []


def _batch() -> bytes:
    from kraftlite.coordinator.records import CommittedOffset, offset_record
    from kraftlite.log.batch import Record, build_batch

    record = offset_record("g", TopicPartition("t", 0), CommittedOffset(1, None, "", 1))
    return build_batch([Record(record.key, record.value)], timestamp_ms=1)


async def test_ta_11_the_versions_that_are_offered_are_those_of_kafka() -> None:
    async with transactions() as h:
        answer = await (await h.client()).call(18, 0, {})
        ranges = {key.api_key: (key.min_version, key.max_version) for key in answer.api_keys}
        assert {key: ranges[key] for key in (FIND, INIT, ADD, ADD_OFFSETS, END, MARKERS, COMMIT, 61, DESCRIBE, LIST)} == {
            FIND: (0, 6),
            INIT: (0, 5),
            ADD: (0, 5),
            ADD_OFFSETS: (0, 4),
            END: (0, 5),
            MARKERS: (1, 2),
            COMMIT: (0, 5),
            61: (0, 0),
            DESCRIBE: (0, 0),
            LIST: (0, 2),
        }
