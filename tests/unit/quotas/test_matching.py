"""Which quota applies. QU-01, QU-09."""

from __future__ import annotations

import itertools

import pytest

from kraftlite.model.broker_configs import connection_overrides
from kraftlite.model.messages.security import QuotaEntityPart
from kraftlite.quotas.matching import PRODUCE, IpQuotas, QuotaEntity, Scope, matching

USER, CLIENT = "alice", "app"


def entity(**parts: str | None) -> QuotaEntity:
    return tuple(sorted(QuotaEntityPart(type=kind.replace("_", "-"), name=name) for kind, name in parts.items()))


ORDER = [
    (entity(user=USER, client_id=CLIENT), Scope(USER, CLIENT)),
    (entity(user=USER, client_id=None), Scope(USER, CLIENT)),
    (entity(user=USER), Scope(USER, "")),
    (entity(user=None, client_id=CLIENT), Scope(USER, CLIENT)),
    (entity(user=None, client_id=None), Scope(USER, CLIENT)),
    (entity(user=None), Scope(USER, "")),
    (entity(client_id=CLIENT), Scope("", CLIENT)),
    (entity(client_id=None), Scope("", CLIENT)),
]
"""From the most specific to the least, and who shares the quota."""


@pytest.mark.parametrize("chosen", range(1, 2 ** len(ORDER)))
def test_qu_01_the_most_specific_entity_with_this_key_wins(chosen: int) -> None:
    quotas = {key: {PRODUCE: str(at)} for at, (key, _scope) in enumerate(ORDER) if chosen & 1 << at}
    first = next(at for at in itertools.count() if chosen & 1 << at)
    assert matching(quotas, PRODUCE, USER, CLIENT) == (ORDER[first][1], float(first))


def test_qu_01_each_key_is_resolved_by_itself() -> None:
    quotas = {ORDER[0][0]: {"consumer_byte_rate": "1"}, ORDER[7][0]: {PRODUCE: "2"}}
    assert matching(quotas, PRODUCE, USER, CLIENT) == (Scope("", CLIENT), 2.0)


def test_others_are_not_bounded() -> None:
    quotas = {key: {PRODUCE: "1"} for key, _scope in (ORDER[0], ORDER[1], ORDER[2], ORDER[6])}
    assert matching(quotas, PRODUCE, "bob", "other") is None


def test_an_empty_client_id_has_only_the_quotas_of_users() -> None:
    clients = {entity(client_id=None): {PRODUCE: "1"}, entity(user=None, client_id=None): {PRODUCE: "2"}}
    assert matching(clients, PRODUCE, USER, "") is None
    assert matching(clients | {entity(user=None): {PRODUCE: "3"}}, PRODUCE, USER, "") == (Scope(USER, ""), 3.0)


def test_qu_09_an_address_has_its_own_quota_or_the_default() -> None:
    quotas = {entity(ip="10.0.0.1"): {"connection_creation_rate": "5"}, entity(ip=None): {"connection_creation_rate": "7"}}
    assert IpQuotas(quotas).of("10.0.0.1") == 5
    assert IpQuotas(quotas).of("10.0.0.2") == 7
    assert IpQuotas({}).of("10.0.0.2") is None


@pytest.mark.parametrize(
    ("written", "address"),
    [("2001:DB8:0:0::7", "2001:db8::7"), ("0:0:0:0:0:0:0:1", "::1"), ("::ffff:10.0.0.7", "10.0.0.7"), ("10.0.0.7", "10.0.0.7")],
)
def test_qu_09_an_address_may_be_written_in_any_form(written: str, address: str) -> None:
    """Whoever was bounded by another form of an address was not bounded at all."""
    quotas = {entity(ip=written): {"connection_creation_rate": "5.0"}}
    assert IpQuotas(quotas).of(address) == 5
    assert IpQuotas(quotas).of("10.0.0.8") is None
    assert connection_overrides(f"[{written}]:3") == {address: 3}
