"""Who vouches alone for a log that is damaged: nobody else would lead its partition."""

from __future__ import annotations

import pytest

from kraftlite.broker.publisher import _vouches_alone
from kraftlite.metadata.delta import MetadataDelta
from kraftlite.metadata.features import ELIGIBLE_LEADER_REPLICAS_VERSION
from kraftlite.metadata.image import MetadataImage, MetadataProvenance
from kraftlite.metadata.records import FeatureLevelRecord, PartitionRecord, TopicRecord
from kraftlite.model.ids import NodeId
from kraftlite.model.topic_partition import TopicPartition
from tests.harness.broker_logs import ORDERS

ME = NodeId(1)


@pytest.mark.parametrize(
    ("isr", "elr", "last", "clean", "alone"),
    [
        ((1,), (), (), True, True),
        ((1, 2), (), (), True, False),
        ((2,), (1,), (), True, True),
        ((2,), (1,), (), False, False),
        ((), (1,), (), False, True),
        ((), (1,), (), True, True),
        ((), (1, 2), (), True, True),
        ((), (1, 2), (), False, False),
        ((), (2,), (), True, False),
        ((), (2,), (1,), True, False),
        ((2,), (), (1,), True, False),
        ((), (), (1,), False, True),
        ((), (), (1,), True, True),
    ],
)
def test_lg_53_who_may_still_be_elected_vouches_for_its_log(
    isr: tuple[int, ...], elr: tuple[int, ...], last: tuple[int, ...], clean: bool, alone: bool
) -> None:
    """Nobody else would lead: neither one of the ISR, nor of the ELR, nor who led last, however it stopped (KIP-966). After a
    clean stop it may lead beside others of the ELR, also where nobody is in the ISR."""
    assert _vouches_alone(_orders(1, isr, elr, last), ME, TopicPartition("orders", 0), clean=clean) is alone


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize(
    ("isr", "elr", "alone"), [((1,), (), True), ((1, 2), (), False), ((), (1,), True), ((2,), (1,), False), ((), (2,), False)]
)
def test_lg_53_without_eligible_leader_replicas_the_last_of_the_isr_vouches(
    isr: tuple[int, ...], elr: tuple[int, ...], clean: bool, alone: bool
) -> None:
    """An ELR is one from before the feature was switched off."""
    assert _vouches_alone(_orders(0, isr, elr, ()), ME, TopicPartition("orders", 0), clean=clean) is alone
    assert not _vouches_alone(_orders(0, isr, elr, ()), ME, TopicPartition("orders", 1), clean=clean)


def _orders(level: int, isr: tuple[int, ...], elr: tuple[int, ...], last: tuple[int, ...]) -> MetadataImage:
    """Partition 0 of brokers 1 and 2; `level`: of the eligible leader replicas."""
    delta = MetadataDelta(MetadataImage.EMPTY)
    delta.replay(FeatureLevelRecord(name=ELIGIBLE_LEADER_REPLICAS_VERSION, level=level))
    delta.replay(TopicRecord(name="orders", topic_id=ORDERS))
    delta.replay(
        PartitionRecord(
            topic_id=ORDERS,
            partition=0,
            replicas=(NodeId(1), NodeId(2)),
            isr=tuple(map(NodeId, isr)),
            leader=None,
            leader_epoch=0,
            partition_epoch=0,
            elr=tuple(map(NodeId, elr)),
            last_known_elr=tuple(map(NodeId, last)),
        )
    )
    provenance = MetadataProvenance(
        last_contained_offset=3, last_contained_epoch=1, last_contained_log_time_ms=0, is_offset_batch_aligned=True
    )
    return delta.apply(provenance)
