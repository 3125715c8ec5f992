"""The rights of one request: each resource is asked for once, and what is refused is audited. Source: SE-36 to SE-38."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final, TypeVar

from kraftlite.model.acls import CLUSTER_NAME, OPERATIONS_ON, REFUSALS, Operation, ResourceType
from kraftlite.model.errors import ApiError
from kraftlite.model.principal import Principal, Requester
from kraftlite.model.shown import shown
from kraftlite.runtime.ports import Tracer
from kraftlite.runtime.ration import Ration
from kraftlite.runtime.trace.security import AccessDenied
from kraftlite.security.authorizer import Authorizer, Decision

T = TypeVar("T")

AUDITED_PER_SECOND: Final = 100
"""Refusals that are told one by one; of more in a second only their number is told, with the next one."""
RULE_CHARACTERS: Final = 500
_KINDS: Final = {kind: kind.name.title().replace("_", "") for kind in ResourceType}


class Gate:
    """One per node that has an authorizer. `allowed` and `denied` count decisions since the start."""

    def __init__(self, authorizer: Authorizer, now_ms: Callable[[], int], tracer: Tracer) -> None:
        self.authorizer = authorizer
        self._tracer = tracer
        self.allowed = 0
        self.denied = 0
        self._ration = Ration(now_ms, AUDITED_PER_SECOND)

    def rights(self, requester: Requester, api: str) -> Rights:
        return Rights(self, requester, api)

    def is_open_for(self, principal: Principal) -> bool:
        """Return whether anything can be decided for this client: before the first entries are there, only super users are
        known, and nobody else must be refused for it (SE-34)."""
        return self.authorizer.is_loaded or self.authorizer.is_super(principal)

    def audit(self, rights: Rights, operation: Operation, kind: ResourceType, name: str, decision: Decision) -> None:
        """Tell that something was refused, unless too much was told in this second."""
        if not self._ration.admits():
            return
        asked = rights.requester
        self._tracer.emit(
            AccessDenied(
                principal=shown(str(asked.principal)),
                host=asked.host,
                client_id=None if asked.client_id is None else shown(asked.client_id),
                api=rights.api,
                operation=operation.name,
                resource=f"{_KINDS[kind]}:LITERAL:{shown(name)}",
                rule=shown(decision.rule, RULE_CHARACTERS),
                left_out=self._ration.left_out(),
            )
        )


class Rights:
    """The rights of the client of one request. Each question is asked, and a refusal is audited, once."""

    __slots__ = ("_gate", "_known", "api", "requester")

    def __init__(self, gate: Gate, requester: Requester, api: str) -> None:
        self._gate = gate
        self.requester = requester
        self.api = api
        self._known: dict[tuple[int, int, str], bool] = {}

    def may(self, operation: Operation, kind: ResourceType, name: str, *, audited: bool = True) -> bool:
        """`audited` False: nobody named this resource, so that it is no refusal when it is left out."""
        question = (operation, kind, name)
        found = self._known.get(question)
        if found is not None:
            return found
        gate, (principal, host, _) = self._gate, self.requester
        decision = gate.authorizer.decide(principal, host, operation, kind, name)
        self._known[question] = decision.allowed
        if decision.allowed:
            gate.allowed += 1
        elif audited:
            gate.denied += 1
            gate.audit(self, operation, kind, name, decision)
        return decision.allowed

    def topic(self, operation: Operation, name: str, *, audited: bool = True) -> bool:
        return self.may(operation, ResourceType.TOPIC, name, audited=audited)

    def group(self, operation: Operation, name: str, *, audited: bool = True) -> bool:
        return self.may(operation, ResourceType.GROUP, name, audited=audited)

    def transaction(self, operation: Operation, name: str, *, audited: bool = True) -> bool:
        return self.may(operation, ResourceType.TRANSACTIONAL_ID, name, audited=audited)

    def cluster(self, operation: Operation, *, audited: bool = True) -> bool:
        return self.may(operation, ResourceType.CLUSTER, CLUSTER_NAME, audited=audited)

    def need_cluster(self, operation: Operation) -> None:
        """Raise ApiError(CLUSTER_AUTHORIZATION_FAILED) unless it is allowed."""
        if not self.cluster(operation):
            raise ApiError(REFUSALS[ResourceType.CLUSTER], f"Request {self.api} is not authorized.")

    def some_topic(self, operation: Operation) -> bool:
        """Return whether there is a topic on which it is allowed, whichever that is."""
        principal, host, _ = self.requester
        return self._gate.authorizer.decide_by_type(principal, host, operation, ResourceType.TOPIC)

    def divided(
        self, operation: Operation, kind: ResourceType, items: Iterable[T], name_of: Callable[[T], str], *, audited: bool = True
    ) -> tuple[list[T], list[T]]:
        """The items whose resource may be used, and the others, each in their order."""
        allowed: list[T] = []
        refused: list[T] = []
        for item in items:
            (allowed if self.may(operation, kind, name_of(item), audited=audited) else refused).append(item)
        return allowed, refused

    def operations(self, kind: ResourceType, name: str) -> int:
        """All operations on a resource that are allowed, as a bit field."""
        principal, host, _ = self.requester
        return self._gate.authorizer.allowed_operations(principal, host, OPERATIONS_ON[kind], kind, name)
