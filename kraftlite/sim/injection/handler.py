"""The type of the functions that carry faults out."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, TypeAlias

from kraftlite.sim.fault_plan import FaultPlan

if TYPE_CHECKING:
    from kraftlite.sim.injector import Injector

Handler: TypeAlias = "Callable[[Injector, FaultPlan], None]"
"""Begins a fault, and arms its end with `Injector.end_of`."""
