"""Reading subscriptions, also those that are none."""

from __future__ import annotations

import struct

from kraftlite.coordinator.consumer_protocol import parse_subscription, subscribed_topics
from kraftlite.model.limits import MAX_REQUEST_ITEMS
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


def test_what_a_member_says_it_owns_is_bounded_before_it_is_read() -> None:
    """Four bytes for a partition: a request of some megabytes would keep the loop for seconds."""
    head = b"\x00\x01" + b"\x00\x00\x00\x00" + b"\xff\xff\xff\xff" + b"\x00\x00\x00\x01" + b"\x00\x01t"
    owned = [0, 1, 2]
    assert parse_subscription(head + struct.pack(f">i{len(owned)}i", len(owned), *owned)) is not None
    many = MAX_REQUEST_ITEMS + 1
    assert parse_subscription(head + struct.pack(">i", many) + bytes(4 * many)) is None
