"""The checkers of what administrators ask for: invariants 50 to 54, 60 and 93."""

from __future__ import annotations

from typing import Final

from kraftlite.sim.checkers.base import CheckerFactory
from kraftlite.sim.checkers.callers import PushesInOrder, ToldByControllers
from kraftlite.sim.checkers.facts import MetadataWatch
from kraftlite.sim.checkers.i50_admin_outcomes import AdminOutcomes
from kraftlite.sim.checkers.i51_configs_in_force import ConfigsInForce
from kraftlite.sim.checkers.i52_moves import Moves
from kraftlite.sim.checkers.i53_descriptions import Descriptions
from kraftlite.sim.checkers.i54_reborn_topics import RebornTopics
from kraftlite.sim.checkers.i60_self_reports import SelfReports
from kraftlite.sim.checkers.i93_no_secrets import NoSecrets

ADMINISTRATION: Final[tuple[CheckerFactory, ...]] = (
    MetadataWatch,
    Moves,
    AdminOutcomes,
    ConfigsInForce,
    Descriptions,
    RebornTopics,
    SelfReports,
    NoSecrets,
    PushesInOrder,
    ToldByControllers,
)
