"""The service through which a node is told to cause faults to itself. Refused unless `kraftlite.faults.enable` is true."""

from __future__ import annotations

from dataclasses import dataclass

from kraftlite.model.faults import FaultState, Injection


@dataclass(frozen=True, slots=True, kw_only=True)
class InjectRequest:
    fault: Injection


@dataclass(frozen=True, slots=True, kw_only=True)
class InjectResponse:
    """The fault is there from now on."""

    node_id: int


@dataclass(frozen=True, slots=True, kw_only=True)
class EndFaultsRequest:
    ids: tuple[str, ...] | None
    """None: all. An id that the node does not have is no error: the fault has ended."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EndFaultsResponse:
    ended: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ListFaultsRequest:
    pass


@dataclass(frozen=True, slots=True, kw_only=True)
class ListFaultsResponse:
    faults: tuple[FaultState, ...]
