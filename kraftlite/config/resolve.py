"""Resolves typed keys to roles, listeners, voters and directories, and checks the rules that they must obey together.

Source: BL-25, RF-58; docs/spec/defaults.md, "Checked against each other".
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from kraftlite.config.authorization import authorization_problems
from kraftlite.config.listeners import (
    QuorumVoter,
    controller_protocol,
    derive_replication,
    is_grpc,
    parse_addresses,
    parse_listeners,
    parse_protocol_map,
    parse_voters,
    with_sasl,
)
from kraftlite.model.broker_limits import cleaner_problems
from kraftlite.model.cordoned import CORDONED_DIRS, cordoned_dirs
from kraftlite.model.ids import Endpoint, NodeId
from kraftlite.model.messages.controller import ListenerInfo

Typed = Mapping[str, Any]
Names = tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Resolved:
    """The values that follow from several keys together."""

    node_id: NodeId
    roles: Names
    controller_names: Names
    listeners: tuple[ListenerInfo, ...]
    advertised: tuple[ListenerInfo, ...]
    advertised_controllers: tuple[ListenerInfo, ...]
    inter_broker: str | None
    derived_from: str | None
    """The listener that `inter_broker` was added for."""
    controllers: ListenerInfo | None
    """The first of the controllers' listeners, with its protocol; its address is another node's where this is no controller."""
    voters: tuple[QuorumVoter, ...]
    bootstrap_servers: tuple[Endpoint, ...]
    log_dirs: Names
    metadata_log_dir: str
    sasl_listeners: Names


def resolve(
    typed: Typed, given: frozenset[str], problems: list[str], warnings: list[str], hostname: Callable[[], str]
) -> Resolved:
    """Work out everything that depends on more than one key; every problem is appended to `problems`."""
    node_id = _node_id(typed, problems)
    roles = _roles(typed, problems)
    controller_names = tuple(name.upper() for name in typed.get("controller.listener.names", ()))
    protocols = parse_protocol_map(typed.get("listener.security.protocol.map", ""), problems)
    if "listeners" not in given and "controller" in roles:
        problems.append("listeners is not set: a controller needs its controller listener there, for example CONTROLLER://:9093")
    listeners = parse_listeners("listeners", typed.get("listeners", ()), protocols, controller_names, problems)
    explicit = parse_listeners(
        "advertised.listeners", typed.get("advertised.listeners", ()), protocols, controller_names, problems
    )
    inter_broker: str | None = None
    derived_from: ListenerInfo | None = None
    if "broker" in roles:
        before = listeners
        inter_broker, listeners, explicit = _inter_broker(typed, given, listeners, explicit, controller_names, problems, warnings)
        if len(listeners) > len(before):
            derived_from = _named(typed, given, before, controller_names)
    advertised = _advertised(listeners, explicit, "advertised.listeners" in typed, controller_names, hostname)
    if roles:
        _check_controller_listeners(roles, listeners, explicit, controller_names, problems)
    if "broker" in roles:
        _check_broker_listeners(listeners, advertised, inter_broker, controller_names, problems)
    controllers = _controllers(controller_names, protocols, listeners)
    voters = parse_voters(typed.get("controller.quorum.voters", ()), problems)
    bootstrap = parse_addresses(
        "controller.quorum.bootstrap.servers", typed.get("controller.quorum.bootstrap.servers", ()), problems
    )
    if not voters and not typed.get("controller.quorum.voters"):
        own_names = {item.host for item in (*listeners, *explicit) if item.name in controller_names}
        if len(bootstrap) == 1 and not _is_loopback(bootstrap[0].host):
            own_names.add(hostname())
        voters = _only_voter(node_id, roles, bootstrap, listeners, controller_names, own_names)
    _check_quorum(typed, node_id, roles, voters, listeners, controller_names, problems, warnings)
    _check_numbers(typed, problems)
    problems.extend(authorization_problems(typed, {item.name for item in listeners}))
    log_dirs = _log_dirs(typed, problems)
    metadata_dir = typed.get("metadata.log.dir")
    return Resolved(
        node_id=NodeId(-1 if node_id is None else node_id),
        roles=roles,
        controller_names=controller_names,
        listeners=listeners,
        advertised=tuple(item for item in advertised if item.name not in controller_names),
        advertised_controllers=tuple(item for item in advertised if item.name in controller_names),
        inter_broker=inter_broker,
        derived_from=None if derived_from is None else derived_from.name,
        controllers=controllers,
        voters=voters,
        bootstrap_servers=bootstrap,
        log_dirs=log_dirs,
        metadata_log_dir=_absolute(metadata_dir) if metadata_dir else log_dirs[0],
        sasl_listeners=with_sasl(listeners, protocols),
    )


def _log_dirs(typed: Typed, problems: list[str]) -> Names:
    """The directories, in their order; the same one twice is one."""
    key = "log.dirs" if typed.get("log.dirs") else "log.dir"
    found = tuple(dict.fromkeys(_absolute(path) for path in typed[key]))
    if not found:
        problems.append(f"{key} is empty; allowed are the paths of directories")
        return (_absolute("."),)
    try:
        cordoned_dirs(",".join(typed[CORDONED_DIRS]), found)
    except ValueError as error:
        problems.append(str(error))
    return found


def _absolute(path: str) -> str:
    try:
        return str(Path(path).expanduser().absolute())
    except RuntimeError:  # ~name of nobody: a directory that is called so
        return str(Path(path).absolute())


def _node_id(typed: Typed, problems: list[str]) -> int | None:
    node_id, broker_id = typed.get("node.id"), typed.get("broker.id")
    if broker_id is not None and broker_id < 0:
        broker_id = None
    if node_id is not None and broker_id is not None and node_id != broker_id:
        problems.append(f"node.id={node_id} and broker.id={broker_id} disagree; set node.id only")
    found: int | None = node_id if node_id is not None else broker_id
    if found is None and not any(problem.startswith(("node.id=", "broker.id=")) for problem in problems):
        problems.append("node.id is not set; allowed is a whole number of at least 0 that no other node has")
    return found


def _roles(typed: Typed, problems: list[str]) -> Names:
    roles = typed.get("process.roles")
    if not roles:
        if not any(problem.startswith("process.roles=") for problem in problems):
            problems.append("process.roles is not set; allowed is broker, controller, or broker,controller")
        return ()
    if len(set(roles)) != len(roles):
        problems.append(f"process.roles={','.join(roles)}: a role is there twice")
    return tuple(role for role in ("broker", "controller") if role in roles)


def _controllers(names: Names, protocols: Mapping[str, str], listeners: Sequence[ListenerInfo]) -> ListenerInfo | None:
    if not names:
        return None
    own = next((listener for listener in listeners if listener.name == names[0]), None)
    return own or ListenerInfo(name=names[0], host="", port=0, security_protocol=controller_protocol(names[0], protocols))


def _named(
    typed: Typed, given: frozenset[str], listeners: Sequence[ListenerInfo], controller_names: Names
) -> ListenerInfo | None:
    """The listener that is meant for brokers, by its name or by its protocol."""
    candidates = [listener for listener in listeners if listener.name not in controller_names]
    name, key = typed.get("inter.broker.listener.name"), "security.inter.broker.protocol"
    if name:
        return next((listener for listener in listeners if listener.name == name.upper()), None)
    if key in given:
        return next((item for item in candidates if item.name == typed[key]), None)
    return next((item for item in candidates if item.security_protocol == "PLAINTEXT"), next(iter(candidates), None))


def _inter_broker(
    typed: Typed,
    given: frozenset[str],
    listeners: tuple[ListenerInfo, ...],
    explicit: tuple[ListenerInfo, ...],
    controller_names: Names,
    problems: list[str],
    warnings: list[str],
) -> tuple[str | None, tuple[ListenerInfo, ...], tuple[ListenerInfo, ...]]:
    """The gRPC listener of replication, and the listeners with one added if none was meant for it."""
    candidates = [listener for listener in listeners if listener.name not in controller_names]
    name, protocol = typed.get("inter.broker.listener.name"), "security.inter.broker.protocol"
    named = _named(typed, given, listeners, controller_names)
    if name and protocol in given:
        problems.append(f"inter.broker.listener.name={name} and {protocol}={typed[protocol]} exclude each other; set one of them")
    if name:
        name = name.upper()
        if name in controller_names:
            problems.append(f"inter.broker.listener.name={name} is a controller listener; brokers need one of their own")
            return name, listeners, explicit
        if named is None:
            known = ", ".join(listener.name for listener in candidates) or "none"
            problems.append(f"inter.broker.listener.name={name} is not among the listeners; allowed is one of {known}")
            return name, listeners, explicit
        if is_grpc(named):
            return name, listeners, explicit
    else:
        grpc = next((listener for listener in candidates if is_grpc(listener)), None)
        if grpc is not None and protocol not in given:
            return grpc.name, listeners, explicit
        if named is None and protocol in given:
            known = ", ".join(listener.name for listener in candidates) or "none"
            problems.append(
                f"{protocol}={typed[protocol]}: no listener has this name; "
                f"allowed is one of {known} (or set inter.broker.listener.name)"
            )
        if named is None:
            return None, listeners, explicit
    added = derive_replication(named, listeners)
    advertised = next((item for item in explicit if item.name == named.name), None)
    if advertised is not None:
        explicit = (*explicit, replace(added, host=advertised.host))
    warnings.append(
        f"{named.name} speaks Kafka's protocol, and brokers replicate over gRPC: "
        f"added listener {added.name}://{added.host}:{added.port} for it (set inter.broker.listener.name to a GRPC listener)"
    )
    return added.name, (*listeners, added), explicit


def _advertised(
    listeners: Sequence[ListenerInfo],
    explicit: Sequence[ListenerInfo],
    has_explicit: bool,
    controller_names: Names,
    hostname: Callable[[], str],
) -> tuple[ListenerInfo, ...]:
    """Return the advertised listeners: those that are set, and for controller listeners (or if nothing is set) the listeners
    themselves."""
    base = list(explicit)
    named = {listener.name for listener in base}
    base.extend(
        listener
        for listener in listeners
        if listener.name not in named and (not has_explicit or listener.name in controller_names)
    )
    if any(not listener.host for listener in base):
        own = hostname()
        base = [listener if listener.host else replace(listener, host=own) for listener in base]
    return tuple(base)


def _check_controller_listeners(
    roles: Names,
    listeners: Sequence[ListenerInfo],
    explicit: Sequence[ListenerInfo],
    controller_names: Names,
    problems: list[str],
) -> None:
    names = {listener.name for listener in listeners}
    if not controller_names:
        problems.append("controller.listener.names is not set; every node needs the name of the controllers' listener there")
        return
    if "controller" in roles:
        missing = [name for name in controller_names if name not in names]
        if missing:
            problems.append(f"controller.listener.names: {', '.join(missing)} is not among the listeners of this controller")
        others = [listener.name for listener in listeners if listener.name not in controller_names]
        if "broker" not in roles and others:
            problems.append(
                f"listeners: {', '.join(others)} is not in controller.listener.names; "
                "a node that is only a controller has only controller listeners"
            )
        if "broker" not in roles:
            told = [listener.name for listener in explicit if listener.name not in controller_names]
            if told:
                problems.append(
                    f"advertised.listeners: {', '.join(told)} is not in controller.listener.names; "
                    "a node that is only a controller advertises only controller listeners"
                )
        return
    wrong = [listener.name for listener in listeners if listener.name in controller_names]
    if wrong:
        problems.append(
            f"listeners: {', '.join(wrong)} is a controller listener (controller.listener.names), and this node is no controller"
        )
    told = [listener.name for listener in explicit if listener.name in controller_names]
    if told:
        problems.append(f"advertised.listeners: {', '.join(told)} is a controller listener; a broker must not advertise it")


def _check_broker_listeners(
    listeners: Sequence[ListenerInfo],
    advertised: Sequence[ListenerInfo],
    inter_broker: str | None,
    controller_names: Names,
    problems: list[str],
) -> None:
    names = {listener.name for listener in listeners}
    own = [listener for listener in advertised if listener.name not in controller_names]
    for listener in own:
        if listener.name not in names:
            problems.append(
                f"advertised.listeners: {listener.name} is not among the listeners; allowed is one of {', '.join(sorted(names))}"
            )
        if listener.host in ("0.0.0.0", "::"):
            problems.append(
                f"advertised.listeners: {listener.name}://{listener.host}:{listener.port}: {listener.host} is not an address "
                "that clients can reach; set advertised.listeners to one that they can"
            )
    if not any(not is_grpc(listener) for listener in own):
        problems.append("listeners: a broker needs a listener for clients, for example PLAINTEXT://:9092")
    if inter_broker is not None and inter_broker in names and all(item.name != inter_broker for item in advertised):
        problems.append(f"advertised.listeners: the inter-broker listener {inter_broker} must be advertised")


def _only_voter(
    node_id: int | None,
    roles: Names,
    bootstrap: Sequence[Endpoint],
    listeners: Sequence[ListenerInfo],
    controller_names: Names,
    own_names: Collection[str],
) -> tuple[QuorumVoter, ...]:
    """A node that is broker and controller, and names only itself as the quorum's bootstrap server: what Kafka 4's own
    server.properties says. It is the only voter. A server under another name or port than its own may be another node's."""
    own = next((listener for listener in listeners if listener.name in controller_names), None)
    if node_id is None or own is None or len(bootstrap) != 1 or set(roles) != {"broker", "controller"}:
        return ()
    if bootstrap[0].port != own.port or not (_is_loopback(bootstrap[0].host) or bootstrap[0].host in own_names):
        return ()
    return (QuorumVoter(node_id=NodeId(node_id), endpoint=bootstrap[0]),)


def _is_loopback(host: str) -> bool:
    return host in ("localhost", "::1") or host.startswith("127.")


def _check_quorum(
    typed: Typed,
    node_id: int | None,
    roles: Names,
    voters: Sequence[QuorumVoter],
    listeners: Sequence[ListenerInfo],
    controller_names: Names,
    problems: list[str],
    warnings: list[str],
) -> None:
    if typed.get("controller.quorum.auto.join.enable") and "controller" not in roles:
        problems.append("controller.quorum.auto.join.enable=true: this node is only a broker, which never votes; remove it")
    if not typed.get("controller.quorum.voters"):
        if voters:
            return
        if not typed.get("controller.quorum.bootstrap.servers"):
            problems.append(
                "controller.quorum.voters is not set (nor controller.quorum.bootstrap.servers): "
                "list every controller as id@host:port, or for voters that can change some controllers as host:port"
            )
        return
    if node_id is None or not voters or not roles:
        return
    ids = ", ".join(str(voter.node_id) for voter in voters)
    own = next((voter for voter in voters if voter.node_id == node_id), None)
    if "controller" in roles and own is None:
        problems.append(f"node.id={node_id} is a controller and not among the voters {ids} of controller.quorum.voters")
    if "controller" not in roles and own is not None:
        problems.append(
            f"node.id={node_id} is only a broker, and among the voters {ids} of controller.quorum.voters; voters are controllers"
        )
    if "controller" in roles and own is not None and controller_names:
        listener = next((item for item in listeners if item.name == controller_names[0]), None)
        if listener is not None and listener.port not in (0, own.endpoint.port):
            warnings.append(
                f"controller.quorum.voters has {own.endpoint} for this node, "
                f"whose listener {listener.name} is on port {listener.port}"
            )


def _check_numbers(typed: Typed, problems: list[str]) -> None:
    """Limits between two keys. A key whose own value is bad has a problem already, and its default here."""

    def no_more(low: str, high: str, *, equal: bool = True) -> None:
        a, b = typed[low], typed[high]
        if a > b or (a == b and not equal):
            problems.append(f"{low}={a} must {'not exceed' if equal else 'be less than'} {high}={b}")

    no_more("replica.fetch.wait.max.ms", "replica.socket.timeout.ms")
    no_more("replica.fetch.wait.max.ms", "replica.lag.time.max.ms")
    no_more("broker.heartbeat.interval.ms", "broker.session.timeout.ms", equal=False)
    no_more("group.min.session.timeout.ms", "group.max.session.timeout.ms")
    no_more("group.consumer.heartbeat.interval.ms", "group.consumer.session.timeout.ms", equal=False)
    for name in ("session.timeout.ms", "heartbeat.interval.ms", "assignment.interval.ms"):
        no_more(f"group.consumer.min.{name}", f"group.consumer.{name}")
        no_more(f"group.consumer.{name}", f"group.consumer.max.{name}")
    problems.extend(cleaner_problems(typed.__getitem__))
