"""What the live page keeps to be saved: a recording in two halves, bounded, and whole at every moment."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kraftlite.obs.explain_events import Recorded
from kraftlite.obs.recording import Header
from kraftlite.obs.recording_reader import read_bytes
from kraftlite.ui.app import Page
from kraftlite.ui.calls import ROOT
from kraftlite.ui.guard import Tokens
from kraftlite.ui.kept import Kept
from kraftlite.ui.replay import states, tape_of
from kraftlite.ui.watch import Watcher, header_of
from tests.harness.ui import NOW, ask, broker, client_report, controller, idle_page, replica

HEADER = Header(source="live", clock="wall", cluster_id="c", every_ms=200, title="")


@pytest.fixture
def page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Page:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    return idle_page(tmp_path, Tokens("operator-token", "viewer-token"))


@pytest.fixture
def watcher(page: Page) -> Watcher:
    said = [replica(leads=True), replica(partition=1, leader=5)]
    page.watcher.nodes = {1: controller(1, active=True), 4: broker(4, *said), 5: broker(5, *said)}
    return page.watcher


def offsets(data: bytes) -> list[tuple[int, Any]]:
    """The LEO of the leader of each partition at each moment."""
    found = []
    for at_ms, state in states(read_bytes(data), []):
        rows = state["partitions"]["rows"]
        found.append((at_ms - NOW, {row["name"]: [it["leo"] for it in row["replicas"] if it["node"] == 4] for row in rows}))
    return found


def test_what_was_heard_is_there_across_the_halves_and_the_oldest_goes(watcher: Watcher) -> None:
    kept, truth = Kept(half_bytes=6_000), []
    for turn in range(200):
        said = [replica(leads=True, leo=turn), *([replica(partition=1, leader=5)] if turn < 150 else [])]
        watcher.nodes[4].hear_replicas(said, NOW + turn * 200)
        watcher.nodes[5].hear_replicas(said, NOW + turn * 200)
        kept.turn(HEADER, watcher, NOW + turn * 200)
        names = {f"orders-{it.partition}": [it.leo] for it in said}
        truth.append((turn * 200, names))
        assert kept.size < 20_000
    told = offsets(kept.recording(HEADER, []))
    assert 20 < len(told) < 200, "the oldest has gone"
    assert told == truth[-len(told) :], "and the rest is what was said, also where one half ends and the next begins"


def test_a_half_ends_by_its_age_and_a_clock_that_is_set_back_does_no_harm(watcher: Watcher) -> None:
    kept = Kept(half_ms=1_000)
    for at_ms in (0, 500, 1_500, 400, 2_000, 2_600, 2_700):
        kept.turn(HEADER, watcher, NOW + at_ms)
    times = [at_ms for at_ms, _ in offsets(kept.recording(HEADER, []))]
    assert times == [1_500, 2_600], "where nothing is new a moment is written once a second"


def test_events_and_clients_are_in_it(watcher: Watcher) -> None:
    kept = Kept()
    watcher.clients.take(client_report(at=NOW))
    kept.turn(HEADER, watcher, NOW + 10)
    event = Recorded(
        ms=NOW - 5, node=1, event="controller.claimed", facts={"raft_epoch": 3, "stable_offset": 1, "write_offset": 1}
    )
    tape = tape_of(lambda: read_bytes(kept.recording(replace(HEADER, title="now"), [event])))
    assert tape["cluster"]["recording"]["clients"] == 1 and tape["cluster"]["recording"]["title"] == "now"
    assert any(span["label"] == "1 active, epoch 3" for span in tape["lanes"]["spans"])


async def test_the_operator_may_save_it_and_the_viewer_may_not(page: Page, watcher: Watcher) -> None:
    host = {"Host": "127.0.0.1:8088"}
    operator, viewer = ({**host, "Authorization": f"Bearer {name}-token"} for name in ("operator", "viewer"))
    nothing = await ask(page.guard, ROOT + "export", headers=operator, query="format=html")
    assert nothing.status == 404 and "empty" in json.loads(nothing.body)["error"]
    assert watcher.kept is not None
    watcher.kept.turn(header_of(watcher.cluster), watcher, NOW)
    saved = await ask(page.guard, ROOT + "export", headers=operator, query="format=html")
    assert saved.status == 200 and b'<script type="application/json" id="tape">' in saved.body and b"orders-0" in saved.body
    refused = await ask(page.guard, ROOT + "export", headers=viewer, query="format=html")
    assert refused.status == 403 and "may save" in json.loads(refused.body)["error"]


async def test_claims_are_told_of_the_quorum_and_of_a_partition(page: Page, watcher: Watcher) -> None:
    headers = {"Host": "127.0.0.1:8088", "Authorization": "Bearer viewer-token"}
    found = json.loads((await ask(page.guard, ROOT + "claims", headers=headers)).body)
    assert found["about"] == "controller" and [it["by"] for it in found["claims"]] == [1, 4, 5]
    found = json.loads((await ask(page.guard, ROOT + "claims", headers=headers, query="about=orders-0")).body)
    assert [(it["by"], it["leader"], it["own"]) for it in found["claims"]] == [(4, 4, True), (5, 5, True)]
    assert found["verdict"]["kind"] in ("same_epoch", "silent") and found["epochs"] == []
    missing = await ask(page.guard, ROOT + "claims", headers=headers, query="about=nobody-7")
    assert missing.status == 404 and "nobody-7" in json.loads(missing.body)["error"]
