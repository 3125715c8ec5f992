"""Identifiers. Node ids are `NewType`s; uuids print as Kafka prints them: 22 characters of URL-safe base64."""

from __future__ import annotations

import base64
import binascii
import random
from dataclasses import dataclass
from enum import Enum
from typing import Final, NewType
from uuid import UUID

from kraftlite.model.limits import MAX_INT32

NodeId = NewType("NodeId", int)
"""Identity of a controller or broker, unique over both roles, >= 0."""

NO_NODE = NodeId(-1)
"""The value for "no leader" on Kafka's wire only. Inside, absent is `None`."""

ZERO_UUID = UUID(int=0)
"""Kafka's `Uuid.ZERO_UUID`: "no id" on the wire."""

METADATA_TOPIC_ID = UUID(int=1)
"""Kafka's reserved id of `__cluster_metadata`."""

METADATA_TOPIC = "__cluster_metadata"

# Directory ids that are markers, not directories (KIP-858): UNASSIGNED, LOST and MIGRATING; the first 100 are reserved.
MIGRATING_DIR = UUID(int=0)
UNASSIGNED_DIR = UUID(int=1)
LOST_DIR = UUID(int=2)
RESERVED_UUID_COUNT = 100


_ID_DIGITS: Final = 10


def node_id_of(text: str) -> NodeId | None:
    """The id that a text of digits names, leading zeros included; None when it is no number that a node can have."""
    digits = text.lstrip("0") or text[-1:]
    if not (text.isascii() and text.isdigit()) or len(digits) > _ID_DIGITS or int(digits) > MAX_INT32:
        return None
    return NodeId(int(digits))


def is_reserved_uuid(value: UUID) -> bool:
    """Return whether Kafka keeps this id for itself (the first hundred)."""
    return value.int < RESERVED_UUID_COUNT


def uuid_to_str(value: UUID) -> str:
    """22 characters of unpadded URL-safe base64, as Kafka prints ids."""
    return base64.urlsafe_b64encode(value.bytes).rstrip(b"=").decode("ascii")


def uuid_from_str(text: str) -> UUID:
    """The inverse of `uuid_to_str`. Raises ValueError naming the text when it is not such an id."""
    try:
        raw = base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
    except (binascii.Error, ValueError) as error:
        raise ValueError(f"{text!r} is not a base64 uuid: expected 22 characters such as a random-uuid prints") from error
    if len(raw) != 16 or len(text) > 24:
        raise ValueError(f"{text!r} is not a base64 uuid: expected 22 characters such as a random-uuid prints")
    return UUID(bytes=raw)


def random_uuid(rng: random.Random) -> UUID:
    """A random id that is not reserved and whose text does not start with `-` (TO-01)."""
    while True:
        value = UUID(int=rng.getrandbits(128), version=4)
        if not is_reserved_uuid(value) and not uuid_to_str(value).startswith("-"):
            return value


class Unchanged(Enum):
    """The type of `UNCHANGED`."""

    UNCHANGED = "unchanged"

    def __repr__(self) -> str:
        return "UNCHANGED"


UNCHANGED: Final = Unchanged.UNCHANGED
"""The value of a change that leaves this field as it is. Distinct from `None`, which sets it to "none"."""


@dataclass(frozen=True, slots=True)
class Endpoint:
    """An address at which a node listens."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


@dataclass(frozen=True, slots=True, kw_only=True)
class VoterEndpoint:
    """One listener of a voter of the metadata quorum, as its entry in the log has it."""

    name: str
    host: str
    port: int
