"""Files of the machine, read up to a bound."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Final

from kraftlite.client.opening import has_no_writer, open_at_once
from kraftlite.model.limits import MIB

MAX_TEXT_BYTES: Final = 64 * MIB
"""The bound of lists of partitions, properties, payloads: half a million partitions."""
MAX_INDEX_BYTES: Final = 512 * MIB
"""An index of a segment of 2 GiB that has an entry for every batch."""
MAX_LINE_BYTES: Final = 128 * MIB
"""More than the largest request, and so the largest record, that a broker takes."""


def read_bounded(path: str | Path, most: int) -> bytes:
    """The file, if it has no more than `most` bytes, else ValueError. Raises OSError, too."""
    with open_at_once(path) as file:
        size = os.fstat(file.fileno()).st_size
        data = b"" if size > most else file.read(most + 1)
        nobody = has_no_writer(file, data)
    if max(size, len(data)) > most:
        raise ValueError(f"{path} has {max(size, len(data))} bytes; allowed are at most {most}")
    if nobody:
        raise ValueError(f"{path} is a pipe that nobody writes into")
    return data


def bounded_lines(file: IO[bytes], most: int = MAX_LINE_BYTES) -> Iterator[bytes]:
    """The lines of a file, each with its end. Raises ValueError for a line that is longer than `most`: a file without line ends
    would be read whole."""
    number = 0
    while line := file.readline(most + 1):
        number += 1
        if len(line) > most:
            raise ValueError(f"line {number} has more than {most} bytes")
        yield line
