"""The checkers of log directories: invariants 80 to 83, and 100."""

from __future__ import annotations

from typing import Final

from kraftlite.sim.checkers.base import CheckerFactory
from kraftlite.sim.checkers.facts import MetadataWatch
from kraftlite.sim.checkers.i80_one_place import OnePlace
from kraftlite.sim.checkers.i83_offline_leaders import OfflineLeaders
from kraftlite.sim.checkers.i100_cordons import CordonsKept
from kraftlite.sim.checkers.places_told import PlacesTold

DIRECTORIES: Final[tuple[CheckerFactory, ...]] = (MetadataWatch, OnePlace, OfflineLeaders, PlacesTold, CordonsKept)
