"""CE-14 and CE-15: the records that a new active controller writes first."""

from __future__ import annotations

import pytest

from kraftlite.controller.offset_control import OffsetControl
from kraftlite.controller.results import ControllerResult
from kraftlite.controller.turns import Steps
from kraftlite.metadata.features import ELIGIBLE_LEADER_REPLICAS_VERSION, METADATA_VERSION
from kraftlite.metadata.records import (
    AbortTransactionRecord,
    BeginTransactionRecord,
    ConfigRecord,
    DelegationTokenRecord,
    EndTransactionRecord,
    FeatureLevelRecord,
    MetadataRecord,
)
from kraftlite.model.errors import ApiError, ErrorCode, Fault
from kraftlite.model.tuning import Tuning
from kraftlite.timeline.registry import TimelineRegistry
from tests.harness.controller_world import BOOTSTRAP, World

LEVEL = FeatureLevelRecord(name=METADATA_VERSION, level=30)


def config(value: str) -> ConfigRecord:
    return ConfigRecord(resource_type=4, resource_name="", name="log.retention.ms", value=value)


def test_ce_14_an_empty_log_is_bootstrapped_once() -> None:
    world = World(2)
    records = world.quorum.records()
    assert records == [BeginTransactionRecord(name="Bootstrap records"), LEVEL, EndTransactionRecord()]
    world.quorum.elect(101)
    world.settle()
    assert world.quorum.records() == records


def test_ce_14_no_bootstrap_metadata_refuses() -> None:
    for bootstrap in (None, (), (config("1"),)):
        with pytest.raises(Fault, match="bootstrap metadata"):
            World(bootstrap=bootstrap)


def test_ce_14_who_cannot_write_its_first_records_writes_nothing_else() -> None:
    """A registration as the first record of a log would be the end of it: no controller takes over a log without a level."""
    needs_35 = DelegationTokenRecord(
        owner="User:a",
        requester="User:a",
        issue_timestamp_ms=1,
        expiration_timestamp_ms=2,
        max_timestamp_ms=3,
        token_id="t",
        renewers=(),
    )
    world = World(bootstrap=(FeatureLevelRecord(name=METADATA_VERSION, level=7), needs_35))
    assert not world.quorum.records()
    assert not any(node.core.active for node in world.nodes.values())


def test_ce_18_an_operation_that_is_written_in_part_costs_the_controller_its_office() -> None:
    """Nobody else would end its metadata transaction, and nothing behind its beginning takes effect until then."""
    world = World(2)
    raft = world.active.raft

    def rest() -> Steps[ControllerResult[None]]:
        raft.fail_prepare = ApiError(ErrorCode.RECORD_LIST_TOO_LARGE, "more than 8 MiB")
        return ControllerResult(records=[config("2"), EndTransactionRecord()], response=None)
        yield

    begin: list[MetadataRecord] = [BeginTransactionRecord(name="Many"), config("1")]
    answer = world.submit("many", lambda _now: ControllerResult(records=begin, response=None, rest=rest))
    assert answer.code is ErrorCode.RECORD_LIST_TOO_LARGE
    assert not any(node.core.active for node in world.nodes.values())
    world.quorum.elect(101)
    world.settle()
    assert isinstance(world.quorum.records()[-1], AbortTransactionRecord)
    one: list[MetadataRecord] = [config("3")]
    assert world.submit("one", lambda _now: ControllerResult(records=one, response="done")).value == "done"


def test_ce_15_bootstrap_without_transaction_support_is_one_plain_batch() -> None:
    world = World(bootstrap=(FeatureLevelRecord(name=METADATA_VERSION, level=12), config("1")))
    assert world.quorum.records() == [FeatureLevelRecord(name=METADATA_VERSION, level=12), config("1")]


def test_ce_15_a_half_written_bootstrap_is_aborted_and_written_again() -> None:
    world = World(2, log=[[BeginTransactionRecord(name="Bootstrap records"), LEVEL]], bootstrap=(*BOOTSTRAP, config("1")))
    written = world.quorum.records()[2:]
    assert [type(record) for record in written[:2]] == [AbortTransactionRecord, BeginTransactionRecord]
    assert written[2:] == [LEVEL, config("1"), EndTransactionRecord()]
    assert world.state.features.metadata_version == 30
    assert len({node.core.state_hash() for node in world.nodes.values()}) == 1


@pytest.mark.parametrize("batches", [1, 2, 3, 4, 5])
def test_ce_15_a_bootstrap_is_written_again_in_full_whatever_was_there_of_it(batches: int) -> None:
    bootstrap = (LEVEL, FeatureLevelRecord(name=ELIGIBLE_LEADER_REPLICAS_VERSION, level=1), config("1"))
    whole = World(2, bootstrap=bootstrap).quorum.records()
    assert len(whole) == 6, "with the min.insync.replicas that eligible leader replicas need"
    world = World(2, log=[[record] for record in whole[:batches]], bootstrap=bootstrap)
    assert world.quorum.records()[batches:][1:] == whole
    world.quorum.elect(101)
    world.settle()
    assert world.quorum.records()[batches:][1:] == whole, "and only once"


def test_ce_15_a_bootstrap_of_which_half_was_written_twice_is_written_again() -> None:
    half = [[BeginTransactionRecord(name="Bootstrap records"), LEVEL], [config("1")]]
    again = [[AbortTransactionRecord(reason="left open"), *half[0]], half[1]]
    world = World(2, log=[*half, *again], bootstrap=(*BOOTSTRAP, config("2")))
    assert [type(record) for record in world.quorum.records()[7:9]] == [AbortTransactionRecord, BeginTransactionRecord]
    assert world.quorum.records()[9:] == [LEVEL, config("2"), EndTransactionRecord()]


def test_ce_15_another_open_transaction_is_aborted() -> None:
    world = World(log=[[LEVEL], [BeginTransactionRecord(name="x"), config("1")]])
    assert world.state.configs.get((4, "")) == {}
    assert isinstance(world.quorum.records()[-1], AbortTransactionRecord)
    assert world.active.core.offsets.stable_offset == world.quorum.leo - 1


def test_ce_15_an_open_transaction_without_support_is_an_error() -> None:
    with pytest.raises(Fault, match=r"metadata\.version 12"):
        World(log=[[FeatureLevelRecord(name=METADATA_VERSION, level=12)], [BeginTransactionRecord(name="x")]])


@pytest.mark.parametrize("at_once", [1, 2, 5])
def test_ce_15_a_bootstrap_in_several_batches_is_the_same_bootstrap(at_once: int) -> None:
    level = FeatureLevelRecord(name=METADATA_VERSION, level=25)
    bootstrap = (level, FeatureLevelRecord(name="group.version", level=1), config("1"))
    world = World(2, bootstrap=bootstrap, tuning=Tuning(first_records_per_batch=at_once))
    assert world.quorum.records() == World(2, bootstrap=bootstrap).quorum.records()
    assert len({node.core.state_hash() for node in world.nodes.values()}) == 1
    sizes = [len(batch.records) for batch in world.quorum.batches]
    assert max(sizes) == at_once and sum(sizes) == 5


def test_ce_12_who_renounces_and_is_active_again_keeps_one_timeline_snapshot_of_what_is_stable() -> None:
    registry = TimelineRegistry()
    offsets = OffsetControl(registry)
    offsets.handle_commit(60, 1)
    offsets.activate(61)
    offsets.handle_commit(62, 1)
    offsets.deactivate()
    assert registry.epochs == (), "a standby has nothing to go back to"
    offsets.activate(64)
    assert registry.epochs == (62,)
