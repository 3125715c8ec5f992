"""`kraftlite explain` on real processes: a broker is killed with SIGKILL, and the command says what came of it."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import time
from typing import Any

import pytest

from kraftlite.controller.record_trace import TRACED_RECORDS
from tests.harness.local import Cluster, wait_for

pytestmark = [pytest.mark.cluster, pytest.mark.xdist_group("shared-cluster")]


def explain(cluster: Cluster, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "kraftlite", "explain", *arguments, "--data-dir", str(cluster.data_dir)]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)


@pytest.mark.parametrize("others", [0, 2 * TRACED_RECORDS])
def test_a_killed_leader_is_explained(cluster: Cluster, topic: str, others: int) -> None:
    """Also where the broker had so many partitions that their changes are not all traced one by one."""
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
    unknown = explain(cluster, "partition", f"{topic}-7")
    assert unknown.returncode == 1 and f"{topic}-0" in unknown.stderr and len(unknown.stderr.splitlines()) == 1
