"""Files of the machine, read up to a bound."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

from kraftlite.model.limits import MIB

MAX_TEXT_BYTES: Final = 64 * MIB
"""The bound of lists of partitions, properties, payloads: half a million partitions."""
MAX_INDEX_BYTES: Final = 512 * MIB
"""An index of a segment of 2 GiB that has an entry for every batch."""


def read_bounded(path: str | Path, most: int) -> bytes:
    """The file, if it has no more than `most` bytes, else ValueError. Raises OSError, too."""
    path = Path(path)
    with path.open("rb") as file:
        size = os.fstat(file.fileno()).st_size
        data = b"" if size > most else file.read(most + 1)
    if max(size, len(data)) > most:
        raise ValueError(f"{path} has {max(size, len(data))} bytes; allowed are at most {most}")
    return data
