"""What consumers write into their group metadata, as far as a coordinator looks into it: the topics they subscribe to."""

from __future__ import annotations

import struct
from typing import Final

CONSUMER: Final = "consumer"
"""The protocol type of consumers; the metadata of other types is opaque."""


def subscribed_topics(metadata: bytes) -> tuple[str, ...] | None:
    """The topic names in a ConsumerProtocolSubscription of any version; None when it is none.

    Source: `ConsumerProtocolSubscription.json`: version i16, topics [string], then what newer versions add.
    """
    try:
        version, count = struct.unpack_from(">hi", metadata)
        if version < 0 or not 0 <= count <= len(metadata):
            return None
        topics = []
        position = 6
        for _ in range(count):
            (size,) = struct.unpack_from(">h", metadata, position)
            end = position + 2 + size
            if size < 0 or end > len(metadata):
                return None
            topics.append(metadata[position + 2 : end].decode())
            position = end
    except (struct.error, UnicodeDecodeError):
        return None
    return tuple(topics)
