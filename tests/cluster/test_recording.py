"""Recordings of processes: `kraftlite record`, what it says of a kill, and the live page that is rewound."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("starlette")
pytest.importorskip("uvicorn")

from kraftlite.obs.recording_reader import End, read
from kraftlite.ui import beside
from kraftlite.ui.replay import tape_of
from tests.harness.browser import chromium, page_at
from tests.harness.local import Cluster, running, wait_for

pytestmark = [pytest.mark.cluster, pytest.mark.xdist_group("shared-cluster")]


def last_states(path: Path) -> set[str]:
    """What the recording says of the processes of nodes, so far."""
    lines = path.read_bytes().split(b"\n")[1:-1] if path.exists() else []
    return {json.loads(line)["process"] for line in lines if b'"k":"node"' in line}


def has_story(path: Path, partition: str, kind: str) -> bool:
    """Whether the recording, so far, tells it. Its last line may be on its way."""
    whole = path.with_name("so-far.kljsonl")
    whole.write_bytes(path.read_bytes().rpartition(b"\n")[0] + b"\n")
    stories = tape_of(lambda: read(whole))["stories"]
    return any(story["kind"] == kind for story in stories.get(partition, ()))


@pytest.fixture
def small() -> Iterator[Cluster]:
    """A cluster of which every change is traced: of many at once, as in one that other tests have filled, the first 32 are."""
    with running(controllers=1, brokers=3) as found:
        yield found


def test_a_kill_is_recorded_with_who_did_it(small: Cluster, tmp_path: Path) -> None:
    cluster, topic = small, "orders"
    cluster.create_topic(topic, replication=3)
    path, old = tmp_path / "r.kljsonl", cluster.leader(topic)
    command = [sys.executable, "-m", "kraftlite", "record", str(path), "--data-dir", str(cluster.data_dir)]
    recorder = subprocess.Popen(command, stderr=subprocess.PIPE)
    try:
        wait_for("nodes are heard", lambda: path.exists() and b'"k":"replicas"' in path.read_bytes())
        cluster.kill(old)
        cluster.wait_leader(topic, not_in=(old,))
        wait_for("the kill is recorded", lambda: "stopped" in last_states(path))
        wait_for("the new leader is recorded", lambda: has_story(path, f"{topic}-0", "leader_changed"))
        recorder.send_signal(signal.SIGINT)
        assert recorder.wait(30) == 0 or recorder.returncode == 130
    finally:
        recorder.kill()
        recorder.communicate()
    assert any(isinstance(it, End) and it.outcome == "stopped" for it in read(path))
    tape = tape_of(lambda: read(path))
    assert any(span["label"].startswith(f"kill {old} by ") for span in tape["lanes"]["spans"])
    again = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert again.returncode == 1 and "it is there already" in again.stderr and "Traceback" not in again.stderr


@pytest.fixture
def links(cluster: Cluster) -> Iterator[dict[str, str]]:
    yield beside.start(cluster.data_dir)
    beside.stop(cluster.data_dir)


def test_the_live_page_is_rewound(cluster: Cluster, topic: str, links: dict[str, str]) -> None:
    """What was is shown as it was, nothing can be done to it, and the page comes back to now."""
    cluster.create_topic(topic, replication=3)
    old, complaints = cluster.leader(topic), list[str]()
    with chromium() as browser:
        page: Any = page_at(browser, links["operator"], complaints)
        page.wait_for_selector(f"th a:text-is('{topic}-0')")
        page.get_by_role("button", name=f"Kill node {old}").wait_for()
        page.wait_for_selector("#scrubber")
        cluster.kill(old)
        page.wait_for_selector(f".headlines :text('broker {old} has no process')")
        page.keyboard.press("Home")
        page.wait_for_selector(".pulse:has-text('the past')")
        assert page.locator(f"article[aria-label='Node {old}'] .sign").inner_text() == "● answers"
        assert page.get_by_role("button", name="Kill").count() == 0 and page.locator(".try").count() == 0
        cluster.wait_leader(topic, not_in=(old,))
        assert page.locator(f"article[aria-label='Node {old}'] .sign").inner_text() == "● answers", "the past stays as it was"
        page.keyboard.press("l")
        page.wait_for_selector(".pulse:has-text('live')")
        page.wait_for_selector(f"article[aria-label='Node {old}'] .sign:text-is('╳ no process')")
        assert complaints == []
        page.context.close()
