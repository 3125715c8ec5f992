"""The page stays small, and whole: one directory of files, and nothing from anywhere else."""

from __future__ import annotations

import gzip
import re
from typing import Final

from kraftlite.ui.export import STATIC

MAX_BYTES: Final = 250_000
MAX_PACKED: Final = 80_000
_ADDRESS: Final = re.compile(rb"https?://[^\s\"'`)]+")
_NAMESPACE: Final = b"http://www.w3.org/2000/svg"


def test_all_files_together_are_small() -> None:
    files = [path.read_bytes() for path in sorted(STATIC.iterdir())]
    assert sum(map(len, files)) <= MAX_BYTES
    assert sum(len(gzip.compress(data)) for data in files) <= MAX_PACKED


def test_no_file_names_another_place() -> None:
    found = {path.name: set(_ADDRESS.findall(path.read_bytes())) - {_NAMESPACE} for path in STATIC.iterdir()}
    assert {name: places for name, places in found.items() if places} == {}
