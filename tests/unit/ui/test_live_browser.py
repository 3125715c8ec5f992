"""The live page in a real browser, of a cluster none of whose nodes runs: what clients say is text there, whatever it is."""

from __future__ import annotations

import asyncio
import json
import threading
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from kraftlite.ui.serve import Link, listen, serve
from kraftlite.ui.whom import InDirectory
from tests.harness.browser import chromium, page_at
from tests.harness.ui import idle_cluster

HOSTILE = "<img src=x onerror=alert(1)>"


@contextmanager
def serving(directory: Path) -> Iterator[Link]:
    """In a thread: the driver of the browser has the loop of this one."""
    ready = threading.Event()
    found: list[Link] = []
    loop = asyncio.new_event_loop()

    def say(link: Link) -> None:
        found.append(link)
        ready.set()

    with listen(0) as sock:
        task = loop.create_task(serve(InDirectory(directory), sock, say))

        def run() -> None:
            asyncio.set_event_loop(loop)
            loop.run_until_complete(asyncio.gather(task, return_exceptions=True))

        thread = threading.Thread(target=run)
        thread.start()
        try:
            assert ready.wait(60)
            yield found[0]
        finally:
            loop.call_soon_threadsafe(task.cancel)
            thread.join(60)
            loop.close()


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
