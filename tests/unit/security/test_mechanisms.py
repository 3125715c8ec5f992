"""The server's side of PLAIN, SCRAM and OAUTHBEARER, and the texts that name their users."""

from __future__ import annotations

import base64
import json

import pytest

from kraftlite.client.security import Scram
from kraftlite.model.principal import Principal
from kraftlite.security.exchange import MAX_MESSAGE_BYTES, SaslRefused
from kraftlite.security.jaas import parse_jaas
from kraftlite.security.oauthbearer import OAuthBearerServer, Unsecured, UnsecuredRules
from kraftlite.security.plain import PlainServer, plain_users
from kraftlite.security.scram import (
    FindIdentity,
    ScramIdentity,
    ScramServer,
    credential_from,
    salted_password,
    user_identity,
)

NOW_MS = 1_700_000_000_000
BAD_USER = "Authentication failed: Invalid username or password"


def refused(server: PlainServer | ScramServer | OAuthBearerServer, token: bytes) -> SaslRefused:
    with pytest.raises(SaslRefused) as caught:
        server.evaluate(token, NOW_MS)
    return caught.value


# --- PLAIN


def test_plain_lets_in_who_knows_the_password() -> None:
    """SE-11."""
    server = PlainServer({"alice": "sécret"})
    for message in ("\0alice\0sécret", "alice\0alice\0sécret"):
        reply = server.evaluate(message.encode(), NOW_MS)
        assert reply.token == b"" and reply.outcome is not None and reply.outcome.principal == Principal("User", "alice")


@pytest.mark.parametrize(
    "message", ["\0alice\0wrong", "\0bob\0sécret", "\0\0sécret", "\0alice\0", "alice", "\0alice\0a\0b", "", "\0bob\0\1"]
)
def test_plain_tells_nothing_of_why(message: str) -> None:
    """SE-11."""
    error = refused(PlainServer({"alice": "sécret"}), message.encode())
    assert error.told in (None, BAD_USER) and "sécret" not in str(error)
    assert error.told == BAD_USER or message not in ("\0alice\0wrong", "\0bob\0sécret")


def test_plain_lets_nobody_act_for_another() -> None:
    """SE-11."""
    error = refused(PlainServer({"alice": "x", "bob": "y"}), b"bob\0alice\0x")
    assert error.told is not None and "authorization id that is different" in error.told
    assert refused(PlainServer({"alice": "x"}), b"\0alice\0\xff").told is None


def test_plain_users_come_from_the_login_module() -> None:
    """SE-11."""
    text = (
        'org.apache.kafka.common.security.plain.PlainLoginModule required username="b" password="p" user_a="1\\"2" user_b=\'3\';'
    )
    assert plain_users(parse_jaas(text)) == {"a": '1"2', "b": "3"}
    for bad in ('user_="x"', 'user_a=""', 'serviceName="kafka"'):
        with pytest.raises(ValueError, match=r"user_|serviceName"):
            plain_users(parse_jaas(f"M required {bad};"))


@pytest.mark.parametrize(
    "text",
    [
        "",
        "M",
        "M required",
        "M required a=b",
        'M required a="b;',
        'M required a="b"; N required;',
        "M required a=b a=c;",
        "M required =b;",
        "M x a=b;",
    ],
)
def test_a_login_module_that_cannot_be_read_is_told_without_its_text(text: str) -> None:
    with pytest.raises(ValueError, match=r"it|option") as caught:
        parse_jaas(text.replace("b", "hunter2"))
    assert "hunter2" not in str(caught.value)
    with pytest.raises(ValueError, match="characters"):
        parse_jaas("M required a=" + "x" * 70_000 + ";")


# --- SCRAM


def known(mechanism: str, name: str, password: str, salt: bytes, iterations: int = 4096) -> FindIdentity:
    credential = credential_from(mechanism, salted_password(mechanism, password, salt, iterations), salt, iterations)
    return lambda asked, is_token: user_identity(name, credential) if asked == name and not is_token else None


def test_scram_answers_as_the_example_of_rfc_7677() -> None:
    """SE-12."""
    find = known("SCRAM-SHA-256", "user", "pencil", base64.b64decode("W22ZaJ0SNY7soEsUEjb6gQ=="))
    server = ScramServer("SCRAM-SHA-256", find, nonce="%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0")
    first = server.evaluate(b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO", NOW_MS)
    nonce = "rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"
    assert first.token.decode() == f"r={nonce},s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096" and first.outcome is None
    final = server.evaluate(f"c=biws,r={nonce},p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=".encode(), NOW_MS)
    assert final.token == b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="
    assert final.outcome is not None and final.outcome.principal.name == "user" and final.outcome.expires_ms is None


@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_scram_agrees_with_the_client_and_knows_escaped_names(mechanism: str) -> None:
    """SE-12."""
    name = "a,b=c é"
    server = ScramServer(mechanism, known(mechanism, name, "pä,ss", b"salt", 8192), nonce="server")
    client = Scram(mechanism, name, "pä,ss", nonce="client")
    message, outcome = client.answer(None), None
    while message is not None:
        reply = server.evaluate(message, NOW_MS)
        message, outcome = client.answer(reply.token), reply.outcome
    assert outcome is not None and outcome.principal == Principal("User", name)


def first_of(server: ScramServer) -> str:
    return server.evaluate(b"n,,n=alice,r=c", NOW_MS).token.decode().partition(",")[0]


def test_scram_does_not_tell_an_unknown_user_from_a_wrong_password() -> None:
    """SE-12."""
    find = known("SCRAM-SHA-256", "alice", "secret", b"salt")
    assert refused(ScramServer("SCRAM-SHA-256", find, nonce="s"), b"n,,n=bob,r=c").told is None
    server = ScramServer("SCRAM-SHA-256", find, nonce="s")
    proof = base64.b64encode(bytes(32)).decode()
    assert refused(server, f"c=biws,{first_of(server)},p={proof}".encode()).told is None


@pytest.mark.parametrize(
    "message",
    [
        "",
        "n",
        "y,,n=alice,r=c",
        "p=tls-unique,,n=alice,r=c",
        "n,,n=,r=c",
        "n,,n=al=ice,r=c",
        "n,,n=alice",
        "n,,n=alice,r=",
        "n,,n=alice,r=c,x",
        "n,,r=c,n=alice",
    ],
)
def test_scram_refuses_first_messages_that_are_none(message: str) -> None:
    find = known("SCRAM-SHA-256", "alice", "secret", b"salt")
    assert "first message" in str(refused(ScramServer("SCRAM-SHA-256", find, nonce="s"), message.encode()))


@pytest.mark.parametrize(
    ("message", "why"),
    [
        ("c=biws,r=other,p=AAAA", "Invalid client nonce in the final client message."),
        ("c=biws,r=ccs,p=AAAA", "is in it twice, as librdkafka before 2.6.1 sends it"),  # CVE-2024-56128
        ("c=eSws,r=cs,p=AAAA", "channel binding"),
        ("c=biws,r=cs,p=AAAA", "credentials"),
        ("c=biws,r=cs", "format"),
        ("c=biws,r=cs,p=A", "format"),
        ("", "format"),
    ],
)
def test_scram_refuses_final_messages_that_prove_nothing(message: str, why: str) -> None:
    server = ScramServer("SCRAM-SHA-256", known("SCRAM-SHA-256", "alice", "secret", b"salt"), nonce="s")
    first_of(server)
    error = refused(server, message.encode())
    assert why in str(error) and error.told is None


def test_scram_lets_nobody_act_for_another_nor_with_few_iterations() -> None:
    find = known("SCRAM-SHA-256", "alice", "secret", b"salt")
    assert refused(ScramServer("SCRAM-SHA-256", find, nonce="s"), b"n,a=bob,n=alice,r=c").told is not None
    weak = known("SCRAM-SHA-256", "alice", "secret", b"salt", 100)
    assert "Iterations 100" in str(refused(ScramServer("SCRAM-SHA-256", weak, nonce="s"), b"n,,n=alice,r=c"))


def test_scram_asks_for_a_token_when_the_client_says_so() -> None:
    """KIP-48."""
    asked: list[tuple[str, bool]] = []

    def find(name: str, is_token: bool) -> ScramIdentity | None:
        asked.append((name, is_token))
        return None

    for message in (b"n,,n=id,r=c,tokenauth=true", b"n,,n=id,r=c,tokenauth=false", b"n,,n=id,r=c,other=x"):
        refused(ScramServer("SCRAM-SHA-256", find, nonce="s"), message)
    assert asked == [("id", True), ("id", False), ("id", False)]


# --- OAUTHBEARER


def token(header: object = None, **claims: object) -> str:
    def part(value: object) -> str:
        return base64.urlsafe_b64encode(json.dumps(value).encode()).decode().rstrip("=")

    return f"{part({'alg': 'none'} if header is None else header)}.{part(claims)}."


def bearer(text: str, authzid: str = "") -> bytes:
    return f"n,{authzid},\1auth=Bearer {text}\1\1".encode()


def unsecured(**rules: object) -> OAuthBearerServer:
    return OAuthBearerServer(Unsecured(UnsecuredRules(**rules)))  # type: ignore[arg-type]


GOOD = {"sub": "alice", "exp": NOW_MS // 1000 + 60, "iat": NOW_MS // 1000, "scope": ["a", "b"]}


def test_an_unsecured_token_lets_in_until_it_expires() -> None:
    """SE-14."""
    reply = unsecured(required_scope=("a",)).evaluate(bearer(token(**GOOD)), NOW_MS)
    assert reply.outcome is not None and reply.outcome.principal.name == "alice"
    assert reply.outcome.expires_ms == NOW_MS + 60_000
    assert unsecured().evaluate(bearer(token(**GOOD), "a=alice"), NOW_MS).outcome is not None
    assert "authorization id" in str(refused(unsecured(), bearer(token(**GOOD), "a=bob")))


@pytest.mark.parametrize(
    "text",
    [
        token(**{**GOOD, "exp": NOW_MS // 1000}),
        token(**{**GOOD, "exp": None}),
        token(**{**GOOD, "exp": True}),
        token(**{**GOOD, "exp": 1e300}),
        token(**{**GOOD, "iat": NOW_MS // 1000 + 5}),
        token(**{**GOOD, "sub": ""}),
        token(**{**GOOD, "sub": 7}),
        token({"alg": "HS256"}, **GOOD),
        token([], **GOOD),
        token(**GOOD) + "c2ln",
        "a.b.",
        "abc",
        base64.urlsafe_b64encode(b"[" * 20_000).decode().rstrip("=") + ".e30.",
    ],
)
def test_a_token_that_does_not_hold_is_told_and_then_the_client_is_closed(text: str) -> None:
    """SE-14."""
    server = unsecured()
    reply = server.evaluate(bearer(text), NOW_MS)
    assert reply.outcome is None and reply.token == b'{"status":"invalid_token"}'
    assert refused(server, b"\1").told == '{"status":"invalid_token"}'


def test_a_scope_that_is_missing_is_named() -> None:
    reply = unsecured(required_scope=("a", "c")).evaluate(bearer(token(**GOOD)), NOW_MS)
    assert json.loads(reply.token) == {"status": "insufficient_scope", "scope": "a c"}


@pytest.mark.parametrize(
    "message",
    [b"", b"n,,", b"n,,\1\1", b"n,,\1auth=Basic x\1\1", b"n,,\1auth=Bearer \1\1", b"\xff", b"x" * (MAX_MESSAGE_BYTES + 1)],
)
def test_a_message_without_a_token_is_refused_at_once(message: bytes) -> None:
    assert refused(unsecured(), message).told is None


def test_options_of_the_unsecured_validator() -> None:
    found = UnsecuredRules.of(
        {
            "unsecuredValidatorPrincipalClaimName": "name",
            "unsecuredValidatorRequiredScope": "a b",
            "unsecuredValidatorAllowableClockSkewMs": "300",
            "unsecuredLoginStringClaim_sub": "admin",
        }
    )
    assert found == UnsecuredRules(principal_claim="name", required_scope=("a", "b"), clock_skew_ms=300)
    for bad in ({"unsecuredValidatorAllowableClockSkewMs": "-1"}, {"other": "x"}):
        with pytest.raises(ValueError, match=r"unsecured|other"):
            UnsecuredRules.of(bad)
