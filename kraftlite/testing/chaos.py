"""Failures in a test whose cluster other tests go on using: every one is healed in the end, and one left behind is an error."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from kraftlite.testing.conditions import SOMEBODY

if TYPE_CHECKING:
    from kraftlite.testing.cluster import SyncCluster
    from kraftlite.testing.faults import Ends


class Chaos:
    """The faults that a test can inject into the nodes of a cluster, at once or for the length of a `with` block. Called from any
    thread.

    Arguments and errors are those of `SyncCluster`: ValueError for a node that there is not, ClusterError for one in another
    state. At the end of a block what it broke is whole again, unless the block has seen to that itself.
    """

    def __init__(self, cluster: SyncCluster) -> None:
        self._cluster = cluster
        self.kill = cluster.kill
        self.power_cut = cluster.power_cut
        self.pause = cluster.pause
        self.resume = cluster.resume
        self.stop = cluster.stop
        self.restart = cluster.restart
        self.cut = cluster.cut
        self.delay = cluster.delay
        self.refuse = cluster.refuse
        self.lose = cluster.lose
        self.slow_disk = cluster.slow_disk
        self.stall_disk = cluster.stall_disk
        self.fill_disk = cluster.fill_disk
        self.jump_clock = cluster.jump_clock
        self.fail_api = cluster.fail_api
        self.slow_api = cluster.slow_api
        self.heal = cluster.heal
        self.fail_directory = cluster.fail_directory
        self.mend_directory = cluster.mend_directory

    @contextmanager
    def killed(self, *node_ids: int) -> Iterator[None]:
        """Killed now, started again at the end."""
        self.kill(*node_ids)
        try:
            yield
        finally:
            self._start(node_ids)

    @contextmanager
    def stopped(self, *node_ids: int) -> Iterator[None]:
        """Stopped gracefully now, started again at the end."""
        self.stop(*node_ids)
        try:
            yield
        finally:
            self._start(node_ids)

    @contextmanager
    def paused(self, *node_ids: int) -> Iterator[None]:
        """Frozen now, going on at the end."""
        self.pause(*node_ids)
        try:
            yield
        finally:
            nodes = self._cluster.nodes
            still = [it for it in node_ids if nodes[it].state == "paused"]
            if still:
                self.resume(*still)

    @contextmanager
    def partitioned(self, a: Ends, b: Ends, *, one_way: bool = False) -> Iterator[None]:
        """Cut now; at the end there is no cut and no delay any more, this one or another."""
        self.cut(a, b, one_way=one_way)
        try:
            yield
        finally:
            self.heal()

    @contextmanager
    def markers_held(self) -> Iterator[None]:
        """No coordinator sends markers of transactions now; at the end they all do."""
        self._cluster.hold_markers()
        try:
            yield
        finally:
            self._cluster.release_markers()

    def _start(self, node_ids: tuple[int, ...]) -> None:
        nodes = self._cluster.nodes
        down = [it for it in node_ids if nodes[it].state in ("stopped", "failed")]
        if down:
            self.restart(*down)


def heal_all(cluster: SyncCluster) -> tuple[str, ...]:
    """Everything runs and every broker is known to be there when it returns. What was not so, a sentence each.

    Raises ClusterError when a node does not come back.
    """
    found = cluster.troubles()
    if found:
        cluster.heal()
        states = {node_id: it.state for node_id, it in cluster.nodes.items()}
        paused = [node_id for node_id, state in states.items() if state == "paused"]
        down = [node_id for node_id, state in states.items() if state in ("stopped", "failed")]
        down += [node_id for node_id in cluster.without_a_directory() if node_id not in down]
        if paused:
            cluster.resume(*paused)
        if down:
            cluster.restart(*down)
    cluster.wait_for(brokers=cluster.brokers, controller=SOMEBODY)
    return found
