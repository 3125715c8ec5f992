"""Every kind of fault, and what carries it out."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from kraftlite.sim.injection import ambushes, boots, clocks, disks, files, levels, links, nodes, publishers, quorum, starts
from kraftlite.sim.injection.handler import Handler

HANDLERS: Final[Mapping[str, Handler]] = {
    **nodes.KINDS,
    **links.KINDS,
    **disks.KINDS,
    **files.KINDS,
    **clocks.KINDS,
    **ambushes.KINDS,
    **quorum.KINDS,
    **levels.KINDS,
    **starts.KINDS,
    **boots.KINDS,
    **publishers.KINDS,
}
