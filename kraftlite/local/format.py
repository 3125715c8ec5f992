"""Formatting the directories of a local node, in the process that is about to start it."""

from __future__ import annotations

import random
from collections.abc import Sequence

from kraftlite.config import server
from kraftlite.host.disk import HostDisk
from kraftlite.model.ids import uuid_from_str
from kraftlite.node.forming import Formation, formation
from kraftlite.node.storage import format_directories


def format_node(
    config_path: str, cluster_id: str, voters: str | None, directory_id: str | None, add_scram: Sequence[str] = ()
) -> None:
    """Format what is not formatted yet; a directory of another cluster or node is an error (TO-03).

    `voters`: the controllers with which a dynamic quorum begins, in the form of `format --initial-controllers` (KIP-853); empty
    for a node that joins such a quorum, whose metadata directory gets `directory_id`; None where the configuration says them.
    `add_scram`: credentials of the cluster's first users, in the form of `format --add-scram` (KIP-900).
    Raises StorageError, ConfigError, FormingError.
    """
    config = server.load(config_path)
    forming = None
    if voters:
        forming = formation(config, initial_controllers=voters, entropy=random.SystemRandom())
    elif voters is not None:
        forming = Formation(directory_id=None if directory_id is None else uuid_from_str(directory_id))
    format_directories(HostDisk(), config, cluster_id, ignore_formatted=True, forming=forming, add_scram=add_scram)
