"""Files that are named on the command line are read up to a bound, and the refusal names file, size and bound."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from kraftlite.cli.compat.delete_records import _read as read_offsets
from kraftlite.cli.compat.leader_election import read_partitions
from kraftlite.cli.compat.reassign_partitions import read_assignment
from kraftlite.cli.compat.tool import ToolError, UsageError, read_properties
from kraftlite.cli.dump import dump as dump_command
from kraftlite.cli.files import MAX_INDEX_BYTES, MAX_TEXT_BYTES, read_bounded
from kraftlite.cli.target import effective


def sparse(path: Path, size: int) -> Path:
    with path.open("wb") as file:
        file.truncate(size)
    return path


def properties(path: str) -> dict[str, str]:
    return read_properties(path, "--command-config")


@pytest.mark.parametrize("read", [read_offsets, read_partitions, read_assignment, properties])
def test_a_list_that_is_too_long_is_refused(read: Callable[[str], Any], tmp_path: Path) -> None:
    path = sparse(tmp_path / "list.json", MAX_TEXT_BYTES + 1)
    with pytest.raises((ToolError, UsageError)) as refused:
        read(str(path))
    assert f"{path} has {MAX_TEXT_BYTES + 1} bytes; allowed are at most {MAX_TEXT_BYTES}" in str(refused.value)


def test_the_greatest_size_is_read(tmp_path: Path) -> None:
    assert len(read_bounded(sparse(tmp_path / "list.json", 1_000), 1_000)) == 1_000
    with pytest.raises(ValueError, match=r"list\.json has 1001 bytes; allowed are at most 1000"):
        read_bounded(sparse(tmp_path / "list.json", 1_001), 1_000)


def test_what_tells_no_size_is_read_up_to_the_bound() -> None:
    with pytest.raises(ValueError, match="/dev/zero has 1001 bytes"):
        read_bounded("/dev/zero", 1_000)


@pytest.mark.parametrize("name", ["00000000000000000000.index", "00000000000000000000.snapshot", "leader-epoch-checkpoint"])
def test_dump_goes_on_behind_a_file_that_is_too_large(name: str, tmp_path: Path) -> None:
    path = sparse(tmp_path / name, MAX_INDEX_BYTES + 1)
    good = tmp_path / "partition.metadata"
    good.write_text("version: 0\n")
    said = CliRunner().invoke(dump_command, [str(path), str(good)])
    assert said.exit_code == 1
    assert f"{path} has {MAX_INDEX_BYTES + 1} bytes; allowed are at most" in said.output and "version: 0" in said.output


def test_a_pipe_that_nobody_writes_into_is_refused_at_once_and_another_is_read(tmp_path: Path) -> None:
    path = tmp_path / "client.properties"
    os.mkfifo(path)
    with pytest.raises(UsageError, match=r"client\.properties is a pipe that nobody writes into"):
        properties(str(path))
    reader = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    with path.open("wb") as writer:
        writer.write(b"client.id=x\n")
        writer.flush()
        threading.Timer(0.2, writer.close).start()
        assert properties(str(path)) == {"client.id": "x"}
    os.close(reader)


@pytest.mark.parametrize(
    ("data", "told"),
    [
        (b"client.id=x\nacks=\xff\n", "line 2: the byte 0xff is not UTF-8"),
        ("client.id=x".encode("utf-16"), "line 1: the byte 0xff is not UTF-8"),
    ],
)
def test_properties_that_are_not_utf_8_name_the_line(data: bytes, told: str, tmp_path: Path) -> None:
    path = tmp_path / "client.properties"
    path.write_bytes(data)
    with pytest.raises(UsageError, match=r"client\.properties") as refused:
        properties(str(path))
    assert told in str(refused.value)


def test_a_mark_of_byte_order_hides_no_key(tmp_path: Path) -> None:
    """The first key may be the one that protects."""
    path = tmp_path / "client.properties"
    path.write_text("security.protocol=SSL\n", encoding="utf-8-sig")
    assert properties(str(path)) == {"security.protocol": "SSL"}


def test_names_without_effect_are_told_short_and_without_control_characters(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    effective({"\x1b[31m" * 500_000: "1", "\ufeffx": "2"}, "p", "--command-config")
    told = capsys.readouterr().err
    assert len(told) < 500 and "\x1b" not in told and "'\\ufeffx' has no effect" in told
