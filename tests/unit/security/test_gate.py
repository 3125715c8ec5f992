"""The rights of one request, and the audit of what it is refused. Source: SE-38."""

from __future__ import annotations

from kraftlite.model.acls import Operation
from kraftlite.model.principal import Principal, Requester
from kraftlite.runtime.trace import ListTracer
from kraftlite.runtime.trace.security import AccessDenied
from kraftlite.security.authorizer import Authorizer
from kraftlite.security.gate import AUDITED_PER_SECOND, Gate

ALICE = Requester(Principal.parse("User:alice"), "10.0.0.1", "app")


class Clock:
    ms = 0

    def now_ms(self) -> int:
        return self.ms


def gate_of() -> tuple[Gate, Clock, list[AccessDenied]]:
    tracer, clock = ListTracer(), Clock()
    found = Gate(Authorizer(frozenset(), allow_everyone=False), clock.now_ms, tracer)
    return found, clock, tracer.events  # type: ignore[return-value]


def test_a_refusal_is_told_once_a_request_with_its_rule() -> None:
    gate, _, events = gate_of()
    rights = gate.rights(ALICE, "Fetch")
    for _ in range(3):
        assert not rights.topic(Operation.READ, "t")
    (event,) = events
    assert (event.principal, event.host, event.client_id, event.api) == ("User:alice", "10.0.0.1", "app", "Fetch")
    assert (event.operation, event.resource, event.rule) == ("READ", "Topic:LITERAL:t", "DefaultDeny")
    assert (gate.allowed, gate.denied) == (0, 1)


def test_what_nobody_named_is_left_out_without_a_word() -> None:
    gate, _, events = gate_of()
    assert not gate.rights(ALICE, "Metadata").topic(Operation.DESCRIBE, "t", audited=False)
    assert not events and gate.denied == 0


def test_the_audit_of_a_flood_is_bounded_and_says_how_much_it_left_out() -> None:
    """Source: SE-38."""
    gate, clock, events = gate_of()
    rights = gate.rights(ALICE, "Metadata")
    for number in range(AUDITED_PER_SECOND + 40):
        rights.topic(Operation.DESCRIBE, f"t{number}")
    assert len(events) == AUDITED_PER_SECOND and gate.denied == AUDITED_PER_SECOND + 40
    clock.ms = 1_000
    rights.topic(Operation.DESCRIBE, "x" * 30_000)
    assert events[-1].left_out == 40 and len(events[-1].resource) < 200


def test_before_the_entries_are_there_nobody_but_a_super_user_is_decided_about() -> None:
    gate, _, _ = gate_of()
    assert not gate.is_open_for(ALICE.principal)
    gate.authorizer.update({})
    assert gate.is_open_for(ALICE.principal)
