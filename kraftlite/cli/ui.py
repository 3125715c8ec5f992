"""ui: the page on which a failover of the local cluster is watched."""

from __future__ import annotations

import asyncio
import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from kraftlite.cli.common import data_dir_of, data_dir_option, local_errors
from kraftlite.cli.recordings import new_file, page_needs, show, tape_of_file, write_html
from kraftlite.local import state
from kraftlite.local.container import found

if TYPE_CHECKING:
    from kraftlite.ui.serve import Link

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
@click.option("--record", type=click.Path(path_type=Path), metavar="FILE", help="Record the cluster to FILE meanwhile.")
@click.option("--html", type=click.Path(path_type=Path), metavar="FILE", help="Write the page of the recording to FILE, and end.")
def ui(
    file: Path | None,
    data_dir: Path | None,
    port: int | None,
    browser: bool,
    published: bool,
    as_json: bool,
    record: Path | None,
    html: Path | None,
) -> None:
    """Serve the page of the local cluster, or of a recording (FILE), to this machine alone, until Ctrl-C.

    It shows what every node says, who leads, how far each replica is, and why; and it has a button for each fault. The first
    link may do everything, the second one is for looking only. The cluster goes on without the page.
    """
    if file is not None:
        if data_dir is not None or record is not None or published:
            raise click.UsageError("--data-dir, --record and --published are about a cluster, FILE is a recording: one of them")
        tape = tape_of_file(file)
        if html is not None:
            write_html(tape, html)
        else:
            show(tape, port=port, browser=browser, as_json=as_json)
        return
    if html is not None:
        raise click.UsageError("--html needs a recording: kraftlite record FILE makes one of the local cluster")
    with page_needs():
        from kraftlite.ui.guard import TOKEN_VARIABLE, Tokens, WeakToken
        from kraftlite.ui.serve import listen, serve
    directory = data_dir_of(data_dir)

    def ready(link: Link) -> None:
        if as_json:
            click.echo(json.dumps({"operator": link.operator, "viewer": link.viewer}))
        else:
            show_links({"operator": link.operator, "viewer": link.viewer})
            click.echo("Press Ctrl-C to stop the page; the cluster goes on.", err=True)
        if browser:
            import webbrowser

            webbrowser.open(link.operator)

    try:
        tokens = Tokens.of(os.environ)
        os.environ.pop(TOKEN_VARIABLE, None)  # what is started from here, such as a node, has no use for it
    except WeakToken as error:
        raise click.ClickException(str(error)) from None
    with local_errors():
        if data_dir is None:
            found(os.environ, _CONTAINERS_S)
        state.load(directory)
        sock = listen(port, published=published)
        with sock, new_file(record, "--record") as write:
            asyncio.run(serve(directory, sock, ready, tokens=tokens, record=write))


def show_links(links: dict[str, str]) -> None:
    click.echo("Watch it, and cause faults, at:")
    click.echo(f"  {links['operator']}")
    click.echo("For looking only:")
    click.echo(f"  {links['viewer']}")
