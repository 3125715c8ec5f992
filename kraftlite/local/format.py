"""Formatting the directories of a local node, in the process that is about to start it."""

from __future__ import annotations

from kraftlite.config import server
from kraftlite.host.disk import HostDisk
from kraftlite.node.storage import format_directories


def format_node(config_path: str, cluster_id: str) -> None:
    """Format what is not formatted yet; a directory of another cluster or node is an error (TO-03)."""
    config = server.load(config_path)
    format_directories(HostDisk(), config, cluster_id, ignore_formatted=True)
