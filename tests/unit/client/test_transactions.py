"""What administrators are told of transactions, and what they ask of whom. Source: KIP-664, KIP-994, KIP-1152."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from types import SimpleNamespace
from typing import Any

import pytest
from click.testing import CliRunner, Result

from kraftlite.cli.compat import transactions as tool
from kraftlite.cli.compat.tool import UsageError
from kraftlite.cli.main import cli
from kraftlite.cli.target import Target
from kraftlite.client import transactions
from kraftlite.client.cluster import BrokerNode, ClusterClient
from kraftlite.client.errors import ClientError, RequestRefused
from kraftlite.client.settings import ClientSettings
from kraftlite.client.transactions import Abort, ListedTransaction, ProducerState
from kraftlite.model.errors import ErrorCode
from kraftlite.protocol import api_keys as k
from kraftlite.protocol.kio_codec import decode_response, encode_request, encode_response

E = ErrorCode
NODES = {number: BrokerNode(number, "host", 9090 + number, None) for number in (1, 2)}
Answer = Mapping[str, Any] | Callable[[Mapping[str, Any]], Mapping[str, Any]]
LEADERS = {("t", 0): 1, ("t", 1): 2, ("u", 0): None}


class Brokers(ClusterClient):
    """Two brokers; the first coordinates every id but those that begin with "2". `answers`: by broker and API, one after the
    other, the last one again and again."""

    def __init__(self, answers: Mapping[tuple[int, int], list[Answer]], leaders: Mapping[Any, int | None] = LEADERS) -> None:
        quick: Any = {"retry_timeout_ms": 10_000, "retry_backoff_ms": 0, "retry_backoff_max_ms": 1}
        super().__init__(ClientSettings(bootstrap=("host:9092",), **quick))
        self.answers = answers
        self.led = dict(leaders)
        self.asked: list[tuple[int, int, int]] = []
        """Broker, API, version."""

    def brokers(self) -> dict[int, BrokerNode]:
        return NODES

    def leaders(self, names: list[str] | None = None) -> dict[Any, int | None]:
        return {it: leader for it, leader in self.led.items() if names is None or it[0] in names}

    def topics(self, names: list[str] | None = None) -> dict[str, Any]:
        parts = {"t": [(0, [1, 2]), (1, [2])], "u": [(0, [1])]}
        return {
            name: SimpleNamespace(partitions=[SimpleNamespace(partition_index=at, replica_nodes=nodes) for at, nodes in found])
            for name, found in parts.items()
            if names is None or name in names
        }

    def call(self, api_key: int, version: int, values: Mapping[str, Any], *, broker: int | None = None, **_more: Any) -> Any:
        assert broker is not None
        return self._answer(broker, api_key, version, values)

    def _ask_anyone(self, api_key: int, values: Mapping[str, Any], *_given: Any, **_more: Any) -> Any:
        assert api_key == k.FIND_COORDINATOR and values["key_type"] == 1
        homes = {key: 2 if key.startswith("2") else 1 for key in values["coordinator_keys"]}
        found = [
            SimpleNamespace(key=key, error_code=E.NONE, node_id=home, host="host", port=9090 + home)
            for key, home in homes.items()
        ]
        return SimpleNamespace(coordinators=found)

    def _connect(self, address: tuple[str, int], deadline: float) -> Any:
        def ask(api_key: int, values: Mapping[str, Any], deadline: float, *, version: int) -> Any:
            return self._answer(address[1] - 9090, api_key, version, values)

        return SimpleNamespace(ask=ask)

    def _answer(self, broker: int, api_key: int, version: int, values: Mapping[str, Any]) -> Any:
        encode_request(api_key, version, values)  # it can be written
        self.asked.append((broker, api_key, version))
        answers = self.answers[broker, api_key]
        answer = answers.pop(0) if len(answers) > 1 else answers[0]
        plain = answer(values) if callable(answer) else answer
        body = encode_response(api_key, version, {"throttle_time": 0, **plain})
        return decode_response(api_key, version, memoryview(bytes(5) + body))


def listing(*found: tuple[str, int, str], error: ErrorCode = E.NONE) -> Mapping[str, Any]:
    states = [{"transactional_id": name, "producer_id": pid, "transaction_state": state} for name, pid, state in found]
    return {"error_code": error, "unknown_state_filters": [], "transaction_states": states}


def state(name: str, *partitions: tuple[str, int], error: ErrorCode = E.NONE, start_ms: int = -1) -> dict[str, Any]:
    return {
        "error_code": error,
        "transactional_id": name,
        "transaction_state": "Ongoing",
        "transaction_timeout": 60_000,
        "transaction_start_time": start_ms,
        "producer_id": 7,
        "producer_epoch": 3,
        "topics": [{"topic": topic, "partitions": [index]} for topic, index in partitions],
    }


def producers(topic: str, index: int, *found: ProducerState, error: ErrorCode = E.NONE) -> Mapping[str, Any]:
    active = [
        {
            "producer_id": it.producer_id,
            "producer_epoch": it.producer_epoch,
            "last_sequence": it.last_sequence,
            "last_timestamp": it.last_timestamp_ms,
            "coordinator_epoch": -1 if it.coordinator_epoch is None else it.coordinator_epoch,
            "current_txn_start_offset": -1 if it.start_offset is None else it.start_offset,
        }
        for it in found
    ]
    partition = {"partition_index": index, "error_code": error, "error_message": None, "active_producers": active}
    return {"topics": [{"name": topic, "partitions": [partition]}]}


def marked(*codes: tuple[str, int, ErrorCode]) -> Mapping[str, Any]:
    topics = [{"name": topic, "partitions": [{"partition_index": index, "error_code": code}]} for topic, index, code in codes]
    return {"markers": [{"producer_id": 7, "topics": topics}]}


OPEN = ProducerState(7, 3, 4, 1_000, None, 55)
IDLE = ProducerState(8, 0, 9, 2_000, 6, None)


# --- the calls -----------------------------------------------------------------------------------------------------------


def test_ta_02_every_broker_is_asked_and_one_that_loads_is_asked_again() -> None:
    loading = listing(error=E.COORDINATOR_LOAD_IN_PROGRESS)
    cluster = Brokers(
        {
            (1, k.LIST_TRANSACTIONS): [loading, loading, listing(("a", 1, "Ongoing"))],
            (2, k.LIST_TRANSACTIONS): [listing(("b", 2, "Empty"))],
        }
    )
    assert transactions.list_transactions(cluster) == [
        ListedTransaction("a", 1, 1, "Ongoing"),
        ListedTransaction("b", 2, 2, "Empty"),
    ]
    assert [broker for broker, _, _ in cluster.asked] == [1, 1, 1, 2]


@pytest.mark.parametrize(
    ("filters", "version"),
    [
        ({}, 0),
        ({"states": ["Ongoing"], "producer_ids": [1]}, 0),
        ({"longer_than_ms": 0}, 1),
        ({"longer_than_ms": 5, "pattern": "x"}, 2),
        ({"pattern": "x"}, 2),
    ],
)
def test_ta_02_the_lowest_version_that_has_the_filters_is_asked(filters: dict[str, Any], version: int) -> None:
    """So brokers before Kafka 4.1 are asked what they know."""
    cluster = Brokers({(1, k.LIST_TRANSACTIONS): [listing()], (2, k.LIST_TRANSACTIONS): [listing()]})
    assert transactions.list_transactions(cluster, **filters) == []
    assert {version for _, _, version in cluster.asked} == {version}


def test_ta_01_ids_are_described_by_their_coordinators() -> None:
    def describe(values: Mapping[str, Any]) -> Mapping[str, Any]:
        known = {"a": state("a", ("t", 1), ("u", 0), start_ms=5), "2": state("2")}
        missing = E.TRANSACTIONAL_ID_NOT_FOUND
        return {"transaction_states": [known.get(name) or state(name, error=missing) for name in values["transactional_ids"]]}

    moved = {"transaction_states": [state("2", error=E.NOT_COORDINATOR)]}
    answers: dict[tuple[int, int], list[Answer]] = {
        (1, k.DESCRIBE_TRANSACTIONS): [describe],
        (2, k.DESCRIBE_TRANSACTIONS): [moved, describe],
    }
    found = transactions.describe_transactions(Brokers(answers), ["a", "2", "nobody"])
    assert found["a"] == transactions.TransactionDescription(1, 7, 3, "Ongoing", 60_000, 5, (("t", 1), ("u", 0)))
    assert found["2"] == transactions.TransactionDescription(2, 7, 3, "Ongoing", 60_000, None, ())
    refused = found["nobody"]
    assert isinstance(refused, RequestRefused) and refused.code is E.TRANSACTIONAL_ID_NOT_FOUND


def test_ta_03_producers_are_described_by_leaders_or_by_one_broker() -> None:
    answers: dict[tuple[int, int], list[Answer]] = {
        (1, k.DESCRIBE_PRODUCERS): [producers("t", 0, OPEN)],
        (2, k.DESCRIBE_PRODUCERS): [producers("t", 1, error=E.NOT_LEADER_OR_FOLLOWER), producers("t", 1, IDLE)],
    }
    cluster = Brokers(answers)
    found = transactions.describe_producers(cluster, [("t", 0), ("t", 1), ("u", 0), ("v", 0)])
    assert found["t", 0] == [OPEN] and found["t", 1] == [IDLE], "another leader is asked again"
    for partition, code in ((("u", 0), E.LEADER_NOT_AVAILABLE), (("v", 0), E.UNKNOWN_TOPIC_OR_PARTITION)):
        refused = found[partition]
        assert isinstance(refused, RequestRefused) and refused.code is code
    cluster.asked.clear()
    assert transactions.describe_producers(cluster, [("t", 1)], broker=2) == {("t", 1): [IDLE]}
    assert [broker for broker, _, _ in cluster.asked] == [2]


def test_ta_05_a_transaction_is_aborted_at_the_leader() -> None:
    sent: list[Mapping[str, Any]] = []

    def write(values: Mapping[str, Any]) -> Mapping[str, Any]:
        sent.append(values)
        return marked(("t", 1, E.NONE))

    cluster = Brokers({(2, k.WRITE_TXN_MARKERS): [marked(("t", 1, E.NOT_LEADER_OR_FOLLOWER)), write]})
    transactions.abort_transaction(cluster, Abort(("t", 1), 7, 3, 5))
    ((marker,),) = (values["markers"] for values in sent)
    assert marker == {
        "producer_id": 7,
        "producer_epoch": 3,
        "transaction_result": False,
        "topics": [{"name": "t", "partition_indexes": [1]}],
        "coordinator_epoch": 5,
    }
    assert {(broker, version) for broker, _, version in cluster.asked} == {(2, 1)}


@pytest.mark.parametrize("code", [E.INVALID_PRODUCER_EPOCH, E.TRANSACTION_COORDINATOR_FENCED])
def test_ta_05_the_facts_have_changed(code: ErrorCode) -> None:
    with pytest.raises(RequestRefused) as caught:
        transactions.abort_transaction(Brokers({(1, k.WRITE_TXN_MARKERS): [marked(("t", 0, code))]}), Abort(("t", 0), 7, 3, 5))
    assert caught.value.code is code
    for partition, nowhere in ((("u", 0), E.LEADER_NOT_AVAILABLE), (("nosuch", 0), E.UNKNOWN_TOPIC_OR_PARTITION)):
        with pytest.raises(RequestRefused) as caught:
            transactions.abort_transaction(Brokers({}), Abort(partition, 7, 3, 5))
        assert caught.value.code is nowhere


def test_ta_06_fencing_goes_on_until_the_transaction_is_aborted() -> None:
    def identity(code: ErrorCode) -> Mapping[str, Any]:
        return {"error_code": code, "producer_id": 7, "producer_epoch": 9}

    busy = identity(E.CONCURRENT_TRANSACTIONS)
    cluster = Brokers({(1, k.INIT_PRODUCER_ID): [busy, busy, identity(E.NONE)]})
    assert transactions.fence_producer(cluster, "x") == (7, 9)
    assert len(cluster.asked) == 3
    with pytest.raises(ClientError) as caught:
        transactions.fence_producer(Brokers({(1, k.INIT_PRODUCER_ID): [identity(E.INVALID_TRANSACTION_TIMEOUT)]}), "x")
    assert caught.value.code is E.INVALID_TRANSACTION_TIMEOUT


# --- Kafka's tool --------------------------------------------------------------------------------------------------------


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, list[str], str]]:
    """Run the tool against a cluster: its status, the lines that it printed, and its errors."""

    def call(cluster: Brokers, *arguments: str) -> tuple[int, list[str], str]:
        status = tool.carry_out(tool.parser().read(arguments), cluster)
        said = capsys.readouterr()
        return status, said.out.splitlines(), said.err

    return call


def test_ta_04_list_and_describe(run: Any) -> None:
    """The widths, and a tab behind every cell, are those of Kafka 4.3."""
    cluster = Brokers(
        {
            (1, k.LIST_TRANSACTIONS): [listing(("a-long-transactional-id", 0, "CompleteCommit"))],
            (2, k.LIST_TRANSACTIONS): [listing(("b", 12345678901, "Ongoing"))],
            (1, k.DESCRIBE_TRANSACTIONS): [{"transaction_states": [state("x", ("t", 0), ("t", 1))]}],
        }
    )
    assert run(cluster, "list") == (
        0,
        [
            "TransactionalId        \tCoordinator\tProducerId \tTransactionState\t",
            "a-long-transactional-id\t1          \t0          \tCompleteCommit  \t",
            "b                      \t2          \t12345678901\tOngoing         \t",
        ],
        "",
    )
    status, (header, row), _ = run(cluster, "describe", "--transactional-id", "x")
    assert status == 0
    assert dict(zip(header.split(), row.split(), strict=True)) == {
        "CoordinatorId": "1",
        "TransactionalId": "x",
        "ProducerId": "7",
        "ProducerEpoch": "3",
        "TransactionState": "Ongoing",
        "TransactionTimeoutMs": "60000",
        "CurrentTransactionStartTimeMs": "None",
        "TransactionDurationMs": "None",
        "TopicPartitions": "t-0,t-1",
    }
    missing = Brokers({(1, k.DESCRIBE_TRANSACTIONS): [{"transaction_states": [state("x", error=E.TRANSACTIONAL_ID_NOT_FOUND)]}]})
    assert run(missing, "describe", "--transactional-id", "x") == (
        1,
        [],
        "Failed to describe transaction state of transactional-id `x`: DescribeTransactions request for transactionalId `x` "
        "failed because the ID could not be found. Enable debug logging for additional detail.\n",
    )


def test_ta_04_abort(run: Any) -> None:
    sent: list[Any] = []

    def write(values: Mapping[str, Any]) -> Mapping[str, Any]:
        sent.append(values["markers"][0])
        return marked(("t", 0, E.NONE))

    answers: dict[tuple[int, int], list[Answer]] = {
        (1, k.DESCRIBE_PRODUCERS): [producers("t", 0, IDLE, OPEN)],
        (1, k.WRITE_TXN_MARKERS): [write],
    }
    at = ("abort", "--topic", "t", "--partition", "0")
    assert run(Brokers(answers), *at, "--start-offset", "55") == (0, [], "")
    assert (sent[0]["producer_id"], sent[0]["producer_epoch"], sent[0]["coordinator_epoch"]) == (7, 3, 0), "none ever set: 0"
    by_hand = ("--producer-id", "8", "--producer-epoch", "1", "--coordinator-epoch", "-1")
    assert run(Brokers(answers), *at, *by_hand) == (0, [], "")
    assert (sent[1]["producer_id"], sent[1]["producer_epoch"], sent[1]["coordinator_epoch"]) == (8, 1, 0)
    status, _, said = run(Brokers(answers), *at, "--start-offset", "7")
    assert (status, said) == (1, "Could not find any open transactions starting at offset 7 on partition t-0\n")
    status, _, said = run(Brokers(answers), *at)
    assert status == 1 and said.startswith("The transaction to abort must be identified either with --start-offset")
    status, _, said = run(Brokers(answers), *at, "--producer-id", "8")
    assert (status, said) == (1, "Missing required argument --producer-epoch\n")
    assert len(sent) == 2
    answers[1, k.WRITE_TXN_MARKERS] = [marked(("t", 0, E.INVALID_PRODUCER_EPOCH))]
    status, _, said = run(Brokers(answers), *at, "--start-offset", "55")
    spec = "AbortTransactionSpec(topicPartition=t-0, producerId=7, producerEpoch=3, coordinatorEpoch=0)"
    assert (status, said) == (
        1,
        f"Failed to abort transaction {spec}: WriteTxnMarkers request with {spec} failed due an invalid producer epoch. "
        "Enable debug logging for additional detail.\n",
    )


def hanging_cluster(*described: dict[str, Any], known: str | None = "x", last_ms: int = 1_000) -> Brokers:
    one = OPEN._replace(last_timestamp_ms=last_ms)
    found = listing() if known is None else listing((known, 7, "Ongoing"))
    return Brokers(
        {
            (1, k.DESCRIBE_PRODUCERS): [producers("t", 0, one, IDLE)],
            (2, k.DESCRIBE_PRODUCERS): [producers("t", 1, IDLE)],
            (1, k.LIST_TRANSACTIONS): [found],
            (2, k.LIST_TRANSACTIONS): [listing()],
            (1, k.DESCRIBE_TRANSACTIONS): [{"transaction_states": list(described)}],
        }
    )


@pytest.mark.parametrize(
    ("cluster", "hangs"),
    [
        (hanging_cluster(known=None), True),
        (hanging_cluster(state("x", error=E.TRANSACTIONAL_ID_NOT_FOUND)), True),
        (hanging_cluster(state("x", ("t", 1))), True),
        (hanging_cluster(state("x", ("t", 0))), False),
        (hanging_cluster(known=None, last_ms=int((time.time() + 86_400) * 1000)), False),
    ],
    ids=["of nobody", "of an id that is gone", "not of this partition", "of a coordinator", "young"],
)
def test_ta_07_what_hangs(run: Any, cluster: Brokers, hangs: bool) -> None:
    status, lines, said = run(cluster, "find-hanging", "--topic", "t")
    assert (status, said) == (0, "")
    assert lines[0].split("\t")[:6] == ["Topic", "Partition", "ProducerId", "ProducerEpoch", "CoordinatorEpoch", "StartOffset"]
    assert [line.split()[:7] for line in lines[1:]] == ([["t", "0", "7", "3", "-1", "55", "1000"]] if hangs else [])


def test_ta_07_the_search_has_bounds(run: Any) -> None:
    status, _, said = run(Brokers({}), "find-hanging")
    assert status == 1 and said.startswith("The `find-hanging` command requires either --topic or --broker-id")
    status, _, said = run(Brokers({}), "find-hanging", "--broker-id", "1", "--partition", "0")
    assert (status, said) == (1, "The --partition argument requires --topic to be provided\n")
    only = Brokers({(2, k.DESCRIBE_PRODUCERS): [producers("t", 0), producers("t", 1)]})
    assert run(only, "find-hanging", "--broker-id", "2")[0] == 0
    assert {broker for broker, _, _ in only.asked} == {2}


def test_ta_07_a_topic_that_does_not_exist_is_no_topic_where_nothing_hangs(run: Any) -> None:
    status, lines, said = run(hanging_cluster(), "find-hanging", "--topic", "nosuch")
    assert (status, lines) == (1, [])
    assert said == (
        "Failed to describe 1 topics: This server does not host this topic-partition.. "
        "Enable debug logging for additional detail.\n"
    )


@pytest.mark.parametrize(
    ("option", "value"),
    [("--producer-epoch", 2**15), ("--producer-id", 2**63), ("--coordinator-epoch", 2**31), ("--partition", "x")],
)
def test_ta_04_a_number_that_is_none_of_its_kind_is_refused_by_name(option: str, value: object) -> None:
    given = {"--topic": "t", "--partition": 0, "--producer-id": 1, "--producer-epoch": 1, "--coordinator-epoch": 1, option: value}
    with pytest.raises(UsageError, match=f"argument {option}: .*{value}"):
        tool.parser().read(["abort", *(str(word) for pair in given.items() for word in pair)])


def test_ta_04_force_terminate(run: Any) -> None:
    def answered(code: ErrorCode) -> Brokers:
        return Brokers({(1, k.INIT_PRODUCER_ID): [{"error_code": code, "producer_id": 7, "producer_epoch": 4}]})

    assert run(answered(E.NONE), "forceTerminateTransaction", "--transactionalId", "x") == (0, [], "")
    status, _, said = run(answered(E.INVALID_REQUEST), "forceTerminateTransaction", "--transactionalId", "x")
    assert (status, said) == (
        1,
        "Failed to force terminate transactionalId `x`: InitProducerId request for transactionalId `x` failed due to unexpected "
        "error. Enable debug logging for additional detail.\n",
    )


# --- kraftlite's own commands --------------------------------------------------------------------------------------------


def own(cluster: Brokers, *arguments: str) -> Result:
    return CliRunner().invoke(cli, ["transactions", *arguments], obj=Target(None, None, cluster), catch_exceptions=False)


def test_ta_04_own_commands_say_the_same() -> None:
    cluster = hanging_cluster(state("x", ("t", 1), start_ms=5))
    assert own(cluster, "list").stdout.splitlines()[1].split() == ["x", "1", "7", "Ongoing"]
    assert own(cluster, "describe", "x").stdout.splitlines()[1].split()[:6] == ["x", "Ongoing", "1", "7", "3", "60000"]
    assert own(cluster, "describe-producers", "t", "0").stdout.splitlines()[1].split() == ["7", "3", "4", "1000", "-", "55"]
    assert own(cluster, "find-hanging", "--topic", "t").stdout.splitlines()[1].split()[:5] == ["t", "0", "55", "7", "3"]
    missing = own(cluster, "abort", "t", "0", "7")
    assert missing.exit_code == 1 and "no open transaction begins at offset 7 of t-0" in missing.output
    gone = own(hanging_cluster(state("x", error=E.TRANSACTIONAL_ID_NOT_FOUND)), "describe", "x")
    assert gone.exit_code == 1 and "TRANSACTIONAL_ID_NOT_FOUND" in gone.output


def test_what_own_commands_do_not_know_they_refuse() -> None:
    """A misspelt name is no answer that nothing is open, or that nothing hangs."""
    cluster = hanging_cluster(state("x", ("t", 1), start_ms=5))
    for arguments, told in (
        (("list", "--state", "Nope"), "Nope"),
        (("find-hanging", "--topic", "nosuch"), "Topic 'nosuch' does not exist as expected"),
        (("find-hanging", "--broker", "88"), "broker 88 is not there; live brokers are 1"),
    ):
        refused = CliRunner().invoke(cli, ["transactions", *arguments], obj=Target(None, None, cluster))
        assert refused.exit_code != 0, arguments
        assert told in f"{refused.output} {refused.exception}", arguments
    seen: list[Any] = []

    def answer(values: Mapping[str, Any]) -> Mapping[str, Any]:
        seen.append(values["state_filters"])
        return listing()

    cluster.answers[1, k.LIST_TRANSACTIONS][:] = [answer]
    assert own(cluster, "list", "--state", "ongoing").exit_code == 0
    assert seen == [["Ongoing"]], "brokers know it by this name alone"
