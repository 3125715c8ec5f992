"""The live page in a real browser, of a cluster none of whose nodes runs: what clients say is text there, whatever it is."""

from __future__ import annotations

import json
import urllib.request
from pathlib import Path

import pytest

pytest.importorskip("starlette")
pytest.importorskip("uvicorn")

from tests.harness.browser import chromium, page_at
from tests.harness.page_thread import serving
from tests.harness.ui import idle_cluster

HOSTILE = "<img src=x onerror=alert(1)>"


def test_what_a_client_says_of_itself_is_text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    cluster = idle_cluster(tmp_path)
    with chromium() as browser, serving(Path(cluster.data_dir)) as link:
        base, _, token = str(link.operator).partition("#")
        report = {"kind": "report", "client": HOSTILE, "topic": HOSTILE, "at": 4_000_000_000_000, "sent": 3, "consumed": None}
        report |= {
            "p50": 1,
            "p99": 2,
            "errors": {HOSTILE: 3},
            "partitions": [[0, 1, 1, 0, 1, 1_000]],
            "gaps": [[0, 1_000, 2_000]],
        }
        headers = {"Authorization": f"Bearer {token}", "X-Kraftlite": "1", "Content-Type": "application/json"}
        request = urllib.request.Request(f"{base}api/v1/clients", json.dumps(report).encode(), headers)
        with urllib.request.urlopen(request, timeout=20) as answer:
            assert answer.status == 202
        complaints: list[str] = []
        page = page_at(browser, str(link.operator), complaints)
        for view in ("c", "o", "p", "t", "q", "f"):
            page.keyboard.press(view)
            page.wait_for_selector(".headlines li")
            assert page.locator("img").count() == 0
        page.keyboard.press("c")
        page.wait_for_function("text => document.body.innerText.includes(text)", arg=HOSTILE)
        # No node has told of a partition, so that the view of one finds no stories.
        assert [it for it in complaints if "404 (Not Found)" not in it] == []
        page.context.close()
