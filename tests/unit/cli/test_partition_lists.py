"""Lists of partitions in files of JSON: what is damaged is refused in words, and no number is rounded or made up."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import pytest

from kraftlite.cli.clusters import _from_file
from kraftlite.cli.compat.delete_records import _read as read_offsets
from kraftlite.cli.compat.leader_election import read_partitions
from kraftlite.cli.compat.log_dir_moves import read_directories
from kraftlite.cli.compat.reassign_partitions import read_assignment
from kraftlite.cli.compat.tool import ToolError
from kraftlite.cli.group_reset import duration_ms, read_csv
from kraftlite.cli.records import _read as read_records

GOOD = {"topic": "t", "partition": 0, "replicas": [1, 2], "log_dirs": ["any", "/d"], "offset": 5}
READERS = [
    pytest.param(read_offsets, id="kafka-delete-records"),
    pytest.param(read_partitions, id="kafka-leader-election"),
    pytest.param(read_assignment, id="kafka-reassign-partitions"),
    pytest.param(read_directories, id="directories"),
    pytest.param(lambda path: _from_file(Path(path)), id="elect-leaders"),
    pytest.param(lambda path: read_records(Path(path)), id="records"),
]
DAMAGED = {
    "nothing": ("", "Expecting value"),
    "no UTF-8": (b'{"partitions": [{"topic": "\xff"}]}', "line 1: the byte 0xff is not UTF-8"),
    "nested": ("[" * 200_000, "nested too deeply"),
    "nested inside": ('{"partitions": ' + "[" * 200_000, "nested too deeply"),
    "a list": ("[]", 'there is no list "partitions"'),
    "a number of partitions": ('{"partitions": 3}', 'there is no list "partitions"'),
    "numbers": ('{"partitions": [1]}', '"partitions" has 1 where an object is allowed'),
    "no topic": ('{"partitions": [{"partition": 0}]}', '"topic" is missing'),
    "half a letter": ('{"partitions": [{"topic": "\\ud800", "partition": 0}]}', "no text"),
    **{
        f"partition {value}": (
            json.dumps({"partitions": [GOOD]}).replace('"partition": 0', f'"partition": {value}'),
            f'"partition" is {shown}; allowed is a whole number from 0 to 2147483647',
        )
        for value, shown in {
            "-1": "-1",
            "1.5": "1.5",
            "1e400": "Infinity",
            "NaN": "NaN",
            "null": "missing",
            "true": "true",
            '"0"': '"0"',
            "2147483648": "2147483648",
            "9" * 200: "a greater number",
            "-" + "9" * 200: "a smaller number",
            "[0]": "[0]",
        }.items()
    },
    "digits without end": (
        json.dumps({"partitions": [GOOD]}).replace('"partition": 0', f'"partition": {"9" * 5000}'),
        "Exceeds the limit",
    ),
}


@pytest.mark.parametrize("read", READERS)
@pytest.mark.parametrize("name", DAMAGED)
def test_what_is_damaged_is_refused_in_words(read: Callable[[str], Any], name: str, tmp_path: Path) -> None:
    text, words = DAMAGED[name]
    path = tmp_path / "list.json"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises((ToolError, click.ClickException)) as refused:
        read(str(path))
    said = str(refused.value)
    assert str(path) in said and words in said
    assert len(said) < 600 and "\n" not in said


@pytest.mark.parametrize("read", READERS)
def test_what_is_sound_is_read(read: Callable[[str], Any], tmp_path: Path) -> None:
    path = tmp_path / "list.json"
    path.write_text(json.dumps({"version": 1, "partitions": [GOOD]}))
    assert read(str(path)) in (
        {("t", 0): 5},
        [("t", 0)],
        {("t", 0): [1, 2]},
        {(("t", 0), 2): "/d"},
    )


@pytest.mark.parametrize(("key", "value"), [("replicas", 1), ("replicas", [1, -2]), ("replicas", [2**31]), ("replicas", ["1"])])
def test_replicas_are_ids(key: str, value: object, tmp_path: Path) -> None:
    path = tmp_path / "list.json"
    path.write_text(json.dumps({"partitions": [{**GOOD, key: value}]}))
    for read in (read_assignment, read_directories):
        with pytest.raises(ToolError, match=f'not a valid reassignment: "{key}" is '):
            read(str(path))


@pytest.mark.parametrize("value", [-2, 2**63, 1.5, True, None])
def test_offsets_are_numbers_of_64_bits(value: object, tmp_path: Path) -> None:
    path = tmp_path / "list.json"
    path.write_text(json.dumps({"partitions": [{**GOOD, "offset": value}]}))
    with pytest.raises(ToolError, match='"offset" is '):
        read_offsets(str(path))
    with pytest.raises(click.ClickException, match='"offset" is '):
        read_records(path)


@pytest.mark.parametrize("read", [read_offsets, read_partitions, read_assignment])
def test_partitions_named_twice_are_found_in_a_long_list(read: Callable[[str], Any], tmp_path: Path) -> None:
    """Comparing each with each would take hours."""
    path = tmp_path / "list.json"
    path.write_text(json.dumps({"partitions": [{**GOOD, "partition": n % 99_999} for n in range(100_000)]}))
    with pytest.raises(ToolError, match=r"duplicate .*t-0"):
        read(str(path))


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"t,0,5\nt,\xff,6\n", r"offsets\.csv: line 2: the byte 0xff is not UTF-8; allowed is"),
        (b"t,0,5\nt,1\n", r"offsets\.csv:2: allowed is"),
        (b"t,0," + b"9" * 5000 + b"\n", r"offsets\.csv:1: allowed is"),
        (b"t,0,9223372036854775808\n", r"offsets\.csv:1: allowed is"),
        (b"t,2147483648,0\n", r"offsets\.csv:1: allowed is"),
        (b't,0,5\n"' + b"x" * 200_000 + b",0,5\n", r"offsets\.csv:2: allowed is"),
        (b"t,0,5\r\x00\n", r"offsets\.csv:2: allowed is"),
    ],
)
def test_damaged_files_of_offsets(content: bytes, words: str, tmp_path: Path) -> None:
    path = tmp_path / "offsets.csv"
    path.write_bytes(content)
    with pytest.raises(click.ClickException, match=words):
        read_csv(path, "g", several=False)


def test_files_of_offsets_that_cannot_be_read(tmp_path: Path) -> None:
    path = tmp_path / "offsets.csv"
    with path.open("wb") as file:
        file.truncate(1 << 40)
    with pytest.raises(click.ClickException, match=r"offsets\.csv has 1099511627776 bytes; allowed are at most"):
        read_csv(path, "g", several=False)
    path.unlink()
    path.symlink_to(path)
    with pytest.raises(click.ClickException, match=r"offsets\.csv: "):
        read_csv(path, "g", several=False)


def test_a_duration_beyond_all_times_is_refused() -> None:
    with pytest.raises(click.UsageError, match="more than a time can be"):
        duration_ms(f"P{'9' * 400}D")
