"""The interactive metadata shell: a prompt with completion and a history of its own, by the standard library's readline."""

from __future__ import annotations

import contextlib
import shlex
import shutil
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from kraftlite.cli.metadata_files import complain, say, tell_notes
from kraftlite.postmortem.commands import Ended, Shell, State

if TYPE_CHECKING:
    from collections.abc import Callable

PROMPT = ">> "


def prompt(state: State, *, short: bool = True) -> None:
    """Read commands and run them, until `exit` or the end of the input."""
    terminal = sys.stdin.isatty() and sys.stdout.isatty()
    shell = Shell(state, say, say if terminal else complain, width=_width if terminal else lambda: None, short=short)
    if terminal:
        say("[ Kafka Metadata Shell ] help lists the commands, Tab completes, Ctrl-D leaves")
    tell_notes(state.metadata)
    with _completion(shell) if terminal else contextlib.nullcontext(), contextlib.suppress(Ended, EOFError):
        while True:
            try:
                _one(shell, state, input(PROMPT) if terminal else input())
            except KeyboardInterrupt:
                say("^C")  # ends the command, or the line


def _one(shell: Shell, state: State, line: str) -> None:
    try:
        words = shlex.split(line)
    except ValueError as error:
        complain(f"{line}: {str(error)[:1].lower()}{str(error)[1:]}")
        return
    if words:
        shell.run(words)
        tell_notes(state.metadata)


def _width() -> int | None:
    return shutil.get_terminal_size().columns


@contextlib.contextmanager
def _completion(shell: Shell) -> Iterator[None]:
    """Without readline, which a Python may be built without, a line is read as it is typed."""
    try:
        import readline
    except ImportError:
        yield
        return
    before: tuple[Callable[..., Any] | None, str] = (readline.get_completer(), readline.get_completer_delims())
    readline.set_completer(_completer(shell, readline))
    readline.set_completer_delims(" ")
    libedit = "libedit" in (readline.__doc__ or "")
    readline.parse_and_bind("bind ^I rl_complete" if libedit else "tab: complete")
    if not libedit:
        readline.parse_and_bind("set completion-display-width 0")
    try:
        yield
    finally:
        readline.set_completer(before[0])
        readline.set_completer_delims(before[1])


def _completer(shell: Shell, readline: Any) -> Callable[[str, int], str | None]:
    found: list[str] = []

    def complete(text: str, number: int) -> str | None:
        nonlocal found
        if number == 0:
            found = shell.complete(readline.get_line_buffer()[: readline.get_endidx()])
        return found[number] if number < len(found) else None

    return complete
