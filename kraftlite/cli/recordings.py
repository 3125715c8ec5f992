"""Recordings on the command line: where they are written, and how their page is shown or made."""

from __future__ import annotations

import asyncio
import contextlib
import json
import tempfile
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from kraftlite.cli import ending
from kraftlite.cli.common import data_dir_of, data_dir_option, local_errors
from kraftlite.local.state import load

if TYPE_CHECKING:
    from kraftlite.obs.recording_reader import Line
    from kraftlite.ui.guard import Tokens
    from kraftlite.ui.rerun import Reruns
    from kraftlite.ui.serve import Link

NEEDS = "the page needs starlette and uvicorn: pip install 'kraftlite[ui]'"


@contextlib.contextmanager
def page_needs() -> Iterator[None]:
    """Turn a missing package of the page into one line."""
    try:
        yield
    except ImportError as error:
        if (error.name or "").partition(".")[0] in ("starlette", "uvicorn", "anyio", "h11"):
            raise click.ClickException(NEEDS) from None
        raise


def tape_of(lines: Callable[[], Iterable[Line]]) -> dict[str, Any]:
    """The tape of a recording; what is wrong with it becomes one line."""
    from kraftlite.model.shown import printable
    from kraftlite.obs.recording_reader import RecordingError
    from kraftlite.ui import replay

    try:
        return replay.tape_of(lines)
    except RecordingError as error:
        raise click.ClickException(printable(str(error))) from None


def tape_of_file(path: Path) -> dict[str, Any]:
    from kraftlite.obs.recording_reader import read

    return tape_of(lambda: read(path))


def tape_of_lines(lines: list[bytes]) -> dict[str, Any]:
    from kraftlite.obs.recording_reader import read_bytes

    data = b"".join(lines)
    return tape_of(lambda: read_bytes(data))


def write_file(path: Path, data: bytes, option: str) -> None:
    """All of it, or nothing: a file that is half written is never there under this name. A device or a pipe stays what it is."""
    try:
        if path.exists() and not path.is_file():
            path.write_bytes(data)
            return
        with tempfile.NamedTemporaryFile(dir=path.absolute().parent, prefix=f".{path.name}-", delete=False) as file:
            try:
                file.write(data)
                Path(file.name).chmod(0o644)
                Path(file.name).replace(path)
            except BaseException:
                Path(file.name).unlink()
                raise
    except OSError as error:
        raise click.ClickException(f"{option} {path}: {error.strerror or error}") from None


@contextlib.contextmanager
def new_file(path: Path | None, option: str) -> Iterator[Callable[[bytes], object] | None]:
    """A function that writes into a new file line by line, at once: a recorder that is killed leaves what it had. None without
    a path."""
    if path is None:
        yield None
        return
    try:
        file = path.open("xb", buffering=0)
    except FileExistsError:
        raise click.ClickException(f"{option} {path}: it is there already, and a recording overwrites nothing") from None
    except OSError as error:
        raise click.ClickException(f"{option} {path}: {error.strerror or error}") from None
    with file:
        yield file.write


@click.command("record")
@click.argument("file", type=click.Path(path_type=Path))
@data_dir_option
@click.option("--for", "seconds", type=click.FloatRange(0.1, 86_400), metavar="SECONDS", help="Then end. Default: at Ctrl-C.")
@click.option(
    "--limit", type=click.IntRange(1, 64), default=64, show_default=True, metavar="MIB", help="The recording ends at this size."
)
def record_command(file: Path, data_dir: Path | None, seconds: float | None, limit: int) -> None:
    """Record what the nodes of the local cluster say, and the events that they write, into FILE, until Ctrl-C.

    `kraftlite ui FILE` shows it; `kraftlite ui FILE --html PAGE` makes one page of it that can be mailed.
    """
    from kraftlite.ui.watch import record

    directory = data_dir_of(data_dir)
    with local_errors():
        load(directory)
        with new_file(file, "FILE") as write:
            assert write is not None
            click.echo(f"Recording to {file}. Press Ctrl-C to end it.", err=True)
            try:
                found = asyncio.run(record(directory, write, max_bytes=limit << 20, for_s=seconds))
            except KeyboardInterrupt:
                found = None
    if found is not None and found.reached:
        raise click.ClickException(f"{file} has reached its limit of {limit} MiB: it shows what was until then")


def write_html(tape: dict[str, Any], path: Path) -> None:
    from kraftlite.ui.export import html_of

    write_file(path, html_of(tape).encode(), "--html")


def show(
    tape: dict[str, Any],
    *,
    port: int | None,
    browser: bool,
    as_json: bool,
    tokens: Tokens | None = None,
    again: bool = True,
) -> None:
    """Serve the page of a recording until Ctrl-C. `again`: its run may be run again with a change, where that can be."""
    with page_needs():
        from kraftlite.ui.serve import listen, serve_tape

    reruns = _reruns(tape) if again else None

    def ready(link: Link) -> None:
        best = link.viewer if reruns is None or link.operator is None else link.operator
        if as_json:
            click.echo(json.dumps({"viewer": link.viewer} | ({} if reruns is None else {"operator": link.operator})))
        else:
            click.echo(f"Watch the recording{'' if reruns is None else ', and run it again with a change,'} at:\n  {best}")
            if reruns is not None:
                click.echo(f"For looking only:\n  {link.viewer}")
            click.echo("Press Ctrl-C to stop the page.", err=True)
        if browser:
            import webbrowser

            webbrowser.open(best)

    try:
        sock = listen(port)
    except OSError as error:
        raise click.ClickException(f"--port {port}: {error.strerror}") from None
    with sock:
        for number in asyncio.run(serve_tape(tape, sock, ready, reruns, tokens)):
            ending.note(number)


def _reruns(tape: dict[str, Any]) -> Reruns | None:
    """Return what runs it again with a change; None for what is no run of a seed."""
    from kraftlite.model.shown import printable
    from kraftlite.obs.recording import SIMULATED
    from kraftlite.ui.rerun import NoRerun, Reruns

    about = tape["cluster"]["recording"]
    if about["source"] != SIMULATED:
        return None
    try:
        return Reruns(about["plan"], about["made_by"])
    except NoRerun as why:
        click.echo(f"It cannot be run again with a change: {printable(str(why))}", err=True)
        return None
