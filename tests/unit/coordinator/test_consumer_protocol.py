"""Reading subscriptions, also those that are none."""

from __future__ import annotations

from kraftlite.coordinator.consumer_protocol import subscribed_topics
from tests.harness.group_world import subscription


def test_topics() -> None:
    assert subscribed_topics(subscription("b", "a")) == ("b", "a")
    assert subscribed_topics(subscription()) == ()
    assert subscribed_topics(b"\x00\x03" + subscription("grüße")[2:] + b"what newer versions add") == ("grüße",)


def test_not_a_subscription() -> None:
    for data in (
        b"",
        b"\x00",
        b"opaque",
        b"\xff\xff\x00\x00\x00\x00",
        b"\x00\x00\x00\x00\x00\x01\x00\x05ab",
        b"\x00\x00\x00\x00\x00\x01\x00\x01\xff",
    ):
        assert subscribed_topics(data) is None, data
