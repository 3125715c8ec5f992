"""What was: the state at a moment, a record of the metadata log, the metadata at an offset."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from kraftlite.metadata.records import ConfigRecord, UserScramCredentialRecord
from kraftlite.obs.explain_events import Recorded
from kraftlite.obs.faults import EVENTS
from kraftlite.obs.recording_reader import read_bytes
from kraftlite.postmortem.files import METADATA_LOG
from kraftlite.ui.app import Page
from kraftlite.ui.calls import ROOT
from kraftlite.ui.guard import Tokens
from kraftlite.ui.hear import now_ms
from kraftlite.ui.replay import state_at, states
from tests.harness.metadata_log import MetadataLog
from tests.harness.metadata_support import broker, topic
from tests.harness.recordings import split
from tests.harness.ui import Answer, ask, idle_page

HEADERS = {"Host": "127.0.0.1:8088", "Authorization": "Bearer viewer-token"}


@pytest.fixture
def page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Page:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    return idle_page(tmp_path, Tokens("operator-token", "viewer-token"))


async def get(page: Page, call: str, query: str = "") -> Answer:
    return await ask(page.guard, ROOT + call, headers=HEADERS, query=query)


def test_the_state_at_a_moment_is_that_of_the_tape() -> None:
    """At each, and between two it is that of the one before."""
    data = split()[0]
    ledger = [it for it in read_bytes(data) if isinstance(it, Recorded) and it.event in EVENTS]
    every = list(states(read_bytes(data), ledger))
    for at, (ts, shown) in list(enumerate(every))[:: max(1, len(every) // 25)]:
        wanted = json.loads(json.dumps({**shown["state"], **shown["partitions"]}))
        assert json.loads(json.dumps(state_at(read_bytes(data), ledger, ts))) == wanted
        if at + 1 < len(every) and every[at + 1][0] - ts > 1:
            assert json.loads(json.dumps(state_at(read_bytes(data), ledger, every[at + 1][0] - 1))) == wanted
    begin, _ = every[0]
    assert state_at(read_bytes(data), ledger, begin - 1) is None
    named: Any = state_at(read_bytes(data), ledger, every[-1][0], "orders-1")
    assert [row["name"] for row in named["rows"]] == ["orders-1"]


async def test_the_state_at_a_moment_is_what_was_heard_until_then(page: Page) -> None:
    watcher = page.watcher
    assert watcher.kept is not None
    assert (await get(page, "state", f"at={now_ms()}")).status == 404, "nothing has been heard yet"
    begin = now_ms() - 5_000
    for ms, process in ((begin, "running"), (begin + 2_000, "stopped")):
        for words in watcher.nodes.values():
            words.process = process
        watcher.kept.turn(_header(page), watcher, ms)

    async def processes(at_ms: int) -> tuple[int, set[str]]:
        found = (await get(page, "state", f"at={at_ms}")).json
        return found["t"], {node["process"] for node in found["nodes"]}

    assert await processes(begin + 1_999) == (begin, {"running"})
    assert await processes(begin + 2_000) == await processes(begin + 3_000) == (begin + 2_000, {"stopped"})
    assert (await get(page, "state", f"at={begin - 1}")).status == 404
    for wrong in ("-1", "x", str(now_ms() + 60_000)):
        assert (await get(page, "state", f"at={wrong}")).status == 400, wrong


def _header(page: Page) -> Any:
    from kraftlite.ui.watch import header_of

    return header_of(page.watcher.cluster)


async def test_one_record_with_why_it_was_written(page: Page) -> None:
    assert (await get(page, "metadata/7")).status == 404
    assert (await get(page, "metadata/x")).status == 400
    trace = Path(next(node.trace_path for node in page.watcher.cluster.nodes if node.is_controller))
    trace.parent.mkdir(parents=True, exist_ok=True)
    facts = {"offset": 7, "record": "Topic", "detail": "name=orders", "operation": "create_topics"}
    trace.write_text(json.dumps({"ts": now_ms(), "node": 1, "event": "controller.record_appended", **facts}) + "\n")
    page.watcher._read()
    found = (await get(page, "metadata/7")).json
    assert [(it["offset"], it["record"], it["by"]) for it in found["records"]] == [(7, "Topic", 1)]
    assert [it["kind"] for it in found["stories"]] == ["record"]
    assert (await get(page, "metadata/8")).status == 404


async def test_the_metadata_at_an_offset_without_what_is_secret(page: Page) -> None:
    assert (await get(page, "image")).status in (404, 409), "no controller has written anything"
    node = next(it for it in page.watcher.cluster.nodes if it.is_controller)
    log = MetadataLog(Path(node.data_dir) / METADATA_LOG)
    log.leader(0, 1, 1)
    log.add(1_000, broker(4, 14, fenced=False), *topic("orders", 1, 2))
    last = log.add(
        2_000,
        ConfigRecord(resource_type=4, resource_name="4", name="ssl.keystore.password", value="open-sesame"),
        ConfigRecord(resource_type=4, resource_name="4", name="log.retention.ms", value="77"),
        UserScramCredentialRecord(
            name="anna", mechanism=1, salt=b"salt", stored_key=b"open-sesame", server_key=b"open-sesame", iterations=4096
        ),
    )
    assert last is None or last >= 0
    found = await get(page, "image")
    assert found.status == 200, found.body
    assert not found.json["committed"] and "may not be committed" in found.json["notes"][0]
    files = found.json["files"]
    assert files["/image/topics/byName/orders/name"] == "orders"
    assert files["/image/configs/BROKER:4/ssl.keystore.password"] == "[hidden]"
    assert files["/image/configs/BROKER:4/log.retention.ms"] == "77"
    assert b"sesame" not in found.body and b"anna" not in found.body
    assert (await get(page, "image", "path=/image/scram")).status == 404
    before = await get(page, "image", f"at_offset={found.json['offset'] - 3}&path=/image/*")
    assert before.json["offset"] == found.json["offset"] - 3
    assert not any(name.startswith("/image/configs") for name in before.json["files"])
    assert any(name.startswith("/image/topics/byName/orders/") for name in before.json["files"])
    assert (await get(page, "image", f"at_offset={found.json['offset'] + 1}")).status == 404
    assert (await get(page, "image", "path=/image/topics/byName/none")).status == 404
    assert (await get(page, "image", "at_offset=-3")).status == 400
