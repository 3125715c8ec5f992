"""All checkers, in the order in which they are told."""

from __future__ import annotations

from typing import Final

from kraftlite.sim.checkers.base import CheckerFactory
from kraftlite.sim.checkers.catalog_admin import ADMINISTRATION
from kraftlite.sim.checkers.catalog_compared import COMPARED
from kraftlite.sim.checkers.catalog_described import DESCRIBED
from kraftlite.sim.checkers.catalog_directories import DIRECTORIES
from kraftlite.sim.checkers.catalog_groups import GROUPS
from kraftlite.sim.checkers.catalog_metadata import RAFT_AND_METADATA
from kraftlite.sim.checkers.catalog_replication import REPLICATION_AND_HISTORY
from kraftlite.sim.checkers.catalog_security import SECURITY
from kraftlite.sim.checkers.catalog_transactions import TRANSACTIONS

_PARTS: Final = (
    REPLICATION_AND_HISTORY,
    RAFT_AND_METADATA,
    ADMINISTRATION,
    GROUPS,
    TRANSACTIONS,
    DIRECTORIES,
    SECURITY,
    DESCRIBED,
    COMPARED,
)

ALL: Final[tuple[CheckerFactory, ...]] = tuple(dict.fromkeys(checker for part in _PARTS for checker in part))
"""Each once: all parts begin with the watch of the metadata log."""
