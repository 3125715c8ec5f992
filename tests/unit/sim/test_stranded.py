"""Which partitions the operator of last resort sees."""

from __future__ import annotations

from uuid import UUID

import pytest

from kraftlite.metadata.features import ELIGIBLE_LEADER_REPLICAS_VERSION
from kraftlite.metadata.image import MetadataImage
from kraftlite.metadata.records import FeatureLevelRecord, PartitionRecord, TopicRecord
from kraftlite.model.ids import NodeId
from kraftlite.model.topic_partition import TopicPartition
from kraftlite.sim.stranded import stranded_in
from tests.harness.metadata_support import image_of, nodes

TOPIC = UUID(int=77)


def image(isr: tuple[int, ...] = (), elr: tuple[int, ...] = (), leader: int | None = None, level: int = 0) -> MetadataImage:
    partition = PartitionRecord(
        topic_id=TOPIC,
        partition=3,
        replicas=nodes(1, 2),
        isr=nodes(*isr),
        leader=None if leader is None else NodeId(leader),
        leader_epoch=4,
        partition_epoch=7,
        elr=nodes(*elr),
        last_known_elr=nodes(1),
    )
    return image_of(
        [TopicRecord(name="t", topic_id=TOPIC), partition, FeatureLevelRecord(name=ELIGIBLE_LEADER_REPLICAS_VERSION, level=level)]
    )


def test_a_partition_that_only_an_unclean_election_helps_is_stranded() -> None:
    assert stranded_in(image()) == (TopicPartition("t", 3),)


@pytest.mark.parametrize(
    "other",
    [
        pytest.param(image(level=1), id="the feature elects the last known leader"),
        pytest.param(image(elr=(2,)), id="an eligible replica leads when it is back"),
        pytest.param(image(isr=(1,)), id="the last member of the ISR leads when it is back"),
        pytest.param(image(isr=(1,), leader=1), id="somebody leads"),
    ],
)
def test_others_are_not(other: MetadataImage) -> None:
    assert stranded_in(other) == ()
