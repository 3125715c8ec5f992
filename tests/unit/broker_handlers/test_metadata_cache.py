"""The metadata cache: one assignment swaps everything, and what it lists is in a fixed order."""

from __future__ import annotations

import random

from kraftlite.broker.metadata_cache import MetadataCache
from kraftlite.metadata.image import MetadataImage
from kraftlite.model.errors import ErrorCode
from kraftlite.model.ids import NodeId
from tests.harness.wire_fakes import LISTENER, broker, image, partition


def cache_of(found: MetadataImage) -> MetadataCache:
    cache = MetadataCache("c")
    cache.set_image(found)
    return cache


def test_empty_before_the_first_image() -> None:
    cache = MetadataCache("c")
    assert cache.alive_brokers(LISTENER) == ()
    assert cache.topic("a") is None
    assert list(cache.topic_names()) == []
    assert cache.random_alive_broker(random.Random(1)) is None


def test_order_is_deterministic() -> None:
    cache = cache_of(image([broker(3), broker(1), broker(2)], {"b": [], "a": []}))
    assert [one.broker_id for one in cache.alive_brokers(LISTENER)] == [1, 2, 3]
    assert sorted(cache.topic_names()) == ["a", "b"]


def test_the_same_seed_names_the_same_controllers() -> None:
    cache = cache_of(image([broker(node) for node in (5, 1, 3)], {}))
    draws = [[cache.random_alive_broker(entropy) for _ in range(20)] for entropy in (random.Random(9), random.Random(9))]
    assert draws[0] == draws[1]
    assert set(draws[0]) == {1, 3, 5}


def test_listener_views_follow_the_cluster_image() -> None:
    cache = cache_of(image([broker(1), broker(2)], {}))
    assert len(cache.alive_brokers(LISTENER)) == 2
    cache.set_image(image([broker(1), broker(2, fenced=True)], {}))
    assert [one.broker_id for one in cache.alive_brokers(LISTENER)] == [1]
    assert [(one.broker_id, one.fenced) for one in cache.all_brokers(LISTENER)] == [(1, False), (2, True)]
    assert cache.alive_broker(NodeId(2), LISTENER) is None


def test_a_reader_that_took_the_image_keeps_a_consistent_one() -> None:
    cache = cache_of(image([broker(1)], {"a": [partition([1])]}))
    taken = cache.image
    cache.set_image(image([broker(1)], {}))
    assert taken.topics.topic("a") is not None
    assert cache.topic("a") is None


def test_a_partition_without_a_leader() -> None:
    cache = cache_of(image([broker(1)], {"a": [partition([1, 2], leader=None, leader_epoch=3)]}))
    topic = cache.topic("a")
    assert topic is not None
    (one,) = cache.topic_metadata(topic, LISTENER, listener_errors=True).partitions
    assert (one.error, one.leader, one.leader_epoch) == (ErrorCode.LEADER_NOT_AVAILABLE, None, 3)
    assert one.offline_replicas == (2,)
