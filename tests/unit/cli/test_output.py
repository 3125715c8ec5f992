"""What others have named reaches a terminal as text, never as something that the terminal acts upon."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from kraftlite.cli.common import print_json, print_table
from kraftlite.cli.group_view import columns
from kraftlite.cli.main import cli, main
from kraftlite.cli.pipeline_audit import by_position
from kraftlite.cli.topics import _changes
from kraftlite.model.shown import printable

HOSTILE = "a\x1b[2J\x07\x9b31m\u202eb"
SHOWN = "a\\x1b[2J\\x07\\x9b31m\\u202eb"


def test_control_characters_are_shown_as_escapes(capsys: pytest.CaptureFixture[str]) -> None:
    assert printable("Zürich orders-0 ✓") == "Zürich orders-0 ✓"
    assert printable(HOSTILE) == SHOWN
    print_table(("GROUP",), [(HOSTILE,)])
    columns(("GROUP",), [(HOSTILE,)])
    printed = capsys.readouterr().out
    assert printed.count(SHOWN) == 2 and "\x1b" not in printed


def test_json_keeps_the_value_and_harms_no_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    print_json({"group": HOSTILE, "city": "Zürich"})
    printed = capsys.readouterr().out
    assert json.loads(printed) == {"group": HOSTILE, "city": "Zürich"}
    assert "Zürich" in printed and not {"\x1b", "\x9b", "\u202e", "\x07"} & set(printed)


def test_errors_too(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["explain", "node", HOSTILE])
    assert SHOWN in capsys.readouterr().err


def test_a_group_of_commands_alone_prints_its_help(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["topic"])
    printed = capsys.readouterr()
    assert ended.value.code == 2 and printed.err == ""
    assert printed.out.startswith("Usage: kraftlite topic") and "error" not in printed.out


def test_what_a_watch_tells() -> None:
    before = {"t-0": (4, 0, (4, 5)), "t-1": (5, 2, (5,)), "gone-0": (4, 0, (4,))}
    now = {"t-0": (5, 1, (5,)), "t-1": (5, 2, (5,)), "new-0": (None, 0, ())}
    assert _changes(before, before) == []
    assert _changes(before, now) == [
        "t-0: leader 4 → 5 (epoch 1), ISR 4,5 → 5",
        "new-0: leader none → none (epoch 0)",
        "gone-0: deleted",
    ]


def test_log_directories_are_named_by_their_nodes(tmp_path: Path) -> None:
    for number in (4, 5):
        (tmp_path / f"d{number}").mkdir()
        (tmp_path / f"d{number}" / "meta.properties").write_text(f"version=1\nnode.id={number}\n")
    (tmp_path / "plain").mkdir()
    found = by_position([tmp_path / "d4", tmp_path / "d5", tmp_path / "plain"])
    assert found == {"b4": [tmp_path / "d4"], "b5": [tmp_path / "d5"], "dir3": [tmp_path / "plain"]}


def test_an_audit_of_directories_is_what_one_types(tmp_path: Path) -> None:
    result = CliRunner().invoke(cli, ["pipeline", "audit", str(tmp_path), "--data-dir", str(tmp_path)])
    assert result.exit_code == 2 and "exclude each other" in result.output
    for engine in ("spark", "local"):
        gone = CliRunner().invoke(cli, ["pipeline", "audit", str(tmp_path / "none"), "--engine", engine])
        assert (gone.exit_code, gone.output) == (2, f"Error: dir1={tmp_path / 'none'}: there is no such directory\n")
        gone = CliRunner().invoke(cli, ["pipeline", "failover-report", "--run", str(tmp_path / "none"), "--engine", engine])
        assert (gone.exit_code, gone.output) == (2, f"Error: {tmp_path / 'none'}: there is no such directory\n")
        gone = CliRunner().invoke(cli, ["pipeline", "audit", "--data-dir", str(tmp_path), "--engine", engine])
        assert gone.exit_code == 2 and gone.output.startswith(f"Error: there is no local cluster in {tmp_path}")
    result = CliRunner().invoke(cli, ["pipeline", "audit", str(tmp_path / "none"), "--engine", "local"])
    assert result.exit_code == 2 and str(tmp_path / "none") in result.output
