"""Which replicas a broker reports to the controller, and when (JB-05, BL-19)."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from kraftlite.broker.assignments import MAX_PER_REQUEST, Assignments
from kraftlite.metadata.delta import MetadataDelta
from kraftlite.metadata.image import MetadataImage
from kraftlite.metadata.records import PartitionRecord, TopicRecord
from kraftlite.model.errors import ErrorCode
from kraftlite.model.ids import UNASSIGNED_DIR, NodeId
from kraftlite.model.messages.controller import (
    AssignReplicaResult,
    AssignReplicasToDirsRequest,
    AssignReplicasToDirsResponse,
)

T, ME, OTHER = UUID(int=501), NodeId(1), NodeId(2)
D1, D2 = UUID(int=1001), UUID(int=1002)


def image(*directories: UUID, replica: NodeId = ME, count: int | None = None) -> MetadataImage:
    """Topic t, whose partition i is ours and is in the i-th directory."""
    delta = MetadataDelta(MetadataImage.EMPTY)
    delta.replay(TopicRecord(name="t", topic_id=T))
    for index in range(len(directories) if count is None else count):
        delta.replay(
            PartitionRecord(
                topic_id=T,
                partition=index,
                replicas=(replica,),
                isr=(replica,),
                leader=replica,
                leader_epoch=0,
                partition_epoch=0,
                directories=(directories[index % len(directories)],),
            )
        )
    return delta.apply(MetadataImage.EMPTY.provenance)


def said(request: AssignReplicasToDirsRequest | None) -> list[tuple[int, UUID]] | None:
    return None if request is None else [(one.partition, one.directory_id) for one in request.replicas]


def answer(request: Any, *errors: ErrorCode) -> AssignReplicasToDirsResponse:
    rows = zip(request.replicas, errors, strict=True)
    return AssignReplicasToDirsResponse(
        replicas=tuple(AssignReplicaResult(topic_id=one.topic_id, partition=one.partition, error=error) for one, error in rows)
    )


def test_jb_05_one_request_at_a_time_with_the_newest_wish_of_each() -> None:
    core, now = Assignments(ME), image(UNASSIGNED_DIR, UNASSIGNED_DIR)
    core.wish(T, 0, D1)
    core.wish(T, 1, D1)
    core.wish(T, 0, D2)
    request = core.request(7, now)
    assert said(request) == [(0, D2), (1, D1)] and request is not None and request.broker_epoch == 7
    core.wish(T, 1, D2)
    assert core.request(7, now) is None, "one is under way"
    assert core.answered(answer(request, ErrorCode.NONE, ErrorCode.NONE)) == 0
    assert said(core.request(7, now)) == [(1, D2)]


def test_jb_05_a_wish_that_metadata_has_overtaken_is_dropped() -> None:
    for now in (image(D1), image(UNASSIGNED_DIR, replica=OTHER), MetadataImage.EMPTY):
        core = Assignments(ME)
        core.wish(T, 0, D1)
        assert core.request(7, now) is None and core.idle and len(core) == 0


def test_jb_05_what_was_said_meanwhile_is_taken_back_although_metadata_does_not_know_it_yet() -> None:
    """Metadata says D1, D2 was said and may be on its way, and D1 it shall be."""
    core, now = Assignments(ME), image(D1)
    core.wish(T, 0, D2)
    request = core.request(7, now)
    core.answered(answer(request, ErrorCode.NONE))
    core.wish(T, 0, D1)
    assert said(core.request(7, now)) == [(0, D1)]


def test_bl_19_a_request_that_failed_is_repeated_but_for_what_was_wished_anew() -> None:
    core, now = Assignments(ME), image(UNASSIGNED_DIR, UNASSIGNED_DIR)
    core.wish(T, 0, D1)
    core.wish(T, 1, D1)
    core.request(7, now)
    core.wish(T, 0, D2)
    core.failed()
    assert said(core.request(8, now)) == [(0, D2), (1, D1)]


def test_jb_05_a_replica_that_is_unknown_is_dropped_and_another_refusal_repeated() -> None:
    """Assignments of deleted topics were sent for ever (KAFKA-17190)."""
    core, now = Assignments(ME), image(UNASSIGNED_DIR, UNASSIGNED_DIR)
    core.wish(T, 0, D1)
    core.wish(T, 1, D1)
    request = core.request(7, now)
    assert core.answered(answer(request, ErrorCode.UNKNOWN_TOPIC_ID, ErrorCode.UNKNOWN_SERVER_ERROR)) == 1
    assert said(core.request(7, now)) == [(1, D1)]


def test_jb_05_a_request_has_a_bounded_number_of_replicas() -> None:
    count = MAX_PER_REQUEST + 10
    core, now = Assignments(ME), image(UNASSIGNED_DIR, count=count)
    for index in range(count):
        core.wish(T, index, D1)
    first = core.request(7, now)
    assert first is not None and len(first.replicas) == MAX_PER_REQUEST
    core.answered(answer(first, *[ErrorCode.NONE] * MAX_PER_REQUEST))
    assert len(said(core.request(7, now)) or ()) == 10
