"""Nothing that is configured is silently ignored: what becomes of each key of a node's configuration."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

import pytest

from kraftlite.config.server import ConfigError, ServerConfig, load
from kraftlite.model.broker_configs import BROKER_CONFIGS, topic_synonyms
from kraftlite.model.config_effects import EFFECTS, TOPIC_KEYS_WITHOUT_EFFECT, Effect, dynamic_refusal
from kraftlite.model.cordoned import CORDONED_DIRS
from kraftlite.model.topic_configs import TOPIC_CONFIGS
from kraftlite.replication.enrol_driver import VERIFICATION
from kraftlite.replication.throttle import FOLLOWER_REPLICAS, LEADER_REPLICAS

PACKAGE = Path(__file__).parents[3] / "kraftlite"
TABLES = ("broker_configs.py", "topic_configs.py", "config_effects.py")
NODE = (
    "config",
    "node",
    "broker",
    "controller",
    "coordinator",
    "replication",
    "raft",
    "metadata",
    "log",
    "wire",
    "model",
    "host",
    "tls",
)
NODE_CONFIG = {
    "process.roles": "broker,controller",
    "node.id": "1",
    "controller.quorum.voters": "1@localhost:9093",
    "controller.listener.names": "CONTROLLER",
    "listeners": "PLAINTEXT://localhost:9092,REPLICATION://localhost:9192,CONTROLLER://localhost:9093",
    "inter.broker.listener.name": "REPLICATION",
}
REFUSED = sorted(name for name, found in EFFECTS.items() if found.rule.effect is Effect.REFUSED)
IDLE = sorted(name for name, found in EFFECTS.items() if found.rule.effect is Effect.NONE)


def configured(values: Mapping[str, str], env: Mapping[str, str] | None = None) -> ServerConfig:
    return load(None, {"KAFKA_PROCESS_ROLES": "x", **(env or {})}, {**NODE_CONFIG, **values})


def problem(values: Mapping[str, str], env: Mapping[str, str] | None = None) -> str:
    with pytest.raises(ConfigError) as caught:
        configured(values, env)
    assert len(caught.value.problems) == 1
    return caught.value.problems[0]


def another(name: str) -> str:
    """A value that is allowed and is not the default."""
    key = BROKER_CONFIGS.get(name)
    usual = EFFECTS[name].default or ""
    if key is None:
        return "7" if usual.replace(".", "").isdigit() else "true" if usual == "false" else "something"
    for text in ("7", "true", "something", "requested", "false", "1", "gzip"):
        try:
            if key.parse(text) != (key.parse(usual) if usual else None):
                return text
        except ValueError:
            continue
    raise AssertionError(f"{name} has no other value")


@pytest.fixture(scope="module")
def sources() -> str:
    """The code of a node without its tables of keys."""
    files = (path for folder in NODE for path in sorted((PACKAGE / folder).rglob("*.py")) if path.name not in TABLES)
    return "\n".join(path.read_text() for path in files)


@pytest.mark.parametrize("name", REFUSED)
def test_a_key_that_protects_and_does_nothing_is_refused_by_name(name: str) -> None:
    """BL-29."""
    told = problem({name: another(name)})
    assert told.startswith(f"{name}=") and EFFECTS[name].rule.words in told
    assert re.search(r"; (remove it|set it)", told), "it says what to do"


@pytest.mark.parametrize("name", REFUSED)
def test_its_default_promises_nothing_and_is_taken(name: str) -> None:
    assert configured({name: EFFECTS[name].default or ""}).warnings == ()


def test_keys_without_effect_are_told_in_one_line() -> None:
    """BL-29."""
    found = configured({name: another(name) for name in IDLE}).warnings
    assert len(found) == 1 and f"{len(IDLE)} keys have no effect here" in found[0]
    assert all(name in found[0] for name in IDLE)
    assert configured({name: EFFECTS[name].default or "" for name in IDLE}).warnings == ()


def test_a_key_with_an_effect_in_part_says_which() -> None:
    found = configured({"replica.selector.class": "org.example.Mine"}).warnings
    assert found == (f"replica.selector.class has an effect in part: {EFFECTS['replica.selector.class'].rule.words}",)


def test_what_is_applied_is_read_and_what_is_not_is_not(sources: str) -> None:
    """BL-29. Who makes a key effective takes it out of the table; who takes its effect away puts it in."""
    of_topics = {key for name in TOPIC_CONFIGS for key, _ in topic_synonyms(name)}
    wrong = []
    for name, found in EFFECTS.items():
        read = f'"{name}"' in sources
        if found.rule.effect in (Effect.APPLIED, Effect.IN_PART) and not read and name not in of_topics:
            wrong.append(f"{name} is said to be applied, and nothing reads it")
        if found.rule.effect in (Effect.NONE, Effect.REFUSED) and read:
            wrong.append(f"{name} is {found.rule.effect} in kraftlite/model/config_effects.py, and something reads it")
    assert not wrong, "\n".join(wrong)


def test_each_key_that_brokers_describe_is_in_one_class() -> None:
    assert set(BROKER_CONFIGS) <= set(EFFECTS)
    described = {name: found.default for name, found in EFFECTS.items() if name in BROKER_CONFIGS}
    usual = {name: BROKER_CONFIGS[name].default for name in described if BROKER_CONFIGS[name].default is not None}
    assert {name: described[name] for name in usual} == usual


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("listener.name.client.ssl.provider", "BC", "TLS is OpenSSL's here"),
        ("listener.name.client.scram-sha-256.sasl.login.callback.handler.class", "x", "nodes do not log in to one another"),
        ("listener.name.client.max.connections.per.ip", "5", "limits of single listeners are not applied"),
        ("ssl.keystore.filename", "kafka.jks", "TLS is OpenSSL's here"),
        ("sasl.anything", "x", "neither Kerberos nor a place for Java classes"),
        ("authorizer.class", "x", "belongs to an authorizer that is not StandardAuthorizer"),
        ("delegation.token.master.key", "x", "remove it, and set that one"),
        ("quota.producer.default", "1000", "quotas are set with kafka-configs"),
        ("rsm.config.endpoint", "x", "there is no tiered storage"),
        ("config.providers.file.class", "x", "not resolved"),
    ],
)
def test_prefixed_and_other_keys_of_a_family_are_refused_too(name: str, value: str, words: str) -> None:
    told = problem({name: value})
    assert told.startswith(f"{name}=") and words in told and "=secret" not in told


def test_a_listener_of_its_own_may_repeat_a_default_or_tune_what_is_not_there() -> None:
    assert configured({"listener.name.client.ssl.client.auth": "none"}).warnings == ()
    found = configured({"listener.name.client.num.network.threads": "9"}).warnings
    assert len(found) == 1 and "listener.name.client.num.network.threads" in found[0]


def test_the_environment_goes_through_the_same_table() -> None:
    assert "TLS is OpenSSL's here" in problem({}, {"KAFKA_CFG_LISTENER_NAME_CLIENT_SSL_PROVIDER": "BC"})


STANDARD = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"authorizer.class.name": "org.example.Mine"}, "authorizer.class.name=org.example.Mine: the only authorizer here is"),
        ({"super.users": "User:a"}, "super.users is set and does nothing without an authorizer"),
        ({"allow.everyone.if.no.acl.found": "true"}, "does nothing without an authorizer"),
        ({"authorizer.class.name": STANDARD, "super.users": "User:a;b"}, "super.users=User:a;b: a principal is written as"),
        (
            {"authorizer.class.name": STANDARD, "early.start.listeners": "NOPE"},
            "early.start.listeners names the listener NOPE, which is not in listeners",
        ),
    ],
)
def test_keys_of_an_authorizer_that_would_not_do_what_they_say_are_refused(values: dict[str, str], words: str) -> None:
    assert words in problem(values)


def test_the_standard_authorizer_is_taken() -> None:
    found = configured(
        {"authorizer.class.name": STANDARD, "super.users": "User:a; User:b", "allow.everyone.if.no.acl.found": "true"}
    )
    assert not found.problems and found.values["super.users"] == "User:a; User:b"


def test_listeners_for_nodes_that_anybody_may_use_are_told() -> None:
    """SE-06: neither an authorizer nor a login is asked for there."""
    map_key, words = "listener.security.protocol.map", "listeners for nodes in plain text: "
    all_of, none_of = f"{words}REPLICATION, CONTROLLER. ", ()
    assert configured({"authorizer.class.name": STANDARD}).warnings[0].startswith(all_of)
    login = {"sasl.enabled.mechanisms": "SCRAM-SHA-512", map_key: "CONTROLLER:SASL_PLAINTEXT"}
    assert configured(login).warnings[0].startswith(all_of)
    assert configured({}).warnings == configured({"super.users": ""}).warnings == none_of
    protected = {
        "authorizer.class.name": STANDARD,
        map_key: "CONTROLLER:SSL,REPLICATION:GRPC_TLS",
        "ssl.keystore.location": "/x.pem",
        "ssl.keystore.type": "PEM",
    }
    found = load(None, {"KAFKA_PROCESS_ROLES": "x"}, {**NODE_CONFIG, **protected}, check=False)
    assert not [it for it in found.warnings if it.startswith(words)]


def test_keys_of_tls_where_nothing_speaks_it_are_told_in_one_line() -> None:
    """SE-01."""
    found = configured({"ssl.keystore.location": "/x.p12", "listener.name.x.ssl.key.password": "geheim"}).warnings
    assert found == (
        "no listener speaks TLS (protocol SSL), so these keys have no effect: "
        "listener.name.x.ssl.key.password, ssl.keystore.location",
    )


@pytest.mark.parametrize(
    ("values", "keys"),
    [
        ({"sasl.enabled.mechanisms": "PLAIN"}, "sasl.enabled.mechanisms"),
        ({"listener.name.plaintext.sasl.enabled.mechanisms": "PLAIN"}, "listener.name.plaintext.sasl.enabled.mechanisms"),
        (
            {"connections.max.reauth.ms": "1000", "sasl.server.max.receive.size": "100"},
            "connections.max.reauth.ms, sasl.server.max.receive.size",
        ),
    ],
)
def test_keys_of_logins_where_nobody_logs_in_are_told_in_one_line(values: dict[str, str], keys: str) -> None:
    """SE-10."""
    assert configured(values).warnings == (
        f"no listener speaks SASL (protocol SASL_SSL or SASL_PLAINTEXT), so these keys have no effect: {keys}",
    )
    assert configured({"sasl.enabled.mechanisms": "GSSAPI", "connections.max.reauth.ms": "0"}).warnings == ()


def test_an_unknown_key_is_only_a_warning_and_what_was_meant_is_said() -> None:
    found = configured({"log.retention.hour": "5", "zookeeper.connect": "localhost:2181", "my.plugin": "x"}).warnings
    assert found[0].startswith("unknown configuration key log.retention.hour ")
    assert found[0].endswith("has no effect; did you mean log.retention.hours?")
    assert found[1].endswith("has no effect") and found[2].endswith("has no effect")


def test_many_unknown_keys_are_counted() -> None:
    found = configured({f"key{n}": "x" for n in range(1000)}).warnings
    assert len(found) == 21 and found[-1] == "980 more configuration keys are unknown"


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("ssl.provider", "BC", "TLS is OpenSSL's here"),
        ("listener.name.x.ssl.engine.factory.class", "x", "TLS is OpenSSL's here"),
        ("client.quota.callback.class", "com.example.Quotas", "Java classes cannot be loaded"),
        ("log.cleaner.io.max.bytes.per.second", "1000", "cannot be changed while the node runs"),
    ],
)
def test_what_is_refused_in_the_file_is_refused_while_the_node_runs(name: str, value: str, words: str) -> None:
    """BL-29."""
    told = dynamic_refusal(name, value)
    assert told is not None and name in told and words in told


KAFKAS_SERVER = """
process.roles=broker,controller
node.id=1
controller.quorum.bootstrap.servers=localhost:9093
listeners=PLAINTEXT://:9092,CONTROLLER://:9093
inter.broker.listener.name=PLAINTEXT
advertised.listeners=PLAINTEXT://localhost:9092,CONTROLLER://localhost:9093
controller.listener.names=CONTROLLER
listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT,SASL_SSL:SASL_SSL
num.network.threads=3
num.io.threads=8
socket.send.buffer.bytes=102400
socket.receive.buffer.bytes=102400
socket.request.max.bytes=104857600
log.dirs=/tmp/kraft-combined-logs
num.partitions=1
num.recovery.threads.per.data.dir=2
offsets.topic.replication.factor=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
log.retention.hours=168
log.segment.bytes=1073741824
log.retention.check.interval.ms=300000
"""


def test_the_file_that_kafka_comes_with_starts(tmp_path: Path) -> None:
    path = tmp_path / "server.properties"
    path.write_text(KAFKAS_SERVER)
    config = load(path)
    assert config.problems == () and config.quorum_voters[0].node_id == 1
    idle = [line for line in config.warnings if "no effect" in line]
    assert len(idle) == 1 and "num.io.threads" not in idle[0], "defaults are not told"


@pytest.mark.parametrize("role", ["broker", "controller"])
def test_the_files_for_one_role_that_kafka_comes_with_start(tmp_path: Path, role: str) -> None:
    text = KAFKAS_SERVER.replace("broker,controller", role)
    if role == "broker":
        text = text.replace(",CONTROLLER://:9093", "").replace(",CONTROLLER://localhost:9093", "")
    else:
        text = text.replace("PLAINTEXT://:9092,", "").replace("PLAINTEXT://localhost:9092,", "")
        text = text.replace("inter.broker.listener.name=PLAINTEXT\n", "")
    path = tmp_path / "server.properties"
    path.write_text(text)
    found = load(path)
    assert found.problems == () and found.quorum_voters == ()
    path.write_text(text + "controller.quorum.voters=1@localhost:9093\n" + ("node.id=2\n" if role == "broker" else ""))
    assert load(path).problems == ()


def test_what_may_change_while_a_node_runs_does_or_says_that_it_does_not() -> None:
    """A dynamic key is a default of topics, which follow at once, or replicas, listeners or directories take it over; or it has
    a word about what setting it does."""
    live = {key for name in TOPIC_CONFIGS for key, _ in topic_synonyms(name)}
    live |= {"producer.id.expiration.ms", "group.consumer.assignment.interval.ms", VERIFICATION, CORDONED_DIRS}
    live |= {
        "max.connections",
        "max.connection.creation.rate",
        "leader.replication.throttled.rate",
        "follower.replication.throttled.rate",
        "replica.alter.log.dirs.io.max.bytes.per.second",
        "max.connections.per.ip",
        "max.connections.per.ip.overrides",
        "listeners",
        "listener.security.protocol.map",
    }
    silent = [
        name
        for name, key in BROKER_CONFIGS.items()
        if key.dynamic != "read-only" and name not in live and not EFFECTS[name].rule.words
    ]
    assert silent == []


def test_each_key_of_a_topic_is_read_or_said_to_have_no_effect(sources: str) -> None:
    elsewhere = {"unclean.leader.election.enable", "remote.storage.enable"}  # the controller's, and refused
    elsewhere |= {LEADER_REPLICAS, FOLLOWER_REPLICAS}
    fields = {name: name.replace(".", "_") for name in TOPIC_CONFIGS if name not in elsewhere}
    read = {name for name, field in fields.items() if re.search(rf"\.{field}\b", sources)}
    assert set(fields) - read == set(TOPIC_KEYS_WITHOUT_EFFECT)
