"""A file that a command writes takes nothing's place but a file's."""

from __future__ import annotations

from pathlib import Path

import click
import pytest

from kraftlite.cli.recordings import write_file
from kraftlite.sim.fault_plan import parse


def test_a_device_that_is_named_stays_a_device(tmp_path: Path) -> None:
    quiet, full = tmp_path / "quiet", tmp_path / "full"
    quiet.symlink_to("/dev/null")
    full.symlink_to("/dev/full")
    write_file(quiet, b"recording", "--record")
    with pytest.raises(click.ClickException, match=r"--record .*full: No space left on device"):
        write_file(full, b"recording", "--record")
    with pytest.raises(click.ClickException, match="Is a directory"):
        write_file(tmp_path, b"recording", "--record")
    assert quiet.is_char_device()
    assert full.is_char_device()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["full", "quiet"]


def test_a_file_is_replaced(tmp_path: Path) -> None:
    path = tmp_path / "file"
    for data in (b"first", b"second"):
        write_file(path, data, "--html")
        assert path.read_bytes() == data


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("x kill 4", "time x: allowed is a whole number"),
        ("1000 kill 4 for y", "for y: allowed is a whole number"),
        ("1000 kill 4 amount 1e999", "amount 1e999: allowed is a whole number"),
        ("9" * 5000 + " kill 4", "allowed is a whole number"),
    ],
)
def test_a_number_of_a_fault_that_is_none_is_named(line: str, why: str) -> None:
    with pytest.raises(ValueError, match=why) as error:
        parse(line)
    assert "base 10" not in str(error.value)
