"""The parts of the group commands that need no cluster: times, files, clamping, layouts."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click
import pytest

from kraftlite.cli.group_reset import Reset, clamp, datetime_ms, duration_ms, read_csv
from kraftlite.cli.group_view import columns
from kraftlite.cli.groups import assignment_text
from kraftlite.cli.times import since


def test_to_28_durations() -> None:
    assert duration_ms("P1DT2H30M") == ((24 + 2) * 60 + 30) * 60_000
    assert duration_ms("PT1.5S") == 1_500
    assert duration_ms("p0d") == 0
    for wrong in ("", "P", "PT", "1h", "P-1D"):
        with pytest.raises(click.UsageError, match="--by-duration"):
            duration_ms(wrong)


def test_to_28_datetimes() -> None:
    assert datetime_ms("1970-01-01T00:00:01.250") == 1_250
    assert datetime_ms("1970-01-01T01:00:00+01:00") == 0
    with pytest.raises(click.UsageError, match="--to-datetime"):
        datetime_ms("yesterday")


def test_to_28_a_datetime_is_exact_to_the_millisecond() -> None:
    for ms in range(0, 4_000_000_000_000, 1_000_000_007):
        text = datetime.fromtimestamp(ms // 1000, UTC).replace(microsecond=ms % 1000 * 1000).isoformat()
        assert datetime_ms(text) == ms and since(text, 0) == ms


def test_to_28_exactly_one_scenario() -> None:
    Reset(to_offset=0).check()
    Reset(to_latest=True).check()
    for wrong in (Reset(), Reset(to_earliest=True, to_latest=True), Reset(to_offset=1, shift_by=-1)):
        with pytest.raises(click.UsageError, match="exactly one"):
            wrong.check()


def test_to_28_offsets_are_clamped_to_the_log(capsys: pytest.CaptureFixture[str]) -> None:
    nobody: Any = None
    bounds: list[dict[Any, int]] = [{("t", 0): 10, ("t", 1): 0, ("t", 2): 5}, {("t", 0): 20, ("t", 1): 3, ("t", 2): 9}]
    found = clamp(nobody, {("t", 0): 4, ("t", 1): 9, ("t", 2): 6}, None, lambda _cluster, _wanted, _at: bounds.pop(0))
    assert found == {("t", 0): 10, ("t", 1): 3, ("t", 2): 6}
    told = capsys.readouterr().err.splitlines()
    assert told == [
        "New offset (4) is lower than earliest offset for t-0.",
        "New offset (9) is higher than latest offset for t-1.",
    ]
    with pytest.raises(click.ClickException, match="t-0 has no leader"):
        clamp(nobody, {("t", 0): 4}, {}, lambda _cluster, _wanted, _at: {})


def test_to_28_files(tmp_path: Path) -> None:
    file = tmp_path / "offsets.csv"
    file.write_text("t,0,5\n\nt,1,6\n")
    assert read_csv(file, "g", several=False) == {("t", 0): 5, ("t", 1): 6}
    with pytest.raises(click.ClickException, match=r"offsets.csv:1: allowed is"):
        read_csv(file, "g", several=True)
    file.write_text("g,t,0,5\nh,t,0,6\n")
    assert read_csv(file, "h", several=True) == {("t", 0): 6}
    file.write_text("t,x,5\n")
    with pytest.raises(click.ClickException, match=r"offsets.csv:1"):
        read_csv(file, "g", several=False)


def test_to_27_assignments() -> None:
    assert assignment_text([("orders", 0), ("orders", 2), ("payments", 1)]) == "orders:0,2;payments:1"
    assert assignment_text([]) is None


def test_to_27_columns(capsys: pytest.CaptureFixture[str]) -> None:
    columns(("GROUP", "LAG", "HOST"), [("g", 5, None), ("a-rather-long-name", 6, "h")], (15, 5, 0))
    assert capsys.readouterr().out == (
        "\nGROUP              LAG   HOST\ng                  5     -\na-rather-long-name 6     h\n"
    )
