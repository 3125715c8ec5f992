"""The parts that the tools share: how options are read, and how a tool ends.

Options are read as Kafka's tools read them: `--name value` or `--name=value`. With some of the tools a name may be shortened
while it is unique, and the last value of an option counts; with the others an option that has one value is given once. An option
that a tool does not have is an error that names it.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import re
import signal
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, NoReturn

import click

from kraftlite import __version__
from kraftlite.cli import ending, target
from kraftlite.cli.common import bootstrap_of
from kraftlite.cli.error_texts import TEXTS, explained
from kraftlite.cli.target import CONFIG_OPTION, CONFIG_VARIABLE, SERVERS, client_of, effective
from kraftlite.model.errors import ErrorCode

if TYPE_CHECKING:
    from kraftlite.client.cluster import ClusterClient


_SHORTENED: Final = frozenset(
    {
        "kafka-cluster",
        "kafka-features",
        "kafka-metadata-quorum",
        "kafka-metadata-shell",
        "kafka-producer-perf-test",
        "kafka-storage",
        "kafka-transactions",
        "kafka-verifiable-consumer",
        "kafka-verifiable-producer",
    }
)
"""The tools that Kafka's use argparse4j for, and joptsimple for the others."""


class UsageError(Exception):
    """Wrong options: the message and the usage on standard error, status 1."""


class ToolError(Exception):
    """A refusal by the cluster, or because of the user's data. The message is that of Kafka's exception."""


class Terse(ToolError):
    """A message that says all: Kafka's tool prints it without what goes before other errors."""


class _Once(argparse.Action):
    """An option with one value: given twice it is refused, as by Kafka's tools, and no value is dropped."""

    def __call__(self, parser: object, namespace: argparse.Namespace, values: object, option: str | None = None) -> None:
        given = vars(namespace).setdefault("_given", set())
        if self.dest in given:
            name = self.option_strings[-1].lstrip("-")
            raise UsageError(f"Found multiple arguments for option {name}, but you asked for only one")
        given.add(self.dest)
        setattr(namespace, self.dest, values)


class Parser(argparse.ArgumentParser):
    """An option parser whose errors are UsageError."""

    def __init__(self, tool: str, about: str = "", **more: Any) -> None:
        more.pop("prog", None)  # argparse's idea of what a subcommand is called
        shortened = tool.partition(" ")[0] in _SHORTENED
        super().__init__(
            prog=tool,
            description=about or None,
            formatter_class=argparse.RawDescriptionHelpFormatter,
            allow_abbrev=shortened,
            **more,
        )
        if not shortened:
            self.register("action", None, _Once)

    def error(self, message: str) -> NoReturn:
        raise UsageError(message)

    def read(self, arguments: Sequence[str]) -> argparse.Namespace:
        """Raises UsageError; SystemExit(0) for --help and --version."""
        if "--version" in arguments or (self.prog == "kafka-transactions" and "-v" in arguments):
            click.echo(kafka_version())
            raise SystemExit(0)
        found, rest = self.parse_known_args(list(arguments))
        for item in rest:
            if item.startswith("-"):
                raise UsageError(f"{item.partition('=')[0].lstrip('-')} is not a recognized option")
            raise UsageError(f"{item} is not expected here")
        return found

    def connection(self, *, controller: bool = False) -> None:
        """`--bootstrap-server` and `--command-config`; with `controller` also `--bootstrap-controller`."""
        self.add_argument("--bootstrap-server", metavar="HOST:PORT,…", help="REQUIRED: the brokers to connect to.")
        if controller:
            about = "The controllers to connect to, instead of --bootstrap-server."
            self.add_argument("--bootstrap-controller", metavar="HOST:PORT,…", help=about)
        default = os.environ.get(CONFIG_VARIABLE)
        self.add_argument(CONFIG_OPTION, metavar="FILE", default=default, help="Properties of the client.")


_NUMBER: Final = re.compile("[+-]?[0-9]+")
_DIGITS: Final = 4000
"""More are no number that could be meant, and would take long to read."""


def whole(bits: int) -> Callable[[str], int]:
    """The type of an option that is a whole number of so many bits, as Java's Short, Integer and Long are and are written."""

    def read(text: str) -> int:
        if not _NUMBER.fullmatch(text):
            raise ValueError(text)
        value = int(text)
        if not -1 << bits - 1 <= value < 1 << bits - 1:
            raise argparse.ArgumentTypeError(f"{text}: allowed is a whole number of {bits} bits")
        return value

    read.__name__ = "int"  # argparse's word for what is no number
    return read


def java_int(text: str) -> int | None:
    """Read a number as Java's Integer.parseInt does; None: there is none."""
    return _java_number(text, 32)


def java_long(text: str) -> int | None:
    """Read a number as Java's Long.parseLong does; None: there is none."""
    return _java_number(text, 64)


def _java_number(text: str, bits: int) -> int | None:
    if len(text) > _DIGITS or not _NUMBER.fullmatch(text):
        return None
    value = int(text)
    return value if -1 << bits - 1 <= value < 1 << bits - 1 else None


KAFKA_VERSION: Final = "4.3.1"
"""The release whose tools these stand for, and are compared with."""


def kafka_version() -> str:
    """Kafka's tools print the version alone: a script that takes the first word gets what theirs say."""
    return f"{KAFKA_VERSION} (kraftlite {__version__})"


def addresses(options: argparse.Namespace, name: str = "--bootstrap-server", configured: str | None = None) -> str:
    """The brokers to ask. Unlike Kafka's tools this takes `configured`, and else the local cluster, when nothing is named."""
    given = getattr(options, "bootstrap_server", None)
    try:
        return bootstrap_of(given, configured, SERVERS)
    except click.UsageError as error:
        raise UsageError(error.message) from None
    except click.ClickException as error:
        raise UsageError(f'Missing required argument "[{name.lstrip("-")}]" ({error.message})') from None


def cluster_of(
    options: argparse.Namespace, path: str | None = None, option: str = CONFIG_OPTION, more: Mapping[str, str] | None = None
) -> ClusterClient:
    """The client of a tool, of brokers or of controllers. It has the properties of `--command-config` or of another file (`path`
    with its `option`): addresses, time limits, TLS and SASL. What protects and cannot be honoured is refused, anything else
    without effect is warned about. `more`: properties that options of the tool name, which count more."""
    path = path or getattr(options, "command_config", None)
    given = {} if path is None else read_properties(path, option)
    properties = {**effective(given, path or "", option), **(more or {})}
    return cluster_with(options, properties, given.get(SERVERS), path, option)


def cluster_with(
    options: argparse.Namespace, properties: Mapping[str, str], configured: str | None, path: str | None, option: str
) -> ClusterClient:
    """The client of a tool with these properties, which are from this file. `configured`: the addresses that it has."""
    controllers: str | None = getattr(options, "bootstrap_controller", None)
    if controllers is not None and getattr(options, "bootstrap_server", None) is not None:
        raise UsageError("Only one of --bootstrap-server or --bootstrap-controller can be specified")
    servers = addresses(options, configured=configured) if controllers is None else controllers
    try:
        return client_of(servers, properties, path, option, controllers=controllers is not None)
    except ValueError as error:
        raise UsageError(str(error)) from None


def read_properties(path: str, option: str) -> dict[str, str]:
    try:
        return target.read_properties(path, option)
    except ValueError as error:
        raise UsageError(str(error)) from None


def key_values(items: Sequence[str], option: str) -> dict[str, str]:
    """`k=v` arguments as a dict."""
    found = {}
    for item in items:
        key, equals, value = item.partition("=")
        if not equals or not key:
            raise UsageError(f"{option} {item}: allowed is key=value")
        found[key.strip()] = value
    return found


def exactly_one(options: argparse.Namespace, names: Sequence[str], message: str) -> str:
    chosen = [name for name in names if getattr(options, name.replace("-", "_")) not in (None, False)]
    if len(chosen) != 1:
        raise UsageError(message)
    return chosen[0]


def only_one_of(options: argparse.Namespace, older: str, newer: str) -> None:
    """Check that of an option and what it was called before only one is given (KIP-1147). UsageError: both are."""
    if getattr(options, older.replace("-", "_")) and getattr(options, newer.replace("-", "_")):
        raise UsageError(f"Options --{older} and --{newer} cannot be specified together.")


def finish(tool: str, run: Callable[[Sequence[str]], int], arguments: Sequence[str]) -> int:
    """Run a tool; its errors become Kafka's lines and status 1."""
    from kraftlite.client.errors import ClientError, RequestRefused
    from kraftlite.local.state import LocalError

    try:
        return run(arguments)
    except UsageError as error:
        click.echo(f"{error}\n(see {tool} --help)", err=True)
    except RequestRefused as error:
        click.echo(f"Error: {explained(error.code, error.message)}", err=True)
    except (ToolError, LocalError, ClientError) as error:
        click.echo(f"Error: {error}", err=True)
    except click.ClickException as error:
        click.echo(f"Error: {error.format_message()}", err=True)
    except SystemExit as ended:
        return int(ended.code) if isinstance(ended.code, int) else 0 if ended.code is None else 1
    except OSError as error:
        click.echo(f"Error: {error}", err=True)
    except Exception as error:
        if "confluent_kafka" not in sys.modules:
            raise
        from confluent_kafka import KafkaException

        from kraftlite.cli.librdkafka import kafka_message

        if not isinstance(error, KafkaException):
            raise
        click.echo(f"Error: {kafka_message(error)}", err=True)
    return 1


_CLASSES: Final = {
    ErrorCode.CORRUPT_MESSAGE: "CorruptRecordException",
    ErrorCode.STALE_CONTROLLER_EPOCH: "ControllerMovedException",
    ErrorCode.OFFSET_METADATA_TOO_LARGE: "OffsetMetadataTooLarge",
    ErrorCode.RECORD_LIST_TOO_LARGE: "RecordBatchTooLargeException",
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: "TopicAuthorizationException",
    ErrorCode.GROUP_AUTHORIZATION_FAILED: "GroupAuthorizationException",
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED: "ClusterAuthorizationException",
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: "TransactionalIdAuthorizationException",
    ErrorCode.KAFKA_STORAGE_ERROR: "KafkaStorageException",
    ErrorCode.SASL_AUTHENTICATION_FAILED: "SaslAuthenticationException",
    ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED: "DelegationTokenDisabledException",
    ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED: "UnsupportedByAuthenticationException",
    ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED: "DelegationTokenAuthorizationException",
    ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER: "OutOfOrderSequenceException",
    ErrorCode.DUPLICATE_SEQUENCE_NUMBER: "DuplicateSequenceException",
    ErrorCode.INVALID_PRODUCER_ID_MAPPING: "InvalidPidMappingException",
    ErrorCode.INVALID_TRANSACTION_TIMEOUT: "InvalidTxnTimeoutException",
    ErrorCode.PRINCIPAL_DESERIALIZATION_FAILURE: "PrincipalDeserializationException",
    ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR: "FetchSessionTopicIdException",
    ErrorCode.INVALID_REGULAR_EXPRESSION: "InvalidRegularExpression",
    ErrorCode.TOPIC_ALREADY_EXISTS: "TopicExistsException",
    ErrorCode.NON_EMPTY_GROUP: "GroupNotEmptyException",
    ErrorCode.INVALID_CONFIG: "InvalidConfigurationException",
    ErrorCode.REQUEST_TIMED_OUT: "TimeoutException",
    ErrorCode.MESSAGE_TOO_LARGE: "RecordTooLargeException",
    ErrorCode.INVALID_PARTITIONS: "InvalidPartitionsException",
    ErrorCode.UNKNOWN_SERVER_ERROR: "UnknownServerException",
}


@contextlib.contextmanager
def told_to_stop(handler: Callable[[int, Any], None]) -> Iterator[None]:
    """SIGTERM and SIGINT go to `handler` meanwhile; in another than the main thread nobody sends them."""

    def take(number: int, frame: Any) -> None:
        ending.note(number)
        handler(number, frame)

    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        for number in before:
            signal.signal(number, take)
    except ValueError:
        before = {}
    try:
        yield
    finally:
        for number, earlier in before.items():
            signal.signal(number, earlier)


def java_exception(code: ErrorCode, message: str | None = None) -> str:
    """Format an exception as Kafka's client shows it: `org.apache.kafka.common.errors.GroupNotEmptyException: The group …`."""
    return f"{java_class(code)}: {message or TEXTS.get(code, code.name)}"


def java_class(code: ErrorCode) -> str:
    """Name the class of Kafka's exception: `org.apache.kafka.common.errors.GroupNotEmptyException`."""
    if code is ErrorCode.INVALID_RECORD:
        return "org.apache.kafka.common.InvalidRecordException"
    name = _CLASSES.get(code)
    if name is None:
        words = "".join(part.capitalize() for part in code.name.split("_"))
        name = words if words.endswith("Exception") else f"{words}Exception"
    return f"org.apache.kafka.common.errors.{name}"
