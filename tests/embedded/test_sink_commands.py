"""`kraftlite sink`: what queries have decided and left open, and whether what is visible is what was decided (SX-06, SX-07)."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import count
from typing import Any

import pytest
from click.testing import CliRunner, Result

from kraftlite.cli.main import cli
from kraftlite.exactly_once.records import STATE_TOPIC
from kraftlite.testing import SyncCluster
from tests.harness import embedded
from tests.harness.exactly_once import settle
from tests.harness.sink_state import SinkState

pytestmark = [pytest.mark.clients, pytest.mark.xdist_group("sink")]

_NUMBERS = count(1)
CONFIG = {
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "transaction.state.log.num.partitions": "1",
    "offsets.topic.num.partitions": "1",
}


@pytest.fixture(scope="module")
def cluster() -> Iterator[SyncCluster]:
    with SyncCluster(controllers=1, brokers=1, combined=True, config=CONFIG) as found:
        yield found


@pytest.fixture
def query(cluster: SyncCluster) -> SinkState:
    number = next(_NUMBERS)
    cluster.create_topic(f"out-{number}", partitions=2)
    return SinkState(cluster, f"query-{number}", f"out-{number}")


def run(query: SinkState, *arguments: str) -> Result:
    """When every outcome that was decided before is carried out."""
    settle(query.servers)
    return CliRunner().invoke(
        cli, ["sink", *arguments, "--bootstrap-server", query.servers], catch_exceptions=False, standalone_mode=False
    )


def told(query: SinkState, *arguments: str) -> Any:
    found = run(query, *arguments, "-o", "json")
    assert found.exit_code == 0, found.output
    return json.loads(found.stdout)


def audited(query: SinkState) -> tuple[int, list[tuple[str, int, int]]]:
    found = run(query, "audit", query.query, "--topic", query.topic, "-o", "json")
    return found.exit_code, [(it["kind"], it["batch"], it["task"]) for it in json.loads(found.stdout)["found"]]


def test_sx_06_a_query_from_its_first_stage_to_the_end_of_a_batch(query: SinkState) -> None:
    """Staged, decided and open, ended in part, complete; the next batch is staged beside a complete one."""
    first, second = query.stage(0, 0, [0, 1]), query.stage(0, 1, [0])
    found = told(query, "describe", query.query)
    assert (found["state"], found["batch"], found["tasks"]) == ("staged", None, [])
    assert [(it["task"], it["state"], it["decided"]) for it in found["open"]] == [(0, "Ongoing", False), (1, "Ongoing", False)]
    query.decide(0, [first, second])
    found = told(query, "describe", query.query)
    assert (found["state"], found["batch"], found["rows"]) == ("unfinished", 0, 3)
    assert [it["transaction"] for it in found["tasks"]] == ["open", "open"]
    assert [it["decided"] for it in found["open"]] == [True, True]
    second.end()
    found = told(query, "describe", query.query)
    assert [it["transaction"] for it in found["tasks"]] == ["open", "committed"], "the other one holds the last stable offset"
    first.end()
    third = query.stage(1, 0, [0])
    (row,) = [it for it in told(query, "list") if it["query"] == query.query]
    assert (row["state"], row["batch"], len(row["open"])) == ("staged", 0, 1)
    third.end(commit=False)
    assert told(query, "describe", query.query)["state"] == "complete"
    shown = run(query, "describe", query.query).output
    assert f"Query {query.query}, batch 0, run r1, 2 tasks, 3 rows: complete" in shown and "committed" in shown


def test_sx_06_a_decision_that_was_aborted_is_none(query: SinkState) -> None:
    stage = query.stage(0, 0, [0])
    query.decide(0, [stage], commit=False)
    found = told(query, "describe", query.query)
    assert (found["state"], found["batch"]) == ("staged", None)
    stage.end(commit=False)


def test_sx_06_abort_ends_what_is_open_and_fences_the_query(query: SinkState) -> None:
    from confluent_kafka import KafkaException

    query.whole_batch(0, [[0, 1]])
    stages = [query.stage(1, task, [0, 1]) for task in range(3)]
    aborted = told(query, "abort", query.query)
    assert [it["task"] for it in aborted] == [0, 1, 2]
    assert told(query, "describe", query.query)["open"] == []
    for it in stages:
        with pytest.raises(KafkaException, match=r"fenced|newer instance|stale|epoch"):
            it.end()
    assert audited(query) == (0, [])
    assert told(query, "abort", query.query) == []
    assert "Aborted 0 transactions" in run(query, "abort", query.query).output


def test_sx_06_finish_commits_what_is_decided_and_open(query: SinkState) -> None:
    stages = [query.stage(0, task, [0, 1]) for task in range(3)]
    undecided = query.stage(0, 3, [0])
    query.decide(0, stages)
    stages[0].end()
    assert told(query, "finish", query.query) == [{"task": it, "rows": 2, "committed": True} for it in (1, 2)]
    assert audited(query) == (0, [])
    (left,) = told(query, "describe", query.query)["open"]
    assert (left["task"], left["decided"]) == (3, False), "nobody has decided that"
    assert "Committed 0 transactions" in run(query, "finish", query.query).output
    undecided.end(commit=False)


def test_sx_06_finish_says_what_only_the_query_can_write_again(query: SinkState) -> None:
    stages = [query.stage(0, task, [0]) for task in range(2)]
    query.decide(0, stages)
    query.stage(0, 1, [0], "r2").end(commit=False)  # fences the decided one
    with pytest.raises(Exception, match="what task 1 wrote has expired or was aborted: start the query again"):
        run(query, "finish", query.query)
    assert audited(query) == (0, [("unfinished", 0, -1)])
    assert [it["transaction"] for it in told(query, "describe", query.query)["tasks"]] == ["committed", "aborted"]


def test_sx_06_abort_says_what_stays_in_part(query: SinkState) -> None:
    stages = [query.stage(0, task, [0]) for task in range(2)]
    query.decide(0, stages)
    stages[0].end()
    found = run(query, "abort", query.query)
    assert "Batch 0 stays in part: 1 of its 2 tasks are committed" in found.stderr
    state = told(query, "describe", query.query)
    assert [it["transaction"] for it in state["tasks"]] == ["committed", "aborted"] and state["state"] == "unfinished"
    assert audited(query) == (0, [("unfinished", 0, -1)])


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("describe", "nobody"), "has no decision of query nobody"),
        (("list", "--state-topic", "nothing"), "there is no topic nothing: nothing was written exactly once"),
        (("describe", "a b"), "QUERY='a b': allowed are 1 to 200 letters"),
        (("list", "--prefix", "a/b"), "--prefix='a/b': allowed are"),
    ],
)
def test_sx_06_errors_in_words(query: SinkState, arguments: tuple[str, ...], said: str) -> None:
    with pytest.raises(Exception, match=said):
        run(query, *arguments)


def test_sx_06_a_state_topic_with_something_else_in_it(cluster: SyncCluster, query: SinkState) -> None:
    cluster.create_topic("not-state", partitions=2)
    embedded.produce(cluster, "not-state", ["hello"], partition=0)
    with pytest.raises(
        Exception, match=r"not-state is not a state topic of the sink, .*: not-state-0 at offset 0: a record without"
    ):
        run(query, "list", "--state-topic", "not-state")


# --- audit


def test_sx_07_what_was_decided_is_what_is_visible(query: SinkState) -> None:
    """Also with aborted copies, a healed batch, and a batch that is staged now."""
    query.whole_batch(0, [[0, 1, 2], [0]])
    kept, expired = query.stage(1, 0, [0, 1]), query.stage(1, 1, [0])
    query.decide(1, [kept, expired])
    kept.end()
    again = query.stage(1, 1, [0], "r2")  # fences `expired`
    query.decide(1, [kept, again], "r2")
    again.end()
    query.stage(2, 0, [0, 1]).end(commit=False)
    open_ = query.stage(2, 0, [0, 1])
    assert audited(query) == (0, [])
    shown = run(query, "audit", query.query, "--topic", query.topic).output
    assert shown == (
        "OK: 7 visible rows, 4 committed transactions of 3 decisions; 3 rows of aborted transactions are not visible.\n"
    )
    open_.end(commit=False)


def test_sx_07_a_batch_that_was_decided_and_not_ended(query: SinkState) -> None:
    stages = [query.stage(0, task, [0, 1]) for task in range(2)]
    query.decide(0, stages)
    stages[0].end()
    assert audited(query) == (0, [("unfinished", 0, -1)])
    stages[1].end()
    assert audited(query) == (0, [])


def test_sx_07_rows_that_nobody_has_decided(query: SinkState) -> None:
    query.whole_batch(0, [[0]])
    query.stage(1, 0, [0]).end()
    assert audited(query) == (1, [("undecided", 1, 0)])


def test_sx_07_rows_without_stamps_that_nobody_has_decided(query: SinkState) -> None:
    query.whole_batch(0, [[0]])
    query.stage(1, 0, [0], stamped="none").end()
    assert audited(query) == (1, [("undecided", -1, -1)])


def test_sx_07_a_task_that_is_not_in_the_decision(query: SinkState) -> None:
    first, second = query.stage(0, 0, [0]), query.stage(0, 1, [0])
    query.decide(0, [first])
    first.end()
    second.end()
    assert audited(query) == (1, [("undecided", 0, 1)])


def test_sx_07_a_task_that_was_committed_twice(query: SinkState) -> None:
    """The mistake of a sink that heals without looking at what was committed."""
    first = query.stage(0, 0, [0, 1])
    query.decide(0, [first])
    first.end()
    again = query.stage(0, 0, [0, 1], "r2")
    query.decide(0, [again], "r2")
    again.end()
    assert audited(query) == (1, [("duplicated", 0, 0), ("foreign", 0, 0)])


def test_sx_07_more_rows_than_decided_without_stamps(query: SinkState) -> None:
    stage = query.stage(0, 0, [0, 1], stamped="not a stamp")
    stage.producer.produce(query.topic, "more")
    query.decide(0, [stage])
    stage.end()
    assert audited(query) == (1, [("duplicated", 0, 0)])


def test_sx_07_decided_transactions_that_are_not_there_as_they_were(query: SinkState) -> None:
    """Lost, torn, and with other rows than those that were staged. Where old records may be gone, this cannot be told."""
    stages = [query.stage(0, 0, [], said=2), query.stage(0, 1, [0], said=2), query.stage(0, 2, [0, 2])]
    query.decide(0, stages)
    for it in stages:
        it.end()
    assert audited(query) == (1, [("lost", 0, 0), ("misnumbered", 0, 2), ("torn", 0, 1)])
    found = CliRunner().invoke(
        cli, ["config", "alter", "--topic", query.topic, "--set", "cleanup.policy=compact", "-b", query.servers]
    )
    assert found.exit_code == 0, found.output
    assert audited(query) == (1, [("misnumbered", 0, 2), ("expired", 0, 0), ("expired", 0, 1)])


def test_sx_07_it_could_not_run(query: SinkState) -> None:
    assert query.client.topics([STATE_TOPIC])
    with pytest.raises(Exception, match="there is no topic nothing") as caught:
        run(query, "audit", "--topic", "nothing")
    assert getattr(caught.value, "exit_code", None) == 2
    query.whole_batch(0, [[0, 1]])
    with pytest.raises(Exception, match="has no decision of query query-0, and no row of it is visible") as caught:
        run(query, "audit", "query-0", "--topic", query.topic)
    assert getattr(caught.value, "exit_code", None) == 2, "a name that nobody has is not in order"
