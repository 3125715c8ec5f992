"""`kraftlite explain` on real processes: a broker is killed with SIGKILL, and the command says what came of it."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from kraftlite.controller.record_trace import TRACED_RECORDS
from tests.harness.exports import READERS
from tests.harness.local import Cluster, wait_for

pytestmark = [pytest.mark.cluster, pytest.mark.xdist_group("shared-cluster")]


def explain(cluster: Cluster, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "kraftlite", "explain", *arguments, "--data-dir", str(cluster.data_dir)]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)


def told_to_other_tools(cluster: Cluster, story: dict[str, Any], *arguments: str) -> None:
    """The cluster goes on meanwhile, so there may be more steps each time, and never fewer."""
    for tool, read in READERS.items():
        done = explain(cluster, *arguments, "--format", tool)
        assert done.returncode == 0, done.stderr
        assert len(read(done.stdout.rstrip("\n"))) >= len(story["steps"])


def told_in_the_log(cluster: Cluster, killed: int, record: int) -> None:
    """The fault, the record of the controller, and only then what brokers made of it."""
    command = [sys.executable, "-m", "kraftlite", "logs", "--json", "--data-dir", str(cluster.data_dir)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    assert {line["node"] for line in lines} >= {*cluster.controllers, *cluster.brokers}
    appended: dict[int, int] = {}  # the first of each offset: one may be written again after it was lost
    for place, line in enumerate(lines):
        if line["event"] == "controller.record_appended":
            appended.setdefault(line["offset"], place)
    effects = [place for place, line in enumerate(lines) if line.get("cause") == f"record@{record}"]
    faults = [place for place, line in enumerate(lines) if line["event"] == "fault.asked" and line["node"] == killed]
    assert effects and (record not in appended or faults[-1] < appended[record] < min(effects))
    for place, line in enumerate(lines):
        cause = str(line.get("cause"))
        if cause.startswith("record@"):
            assert appended.get(int(cause.removeprefix("record@")), -1) < place


def test_the_log_is_followed_until_ctrl_c(cluster: Cluster, topic: str, tmp_path: Path) -> None:
    """Ten minutes are more than the command takes to begin: nothing is recorded of the topic before."""
    command = [sys.executable, "-m", "kraftlite", "logs", "--follow", "--since", "10m", "--grep", f"tp={topic}-0"]
    command += ["--data-dir", str(cluster.data_dir)]
    out, complaints = tmp_path / "out", tmp_path / "complaints"
    with (
        out.open("w") as stdout,
        complaints.open("w") as stderr,
        subprocess.Popen(command, stdout=stdout, stderr=stderr) as process,
    ):
        try:
            cluster.create_topic(topic, replication=3)
            wait_for("the new topic is in the log", lambda: f"tp={topic}-0" in out.read_text() or process.poll() is not None)
            process.send_signal(signal.SIGINT)
            assert process.wait(60) == 0 and not complaints.read_text()
        finally:
            process.kill()


@pytest.mark.parametrize("others", [0, 4 * TRACED_RECORDS])
def test_a_killed_leader_is_explained(cluster: Cluster, topic: str, others: int) -> None:
    """Also where the broker had so many partitions that their changes are not all traced one by one: it led a third of the
    others, whose changes come first."""
    if others:
        cluster.create_topic(f"before-{topic}", partitions=others, replication=3)
    cluster.create_topic(topic, replication=3)
    assert not cluster.produce(topic, ["one"])
    old = cluster.leader(topic)
    killed_s = time.time()
    cluster.kill(old)
    new = cluster.wait_leader(topic, not_in=(old,))
    assert not cluster.produce(topic, ["two"])

    def story() -> dict[str, Any] | None:
        done = explain(cluster, "partition", f"{topic}-0", "--since", f"{killed_s:.3f}", "--json")
        assert done.returncode == 0, done.stderr
        found = json.loads(done.stdout)["stories"]
        changed = [story for story in found if story["kind"] == "leader_changed"]
        return changed[0] if changed and "first produce acknowledged" in changed[0]["chain"] else None

    found = wait_for("the change of leader is told", story)
    assert (found["old_leader"], found["leader"], found["old_leader_epoch"], found["leader_epoch"]) == (old, new, 0, 1)
    assert re.match(rf"node {old} killed by \S+ \(python\) [\d:.]+ ▸ broker {old} missed heartbeats from ", found["chain"])
    assert f"PARTITION_CHANGE @{found['record']} leader {old}→{new} epoch 0→1" in found["chain"]
    assert " ▸ FENCE @" in found["chain"] and f" ▸ broker {new} led from " in found["chain"]
    assert "(python), asked for at" in found["steps"][0]["what"] and ", seen at" in found["steps"][0]["what"]
    assert not any("paused or cut" in step["what"] for step in found["steps"]), "the ledger knows, so nothing is guessed"
    text = explain(cluster, "record", str(found["record"]), "--since", "-10m")
    assert text.returncode == 0
    of_many = "one of many of an operation" in text.stdout  # what other tests have created counts, too
    assert of_many or (not others and found["chain"] in text.stdout)
    told_to_other_tools(cluster, found, "partition", f"{topic}-0", "--since", f"{killed_s:.3f}")
    told_in_the_log(cluster, old, int(found["record"]))
    unknown = explain(cluster, "partition", f"{topic}-7")
    assert unknown.returncode == 1 and f"{topic}-0" in unknown.stderr and len(unknown.stderr.splitlines()) == 1
