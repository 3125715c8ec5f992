"""The SASL of listeners, from a node's configuration. SE-10, SE-11, SE-14."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from kraftlite.config.server import ConfigError, ServerConfig, load
from kraftlite.security.oauthbearer import UnsecuredRules
from kraftlite.security.signed_tokens import SignedRules

MODULES = "org.apache.kafka.common.security"
PLAIN_KEY = "listener.name.sasl.plain.sasl.jaas.config"
OAUTH_KEY = "listener.name.sasl.oauthbearer.sasl.jaas.config"
PLAIN = {PLAIN_KEY: f'{MODULES}.plain.PlainLoginModule required user_alice="hunter2";'}
SCRAM = {"sasl.enabled.mechanisms": "SCRAM-SHA-256"}
URL = "sasl.oauthbearer.jwks.endpoint.url"
ALLOWED = "org.apache.kafka.sasl.oauthbearer.allowed.urls"


def configured(values: Mapping[str, str]) -> ServerConfig:
    node = {
        "process.roles": "broker,controller",
        "node.id": "1",
        "controller.quorum.voters": "1@localhost:9093",
        "controller.listener.names": "CONTROLLER",
        "listeners": "SASL://localhost:9092,OTHER://localhost:9095,REPLICATION://localhost:9192,CONTROLLER://localhost:9093",
        "listener.security.protocol.map": "SASL:SASL_PLAINTEXT,OTHER:PLAINTEXT,REPLICATION:GRPC,CONTROLLER:PLAINTEXT",
        "inter.broker.listener.name": "REPLICATION",
    }
    return load(None, {"KAFKA_PROCESS_ROLES": "x"}, {**node, **values})


def problem(values: Mapping[str, str]) -> str:
    with pytest.raises(ConfigError) as caught:
        configured(values)
    assert len(caught.value.problems) == 1 and "hunter2" not in str(caught.value)
    return caught.value.problems[0]


def test_each_listener_with_sasl_has_its_own() -> None:
    found = configured({**PLAIN, "listener.name.sasl.sasl.enabled.mechanisms": "plain, SCRAM-SHA-512"})
    assert list(found.sasl) == ["SASL"] and found.warnings == ()
    sasl = found.sasl["SASL"]
    assert sasl.mechanisms == ("PLAIN", "SCRAM-SHA-512") and sasl.plain_users == {"alice": "hunter2"}
    assert (sasl.failure_delay_ms, sasl.max_receive_bytes, sasl.max_reauth_ms["PLAIN"]) == (100, 524_288, 0)
    assert "hunter2" not in repr(found) and "hunter2" not in repr(sasl)
    assert "hunter2" not in repr(found.explain())
    controllers = configured(
        {**SCRAM, "listener.security.protocol.map": "SASL:PLAINTEXT,OTHER:PLAINTEXT,CONTROLLER:SASL_PLAINTEXT"}
    )
    assert list(controllers.sasl) == ["CONTROLLER"]
    assert controllers.listener("CONTROLLER").security_protocol == "GRPC"  # type: ignore[union-attr]


def test_settings_differ_by_listener_and_mechanism() -> None:
    sasl = configured(
        {
            **PLAIN,
            "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256",
            "connections.max.reauth.ms": "5000",
            "listener.name.sasl.scram-sha-256.connections.max.reauth.ms": "7000",
            "listener.name.sasl.connection.failed.authentication.delay.ms": "50",
            "sasl.server.max.receive.size": "1000",
        }
    ).sasl["SASL"]
    assert sasl.max_reauth_ms == {"PLAIN": 5000, "SCRAM-SHA-256": 7000}
    assert (sasl.failure_delay_ms, sasl.max_receive_bytes) == (50, 1000)


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({}, "GSSAPI, which is its default, is not supported"),
        ({"sasl.enabled.mechanisms": "PLAIN,GSSAPI", **PLAIN}, "GSSAPI is not supported"),
        ({"sasl.enabled.mechanisms": ","}, "it is empty"),
        ({"sasl.enabled.mechanisms": "PLAIN"}, f"{PLAIN_KEY} is not set"),
        ({"sasl.enabled.mechanisms": "PLAIN", PLAIN_KEY: "hunter2"}, f"{PLAIN_KEY}: it does not begin with the class"),
        ({"sasl.enabled.mechanisms": "PLAIN", PLAIN_KEY: 'a.Mine required user_a="hunter2";'}, "its class is not that of PLAIN"),
        ({**SCRAM, "listener.name.othr.plain.sasl.jaas.config": "x"}, "othr is not a listener with SASL (SASL)"),
        ({**SCRAM, "listener.name.sasl.sasl.jaas.config": "x"}, "allowed is listener.name.NAME.MECHANISM.sasl.jaas.config"),
        ({**SCRAM, "sasl.jaas.config": "x"}, "with a listener and a mechanism before it"),
        ({**SCRAM, "connections.max.reauth.ms": "soon"}, "connections.max.reauth.ms=soon"),
        ({**SCRAM, "listener.name.sasl.scram-sha-256.connections.max.reauth.ms": "soon"}, "connections.max.reauth.ms=soon"),
        ({"sasl.enabled.mechanisms": "OAUTHBEARER"}, f"{OAUTH_KEY} is not set, nor {URL}"),
        (
            {"sasl.enabled.mechanisms": "OAUTHBEARER", "sasl.server.callback.handler.class": "org.example.Mine"},
            "Java classes cannot be loaded",
        ),
        (
            {
                **PLAIN,
                "sasl.enabled.mechanisms": "PLAIN",
                "listener.name.sasl.plain.sasl.server.callback.handler.class": "a.Ldap",
            },
            "Java classes cannot be loaded, and PLAIN has no other way to know its users",
        ),
        ({**SCRAM, "sasl.server.callback.handler.class": "a.Ldap"}, "no listener has OAUTHBEARER among its"),
        ({**SCRAM, "sasl.oauthbearer.expected.audience": "a"}, "no listener has OAUTHBEARER among its"),
        ({**SCRAM, "listener.name.sasl.sasl.oauthbearer.expected.audience": "a"}, "sasl has not OAUTHBEARER among its"),
        ({**SCRAM, "listener.name.other.sasl.oauthbearer.expected.audience": "a"}, "other is not a listener with SASL (SASL)"),
        ({**SCRAM, "listener.name.sasl.oauthbearer.sasl.oauthbearer.expected.issuer": "a"}, "sasl has not OAUTHBEARER among"),
        ({**SCRAM, "listener.name.sasl.scram-sha-256.sasl.server.max.receive.size": "9"}, "it does not differ by mechanism"),
        ({**SCRAM, "listener.name.sasl.scram-sha-256.ssl.client.auth": "none"}, "it does not differ by mechanism"),
    ],
)
def test_what_would_not_protect_is_refused(values: dict[str, str], words: str) -> None:
    """SE-10, BL-29."""
    assert words in problem(values)


def test_unsecured_tokens_are_taken_only_when_their_validator_is_configured() -> None:
    """SE-14."""
    module = f'{MODULES}.oauthbearer.OAuthBearerLoginModule required unsecuredValidatorRequiredScope="a";'
    found = configured({"sasl.enabled.mechanisms": "OAUTHBEARER", OAUTH_KEY: module})
    assert found.sasl["SASL"].oauth == UnsecuredRules(required_scope=("a",))


def test_signed_tokens_need_a_url_that_is_allowed() -> None:
    """SE-14."""
    pytest.importorskip("jwt", reason="the extra oauth")
    given = {"sasl.enabled.mechanisms": "OAUTHBEARER", URL: "https://issuer/keys"}
    assert "does not list it" in problem(given)
    for url in ("ftp://x/y", "https://user:hunter2@issuer/keys", "file://host/x", "/keys.json"):
        assert "allowed is https://" in problem({**given, URL: url, ALLOWED: url}).replace("hunter2", "")
    handler = f"{MODULES}.oauthbearer.OAuthBearerValidatorCallbackHandler"
    found = configured(
        {
            **given,
            ALLOWED: "https://other,https://issuer/keys",
            "sasl.server.callback.handler.class": handler,
            "listener.name.sasl.sasl.oauthbearer.expected.audience": "a, b",
            "sasl.oauthbearer.expected.issuer": "me",
            "sasl.oauthbearer.sub.claim.name": "name",
        }
    )
    wanted = SignedRules(url="https://issuer/keys", audiences=("a", "b"), issuer="me", principal_claim="name")
    assert found.sasl["SASL"].oauth == wanted


def test_who_serves_the_keys_is_trusted_as_the_login_module_says() -> None:
    """SE-14: Kafka's JaasOptionsUtils reads the settings of TLS from its options. One without an effect is no option."""
    pytest.importorskip("jwt", reason="the extra oauth")

    def given(options: str, url: str = "https://issuer/keys") -> dict[str, str]:
        module = f"{MODULES}.oauthbearer.OAuthBearerLoginModule required {options};"
        return {"sasl.enabled.mechanisms": "OAUTHBEARER", URL: url, ALLOWED: url, OAUTH_KEY: module}

    trust = 'ssl.truststore.type="PEM" ssl.truststore.location="/ca.pem"'
    found = configured(given(f'{trust} ssl.key.password="hunter2" clientId="broker"'))
    tls = {"ssl.truststore.type": "PEM", "ssl.truststore.location": "/ca.pem", "ssl.key.password": "hunter2"}
    assert found.sasl["SASL"].oauth == SignedRules(url="https://issuer/keys", tls=tls)
    assert "hunter2" not in repr(found)
    assert "has no effect" in problem(given(trust, "http://issuer/keys"))
    assert "allowed is" in problem(given('ssl.truststore.type="BKS"'))
    assert "ssl.provider is no option of it" in problem(given(f'{trust} ssl.provider="hunter3"'))
    assert "unsecuredValidatorRequiredScope is no option" in problem(given('unsecuredValidatorRequiredScope="a"'))


def test_keys_of_a_listener_without_sasl_are_told() -> None:
    """SE-10: users of that listener do not log in, whatever the key says."""
    found = configured({**PLAIN, "sasl.enabled.mechanisms": "PLAIN", "listener.name.open.sasl.enabled.mechanisms": "PLAIN"})
    assert found.warnings == (
        "those listeners do not speak SASL (protocol SASL_SSL or SASL_PLAINTEXT), so these keys have no effect: "
        "listener.name.open.sasl.enabled.mechanisms",
    )
