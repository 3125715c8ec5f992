"""Which listeners a broker has by its dynamic values, and what it cannot have (CB-06)."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from kraftlite.config.live_listeners import LiveListeners, live_listeners
from kraftlite.config.server import ServerConfig, load
from kraftlite.model.messages.controller import ListenerInfo

NODE = {
    "process.roles": "broker,controller",
    "node.id": "1",
    "controller.quorum.voters": "1@localhost:9093",
    "controller.listener.names": "CONTROLLER",
    "listeners": "PLAINTEXT://localhost:9092,REPLICATION://localhost:9192,CONTROLLER://localhost:9093",
    "inter.broker.listener.name": "REPLICATION",
}
BETWEEN = "REPLICATION://localhost:9192,CONTROLLER://localhost:9093"
PLAIN = "PLAINTEXT://localhost:9092"
MAP = "listener.security.protocol.map"
_MANY = ",".join(f"N{n}:PLAINTEXT" for n in range(80))
PLAIN_JAAS = 'org.apache.kafka.common.security.plain.PlainLoginModule required user_alice="hunter2";'


def node(values: Mapping[str, str] | None = None, *, without: str = "") -> ServerConfig:
    given = {key: text for key, text in {**NODE, **(values or {})}.items() if key != without}
    return load(None, {"KAFKA_PROCESS_ROLES": "x"}, given, hostname=lambda: "own.example")


def live(config: ServerConfig, values: Mapping[str, str], now: LiveListeners | None = None) -> tuple[LiveListeners, list[str]]:
    problems: list[str] = []
    found, _ = live_listeners(config, {**config.values, **values}, now or LiveListeners.of_file(config), problems)
    return found, problems


def told(listeners: tuple[ListenerInfo, ...]) -> list[str]:
    return [f"{it.name}://{it.host}:{it.port} {it.security_protocol}" for it in listeners]


def test_without_dynamic_values_they_are_those_of_the_file() -> None:
    config = node()
    assert live(config, {}) == (LiveListeners.of_file(config), [])


def test_cb_06_an_added_one_is_advertised_at_its_own_address() -> None:
    config = node()
    found, problems = live(config, {"listeners": f"{PLAIN},new://10.0.0.7:9099,{BETWEEN}", MAP: "NEW:PLAINTEXT"})
    assert not problems
    assert told(found.advertised) == [
        "PLAINTEXT://localhost:9092 PLAINTEXT",
        "NEW://10.0.0.7:9099 PLAINTEXT",
        "REPLICATION://localhost:9192 GRPC",
    ], "controllers register theirs themselves"
    assert len(found.listeners) == 4


@pytest.mark.parametrize("host", ["", "0.0.0.0", "[::]"])
def test_cb_06_one_without_a_host_is_advertised_where_clients_know_the_broker(host: str) -> None:
    config = node({"advertised.listeners": f"PLAINTEXT://kafka.example:9092,{BETWEEN.split(',', maxsplit=1)[0]}"})
    found, problems = live(config, {"listeners": f"{PLAIN},NEW://{host}:9099,{BETWEEN}", MAP: "NEW:PLAINTEXT"})
    assert not problems
    assert "NEW://kafka.example:9099 PLAINTEXT" in told(found.advertised)
    assert "PLAINTEXT://kafka.example:9092 PLAINTEXT" in told(found.advertised), "the file has said so"


def test_cb_06_one_that_moves_is_advertised_where_it_is_unless_the_file_says() -> None:
    moved = {"listeners": f"PLAINTEXT://localhost:9999,{BETWEEN}"}
    assert "PLAINTEXT://localhost:9999 PLAINTEXT" in told(live(node(), moved)[0].advertised)
    fixed = node({"advertised.listeners": f"PLAINTEXT://kafka.example:19092,{BETWEEN.split(',', maxsplit=1)[0]}"})
    assert live(fixed, moved)[1] == [
        "listeners: PLAINTEXT is not on port 9092, and advertised.listeners names it, which only the file can change"
    ], "nobody would find it"
    found, problems = live(fixed, {"listeners": f"PLAINTEXT://0.0.0.0:9092,{BETWEEN}"})
    assert not problems and "PLAINTEXT://kafka.example:19092 PLAINTEXT" in told(found.advertised)


def test_cb_06_one_of_the_file_may_go_where_the_file_does_not_advertise_it() -> None:
    instead = {"listeners": f"NEW://localhost:9099,{BETWEEN}", MAP: "NEW:PLAINTEXT"}
    found, problems = live(node(), instead)
    assert not problems and [it.name for it in found.advertised] == ["NEW", "REPLICATION"]
    config = node({"advertised.listeners": f"{PLAIN},{BETWEEN.split(',', maxsplit=1)[0]}"})
    assert live(config, instead)[1] == [
        "listeners: PLAINTEXT is not there, and advertised.listeners names it, which only the file can change"
    ]
    assert live(node(), {}, found) == (LiveListeners.of_file(node()), []), "and comes back"


def test_cb_06_the_listener_that_was_added_for_nodes_need_not_be_named() -> None:
    config = node({"listeners": f"{PLAIN},CONTROLLER://localhost:9093"}, without="inter.broker.listener.name")
    found, problems = live(config, {"listeners": f"{PLAIN},NEW://:9099,CONTROLLER://localhost:9093", MAP: "NEW:PLAINTEXT"})
    assert not problems
    assert [it.name for it in found.listeners] == ["PLAINTEXT", "NEW", "CONTROLLER", "REPLICATION"]
    _, problems = live(config, {"listeners": "NEW://:9099,CONTROLLER://localhost:9093", MAP: "NEW:PLAINTEXT"})
    assert problems == ["listeners: PLAINTEXT is not there, and is the listener between brokers"]


@pytest.mark.parametrize(
    ("listeners", "protocols", "words"),
    [
        (f"{PLAIN},NEW://:9099,{BETWEEN}", "", "has no protocol for NEW"),
        (f"{PLAIN},NEW://:9099,{BETWEEN}", "NEW:NOPE", "listener.security.protocol.map: NEW:NOPE: allowed is NAME:PROTOCOL"),
        (f"{PLAIN},NEW://:9099,{BETWEEN}", "NEW", "listener.security.protocol.map: NEW: allowed is NAME:PROTOCOL"),
        (f"{PLAIN},NEW://:9099,{BETWEEN}", "NEW:GRPC", "NEW speaks GRPC, which is for nodes"),
        (f"{PLAIN},NEW:9099,{BETWEEN}", "NEW:PLAINTEXT", "allowed is NAME://host:port"),
        (f"{PLAIN},NEW://:99999,{BETWEEN}", "NEW:PLAINTEXT", "a port between 0 and 65535"),
        (f"{PLAIN},NEW://:-1,{BETWEEN}", "NEW:PLAINTEXT", "a port between 0 and 65535"),
        (f"{PLAIN},NE W://:9099,{BETWEEN}", "NEW:PLAINTEXT", "allowed is NAME://host:port"),
        (f"{PLAIN},NEW://:1,NEW://:2,{BETWEEN}", "NEW:PLAINTEXT", "listener name NEW is there twice"),
        (f"{PLAIN},NEW://localhost:9092,{BETWEEN}", "NEW:PLAINTEXT", "both use port 9092"),
        (",".join([PLAIN, BETWEEN, *(f"N{n}://:{9100 + n}" for n in range(80))]), _MANY, "allowed are at most 64"),
        (BETWEEN, "", "a broker needs a listener for clients"),
        ("", "", "a broker needs a listener for clients"),
        (f"{PLAIN},CONTROLLER://localhost:9093", "", "REPLICATION is not there; nodes reach each other at"),
        (f"{PLAIN},REPLICATION://localhost:9192", "", "CONTROLLER is not there; nodes reach each other at"),
        (f"{PLAIN},REPLICATION://localhost:9193,CONTROLLER://localhost:9093", "", "REPLICATION has another address or protocol"),
        (f"{PLAIN},{BETWEEN}", "PLAINTEXT:SSL", "PLAINTEXT speaks PLAINTEXT, and a listener that is open keeps its protocol"),
        (f"{PLAIN},{BETWEEN}", "REPLICATION:GRPC_TLS", "REPLICATION has another address or protocol"),
    ],
)
def test_cb_06_what_a_running_broker_cannot_have(listeners: str, protocols: str, words: str) -> None:
    config = node()
    before = LiveListeners.of_file(config)
    found, problems = live(config, {"listeners": listeners, MAP: protocols})
    assert any(words in it for it in problems), problems
    assert found == before, "all of it stays"


def test_cb_06_logins_and_certificates_of_an_added_one_are_its_own_keys() -> None:
    config = node()
    values = {
        "listeners": f"{PLAIN},SAS://:9099,SEC://:9100,{BETWEEN}",
        MAP: "SAS:SASL_PLAINTEXT,SEC:SSL",
        "listener.name.sas.sasl.enabled.mechanisms": "PLAIN",
        "listener.name.sec.ssl.keystore.location": "/nowhere.p12",
        "listener.name.sec.ssl.keystore.type": "PKCS12",
    }
    assert live(config, values)[1] == [
        "listener.name.sas.plain.sasl.jaas.config is not set, and PLAIN has no users without it: "
        'org.apache.kafka.common.security.plain.PlainLoginModule required user_alice="…";'
    ]
    values["listener.name.sas.plain.sasl.jaas.config"] = PLAIN_JAAS
    problems: list[str] = []
    found, tls = live_listeners(config, {**config.values, **values}, LiveListeners.of_file(config), problems)
    assert not problems
    assert found.sasl["SAS"].plain_users == {"alice": "hunter2"} and "hunter2" not in repr(found)
    assert list(tls) == ["SEC"] and tls["SEC"].keys.prefix == "listener.name.sec."
    again, tls = live_listeners(config, {**config.values, **values}, found, problems)
    assert again == found and not tls, "of those that are open nothing is read again"
    values["listener.name.sec.ssl.keystore.type"] = "nonsense"
    assert live(config, values)[1]
