"""What is recorded, as the page's API tells it: annotations for a board, events, records, exports."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kraftlite.obs.explain import History, Subject, WallClock, explain
from kraftlite.obs.explain_events import Recorded
from kraftlite.obs.export import FORMATS
from kraftlite.ui.annotations import MAX_ANNOTATIONS, marks
from kraftlite.ui.app import Page
from kraftlite.ui.calls import ROOT
from kraftlite.ui.guard import Tokens
from tests.harness.ui import ask, idle_page

HEADERS = {"Host": "127.0.0.1:8088", "Authorization": "Bearer viewer-token"}
BEGIN = 1_000_000


def recorded(at: int, node: int, event: str, cause: str | None = None, **facts: Any) -> Recorded:
    return Recorded(ms=BEGIN + at, node=node, event=event, facts=facts, cause=cause)


def leads(at: int, node: int, epoch: int, cause: str) -> Recorded:
    more = {"isr": [4, 5], "min_isr": 1, "epoch_start_offset": 0, "hw": 0, "recovering": False}
    facts = {"tp": ["orders", 0], "leader_epoch": epoch, "partition_epoch": epoch, **more}
    return recorded(at, node, "partition.leader_started", cause, **facts)


def record(at: int, offset: int, detail: str, **facts: Any) -> Recorded:
    return recorded(at, 1, "controller.record_appended", offset=offset, record="BrokerRegistrationChange", detail=detail, **facts)


EVENTS = [
    recorded(0, 1, "node.starting", roles="controller"),
    recorded(5, 1, "controller.claimed", raft_epoch=3),
    recorded(10, 4, "node.starting", roles="broker"),
    leads(20, 4, 7, "record@8"),
    recorded(30, 4, "node.stalled", stalled_ms=25),
    record(40, 9, "broker_id=4 fenced=true", broker_id=4),
    leads(50, 5, 8, "record@10"),
]


@pytest.fixture
def history() -> History:
    return History(EVENTS)


def marked(history: History, from_ms: int, until_ms: int, **more: Any) -> list[tuple[int, str, str]]:
    found = marks(history, BEGIN + from_ms, BEGIN + until_ms, ["orders-0"], **more)
    return [(it["time"] - BEGIN, it["tags"][0], it["text"]) for it in found]


def test_each_has_its_moment_its_kind_and_what_it_is_about(history: History) -> None:
    assert marked(history, 0, 100, tags=frozenset({"leadership"})) == [
        (5, "leadership", "quorum: 1 active, epoch 3"),
        (20, "leadership", "orders-0: 4 leads, epoch 7"),
        (50, "leadership", "orders-0: 5 leads, epoch 8"),
    ]
    assert marked(history, 0, 100, tags=frozenset({"stalled"})) == [(5, "stalled", "node 4: nothing ran for 0.0 s")]


def test_the_time_that_is_asked_for_is_the_time_that_is_told(history: History) -> None:
    assert marked(history, 21, 49, tags=frozenset({"leadership"})) == []
    assert marked(history, 20, 20, tags=frozenset({"leadership"})) == [(20, "leadership", "orders-0: 4 leads, epoch 7")]
    assert [kind for _, kind, _ in marked(history, 10, 29)].count("stalled") == 1, "what lasts is told when it began before"


def test_of_too_many_the_newest_are_told() -> None:
    many = [recorded(at, 1, "controller.claimed", raft_epoch=at) for at in range(MAX_ANNOTATIONS + 50)]
    found = marks(History(many), BEGIN, BEGIN + 10_000, [])
    assert len(found) == MAX_ANNOTATIONS and found[-1]["time"] == many[-1].ms


@pytest.fixture
def page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Page]:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    found = idle_page(tmp_path, Tokens("operator-token", "viewer-token"))
    trace = tmp_path / "trace.jsonl"
    lines = [{"ts": it.ms, "node": it.node, "event": it.event, **it.facts, "cause": it.cause} for it in EVENTS]
    trace.write_text("".join(json.dumps({name: fact for name, fact in it.items() if fact is not None}) + "\n" for it in lines))
    found.watcher.record.read([trace])
    yield found
    found.watcher.record.close()


async def told(page: Page, name: str, query: str) -> Any:
    found = await ask(page.guard, ROOT + name, headers=HEADERS, query=query)
    assert found.status == 200, found.body
    return json.loads(found.body)


RANGE = f"from={BEGIN}&to={BEGIN + 100}"


async def test_events_are_chosen_by_time_node_and_name_and_of_too_many_the_newest_are_told(page: Page) -> None:
    async def names(query: str) -> list[str]:
        return [it["event"] for it in (await told(page, "events", query))["events"]]

    assert await names(RANGE) == [it.event for it in EVENTS]
    assert await names(f"{RANGE}&node=5") == ["partition.leader_started"]
    assert await names(f"{RANGE}&name=node.starting&limit=1&node=4") == ["node.starting"]
    assert await names(f"{RANGE}&limit=2") == [it.event for it in EVENTS[-2:]]
    assert await names(f"from={BEGIN + 6}&to={BEGIN + 10}") == ["node.starting"]


async def test_records_of_the_metadata_log_are_told_by_offset(page: Page) -> None:
    found = (await told(page, "metadata", ""))["records"]
    assert [(it["offset"], it["detail"]) for it in found] == [(9, "broker_id=4 fenced=true")]
    assert (await told(page, "metadata", "from=10"))["records"] == []


async def test_a_board_gets_annotations_in_the_shape_of_grafana(page: Page) -> None:
    found = await told(page, "annotations", f"{RANGE}&partition=orders-0")
    assert {"time": BEGIN + 50, "text": "orders-0: 5 leads, epoch 8", "tags": ["leadership", "orders-0"]} in found
    assert [it["time"] for it in found] == sorted(it["time"] for it in found)


@pytest.mark.parametrize("form", ["perfetto", "shiviz", "mermaid", "otlp"])
async def test_exports_are_those_of_explain(page: Page, form: str) -> None:
    query = f"format={form}&kind=partition&name=orders-0&since={BEGIN}"
    found = await ask(page.guard, f"{ROOT}export", headers=HEADERS, query=query)
    wanted = FORMATS[form](explain(History(EVENTS), Subject("partition", "orders-0"), since_ms=BEGIN, clock=WallClock()))
    assert (found.status, found.body.decode()) == (200, wanted)
    assert found.headers["content-type"].startswith("text/plain")


async def test_the_lines_of_an_export_are_those_of_the_trace(page: Page) -> None:
    found = await ask(page.guard, f"{ROOT}export", headers=HEADERS, query=f"since={BEGIN}")
    assert [json.loads(line)["event"] for line in found.body.decode().splitlines()] == [it.event for it in EVENTS]
