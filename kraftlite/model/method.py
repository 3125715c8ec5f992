"""The definition of an RPC between nodes: a name and two message dataclasses."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Method:
    """One RPC: `service/name`, the request and the response dataclass (see `kraftlite.model.messages`).

    A `hot` method runs over one long-lived bidirectional stream per peer instead of a unary call each: half the CPU.
    If the class has a field `payload: bytes`, it travels raw behind the protobuf head.
    """

    service: str
    name: str
    request: type[Any]
    response: type[Any]
    hot: bool = False

    def __str__(self) -> str:
        return f"{self.service}/{self.name}"
