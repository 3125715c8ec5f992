"""The model finds the mistakes that authorizers really made: each is put into ours, and some question is answered wrongly.

Source: KAFKA-14265, KAFKA-14435, KAFKA-13697, KAFKA-13698, KAFKA-13892, KAFKA-14214.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping
from typing import Any
from uuid import UUID

import pytest

from kraftlite.model.acls import EVERYBODY, AclBinding, Operation, PatternType, Permission, ResourceType
from kraftlite.model.principal import Principal
from kraftlite.security import authorizer as module
from kraftlite.security.authorizer import Authorizer
from tests.harness.acl_model import model_decision

Patch = pytest.MonkeyPatch


def shadowing_prefix(patch: Patch) -> None:
    """The first prefix that matches hides the others."""
    original = Authorizer.covering

    def covering(self: Authorizer, kind: int, name: str) -> Iterator[Any]:
        prefix = None
        for one in original(self, kind, name):
            if one.pattern_type == PatternType.PREFIXED:
                if prefix not in (None, one.resource_name):
                    return
                prefix = one.resource_name
            yield one

    patch.setattr(Authorizer, "covering", covering)


def default_for_each_principal(patch: Patch) -> None:
    """Entries about others do not count as entries of the resource."""
    original = Authorizer._decide

    def decide(self: Authorizer, who: Principal, host: str, operation: int, kind: int, name: str) -> Any:
        if not [one for one in self.covering(kind, name) if one.principal in (str(who), EVERYBODY)]:
            return self._default
        return original(self, who, host, operation, kind, name)

    patch.setattr(Authorizer, "_decide", decide)


def all_is_an_operation_like_others(patch: Patch) -> None:
    """An entry for ALL allows ALL alone (KAFKA-13697)."""
    original = module._allowing
    patch.setattr(module, "_allowing", lambda operation: original(operation) - {Operation.ALL})


def hosts_are_names(patch: Patch) -> None:
    """An address never equals the name that it is compared with."""
    patch.setattr(module, "_same_host", lambda of_entry, _host: of_entry == "*")


def removals_are_lost(patch: Patch) -> None:
    """What is removed stays (KAFKA-13892)."""
    original = Authorizer.update

    def update(self: Authorizer, changes: Mapping[UUID, Any]) -> None:
        original(self, {key: one for key, one in changes.items() if one is not None})

    patch.setattr(Authorizer, "update", update)


def half_a_delta_is_visible(patch: Patch) -> None:
    """Readers see half of a change (KAFKA-14214)."""
    original = Authorizer.update

    def update(self: Authorizer, changes: Mapping[UUID, Any]) -> None:
        original(self, dict(list(changes.items())[: (len(changes) + 1) // 2]))

    patch.setattr(Authorizer, "update", update)


def first_difference(seed: int) -> object:
    """A question that is answered otherwise than by the model; None when there is none among some thousand."""
    rng = random.Random(seed)
    for _ in range(150):
        found = Authorizer(frozenset(), allow_everyone=rng.random() < 0.5)
        entries: dict[int, AclBinding] = {}
        for _ in range(3):
            changes = {key: None if rng.random() < 0.3 else any_entry(rng) for key in rng.sample(range(6), rng.randint(1, 4))}
            found.update({UUID(int=key): one for key, one in changes.items()})
            for key, one in changes.items():
                entries.pop(key, None)
                if one is not None:
                    entries[key] = one
            for who in ("alice", "bob"):
                for operation in (Operation.READ, Operation.DESCRIBE):
                    for name in ("a", "abc"):
                        question = (f"User:{who}", "10.0.0.1", operation, ResourceType.TOPIC, name)
                        wanted = model_decision(entries.values(), *question, allow_everyone=found._default.allowed)
                        if found.decide(Principal("User", who), *question[1:]).allowed != wanted:
                            return question
    return None


def any_entry(rng: random.Random) -> AclBinding:
    return AclBinding(
        resource_type=ResourceType.TOPIC,
        resource_name=rng.choice(("a", "ab", "abc", "*")),
        pattern_type=rng.choice((PatternType.LITERAL, PatternType.PREFIXED)),
        principal=rng.choice(("User:alice", "User:bob", "User:*")),
        host=rng.choice(("*", "10.0.0.1", "10.0.0.2")),
        operation=rng.choice((Operation.READ, Operation.DESCRIBE, Operation.ALL)),
        permission_type=rng.choice((Permission.ALLOW, Permission.DENY)),
    )


@pytest.mark.parametrize(
    "mistake",
    [
        shadowing_prefix,
        default_for_each_principal,
        all_is_an_operation_like_others,
        hosts_are_names,
        removals_are_lost,
        half_a_delta_is_visible,
    ],
)
def test_a_mistake_is_found(monkeypatch: Patch, mistake: Callable[[Patch], None]) -> None:
    assert first_difference(1) is None
    mistake(monkeypatch)
    assert first_difference(1) is not None
