"""The checkers of partition replication and of the clients' history."""

from __future__ import annotations

from typing import Final

from kraftlite.sim.checkers.base import CheckerFactory
from kraftlite.sim.checkers.client_epochs import ClientEpochs
from kraftlite.sim.checkers.controlled_shutdown import ControlledShutdown
from kraftlite.sim.checkers.cut_logs import CutsSupersedeNothing
from kraftlite.sim.checkers.deletions_end import DeletionsEnd
from kraftlite.sim.checkers.epochs_fit import EpochsFit
from kraftlite.sim.checkers.facts import MetadataWatch
from kraftlite.sim.checkers.fetch_answers import FetchAnswers
from kraftlite.sim.checkers.fetches_fit import FetchesFit
from kraftlite.sim.checkers.h_acknowledged import AcknowledgedKept
from kraftlite.sim.checkers.h_admin import AdminEffects
from kraftlite.sim.checkers.h_compacted import CompactedReadings
from kraftlite.sim.checkers.h_consumed import ConsumptionConsistent
from kraftlite.sim.checkers.h_duplicates import NoDuplicates
from kraftlite.sim.checkers.h_metadata import MetadataReads
from kraftlite.sim.checkers.h_order import OrderKept
from kraftlite.sim.checkers.h_strangers import StrangersRefused
from kraftlite.sim.checkers.h_verdicts import OneVerdict
from kraftlite.sim.checkers.i24_leader_completeness import LeaderCompleteness
from kraftlite.sim.checkers.i25_candidate_completeness import CandidateCompleteness
from kraftlite.sim.checkers.i26_replication_quorum import ReplicationQuorum
from kraftlite.sim.checkers.i27_unclean_exclusion import UncleanExclusion
from kraftlite.sim.checkers.i28_log_matching import LogMatching
from kraftlite.sim.checkers.i29_consistent_reads import ConsistentReads
from kraftlite.sim.checkers.i30_nothing_lost import NothingLost
from kraftlite.sim.checkers.i31_fetcher_validity import FetcherValidity
from kraftlite.sim.checkers.i32_applied_hw import AppliedHw
from kraftlite.sim.checkers.i33_liveness import ReplicationLiveness
from kraftlite.sim.checkers.i36_promises_kept import PromisesKept
from kraftlite.sim.checkers.i38_refusals_deserved import RefusalsDeserved
from kraftlite.sim.checkers.i45_compaction import CompactionSound
from kraftlite.sim.checkers.i46_retention import RetentionAllowed
from kraftlite.sim.checkers.i47_log_starts import LogStartsFollow
from kraftlite.sim.checkers.i48_offsets import OffsetsTold
from kraftlite.sim.checkers.i49_log_upkeep import LogsKeptUp
from kraftlite.sim.checkers.i55_follower_reads import FollowerReads
from kraftlite.sim.checkers.i96_waits import WaitsEnd
from kraftlite.sim.checkers.i98_deleted_files import DeletedFilesWait
from kraftlite.sim.checkers.i99_throttles import ThrottlesKept
from kraftlite.sim.checkers.isr_lag import IsrLag
from kraftlite.sim.checkers.isr_shrinks import ShrinksDeserved
from kraftlite.sim.checkers.loads_end import LoadsEnd
from kraftlite.sim.checkers.log_starts import LogStartsFounded
from kraftlite.sim.checkers.losses_keeper import LossesKeeper
from kraftlite.sim.checkers.producer_state import ProducerStateKept
from kraftlite.sim.checkers.rewritten_topics import RewrittenTopics
from kraftlite.sim.checkers.self_checks import SelfCheckReplicas
from kraftlite.sim.checkers.sessions_agree import SessionsAgree
from kraftlite.sim.checkers.statements_hold import StatementsHold
from kraftlite.sim.checkers.withdrawals import Withdrawals

REPLICATION_AND_HISTORY: Final[tuple[CheckerFactory, ...]] = (
    MetadataWatch,
    LossesKeeper,
    RewrittenTopics,
    SelfCheckReplicas,
    PromisesKept,
    StatementsHold,
    CompactionSound,
    CutsSupersedeNothing,
    RetentionAllowed,
    LogStartsFollow,
    DeletionsEnd,
    OffsetsTold,
    LogsKeptUp,
    DeletedFilesWait,
    ThrottlesKept,
    LogMatching,
    EpochsFit,
    ProducerStateKept,
    AppliedHw,
    ReplicationQuorum,
    Withdrawals,
    UncleanExclusion,
    LeaderCompleteness,
    CandidateCompleteness,
    FetcherValidity,
    FetchAnswers,
    FetchesFit,
    SessionsAgree,
    ClientEpochs,
    RefusalsDeserved,
    IsrLag,
    ShrinksDeserved,
    WaitsEnd,
    LoadsEnd,
    ConsistentReads,
    FollowerReads,
    NothingLost,
    LogStartsFounded,
    ControlledShutdown,
    ReplicationLiveness,
    StrangersRefused,
    OneVerdict,
    ConsumptionConsistent,
    AcknowledgedKept,
    CompactedReadings,
    NoDuplicates,
    OrderKept,
    AdminEffects,
    MetadataReads,
)
"""The keeper of the losses drives the others, so it comes before them; and the watch of the metadata log drives the keeper."""
