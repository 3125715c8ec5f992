"""All checkers, in the order in which they are told."""

from __future__ import annotations

from typing import Final

from kraftlite.sim.checkers.base import CheckerFactory
from kraftlite.sim.checkers.catalog_admin import ADMINISTRATION
from kraftlite.sim.checkers.catalog_metadata import RAFT_AND_METADATA
from kraftlite.sim.checkers.catalog_replication import REPLICATION_AND_HISTORY

ALL: Final[tuple[CheckerFactory, ...]] = tuple(dict.fromkeys((*REPLICATION_AND_HISTORY, *RAFT_AND_METADATA, *ADMINISTRATION)))
"""Each once: all begin with the watch of the metadata log."""
