"""What every client is put through at closed listeners: subclass `Security` in the client's folder.

A client that is refused must be told by kraftlite what Apache Kafka tells it: `refusals` has what it shows for each case, which
was seen with `--apache-kafka`, with which these tests run against one.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, ClassVar

import pytest

from tests.clients.closed import REAUTHENTICATE_MS, TOKEN_S, Closed
from tests.clients.programs import Client, Missing, Ready, Run
from tests.clients.transactions import capability
from tests.harness.certificates import Authority

RECORDS = [{"partition": 0, "key": f"k{n}", "value": f"v{n}"} for n in range(20)]
LOGINS = ("TLS", "mTLS", "PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")
PASSWORDS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")


@dataclass(frozen=True)
class Way:
    """To a listener, and what to say there."""

    listener: str
    security: Mapping[str, Any]


def login(node: Closed, name: str, **other: Any) -> Way:
    if name == "TLS":
        return Way("TLS", {"protocol": "SSL", "ca": node.trust})
    if name == "mTLS":
        return Way("MTLS", node.certificate("alice"))
    return Way("SASL", node.password(name, **other))


def strangers(node: Closed, way: Way) -> Way:
    """With the trust in another authority."""
    path = node.folder / "strangers.pem"
    path.write_text(Authority("stranger").pem)
    return Way(way.listener, {**way.security, "ca": str(path)})


def wrong(node: Closed, case: str) -> Way:
    """By the name of a case in `refusals`."""
    mechanism, _, what = case.partition(", ")
    if what == "wrong password":
        return login(node, mechanism, password="guess")
    if what == "token that has expired":
        return login(node, mechanism, token_s=-3600.0)
    return {
        "unknown authority": lambda: strangers(node, login(node, "TLS")),
        "certificate of the broker that has expired": lambda: Way("EXPIRED", login(node, "TLS").security),
        "certificate that has expired": lambda: Way("MTLS", node.certificate("alice", expired=True)),
        "certificate of strangers": lambda: Way("MTLS", node.certificate("alice", authority=Authority("stranger"))),
        "no certificate": lambda: Way("MTLS", login(node, "TLS").security),
    }[case]()


REFUSALS = (
    *(f"{it}, wrong password" for it in PASSWORDS),
    "OAUTHBEARER, token that has expired",
    "unknown authority",
    "certificate of the broker that has expired",
    "certificate that has expired",
    "certificate of strangers",
    "no certificate",
)
GRANT = "grant that is taken back"


def told(
    password: str, *, token: str, authority: str, broker: str, expired: str, strangers: str, nobody: str, grant: str
) -> dict[str, str]:
    """Patterns by the names of `REFUSALS`, and of `GRANT`. `password`: with {} for the mechanism's own words. `broker`: whose
    certificate has expired; `nobody`: no certificate."""
    own = {
        it: f"Authentication failed during authentication due to invalid credentials with SASL mechanism {it}" for it in PASSWORDS
    }
    own["PLAIN"] = "Authentication failed: Invalid username or password"
    found = {f"{it}, wrong password": password.replace("{}", re.escape(own[it])) for it in PASSWORDS}
    found["OAUTHBEARER, token that has expired"] = token
    found |= {"unknown authority": authority, "certificate of the broker that has expired": broker}
    found |= {"certificate that has expired": expired, "certificate of strangers": strangers, "no certificate": nobody}
    return {**found, GRANT: grant}


class Security:
    client: ClassVar[Client]
    refusals: ClassVar[Mapping[str, str]]
    """See `told`. Patterns are found in what the client tells and writes down. Alerts of TLS have two names where those of
    OpenSSL are more exact than Java's, see docs/DIFFERENCES.md."""

    granted_by: ClassVar[str] = "SCRAM-SHA-512"
    """The login of the client whose grant is taken back."""

    goes_on: ClassVar[bool] = True
    """A producer that was refused writes again when it is granted again."""

    @pytest.fixture(scope="class")
    @classmethod
    def command(cls) -> list[str]:
        try:
            return list(cls.client.prepare())
        except Missing as missing:
            pytest.skip(str(missing))

    @pytest.fixture(autouse=True)
    def _able(self, request: pytest.FixtureRequest) -> None:
        for mark in request.node.iter_markers("capability"):
            if mark.args[0] in self.client.lacks:
                pytest.skip(self.client.lacks[mark.args[0]])

    @contextmanager
    def session(self, command: list[str], node: Closed, way: Way, topic: str) -> Iterator[Run]:
        """It sends a record after the other."""
        ready = Ready(self.client, command, node.addresses[way.listener])
        with ready.start(op="session", topic=topic, pause_ms=50, security=way.security) as run:
            yield run

    @pytest.mark.parametrize("name", [pytest.param(it, marks=capability(f"login: {it}")) for it in LOGINS])
    def test_login(self, command: list[str], closed_node: Closed, topic: str, name: str) -> None:
        closed_node.create_topic(topic)
        way = login(closed_node, name)
        ready = Ready(self.client, command, closed_node.addresses[way.listener])
        ready.produce(topic, RECORDS, security=way.security)
        assert [it["value"] for it in ready.read(topic, 20, security=way.security)] == [f"v{n}" for n in range(20)]

    @pytest.mark.parametrize(
        "case", [pytest.param(it, marks=capability(f"refused: {it.partition(', ')[2] or it}"), id=it) for it in REFUSALS]
    )
    def test_who_is_not_let_in_is_told_what_kafka_tells(
        self, command: list[str], closed_node: Closed, topic: str, case: str
    ) -> None:
        if case.startswith("OAUTHBEARER") and (reason := self.client.lacks.get("login: OAUTHBEARER")):
            pytest.skip(reason)
        closed_node.create_topic(topic)
        with self.session(command, closed_node, wrong(closed_node, case), topic) as run:
            run.until(f"told {self.refusals[case]!r}", lambda: re.search(self.refusals[case], failures(run)))
            assert run.of("ack") == []

    @capability(f"refused: {GRANT}")
    def test_a_grant_that_is_taken_back_in_mid_flight(self, command: list[str], closed_node: Closed, topic: str) -> None:
        closed_node.create_topic(topic)
        closed_node.grant("bob", topic)
        with self.session(command, closed_node, login(closed_node, self.granted_by, user="bob"), topic) as run:
            run.until("acknowledged", lambda: run.of("ack"))
            assert run.of("fail") == []
            closed_node.take_back("bob", topic)
            run.until(f"told {self.refusals[GRANT]!r}", lambda: re.search(self.refusals[GRANT], failures(run)))
            if not self.goes_on:
                return
            told = len(run.of("ack"))
            closed_node.grant("bob", topic)
            run.until("acknowledged again", lambda: len(run.of("ack")) > told)

    @pytest.mark.parametrize(
        ("mechanism", "lasts_s"),
        [
            pytest.param("PLAIN", REAUTHENTICATE_MS / 1000, marks=capability("session that ends"), id="password"),
            pytest.param("OAUTHBEARER", TOKEN_S, marks=capability("token that ends"), id="token"),
        ],
    )
    def test_a_session_that_ends_goes_on(
        self, command: list[str], closed_node: Closed, topic: str, mechanism: str, lasts_s: float
    ) -> None:
        """The client says again who it is, or comes again; either way no record is lost (KIP-368)."""
        closed_node.create_topic(topic)
        way = login(closed_node, mechanism, **({"token_s": lasts_s} if mechanism == "OAUTHBEARER" else {}))
        with self.session(command, closed_node, Way("SHORT", way.security), topic) as run:
            run.until("acknowledged", lambda: run.of("ack"))
            over, seen = time.monotonic() + 2.5 * lasts_s, 0
            while time.monotonic() < over:
                seen = len(run.of("ack"))
                run.until("the next", lambda seen=seen: len(run.of("ack")) > seen)  # type: ignore[misc]
            assert not [it for it in run.of("fail") if it["i"] >= 0], "records that were lost"


def failures(run: Run) -> str:
    return "\n".join([str(it["error"]) for it in run.of("fail")] + run.errors)
