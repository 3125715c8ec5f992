"""Checks that bytes are the records of a batch, without an object per record and without holding them.

    record   length varint, then so many bytes:
             attributes i8 | timestamp delta varlong | offset delta varint | key | value | headers
    key, value   length varint (-1: null), then so many bytes
    headers   count varint, then of each: key length varint (>= 0), key, value length varint (-1: null), value

A scanner is fed the (decompressed) bytes in chunks of any size. It finds the first fault in the structure, in the order of the
bytes, whatever the chunks are; it notes records that are well-formed and may be refused all the same (no key, a timestamp out of
bounds), and the highest timestamp. Offset deltas are 0, 1, 2… A varint has at most five bytes and 32 bits, a timestamp delta ten
and 64: what is beyond is read differently by different clients. What a key, value or header holds is nobody's business here.

`Scanner` is the compiled one (`_scan.c`, the same step by step) where it was built, else `PythonScanner`; `IMPLEMENTATION` says
which. Both give the same answers (tests/unit/log/test_scan.py).

Source: LG-02, LG-10; Kafka's DefaultRecord and LogValidator. Where this is stricter than Kafka: docs/DIFFERENCES.md, "Malformed
record batches".
"""

from __future__ import annotations

from typing import Final, Protocol

NEED_KEYS: Final = 1
"""A null key is refused: the topic is compacted."""
BOUND_TIMES: Final = 2
"""A timestamp other than -1 must be in [low, high]."""
REFUSE_TIMES: Final = 4
"""Every timestamp is refused: the batch says LogAppendTime, which a client may not."""

OK: Final = 0
VARINT: Final = 1
RECORD_LENGTH: Final = 2
BEYOND_RECORD: Final = 3
LEFT_IN_RECORD: Final = 4
OFFSET_DELTA: Final = 5
KEY_LENGTH: Final = 6
VALUE_LENGTH: Final = 7
HEADER_COUNT: Final = 8
HEADER_KEY: Final = 9
HEADER_VALUE: Final = 10
BEHIND_RECORDS: Final = 11
TOO_FEW: Final = 12

FAULTS: Final = {
    VARINT: "has a number of too many bytes or bits",
    RECORD_LENGTH: "has a negative length",
    BEYOND_RECORD: "is shorter than its fields need",
    LEFT_IN_RECORD: "is longer than its fields need",
    OFFSET_DELTA: "does not have its place as its offset delta",
    KEY_LENGTH: "has a key of a length below -1",
    VALUE_LENGTH: "has a value of a length below -1",
    HEADER_COUNT: "has a number of headers that is negative or cannot be in it",
    HEADER_KEY: "has a header without a key",
    HEADER_VALUE: "has a header's value of a length below -1",
    BEHIND_RECORDS: "was not announced by the count of the batch",
    TOO_FEW: "is missing, or not whole",
}
"""The description of a refused record, by fault."""

NO_KEY: Final = 1
TIME: Final = 2
TIME_TYPE: Final = 3
"""Kinds of refused records."""

NAMED_ERRORS: Final = 1000
"""So many refused records are named; the others are only counted."""

_CONTRACT: Final = 1
_MAX_INT64: Final = 2**63 - 1
_MIN_INT64: Final = -(2**63)

(_LENGTH, _ATTRIBUTES, _TIME, _OFFSET, _KEY, _VALUE, _HEADERS, _HEADER_KEY, _HEADER_VALUE) = range(9)


class RecordScanner(Protocol):
    """One batch's records: so many, of these bounds and flags. Not to be used after a fault."""

    def __init__(self, count: int, base_timestamp: int, low: int, high: int, flags: int) -> None: ...

    def feed(self, data: bytes | bytearray | memoryview, /) -> int:
        """The next bytes. OK, or the fault that ends it."""
        ...

    def finish(self) -> int:
        """Say that no more bytes come, and return OK or the fault."""
        ...

    @property
    def records(self) -> int:
        """The number of whole records so far; with a fault, the index of the record that has it."""
        ...

    @property
    def max_timestamp(self) -> int:
        """The highest timestamp so far; -1 when none is above it."""
        ...

    @property
    def refused(self) -> int:
        """The number of records that are well-formed and refused."""
        ...

    @property
    def errors(self) -> list[tuple[int, int, int]]:
        """The first of them: (index, kind, timestamp)."""
        ...


class PythonScanner:
    """The scanner in Python. Records that lie within one chunk take the short way; the others, and all that is odd about a
    record, go byte by byte."""

    def __init__(self, count: int, base_timestamp: int, low: int, high: int, flags: int) -> None:
        self.records = 0
        self.max_timestamp = -1
        self.refused = 0
        self.errors: list[tuple[int, int, int]] = []
        self._count = count
        self._base = base_timestamp
        self._low, self._high, self._flags = low, high, flags
        self._stage = _LENGTH
        self._fault = OK
        self._left = self._skip = self._headers = 0
        self._value = self._shift = 0
        self._timestamp: int | None = None

    def feed(self, data: bytes | bytearray | memoryview, /) -> int:
        chunk = bytes(data)
        position, size = 0, len(chunk)
        while position < size and not self._fault:
            if self._skip:
                step = min(self._skip, size - position)
                position += step
                self._skip -= step
                self._left -= step
                if not self._skip and self._stage == _HEADER_KEY and not self._headers:
                    self._fault = self._end_record()
                continue
            if self._stage == _LENGTH and not self._shift:
                position = self._whole_records(chunk, position)
                if position == size:
                    break
            self._fault = self._byte(chunk[position])
            position += 1
        return self._fault

    def finish(self) -> int:
        if not self._fault and self.records != self._count:
            self._fault = TOO_FEW
        return self._fault

    def _whole_records(self, chunk: bytes, position: int) -> int:
        """Take the plain records that lie in the chunk as a whole; returns where the first other one begins."""
        count, flags, base, low, high = self._count, self._flags, self._base, self._low, self._high
        latest, records = self.max_timestamp, self.records
        least = 0 if flags & NEED_KEYS else -1
        try:
            while records != count:
                length, at = _small_varint(chunk, position)
                end = at + length
                if length < 0:
                    break
                chunk[end - 1]
                delta, at = _varlong(chunk, at + 1)
                offset, at = _small_varint(chunk, at)
                key, at = _small_varint(chunk, at)
                if offset != records or key < least:
                    break
                value, at = _small_varint(chunk, at + key if key > 0 else at)
                if value < -1:
                    break
                if value > 0:
                    at += value
                if at + 1 != end or chunk[at]:
                    break
                timestamp = base + delta
                if flags and (flags & REFUSE_TIMES or (flags & BOUND_TIMES and timestamp != -1 and not low <= timestamp <= high)):
                    break
                if not _MIN_INT64 <= timestamp <= _MAX_INT64:
                    break
                if timestamp > latest:
                    latest = timestamp
                position = end
                records += 1
        except IndexError:
            pass
        self.max_timestamp, self.records = latest, records
        return position

    def _byte(self, byte: int) -> int:
        stage = self._stage
        if stage == _LENGTH:
            if self.records == self._count:
                return BEHIND_RECORDS
        elif not self._left:
            return BEYOND_RECORD
        else:
            self._left -= 1
        if stage == _ATTRIBUTES:
            self._stage = _TIME
            return OK
        last, most = (63, 1) if stage == _TIME else (28, 15)
        if self._shift == last and byte > most:
            return VARINT
        self._value |= (byte & 0x7F) << self._shift
        if byte & 0x80:
            self._shift += 7
            return OK
        number = (self._value >> 1) ^ -(self._value & 1)
        self._value = self._shift = 0
        return _STEPS[stage](self, number)

    def _length_read(self, number: int) -> int:
        if number < 0:
            return RECORD_LENGTH
        self._left = number
        self._stage = _ATTRIBUTES
        return OK

    def _time_read(self, number: int) -> int:
        timestamp = self._base + number
        self._timestamp = timestamp if _MIN_INT64 <= timestamp <= _MAX_INT64 else None
        self._stage = _OFFSET
        return OK

    def _offset_read(self, number: int) -> int:
        self._stage = _KEY
        return OK if number == self.records else OFFSET_DELTA

    def _key_read(self, number: int) -> int:
        fault = self._take(number, -1, KEY_LENGTH)
        if not fault:
            self._judge(number >= 0)
            self._stage = _VALUE
        return fault

    def _value_read(self, number: int) -> int:
        self._stage = _HEADERS
        return self._take(number, -1, VALUE_LENGTH)

    def _headers_read(self, number: int) -> int:
        if not 0 <= number <= self._left // 2:  # each takes two bytes at least
            return HEADER_COUNT
        if not number:
            return self._end_record()
        self._headers = number
        self._stage = _HEADER_KEY
        return OK

    def _header_key_read(self, number: int) -> int:
        self._stage = _HEADER_VALUE
        return self._take(number, 0, HEADER_KEY)

    def _header_value_read(self, number: int) -> int:
        fault = self._take(number, -1, HEADER_VALUE)
        if fault:
            return fault
        self._headers -= 1
        self._stage = _HEADER_KEY
        return OK if self._headers or self._skip else self._end_record()

    def _take(self, length: int, least: int, fault: int) -> int:
        if length < least:
            return fault
        if length > self._left:
            return BEYOND_RECORD
        self._skip = max(length, 0)
        return OK

    def _judge(self, has_key: bool) -> None:
        timestamp, flags = self._timestamp, self._flags
        if not has_key and flags & NEED_KEYS:
            self._refuse(NO_KEY)
        elif flags & REFUSE_TIMES:
            self._refuse(TIME_TYPE)
        elif flags & BOUND_TIMES and (timestamp is None or (timestamp != -1 and not self._low <= timestamp <= self._high)):
            self._refuse(TIME)
        if timestamp is not None and timestamp > self.max_timestamp:
            self.max_timestamp = timestamp

    def _refuse(self, kind: int) -> None:
        self.refused += 1
        if len(self.errors) < NAMED_ERRORS:
            self.errors.append((self.records, kind, -1 if self._timestamp is None else self._timestamp))

    def _end_record(self) -> int:
        if self._left:
            return LEFT_IN_RECORD
        self.records += 1
        self._stage = _LENGTH
        return OK


_STEPS: Final = {
    _LENGTH: PythonScanner._length_read,
    _TIME: PythonScanner._time_read,
    _OFFSET: PythonScanner._offset_read,
    _KEY: PythonScanner._key_read,
    _VALUE: PythonScanner._value_read,
    _HEADERS: PythonScanner._headers_read,
    _HEADER_KEY: PythonScanner._header_key_read,
    _HEADER_VALUE: PythonScanner._header_value_read,
}


def _small_varint(data: bytes, position: int) -> tuple[int, int]:
    """A number of up to three bytes. IndexError: it is longer, or the data ends."""
    byte = data[position]
    if byte < 0x80:
        return (byte >> 1) ^ -(byte & 1), position + 1
    raw = byte & 0x7F
    byte = data[position + 1]
    if byte < 0x80:
        raw |= byte << 7
        return (raw >> 1) ^ -(raw & 1), position + 2
    raw |= (byte & 0x7F) << 7
    byte = data[position + 2]
    if byte < 0x80:
        raw |= byte << 14
        return (raw >> 1) ^ -(raw & 1), position + 3
    raise IndexError("a longer number")


def _varlong(data: bytes, position: int) -> tuple[int, int]:
    """A number of up to nine bytes. IndexError: it is longer, or the data ends."""
    raw = shift = 0
    while True:
        byte = data[position]
        position += 1
        raw |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (raw >> 1) ^ -(raw & 1), position
        shift += 7
        if shift > 56:
            raise IndexError("a longer number")


Scanner: type[RecordScanner] = PythonScanner
IMPLEMENTATION = "python"
BYTES_PER_STEP = 16 * 1024
"""The bytes that a scanner of this implementation is fed at a time: some milliseconds of work at most, of the smallest
records."""

try:
    from kraftlite.log import _scan
except ImportError:
    pass
else:
    if _scan.CONTRACT == _CONTRACT:  # else it is the file of another version, and not to be used
        Scanner, IMPLEMENTATION, BYTES_PER_STEP = _scan.Scanner, "c", 128 * 1024
