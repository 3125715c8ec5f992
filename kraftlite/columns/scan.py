"""Batch headers of a stretch of log, as columns: what an audit of segments needs, and where parsing records starts.

Source: LG-01, LG-02; the layout is that of `kraftlite.log.batch`.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt
from crc32c import crc32c

from kraftlite.log.batch import HEADER_BYTES, LOG_OVERHEAD, MAGIC
from kraftlite.model.limits import MAX_INT64

HEADERS: Final = np.dtype(
    [
        ("position", np.int64),
        ("base_offset", np.int64),
        ("size", np.int32),
        ("epoch", np.int32),
        ("magic", np.int8),
        ("crc_ok", np.bool_),
        ("attributes", np.int16),
        ("last_offset_delta", np.int32),
        ("base_timestamp", np.int64),
        ("max_timestamp", np.int64),
        ("producer_id", np.int64),
        ("producer_epoch", np.int16),
        ("base_sequence", np.int32),
        ("count", np.int32),
        ("crc", np.uint32),
    ]
)
"""`position` in bytes from what the caller counts from, `size` of the whole batch in bytes, `epoch` the partition leader's;
timestamps in ms."""

_WIRE: Final = np.dtype(
    [
        ("base_offset", ">i8"),
        ("length", ">i4"),
        ("epoch", ">i4"),
        ("magic", "i1"),
        ("crc", ">u4"),
        ("attributes", ">i2"),
        ("last_offset_delta", ">i4"),
        ("base_timestamp", ">i8"),
        ("max_timestamp", ">i8"),
        ("producer_id", ">i8"),
        ("producer_epoch", ">i2"),
        ("base_sequence", ">i4"),
        ("count", ">i4"),
    ]
)
_SAME: Final = tuple(name for name in HEADERS.names or () if name not in ("position", "size", "crc_ok"))
_START: Final = struct.Struct(">qiibI")
_CRC_COVERS: Final = 21

TORN: Final = "torn"
BAD_LENGTH: Final = "bad length"
BAD_MAGIC: Final = "bad magic"


@dataclass(frozen=True, slots=True, kw_only=True)
class Scan:
    """`headers`: a structured array of HEADERS, one element per whole batch, in order of position.

    `stopped_at`: the position behind the last of them. `why`: what is there: "" nothing more was to be read, "torn" the start of
    a batch, "bad length" or "bad magic" what is no batch.
    """

    headers: npt.NDArray[np.void]
    stopped_at: int
    why: str


def scan_batches(
    data: bytes | bytearray | memoryview, *, base_position: int = 0, check_crc: bool = True, end: int = MAX_INT64
) -> Scan:
    """Every whole batch up to the first with an offset >= `end`. A bad CRC does not stop it: `crc_ok` says so.

    `base_position`: what the first byte of `data` counts as. Without `check_crc`, `crc_ok` is true everywhere.
    """
    view = memoryview(data).cast("B")
    positions: list[int] = []
    crcs: list[bool] = []
    position, limit, why = 0, len(view), ""
    start = _START.unpack_from
    while position < limit:
        if limit - position < _START.size:
            why = TORN
            break
        base_offset, length, _, magic, crc = start(view, position)
        behind = position + LOG_OVERHEAD + length
        if length < HEADER_BYTES - LOG_OVERHEAD:
            why = BAD_LENGTH
            break
        if magic != MAGIC:
            why = BAD_MAGIC
            break
        if behind > limit:
            why = TORN
            break
        if base_offset >= end:
            break
        positions.append(position)
        if check_crc:
            crcs.append(crc32c(view[position + _CRC_COVERS : behind]) == crc)
        position = behind
    headers = _columns(view, np.array(positions, np.int64))
    headers["position"] += base_position
    headers["crc_ok"] = crcs if check_crc else True
    return Scan(headers=headers, stopped_at=base_position + position, why=why)


def next_offsets(headers: npt.NDArray[np.void]) -> npt.NDArray[np.int64]:
    """Return, for each batch, the offset behind it."""
    found: npt.NDArray[np.int64] = headers["base_offset"] + headers["last_offset_delta"] + 1
    return found


def _columns(view: memoryview, positions: npt.NDArray[np.int64]) -> npt.NDArray[Any]:
    found = np.empty(positions.size, HEADERS)
    found["position"] = positions
    if positions.size:
        rows = np.lib.stride_tricks.sliding_window_view(np.frombuffer(view, np.uint8), HEADER_BYTES)
        wire = np.ascontiguousarray(rows[positions]).view(_WIRE)[:, 0]
        for name in _SAME:
            found[name] = wire[name]
        found["size"] = wire["length"] + np.int32(LOG_OVERHEAD)
    return found
