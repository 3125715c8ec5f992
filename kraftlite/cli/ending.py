"""The end of a command by a signal: SIGTERM and SIGHUP end it as Ctrl-C does, so that it leaves its group, aborts its transaction
and stops its children; and the exit status says which signal it was, 128 and its number, as that of any other program.

A command whose purpose is to go on until Ctrl-C ends with 0 then. Kafka's own commands end with 130, as a JVM does.
"""

from __future__ import annotations

import signal
import threading
from types import FrameType
from typing import Final

ENDING: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_taken: list[int] = []


def take_signals() -> None:
    """From now on each of them raises KeyboardInterrupt; not those that somebody made this program ignore, as nohup does."""
    if threading.current_thread() is not threading.main_thread():
        return
    for number in ENDING:
        if signal.getsignal(number) in (signal.SIG_DFL, signal.default_int_handler):
            signal.signal(number, interrupt)


def interrupt(number: int, frame: FrameType | None) -> None:
    note(number)
    raise KeyboardInterrupt


def note(number: int) -> None:
    """Remember the signal: a handler of a command's own has taken it."""
    _taken.append(number)


def was_interrupted() -> bool:
    return bool(_taken)


def status_of(status: int, *, until_interrupted: bool) -> int:
    """Return the exit status of a command that has ended with `status`. `until_interrupted`: Ctrl-C is its proper end."""
    number = _taken[0] if _taken else 0
    if not number or (number == signal.SIGINT and until_interrupted):
        return status
    return 128 + number
