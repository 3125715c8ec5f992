"""Clients with every single grant and denial are told what Apache Kafka has told them. Source: SE-31, SE-36, SE-40.

rights.json has Kafka's answers; `python -m tests.clients.compare_rights --record` asks for them again. The default run takes the
sets of entries in which one operation is denied, and those in which everything or nothing is allowed.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from kraftlite.testing import SyncCluster
from tests.clients.rights import Asked, differences, kafkas_answers, states
from tests.harness.authorized import QUIET, STANDARD, User, users_by_address

pytestmark = [pytest.mark.clients, pytest.mark.xdist_group("embedded")]

TOKENS = {"delegation.token.secret.key": "secret"}
STATES = list(enumerate(states()))
QUICK = [it for it in STATES if not it[1][0].startswith("only") and "exact" not in it[1][0] and "prefixed" not in it[1][0]]


@pytest.fixture
def asked() -> Iterator[Asked]:
    with (
        users_by_address(),
        SyncCluster(controllers=1, brokers=1, combined=True, config={**STANDARD, **QUIET, **TOKENS}) as cluster,
    ):
        found = Asked(User("admin", cluster.bootstrap_servers), User("alice", cluster.bootstrap_servers))
        found.prepare()
        yield found
        found.admin.close()
        found.alice.close()


def unlike_kafka(asked: Asked, chosen: list[tuple[int, tuple[str, list]]]) -> list[str]:
    theirs = kafkas_answers()
    found = []
    for number, (state, entries) in chosen:
        for title, answer in asked.answers(entries, number).items():
            found += [f"{state}: {title}.{line}" for line in differences(theirs[state][title], answer)]
    return found


def test_what_one_denial_or_nothing_at_all_does_is_as_with_kafka(asked: Asked) -> None:
    assert unlike_kafka(asked, QUICK) == []


@pytest.mark.slow
def test_what_any_single_grant_or_denial_does_is_as_with_kafka(asked: Asked) -> None:
    assert unlike_kafka(asked, STATES) == []
