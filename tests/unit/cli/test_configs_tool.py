"""kafka-configs: what is refused before a cluster is asked, in the words of Kafka's ConfigCommand."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from kraftlite.cli.compat.configs import parse_added
from kraftlite.cli.compat.tool import UsageError
from kraftlite.cli.main import cli


def configs(arguments: str) -> Result:
    """No cluster is there: what is not refused waits for it, and says so."""
    command = ["compat", "kafka-configs", "--bootstrap-server", "127.0.0.1:1", *arguments.split()]
    return CliRunner().invoke(cli, command, catch_exceptions=False)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ("--describe --alter --topic t", "Command must include exactly one action: --describe, --alter"),
        ("--describe --topic t --add-config a=b", 'Option "[describe]" can\'t be used with option "[add-config]"'),
        ("--describe --topic t --delete-config a", 'Option "[describe]" can\'t be used with option "[delete-config]"'),
        ("--describe --entity-type topics --topic t", "Duplicate entity type(s) specified: topics"),
        ("--describe --entity-type users --topic t", "Only 'users' and 'clients' entity types may be specified together"),
        ("--describe --entity-type users --client c", "--entity-{type,name,default} should not be used in conjunction with"),
        ("--describe", "At least one entity type must be specified"),
        ("--describe --entity-type topics --entity-default", "--entity-default must not be specified with --describe of topics"),
        ("--describe --entity-type broker-loggers", "An entity name must be specified with --describe of broker-loggers"),
        ("--describe --broker x", "The entity name for brokers must be a valid integer broker id, but it is: x"),
        ("--describe --ip 1.2.3.4.5.6", "The entity name for ips must be a valid IP or resolvable host, but it is: 1.2.3.4.5.6"),
        ("--alter --entity-type topics --add-config a=b", "An entity name must be specified with --alter of topics"),
        ("--alter --entity-type users --add-config a=b", "An entity-name or default entity must be specified with --alter of"),
        ("--alter --topic t", "At least one of --add-config, --add-config-file, or --delete-config must be specified"),
        ("--alter --topic t --add-config a=b --add-config-file f", "Only one of --add-config or --add-config-file must be"),
        ("--alter --entity-type users --entity-type clients --entity-name u --add-config a=b", "specified for every entity type"),
        ("--alter --entity-type topics --entity-name a --entity-name b --add-config a=b", "specified for every entity type"),
        ("--alter --topic t --add-config a=b --add-config c=d", "Found multiple arguments for option add-config, but you asked"),
        ("--alter --top t --add-config a=b", "top is not a recognized option"),
        ("--alter --user u --add-config nope=1", "Unexpected config names: Set(nope)"),
        ("--alter --user u --delete-config nope", "Unexpected config names: ArrayBuffer(nope)"),
        ("--alter --client c --add-config SCRAM-SHA-256=[password=x]", "Only quota configs can be added for 'clients'"),
        ("--alter --user-defaults --add-config SCRAM-SHA-256=[password=x]", "is not allowed with User SCRAM Credentials"),
        ("--alter --ip 10.0.0.1 --add-config producer_byte_rate=5", "Unexpected config names: producer_byte_rate"),
        ("--describe --topic a/b", "Topic name is invalid: 'a/b' contains one or more characters other than ASCII"),
    ],
)
def test_what_does_not_fit_is_refused_before_anything_is_asked(arguments: str, said: str) -> None:
    result = configs(arguments)
    assert (result.exit_code, result.stdout) == (1, "")
    assert said in result.stderr


def test_values_are_read_as_kafka_reads_them(tmp_path: Path) -> None:
    assert parse_added("retention.ms = 9 , cleanup.policy=[compact,delete],a=", None) == {
        "retention.ms": "9",
        "cleanup.policy": "compact,delete",
        "a": "",
    }
    assert parse_added("SCRAM-SHA-256=[iterations=8192,password=a=b],", None) == {"SCRAM-SHA-256": "iterations=8192,password=a=b"}
    file = tmp_path / "more.properties"
    file.write_text("a=1=2\n")
    assert parse_added(None, str(file)) == {"a": "1=2"}


@pytest.mark.parametrize("text", ["retention.ms", "retention.ms=1=2", "cleanup.policy=compact,delete", ""])
def test_a_value_that_is_no_pair_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match='must be in the format "key=val" or'):
        parse_added(text, None)


def test_a_key_has_no_blanks() -> None:
    with pytest.raises(UsageError, match="Invalid character found for config key: reten tion"):
        parse_added("reten tion=1", None)
