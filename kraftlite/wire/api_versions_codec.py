"""ApiVersions by hand: clients ask it before anything else is loaded.

Cross-checked with kio and kafka-python in tests/unit/wire, for every version. Source: CP-03; KIP-511, KIP-584.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from kraftlite.model.messages.controller import FeatureRange
from kraftlite.protocol.primitives import (
    INT16,
    INT32,
    NO_TAGS,
    array_length,
    guarded,
    read_string,
    response_head,
    skip_tags,
    string,
    uvarint,
)

API_VERSIONS_MAX: Final = 4
API_VERSIONS_FLEXIBLE: Final = 3

_RANGE = struct.Struct(">hhh")


class ApiRange(NamedTuple):
    """The versions of one API that are offered, both ends inclusive."""

    api_key: int
    min_version: int
    max_version: int


class ClientSoftware(NamedTuple):
    """The name and version that a client gives itself (KIP-511)."""

    name: str
    version: str


@guarded
def parse_api_versions(view: memoryview, pos: int, version: int) -> ClientSoftware | None:
    """Parse the client's software; None before v3, which says nothing."""
    if version < API_VERSIONS_FLEXIBLE:
        return None
    name, pos = read_string(view, pos, True)
    software_version, pos = read_string(view, pos, True)
    skip_tags(view, pos)
    return ClientSoftware(name, software_version)


def encode_api_versions(
    correlation_id: int,
    version: int,
    *,
    error: int,
    ranges: Sequence[ApiRange],
    supported: Sequence[FeatureRange] = (),
    finalized: Mapping[str, int] | None = None,
    finalized_epoch: int = -1,
    throttle_ms: int = 0,
) -> bytes:
    """A whole response frame. Its header is always v0: the client does not know yet what the broker speaks (CP-03).

    `finalized` None: not known, nothing is said about features but what is supported.
    """
    flexible = version >= API_VERSIONS_FLEXIBLE
    parts = [INT16.pack(error), array_length(len(ranges), flexible)]
    for api in ranges:
        parts.append(_RANGE.pack(*api))
        if flexible:
            parts.append(NO_TAGS)
    if version >= 1:
        parts.append(INT32.pack(throttle_ms))
    if flexible:
        parts.append(_feature_tags(version, supported, finalized, finalized_epoch))
    body = b"".join(parts)
    return response_head(correlation_id, len(body), False) + body


def _feature_tags(version: int, supported: Sequence[FeatureRange], finalized: Mapping[str, int] | None, epoch: int) -> bytes:
    tags: list[tuple[int, bytes]] = []
    # Clients that speak v3 at most end at a feature with a level of 0; as in Kafka they are not told of those (KIP-1022).
    shown = [it for it in supported if version >= 4 or it.min_level > 0]
    if shown:
        keys = [uvarint(len(shown) + 1)]
        keys.extend(string(it.name, True) + struct.pack(">hh", it.min_level, it.max_level) + NO_TAGS for it in shown)
        tags.append((0, b"".join(keys)))
    if finalized is not None and epoch >= 0:
        tags.append((1, struct.pack(">q", epoch)))
        levels = [(name, finalized[name]) for name in sorted(finalized) if finalized[name] > 0]
        if levels:
            keys = [uvarint(len(levels) + 1)]
            keys.extend(string(name, True) + struct.pack(">hh", level, level) + NO_TAGS for name, level in levels)
            tags.append((2, b"".join(keys)))
    return uvarint(len(tags)) + b"".join(uvarint(tag) + uvarint(len(value)) + value for tag, value in tags)
