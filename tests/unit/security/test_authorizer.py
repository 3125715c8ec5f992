"""The authorizer beside a model that looks at every entry. Source: SE-31 to SE-33."""

from __future__ import annotations

import random
import time
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kraftlite.model.acls import AclBinding, Operation, PatternType, Permission, ResourceType
from kraftlite.model.principal import Principal
from kraftlite.security.authorizer import Authorizer, Reason, super_users
from tests.harness.acl_model import model_decision

ALICE, BOB = Principal.parse("User:alice"), Principal.parse("User:bob")
HOST = "10.0.0.1"
TOPIC = ResourceType.TOPIC
Op, ALLOW, DENY = Operation, Permission.ALLOW, Permission.DENY


def entry(
    name: str = "t",
    operation: Operation = Op.READ,
    permission: Permission = ALLOW,
    *,
    principal: str = "User:alice",
    host: str = "*",
    pattern: PatternType = PatternType.LITERAL,
    kind: ResourceType = TOPIC,
) -> AclBinding:
    return AclBinding(
        resource_type=kind,
        resource_name=name,
        pattern_type=pattern,
        principal=principal,
        host=host,
        operation=operation,
        permission_type=permission,
    )


def authorizer(*entries: AclBinding, supers: str = "", allow_everyone: bool = False) -> Authorizer:
    found = Authorizer(super_users(supers), allow_everyone=allow_everyone)
    found.update({UUID(int=number): one for number, one in enumerate(entries)})
    return found


def may(found: Authorizer, operation: Operation, name: str = "t", *, who: Principal = ALICE, host: str = HOST) -> bool:
    return found.decide(who, host, operation, TOPIC, name).allowed


NAMES = st.sampled_from(["*", "a", "ab", "abc", "b", "ba", "a*"])
ENTRIES = st.builds(
    AclBinding,
    resource_type=st.sampled_from([TOPIC, ResourceType.GROUP]),
    resource_name=NAMES,
    pattern_type=st.sampled_from([PatternType.LITERAL, PatternType.PREFIXED]),
    principal=st.sampled_from(["User:alice", "User:bob", "User:*"]),
    host=st.sampled_from(["*", HOST, "10.0.0.2", "::1", "0:0:0:0:0:0:0:1"]),
    operation=st.sampled_from([one for one in Op if one not in (Op.UNKNOWN, Op.ANY)]),
    permission_type=st.sampled_from([ALLOW, DENY]),
)


@given(
    changes=st.lists(st.tuples(st.integers(0, 5), st.none() | ENTRIES), max_size=12),
    cut=st.integers(0, 12),
    supers=st.sampled_from(["", "User:bob", " User:alice ; User:bob "]),
    allow_everyone=st.booleans(),
)
def test_every_decision_is_that_of_the_model(
    changes: list[tuple[int, AclBinding | None]], cut: int, supers: str, allow_everyone: bool
) -> None:
    """Applied in two parts, with all questions asked between them, so that nothing of the first is remembered wrongly.

    Source: SE-31 to SE-33.
    """
    found = Authorizer(super_users(supers), allow_everyone=allow_everyone)
    entries: dict[int, AclBinding] = {}
    for part in (changes[:cut], changes[cut:]):
        found.update({UUID(int=key): one for key, one in dict(part).items()})
        for key, one in part:
            if one is None:
                entries.pop(key, None)
            else:
                entries[key] = one
        assert len(found) == len(entries)
        for who in (ALICE, BOB):
            for operation in (Op.READ, Op.WRITE, Op.DESCRIBE, Op.DESCRIBE_CONFIGS, Op.ALTER_CONFIGS):
                for name in ("a", "abc", "b", "bab", "c", "*"):
                    for host in (HOST, "::1"):
                        wanted = model_decision(
                            entries.values(),
                            str(who),
                            host,
                            operation,
                            TOPIC,
                            name,
                            supers=super_users(supers),
                            allow_everyone=allow_everyone,
                        )
                        assert found.decide(who, host, operation, TOPIC, name).allowed == wanted, (who, operation, name, host)


@given(st.lists(ENTRIES, max_size=6))
def test_a_right_on_some_topic_is_one_that_some_topic_gives(entries: list[AclBinding]) -> None:
    """What is allowed by type is allowed on a topic, where no operation implies another (KIP-679)."""
    found = authorizer(*entries)
    names = [one.resource_name + "x" * more for one in entries for more in (0, 1)] + ["hardcode"]
    some = any(may(found, Op.WRITE, name) for name in names if name != "*" and not name.endswith("*"))
    if found.decide_by_type(ALICE, HOST, Op.WRITE, TOPIC):
        # A wildcard, or a prefix of which longer ones are denied one by one, still has some name that is free.
        free = any(may(found, Op.WRITE, name) for name in [*names, *(f"{one.resource_name}~free" for one in entries)])
        assert some or free
    else:
        assert not may(found, Op.WRITE, "hardcode")


def test_a_denial_behind_a_shorter_prefix_is_seen() -> None:
    found = authorizer(
        entry("orders-eu", pattern=PatternType.PREFIXED),
        entry("orders", permission=DENY, pattern=PatternType.PREFIXED),
        entry("orders-eu-1"),
    )
    assert not may(found, Op.READ, "orders-eu-1")
    decided = found.decide(ALICE, HOST, Op.READ, TOPIC, "orders-eu-1")
    assert decided.reason is Reason.MATCHING_ACL and "resourceName=orders, patternType=PREFIXED" in decided.rule


def test_what_holds_for_resources_without_entries_is_asked_of_all_principals_together() -> None:
    found = authorizer(entry("t", principal="User:bob"), allow_everyone=True)
    assert not may(found, Op.READ, "t") and may(found, Op.READ, "u")
    assert found.decide(ALICE, HOST, Op.READ, TOPIC, "t").rule == "DefaultDeny"
    assert found.decide(ALICE, HOST, Op.READ, TOPIC, "u").rule == "DefaultAllow"


@pytest.mark.parametrize("operation", [Op.READ, Op.WRITE, Op.DELETE, Op.ALTER, Op.ALL])
def test_who_may_use_a_topic_may_describe_it(operation: Operation) -> None:
    """Source: SE-32."""
    assert may(authorizer(entry(operation=operation)), Op.DESCRIBE)


def test_a_denial_denies_its_own_operation_alone() -> None:
    found = authorizer(entry(operation=Op.READ, permission=DENY), entry(operation=Op.DESCRIBE))
    assert may(found, Op.DESCRIBE) and not may(found, Op.READ)
    found = authorizer(entry(operation=Op.DESCRIBE, permission=DENY), entry(operation=Op.READ))
    assert may(found, Op.READ) and not may(found, Op.DESCRIBE)


def test_a_super_user_may_do_what_is_denied_also_before_the_entries_are_there() -> None:
    found = Authorizer(super_users("User:alice"), allow_everyone=False)
    assert found.decide(ALICE, HOST, Op.READ, TOPIC, "t").rule == "SuperUser" and not found.is_loaded
    found.update({UUID(int=1): entry(permission=DENY, operation=Op.ALL)})
    assert may(found, Op.WRITE) and found.is_loaded


@pytest.mark.parametrize("text", ["alice", "User:a;bob", "User:"])
def test_super_users_are_principals(text: str) -> None:
    with pytest.raises(ValueError, match="a principal is written as User:NAME"):
        super_users(text)


def test_a_decision_does_not_grow_with_the_number_of_entries() -> None:
    """Two decisions that are not remembered, among ten and among twenty thousand entries."""

    def cost(count: int) -> float:
        found = authorizer(*(entry(f"topic-{n}", principal=f"User:u{n}") for n in range(count)))
        best = 1.0
        for _ in range(20):
            found.update({})
            began = time.perf_counter()
            for name in ("topic-1", "other"):
                found.decide(ALICE, HOST, Op.READ, TOPIC, name)
            best = min(best, time.perf_counter() - began)
        return best

    assert cost(20_000) < 20 * cost(10)


def test_memory_of_decisions_is_bounded() -> None:
    found = authorizer(entry("*"))
    rng = random.Random(1)
    for _ in range(40_000):
        found.decide(ALICE, HOST, Op.READ, TOPIC, f"t{rng.random()}")
    assert len(found._decided) <= 16_384


def test_long_names_are_not_remembered() -> None:
    """A client may ask about names of 32 KiB, each once."""
    found = authorizer(entry("n"), entry("n" * 32_767, permission=Permission.DENY))
    for length in (500, 513, 32_767):
        for _ in range(2):
            assert may(found, Op.READ, "n" * length) is False
    assert may(found, Op.READ, "n")
    assert sum(len(question[-1]) for question in found._decided) <= 1_024


def test_what_is_remembered_of_a_type_ends_with_the_next_change() -> None:
    """All entries are looked at once, and not for each request."""
    found = authorizer(*(entry(f"t{number}", Op.WRITE, principal="User:bob") for number in range(1_000)))
    looked = 0

    def about(*question: object) -> object:
        nonlocal looked
        looked += 1
        return kept(*question)  # type: ignore[arg-type]

    kept, found._about = found._about, about  # type: ignore[method-assign, assignment]
    for _ in range(10):
        assert not found.decide_by_type(ALICE, HOST, Op.WRITE, TOPIC)
    assert looked == 1
    found.update({UUID(int=5_000): entry("mine", Op.WRITE)})
    assert found.decide_by_type(ALICE, HOST, Op.WRITE, TOPIC)
    found.update({UUID(int=5_000): None})
    assert not found.decide_by_type(ALICE, HOST, Op.WRITE, TOPIC)
