"""The checkers of rights and quotas: invariants 90 to 92."""

from __future__ import annotations

from typing import Final

from kraftlite.sim.checkers.base import CheckerFactory
from kraftlite.sim.checkers.facts import MetadataWatch
from kraftlite.sim.checkers.i90_rights import RightsDecided, RightsInForce
from kraftlite.sim.checkers.i92_quotas import QuotasKept

SECURITY: Final[tuple[CheckerFactory, ...]] = (MetadataWatch, RightsDecided, RightsInForce, QuotasKept)
