"""The checkers of invariants 1 to 14, 16 to 23, 85, 86 and 97, and those of the voters: quorum, controller, metadata."""

from __future__ import annotations

from typing import Final

from kraftlite.sim.checkers.answers_wait import AnswersWait
from kraftlite.sim.checkers.base import CheckerFactory
from kraftlite.sim.checkers.catalog_membership import MEMBERSHIP
from kraftlite.sim.checkers.caught_up import CaughtUpFirst
from kraftlite.sim.checkers.check_quorum import CheckQuorum
from kraftlite.sim.checkers.facts import MetadataWatch
from kraftlite.sim.checkers.i01_election_safety import ElectionSafety
from kraftlite.sim.checkers.i02_epoch_monotonicity import EpochMonotonicity
from kraftlite.sim.checkers.i03_vote_uniqueness import VoteUniqueness
from kraftlite.sim.checkers.i04_log_matching import LogMatching
from kraftlite.sim.checkers.i05_leader_completeness import LeaderCompleteness
from kraftlite.sim.checkers.i06_durability import Durability
from kraftlite.sim.checkers.i07_hw_monotonic import HighWatermarkMonotonic
from kraftlite.sim.checkers.i08_no_truncation_below_hw import NoTruncationBelowHw
from kraftlite.sim.checkers.i09_own_epoch_commit import OwnEpochCommit
from kraftlite.sim.checkers.i10_role_consistency import RoleConsistency
from kraftlite.sim.checkers.i11_snapshot_at_log_start import SnapshotAtLogStart
from kraftlite.sim.checkers.i13_value_verdict import ValueVerdict
from kraftlite.sim.checkers.i14_no_illegal_state import NoIllegalState
from kraftlite.sim.checkers.i16_metadata_matching import MetadataMatching
from kraftlite.sim.checkers.i17_single_writer import SingleWriter
from kraftlite.sim.checkers.i18_ack_committed import AckCommitted
from kraftlite.sim.checkers.i19_fencing import Fencing
from kraftlite.sim.checkers.i20_isr_and_leader import IsrAndLeader
from kraftlite.sim.checkers.i21_partition_epochs import PartitionEpochs
from kraftlite.sim.checkers.i22_broker_epochs import BrokerEpochs
from kraftlite.sim.checkers.i23_producer_ids import ProducerIds
from kraftlite.sim.checkers.i37_fencing_liveness import FencingLiveness
from kraftlite.sim.checkers.i74_eligible_leaders import EligibleLeaders
from kraftlite.sim.checkers.i85_feature_levels import FeatureLevels
from kraftlite.sim.checkers.i86_controllers_registered import ControllersRegistered
from kraftlite.sim.checkers.i97_listeners import RegisteredListeners
from kraftlite.sim.checkers.metadata_acted_on import MetadataActedOn
from kraftlite.sim.checkers.one_incarnation import OneIncarnation
from kraftlite.sim.checkers.pre_votes import PreVotesDeserved
from kraftlite.sim.checkers.quorum_epochs import QuorumEpochs
from kraftlite.sim.checkers.refused_incarnations import RefusedIncarnations
from kraftlite.sim.checkers.self_checks import SelfCheckMetadata
from kraftlite.sim.checkers.shutdowns_end import ShutdownsEnd
from kraftlite.sim.checkers.snapshots_due import SnapshotsDue
from kraftlite.sim.checkers.snapshots_fetched import SnapshotsFetched
from kraftlite.sim.checkers.told_voters import VotersTold
from kraftlite.sim.checkers.wishes_told import WishesTold

RAFT_AND_METADATA: Final[tuple[CheckerFactory, ...]] = (
    MetadataWatch,
    SelfCheckMetadata,
    ElectionSafety,
    EpochMonotonicity,
    VoteUniqueness,
    LogMatching,
    LeaderCompleteness,
    Durability,
    HighWatermarkMonotonic,
    NoTruncationBelowHw,
    OwnEpochCommit,
    RoleConsistency,
    CheckQuorum,
    VotersTold,
    PreVotesDeserved,
    QuorumEpochs,
    SnapshotAtLogStart,
    SnapshotsDue,
    SnapshotsFetched,
    *MEMBERSHIP,
    ValueVerdict,
    NoIllegalState,
    MetadataMatching,
    MetadataActedOn,
    CaughtUpFirst,
    SingleWriter,
    AckCommitted,
    AnswersWait,
    Fencing,
    FencingLiveness,
    IsrAndLeader,
    EligibleLeaders,
    PartitionEpochs,
    BrokerEpochs,
    OneIncarnation,
    RefusedIncarnations,
    ShutdownsEnd,
    WishesTold,
    ProducerIds,
    FeatureLevels,
    ControllersRegistered,
    RegisteredListeners,
)
