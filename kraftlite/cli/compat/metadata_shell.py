"""kafka-metadata-shell. Source: TO-22; Kafka's MetadataShell and its commands.

Kafka's shell reads one file, a snapshot or a segment, as if it were the beginning of a log: the offset that it shows is that of
the last record of the file. Without a command it opens kraftlite's interactive shell.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from kraftlite.cli.compat.tool import Parser, ToolError

_COMMANDS: Final = ("cat", "find", "ls", "tree")


def run(arguments: Sequence[str]) -> int:
    parser = Parser("kafka-metadata-shell", "The Apache Kafka metadata shell")
    parser.add_argument("--snapshot", "-s", metavar="SNAPSHOT", required=True, help="The metadata snapshot file to read.")
    parser.add_argument("command", nargs=argparse.REMAINDER, help="The command to run.")
    options = parser.read(arguments)
    words = [word for word in options.command if word and word != "--"]
    from kraftlite.cli.metadata_files import complain, say
    from kraftlite.postmortem.commands import COMMANDS, Opened, Shell
    from kraftlite.postmortem.files import MetadataFiles, NoMetadata, find
    from kraftlite.postmortem.reading import Reader
    from kraftlite.postmortem.replay import MetadataAt, Replay

    path = Path(options.snapshot)
    try:
        metadata = MetadataAt(find([path])[0])
    except NoMetadata as error:
        if not path.is_file():
            raise ToolError(str(error)) from None
        metadata = MetadataAt(MetadataFiles(name=str(path), segments=((0, path),), snapshots=()))
    reader = Reader()
    replay = Replay(notes=reader.notes)
    snapshots = metadata.files.snapshots
    for batch in reader.snapshot(path) if snapshots else reader.log(metadata.files.segments):
        if not batch.is_control:
            replay.feed(batch)
    state = Opened(metadata, replay.image)
    for note in reader.notes.all():
        complain(note)
    if not words:
        from kraftlite.cli.metadata_prompt import prompt

        prompt(state, short=False)
        return 0
    if words[0] not in _COMMANDS:
        say(f"invalid choice: '{words[0]}' (choose from {', '.join(repr(name) for name in _COMMANDS)})")
    elif len(words) - 1 < COMMANDS[words[0]].least:
        say("too few arguments")
    else:
        Shell(state, say, short=False).run(words)
    return 0
