"""Formatting the directories of a local node, in the process that is about to start it."""

from __future__ import annotations

from collections.abc import Sequence

from kraftlite.config import server
from kraftlite.host.disk import HostDisk
from kraftlite.node.storage import format_directories


def format_node(config_path: str, cluster_id: str, add_scram: Sequence[str] = ()) -> None:
    """Format what is not formatted yet; a directory of another cluster or node is an error (TO-03). `add_scram`: credentials of
    the cluster's first users, in the form of `format --add-scram` (KIP-900)."""
    config = server.load(config_path)
    format_directories(HostDisk(), config, cluster_id, ignore_formatted=True, add_scram=add_scram)
