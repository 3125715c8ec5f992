"""The page's verdicts against what simulated nodes really believe, while leaders are cut off, paused and killed."""

from __future__ import annotations

from collections import Counter
from typing import Any, ClassVar

import pytest

from kraftlite.model.errors import Fault
from kraftlite.model.ids import NodeId
from kraftlite.raft.states import Leader
from kraftlite.sim import fault_plan
from kraftlite.sim.checkers.base import Checker, World
from kraftlite.sim.run import RunPlan, run
from kraftlite.sim.shape import NAMED
from kraftlite.simhost.host import SimHost
from kraftlite.ui import fold
from kraftlite.ui.claims import Memory
from kraftlite.ui.words import SILENT_MS, Key, NodeWords

EVERY_MS = 50
Belief = tuple[int, dict[Key, int], int | None]
"""When it was seen; the leader epochs of the partitions that the node leads; its epoch if it leads the quorum."""


class PageWatches(Checker):
    """Asks every node that runs, as the page does, and compares the fold with what the nodes' own state is. Paused and dead nodes
    do not answer, and count with what they believed until they are silent."""

    seen: ClassVar[Counter[str]]

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self._words: dict[NodeId, NodeWords] = {}
        self._beliefs: dict[NodeId, Belief] = {}
        self._memory = Memory()
        self._looked_ms = 0

    def minds_event(self, kind: type[Any]) -> bool:
        return False

    def minds_method(self, method: Any) -> bool:
        return False

    def on_step(self, node: SimHost) -> None:
        now_ms = self.world.cluster.loop.now_us() // 1_000 + 1
        if now_ms - self._looked_ms < EVERY_MS:
            return
        self._looked_ms = now_ms
        for host in self.world.nodes.values():
            if host.node is not None and not host.paused:
                self._ask(host, now_ms)
        words = [self._words[node_id] for node_id in sorted(self._words)]
        parts = fold.partitions_of(words, now_ms, self._memory)
        quorum = fold.quorum_of(words, now_ms, self._memory)
        self._compare("the quorum", quorum["verdict"], self._quorum(now_ms))
        for row in parts["rows"]:
            self._compare(row["name"], row["verdict"], self._leaders((row["topic"], row["partition"]), now_ms))

    def _ask(self, host: SimHost, now_ms: int) -> None:
        built = host.node
        assert built is not None
        words = self._words.setdefault(
            host.node_id, NodeWords(id=int(host.node_id), roles=host.config.roles, process="running", every_ms=EVERY_MS)
        )
        words.hear_status(built.status(), now_ms, 0)
        words.hear_replicas(() if built.broker is None else built.broker.replica_states(None), now_ms)
        online = () if built.broker is None else built.broker.replicas.partitions()
        led = {(it.tp.topic, it.tp.partition): it.leader_epoch for it in online if it.leader is not None and it.log is not None}
        try:
            raft = built.raft.core
        except Fault:  # it has not started
            self._beliefs[host.node_id] = now_ms, led, None
        else:
            self._beliefs[host.node_id] = now_ms, led, raft.epoch if isinstance(raft.state, Leader) else None

    def _fresh(self, now_ms: int) -> dict[int, Belief]:
        return {int(node): it for node, it in self._beliefs.items() if now_ms - it[0] <= SILENT_MS}

    def _quorum(self, now_ms: int) -> dict[int, int]:
        return {node: epoch for node, (_, _, epoch) in self._fresh(now_ms).items() if epoch is not None}

    def _leaders(self, key: Key, now_ms: int) -> dict[int, int]:
        return {node: led[key] for node, (_, led, _) in self._fresh(now_ms).items() if key in led}

    def _compare(self, what: str, verdict: dict[str, Any], truth: dict[int, int]) -> None:
        type(self).seen[verdict["kind"]] += 1
        shown = verdict["leaders"] if verdict["kind"] in ("agree", "spreading", "disagree", "split", "same_epoch") else []
        if sorted(truth) != list(shown):
            self.fail(f"{what}: the page shows {verdict}, and those that lead are {truth}")
        if truth and (verdict["leader"], verdict["epoch"]) != max(truth.items(), key=lambda it: (it[1], -it[0])):
            self.fail(f"{what}: the page shows {verdict} of {truth}")
        if (verdict["kind"] == "split") != (len(truth) > 1 and len(set(truth.values())) == len(truth)):
            self.fail(f"{what}: the page shows {verdict} of {truth}")


@pytest.mark.parametrize(
    ("seed", "fault", "kinds"),
    [
        (3, "3000 isolate controller for 6000", {"split", "agree"}),
        (3, "3000 pause leader orders-0 for 8000", {"silent", "agree"}),
        (5, "3000 kill controller for 4000", {"silent", "agree"}),
    ],
)
def test_what_the_page_shows_is_what_the_nodes_believe(seed: int, fault: str, kinds: set[str]) -> None:
    class Watching(PageWatches):
        seen: ClassVar[Counter[str]] = Counter()

    shape = NAMED["3+3"]
    result = run(RunPlan(seed=seed, shape=shape, faults=(fault_plan.parse(fault),), duration_ms=10_000), [Watching])
    assert not result.story, result.story
    assert kinds <= set(Watching.seen), Watching.seen
    assert "same_epoch" not in Watching.seen and sum(Watching.seen.values()) > 500
