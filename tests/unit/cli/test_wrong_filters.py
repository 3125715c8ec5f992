"""Filters and numbers that there are not: a command names them, and what is allowed, before it asks any broker."""

from __future__ import annotations

import time
from typing import Any

import pytest
from click.testing import CliRunner

from kraftlite.cli.compat import console_consumer, consumer_groups, groups
from kraftlite.cli.compat.tool import UsageError
from kraftlite.cli.main import cli, main
from kraftlite.client.admin import alter_scram
from kraftlite.client.cluster import ClusterClient
from kraftlite.client.settings import ClientSettings

NOBODY = "127.0.0.1:1"


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("--state", "Stable,Nope"), "--state Nope: allowed are Empty, PreparingRebalance,"),
        (("--type", "foo"), "--type foo: allowed are Classic, Consumer, Share, Streams"),
    ],
)
def test_group_list(arguments: tuple[str, ...], told: str) -> None:
    """It printed an empty table, as if no group were in that state."""
    result = CliRunner().invoke(cli, ["group", "list", *arguments, "-b", NOBODY])
    assert result.exit_code == 2
    assert told in result.output


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("--state", "Stable, nope"), "Invalid state list 'Stable, nope'. Valid states are: "),
        (("--state", "NotReady"), "Invalid state list 'NotReady'. Valid states are: "),
        (("--type", "share"), "Invalid types list 'share'. Valid types are: Classic, Consumer"),
    ],
)
def test_kafka_consumer_groups(arguments: tuple[str, ...], told: str) -> None:
    with pytest.raises(UsageError, match=told):
        consumer_groups.run(["--bootstrap-server", NOBODY, "--list", *arguments])


def test_kafka_groups() -> None:
    with pytest.raises(UsageError, match="--group-type must be a valid group type"):
        groups.run(["--bootstrap-server", NOBODY, "--list", "--group-type", "unknown"])


@pytest.mark.parametrize("offset", [str(2**63), "\u00b2", "-1"])
def test_kafka_console_consumer_takes_offsets_that_are_longs(offset: str) -> None:
    arguments = ["--bootstrap-server", NOBODY, "--topic", "t", "--partition", "0", "--offset"]
    with pytest.raises(UsageError, match=r"incorrect\. Valid values are 'earliest', 'latest', or a non-negative long"):
        console_consumer.run([*arguments, offset] if offset != "-1" else [*arguments[:-1], "--offset=-1"])
    with pytest.raises(UsageError, match=f"--partition: {2**31}: allowed is"):
        console_consumer.run([*arguments[:-3], "--partition", str(2**31)])


def test_iterations_that_are_refused_are_not_made_before() -> None:
    """A milliard of them takes a quarter of an hour, and above 2^31 the library refuses."""
    asked: list[Any] = []

    class Cluster(ClusterClient):
        def call(self, api_key: int, version: int, values: Any, **_: Any) -> Any:
            asked.extend(values["upsertions"])
            raise StopIteration

    began = time.process_time()
    with pytest.raises(StopIteration):
        alter_scram(Cluster(ClientSettings(bootstrap=(NOBODY,))), "u", [], {1: (99_999_999_999, "secret")})
    assert time.process_time() - began < 5
    assert [one["iterations"] for one in asked] == [99_999_999_999], "the broker is to say what it thinks of it"


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("disk", "1"), "Choose from: slow, stall, full, error (see kraftlite fault disk --help)\n"),
        (("clock", "1", "-zz"), "error: -zz: allowed is a span of time with its sign"),
        (("clock", "1", "+-1h"), "error: +-1h: allowed is"),
    ],
)
def test_what_is_said_of_a_fault_names_what_was_given(
    arguments: tuple[str, ...], told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["fault", *arguments])
    assert ended.value.code == 2
    said = capsys.readouterr().err
    assert told in said
    assert len(said.splitlines()) == 1
