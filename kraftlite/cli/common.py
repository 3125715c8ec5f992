"""The parts that commands share: options, output, and the errors that become one line."""

from __future__ import annotations

import contextlib
import json
import os
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from kraftlite.model.numbers import whole
from kraftlite.model.shown import printable

if TYPE_CHECKING:
    from kraftlite.local.state import LocalCluster

F = TypeVar("F", bound=Callable[..., Any])

DATA_DIR_VARIABLE = "KRAFTLITE_DATA_DIR"
BOOTSTRAP_VARIABLE = "KRAFTLITE_BOOTSTRAP_SERVER"
_ACTS_ON_TERMINALS = re.compile("[\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff]")
"""DEL and the C1 controls; line separators and marks that turn the direction of text."""


def output_option(function: F) -> F:
    """`output`: table or json."""
    short = click.option("--json", "output", flag_value="json", help="Short for --output json.")
    return click.option(
        "-o", "--output", type=click.Choice(["table", "json"]), default="table", show_default=True, help="How to print."
    )(short(function))


def bootstrap_option(function: F) -> F:
    return click.option(
        "--bootstrap-server",
        "-b",
        metavar="HOST:PORT,…",
        help=f"Brokers to ask first. Default: {BOOTSTRAP_VARIABLE}, then the local cluster.",
    )(function)


def data_dir_option(function: F) -> F:
    return click.option(
        "--data-dir",
        type=click.Path(path_type=Path),
        metavar="DIR",
        help=f"The local cluster's directory. Default: {DATA_DIR_VARIABLE}, then ~/.kraftlite/local.",
    )(function)


def data_dir_of(given: Path | None) -> Path:
    from kraftlite.local.state import default_data_dir

    return (given.expanduser() if given is not None else default_data_dir(os.environ)).absolute()


def bootstrap_of(given: str | None, configured: str | None = None, configured_in: str = "") -> str:
    """`--bootstrap-server`, the environment, a file of properties, then the running local cluster."""
    found = given or os.environ.get(BOOTSTRAP_VARIABLE) or configured
    if found:
        for address in found.split(","):
            host, _, port = address.strip().rpartition(":")
            if not host or not whole(port, 65_535):
                where = "--bootstrap-server" if given else configured_in if found is configured else BOOTSTRAP_VARIABLE
                raise click.UsageError(f"{where} {address.strip() or found!r}: allowed is host:port, or several with commas")
        return found
    from kraftlite.local.process import RUNNING

    cluster = _local_cluster()
    if cluster is None or cluster.is_contained or all(node.state != RUNNING for node in cluster.nodes if node.kafka):
        raise click.ClickException(
            f"no broker to ask: give --bootstrap-server, set {BOOTSTRAP_VARIABLE}, or start a local cluster with: kraftlite up"
        )
    # Running brokers first: a client tries them in order.
    brokers = sorted((node for node in cluster.nodes if node.kafka), key=lambda node: node.state != RUNNING)
    return ",".join(str(node.kafka) for node in brokers)


def local_command_config() -> str | None:
    """The administrator's client file, where the cluster that would be asked without any option is a secure local one."""
    cluster = None if os.environ.get(BOOTSTRAP_VARIABLE) else _local_cluster()
    if cluster is None or not cluster.secure:
        return None
    from kraftlite.local.secure import command_config

    return str(command_config(Path(cluster.data_dir)))


def _local_cluster() -> LocalCluster | None:
    """The local cluster in the usual place; None: there is none. Raises ClickException for one whose file is damaged."""
    from kraftlite.local.state import STATE_NAME, LocalError, default_data_dir, load

    directory = default_data_dir(os.environ).absolute()
    try:
        return load(directory)
    except LocalError as error:
        if os.path.lexists(directory / STATE_NAME):
            raise click.ClickException(str(error)) from None
        return None


@contextlib.contextmanager
def local_errors() -> Iterator[None]:
    """LocalError, ClientError, and what the file system refuses, become one line."""
    from kraftlite.client.errors import ClientError
    from kraftlite.local.state import LocalError

    try:
        yield
    except (LocalError, ClientError) as error:
        raise click.ClickException(str(error)) from None
    except BrokenPipeError:
        raise
    except OSError as error:
        raise click.ClickException(f"{error.filename or 'the local cluster'}: {error.strerror or error}") from None


def pairs(items: Iterable[str], what: str = "--config", allowed: str = "key=value") -> dict[str, str]:
    """`k=v` options as a dict."""
    found = {}
    for item in items:
        key, equals, value = item.partition("=")
        if not equals or not key.strip():
            raise click.UsageError(f"{what} {item}: allowed is {allowed}")
        found[key.strip()] = value
    return found


def warn(problem: str | None) -> None:
    """Tell a problem, if there is one, that does not keep the command from its work."""
    if problem is not None:
        click.echo(f"warning: {printable(problem)}", err=True)


def print_json(value: Any) -> None:
    """JSON escapes the control characters below 0x20 itself; those above are escaped in its way, too."""
    text = json.dumps(value, default=str, ensure_ascii=False, indent=2)
    click.echo(_ACTS_ON_TERMINALS.sub(lambda found: json.dumps(found[0])[1:-1], text))


def print_table(header: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Left-aligned columns, two blanks between them; absent values print as `-`."""
    texts = [list(header), *[["-" if cell is None else printable(str(cell)) for cell in row] for row in rows]]
    widths = [max(len(row[i]) for row in texts) for i in range(len(header))]
    for row in texts:
        click.echo("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())
