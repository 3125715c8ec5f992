"""The decision of Kafka's StandardAuthorizer: who may do what to which resource.

The entries are indexed by the type and pattern of their resources, so that a decision looks at those entries alone that cover
the resource: the literal ones of its name and of `*`, and the prefixed ones of each length that there is. All of them are looked
at, as one DENY outweighs everything else (KAFKA-14265).

Departs: addresses of IPv6 are compared as addresses, where Kafka compares how Java writes them.
Source: KIP-801; SE-31 to SE-33.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Iterator, Mapping
from enum import StrEnum
from itertools import chain
from typing import Final, NamedTuple, Protocol
from uuid import UUID

from kraftlite.model.acls import EVERYBODY, WILDCARD, Operation, PatternType, Permission, ResourceType, named
from kraftlite.model.principal import Principal

MOST_DECISIONS: Final = 16_384
"""Decisions that are remembered until the next change of the entries."""
LONGEST_REMEMBERED: Final = 512
"""The longest names, of a resource and a principal together, whose decision is remembered: clients send names of 32 KiB."""

_IMPLIES_DESCRIBE: Final = frozenset(
    {Operation.DESCRIBE, Operation.READ, Operation.WRITE, Operation.DELETE, Operation.ALTER, Operation.ALL}
)
_IMPLIES_DESCRIBE_CONFIGS: Final = frozenset({Operation.DESCRIBE_CONFIGS, Operation.ALTER_CONFIGS, Operation.ALL})


class Entry(Protocol):
    """The fields of an access control entry, as its record has them."""

    @property
    def resource_type(self) -> int: ...
    @property
    def resource_name(self) -> str: ...
    @property
    def pattern_type(self) -> int: ...
    @property
    def principal(self) -> str: ...
    @property
    def host(self) -> str: ...
    @property
    def operation(self) -> int: ...
    @property
    def permission_type(self) -> int: ...


class Reason(StrEnum):
    """The reason for which a request is allowed or denied, in the words of Kafka's audit log."""

    SUPER_USER = "SuperUser"
    MATCHING_ACL = "MatchingAcl"
    DEFAULT_ALLOW = "DefaultAllow"
    DEFAULT_DENY = "DefaultDeny"


class Decision(NamedTuple):
    """`entry`: the access control entry that decided, where one did."""

    allowed: bool
    reason: Reason
    entry: Entry | None = None

    @property
    def rule(self) -> str:
        """Return the rule as Kafka's audit log names it."""
        return str(self.reason) if self.entry is None else f"{self.reason}(acl={shown(self.entry)})"


def shown(entry: Entry) -> str:
    """An entry in Kafka's words."""
    return (
        f"StandardAcl(resourceType={named(ResourceType, entry.resource_type)}, resourceName={entry.resource_name}, "
        f"patternType={named(PatternType, entry.pattern_type)}, principal={entry.principal}, host={entry.host}, "
        f"operation={named(Operation, entry.operation)}, permissionType={named(Permission, entry.permission_type)})"
    )


def super_users(text: str) -> frozenset[str]:
    """Read `super.users`: principals between semicolons. Raises ValueError for what is none."""
    return frozenset(str(Principal.parse(one)) for one in text.split(";") if one.strip())


class Authorizer:
    """The entries of one node, and its decisions. One writer, on the node's loop: a change is applied whole, between two
    decisions (SE-33).

    `is_loaded`: the first entries have come; before that only super users are known (SE-34).
    """

    def __init__(self, supers: frozenset[str], *, allow_everyone: bool) -> None:
        """`supers`: those who may do everything. `allow_everyone`: what holds for a resource that no entry covers."""
        self._supers = supers
        self._default = Decision(True, Reason.DEFAULT_ALLOW) if allow_everyone else _DENIED
        self.is_loaded = False
        self._entries: dict[UUID, Entry] = {}
        self._literal: dict[tuple[int, str], dict[UUID, Entry]] = {}
        self._prefixed: dict[tuple[int, str], dict[UUID, Entry]] = {}
        self._lengths: dict[int, dict[int, int]] = {}
        """By type of resource: how many prefixes of each length there are."""
        self._decided: dict[tuple[str, str, str, int, int, str], Decision] = {}
        self._decided_by_type: dict[tuple[str, str, str, int, int], bool] = {}

    def __len__(self) -> int:
        return len(self._entries)

    def update(self, changes: Mapping[UUID, Entry | None]) -> None:
        """Apply a change: each id to its new entry, None for one that is gone. Everything there is comes as the first change."""
        for key, entry in changes.items():
            before = self._entries.pop(key, None)
            if before is not None:
                self._forget(key, before)
            if entry is not None:
                self._entries[key] = entry
                self._learn(key, entry)
        self._decided.clear()
        self._decided_by_type.clear()
        self.is_loaded = True

    def _place_of(self, entry: Entry) -> dict[tuple[int, str], dict[UUID, Entry]]:
        return self._prefixed if entry.pattern_type == PatternType.PREFIXED else self._literal

    def _learn(self, key: UUID, entry: Entry) -> None:
        place, pattern = self._place_of(entry), (entry.resource_type, entry.resource_name)
        if pattern not in place and place is self._prefixed:
            lengths = self._lengths.setdefault(entry.resource_type, {})
            lengths[len(entry.resource_name)] = lengths.get(len(entry.resource_name), 0) + 1
        place.setdefault(pattern, {})[key] = entry

    def _forget(self, key: UUID, entry: Entry) -> None:
        place, pattern = self._place_of(entry), (entry.resource_type, entry.resource_name)
        del place[pattern][key]
        if place[pattern]:
            return
        del place[pattern]
        if place is self._prefixed:
            lengths, length = self._lengths[entry.resource_type], len(entry.resource_name)
            lengths[length] -= 1
            if not lengths[length]:
                del lengths[length]

    def is_super(self, principal: Principal) -> bool:
        return bool(self._supers) and str(principal) in self._supers

    def decide(self, principal: Principal, host: str, operation: int, resource_type: int, name: str) -> Decision:
        """Decide about one operation on one resource. The same question is answered from memory until the entries change."""
        question = (principal.kind, principal.name, host, operation, resource_type, name)
        found = self._decided.get(question)
        if found is None:
            if len(name) + len(principal.name) > LONGEST_REMEMBERED:
                return self._decide(principal, host, operation, resource_type, name)
            if len(self._decided) >= MOST_DECISIONS:
                self._decided.clear()
            found = self._decided[question] = self._decide(principal, host, operation, resource_type, name)
        return found

    def _decide(self, principal: Principal, host: str, operation: int, resource_type: int, name: str) -> Decision:
        who = str(principal)
        if who in self._supers:
            return _SUPER
        allowing: Entry | None = None
        covered = False
        for entry in self.covering(resource_type, name):
            covered = True
            if entry.principal not in (who, EVERYBODY) or not _same_host(entry.host, host):
                continue
            if entry.permission_type == Permission.DENY:
                if entry.operation in (operation, Operation.ALL):
                    return Decision(False, Reason.MATCHING_ACL, entry)
            elif allowing is None and entry.operation in _allowing(operation):
                allowing = entry
        if allowing is not None:
            return Decision(True, Reason.MATCHING_ACL, allowing)
        return _DENIED if covered else self._default

    def covering(self, resource_type: int, name: str) -> Iterator[Entry]:
        """All entries whose pattern covers this resource, whomever they are about."""
        yield from self._literal.get((resource_type, name), {}).values()
        if name != WILDCARD:
            yield from self._literal.get((resource_type, WILDCARD), {}).values()
        prefixed = self._prefixed
        for length in self._lengths.get(resource_type, ()):
            if length <= len(name) and (found := prefixed.get((resource_type, name[:length]))) is not None:
                yield from found.values()

    def decide_by_type(self, principal: Principal, host: str, operation: int, resource_type: int) -> bool:
        """Return whether there is some resource of this type on which the operation is allowed (KIP-679). All entries are
        looked at for it, so this is remembered, too."""
        question = (principal.kind, principal.name, host, operation, resource_type)
        found = self._decided_by_type.get(question)
        if found is None:
            found = self._decide_by_type(principal, host, operation, resource_type)
            if len(principal.name) <= LONGEST_REMEMBERED:
                if len(self._decided_by_type) >= MOST_DECISIONS:
                    self._decided_by_type.clear()
                self._decided_by_type[question] = found
        return found

    def _decide_by_type(self, principal: Principal, host: str, operation: int, resource_type: int) -> bool:
        if self.decide(principal, host, operation, resource_type, _NO_RESOURCE).allowed:
            return True
        allowed: list[Entry] = []
        denied_names: set[str] = set()
        denied_prefixes: set[str] = set()
        for entry in self._about(principal, host, operation, resource_type):
            is_prefix = entry.pattern_type == PatternType.PREFIXED
            if entry.permission_type == Permission.ALLOW:
                allowed.append(entry)
            elif entry.resource_name == WILDCARD and not is_prefix:
                return False
            else:
                (denied_prefixes if is_prefix else denied_names).add(entry.resource_name)
        for entry in allowed:
            name, is_prefix = entry.resource_name, entry.pattern_type == PatternType.PREFIXED
            if name == WILDCARD and not is_prefix:
                return True
            prefixes = {name[:length] for length in range(1, len(name) + 1)}
            if denied_prefixes.isdisjoint(prefixes) and (is_prefix or name not in denied_names):
                return True
        return False

    def _about(self, principal: Principal, host: str, operation: int, resource_type: int) -> Iterator[Entry]:
        """The entries of a type that name this principal, host and operation; one operation does not imply another here."""
        who = str(principal)
        for (kind, _name), entries in chain(self._literal.items(), self._prefixed.items()):
            if kind == resource_type:
                for entry in entries.values():
                    about = entry.principal in (who, EVERYBODY) and _same_host(entry.host, host)
                    if about and entry.operation in (operation, Operation.ALL):
                        yield entry

    def allowed_operations(self, principal: Principal, host: str, operations: Iterable[int], kind: int, name: str) -> int:
        """Return the operations that are allowed, as a bit field (KIP-430)."""
        bits = 0
        for operation in operations:
            if self.decide(principal, host, operation, kind, name).allowed:
                bits |= 1 << operation
        return bits


_DENIED: Final = Decision(False, Reason.DEFAULT_DENY)
_SUPER: Final = Decision(True, Reason.SUPER_USER)
_NO_RESOURCE: Final = "hardcode"
"""A name that stands for any resource of a type, as Kafka's own code has it."""


def _allowing(operation: int) -> frozenset[Operation]:
    if operation == Operation.DESCRIBE:
        return _IMPLIES_DESCRIBE
    if operation == Operation.DESCRIBE_CONFIGS:
        return _IMPLIES_DESCRIBE_CONFIGS
    return frozenset({Operation(operation), Operation.ALL})


def _same_host(of_entry: str, host: str) -> bool:
    if of_entry in (WILDCARD, host):
        return True
    if ":" not in of_entry or ":" not in host:
        return False
    try:
        return ipaddress.ip_address(of_entry) == ipaddress.ip_address(host)
    except ValueError:
        return False
