"""Invariant 53: what a broker describes is what the metadata log says at the offset from which it answers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, Final

from kraftlite.model.broker_configs import BROKER_CONFIGS
from kraftlite.model.errors import ErrorCode as E
from kraftlite.sim.checkers import description_rules
from kraftlite.sim.checkers.admin_rules import bad_name
from kraftlite.sim.checkers.history_checker import HistoryChecker
from kraftlite.sim.checkers.i51_configs_in_force import LAYERS, in_force
from kraftlite.sim.checkers.model import BROKER, TOPIC, MetadataState
from kraftlite.sim.history import Description

Pairs = Mapping[Any, Any]


class Descriptions(HistoryChecker):
    """Each answer to the drawn administrator (`workloads/admin`) is compared with the checkers' replay of the committed log, by
    the rules of the specification (CM-49, CM-54, CM-59, CM-61, CP-08 to CP-13)."""

    numbers: ClassVar[tuple[int, ...]] = (53,)

    def at_end(self) -> None:
        metadata = self.metadata
        if metadata is None or not metadata.committed_end:
            return
        for it in self.history.descriptions:
            expect = _RULES.get(it.kind)
            if expect is None:
                continue
            found, wanted = expect(self, it, metadata.history.visible(it.offset))
            if found != wanted:
                self.fail(
                    f"node {it.broker} describes {it.kind} {it.request} from metadata offset {it.offset} as "
                    f"{_different(found, wanted)}"
                )

    def static(self, it: Description) -> Mapping[str, str]:
        return self.world.nodes[it.broker].config.values


def _different(found: Pairs, wanted: Pairs) -> str:
    for key in (*wanted, *found):
        if found.get(key) != wanted.get(key):
            return f"{key}: {found.get(key)}; the log says {wanted.get(key)}"
    return "the same"


def _features(_by: Descriptions, it: Description, state: MetadataState) -> tuple[Pairs, Pairs]:
    return dict(it.found), dict(state.features)


def _cluster(_by: Descriptions, it: Description, state: MetadataState) -> tuple[Pairs, Pairs]:
    """CP-12: fenced brokers only for who asks for them."""
    wanted = {n: (one.rack, one.fenced) for n, one in state.brokers.items() if it.request or not one.fenced}
    return {one.broker_id: (one.rack, one.fenced) for one in it.found.brokers}, wanted


def _topics(_by: Descriptions, it: Description, state: MetadataState) -> tuple[Pairs, Pairs]:
    """CP-11. A partition whose leader no listener names is told with an error, and without it."""
    found: dict[Any, Any] = {}
    for topic in it.found:
        found.setdefault(topic.name, topic.error if topic.error is not E.NONE else topic.topic_id)
        for one in topic.partitions:
            leader = one.leader if one.error is E.NONE else None
            found[topic.name, one.partition] = (leader, one.leader_epoch, one.replicas, one.isr, one.elr)
    wanted: dict[Any, Any] = {}
    by_name = {topic.name: (topic_id, topic) for topic_id, topic in state.topics.items()}
    for name in it.request or by_name:
        if name not in by_name:
            wanted[name] = E.INVALID_TOPIC_EXCEPTION if bad_name(name) else E.UNKNOWN_TOPIC_OR_PARTITION
            continue
        topic_id, known = by_name[name]
        wanted[name] = topic_id
        for index, one in known.partitions.items():
            known_leader = None if one.leader is None else state.brokers.get(one.leader)
            alive = known_leader is not None and not known_leader.fenced
            wanted[name, index] = (one.leader if alive else None, one.leader_epoch, one.replicas, one.isr, one.elr)
    return found, wanted


def _lookup(_by: Descriptions, it: Description, state: MetadataState) -> tuple[Pairs, Pairs]:
    """CP-08, CP-10: by id or by name."""
    found: dict[Any, Any] = {(topic.name, topic.topic_id): E.NONE for topic in it.found.known}
    for one in it.found.unknown:
        found[one.name if one.name is not None else one.topic_id] = one.error
    everything = {(topic.name, topic_id): E.NONE for topic_id, topic in state.topics.items()}
    if it.request is None:
        return found, everything
    wanted: dict[Any, Any] = {}
    for name, topic_id in it.request:
        known = next((key for key in everything if key[0] == name or key[1] == topic_id), None)
        if known is not None:
            wanted[known] = E.NONE
        elif topic_id is not None:
            wanted[topic_id] = E.UNKNOWN_TOPIC_ID
        else:
            wanted[name] = E.INVALID_TOPIC_EXCEPTION if bad_name(name) else E.UNKNOWN_TOPIC_OR_PARTITION
    return found, wanted


def _quotas(_by: Descriptions, it: Description, state: MetadataState) -> tuple[Pairs, Pairs]:
    """KIP-546: a filter names a type, and its match is a name (0), the default entity (1) or anything (2)."""

    def passes(entity: Sequence[Any]) -> bool:
        parts = {part.type: part.name for part in entity}
        return all(one.type in parts and (one.match_type == 2 or parts[one.type] == one.match) for one in it.request)

    strict = it.kind == "strict quotas"
    wanted = {
        entity: dict(values)
        for entity, values in state.quotas.items()
        if passes(entity) and not (strict and len(entity) != len(it.request))
    }
    return {one.entity: dict(one.values) for one in it.found}, wanted


def _scram(_by: Descriptions, it: Description, state: MetadataState) -> tuple[Pairs, Pairs]:
    """KIP-554: mechanisms and iterations, never a key."""
    known: dict[str, dict[int, int]] = {}
    for (user, mechanism), one in state.credentials.items():
        known.setdefault(user, {})[mechanism] = one.iterations
    wanted: dict[str, Any] = {}
    for user in it.request or known:
        twice = it.request is not None and it.request.count(user) > 1
        wanted[user] = E.DUPLICATE_RESOURCE if twice else known.get(user, E.RESOURCE_NOT_FOUND)
    return {one.user: one.error if one.error is not E.NONE else dict(one.credentials) for one in it.found}, wanted


_FROM_TOPIC: Final = 1
"""Kafka's source of a config that its topic sets itself."""


def _configs(by: Descriptions, it: Description, state: MetadataState) -> tuple[Pairs, Pairs]:
    kind, name = it.request.resource_type, it.request.resource_name
    if kind == TOPIC and state.topic_named(name) is not None:
        return _topic_configs(by, it, state)
    wanted: dict[str, Any] = {"error": _refusal(it, kind, name)}
    found: dict[str, Any] = {"error": it.found.error}
    if wanted["error"] is E.NONE and kind != 8:
        keys = it.request.keys
        known = state.configs.get((kind, name), {})
        wanted |= {key: value for key, value in known.items() if keys is None or key in keys}
        shown = {entry.name: entry.value for entry in it.found.entries}
        found |= shown if (kind, name) == (BROKER, "") else {key: shown.get(key) for key in wanted if key != "error"}
        if kind == BROKER:  # the value of a key that nobody knows is kept back, as it may be a secret
            unknown = [key for key in wanted if key != "error" and key not in BROKER_CONFIGS]
            wanted |= dict.fromkeys(unknown)
    return found, wanted


def _refusal(it: Description, kind: int, name: str) -> E:
    if kind == TOPIC:
        return E.INVALID_TOPIC_EXCEPTION if bad_name(name) else E.UNKNOWN_TOPIC_OR_PARTITION
    if kind in (BROKER, 8):
        right = name == str(it.broker) or (kind, name) == (BROKER, "")
        return E.NONE if right else E.INVALID_REQUEST
    return E.NONE if kind in (16, 32) and name else E.INVALID_REQUEST


def _topic_configs(by: Descriptions, it: Description, state: MetadataState) -> tuple[Pairs, Pairs]:
    """CM-49: the value in force, and whether it is the topic's own."""
    name = it.request.resource_name
    own = state.configs.get((TOPIC, name), {})
    found: dict[str, Any] = {"error": it.found.error}
    for entry in it.found.entries:
        if entry.name in LAYERS:
            found[entry.name] = (entry.value, int(entry.source) == _FROM_TOPIC)
    wanted: dict[str, Any] = {"error": E.NONE}
    for key in LAYERS:
        if key != "producer.id.expiration.ms" and (it.request.keys is None or key in it.request.keys):
            wanted[key] = (in_force(state, by.static(it), it.broker, name, key), key in own)
    return found, wanted


_RULES: Final[Mapping[str, Callable[[Descriptions, Description, MetadataState], tuple[Pairs, Pairs]]]] = {
    "features": _features,
    "cluster": _cluster,
    "topics": _topics,
    "lookup": _lookup,
    "quotas": _quotas,
    "strict quotas": _quotas,
    "scram": _scram,
    "configs": _configs,
    "metadata": lambda _by, it, state: description_rules.metadata(it, state),
    "resources": lambda _by, it, state: description_rules.resources(it, state),
}
