"""The events that the nodes of a local cluster keep, each in its own directory, also of nodes that were killed, and its ledger of
faults."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from kraftlite.local.ledger import LEDGER_NAME
from kraftlite.local.state import LocalCluster, LocalError
from kraftlite.obs.explain import History, from_line
from kraftlite.obs.timeline import read_timelines


def history_of(cluster: LocalCluster) -> History:
    """Raises LocalError when no node has recorded anything."""
    # The ledger is opened behind the traces: what follows from a fault is never read without it.
    history = read_history([*(node.trace_path for node in cluster.nodes), Path(cluster.data_dir) / LEDGER_NAME])
    if not history.events:
        raise nothing_recorded(Path(cluster.data_dir))
    return history


def nothing_recorded(where: Path) -> LocalError:
    """The error of a cluster, or of trace files, without any event."""
    return LocalError(
        f"nothing is recorded in {where}: kraftlite.trace.enable is false, or kraftlite.trace.file is another file "
        "(name it with --trace)"
    )


def read_history(paths: Iterable[Path]) -> History:
    """Read the events of trace files; a file that is not there has no events, and a damaged line is left out."""
    found = map(from_line, read_timelines(paths))
    return History(event for event in found if event is not None)
