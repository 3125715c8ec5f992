"""The catalogue of the requests that workloads add."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from kraftlite.node.build import Node
from kraftlite.runtime.ports import Handlers
from kraftlite.sim.services import (
    admin,
    at_controller,
    directories,
    doors,
    groups,
    hanging,
    listing,
    logins,
    logs,
    membership,
    sessions,
    telemetry,
    transactions,
)

Routes = Callable[[Node], Handlers]

ROUTES: Final[tuple[Routes, ...]] = (
    groups.routes,
    admin.routes,
    logs.routes,
    sessions.routes,
    transactions.routes,
    hanging.routes,
    directories.routes,
    membership.routes,
    doors.routes,
    logins.routes,
    telemetry.routes,
    at_controller.routes,
    listing.routes,
)
