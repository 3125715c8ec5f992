"""The bounds of numbers, names and lists in messages between nodes, checked where a message enters, before it has any effect.

A peer may be old, broken or no peer at all: nothing behind `rpc/codec` has to expect an epoch of -7 or an offset of 2^63 - 1. The
table is by the field's name, because a name means the same in every message; `_EXCEPTIONS` has the few that differ. What a client
may ask for and a controller refuses with a code of its own (partition counts, levels, assignments) is bounded by its type alone.

A test holds that every integer of every message is in the table.
"""

from __future__ import annotations

import typing
from collections.abc import Callable
from dataclasses import fields, is_dataclass
from typing import Any, Final, NewType

from kraftlite.model.errors import ApiError, ErrorCode
from kraftlite.model.limits import (
    MAX_INT32,
    MAX_METADATA_VALUE_BYTES,
    MAX_OFFSET,
    MAX_STRING,
    RAFT_MAX_EPOCH,
)

Range = tuple[int, int]

INT32: Final[Range] = (-MAX_INT32 - 1, MAX_INT32)
COUNT: Final[Range] = (0, MAX_INT32)
COUNT_OR_NONE: Final[Range] = (-1, MAX_INT32)
NODE: Final[Range] = (0, MAX_INT32)
RAFT_EPOCH: Final[Range] = (0, RAFT_MAX_EPOCH)
EPOCH: Final[Range] = (0, MAX_INT32)
EPOCH_OR_NONE: Final[Range] = (-1, MAX_INT32)
OFFSET: Final[Range] = (0, MAX_OFFSET)
OFFSET_OR_NONE: Final[Range] = (-1, MAX_OFFSET)
PORT: Final[Range] = (0, 65_535)
LEVEL: Final[Range] = (0, 32_767)
PRODUCER_EPOCH: Final[Range] = (0, 32_767)

_BY_NAME: Final[dict[str, Range]] = {
    # nodes
    "node_id": NODE,
    "voter_id": NODE,
    "candidate_id": NODE,
    "leader_id": NODE,
    "replica_id": NODE,
    "broker_id": NODE,
    "controller_id": NODE,
    "preferred_successors": NODE,
    "isr": NODE,
    "followers": NODE,
    "maximal_isr": NODE,
    "min_isr": COUNT,
    "broker_ids": INT32,
    "replicas": INT32,
    "adding": INT32,
    "removing": INT32,
    "port": PORT,
    "min_kraft_version": INT32,
    "max_kraft_version": INT32,
    # epochs
    "candidate_epoch": RAFT_EPOCH,
    "last_epoch": RAFT_EPOCH,
    "raft_epoch": RAFT_EPOCH,
    "epoch": RAFT_EPOCH,
    "last_fetched_epoch": EPOCH,
    "leader_epoch": EPOCH,
    "current_leader_epoch": EPOCH,
    "partition_epoch": EPOCH,
    "producer_epoch": PRODUCER_EPOCH,
    "coordinator_epoch": EPOCH,
    "broker_epoch": OFFSET_OR_NONE,
    "previous_broker_epoch": OFFSET_OR_NONE,
    "replica_epoch": OFFSET_OR_NONE,
    "session_id": COUNT,
    "session_epoch": COUNT_OR_NONE,
    # offsets and sizes
    "last_epoch_end_offset": OFFSET,
    "fetch_offset": OFFSET,
    "offset": OFFSET,
    "end_offset": OFFSET,
    "log_end_offset": OFFSET_OR_NONE,
    "high_watermark": OFFSET_OR_NONE,
    "raft_high_watermark": OFFSET_OR_NONE,
    "log_start_offset": OFFSET_OR_NONE,
    "current_metadata_offset": OFFSET_OR_NONE,
    "metadata_offset": OFFSET_OR_NONE,
    "raft_leo": OFFSET_OR_NONE,
    "leo": OFFSET_OR_NONE,
    "follower_leos": OFFSET_OR_NONE,
    "epoch_start_offset": OFFSET,
    "hw": OFFSET_OR_NONE,
    "position": OFFSET,
    "size": OFFSET,
    "size_bytes": OFFSET,
    "first_producer_id": OFFSET,
    "producer_id": OFFSET,
    "max_bytes": COUNT,
    "min_bytes": COUNT,
    "partition_max_bytes": COUNT,
    "records_length": COUNT,
    "replica_count": COUNT,
    # times
    "max_wait_ms": COUNT,
    "interval_ms": COUNT,
    "uptime_ms": OFFSET,
    "looked_ms": OFFSET_OR_NONE,
    "throttle_ms": COUNT,
    "timeout_ms": INT32,
    "max_lifetime_ms": OFFSET_OR_NONE,
    "period_ms": OFFSET_OR_NONE,
    "issued_ms": OFFSET_OR_NONE,
    "expiry_ms": OFFSET_OR_NONE,
    "max_ms": OFFSET_OR_NONE,
    "last_fetch_timestamp_ms": OFFSET_OR_NONE,
    "last_caught_up_timestamp_ms": OFFSET_OR_NONE,
    # faults, which have bounds of their own (`model/faults`)
    "for_ms": OFFSET,
    "left_ms": OFFSET,
    "hits": OFFSET,
    "other": COUNT_OR_NONE,
    "amount": (-MAX_INT32 - 1, MAX_INT32),
    "error": INT32,
    # what clients ask for; refused by the controller with a code of its own
    "partition": INT32,
    "num_partitions": INT32,
    "replication_factor": INT32,
    "count": INT32,
    "level": INT32,
    "min_level": LEVEL,
    "max_level": LEVEL,
    "transaction_version": LEVEL,
    "upgrade_type": INT32,
    "election_type": INT32,
    "resource_type": INT32,
    "op": INT32,
    "source": INT32,
    "mechanism": INT32,
    "iterations": INT32,
    "pattern_type": INT32,
    "operation": INT32,
    "permission_type": INT32,
}

_RAFT: Final = frozenset(
    {
        "VoteResponse",
        "BeginQuorumEpochRequest",
        "BeginQuorumEpochResponse",
        "EndQuorumEpochRequest",
        "EndQuorumEpochResponse",
        "RaftFetchRequest",
        "RaftFetchResponse",
        "FetchSnapshotRequest",
        "FetchSnapshotResponse",
        "DescribeQuorumResponse",
        "AddVoterResponse",
        "RemoveVoterResponse",
        "UpdateVoterRequest",
        "UpdateVoterResponse",
        "ProbeVersionsResponse",
    }
)
"""Their `…leader_epoch` and `last_fetched_epoch` are epochs of the quorum, not of a partition."""

_EXCEPTIONS: Final[dict[tuple[str, str], Range]] = {
    ("AlterPartitionResult", "leader_epoch"): EPOCH_OR_NONE,
    ("AlterPartitionResult", "partition_epoch"): EPOCH_OR_NONE,
    ("ReplicaState", "leader_epoch"): EPOCH_OR_NONE,
    ("ReplicaState", "partition_epoch"): EPOCH_OR_NONE,
    ("TransactionMarker", "partition"): COUNT,
    ("EnrolledPartition", "partition"): COUNT,
    ("WriteMarkersRequest", "timeout_ms"): COUNT,
}

_LONG_TEXTS: Final = frozenset({"value", "message"})
"""Values of configs, and what is said to people: as long as the message allows."""


class OutOfRange(ApiError):
    """A field that no node would send: INVALID_REQUEST."""

    def __init__(self, message: str) -> None:
        super().__init__(ErrorCode.INVALID_REQUEST, message)


def range_of(cls: type[Any], name: str) -> Range:
    """Return the bounds of an integer, or of each in a list of integers. KeyError when the table does not say."""
    found = _EXCEPTIONS.get((cls.__name__, name))
    if found is not None:
        return found
    if cls.__name__ in _RAFT and name.endswith("_epoch"):
        return RAFT_EPOCH
    return _BY_NAME[name]


Check = Callable[[Any], None]
_CHECKS: Final[dict[type[Any], Check | None]] = {}


def checker(cls: type[Any]) -> Check | None:
    """A function that raises OutOfRange for an instance of `cls` with a field outside of its range, also in what it contains;
    None when nothing in it has one. Compiled once, because every fetch of a replica goes through it."""
    if cls not in _CHECKS:
        _CHECKS[cls] = _compile(cls)
    return _CHECKS[cls]


def _compile(cls: type[Any]) -> Check | None:
    hints = typing.get_type_hints(cls)
    names: dict[str, Any] = {"refuse": _refuse, "len": len}
    lines: list[str] = []
    for field in fields(cls):
        lines += _field_lines(cls, field.name, hints[field.name], names)
    if not lines:
        return None
    source = "def check(x):\n" + "".join(f"    {line}\n" for line in lines)
    exec(compile(source, f"<bounds {cls.__name__}>", "exec"), names)
    found: Check = names["check"]
    return found


def _field_lines(cls: type[Any], name: str, hint: Any, names: dict[str, Any]) -> list[str]:
    inner, optional, many = split_hint(hint)
    guard = f"x.{name} is not None and " if optional else ""
    if inner is int:
        low, high = range_of(cls, name)
        if many:
            test = f"x.{name} and not ({low} <= min(x.{name}) and max(x.{name}) <= {high})"
        else:
            test = f"{guard}not {low} <= x.{name} <= {high}"
        return [f"if {test}: refuse(x, {name!r}, {low}, {high})"]
    if inner is str:
        longest = MAX_METADATA_VALUE_BYTES if name in _LONG_TEXTS else MAX_STRING
        one = f"{guard}len(x.{name}) > {longest}"
        test = f"x.{name} and any([len(e) > {longest} for e in x.{name}])" if many else one
        return [f"if {test}: refuse(x, {name!r}, 0, {longest})"]
    if is_dataclass(inner):
        nested = checker(typing.cast("type[Any]", inner))
        if nested is None:
            return []
        names[f"check_{name}"] = nested
        if many:
            return [f"for e in x.{name} or (): check_{name}(e)"]
        return [f"if x.{name} is not None: check_{name}(x.{name})"]
    return []


def split_hint(hint: Any) -> tuple[Any, bool, bool]:
    """The type inside of `T | None` and `tuple[T, ...]`, whether None is allowed, and whether it is a tuple."""
    optional = many = False
    parts = typing.get_args(hint)
    if type(None) in parts:
        optional = True
        (hint,) = (part for part in parts if part is not type(None))
    if typing.get_origin(hint) is tuple:
        many = True
        hint = typing.get_args(hint)[0]
    while isinstance(hint, NewType):
        hint = hint.__supertype__
    return hint, optional, many


def _refuse(message: Any, name: str, low: int, high: int) -> None:
    value = getattr(message, name)
    where = f"{type(message).__name__}.{name}"
    if isinstance(value, str):
        raise OutOfRange(f"{where} has {len(value)} characters, at most {high} are allowed")
    if isinstance(value, tuple) and isinstance(value[0], str):
        raise OutOfRange(f"{where} has a text of {max(map(len, value))} characters, at most {high} are allowed")
    if isinstance(value, tuple):
        value = next(item for item in value if not low <= item <= high)
    raise OutOfRange(f"{where} is {value}, allowed is {low} to {high}")
