"""The least level of what a node logs, by logger, as it may change while the node runs (KIP-412).

A logger is a component of the event vocabulary, `kraftlite.broker`, or `root` for all that have no level of their own. Levels are
named as Kafka names them. They are this process's: a restart forgets them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from kraftlite.obs.levels import kinds, load_vocabulary
from kraftlite.runtime.trace import TraceEvent

LEVELS: Final = {"debug": 10, "info": 20, "warning": 30, "error": 40}
ROOT: Final = "root"
_PREFIX: Final = "kraftlite."
_RANKS: Final = {"TRACE": 10, "DEBUG": 10, "INFO": 20, "WARN": 30, "ERROR": 40, "FATAL": 50}
_NAMES: Final = {"debug": "DEBUG", "info": "INFO", "warning": "WARN", "error": "ERROR"}


class LogLevels:
    """`level`: that of the root logger at first, as the file says it."""

    def __init__(self, level: str) -> None:
        self._levels = {ROOT: _NAMES[level]}
        self._ranks: dict[str, int] = {}
        """Those of components with a level of their own."""
        self._least = LEVELS[level]
        self.changed = False

    def allow(self, event: TraceEvent | type[TraceEvent]) -> bool:
        least = self._least
        if self._ranks:
            least = self._ranks.get(_component(event.event), least)
        return LEVELS[event.level] >= least

    def loggers(self) -> Mapping[str, str]:
        """The level in force of each."""
        load_vocabulary()
        root = self._levels[ROOT]
        names = sorted({_PREFIX + _component(kind.event) for kind in kinds() if kind.event})
        return {ROOT: root, **{name: self._levels.get(name, root) for name in names}}

    def set_level(self, logger: str, level: str | None) -> None:
        """None: as the root logger has it, which itself always has one."""
        self.changed = True
        if level is None:
            self._levels.pop(logger, None)
        else:
            self._levels[logger] = level
        self._least = _RANKS[self._levels[ROOT]]
        self._ranks = {name.removeprefix(_PREFIX): _RANKS[found] for name, found in self._levels.items() if name != ROOT}


def _component(event: str) -> str:
    return event.partition(".")[0]
