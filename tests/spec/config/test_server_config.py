"""A node's configuration: precedence, role and listener rules, and every problem at once."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from kraftlite.config.listeners import QuorumVoter
from kraftlite.config.server import ConfigError, ServerConfig, load
from kraftlite.model.ids import Endpoint, NodeId

BROKER = {
    "process.roles": "broker",
    "node.id": "4",
    "controller.quorum.voters": "1@c1:9093,2@c2:9093,3@c3:9093",
    "controller.listener.names": "CONTROLLER",
    "listeners": "PLAINTEXT://127.0.0.1:9092,REPLICATION://127.0.0.1:9192",
    "inter.broker.listener.name": "REPLICATION",
}
CONTROLLER = {
    "process.roles": "controller",
    "node.id": "1",
    "controller.quorum.voters": "1@c1:9093,2@c2:9093,3@c3:9093",
    "controller.listener.names": "CONTROLLER",
    "listeners": "CONTROLLER://:9093",
}


def built(base: dict[str, str], **changes: str | None) -> ServerConfig:
    values: dict[str, str] = dict(base)
    for name, value in changes.items():
        key = name.replace("_", ".")
        if value is None:
            values.pop(key, None)
        else:
            values[key] = value
    return load(None, {"KAFKA_PROCESS_ROLES": "x"}, values, hostname=lambda: "here")


def problems(base: dict[str, str], **changes: str | None) -> str:
    with pytest.raises(ConfigError) as caught:
        built(base, **changes)
    return "\n".join(caught.value.problems)


def write(path: Path, values: dict[str, str]) -> Path:
    path.write_text("".join(f"{key}={value}\n" for key, value in values.items()))
    return path


def test_a_broker_and_a_controller() -> None:
    broker, controller = built(BROKER), built(CONTROLLER)
    assert (broker.node_id, broker.roles, broker.is_broker, broker.is_controller) == (4, ("broker",), True, False)
    assert broker.inter_broker_listener_name == "REPLICATION"
    assert [(item.name, item.security_protocol) for item in broker.advertised_listeners] == [
        ("PLAINTEXT", "PLAINTEXT"),
        ("REPLICATION", "GRPC"),
    ]
    assert broker.quorum_voters[1] == QuorumVoter(node_id=NodeId(2), endpoint=Endpoint("c2", 9093))
    assert controller.advertised_listeners == ()
    assert [(item.name, item.host, item.security_protocol) for item in controller.advertised_controller_listeners] == [
        ("CONTROLLER", "here", "GRPC")
    ]
    assert controller.inter_broker_listener_name is None


def test_precedence_is_defaults_file_environment_flags(tmp_path: Path) -> None:
    path = write(tmp_path / "server.properties", {**BROKER, "num.partitions": "2", "num.io.threads": "2"})
    env = {"KAFKA_NUM_PARTITIONS": "3", "KAFKA_CFG_NUM_PARTITIONS": "9", "KAFKA_NUM_NETWORK_THREADS": "5"}
    config = load(path, env, {"num.network.threads": "6"})
    assert config.get_int("num.partitions") == 3
    assert config.get_int("num.io.threads") == 2
    assert config.get_int("num.network.threads") == 6
    assert config.get_int("queued.max.requests") == 500
    sources = {line.key: line.source for line in config.explain()}
    assert sources["num.partitions"] == "environment KAFKA_NUM_PARTITIONS"
    assert sources["num.io.threads"].endswith("server.properties:8")
    assert sources["num.network.threads"] == "flag --override"
    assert sources["queued.max.requests"] == "default"
    assert "queued.max.requests" not in config.explicit
    assert config.explicit["num.partitions"] == "3"


def test_an_unknown_key_is_a_warning() -> None:
    config = built(BROKER, zookeeper_connect="localhost:2181")
    assert any("zookeeper.connect" in warning for warning in config.warnings)


def test_cm_51_sensitive_values_are_not_explained() -> None:
    text = {"ssl_keystore_password": "hunter2", "my_secret": "hunter3", "listener_name_x_plain_sasl_jaas_config": "hunter4"}
    values = {**BROKER, **{name.replace("_", "."): value for name, value in text.items()}}
    config = load(None, {"KAFKA_PROCESS_ROLES": "x"}, values, check=False)
    assert "hunter" not in str(config.explain()) + str(config.problems) + str(config.warnings)
    assert len(config.problems) == 1


@pytest.mark.parametrize(
    "key",
    [
        "delegation.token.master.key",  # as it was called before Kafka 3
        "ssl.key.passwrd",
        "ssl.Key.PassWord",
        "listener.name.x.ssl.keystore.passwd",
        "listener.name.x.plain.sasl.jaas.conf",
        "ssl.keystore.key.",
        "api.key",
    ],
)
def test_cm_51_what_may_be_a_secret_under_a_misspelt_key_is_not_explained(key: str) -> None:
    config = load(None, {"KAFKA_PROCESS_ROLES": "x"}, {**BROKER, key: "hunter2"}, check=False)
    assert key in str(config.explain()) and "hunter2" not in f"{config.explain()} {config.problems} {config.warnings}"


def test_all_problems_are_reported_at_once() -> None:
    found = problems(
        BROKER, node_id="minus", num_partitions="0", listeners="PLAINTEXT:9092", controller_quorum_voters="1@c1", log_roll_ms="x"
    )
    for key in ("node.id=minus", "num.partitions=0", "PLAINTEXT:9092", "1@c1", "log.roll.ms=x"):
        assert key in found


def test_a_missing_file_is_a_problem_that_names_it(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"absent\.properties"):
        load(tmp_path / "absent.properties")


# --- RF-58 ------------------------------------------------------------------------------------------------------------


def test_rf_58_a_controller_must_be_a_voter() -> None:
    assert "not among the voters 1, 2, 3" in problems(CONTROLLER, node_id="9")


def test_rf_58_a_mere_broker_must_not_be_a_voter() -> None:
    assert "only a broker" in problems(BROKER, node_id="2")


@pytest.mark.parametrize("entry", ["1", "1@c1", "x@c1:1", "1@c1:0", "1@:9", "1@c1:99999", "-1@c1:9", "1@0.0.0.0:9093"])
def test_rf_58_malformed_voters_are_named(entry: str) -> None:
    assert entry in problems(CONTROLLER, controller_quorum_voters=entry)


def test_rf_58_duplicate_voters_are_refused() -> None:
    assert "id 1 is there twice" in problems(CONTROLLER, controller_quorum_voters="1@c1:9093,1@c2:9093")
    assert "c1:9093 is there twice" in problems(CONTROLLER, controller_quorum_voters="1@c1:9093,2@c1:9093")


def test_dq_24_a_broker_does_not_join_the_voters() -> None:
    joining = {"controller.quorum.auto.join.enable": "true"}
    assert "this node is only a broker" in problems(BROKER | joining)
    assert not built(CONTROLLER | joining).problems


def test_rf_58_neither_voters_nor_bootstrap_servers() -> None:
    assert "nor controller.quorum.bootstrap.servers" in problems(CONTROLLER, controller_quorum_voters=None)


# --- BL-25 ------------------------------------------------------------------------------------------------------------


def test_bl_25_controller_listener_names_are_required() -> None:
    assert "controller.listener.names is not set" in problems(BROKER, controller_listener_names=None)
    assert "controller.listener.names is not set" in problems(CONTROLLER, controller_listener_names=None)


def test_bl_25_a_controller_needs_its_controller_listener() -> None:
    assert "OTHER is not among the listeners" in problems(CONTROLLER, controller_listener_names="OTHER")
    assert "listeners is not set" in problems(CONTROLLER, listeners=None)


def test_bl_25_a_mere_controller_has_only_controller_listeners() -> None:
    found = problems(CONTROLLER, listeners="CONTROLLER://:9093,PLAINTEXT://:9092")
    assert "PLAINTEXT is not in controller.listener.names" in found


def test_bl_25_a_mere_broker_has_and_advertises_no_controller_listener() -> None:
    found = problems(
        BROKER,
        listeners="PLAINTEXT://h:9092,REPLICATION://h:9192,CONTROLLER://h:9093",
        advertised_listeners="PLAINTEXT://h:9092,REPLICATION://h:9192,CONTROLLER://h:9093",
    )
    assert "CONTROLLER is a controller listener (controller.listener.names)" in found
    assert "a broker must not advertise it" in found


def test_bl_25_the_inter_broker_listener_must_exist_and_be_advertised() -> None:
    assert "allowed is one of PLAINTEXT, REPLICATION" in problems(BROKER, inter_broker_listener_name="NOPE")
    assert "must be advertised" in problems(BROKER, advertised_listeners="PLAINTEXT://h:9092")
    combined = {**CONTROLLER, "process.roles": "broker,controller", "listeners": "CONTROLLER://:9093,PLAINTEXT://h:9092"}
    assert "is a controller listener" in problems(combined, inter_broker_listener_name="CONTROLLER")


def test_bl_25_advertised_listeners_are_among_the_listeners_and_reachable() -> None:
    found = problems(
        BROKER,
        advertised_listeners="PLAINTEXT://0.0.0.0:1,OTHER://h:2,REPLICATION://h:3",
        listener_security_protocol_map="OTHER:PLAINTEXT",
    )
    assert "OTHER is not among the listeners" in found
    assert "0.0.0.0 is not an address" in found


def test_bl_25_node_id_is_required_and_not_negative() -> None:
    assert "node.id is not set" in problems(BROKER, node_id=None)
    assert "node.id=-1" in problems(BROKER, node_id="-1")
    assert "disagree" in problems(BROKER, broker_id="5")
    assert built(BROKER, node_id=None, broker_id="7").node_id == 7


def test_bl_25_duplicate_names_and_ports_are_refused() -> None:
    found = problems(BROKER, listeners="PLAINTEXT://:9092,PLAINTEXT://:9093,REPLICATION://:9092")
    assert "PLAINTEXT is there twice" in found
    assert "both use port 9092" in found


@pytest.mark.parametrize("roles", ["", "zookeeper", "broker,broker"])
def test_bl_25_roles(roles: str) -> None:
    assert "process.roles" in problems(BROKER, process_roles=roles)


def test_protocols_that_are_not_known_are_refused() -> None:
    assert "allowed is NAME:PROTOCOL" in problems(BROKER, listener_security_protocol_map="PLAINTEXT:TELNET")


# --- pasted Kafka configurations --------------------------------------------------------------------------------------


def test_a_pasted_kafka_configuration_gets_a_grpc_listener() -> None:
    """The official three-broker example: one Kafka listener is named for replication, and controllers speak PLAINTEXT."""
    config = built(
        BROKER,
        listeners="PLAINTEXT://:19092,PLAINTEXT_HOST://:9092",
        advertised_listeners="PLAINTEXT://kafka-1:19092,PLAINTEXT_HOST://localhost:29092",
        listener_security_protocol_map="CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,PLAINTEXT_HOST:PLAINTEXT",
        inter_broker_listener_name="PLAINTEXT",
    )
    assert config.inter_broker_listener_name == "REPLICATION"
    assert [(item.name, item.host, item.port) for item in config.advertised_listeners] == [
        ("PLAINTEXT", "kafka-1", 19092),
        ("PLAINTEXT_HOST", "localhost", 29092),
        ("REPLICATION", "kafka-1", 19192),
    ]
    controller = built(CONTROLLER, listener_security_protocol_map="CONTROLLER:PLAINTEXT")
    assert controller.listeners[0].security_protocol == "GRPC"


def test_without_an_inter_broker_listener_the_first_grpc_listener_is_taken() -> None:
    assert built(BROKER, inter_broker_listener_name=None).inter_broker_listener_name == "REPLICATION"
    derived = built(BROKER, inter_broker_listener_name=None, listeners="PLAINTEXT://:9092")
    assert [(item.name, item.port) for item in derived.listeners] == [("PLAINTEXT", 9092), ("REPLICATION", 9192)]
    assert derived.advertised_listeners[0].host == "here"


def test_a_derived_port_avoids_the_others() -> None:
    config = built(
        BROKER,
        inter_broker_listener_name="PLAINTEXT",
        listeners="PLAINTEXT://:9092,EXTRA://:9192",
        listener_security_protocol_map="EXTRA:PLAINTEXT",
    )
    assert config.listeners[-1].port == 9193


def test_nothing_set_at_all_is_a_single_combined_node() -> None:
    config = load(None, {}, hostname=lambda: "here")
    assert config.roles == ("broker", "controller")
    assert config.node_id == 1
    merged = load(None, {"KAFKA_NUM_PARTITIONS": "3", "CLUSTER_ID": "abc"}, hostname=lambda: "here")
    assert merged.roles == ("broker", "controller")
    assert merged.get_int("num.partitions") == 3
    assert merged.cluster_id == "abc"


# --- cross-checks -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("replica.fetch.wait.max.ms", "40000"),
        ("replica.lag.time.max.ms", "400"),
        ("broker.session.timeout.ms", "2000"),
        ("log.retention.ms", "0"),
        ("log.retention.hours", "0"),
        ("log.cleaner.threads", "1000"),
        ("group.min.session.timeout.ms", "1800001"),
        ("group.consumer.heartbeat.interval.ms", "45000"),
        ("metadata.log.segment.bytes", "1024"),
    ],
)
def test_values_that_do_not_go_together(key: str, value: str) -> None:
    assert key in problems({**BROKER, key: value})


def test_log_directories() -> None:
    config = built(BROKER, log_dirs=" /a, /a", metadata_log_dir="/m")
    assert config.log_dirs == ("/a",)
    assert config.metadata_log_dir == "/m"
    assert config.all_log_dirs == ("/m", "/a")
    assert built(BROKER).metadata_log_dir == "/tmp/kafka-logs"
    assert built(BROKER, log_dir="/b", log_dirs=None).all_log_dirs == ("/b",)
    assert built(BROKER, log_dirs="~nobody-of-this-name/a").log_dirs[0].endswith("/~nobody-of-this-name/a")


@pytest.mark.parametrize("key", ["log_dirs", "log_dir"])
def test_several_log_directories(key: str) -> None:
    """The metadata log is in the first, where nothing else is said."""
    config = built(BROKER, **{"log_dirs": None, key: "/a,/b"})
    assert config.log_dirs == config.all_log_dirs == ("/a", "/b") and config.metadata_log_dir == "/a"


QUICKSTART = {
    "process.roles": "broker,controller",
    "node.id": "1",
    "controller.quorum.bootstrap.servers": "localhost:9093",
    "listeners": "PLAINTEXT://:9092,CONTROLLER://:9093",
    "inter.broker.listener.name": "PLAINTEXT",
    "advertised.listeners": "PLAINTEXT://localhost:9092,CONTROLLER://localhost:9093",
    "controller.listener.names": "CONTROLLER",
    "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SSL:SSL",
}
"""As in the server.properties that Kafka 4 comes with."""


def test_kafkas_own_server_properties_is_a_quorum_of_one() -> None:
    found = built(QUICKSTART)
    assert found.quorum_voters == (QuorumVoter(node_id=NodeId(1), endpoint=Endpoint("localhost", 9093)),)


@pytest.mark.parametrize(
    "change",
    [
        {"controller.quorum.bootstrap.servers": "localhost:9099"},
        {"controller.quorum.bootstrap.servers": "localhost:9093,other:9093"},
    ],
)
def test_others_of_a_quorum_are_not_guessed(change: dict[str, str]) -> None:
    assert built(QUICKSTART | change).quorum_voters == ()


def test_who_names_another_server_of_the_quorum_is_not_its_only_voter() -> None:
    combined = {
        "process.roles": "broker,controller",
        "node.id": "1",
        "controller.listener.names": "CONTROLLER",
        "listeners": "PLAINTEXT://:9092,CONTROLLER://:9093",
    }
    for own in ("localhost:9093", "127.0.0.1:9093", "[::1]:9093", "here:9093"):
        assert built({**combined, "controller.quorum.bootstrap.servers": own}).quorum_voters[0].node_id == 1
    named = {**combined, "advertised.listeners": "PLAINTEXT://c1:9092,CONTROLLER://c1:9093"}
    assert built({**named, "controller.quorum.bootstrap.servers": "c1:9093"}).quorum_voters[0].endpoint == Endpoint("c1", 9093)
    for others in ("localhost:9193", "c2:9093", "localhost:9093,c2:9093"):
        assert built({**combined, "controller.quorum.bootstrap.servers": others}).quorum_voters == ()


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"x" * (1024 * 1024 + 1), "is larger than 1048576 bytes"),
        (b"node.id=1\nbroker.rack=\xff\n", "line 2: byte 0xff is not UTF-8"),
        (b"node.id=1\\u12", "line 1: \\u12 is not an escape"),
        (b"node.id=\\u+123", "line 1: \\u+123 is not an escape"),
        (b"broker.rack=\\ud83d", "line 1: half of a surrogate pair"),
        (b"broker.rack=a\x00b", "broker.rack; its value contains the control character U+0000"),
        (b"node.id\x1b[2J=1", "its name contains the control character U+001B"),
        (b"log.dirs=/a\\u0000b", "log.dirs; its value contains the control character U+0000"),
        (b"broker.rack=" + b"x" * 70_000, "broker.rack has 70000 characters; allowed are at most 65536"),
        (b"node.id=" + b"9" * 5_000, "allowed is a whole number from -2147483648 to 2147483647"),
        (b"node.id=-" + b"0" * 300 + b"1", "allowed is a value of at least 0"),
        (b"node.id=-" + b"0" * 5_000 + b"1", "allowed is a whole number from -2147483648 to 2147483647"),
        (b"log.retention.ms=9223372036854775808", "log.retention.ms=9223372036854775808: allowed is a whole number"),
        (b"log.retention.ms=-9223372036854775809", "log.retention.ms=-9223372036854775809: allowed is a whole number"),
        (b"log.retention.ms=+", "log.retention.ms=+: allowed is a whole number"),
        ("num.partitions=\u0661".encode(), "num.partitions=\u0661: allowed is a whole number"),
        (b"log.cleaner.min.cleanable.ratio=nan", "log.cleaner.min.cleanable.ratio=nan: allowed is a decimal number"),
        (b"log.cleaner.io.max.bytes.per.second=1e999", "log.cleaner.io.max.bytes.per.second=1e999: allowed is a decimal number"),
        (b"log.cleaner.io.max.bytes.per.second=1_0", "log.cleaner.io.max.bytes.per.second=1_0: allowed is a decimal number"),
        (b"listeners=PLAINTEXT://h:" + b"9" * 5_000, "allowed is NAME://host:port"),
        (b"controller.quorum.voters=" + b"9" * 5_000 + b"@h:1", "allowed is id@host:port"),
        (b"controller.quorum.voters=2147483648@h:1", "allowed is id@host:port"),
        (b"controller.quorum.voters=1@a..b:1", "allowed is id@host:port"),
        (b"controller.quorum.bootstrap.servers=a b:1", "allowed is host:port"),
        (b"listeners=PLAINTEXT://a..b:9092", "PLAINTEXT://a..b:9092: allowed is NAME://host:port"),
        (b"advertised.listeners=PLAINTEXT://" + b"a" * 64 + b":9092", "allowed is NAME://host:port"),
        (b"listeners=PLAINTEXT://user@h:9092", "allowed is NAME://host:port"),
        (b"offsets.topic.compression.codec=9", "allowed is a value between 0 and 4"),
        (b"controller.quorum.bootstrap.servers=h:" + b"9" * 5_000, "allowed is host:port"),
        (b"group.consumer.session.timeout.ms=70000", "must not exceed group.consumer.max.session.timeout.ms=60000"),
        (b"include=/etc/kafka/common.properties", None),
        (b"broker.rack=${file:/etc/secret:rack}", None),
        (b"a\\\n" * 200_000, None),
        (b"".join(b"key%d=1\n" % n for n in range(60_000)), None),
    ],
)
def test_whatever_is_in_the_file_is_told_in_words(tmp_path: Path, content: bytes, words: str | None) -> None:
    """Bounded time, bounded words, no traceback; without words it is only a warning, or a text as it stands."""
    path = tmp_path / "server.properties"
    head = "".join(f"{key}={value}\n" for key, value in BROKER.items()) if words is None else ""
    path.write_bytes(head.encode() + content)
    began = time.process_time()
    try:
        told = "\n".join(load(path).warnings)
    except ConfigError as error:
        assert words is not None and words.split(";")[0] in str(error) and words.split(";")[-1] in str(error)
        told = "\n".join(error.problems)
    else:
        assert words is None
    assert time.process_time() - began < 5
    assert len(told) < 20_000 and not set(told) & {"\x00", "\x1b"}


def test_a_character_beyond_the_basic_plane_takes_two_escapes(tmp_path: Path) -> None:
    path = write(tmp_path / "server.properties", {**BROKER, "broker.rack": "\\ud83d\\ude80"})
    assert load(path).values["broker.rack"] == "\U0001f680"


def test_a_pipe_in_the_place_of_the_file_is_not_waited_for(tmp_path: Path) -> None:
    path = tmp_path / "server.properties"
    os.mkfifo(path)
    with pytest.raises(ConfigError, match=r"server\.properties is a pipe that nobody writes into"):
        load(path, {}, {})
