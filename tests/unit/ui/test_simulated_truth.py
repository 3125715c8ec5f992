"""Recordings of simulated clusters, folded as the page does it, against what the nodes really believed at each moment."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import pytest

from kraftlite.model.errors import Fault
from kraftlite.model.topic_partition import TopicPartition
from kraftlite.obs.recording import MAX_BYTES
from kraftlite.obs.recording_reader import read_bytes
from kraftlite.raft.states import Leader
from kraftlite.sim import fault_plan
from kraftlite.sim.checkers.base import Checker, World
from kraftlite.sim.recorded import run_recorded
from kraftlite.sim.run import RunPlan
from kraftlite.sim.shape import NAMED
from kraftlite.simhost.host import SimHost
from kraftlite.ui.replay import states
from kraftlite.ui.words import ALIVE, Key

Offsets = dict[tuple[Key, int], tuple[int, int]]
"""LEO and high watermark by partition and node."""


@dataclass
class Truth:
    """What is so at one moment: who runs, the epoch of each that leads the quorum or a partition, and how far replicas are."""

    running: set[int] = field(default_factory=set)
    quorum: dict[int, int] = field(default_factory=dict)
    leaders: dict[Key, dict[int, int]] = field(default_factory=dict)
    offsets: Offsets = field(default_factory=dict)
    closing: bool = False
    """A broker closes its logs on its way out, of which no event tells: for a moment its last words are not what it holds."""

    def look(self, host: SimHost) -> None:
        built = host.node
        if built is None or host.paused:
            return
        node = int(host.node_id)
        self.running.add(node)
        self.closing |= built.broker is not None and built.broker.lifecycle.state.name == "SHUTTING_DOWN"
        for it in () if built.broker is None else built.broker.replicas.partitions():
            if it.log is None:
                continue
            key = it.tp.topic, it.tp.partition
            self.offsets[key, node] = it.log.leo, it.log.hw
            if it.leader is not None:
                self.leaders.setdefault(key, {})[node] = it.leader_epoch
        try:
            raft = built.raft.core
        except Fault:  # it has not started
            return
        # Whoever has resigned is active in its own eyes until its controller has renounced.
        if isinstance(raft.state, Leader) or (built.controller is not None and built.controller.active):
            self.quorum[node] = raft.epoch


class Recording:
    """A run with its lines, and the truth at each moment at which the recorder wrote something down."""

    def __init__(self, plan: RunPlan) -> None:
        self.lines: list[bytes] = []
        self.truth: dict[int, Truth] = {}
        recording = self

        class Sees(Checker):
            """Comes before the recorder in each step: what it sees is what the recorder is about to see."""

            def __init__(self, world: World) -> None:
                super().__init__(world)
                recording.world = world

        self.world: World
        self.result = run_recorded(plan, self.write, checkers=[Sees], max_bytes=MAX_BYTES)

    def write(self, line: bytes) -> None:
        self.lines.append(line)
        told = json.loads(line)
        if told.get("k") not in ("node", "status", "replicas"):
            return
        before = self.truth.get(told["ts"])
        truth = self.truth[told["ts"]] = Truth()
        for host in self.world.nodes.values():
            truth.look(host)
        if before is not None:  # within a millisecond another node may have got further: its own line was written before
            truth.offsets = {key: it for key, it in truth.offsets.items() if key[1] == told["node"]}
            truth.offsets |= {key: it for key, it in before.offsets.items() if key[1] != told["node"]}


def compare(what: str, verdict: dict[str, Any], truth: dict[int, int]) -> None:
    """A verdict names all that lead, the one of the newest epoch first, and says split exactly when two lead."""
    shown = verdict["leaders"] if verdict["kind"] in ("agree", "spreading", "disagree", "split", "same_epoch") else []
    assert sorted(truth) == list(shown), (what, verdict, truth)
    if truth:
        assert (verdict["leader"], verdict["epoch"]) == max(truth.items(), key=lambda it: (it[1], -it[0])), (what, verdict, truth)
    assert (verdict["kind"] == "split") == (len(truth) > 1 and len(set(truth.values())) == len(truth)), (what, verdict, truth)


def check(plan: RunPlan) -> Counter[str]:
    """Every moment of the recording; returns the kinds of verdicts that were seen."""
    recording = Recording(plan)
    assert not recording.result.story, recording.result.story
    data = b"".join(recording.lines)
    seen: Counter[str] = Counter()
    moments = 0
    for at_ms, shown in states(read_bytes(data), []):
        truth = recording.truth.get(at_ms)
        if truth is None:
            continue  # a mere turn
        moments += 1
        state = shown["state"]
        assert {node["id"] for node in state["nodes"] if node["life"] == ALIVE} == truth.running, at_ms
        compare(f"{at_ms} ms, the quorum", state["quorum"]["verdict"], truth.quorum)
        seen[state["quorum"]["verdict"]["kind"]] += 1
        if truth.closing:
            continue
        fresh = {node["id"] for node in state["nodes"] if node["replicas_ms"] == at_ms and node["life"] == ALIVE}
        for row in shown["partitions"]["rows"]:
            key = row["topic"], row["partition"]
            compare(f"{at_ms} ms, {row['name']}", row["verdict"], truth.leaders.get(key, {}))
            seen[row["verdict"]["kind"]] += 1
            if row["lost"]:
                assert TopicPartition(*key) in recording.world.losses.excused, (at_ms, row)
                seen["lost"] += 1
            for it in row["replicas"]:
                if it["node"] in fresh and it["says"] is not None:
                    assert (it["leo"], it["hw"]) == truth.offsets[key, it["node"]], (at_ms, row["name"], it)
    assert moments > 50
    return seen


@pytest.mark.parametrize(
    ("seed", "fault", "kinds"),
    [
        (3, "3000 isolate controller for 6000", {"split", "agree"}),
        (3, "3000 pause leader orders-0 for 8000", {"silent", "agree"}),
        (5, "3000 kill controller for 4000", {"silent", "agree"}),
    ],
)
def test_what_the_page_shows_is_what_the_nodes_believe(seed: int, fault: str, kinds: set[str]) -> None:
    seen = check(RunPlan(seed=seed, shape=NAMED["3+3"], faults=(fault_plan.parse(fault),), duration_ms=10_000))
    assert kinds <= set(seen) and "same_epoch" not in seen and sum(seen.values()) > 500, seen


@pytest.mark.parametrize("seed", [1, 2, 4])
def test_of_a_seed_with_all_its_faults(seed: int) -> None:
    check(RunPlan(seed=seed, duration_ms=5_000))


@pytest.mark.slow
@pytest.mark.parametrize("first", range(100, 300, 10))
def test_of_two_hundred_seeds(first: int) -> None:
    for seed in range(first, first + 10):
        check(RunPlan(seed=seed, duration_ms=8_000))
