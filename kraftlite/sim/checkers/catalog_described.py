"""The checkers of what nodes tell of themselves to whoever asks for a description."""

from __future__ import annotations

from typing import Final

from kraftlite.sim.checkers.base import CheckerFactory
from kraftlite.sim.checkers.facts import MetadataWatch
from kraftlite.sim.checkers.groups_described import GroupsDescribed
from kraftlite.sim.checkers.log_dirs_described import LogDirsDescribed
from kraftlite.sim.checkers.quorum_described import QuorumDescribed

DESCRIBED: Final[tuple[CheckerFactory, ...]] = (
    MetadataWatch,
    QuorumDescribed,
    LogDirsDescribed,
    GroupsDescribed,
)
