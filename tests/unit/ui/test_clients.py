"""What clients report: their outages are told as theirs, beside those of the cluster; what is no report is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("starlette")
pytest.importorskip("uvicorn")

from kraftlite.local.workload import GAP_MS, MAX_GAPS, Account
from kraftlite.obs.explain import History
from kraftlite.ui.acts import Refused
from kraftlite.ui.clients import Clients
from kraftlite.ui.reports import MAX_CLIENTS, OWN, SILENT_MS, Reports, outages

NOW = 100_000


def report(client: str = "test", **more: Any) -> dict[str, Any]:
    values = {"client": client, "topic": "orders", "at": NOW, "sent": 0, "consumed": None, "p50": None, "p99": None}
    return {**values, **more}


def test_an_account_tells_gaps_and_what_became_of_each_record() -> None:
    account = Account(client="c", topic="orders")
    for at_ms in (0, 10, 20):
        account.send(1, at_ms)
    account.answer(1, 0, 5, None)
    account.answer(1, 10, GAP_MS + 5, None)
    account.answer(1, 20, GAP_MS + 6, "_MSG_TIMED_OUT")
    account.send(2, 50)
    account.answer(2, 50, 60, "NOT_ENOUGH_REPLICAS")
    found = account.report(70)
    assert found["partitions"] == [[1, 2, 0, 1, 0, GAP_MS + 5], [2, 0, 1, 0, 0, 50]]
    assert found["gaps"] == [[1, 5, GAP_MS + 5]]
    assert found["errors"] == {"_MSG_TIMED_OUT": 1, "NOT_ENOUGH_REPLICAS": 1} and found["sent"] == 4
    assert (found["p50"], found["p99"]) == (GAP_MS - 5, GAP_MS - 5)


def test_a_client_that_sends_nothing_waits_for_nothing() -> None:
    account = Account(client="c", topic="orders")
    account.send(0, 0)
    account.answer(0, 0, 5, None)
    account.send(0, 10_000)
    account.answer(0, 10_000, 10_005, None)
    assert account.report(20_000)["gaps"] == [] and account.report(20_000)["partitions"][0][5] is None


def test_the_newest_gaps_are_kept() -> None:
    account = Account(client="c", topic="orders")
    for number in range(MAX_GAPS + 5):
        account.send(0, number * 10_000)
        account.answer(0, number * 10_000, number * 10_000 + GAP_MS, None)
    assert len(account.report(0)["gaps"]) == MAX_GAPS


def test_the_words_of_a_client_are_its_own(tmp_path: Path) -> None:
    clients = Clients(tmp_path)
    clients.report(report(sent=9, partitions=[[0, 5, 1, 1, 2, NOW - 3_000]], gaps=[[0, 10, 900]]), operator=True)
    words = clients.words(NOW)[0]
    assert (words["acked"], words["refused"], words["in_doubt"], words["outstanding"]) == (5, 1, 1, 2)
    assert (words["longest_ms"], words["waits_ms"], words["old"], words["consumed"]) == (890, NOW - 3_000, False, None)
    assert [it["text"] for it in clients.headlines(NOW)] == ["the client test has no acknowledgement from orders-0"]
    assert clients.headlines(NOW + SILENT_MS + 1) == [], "what it says no more is not told of now"
    told = outages(clients.gaps(), History([]))
    assert [(it["name"], it["from"], it["until"], it["cluster"]) for it in told] == [
        ("orders-0", NOW - 3_000, None, []),
        ("orders-0", 10, 900, []),
    ]
    assert [it["lane"] for it in clients.spans(1_000)] == ["clients"]


@pytest.mark.parametrize(
    ("more", "why"),
    [
        ({"topic": 5}, "topic"),
        ({"at": -1}, "at"),
        ({"sent": None}, "sent"),
        ({"errors": []}, "an object"),
        ({"errors": {"x": "y"}}, "whole number"),
        ({"errors": {str(it): 1 for it in range(21)}}, "allowed are 20"),
        ({"partitions": [[0, 1]]}, "a list of 6"),
        ({"partitions": [[0, 1, 1, 1, 1, -5]]}, "whole number"),
        ({"partitions": [[0, 1, 1, 1, 1, None]] * 51}, "at most 50"),
        ({"gaps": [[0, 1]]}, "a list of 3"),
        ({"client": OWN}, "the page's own"),
        ({"client": "x" * 61}, "at most 60"),
    ],
)
def test_what_is_no_report_is_refused(tmp_path: Path, more: dict[str, Any], why: str) -> None:
    clients = Clients(tmp_path)
    with pytest.raises(Refused, match=why) as refused:
        clients.report({**report(), **more}, operator=True)
    assert refused.value.status == 400 and clients.words(NOW) == []


def test_clients_are_bounded_and_viewers_report_nothing(tmp_path: Path) -> None:
    clients = Clients(tmp_path)
    clients.take(report(OWN, at=1))
    for number in range(MAX_CLIENTS):
        clients.report(report(str(number), at=NOW + number), operator=True)
    assert [it["client"] for it in clients.words(NOW)] == [*map(str, range(1, MAX_CLIENTS)), OWN]
    with pytest.raises(Refused, match="looking only"):
        clients.report(report("0"), operator=False)


def test_a_recording_gets_each_report_once_and_each_gap_with_it() -> None:
    reports, told = Reports(), dict[str, int]()
    reports.take(report(at=NOW, gaps=[[0, 10, 900]]))
    assert [it["gaps"] for it in reports.since(told)] == [[[0, 10, 900]]]
    assert reports.since(told) == []
    reports.take(report(at=NOW + 250, gaps=[[0, 10, 900], [1, NOW - 500, NOW + 100]]))
    reports.take(report("other", at=NOW + 250))
    assert [(it["client"], it["gaps"]) for it in reports.since(told)] == [("test", [[1, NOW - 500, NOW + 100]]), ("other", [])]


@pytest.mark.parametrize(("topic", "rate"), [("", 1), ("-x", 1), (None, 1), ("orders", 0), ("orders", 1_001), ("orders", True)])
async def test_what_it_cannot_start_is_refused(tmp_path: Path, topic: Any, rate: Any) -> None:
    with pytest.raises(Refused) as refused:
        await Clients(tmp_path).start(topic, rate, operator=True)
    assert refused.value.status == 400


async def test_a_viewer_starts_and_stops_nothing(tmp_path: Path) -> None:
    clients = Clients(tmp_path)
    with pytest.raises(Refused, match="looking only"):
        await clients.start("orders", 1, operator=False)
    with pytest.raises(Refused, match="looking only"):
        await clients.stop(operator=False)
    with pytest.raises(Refused, match="does not run"):
        await clients.stop(operator=True)


async def test_a_client_that_cannot_begin_says_why(tmp_path: Path) -> None:
    """There is no cluster in the directory."""
    clients = Clients(tmp_path)
    await clients.start("orders", 1, operator=True)
    await clients.close()
    why = clients.about()["why"]
    assert not clients.about()["running"] and why and str(tmp_path) in why
