"""The commands of the metadata shell: `ls`, `cat`, `find`, `tree`, `cd`, `pwd`, `history`, `diff`, `at` and their help.

What `ls`, `cat`, `find` and `tree` print is what Apache Kafka's shell prints, and so are their errors.

Source: Kafka's `shell/command`, of 4.3; TO-22, TO-41.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final, Protocol

from kraftlite.metadata.image import MetadataImage
from kraftlite.postmortem import changes, texts, tree
from kraftlite.postmortem.files import NoMetadata
from kraftlite.postmortem.glob import Glob, components
from kraftlite.postmortem.reading import entries_of
from kraftlite.postmortem.replay import MetadataAt
from kraftlite.postmortem.tree import Node

_NARROW: Final = 4
"""The least width of a column of `ls`."""


class State(Protocol):
    """The metadata that a shell looks at. `metadata` is the log that `image` comes from."""

    @property
    def image(self) -> MetadataImage: ...

    @property
    def metadata(self) -> MetadataAt: ...

    def refresh(self) -> None:
        """Take notice of what has happened since. Called before each command."""
        ...

    def travel(self, offset: int | None) -> None:
        """Look at the metadata as it was after the record at `offset`; None: at the last. Raises NoMetadata."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """`most` None: any number of arguments. `interactive`: there is no sense in it outside of an interactive shell. `paths`: the
    arguments are paths, which can be completed."""

    name: str
    usage: str
    about: str
    least: int = 0
    most: int | None = None
    interactive: bool = False
    paths: bool = True


class Opened:
    """The state of files that nobody writes to, or of which what comes later does not matter."""

    def __init__(self, metadata: MetadataAt, image: MetadataImage | None = None) -> None:
        self.metadata = metadata
        self.image = image if image is not None else metadata.at()

    def refresh(self) -> None:
        return None

    def travel(self, offset: int | None) -> None:
        self.image = self.metadata.at(offset)


class Ended(Exception):
    """`exit` was called."""


class Shell:
    """Runs commands, each a list of words. `out` takes a line of output, `err` one of a problem.

    `width`: the terminal's, for the columns of `ls`; None: a name a line. `short`: a path that begins with neither /image nor
    /local is taken under /image, so that `/topics` is `/image/topics`.
    """

    def __init__(
        self,
        state: State,
        out: Callable[[str], None],
        err: Callable[[str], None] | None = None,
        *,
        width: Callable[[], int | None] = lambda: None,
        short: bool = True,
    ) -> None:
        self.directory = "/"
        self._state = state
        self._out = out
        self._err = err if err is not None else out
        self._width = width
        self._short = short
        self._failed = False

    def run(self, words: Sequence[str]) -> bool:
        """Run one command; returns whether all of it could be done. Raises Ended."""
        self._failed = False
        name, arguments = words[0], [word for word in words[1:] if word]
        command = COMMANDS.get(name)
        if command is None:
            self._fail(f"{name}: there is no such command; allowed is one of {', '.join(COMMANDS)}")
        elif len(arguments) < command.least or (command.most is not None and len(arguments) > command.most):
            self._fail(f"{name}: allowed is {command.usage}")
        else:
            self._state.refresh()
            _RUN[name](self, arguments)
        return not self._failed

    def complete(self, line: str) -> list[str]:
        """The words that the last word of `line` may become: commands, or paths."""
        words = line.split(" ")
        if len(words) == 1:
            return [f"{name} " for name in COMMANDS if name.startswith(words[0])]
        command = COMMANDS.get(words[0])
        if command is None:
            return []
        if not command.paths:
            return [name for name in COMMANDS if words[0] == "man" and name.startswith(words[-1])]
        return self._complete_path(words[-1])

    def _complete_path(self, begun: str) -> list[str]:
        folder, slash, last = begun.rpartition("/")
        at_root = begun.startswith("/") and not folder
        found: list[str] = []
        for place in ("/", "/image") if self._short and at_root else (folder + slash,):
            for _, node in self._visit(place):
                if isinstance(node, tree.Directory):
                    names = texts.in_java_order(name for name in node.names() if name.startswith(last))
                    found += [folder + slash + name + self._mark(node.child(name)) for name in names]
        return found

    @staticmethod
    def _mark(node: Node | None) -> str:
        return "/" if isinstance(node, tree.Directory) else " "

    # --- paths

    def _visit(self, path: str) -> Iterator[tuple[tuple[str, ...], Node]]:
        return tree.visit(tree.root(self._state.image), self._full(path))

    def _full(self, path: str) -> str:
        """The absolute path, with what it leaves out."""
        parts = components(path, self.directory)
        roots = ("image", "local")
        if self._short and path.startswith("/") and parts and not any(map(Glob(parts[0]).matches, roots)):
            parts = ["image", *parts]
        return "/" + "/".join(parts)

    def _fail(self, line: str) -> None:
        self._failed = True
        self._err(line)

    # --- Kafka's commands

    def ls(self, targets: Sequence[str]) -> None:
        files: list[str] = []
        directories: list[tuple[str, list[str]]] = []
        for target in targets or ["."]:
            found = False
            for path, node in self._visit(target):
                found = True
                name = path[-1] if path else "/"
                if isinstance(node, tree.Directory):
                    directories.append((name, texts.in_java_order(node.names())))
                else:
                    files.append(name)
            if not found:
                self._fail(f"ls: {target}: no such file or directory.")
        self._columns(files)
        headed, first = bool(files) or len(directories) > 1, not files
        for name, children in directories:
            if headed and children:
                if not first:
                    self._out("")
                self._out(f"{name}:")
            first = False
            self._columns(children)

    def _columns(self, names: Sequence[str]) -> None:
        for line in in_columns(names, self._width()):
            self._out(line)

    def cat(self, targets: Sequence[str]) -> None:
        for target in targets:
            found = False
            for _, node in self._visit(target):
                found = True
                if isinstance(node, tree.Directory):
                    self._fail(f"cat: {target}: Is a directory")
                else:
                    self._out(node.text)
            if not found:
                self._fail(f"cat: {target}: No such file or directory.")

    def tree(self, targets: Sequence[str]) -> None:
        for target in targets:
            found = False
            for _, node in self._visit(target):
                found = True
                for line in tree.lines(node):
                    self._out(line)
            if not found:
                self._fail(f"tree: {target}: No such file or directory.")

    def find(self, targets: Sequence[str]) -> None:
        for target in targets or ["."]:
            found = False
            for _, node in self._visit(target):
                found = True
                self._find(target, node)
            if not found:
                self._fail(f"find: {target}: no such file or directory.")

    def _find(self, path: str, node: Node) -> None:
        self._out(path)
        if isinstance(node, tree.Directory):
            for name, child in node.children():
                self._find(f"/{name}" if path == "/" else f"{path}/{name}", child)

    def cd(self, targets: Sequence[str]) -> None:
        target = targets[0] if targets else "/"
        found = False
        for path, node in self._visit(target):
            found = True
            if isinstance(node, tree.Directory):
                self.directory = "/" + "/".join(path)
            else:
                self._fail(f"cd: {target}: not a directory.")
        if not found:
            self._fail(f"cd: {target}: no such directory.")

    def pwd(self, _: Sequence[str]) -> None:
        self._out(self.directory)

    def help(self, _: Sequence[str]) -> None:
        width = max(len(command.usage) for command in COMMANDS.values())
        for command in COMMANDS.values():
            self._out(f"{command.usage.ljust(width)}  {command.about}")

    def man(self, names: Sequence[str]) -> None:
        command = COMMANDS.get(names[0])
        if command is None:
            self._fail(f"man: unknown command {names[0]}. Type help to get a list of commands.")
            return
        self._out(f"{command.name}: {command.about}")
        self._out("")
        self._out(f"usage: {command.usage}")

    def exit(self, _: Sequence[str]) -> None:
        raise Ended

    # --- time

    def at(self, offsets: Sequence[str]) -> None:
        try:
            if offsets:
                self._state.travel(None if offsets[0] == "end" else _offset(offsets[0]))
            self._out(texts.provenance(self._state.image.provenance))
        except (NoMetadata, ValueError) as error:
            self._fail(f"at: {error}")

    def history(self, paths: Sequence[str]) -> None:
        metadata = self._state.metadata
        try:
            image, start = metadata.oldest()
        except NoMetadata as error:
            self._fail(f"history: {error}")
            return
        entries = entries_of(metadata.batches(start, self._state.image.offset + 1))
        found = False
        for change in changes.history(entries, image, components(self._full(paths[0]))):
            found = True
            self._out(history_line(change))
        if not found:
            since = f"offset {start} on" if start > 0 else "the beginning"
            self._fail(f"history: {paths[0]}: no record from {since} changed it.")

    def diff(self, offsets: Sequence[str]) -> None:
        metadata = self._state.metadata
        try:
            first = _offset(offsets[0])
            last = self._state.image.offset if len(offsets) < 2 else _offset(offsets[1])
            replay = metadata.replay(min(first, last))
            before = replay.image
            for batch in metadata.batches(min(first, last) + 1, max(first, last) + 1):
                replay.feed(batch)
            if replay.next_offset <= max(first, last):
                raise NoMetadata(f"there is no offset {max(first, last)}; the last that can be read is {replay.next_offset - 1}")
        except (NoMetadata, ValueError) as error:
            self._fail(f"diff: {error}")
            return
        images = (before, replay.image) if first <= last else (replay.image, before)
        self._out(f"--- {texts.provenance(images[0].provenance)}")
        self._out(f"+++ {texts.provenance(images[1].provenance)}")
        for path, old, new in changes.differences(tree.of_image(images[0]), tree.of_image(images[1]), ("image",)):
            mark = "+" if old is None else "-" if new is None else "~"
            text = (new or old or tree.File("")).text if old is None or new is None else changes.described(old, new)
            self._out(f"{mark} /{'/'.join(path)}: {text}")


def history_line(change: changes.Change) -> str:
    """`@17  2026-11-22 10:00:00.123  controller 1, epoch 3  PartitionChange  /image/…: leader 1 → 2`."""
    entry = change.entry
    who = "controller ?" if change.controller is None else f"controller {change.controller}"
    place = f"@{entry.offset}  {stamp(entry.time_ms)}  {who}, epoch {entry.epoch}"
    return f"{place}  {change.record}  /{'/'.join(change.path)}: {change.what}"


def stamp(time_ms: int) -> str:
    """A moment in this machine's time zone."""
    try:
        return f"{datetime.fromtimestamp(time_ms // 1000):%Y-%m-%d %H:%M:%S}.{time_ms % 1000:03d}"
    except (ValueError, OverflowError, OSError):
        return f"{time_ms} ms since 1970"


def in_columns(names: Sequence[str], width: int | None) -> Iterator[str]:
    """The names column by column, as many columns as the width allows, as Kafka's shell lays them out."""
    rows = len(names)
    widths: list[int] = []
    for wanted in range((width or 0) // _NARROW, 1, -1):
        deep = -(-len(names) // wanted)
        widths = [max((len(name) + 2 for name in names[at : at + deep]), default=0) for at in range(0, wanted * deep, deep or 1)]
        if names and widths[-1:] != [0] and len(widths) == wanted and sum(widths) <= (width or 0):
            rows = deep
            break
    for row in range(rows):
        cells = [names[at] for at in range(row, len(names), rows)]
        yield "".join([*(cell.ljust(widths[column]) for column, cell in enumerate(cells[:-1])), cells[-1]])


def _offset(text: str) -> int:
    if not (text.isascii() and text.isdecimal() and len(text) <= 19):
        raise ValueError(f"{text}: allowed is an offset, a number from 0 on")
    return int(text)


_TABLE: Final = (
    Command(name="at", usage="at [OFFSET|end]", about="Look at the metadata as it was at an offset.", most=1, paths=False),
    Command(name="cat", usage="cat PATH…", about="Show the contents of metadata files.", least=1),
    Command(name="cd", usage="cd [DIRECTORY]", about="Set the current working directory.", most=1, interactive=True),
    Command(name="diff", usage="diff OFFSET [OFFSET]", about="Compare two offsets.", least=1, most=2, paths=False),
    Command(name="exit", usage="exit", about="Exit the metadata shell.", most=0, interactive=True, paths=False),
    Command(name="find", usage="find [PATH]…", about="Search for nodes in the directory hierarchy."),
    Command(name="help", usage="help", about="Display this help message.", most=0, paths=False),
    Command(name="history", usage="history PATH", about="Who changed it, at which offset, and when.", least=1, most=1),
    Command(name="ls", usage="ls [PATH]…", about="List metadata nodes."),
    Command(name="man", usage="man COMMAND", about="Show the help text of a command.", least=1, most=1, paths=False),
    Command(name="pwd", usage="pwd", about="Print the current working directory.", most=0, interactive=True, paths=False),
    Command(name="tree", usage="tree PATH…", about="Show the contents of metadata nodes in a tree structure.", least=1),
)
COMMANDS: Final = {command.name: command for command in _TABLE}
_RUN: Final[dict[str, Callable[[Shell, Sequence[str]], None]]] = {name: getattr(Shell, name) for name in COMMANDS}
