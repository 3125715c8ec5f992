"""The faults that a node may be told to cause to itself while it runs, by the names and in the units of the simulator.

`kraftlite.sim.fault_plan` draws faults of the same names; what they do is the same as far as a real machine can do it. A node
takes them only with `kraftlite.faults.enable=true`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from kraftlite.model.errors import ErrorCode
from kraftlite.model.limits import MAX_INT32

CLIENTS: Final = -1
"""The other end of a link: all clients of the node's Kafka listeners."""
MAX_FOR_MS: Final = 600_000
"""No fault lasts longer. Who wants it longer asks again before it ends (the same id: it is prolonged)."""
MAX_ACTIVE: Final = 64
"""Faults that one node has at a time."""
MAX_COUNT: Final = 1_000_000
_SHOWN: Final = 80
_ID: Final = re.compile(r"[0-9A-Za-z_-]{1,64}")


class UnknownFault(ValueError):
    """The fault cannot be done; the text names the value and what is allowed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """One kind of fault and what it takes. `least` and `most` bound `amount`, both 0: it takes none."""

    name: str
    family: str
    """network, disk, clock or api: the part of the node that it hits."""
    unit: str = ""
    least: int = 0
    most: int = 0
    clients: bool = False
    """It may also hit the link to clients."""


_ALL: Final = (
    Kind(name="cut", family="network", clients=True),
    Kind(name="cut-one-way", family="network", clients=True),
    Kind(name="refuse", family="network", clients=True),
    Kind(name="slow", family="network", unit="us", least=1_000, most=60_000_000),
    Kind(name="lossy", family="network", unit="ppm", least=1, most=1_000_000),
    Kind(name="disk-slow", family="disk", unit="us", least=1_000, most=1_000_000),
    Kind(name="disk-stall", family="disk"),
    Kind(name="disk-full", family="disk"),
    Kind(name="disk-error", family="disk"),
    Kind(name="wall-jump", family="clock", unit="ms", least=-MAX_INT32, most=MAX_INT32),
    Kind(name="api-error", family="api", unit="us", least=0, most=60_000_000),
    Kind(name="api-slow", family="api", unit="us", least=1_000, most=60_000_000),
)
KINDS: Final = {kind.name: kind for kind in _ALL}


@dataclass(frozen=True, slots=True, kw_only=True)
class Injection:
    """One fault, as one node is told of it. A cut between two nodes is two of these with the same id, one at each end."""

    id: str
    """Chosen by who asks; the ledger of faults has it. A fault that is asked for again is prolonged."""
    kind: str
    for_ms: int
    """1 to MAX_FOR_MS: it ends then by itself, whatever becomes of who asked."""
    other: int | None = None
    """The other end of a link: a node, or CLIENTS."""
    outgoing: bool = True
    """True when what this node sends over the link is hit."""
    incoming: bool = True
    amount: int = 0
    """In the unit of its kind: microseconds that something takes longer, messages of a million that are lost, milliseconds by
    which the clock jumps."""
    path: str = ""
    """The log directory that is hit; empty: all."""
    api: str = ""
    """The name of the API, such as Produce; empty (only for api-slow): all."""
    error: int = 0
    """The code that the API answers with."""
    count: int = 0
    """The requests that are hit before the fault ends; 0: all."""

    @property
    def family(self) -> str:
        return KINDS[self.kind].family

    def __str__(self) -> str:
        """Return what it is without its id, such as `cut 1 for 5000`, close to a line of the simulator."""
        return " ".join([self.kind, *([self.facts] if self.facts else []), f"for {self.for_ms}"])

    @property
    def what(self) -> str:
        """The facts in words, for the ledger of faults, without the other end of a link, which stands there by itself."""
        found = [self.path] if self.path else []
        found += [self.api] if self.api else []
        found += [_code_name(self.error)] if self.error else []
        found += [_much(self.kind, self.amount)] if self.amount else []
        return " ".join(found + ([f"{self.count} times"] if self.count else []))

    @property
    def facts(self) -> str:
        """All of it in words: the other end, too."""
        other = "" if self.other is None else "clients" if self.other == CLIENTS else str(self.other)
        return " ".join(part for part in (other, self.what) if part)


def _much(kind: str, amount: int) -> str:
    """Say the amount as people do: `250 ms later`, `5 %`, `+3600000 ms`."""
    unit = KINDS[kind].unit if kind in KINDS else ""
    if unit == "us":
        return f"{amount / 1000:g} ms later"
    return f"{amount / 10_000:g} %" if unit == "ppm" else f"{amount:+} ms"


def _code_name(code: int) -> str:
    try:
        return ErrorCode(code).name
    except ValueError:
        return f"error {code}"


@dataclass(frozen=True, slots=True, kw_only=True)
class FaultState:
    """A fault that a node has at this moment."""

    fault: Injection
    left_ms: int
    hits: int
    """Messages, operations or requests that it has hit so far."""


def failing_code(error: int | str) -> int:
    """The number of one of Kafka's error codes, given by its name or number, also as text. Raises UnknownFault."""
    text = str(error) if isinstance(error, str) else ""
    try:
        code = ErrorCode[text.upper()] if text and not text.lstrip("-").isdecimal() else ErrorCode(int(error))
    except (KeyError, ValueError):
        shown = f"error {str(error)[:_SHOWN]!r}"
        raise UnknownFault(f"{shown}: allowed is a code of Kafka's protocol, such as NOT_LEADER_OR_FOLLOWER or 6") from None
    if code is ErrorCode.NONE:
        raise UnknownFault("error NONE: that is no error")
    return code.value


def check(fault: Injection) -> None:
    """Raises UnknownFault unless everything in it has a meaning and is within its bounds."""
    if not _ID.fullmatch(fault.id):
        raise UnknownFault(f"id {fault.id!r}: allowed are 1 to 64 letters, digits, - and _")
    kind = KINDS.get(fault.kind)
    if kind is None:
        raise UnknownFault(f"fault {fault.kind!r}: allowed are {', '.join(KINDS)}")
    if not 1 <= fault.for_ms <= MAX_FOR_MS:
        raise UnknownFault(f"{kind.name} for {fault.for_ms} ms: allowed is 1 to {MAX_FOR_MS} ms")
    if not kind.least <= fault.amount <= kind.most:
        allowed = f"{kind.least} to {kind.most} {kind.unit}" if kind.unit else "none"
        raise UnknownFault(f"{kind.name} with amount {fault.amount}: allowed is {allowed}")
    _check_link(fault, kind)
    if fault.path and kind.family != "disk":
        raise UnknownFault(f"{kind.name} takes no directory ({fault.path})")
    _check_api(fault, kind)


def _check_link(fault: Injection, kind: Kind) -> None:
    if kind.family != "network":
        if fault.other is not None:
            raise UnknownFault(f"{kind.name} takes no other node ({fault.other})")
        return
    if fault.other is None:
        raise UnknownFault(f"{kind.name} needs the other end of the link: a node's id" + (", or clients" if kind.clients else ""))
    if fault.other == CLIENTS and not kind.clients:
        raise UnknownFault(f"{kind.name} between a node and its clients is not possible: use api-slow, cut or refuse")
    if fault.other < CLIENTS:
        raise UnknownFault(f"node {fault.other}: allowed is the id of a node")
    if not (fault.outgoing or fault.incoming):
        raise UnknownFault(f"{kind.name} in no direction: allowed is outgoing, incoming, or both")


def _check_api(fault: Injection, kind: Kind) -> None:
    if not 0 <= fault.count <= MAX_COUNT:
        raise UnknownFault(f"count {fault.count}: allowed is 0 (all) to {MAX_COUNT}")
    if kind.family != "api":
        if fault.api or fault.error or fault.count:
            raise UnknownFault(f"{kind.name} takes neither an API nor a code nor a count")
        return
    if kind.name == "api-error" and not (fault.api and fault.error):
        raise UnknownFault("api-error needs an API and the code that it answers with, which is not 0")
    if kind.name == "api-slow" and fault.error:
        raise UnknownFault(f"api-slow takes no code ({fault.error}): use api-error, which may be slow, too")
