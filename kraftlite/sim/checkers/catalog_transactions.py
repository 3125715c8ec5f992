"""The checkers of transactions."""

from __future__ import annotations

from typing import Final

from kraftlite.sim.checkers.base import CheckerFactory
from kraftlite.sim.checkers.h_sink import SinkExact
from kraftlite.sim.checkers.h_transactions import TransactionsSeen
from kraftlite.sim.checkers.i65_transaction_states import TransactionStates
from kraftlite.sim.checkers.i66_transaction_outcomes import TransactionOutcomes
from kraftlite.sim.checkers.i67_stable_offsets import StableOffsets
from kraftlite.sim.checkers.i68_transaction_memory import CoordinatorMemory
from kraftlite.sim.checkers.i69_fenced_producers import FencedProducers
from kraftlite.sim.checkers.i70_stable_fetches import StableFetches
from kraftlite.sim.checkers.i71_pending_offsets import PendingOffsetsKept
from kraftlite.sim.checkers.i72_transaction_refusals import TransactionRefusals
from kraftlite.sim.checkers.i73_transaction_timeouts import TimeoutsAsked, TransactionTimeouts
from kraftlite.sim.checkers.transaction_ends import TransactionEnds
from kraftlite.sim.checkers.transaction_listing import TransactionsListed
from kraftlite.sim.checkers.transaction_log import TransactionWatch
from kraftlite.sim.checkers.transaction_races import RaceWatch

TRANSACTIONS: Final[tuple[CheckerFactory, ...]] = (
    TransactionWatch,
    TransactionStates,
    TransactionOutcomes,
    StableOffsets,
    CoordinatorMemory,
    FencedProducers,
    StableFetches,
    PendingOffsetsKept,
    TransactionRefusals,
    TransactionEnds,
    TransactionTimeouts,
    TimeoutsAsked,
    TransactionsSeen,
    SinkExact,
    RaceWatch,
    TransactionsListed,
)
"""The watch drives the others, and is driven by the keeper of the losses."""
