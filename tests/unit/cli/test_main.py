"""The command line itself: quick help, one-line errors, exit statuses."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from kraftlite.cli.common import bootstrap_of, pairs, print_table
from kraftlite.cli.consume import formatter
from kraftlite.cli.main import LazyGroup, cli

HEAVY = ("grpc", "confluent_kafka", "kio", "rich", "google.protobuf", "structlog", "asyncio", "uvloop")


def kraftlite(*arguments: str, data_dir: Path) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "KRAFTLITE_DATA_DIR": str(data_dir)}
    env.pop("KRAFTLITE_BOOTSTRAP_SERVER", None)
    return subprocess.run(
        [sys.executable, "-m", "kraftlite", *arguments], capture_output=True, text=True, env=env, check=False, timeout=60
    )


def test_help_imports_nothing_heavy() -> None:
    code = (
        "import sys\nfrom kraftlite.cli.main import cli\n"
        "try:\n    cli.main(['--help'], prog_name='kraftlite')\nexcept SystemExit:\n    pass\n"
        f"print('HEAVY', [name for name in {HEAVY!r} if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert "Start a local cluster" in done.stdout
    assert done.stdout.strip().endswith("HEAVY []")


def walk(group: LazyGroup, path: tuple[str, ...] = ()) -> list[tuple[str, ...]]:
    found = []
    for name in group.list_commands(click.Context(group)):
        command = group.get_command(click.Context(group), name)
        assert command is not None
        if isinstance(command, LazyGroup):
            found += walk(command, (*path, name))
        else:
            found.append((*path, name))
    return found


@pytest.mark.parametrize("command", walk(cli), ids=" ".join)
def test_every_command_has_help(command: tuple[str, ...]) -> None:
    result = CliRunner().invoke(cli, [*command, "--help"])
    assert result.exit_code == 0, result.output
    assert len(result.output.splitlines()) > 3


@pytest.mark.parametrize(
    ("arguments", "status", "words"),
    [
        (("nonsense",), 2, "there is no command 'nonsense'"),
        (("topic", "nonsense"), 2, "allowed is one of list, describe"),
        (("ps",), 1, "there is no local cluster"),
        (("kill", "4"), 1, "there is no local cluster"),
        (("kill", "x"), 2, "x: allowed are a node's id, controller, and leader TOPIC-PARTITION"),
        (("topic", "list"), 1, "no broker to ask"),
        (("quorum", "describe", "--status", "--replication"), 2, "give one of --status and --replication"),
        (("quorum", "remove"), 2, "name one voter: kraftlite quorum remove ID"),
        (("quorum", "remove", "1", "-i", "2"), 2, "name one voter: kraftlite quorum remove ID"),
        (("quorum", "remove", "x"), 2, "x: allowed is a node id"),
        (("config", "describe"), 2, "exactly one of --topic NAME"),
        (("config", "alter", "--topic", "t"), 2, "nothing to do"),
        (("elect-leaders",), 2, "exactly one of --topic"),
        (("create-topic", "t", "--config", "novalue"), 2, "allowed is key=value"),
        (("down",), 1, "there is no local cluster"),
        (("start", "--config", "absent.properties"), 1, "absent.properties"),
        (("topic", "list", "-b", "a..b:9092"), 1, "a..b:9092: this cannot be the name of a host"),
        (("topic", "list", "-b", "caf\udce9:9092"), 1, "this cannot be the name of a host"),
        (("topic", "list", "-b", "127.0.0.1:٣"), 2, "allowed is host:port"),
    ],
)
def test_errors_are_one_line(arguments: tuple[str, ...], status: int, words: str, tmp_path: Path) -> None:
    done = kraftlite(*arguments, data_dir=tmp_path)
    assert done.returncode == status
    assert words in done.stderr
    assert done.stderr.startswith("error: ")
    assert len(done.stderr.splitlines()) == 1
    assert done.stdout == ""


def test_to_39_brokers_that_do_not_answer_are_named(tmp_path: Path) -> None:
    done = kraftlite("quorum", "describe", "--replication", "-b", "127.0.0.1:1", data_dir=tmp_path)
    assert done.returncode == 1
    assert "no broker answered (127.0.0.1:1" in done.stderr


def test_the_bootstrap_server(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("KRAFTLITE_DATA_DIR", str(tmp_path))
    monkeypatch.setenv("KRAFTLITE_BOOTSTRAP_SERVER", "b:2")
    assert bootstrap_of("a:1") == "a:1"
    assert bootstrap_of(None) == "b:2"
    monkeypatch.delenv("KRAFTLITE_BOOTSTRAP_SERVER")
    with pytest.raises(click.ClickException, match="kraftlite up"):
        bootstrap_of(None)


def test_pairs() -> None:
    assert pairs(["a=b", "c=d=e", "f="]) == {"a": "b", "c": "d=e", "f": ""}
    for wrong in ("a", "=b"):
        with pytest.raises(click.UsageError):
            pairs([wrong])


def test_tables_are_aligned(capsys: pytest.CaptureFixture[str]) -> None:
    print_table(("A", "LONG"), [(1, None), ("wide", 2)])
    assert capsys.readouterr().out == "A     LONG\n1     -\nwide  2\n"


class Message:
    def topic(self) -> str:
        return "t"

    def partition(self) -> int:
        return 3

    def offset(self) -> int:
        return 5

    def key(self) -> bytes | None:
        return None

    def value(self) -> bytes:
        return b"\xffraw"

    def headers(self) -> list[tuple[str, bytes]]:
        return [("h", b"1")]

    def timestamp(self) -> tuple[int, int]:
        return 1, 99


def test_formats_in_the_style_of_kcat() -> None:
    assert formatter("%t/%p@%o %k|%s %T %h%%\\t\\n")(Message()) == b"t/3@5 |\xffraw 99 h=1%\t\n"
    with pytest.raises(click.UsageError, match="%q is unknown"):
        formatter("%q")
