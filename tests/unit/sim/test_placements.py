"""The rules of placement know good places from bad ones, and the tokens of a quota are counted as they are told."""

from __future__ import annotations

from dataclasses import replace
from uuid import UUID

import pytest

from kraftlite.metadata.registrations import BrokerRegistration
from kraftlite.model.ids import MIGRATING_DIR, UNASSIGNED_DIR, NodeId
from kraftlite.sim.checkers.i92_mutations import Tokens
from kraftlite.sim.checkers.model import MetadataState
from kraftlite.sim.checkers.placements import first_directories, is_well_placed

DIRECTORY = UUID(int=77)
NEWEST = {"metadata.version": 30}


def _broker(broker_id: int, rack: str | None = None, **more: object) -> BrokerRegistration:
    base = BrokerRegistration(
        broker_id=NodeId(broker_id),
        broker_epoch=broker_id,
        incarnation_id=UUID(int=broker_id),
        listeners=(),
        features=(),
        rack=rack,
        fenced=False,
        in_controlled_shutdown=False,
        log_dirs=(DIRECTORY,),
    )
    return replace(base, **more)  # type: ignore[arg-type]


def _state(*brokers: BrokerRegistration) -> MetadataState:
    return MetadataState(brokers={it.broker_id: it for it in brokers}, features=NEWEST)


def _fits(state: MetadataState, *replicas: int) -> bool:
    return is_well_placed(state, [NodeId(it) for it in replicas])


def test_replicas_are_in_as_many_racks_as_there_are() -> None:
    state = _state(_broker(1, "east"), _broker(2, "east"), _broker(3, "west"))
    assert _fits(state, 1, 3) and _fits(state, 3, 2) and _fits(state, 3, 1, 2) and _fits(state, 2)
    assert not _fits(state, 1, 2)


def test_a_fenced_broker_comes_behind_those_of_its_rack_and_leads_nothing() -> None:
    state = _state(_broker(1, fenced=True), _broker(2), _broker(3))
    assert _fits(state, 2, 3) and _fits(state, 2, 3, 1)
    assert not _fits(state, 2, 1)
    assert not _fits(state, 1, 2, 3)


@pytest.mark.parametrize("away", [{"in_controlled_shutdown": True}, {"cordoned_log_dirs": (DIRECTORY,)}])
def test_who_goes_or_takes_nothing_gets_nothing(away: dict[str, object]) -> None:
    state = _state(_broker(1, "east", **away), _broker(2, "west"), _broker(3, "west"))
    assert _fits(state, 2, 3)
    assert not _fits(state, 2, 1)


def test_the_directory_of_a_new_replica_is_the_only_one_or_none() -> None:
    state = _state(_broker(1), _broker(2, log_dirs=(DIRECTORY, UUID(int=78))), _broker(3, log_dirs=()))
    replicas = [NodeId(it) for it in (1, 2, 3)]
    assert first_directories(state, replicas) == (DIRECTORY, UNASSIGNED_DIR, MIGRATING_DIR)
    assert first_directories(replace(state, features={"metadata.version": 7}), replicas) == ()


def test_tokens_come_back_up_to_those_of_eleven_seconds() -> None:
    tokens = Tokens(2.0)
    assert (tokens.low.left, tokens.high.left) == (22.0, 22.0)
    tokens.low.refill(2.0, 1_000_000)
    tokens.low.left -= 20
    tokens.low.refill(2.0, 3_000_000)
    assert tokens.low.left == 6.0
    tokens.low.refill(2.0, 60_000_000)
    assert tokens.low.left == 22.0
    tokens.high.refill(0.5, 1_000_000)
    assert tokens.high.left == 5.5
