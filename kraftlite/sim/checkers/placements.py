"""The rules by which a controller may place the replicas of a new partition by itself (CM-16 to CM-18)."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

from kraftlite.metadata.features import supports_cordoning, supports_directories
from kraftlite.metadata.registrations import BrokerRegistration
from kraftlite.model.ids import MIGRATING_DIR, UNASSIGNED_DIR, NodeId
from kraftlite.sim.checkers.model import MetadataState


def is_well_placed(state: MetadataState, replicas: Sequence[NodeId]) -> bool:
    """Return whether these brokers may have been chosen: none that is on its way down or takes no new replicas; in as many racks
    as there are, or one for each replica; the first of them alive, and in no rack one that is fenced before one that is not."""
    usable = {broker_id: it for broker_id, it in state.brokers.items() if _is_usable(state, it)}
    if any(it not in usable for it in replicas) or usable[replicas[0]].fenced:
        return False
    if len({usable[it].rack for it in replicas}) < min(len(replicas), len({it.rack for it in usable.values()})):
        return False
    left_out = {it.rack for broker_id, it in usable.items() if broker_id not in replicas and not it.fenced}
    return not any(usable[it].fenced and usable[it].rack in left_out for it in replicas)


def first_directories(state: MetadataState, replicas: Sequence[NodeId]) -> tuple[UUID, ...]:
    """The directories of new replicas: that of a broker which has only one; else the broker chooses (JB-03)."""
    level = state.features.get("metadata.version")
    if level is None or not supports_directories(level):
        return ()
    known = [state.brokers[it].log_dirs for it in replicas]
    return tuple(MIGRATING_DIR if not it else it[0] if len(it) == 1 else UNASSIGNED_DIR for it in known)


def _is_usable(state: MetadataState, broker: BrokerRegistration) -> bool:
    if broker.in_controlled_shutdown and not broker.fenced:
        return False
    level = state.features.get("metadata.version")
    return not (broker.is_cordoned and level is not None and supports_cordoning(level))
