"""The faults of a cluster of processes (`kraftlite up --faults`) as calls of a test, the same as those of an embedded cluster."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

from kraftlite.local import faults, process
from kraftlite.local.ledger import author, read_faults
from kraftlite.local.state import LocalError, default_data_dir, load
from kraftlite.testing.errors import ClusterError
from kraftlite.testing.faults import FaultCalls, Injected, Request, milliseconds

DEFAULT_MS: Final = 60_000
"""The length of a fault without one: the processes outlive a test that dies."""
_DOOR: Final = "testing"


class ProcessFaults(FaultCalls):
    """`faults = ProcessFaults("/path")`, then `faults.cut(4, 1, for_s=5)`, `with faults.fail_api("Produce", error=6):` and so on.

    `data_dir` is that of `kraftlite up`; None: where it is by default. Every fault is in the cluster's ledger.

    A call returns when the nodes have the fault. It blocks meanwhile: in a test with asyncio call it by `asyncio.to_thread`.
    """

    def __init__(self, data_dir: str | Path | None = None) -> None:
        """Raises ClusterError when there is no cluster."""
        self.data_dir = Path(data_dir).absolute() if data_dir is not None else default_data_dir(os.environ).absolute()
        try:
            self._cluster = load(self.data_dir)
        except LocalError as error:
            raise ClusterError(str(error)) from None

    @property
    def brokers(self) -> tuple[int, ...]:
        """Ids of the nodes with this role, running or not."""
        return tuple(node.id for node in self._cluster.nodes if node.is_broker)

    def heal(self) -> None:
        """End every fault that the running nodes have."""
        try:
            faults.end(self.data_dir, by=author(_DOOR))
        except LocalError as error:
            raise ClusterError(str(error)) from None

    def _inject(self, requests: Sequence[Request], for_s: float | None) -> Injected:
        for_ms = milliseconds(for_s) or DEFAULT_MS
        ids: list[str] = []
        try:
            for request in requests:
                fault = replace(request.fault, for_ms=for_ms)
                ids.append(faults.inject(self.data_dir, request.node, fault, by=author(_DOOR)))
        except LocalError as error:
            self._end_faults(ids)
            raise ClusterError(str(error)) from None
        return Injected(lambda: self._end_faults(ids))

    def _end_faults(self, ids: Sequence[str]) -> None:
        if not ids:
            return
        try:
            faults.end(self.data_dir, ids, by=author(_DOOR))
        except LocalError as error:
            raise ClusterError(str(error)) from None

    def _end_delays(self, pairs: Sequence[tuple[int, int]]) -> None:
        ends = {frozenset(pair) for pair in pairs}
        slow = [it for it in read_faults(self.data_dir) if it.active and it.kind == "slow"]
        self._end_faults([it.id for it in slow if {it.node, it.other} in ends])

    def _fallible(self) -> tuple[int, ...]:
        found = load(self.data_dir).nodes
        return tuple(node.id for node in found if node.is_broker and node.state == process.RUNNING)

    def _check(self, node_id: object) -> int:
        known = [node.id for node in self._cluster.nodes]
        if isinstance(node_id, bool) or not isinstance(node_id, int) or node_id not in known:
            raise ValueError(f"there is no node {node_id!r}; the nodes are {', '.join(map(str, known))}")
        return node_id
