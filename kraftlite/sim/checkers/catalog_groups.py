"""The checkers of consumer groups."""

from __future__ import annotations

from typing import Final

from kraftlite.sim.checkers.base import CheckerFactory
from kraftlite.sim.checkers.deleted_topics import OffsetsOfDeletedTopics
from kraftlite.sim.checkers.group_log import GroupWatch
from kraftlite.sim.checkers.group_refusals import GroupRefusals
from kraftlite.sim.checkers.group_sizes import GroupSizes
from kraftlite.sim.checkers.i40_one_owner import OneOwner
from kraftlite.sim.checkers.i41_epochs_grow import EpochsGrow
from kraftlite.sim.checkers.i42_offsets_kept import OffsetsKept
from kraftlite.sim.checkers.i43_fenced_members import FencedMembers
from kraftlite.sim.checkers.i44_loaded_groups import LoadedGroups
from kraftlite.sim.checkers.offsets_expire import OffsetsExpire
from kraftlite.sim.checkers.removals_deserved import RemovalsDeserved
from kraftlite.sim.checkers.self_checks_coordinators import SelfCheckCoordinators
from kraftlite.sim.checkers.stable_members import LeaversNoticed, StableMembers
from kraftlite.sim.checkers.topics_noticed import TopicsNoticed, TopicsShared

GROUPS: Final[tuple[CheckerFactory, ...]] = (
    GroupWatch,
    OneOwner,
    EpochsGrow,
    OffsetsKept,
    OffsetsOfDeletedTopics,
    FencedMembers,
    LoadedGroups,
    GroupRefusals,
    GroupSizes,
    OffsetsExpire,
    RemovalsDeserved,
    SelfCheckCoordinators,
    LeaversNoticed,
    StableMembers,
    TopicsNoticed,
    TopicsShared,
)
"""The watch of the offsets topic drives the others, and is driven by the keeper of the losses."""
