"""Files of what producers were told: a damaged line is refused with file and line, whatever is in it."""

from __future__ import annotations

from pathlib import Path

import pytest

from kraftlite.host.files import bounded_lines
from kraftlite.local.history import HistoryError, read_history

GOOD = '{"topic": "t", "partition": 0, "offset": 1, "value": "x", "seq": 1}'


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("[" * 200_000, "maximum recursion depth"),
        (GOOD.replace('"offset": 1', '"offset": 1e400'), "infinity"),
        (GOOD.replace('"offset": 1', '"offset": 9223372036854775808'), "offset is no number of 64 bits"),
        (GOOD.replace('"seq": 1', '"seq": -9223372036854775809'), "seq is no number of 64 bits"),
        (GOOD.replace('"partition": 0', '"partition": []'), "int"),
        ('{"event": "kill", "node": 1e400, "time_ms": 0}', "infinity"),
        (GOOD.replace('"offset": 1', f'"offset": {"9" * 5000}'), "Exceeds the limit"),
        ("7", "argument of type 'int'"),
    ],
)
def test_a_damaged_line_is_refused_by_its_number(line: str, words: str, tmp_path: Path) -> None:
    path = tmp_path / "history.jsonl"
    path.write_text(f"{GOOD}\n{line}\n{GOOD}\n")
    with pytest.raises(HistoryError) as refused:
        list(read_history(str(path)))
    said = str(refused.value)
    assert said.startswith(f"{path}:2: ") and said.count(str(path)) == 1 and words in said


def test_a_file_without_line_ends_is_not_read_whole(tmp_path: Path) -> None:
    path = tmp_path / "history.jsonl"
    path.write_text(GOOD + "\n")
    with path.open("ab") as file:
        file.truncate(1 << 40)
    with pytest.raises(HistoryError, match=r"history\.jsonl: line 2 has more than 1048576 bytes"):
        list(read_history(str(path), longest=1 << 20))


def test_the_longest_line_is_read(tmp_path: Path) -> None:
    path = tmp_path / "lines"
    path.write_bytes(b"a" * 9 + b"\n" + b"b" * 10)
    with path.open("rb") as file:
        assert list(bounded_lines(file, 10)) == [b"a" * 9 + b"\n", b"b" * 10]
    with path.open("rb") as file, pytest.raises(ValueError, match="line 1 has more than 9 bytes"):
        list(bounded_lines(file, 9))
