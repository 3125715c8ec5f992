"""CM-59, CM-61: SCRAM credentials and client quotas in the metadata log; configs of groups and client metrics (CM-47)."""

from __future__ import annotations

import hashlib
import hmac

import pytest

from kraftlite.controller.describe import describe
from kraftlite.metadata.records import ClientQuotaRecord
from kraftlite.model.errors import ErrorCode
from kraftlite.model.messages import security
from tests.harness.controller_world import World

E = ErrorCode
SET, DELETE, APPEND = 0, 1, 2
GROUP, METRICS = 32, 16
Entity = tuple[tuple[str, str | None], ...]


@pytest.fixture
def world() -> World:
    world = World()
    world.start_brokers(1)
    return world


def alter(world: World, *entries: tuple[Entity, dict[str, str | None]], validate_only: bool = False) -> list[ErrorCode]:
    request = security.AlterClientQuotasRequest(
        entries=tuple(
            security.QuotaAlteration(
                entity=tuple(security.QuotaEntityPart(type=kind, name=name) for kind, name in entity),
                ops=tuple(security.QuotaOp(key=key, value=value) for key, value in ops.items()),
            )
            for entity, ops in entries
        ),
        validate_only=validate_only,
        timeout_ms=1000,
    )
    answer = world.submit("test", lambda _now: world.state.quotas.alter(request))
    world.settle()
    return [one.error for one in answer.value.entries]


def stored(world: World) -> dict[Entity, dict[str, str]]:
    quotas = world.state.quotas.quotas
    return {tuple((part.type, part.name) for part in entity): dict(values) for entity, values in quotas.items()}


USER: Entity = (("user", "u"),)


def test_cm_61_set_change_and_remove(world: World) -> None:
    both: Entity = (("user", "u"), ("client-id", None))
    assert alter(world, (USER, {"producer_byte_rate": "1024.0"}), (both, {"request_percentage": "12.5"})) == [E.NONE, E.NONE]
    assert stored(world) == {
        USER: {"producer_byte_rate": "1024.0"},
        (("client-id", None), ("user", "u")): {"request_percentage": "12.5"},
    }
    assert alter(world, (USER, {"producer_byte_rate": None, "consumer_byte_rate": "7.0"})) == [E.NONE]
    assert stored(world)[USER] == {"consumer_byte_rate": "7.0"}
    assert alter(world, (USER, {"consumer_byte_rate": None}), (both[::-1], {"request_percentage": None})) == [E.NONE, E.NONE]
    assert stored(world) == {}


def test_cm_61_validate_only_writes_nothing(world: World) -> None:
    assert alter(world, (USER, {"producer_byte_rate": "1.0"}), validate_only=True) == [E.NONE]
    assert stored(world) == {}


@pytest.mark.parametrize(
    ("entity", "ops"),
    [
        ((), {"producer_byte_rate": "1.0"}),
        ((("planet", "x"),), {"producer_byte_rate": "1.0"}),
        ((("user", ""),), {"producer_byte_rate": "1.0"}),
        ((("user", "a"), ("user", "b")), {"producer_byte_rate": "1.0"}),
        ((("ip", "10.0.0.1"), ("user", "u")), {"connection_creation_rate": "1.0"}),
        ((("ip", "not an address"),), {"connection_creation_rate": "1.0"}),
        ((("ip", "10.0.0.1"),), {"producer_byte_rate": "1.0"}),
        (USER, {"connection_creation_rate": "1.0"}),
        (USER, {"producer_byte_rate": "0.0"}),
        (USER, {"producer_byte_rate": "-1.0"}),
        (USER, {"producer_byte_rate": "nan"}),
        (USER, {"producer_byte_rate": "1.5"}),
        (USER, {"producer_byte_rate": "1e+19"}),
        (USER, {"request_percentage": "0.5", "nonsense": "1.0"}),
        ((("user", None), ("user", "b")), {"producer_byte_rate": "1.0"}),
    ],
)
def test_cm_61_refusals_leave_the_entity_alone_and_the_others_proceed(
    world: World, entity: Entity, ops: dict[str, str | None]
) -> None:
    other: Entity = (("client-id", "c"),)
    assert alter(world, (entity, ops), (other, {"producer_byte_rate": "1.0"})) == [E.INVALID_REQUEST, E.NONE]
    assert stored(world) == {other: {"producer_byte_rate": "1.0"}}


@pytest.mark.parametrize("rate", [float(2**63 - 1), 5.0000005])
def test_cm_61_a_whole_number_is_what_a_double_makes_of_it(world: World, rate: float) -> None:
    """As in Kafka: who wants no bound sets the largest of 64 bits, and a double has that as 2^63."""
    assert alter(world, (USER, {"producer_byte_rate": repr(rate)})) == [E.NONE]
    assert stored(world) == {USER: {"producer_byte_rate": repr(rate)}}


def test_cm_61_an_entity_twice_in_one_request(world: World) -> None:
    assert alter(world, (USER, {"producer_byte_rate": "1.0"}), (USER, {"producer_byte_rate": "2.0"})) == [
        E.NONE,
        E.INVALID_REQUEST,
    ]
    assert stored(world)[USER] == {"producer_byte_rate": "1.0"}


def change(world: World, kind: int, name: str, *changes: tuple[str, int, str | None]) -> ErrorCode:
    code: ErrorCode = world.set_config(kind, name, *changes).value.resources[0].error
    return code


def test_group_configs(world: World) -> None:
    session, heartbeat = "consumer.session.timeout.ms", "consumer.heartbeat.interval.ms"
    assert change(world, GROUP, "g", (session, SET, "50000")) is E.NONE
    assert dict(world.state.configs.get((GROUP, "g"))) == {session: "50000"}
    assert change(world, GROUP, "", (session, SET, "50000")) is E.INVALID_REQUEST
    assert change(world, GROUP, "g", ("retention.ms", SET, "1")) is E.INVALID_CONFIG
    assert change(world, GROUP, "g", (session, SET, "soon")) is E.INVALID_CONFIG
    assert change(world, GROUP, "g", (session, SET, "44999")) is E.INVALID_CONFIG
    assert change(world, GROUP, "g", (session, SET, "60001")) is E.INVALID_CONFIG
    assert change(world, GROUP, "g", (heartbeat, SET, "15001")) is E.INVALID_CONFIG
    assert change(world, GROUP, "g", (heartbeat, APPEND, "6000")) is E.INVALID_CONFIG
    assert change(world, GROUP, "g", (session, DELETE, None)) is E.NONE
    assert dict(world.state.configs.get((GROUP, "g"))) == {}


def test_tm_01_client_metrics_configs(world: World) -> None:
    assert change(world, METRICS, "s", ("interval.ms", SET, "1000"), ("metrics", SET, "a.b")) is E.NONE
    assert change(world, METRICS, "s", ("metrics", APPEND, "c.d")) is E.NONE
    assert dict(world.state.configs.get((METRICS, "s"))) == {"interval.ms": "1000", "metrics": "a.b,c.d"}
    assert change(world, METRICS, "", ("interval.ms", SET, "1000")) is E.INVALID_REQUEST
    assert change(world, METRICS, "s", ("nonsense", SET, "1")) is E.INVALID_REQUEST
    for value in ("99", "3600001"):
        assert change(world, METRICS, "s", ("interval.ms", SET, value)) is E.INVALID_REQUEST
    for value in ("often", ""):
        assert change(world, METRICS, "s", ("interval.ms", SET, value)) is E.INVALID_CONFIG, "no number"
    assert change(world, METRICS, "s", ("match", SET, "client_id=app-.*")) is E.NONE
    for pattern in (
        "client_id",
        "client_id=",
        "=x",
        "client_id=a=b",
        "colour=red",
        "client_id=(",
        "client_id=(?=a)",
        "client_id=" + "a" * 1001,
    ):
        assert change(world, METRICS, "s", ("match", SET, pattern)) is E.INVALID_CONFIG


SHA256, SHA512 = 1, 2


def scram(world: World, *upserted: tuple[str, int, int], deleted: tuple[tuple[str, int], ...] = ()) -> dict[str, ErrorCode]:
    request = security.AlterUserScramCredentialsRequest(
        deletions=tuple(security.ScramDeletion(name=name, mechanism=mechanism) for name, mechanism in deleted),
        upsertions=tuple(
            security.ScramUpsertion(name=name, mechanism=mechanism, iterations=iterations, salt=SALT, salted_password=SALTED)
            for name, mechanism, iterations in upserted
        ),
        timeout_ms=1000,
    )
    answer = world.submit("test", lambda _now: world.state.scram.alter(request))
    return {one.user: one.error for one in answer.value.results}


SALT = b"W22ZaJ0SNY7soEsUEjb6gQ"
SALTED = hashlib.pbkdf2_hmac("sha256", b"pencil", SALT, 4096)


def test_cm_59_only_what_checks_a_password_is_kept(world: World) -> None:
    assert scram(world, ("u", SHA256, 4096), ("u", SHA512, 16384), ("v", SHA256, 8192)) == {"u": E.NONE, "v": E.NONE}
    found = world.state.scram.credentials["u", SHA256]
    client_key = hmac.digest(SALTED, b"Client Key", "sha256")
    assert found.stored_key == hashlib.sha256(client_key).digest()
    assert found.server_key == hmac.digest(SALTED, b"Server Key", "sha256")
    assert (found.salt, found.iterations) == (SALT, 4096)
    assert SALTED not in (found.stored_key, found.server_key)
    assert scram(world, deleted=(("u", SHA256),)) == {"u": E.NONE}
    assert sorted(world.state.scram.credentials) == [("u", SHA512), ("v", SHA256)]


@pytest.mark.parametrize(
    ("upserted", "deleted", "error"),
    [
        ((("u", SHA256, 4095),), (), E.UNACCEPTABLE_CREDENTIAL),
        ((("u", SHA256, 16385),), (), E.UNACCEPTABLE_CREDENTIAL),
        ((("", SHA256, 4096),), (), E.UNACCEPTABLE_CREDENTIAL),
        ((("u", 3, 4096),), (), E.UNSUPPORTED_SASL_MECHANISM),
        ((), (("u", SHA256),), E.RESOURCE_NOT_FOUND),
        ((("u", SHA256, 4096), ("u", SHA256, 4096)), (), E.DUPLICATE_RESOURCE),
        ((("u", SHA512, 4096), ("u", SHA256, 1)), (), E.UNACCEPTABLE_CREDENTIAL),
    ],
)
def test_cm_59_a_bad_change_refuses_its_user_only(
    world: World, upserted: tuple[tuple[str, int, int], ...], deleted: tuple[tuple[str, int], ...], error: ErrorCode
) -> None:
    found = scram(world, *upserted, ("other", SHA256, 4096), deleted=deleted)
    assert found.pop("other") is E.NONE
    assert list(found.values()) == [error]
    assert sorted(world.state.scram.credentials) == [("other", SHA256)]


def test_cm_59_the_trace_tells_no_keys(world: World) -> None:
    assert scram(world, ("u", SHA256, 4096)) == {"u": E.NONE}
    assert alter(world, ((("user", None), ("client-id", "c")), {"producer_byte_rate": "1.0"})) == [E.NONE]
    credential = world.state.scram.credentials["u", SHA256]
    assert describe(credential, str) == "name=u mechanism=1 iterations=4096"
    entity = next(iter(world.state.quotas.quotas))
    quota = ClientQuotaRecord(entity=entity, key="producer_byte_rate", value="1.0")
    assert describe(quota, str) == "entity=(client-id=c,user=<default>) key=producer_byte_rate value=1.0"
