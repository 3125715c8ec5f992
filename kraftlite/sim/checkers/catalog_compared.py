"""The checkers of what a controller keeps of its past, and of two ways to one answer: a tool and the nodes, two scanners."""

from __future__ import annotations

from typing import Final

from kraftlite.sim.checkers.base import CheckerFactory
from kraftlite.sim.checkers.facts import MetadataWatch
from kraftlite.sim.checkers.past_forgotten import PastForgotten
from kraftlite.sim.checkers.records_shown import RecordsShown
from kraftlite.sim.checkers.two_scanners import TwoScanners

COMPARED: Final[tuple[CheckerFactory, ...]] = (MetadataWatch, PastForgotten, RecordsShown, TwoScanners)
