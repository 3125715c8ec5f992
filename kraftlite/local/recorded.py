"""The events that the nodes of a local cluster keep, each in its own directory, also of nodes that were killed, and its ledger of
faults."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from kraftlite.local.ledger import LEDGER_NAME
from kraftlite.local.state import LocalCluster, LocalError
from kraftlite.obs.explain import History
from kraftlite.obs.timeline import read_timelines
from kraftlite.obs.trace_lines import TraceLines


def history_of(cluster: LocalCluster) -> History:
    """Raises LocalError when no node has recorded anything."""
    # The ledger is opened behind the traces: what follows from a fault is never read without it.
    history = read_history([*(node.trace_path for node in cluster.nodes), Path(cluster.data_dir) / LEDGER_NAME])
    if not history.events:
        if history.damage is not None:
            raise LocalError(history.damage)
        raise nothing_recorded(Path(cluster.data_dir))
    return history


def nothing_recorded(where: Path) -> LocalError:
    """The error of a cluster, or of trace files, without any event."""
    return LocalError(
        f"nothing is recorded in {where}: kraftlite.trace.enable is false, or kraftlite.trace.file is another file "
        "(name it with --trace)"
    )


def read_history(paths: Iterable[Path]) -> History:
    """Read the events of trace files; a file that is not there has no events. A damaged line is left out, and the history says
    so; one that a crash has cut off is not counted."""
    lines = TraceLines()
    history = History(lines.events(read_timelines(paths)))
    history.damage = lines.problem()
    return history
