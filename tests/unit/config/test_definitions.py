"""The tables of keys: every default is allowed, and agrees between topic and broker."""

from __future__ import annotations

import pytest

from kraftlite.model.broker_configs import BROKER_CONFIGS, broker_key_of, topic_defaults, topic_synonyms
from kraftlite.model.configdef import ConfigKey, ConfigType, at_least, one_of
from kraftlite.model.errors import ApiError, ErrorCode
from kraftlite.model.topic_configs import TOPIC_CONFIGS, validate_topic_configs


@pytest.mark.parametrize("name", [name for name in TOPIC_CONFIGS if TOPIC_CONFIGS[name].server_key])
def test_a_topic_key_and_its_broker_key_have_the_same_default(name: str) -> None:
    key = TOPIC_CONFIGS[name]
    defaults = {broker: definition.default for broker, definition in BROKER_CONFIGS.items() if definition.default is not None}
    found = topic_defaults(defaults)[name]
    assert key.parse(found) == key.parse(key.default or "")
    for synonym, _ in topic_synonyms(name):
        assert synonym in BROKER_CONFIGS


def test_cm_49_the_strongest_synonym_wins_in_the_topic_keys_unit() -> None:
    assert topic_defaults({"log.retention.hours": "2"}) == {"retention.ms": str(2 * 3600 * 1000)}
    assert topic_defaults({"log.retention.hours": "2", "log.retention.minutes": "3"}) == {"retention.ms": "180000"}
    assert topic_defaults({"log.retention.minutes": "3", "log.retention.ms": "4"}) == {"retention.ms": "4"}
    assert topic_defaults({"log.retention.hours": "-1"}) == {"retention.ms": "-1"}
    assert topic_defaults({}) == {}


@pytest.mark.parametrize(
    ("kind", "text", "value"),
    [
        (ConfigType.BOOLEAN, " TRUE ", True),
        (ConfigType.INT, "-5", -5),
        (ConfigType.LONG, str(2**63 - 1), 2**63 - 1),
        (ConfigType.DOUBLE, "0.5", 0.5),
        (ConfigType.LIST, "a, b ,,c", ("a", "b", "c")),
        (ConfigType.LIST, "", ()),
        (ConfigType.STRING, " x ", "x"),
    ],
)
def test_parse(kind: ConfigType, text: str, value: object) -> None:
    assert ConfigKey(name="k", type=kind, default=None).parse(text) == value


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        (ConfigType.BOOLEAN, "yes"),
        (ConfigType.INT, "1.0"),
        (ConfigType.INT, str(2**31)),
        (ConfigType.INT, "1_000"),
        (ConfigType.INT, ""),
        (ConfigType.SHORT, "40000"),
        (ConfigType.DOUBLE, "much"),
    ],
)
def test_a_bad_value_names_key_value_and_what_is_allowed(kind: ConfigType, text: str) -> None:
    with pytest.raises(ValueError, match="allowed is") as caught:
        ConfigKey(name="some.key", type=kind, default=None).parse(text)
    assert f"some.key={text}" in str(caught.value)


def test_what_kafka_takes_is_taken() -> None:
    """An empty policy neither deletes nor compacts, and any negative size is no limit."""
    validate_topic_configs({"cleanup.policy": "", "retention.bytes": "-2"})


def test_limits_say_what_is_allowed() -> None:
    with pytest.raises(ValueError, match="allowed is a value of at least 3"):
        ConfigKey(name="k", type=ConfigType.INT, default=None, allowed=at_least(3)).parse("2")
    with pytest.raises(ValueError, match="allowed is one of a, b"):
        ConfigKey(name="k", type=ConfigType.STRING, default=None, allowed=one_of("a", "b")).parse("c")


def test_a_sensitive_value_is_not_in_the_message() -> None:
    key = ConfigKey(name="k", type=ConfigType.PASSWORD, default=None, sensitive=True, allowed=one_of("x"))
    with pytest.raises(ValueError, match="hidden") as caught:
        key.parse("hunter2")
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize(
    "values",
    [
        {"no.such.key": "1"},
        {"min.insync.replicas": "0"},
        {"cleanup.policy": "shred"},
        {"compression.type": "rar"},
        {"min.compaction.lag.ms": "5", "max.compaction.lag.ms": "4"},
        {"remote.storage.enable": "true"},
        {"leader.replication.throttled.replicas": "x"},
    ],
)
def test_topic_values_that_are_refused(values: dict[str, str]) -> None:
    with pytest.raises(ApiError) as caught:
        validate_topic_configs(values)
    assert caught.value.code is ErrorCode.INVALID_CONFIG
    assert next(iter(values)) in str(caught.value)


def test_topic_values_that_are_taken() -> None:
    validate_topic_configs(
        {
            "cleanup.policy": "compact,delete",
            "retention.ms": "-1",
            "leader.replication.throttled.replicas": "0:1,1:2",
            "follower.replication.throttled.replicas": "*",
            "segment.bytes": "1024",
        }
    )


def test_listener_prefixed_keys_have_the_definition_of_the_key() -> None:
    assert broker_key_of("listener.name.client.ssl.keystore.password") is BROKER_CONFIGS["ssl.keystore.password"]
    assert broker_key_of("listener.name.client") is None
    assert BROKER_CONFIGS["ssl.keystore.password"].sensitive
