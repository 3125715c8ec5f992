"""Every API in every version that is advertised, with bodies from empty to absurd: the error codes are those of Apache Kafka.

What Kafka answers stands in versions.json, which `python -m tests.clients.probes` writes by asking one.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import pytest

from tests.clients import orders, probes
from tests.clients.orders_transactions import STORIES_OF_TRANSACTIONS
from tests.clients.raw import Closed, Connection
from tests.harness.embedded import embedded
from tests.harness.local import Cluster

pytestmark = [pytest.mark.clients, pytest.mark.xdist_group("clients")]

UNKNOWN_ELEMENTS = "an ACL of an unknown kind is refused by an answer; Kafka closes the connection"
DEPARTS = {
    ("produce", "known"): "records that are null are refused; Kafka never answers",
    ("produce", "twice"): "records that are null are refused; Kafka never answers",
    ("produce", "nulls"): "records that are null are refused; Kafka never answers",
    ("alter_configs", "twice"): "a resource that is named twice is refused; Kafka never answers",
    ("alter_partition_reassignments", "twice"): "a partition that is named twice is refused the second time",
    ("update_features", "twice"): "a feature that is named twice is refused for that first",
    **{(f"{what}_acls", kind): UNKNOWN_ELEMENTS for what in ("describe", "create", "delete") for kind in probes.KINDS[1:-1]},
    ("describe_acls", "empty"): UNKNOWN_ELEMENTS,
    ("add_partitions_to_txn", "empty"): "a request of no transactions is answered; Kafka never answers",
}
"""By API and kind of body: why the answer is not Kafka's."""


ACCIDENT = "Kafka has no error for it: an exception ends up as UNKNOWN_SERVER_ERROR"
STORY_DEPARTS = {
    ("produce_batches", 27): ACCIDENT,
    ("produce_batches", 28): ACCIDENT,
    ("produce_sequences", 11): "an epoch of -1 with a producer id is a malformed batch, not one of an old producer",
    **{("topics", step): ACCIDENT for step in (58, 59, 60, 61)},
    ("consumer_protocol", 37): "the new assignment is there at once; Kafka 4.3 gathers changes for a while before it assigns",
}
"""By story and step: why the answer is not Kafka's."""


@contextmanager
def with_topic() -> Iterator[Cluster]:
    with embedded(controllers=1, brokers=1, combined=True) as cluster:
        cluster.cluster.create_topic(probes.TOPIC, 1, 1)
        probes.prepare(cluster.bootstrap)
        yield cluster


@pytest.fixture(scope="module")
def single() -> Iterator[Cluster]:
    with with_topic() as cluster:
        yield cluster


@pytest.fixture(scope="module")
def fresh() -> Iterator[Cluster]:
    """The topic is still there: among what `answers` asks are deletions."""
    with with_topic() as cluster:
        yield cluster


@pytest.fixture(scope="module")
def answers(single: Cluster) -> dict[str, dict[str, dict[int, str]]]:
    """Of every version that is taken: Produce is advertised from v0, for old clients, and taken from v3."""
    ranges = probes.offered(single.bootstrap)
    return probes.asked(single.bootstrap, {**ranges, 0: (3, ranges[0][1])})


KAFKA: dict[str, Any] = json.loads(probes.GOLDEN.read_text())
GOLDEN: dict[str, Any] = KAFKA["answers"]


@pytest.mark.parametrize("api", list(GOLDEN))
def test_error_codes_are_those_of_kafka(answers: dict[str, dict[str, dict[int, str]]], api: str) -> None:
    if api not in answers:
        pytest.skip("not offered")
    wrong = []
    for kind, told in answers[api].items():
        expected = probes.unpacked(GOLDEN[api].get(kind, {}))
        differ = {v: (code, expected[v]) for v, code in told.items() if v in expected and code != expected[v]}
        if (api, kind) in DEPARTS:
            assert differ, f"{api}, {kind}: this is as in Kafka by now"
        else:
            wrong += [f"{kind} v{v}: {code}, in Kafka {theirs}" for v, (code, theirs) in differ.items()]
    assert wrong == []


def test_every_offered_api_is_known_to_kafka(answers: dict[str, dict[str, dict[int, str]]]) -> None:
    """Nothing is asked in vain: of every API that is offered there is an answer of Kafka to compare with."""
    assert set(answers) <= set(GOLDEN)
    asked = sum(len(of) for kinds in answers.values() for of in kinds.values())
    assert asked > 1000


def test_nothing_closes_but_what_kafka_closes(answers: dict[str, dict[str, dict[int, str]]]) -> None:
    silent = [
        (api, kind, v) for api, kinds in answers.items() for kind, of in kinds.items() for v, it in of.items() if it == "silent"
    ]
    assert silent == []


def test_cp_02_versions_that_are_not_offered_close(single: Cluster) -> None:
    """One below and one above what is taken, of every API; ApiVersions alone answers."""
    for key, (lowest, highest) in probes.offered(single.bootstrap).items():
        for version in (lowest - 1, highest + 1, 3000, *((0, 2) if key == 0 else ())):
            with Connection.to(single) as connection:
                connection.send(struct.pack(">hhihH", key, version, 1, -1, 0))
                if key == 18:
                    assert connection.receive()[4:6] == struct.pack(">h", 35)
                    continue
                with pytest.raises(Closed):
                    connection.receive()


@pytest.mark.parametrize("story", (*orders.STORIES, *STORIES_OF_TRANSACTIONS), ids=lambda it: str(it.__name__))
def test_odd_orders_are_answered_as_by_kafka(fresh: Cluster, story: Callable[[orders.Story], None]) -> None:
    told, expected = orders.told(fresh.bootstrap, story), KAFKA["stories"][story.__name__]
    assert len(told) == len(expected)
    differ = {step: (ours, theirs) for step, (ours, theirs) in enumerate(zip(told, expected, strict=True)) if ours != theirs}
    allowed = {step for name, step in STORY_DEPARTS if name == story.__name__}
    assert {step: it for step, it in differ.items() if step not in allowed} == {}
    assert allowed <= set(differ), "this is as in Kafka by now"


def test_cp_06_answers_come_in_the_order_of_the_requests(fresh: Cluster) -> None:
    """Whatever waits holds up what comes behind it, acks=0 has no answer, and nothing is lost when all is sent at once."""
    known = probes.topic_id(fresh.bootstrap)
    batch = bytes(orders.batch())

    def produce(acks: int) -> Any:
        partition = {"index": 0, "records": batch}
        values = {"acks": acks, "topic_data": [{"name": probes.TOPIC, "partition_data": [partition]}]}
        return orders.filled(orders.load_request_schema(0, 9), values)

    def fetch(offset: int) -> Any:
        partition = {"partition": 0, "fetch_offset": offset, "log_start_offset": -1, "partition_max_bytes": 1000}
        partition |= {"current_leader_epoch": -1, "last_fetched_epoch": -1}
        values = {
            "replica_id": -1,
            "session_epoch": -1,
            "max_bytes": 1000,
            "max_wait": timedelta(milliseconds=300),
            "min_bytes": 1,
        }
        values["topics"] = [{"topic": probes.TOPIC, "partitions": [partition]}]
        return orders.filled(orders.load_request_schema(1, 12), values)

    with Connection.to(fresh) as connection:
        before = int(connection.ask(produce(-1)).responses[0].partition_responses[0].base_offset)
        expected = []
        for n in range(30):
            plain = probes.request_of(3, 12, probes.bodies(known)["known"])
            for request in (fetch(before + 1 + 2 * n), produce(0), plain, produce(1)):
                correlation = connection.send_request(request)
                if not (request.__api_key__ == 0 and request.acks == 0):
                    expected.append(correlation)
        got = [int.from_bytes(connection.receive()[:4], "big") for _ in expected]
        assert got == expected
        with Connection.to(fresh) as other:
            assert sum(it.count for it in other.batches(probes.TOPIC, offset=before)) == 1 + 60
