"""The command `compat`: runs a tool, or installs all of them as executables."""

from __future__ import annotations

import os
import shlex
import sys
from importlib import import_module
from pathlib import Path

import click

from kraftlite.cli.compat import TOOLS


@click.command(
    "compat",
    context_settings={
        "ignore_unknown_options": True,
        "allow_interspersed_args": False,
        "help_option_names": ["-h", "--help"],
    },
    epilog=f"Tools: {', '.join(TOOLS)}; each also with .sh behind its name. `kraftlite compat TOOL --help` lists its options.",
)
@click.option(
    "--install",
    "directory",
    type=click.Path(path_type=Path, file_okay=False),
    metavar="DIR",
    help="Write an executable for each tool, with and without .sh, into this directory.",
)
@click.argument("tool", required=False)
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def compat(directory: Path | None, tool: str | None, arguments: tuple[str, ...]) -> None:
    """Run Kafka's command TOOL with Kafka's options: kraftlite compat kafka-topics --list."""
    if directory is not None:
        if tool is not None:
            raise click.UsageError("--install takes no tool: it installs all of them")
        install(directory)
        return
    if tool is None:
        raise click.UsageError(f"which tool? One of {', '.join(TOOLS)}")
    name = tool.removesuffix(".sh")
    module = TOOLS.get(name)
    if module is None:
        raise click.UsageError(f"there is no tool {tool!r}; allowed is one of {', '.join(TOOLS)}")
    from kraftlite.cli.compat.tool import finish

    run = import_module(f"kraftlite.cli.compat.{module}").run
    status = finish(name, run, arguments)
    if status:
        sys.exit(status)


def install(directory: Path) -> None:
    try:
        directory.mkdir(parents=True, exist_ok=True)
        for name in TOOLS:
            text = f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -m kraftlite compat {name} "$@"\n'
            for file in (directory / name, directory / f"{name}.sh"):
                file.write_text(text)
                file.chmod(0o755)
    except OSError as error:
        raise click.ClickException(f"{error.filename or directory}: {error.strerror or error}") from None
    where = str(directory.absolute())
    click.echo(f"Installed {2 * len(TOOLS)} commands in {where}.")
    if where not in os.environ.get("PATH", "").split(os.pathsep):
        click.echo(f'Put them in front: export PATH="{where}:$PATH"')
