"""The same changes of listeners to a running Apache Kafka and to kraftlite: `python -m tests.clients.compare_listeners`.

One node each, controller and broker. Every question changes the configs of broker 1 and looks at what follows: the error code,
and what a client of each listener finds. Afterwards everything is taken back. Ends with 1 when there is a difference that is not
in `KNOWN`. Source: CB-06.
"""

from __future__ import annotations

import contextlib
import socket
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from kraftlite.protocol.kio_codec import build_entity
from tests.clients.closed import kraftlite_node
from tests.clients.compare_sides import plain
from tests.clients.java.apache import apache_kafka
from tests.clients.raw import Closed, Connection

# isort: split
from kio.index import load_request_schema

NAMES, PROTOCOLS = "listeners", "listener.security.protocol.map"
SET, DELETE, APPEND, SUBTRACT = range(4)
PORTS: Final = 3
SETTLED_S: Final = 1.5
"""The time after an accepted change at which is looked: both have done by then what they do."""
JAAS: Final = 'org.apache.kafka.common.security.plain.PlainLoginModule required user_a="b";'

_FOUND: Final = (
    "clients of a listener that was added find the brokers there, as it is registered; in Kafka no client can work there"
)
_CHECKED: Final = "what cannot be opened is refused; Kafka takes it, tells its log, and has a listener less"
_MOVES: Final = "a listener that has another address moves there; Kafka takes the value, and does nothing before a restart"
_FIXED: Final = (
    "those of nodes, and those that the file advertises, stay; Kafka takes the value, and does nothing before a restart"
)
_GOES: Final = "a listener that the file does not advertise may go; in Kafka each is advertised that was ever added"
KNOWN: Final[Mapping[str, str]] = {
    "added": _FOUND,
    "added, in lower case": _FOUND,
    "added at every address": _FOUND,
    "two added": _FOUND,
    "added and moved": _MOVES,
    "added and taken away": _FOUND,
    "another protocol for one that is open": _FOUND,
    "the entry of one that is open taken away": _FOUND,
    "the listener of the file moved": _FIXED,
    "the controllers' moved": _FIXED,
    "an address that is taken": _CHECKED,
    "a port out of range": _CHECKED,
    "a negative port": _CHECKED,
    "TLS without certificates": _CHECKED,
    "SASL without mechanisms": _CHECKED,
    "logins of an open one": "a listener that is open keeps its logins; Kafka takes the value, and does nothing before a restart",
    "taken away": _GOES,
}
"""By the name of a question: why its answers differ."""


@dataclass(frozen=True)
class Change:
    """`names`: what follows the listeners of the file, with {0} to {2} for free ports and {taken} for one that is not. `map`: the
    same for the protocols. `also`: other keys. `then`: a second change, after the first."""

    names: str | None = None
    map: str | None = None
    whole: str | None = None
    """All of `listeners` instead; {file}, {plain} and {nodes} are those of the file, that for clients, and the others."""
    op: int = SET
    also: Mapping[str, str] | None = None
    broker: str = "1"
    then: Change | None = None


QUESTIONS: Final[Mapping[str, Change]] = {
    "added": Change("NEW://127.0.0.1:{0}", "NEW:PLAINTEXT"),
    "added, in lower case": Change("new://127.0.0.1:{0}", "NEW:PLAINTEXT"),
    "added at every address": Change("NEW://:{0}", "NEW:PLAINTEXT"),
    "two added": Change("NEW://127.0.0.1:{0},NEXT://127.0.0.1:{1}", "NEW:PLAINTEXT,NEXT:PLAINTEXT"),
    "added and moved": Change("NEW://127.0.0.1:{0}", "NEW:PLAINTEXT", then=Change("NEW://127.0.0.1:{1}", "NEW:PLAINTEXT")),
    "added and taken away": Change("NEW://127.0.0.1:{0}", "NEW:PLAINTEXT", then=Change(whole="{file}")),
    "another protocol for one that is open": Change(
        "NEW://127.0.0.1:{0}", "NEW:PLAINTEXT", then=Change("NEW://127.0.0.1:{0}", "NEW:SSL")
    ),
    "the entry of one that is open taken away": Change(
        "NEW://127.0.0.1:{0}", "NEW:PLAINTEXT", then=Change("NEW://127.0.0.1:{0}", "")
    ),
    "no entry in the map": Change("NEW://127.0.0.1:{0}"),
    "a protocol that there is not": Change("NEW://127.0.0.1:{0}", "NEW:NOPE"),
    "the protocol map alone": Change(map="FOURTH:PLAINTEXT"),
    "the protocol map alone, in a wrong form": Change(map="NEW"),
    "another protocol for the file's": Change(whole="{file}", map="PLAINTEXT:SSL"),
    "no address": Change("NEW:/127"),
    "a port out of range": Change("NEW://127.0.0.1:99999", "NEW:PLAINTEXT"),
    "a negative port": Change("NEW://127.0.0.1:-1", "NEW:PLAINTEXT"),
    "an odd name": Change("NE W://127.0.0.1:{0}", "NEW:PLAINTEXT"),
    "a name twice": Change("NEW://127.0.0.1:{0},NEW://127.0.0.1:{1}", "NEW:PLAINTEXT"),
    "a port twice": Change("NEW://127.0.0.1:{0},NEXT://127.0.0.1:{0}", "NEW:PLAINTEXT,NEXT:PLAINTEXT"),
    "an address that is taken": Change("NEW://127.0.0.1:{taken}", "NEW:PLAINTEXT"),
    "none": Change(whole=""),
    "none for clients": Change(whole="{nodes}"),
    "one that is advertised taken away": Change(whole="NEW://127.0.0.1:{0},{nodes}", map="NEW:PLAINTEXT"),
    "those of nodes taken away": Change(whole="{plain}"),
    "the listener of the file moved": Change(whole="PLAINTEXT://127.0.0.1:{2},{nodes}"),
    "the controllers' moved": Change(whole="{elsewhere}"),
    "TLS without certificates": Change("NEW://127.0.0.1:{0}", "NEW:SSL"),
    "SASL without mechanisms": Change("NEW://127.0.0.1:{0}", "NEW:SASL_PLAINTEXT"),
    "SASL": Change(
        "NEW://127.0.0.1:{0}",
        "NEW:SASL_PLAINTEXT",
        also={"listener.name.new.sasl.enabled.mechanisms": "PLAIN", "listener.name.new.plain.sasl.jaas.config": JAAS},
    ),
    "logins of one that is not there": Change(also={"listener.name.new.sasl.enabled.mechanisms": "PLAIN"}),
    "logins of an open one": Change(also={"listener.name.plaintext.sasl.enabled.mechanisms": "PLAIN"}),
    "for all brokers": Change("NEW://127.0.0.1:{0}", broker=""),
    "the map for all brokers": Change(map="NEW:PLAINTEXT", broker=""),
    "for another broker": Change("NEW://127.0.0.1:{0}", broker="7"),
    "what is advertised": Change(also={"advertised.listeners": "PLAINTEXT://127.0.0.1:1"}),
    "the map appended to": Change(map="NEW:PLAINTEXT", op=APPEND),
    "subtracted": Change("NEW://127.0.0.1:{0}", op=SUBTRACT),
}


class Side:
    """One node, at the address of its listener in plain text."""

    def __init__(self, name: str, address: str, ports: list[int], taken: int) -> None:
        self.name, self.address = name, address
        self._ports = iter(ports)
        self.words = {"taken": str(taken)}
        self.file = self.described(NAMES)
        self.map = self.described(PROTOCOLS)
        nodes = [it for it in self.file.split(",") if not it.startswith("PLAINTEXT:")]
        self.words |= {"file": self.file, "plain": f"PLAINTEXT://{address}", "nodes": ",".join(nodes)}
        other = f"CONTROLLER://127.0.0.1:{next(self._ports)}"
        self.words["elsewhere"] = ",".join(other if it.startswith("CONTROLLER:") else it for it in self.file.split(","))

    def ask(self, address: str, key: int, version: int, values: Mapping[str, Any]) -> Any:
        connection = Connection(address, timeout_s=5)
        try:
            connection.send_request(build_entity(load_request_schema(key, version), values))
            return plain(connection.answer(key, version))
        finally:
            connection.close()

    def described(self, key: str) -> str:
        query = {"resource_type": 4, "resource_name": "1", "configuration_keys": (key,)}
        values = {"resources": [query], "include_synonyms": False, "include_documentation": False}
        (found,) = self.ask(self.address, 32, 4, values)["results"][0]["configs"]
        return str(found["value"])

    def send(self, broker: str, pairs: list[tuple[str, int, str | None]]) -> str:
        configs = [{"name": name, "config_operation": op, "value": value} for name, op, value in pairs]
        resource = {"resource_type": 4, "resource_name": broker, "configs": configs}
        request = {"resources": [resource], "validate_only": False}
        try:
            answer = self.ask(self.address, 44, 1, request)
        except ConnectionRefusedError:  # a question may have moved it
            answer = self.ask(f"127.0.0.1:{self.words['2']}", 44, 1, request)
        return str(answer["responses"][0]["error_code"])

    def change(self, change: Change) -> list[str]:
        pairs: list[tuple[str, int, str | None]] = []
        text = change.whole
        if text is None and change.names is not None:
            text = change.names if change.op != SET else f"{{file}},{change.names}"
        if text is not None:
            pairs.append((NAMES, change.op, self._filled(text)))
        if change.map is not None:
            pairs.append((PROTOCOLS, change.op, change.map if change.op != SET else f"{self.map},{change.map}".rstrip(",")))
        pairs += [(key, SET, value) for key, value in (change.also or {}).items()]
        found = [self.send(change.broker, pairs)]
        if found == ["none"]:
            time.sleep(SETTLED_S)
            found += [f"{{{n}}} {self.look(f'127.0.0.1:{self.words[str(n)]}')}" for n in range(PORTS)]
            found.append(f"plain {self.look(self.address)}")
        return found

    def _filled(self, text: str) -> str:
        for word, value in self.words.items():
            text = text.replace(f"{{{word}}}", value)
        return text

    def look(self, address: str) -> str:
        """What a client that comes here meets."""
        query = {"topics": [], "allow_auto_topic_creation": False, "include_topic_authorized_operations": False}
        try:
            answer = self.ask(address, 3, 12, query)
        except ConnectionRefusedError:
            return "refuses"
        except (Closed, OSError):
            return "hangs up"
        here = [it for it in answer["brokers"] if f"{it['host']}:{it['port']}" == address]
        return "finds the broker" if here else "finds nobody"

    def answer(self, change: Change) -> list[str]:
        """At ports of its own: Kafka keeps that of a listener that was taken away open, and hangs up on who comes there."""
        self.words |= {str(n): str(next(self._ports)) for n in range(PORTS)}
        try:
            found = self.change(change)
            if change.then is not None:
                found += ["then", *self.change(change.then)]
            return found
        finally:
            also = {**(change.also or {}), **((change.then and change.then.also) or {})}
            self.send("1", [(key, DELETE, None) for key in (NAMES, PROTOCOLS, *also) if key != "advertised.listeners"])
            deadline = time.monotonic() + 30
            while self.look(self.address) != "finds the broker":
                assert time.monotonic() < deadline, f"{self.name} is not what it was"
                time.sleep(0.05)


def _ports(count: int) -> list[int]:
    """Some that the system gives to nobody else just now, below those that the nodes choose from."""
    found: list[int] = []
    for port in range(15_000, 19_000):
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            found.append(port)
        if len(found) == count:
            return found
    raise RuntimeError("no ports are free")


@contextmanager
def both(*, advertised: bool) -> Iterator[tuple[Side, Side]]:
    with tempfile.TemporaryDirectory() as folder, socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        taken = other.getsockname()[1]
        each = PORTS * len(QUESTIONS) + 1
        ports = _ports(2 * each)
        with (
            apache_kafka(advertised=advertised) as apache,
            kraftlite_node(Path(folder), {}, {}, advertised=advertised) as (address, _),
        ):
            kafka = Side("Apache Kafka", apache.bootstrap_servers, ports[:each], taken)
            yield kafka, Side("kraftlite", address, ports[each:], taken)


def differences() -> Iterator[tuple[str, list[str], list[str]]]:
    """(question, Kafka's answer, ours), where they differ."""
    with both(advertised=True) as sides:
        for name, change in QUESTIONS.items():
            kafka, ours = (side.answer(change) for side in sides)
            if kafka != ours:
                yield name, kafka, ours
    with both(advertised=False) as sides:
        kafka, ours = (side.answer(QUESTIONS["added and taken away"]) for side in sides)
        if kafka != ours:
            yield "taken away", kafka, ours


def main() -> int:
    unexplained = 0
    for name, kafka, ours in differences():
        reason = KNOWN.get(name)
        unexplained += reason is None
        print(f"{'' if reason is None else '(' + reason + ') '}{name}: {'; '.join(kafka)} | {'; '.join(ours)}", flush=True)
    print(f"{len(QUESTIONS) + 1} questions, {unexplained} differences to be explained")
    return 1 if unexplained else 0


if __name__ == "__main__":
    sys.exit(main())
