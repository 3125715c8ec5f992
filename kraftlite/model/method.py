"""The definition of an RPC between nodes: a name and two message dataclasses."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, TypeAlias, TypeVar

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

Req = TypeVar("Req", bound="DataclassInstance")
Res = TypeVar("Res", bound="DataclassInstance")


@dataclass(frozen=True, slots=True, eq=False)
class Method(Generic[Req, Res]):
    """One RPC: `service/name`, the request and the response dataclass (see `kraftlite.model.messages`).

    Whoever takes a `Method[Req, Res]` and a `Req` and gives back a `Res` is checked by the type checker: both type variables are
    invariant, so a request of another method does not fit.

    A `hot` method runs over one long-lived bidirectional stream per peer instead of a unary call each: half the CPU.
    If the class has a field `payload: bytes`, it travels raw behind the protobuf head.

    A `streamed` method answers one request with many responses, until its caller has enough: see `runtime.ports.Stream`.

    Each method is one object, compared and hashed as such: every call looks its handler up.
    """

    service: str
    name: str
    request: type[Req]
    response: type[Res]
    hot: bool = False
    streamed: bool = False

    def __str__(self) -> str:
        return f"{self.service}/{self.name}"


AnyMethod: TypeAlias = Method[Any, Any]
"""A method where methods of all kinds are kept together: tables of handlers and of codecs, observers."""
