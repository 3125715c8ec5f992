"""ui: the page on which a failover is watched."""

from __future__ import annotations

import asyncio
import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from kraftlite.cli import ending
from kraftlite.cli.common import data_dir_of, data_dir_option, local_errors
from kraftlite.cli.recordings import new_file, page_needs, show, tape_of_file, write_html
from kraftlite.local import state
from kraftlite.local.container import found
from kraftlite.local.secure import certificate_in
from kraftlite.model.shown import printable

if TYPE_CHECKING:
    from kraftlite.ui.guard import Tokens
    from kraftlite.ui.serve import Link
    from kraftlite.ui.whom import Whom

_CONTAINERS_S: Final = 120.0
"""The wait, in a container, for the first node to describe a closed cluster."""


@click.command("ui")
@click.argument("file", required=False, type=click.Path(path_type=Path, exists=True, dir_okay=False))
@data_dir_option
@click.option("--port", type=click.IntRange(1, 65535), help="The port to serve at. Default: 8088, or the next one that is free.")
@click.option("--open", "browser", is_flag=True, help="Open the page in a browser.")
@click.option(
    "--published",
    is_flag=True,
    help="Serve at all addresses of this container, for a port that is published as 127.0.0.1:PORT:PORT.",
)
@click.option("--json", "as_json", is_flag=True, help="Print the links as one line of JSON.")
@click.option(
    "--nodes",
    metavar="HOST:PORT,…",
    help="Look at nodes by the addresses at which nodes reach them, wherever they run; nothing is done to them.",
)
@click.option(
    "--trace",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    multiple=True,
    metavar="FILE",
    help="With --nodes: a trace file of one of them, for the stories. May be given again.",
)
@click.option(
    "--command-config",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    metavar="FILE",
    help="With --nodes: Kafka's properties of the certificate to show to the nodes of a closed cluster.",
)
@click.option("--read-only", is_flag=True, help="For looking only: there is no link that may do more.")
@click.option(
    "--token-file",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="The operator's token, and on another line the viewer's; in a file that its owner alone may read.",
)
@click.option("--record", type=click.Path(path_type=Path), metavar="FILE", help="Record the cluster to FILE meanwhile.")
@click.option("--html", type=click.Path(path_type=Path), metavar="FILE", help="Write the page of the recording to FILE, and end.")
def ui(
    file: Path | None,
    data_dir: Path | None,
    port: int | None,
    browser: bool,
    published: bool,
    as_json: bool,
    nodes: str | None,
    trace: tuple[Path, ...],
    command_config: Path | None,
    read_only: bool,
    token_file: Path | None,
    record: Path | None,
    html: Path | None,
) -> None:
    """Serve the page of the local cluster, of nodes elsewhere (--nodes), or of a recording (FILE), to this machine alone, until
    Ctrl-C.

    It shows what every node says, who leads, how far each replica is, and why; and it has a button for each fault. The first
    link may do everything, the second one is for looking only. The cluster goes on without the page.
    """
    if file is not None and (data_dir is not None or record is not None or published or nodes is not None):
        raise click.UsageError(
            "--data-dir, --nodes, --record and --published are about a cluster, FILE is a recording: one of them"
        )
    if nodes is not None and data_dir is not None:
        raise click.UsageError("--data-dir is a cluster of this machine, --nodes are others: one of them")
    if nodes is None and (trace or command_config is not None):
        raise click.UsageError("--trace and --command-config go with --nodes: of a local cluster both are known")
    if html is not None and file is None:
        raise click.UsageError("--html needs a recording: kraftlite record FILE makes one of the local cluster")
    tokens = None if html is not None else _tokens(token_file, read_only=read_only or nodes is not None)
    if file is not None:
        tape = tape_of_file(file)
        if html is not None:
            write_html(tape, html)
        else:
            show(tape, port=port, browser=browser, as_json=as_json, tokens=tokens, again=not read_only)
        return
    with page_needs():
        from kraftlite.ui.serve import listen, serve

    def ready(link: Link) -> None:
        links = {"viewer": link.viewer} if link.operator is None else {"operator": link.operator, "viewer": link.viewer}
        if as_json:
            click.echo(json.dumps(links))
        else:
            show_links(links)
            click.echo("Press Ctrl-C to stop the page; the cluster goes on.", err=True)
        if browser:
            import webbrowser

            webbrowser.open(link.operator or link.viewer)

    with local_errors():
        if nodes is None and data_dir is None:
            found(os.environ, _CONTAINERS_S)
        whom = _whom(data_dir, nodes, command_config, trace)
        sock = listen(port, published=published)
        with sock, new_file(record, "--record") as write:
            for number in asyncio.run(serve(whom, sock, ready, tokens=tokens, record=write)):
                ending.note(number)


def _tokens(file: Path | None, *, read_only: bool) -> Tokens:
    with page_needs():
        from kraftlite.ui.guard import TOKEN_VARIABLE, Tokens, WeakToken
    try:
        found = Tokens.of(os.environ, file, read_only=read_only)
    except WeakToken as error:
        raise click.ClickException(printable(str(error))) from None
    os.environ.pop(TOKEN_VARIABLE, None)  # what is started from here, such as a node, has no use for it
    return found


def _whom(data_dir: Path | None, nodes: str | None, config: Path | None, traces: tuple[Path, ...]) -> Whom:
    """Raises LocalError."""
    from kraftlite.ui.whom import AtAddresses, InDirectory, addresses_of

    if nodes is None:
        directory = data_dir_of(data_dir)
        state.load(directory)
        return InDirectory(directory)
    try:
        addresses = addresses_of(nodes)
    except ValueError as error:
        raise click.UsageError(f"--nodes {error}") from None
    return AtAddresses(addresses, None if config is None else certificate_in(config), traces)


def show_links(links: dict[str, str]) -> None:
    if "operator" in links:
        click.echo("Watch it, and cause faults, at:")
        click.echo(f"  {links['operator']}")
    click.echo("For looking only:")
    click.echo(f"  {links['viewer']}")
