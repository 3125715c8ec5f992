"""Listeners: parsing, the protocols behind their names, and which of them carry which traffic.

Clients speak Kafka's protocol on listeners with Kafka's security protocols, nodes speak gRPC among themselves on listeners
with `GRPC` or `GRPC_TLS`.
A pasted Kafka configuration names Kafka listeners for both; then a controller listener is taken to be gRPC, and a
gRPC listener for replication is added next to the named one.
Source: BL-25, RF-58.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from kraftlite.model.ids import Endpoint, NodeId
from kraftlite.model.limits import MAX_INT32
from kraftlite.model.messages.controller import ListenerInfo
from kraftlite.model.shown import shown

KAFKA_PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
GRPC_PROTOCOLS = ("GRPC", "GRPC_TLS")
PROTOCOLS = KAFKA_PROTOCOLS + GRPC_PROTOCOLS
DEFAULT_PROTOCOLS: Mapping[str, str] = {**{name: name for name in PROTOCOLS}, "REPLICATION": "GRPC"}
DERIVED_LISTENER = "REPLICATION"
DERIVED_PORT_STEP = 100

_LISTENER = re.compile(r"([A-Za-z0-9_.-]+)://(?:\[([0-9a-fA-F:%.]*)\]|([A-Za-z0-9_.%-]*)):(-?[0-9]{1,6})\Z")
_VOTER = re.compile(r"([0-9]{1,10})@(?:\[([0-9a-fA-F:%.]+)\]|([A-Za-z0-9_.%-]+)):([0-9]{1,6})\Z")
_ADDRESS = re.compile(r"(?:\[([0-9a-fA-F:%.]+)\]|([A-Za-z0-9_.%-]+)):([0-9]{1,6})\Z")


@dataclass(frozen=True, slots=True, kw_only=True)
class QuorumVoter:
    """One entry of `controller.quorum.voters`."""

    node_id: NodeId
    endpoint: Endpoint


def _is_name(host: str | None) -> bool:
    """Return whether a name can be looked up: parts of 1 to 63 characters, 253 in all (RFC 1035). None: an IPv6 address, which
    passes."""
    if not host:
        return True
    return len(host) <= 253 and all(0 < len(part) <= 63 for part in host.removesuffix(".").split("."))


def is_grpc(listener: ListenerInfo) -> bool:
    return listener.security_protocol in GRPC_PROTOCOLS


def parse_protocol_map(text: str, problems: list[str]) -> dict[str, str]:
    """`NAME:PROTOCOL` items, with commas between them, over the defaults."""
    found = dict(DEFAULT_PROTOCOLS)
    for item in (it.strip() for it in text.split(",") if it.strip()):
        name, _, protocol = item.partition(":")
        if not name or protocol.upper() not in PROTOCOLS:
            problems.append(
                f"listener.security.protocol.map: {shown(item)}: allowed is NAME:PROTOCOL with one of {', '.join(PROTOCOLS)}"
            )
            continue
        found[name.upper()] = protocol.upper()
    return found


def parse_listeners(
    key: str,
    items: Sequence[str],
    protocols: Mapping[str, str],
    controller_names: Sequence[str],
    problems: list[str],
) -> tuple[ListenerInfo, ...]:
    """The listeners that `key` lists. Malformed ones, names twice and ports twice become problems."""
    found: list[ListenerInfo] = []
    for item in items:
        match = _LISTENER.match(item)
        if match is None or not 0 <= int(match[4]) <= 65535 or not _is_name(match[3]):
            problems.append(
                f"{key}: {shown(item)}: allowed is NAME://host:port with a port between 0 and 65535, for example PLAINTEXT://:9092"
            )
            continue
        name = match[1].upper()
        protocol = _protocol(name, protocols, controller_names)
        if protocol is None:
            problems.append(
                f"{key}: {shown(item)}: listener.security.protocol.map has no protocol for {name}; "
                f"allowed is one of {', '.join(PROTOCOLS)}"
            )
            continue
        host = match[2] if match[2] is not None else match[3]
        found.append(ListenerInfo(name=name, host=host, port=int(match[4]), security_protocol=protocol))
    _check_duplicates(key, found, problems, ports=key == "listeners")
    return tuple(found)


def _protocol(name: str, protocols: Mapping[str, str], controller_names: Sequence[str]) -> str | None:
    if name in controller_names:
        return controller_protocol(name, protocols)
    return protocols.get(name)


def controller_protocol(name: str, protocols: Mapping[str, str]) -> str:
    """The protocol of a controllers' listener: of Kafka's the one of ours that protects as much."""
    given = protocols.get(name, "GRPC")
    return {"PLAINTEXT": "GRPC", "SASL_PLAINTEXT": "GRPC", "SSL": "GRPC_TLS", "SASL_SSL": "GRPC_TLS"}.get(given, given)


def with_sasl(listeners: Sequence[ListenerInfo], protocols: Mapping[str, str]) -> tuple[str, ...]:
    """The names of the listeners whose Kafka clients authenticate by SASL, the controllers' listeners included."""
    return tuple(it.name for it in listeners if protocols.get(it.name, "").startswith("SASL"))


def _check_duplicates(key: str, found: Sequence[ListenerInfo], problems: list[str], *, ports: bool) -> None:
    names: dict[str, ListenerInfo] = {}
    bound: dict[int, ListenerInfo] = {}
    for listener in found:
        if listener.name in names:
            problems.append(f"{key}: listener name {listener.name} is there twice; each listener needs its own name")
        names[listener.name] = listener
        other = bound.get(listener.port) if ports and listener.port else None
        if other is not None and _same_address(other.host, listener.host):
            problems.append(
                f"{key}: {other.name} and {listener.name} both use port {listener.port}; each listener needs its own port"
            )
        bound[listener.port] = listener


def _same_address(one: str, other: str) -> bool:
    everywhere = ("", "0.0.0.0", "::")
    return one == other or one in everywhere or other in everywhere


def parse_voters(items: Sequence[str], problems: list[str]) -> tuple[QuorumVoter, ...]:
    """`id@host:port` entries (RF-58)."""
    found: list[QuorumVoter] = []
    ids: set[NodeId] = set()
    addresses: set[Endpoint] = set()
    for item in items:
        match = _VOTER.match(item)
        if match is None or not 1 <= int(match[4]) <= 65535 or int(match[1]) > MAX_INT32 or not _is_name(match[3]):
            problems.append(f"controller.quorum.voters: {shown(item)}: allowed is id@host:port, for example 1@localhost:9093")
            continue
        host = match[2] or match[3]
        if host == "0.0.0.0":
            problems.append(f"controller.quorum.voters: {shown(item)}: 0.0.0.0 is not an address that other nodes can reach")
        voter = QuorumVoter(node_id=NodeId(int(match[1])), endpoint=Endpoint(host, int(match[4])))
        if voter.node_id in ids:
            problems.append(f"controller.quorum.voters: id {voter.node_id} is there twice")
        if voter.endpoint in addresses:
            problems.append(f"controller.quorum.voters: address {voter.endpoint} is there twice")
        ids.add(voter.node_id)
        addresses.add(voter.endpoint)
        found.append(voter)
    return tuple(found)


def parse_addresses(key: str, items: Sequence[str], problems: list[str]) -> tuple[Endpoint, ...]:
    """`host:port` entries."""
    found: list[Endpoint] = []
    for item in items:
        match = _ADDRESS.match(item)
        if match is None or not 1 <= int(match[3]) <= 65535 or not _is_name(match[2]):
            problems.append(f"{key}: {shown(item)}: allowed is host:port, for example localhost:9093")
            continue
        found.append(Endpoint(match[1] or match[2], int(match[3])))
    return tuple(found)


def derive_replication(named: ListenerInfo, listeners: Sequence[ListenerInfo]) -> ListenerInfo:
    """The gRPC listener that is added when the inter-broker listener is one of Kafka's: same host, port 100 higher,
    and TLS when that one has it."""
    taken = {listener.port for listener in listeners}
    port = named.port
    if port:
        port += DERIVED_PORT_STEP if port + DERIVED_PORT_STEP <= 65000 else -DERIVED_PORT_STEP
        while port in taken:
            port += 1
    name = DERIVED_LISTENER if all(other.name != DERIVED_LISTENER for other in listeners) else DERIVED_LISTENER + "_GRPC"
    protocol = "GRPC_TLS" if named.security_protocol.endswith("SSL") else "GRPC"
    return ListenerInfo(name=name, host=named.host, port=port, security_protocol=protocol)
