"""ui: the page on which a failover of the local cluster is watched."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import TYPE_CHECKING

import click

from kraftlite.cli.common import data_dir_of, data_dir_option, local_errors
from kraftlite.local import state

if TYPE_CHECKING:
    from kraftlite.ui.serve import Link

NEEDS = "the page needs starlette and uvicorn: pip install 'kraftlite[ui]'"


@click.command("ui")
@data_dir_option
@click.option("--port", type=click.IntRange(1, 65535), help="The port to serve at. Default: 8088, or the next one that is free.")
@click.option("--open", "browser", is_flag=True, help="Open the page in a browser.")
@click.option("--json", "as_json", is_flag=True, help="Print the links as one line of JSON.")
def ui(data_dir: Path | None, port: int | None, browser: bool, as_json: bool) -> None:
    """Serve the page of the local cluster, to this machine alone, until Ctrl-C; the cluster goes on without it.

    It shows what every node says, who leads, how far each replica is, and why; and it has a button for each fault. The first
    link may do everything, the second one is for looking only.
    """
    try:
        from kraftlite.ui.serve import listen, serve
    except ImportError as error:
        if (error.name or "").partition(".")[0] in ("starlette", "uvicorn", "anyio", "h11"):
            raise click.ClickException(NEEDS) from None
        raise
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

    with local_errors():
        state.load(directory)
        sock = listen(port)
        with sock:
            asyncio.run(serve(directory, sock, ready))


def show_links(links: dict[str, str]) -> None:
    click.echo("Watch it, and cause faults, at:")
    click.echo(f"  {links['operator']}")
    click.echo("For looking only:")
    click.echo(f"  {links['viewer']}")
