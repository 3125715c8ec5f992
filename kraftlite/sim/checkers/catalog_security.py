"""The checkers of rights, quotas and logins: invariants 90 to 92, 94 and 95."""

from __future__ import annotations

from typing import Final

from kraftlite.sim.checkers.base import CheckerFactory
from kraftlite.sim.checkers.described_rights import EntriesDescribed, TokensDescribed
from kraftlite.sim.checkers.facts import MetadataWatch
from kraftlite.sim.checkers.i90_removals import RemovalsDecided
from kraftlite.sim.checkers.i90_rights import RightsDecided, RightsInForce
from kraftlite.sim.checkers.i92_mutations import MutationsBounded
from kraftlite.sim.checkers.i92_quotas import QuotasKept
from kraftlite.sim.checkers.i94_sessions import LoginsDeserved, SessionsEnd

SECURITY: Final[tuple[CheckerFactory, ...]] = (
    MetadataWatch,
    RightsDecided,
    RightsInForce,
    RemovalsDecided,
    QuotasKept,
    MutationsBounded,
    SessionsEnd,
    LoginsDeserved,
    EntriesDescribed,
    TokensDescribed,
)
