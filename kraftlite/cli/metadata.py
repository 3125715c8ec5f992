"""metadata shell: the metadata of a cluster as directories and files, at any offset, from the files of any cluster."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click

from kraftlite.cli.common import data_dir_of, data_dir_option, local_errors
from kraftlite.cli.metadata_files import complain, metadata_errors, opened, say, tell_notes

if TYPE_CHECKING:
    from kraftlite.postmortem.commands import State


@click.command("shell", context_settings={"ignore_unknown_options": True, "allow_interspersed_args": True})
@click.argument("words", nargs=-1, metavar="[DIR|FILE]... [COMMAND [ARG]...]")
@click.option("--cluster", "live", is_flag=True, help="The running local cluster, as far as its quorum has committed.")
@click.option("--at-offset", type=click.IntRange(0), metavar="N", help="The metadata after the record at this offset.")
@data_dir_option
def shell(words: tuple[str, ...], live: bool, at_offset: int | None, data_dir: Path | None) -> None:
    """Look at the metadata of a cluster as directories and files.

    \b
    kraftlite metadata shell                            the local cluster, interactively
    kraftlite metadata shell DIR ls /topics/byName      one command
    kraftlite metadata shell DIR history /topics/byName/orders/0
    kraftlite metadata shell DIR diff 1200 1300         what changed between two offsets
    kraftlite metadata shell DIR --at-offset 1200 cat /topics/byName/orders/0

    DIR is a metadata log (__cluster_metadata-0), a data directory of a node, or a directory with several nodes, of kraftlite or
    of Apache Kafka, stopped or running; FILE is a segment or a snapshot (.checkpoint) of one. Of several logs the one that goes
    furthest is read. Nothing is locked and nothing is written. The last records of a log may never have been committed.

    Without DIR it is the local cluster in --data-dir. While that runs (--cluster insists on it) each command asks its quorum for
    the high watermark, one DescribeQuorum, and reads the files of the controller that leads up to there: what is not committed
    is not shown, and nothing registers with the cluster. `help` lists the commands. Exit status 1: the command did not find all.
    """
    from kraftlite.postmortem.commands import COMMANDS

    cut = next((at for at, word in enumerate(words) if word in COMMANDS), len(words))
    given, command = [Path(word) for word in words[:cut]], list(words[cut:])
    if live and given:
        raise click.UsageError("--cluster and DIR exclude each other")
    missing = next((path for path in given if not path.exists()), None)
    if missing is not None:
        raise click.UsageError(f"{missing}: there is no such file or directory, and no such command ({', '.join(COMMANDS)})")
    with local_errors(), metadata_errors(), _state(given, live, data_dir) as state:
        if at_offset is not None:
            state.travel(at_offset)
        if not command:
            from kraftlite.cli.metadata_prompt import prompt

            prompt(state)
        elif not run(state, command):
            sys.exit(1)


def run(state: State, command: Sequence[str]) -> bool:
    """Run one command, with what could not be read on standard error."""
    from kraftlite.postmortem.commands import COMMANDS, Shell

    if COMMANDS[command[0]].interactive:
        raise click.UsageError(f"{command[0]} makes sense in an interactive shell alone")
    done = Shell(state, say, complain).run(command)
    tell_notes(state.metadata)
    return done


@contextmanager
def _state(given: Sequence[Path], live: bool, data_dir: Path | None) -> Iterator[State]:
    from kraftlite.postmortem.commands import Opened

    if given:
        yield Opened(opened(given))
        return
    from kraftlite.local.state import LocalError, load

    cluster = load(data_dir_of(data_dir))
    note = ""
    if live or cluster.running:
        from kraftlite.local.metadata import Live

        try:
            found = Live(cluster)
        except LocalError as error:
            if live:
                raise
            note = f"{error}: what follows may not be committed"
        else:
            with closing(found):
                yield found
            return
    metadata = opened([Path(cluster.data_dir)])
    if note:
        metadata.notes.add(note, damage=False)
    yield Opened(metadata)
