"""The rules of admin requests about topics and brokers: which answers a state of the metadata allows, and what is then written.

Written against docs/spec (CM-15 to CM-25, CM-38 to CM-46), not against `controller`. A request has an `Outcome` in each state:
for each entry the errors that it deserves, one of which is the answer (none: it succeeds), and the records of its success.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final
from uuid import UUID

from kraftlite.metadata import records as r
from kraftlite.metadata.registrations import PartitionRegistration
from kraftlite.model.errors import ErrorCode as E
from kraftlite.model.ids import NodeId
from kraftlite.model.messages import controller as m
from kraftlite.sim.checkers.model import MetadataState, awaited, changed_partition
from kraftlite.sim.checkers.placements import first_directories, is_well_placed
from kraftlite.sim.workloads.admin_values import OF_TOPICS, UNKNOWN_KEY, Values

Codes = frozenset[E]
NONE: Final[Codes] = frozenset()
MOST: Final = 10_000
"""Partitions, or records, that one request may make (CE-18)."""

_TOO_MANY: Final[Codes] = frozenset({E.POLICY_VIOLATION})

Wants = Callable[[MetadataState, Any], bool]
"""Says of a record, given the state in which the request was decided, if it is one that was wanted."""


@dataclass(frozen=True, slots=True)
class Want:
    """A record. `optional`: it may be left out, as a change that changes nothing is."""

    fits: Wants
    optional: bool = False


@dataclass(frozen=True, slots=True)
class Entry:
    """`faults`: the errors that it deserves. `maybe`: errors that it may get although nothing is known to be wrong with it."""

    faults: Codes = NONE
    wants: tuple[Want, ...] = ()
    maybe: Codes = NONE

    def allows(self, code: E) -> bool:
        if code in self.maybe:
            return True
        return code in self.faults if self.faults else code is E.NONE


@dataclass(frozen=True, slots=True)
class Outcome:
    """`whole`: errors with which all of the request is refused."""

    entries: tuple[Entry, ...] = ()
    whole: Codes = NONE
    writes: bool = True

    @property
    def wants(self) -> tuple[tuple[Want, ...], ...]:
        """The records of each entry, in the order of the request; none where nothing is written."""
        if self.whole or not self.writes:
            return ()
        return tuple(it.wants for it in self.entries if not it.faults and it.wants)


def _codes(*found: tuple[object, E]) -> Codes:
    return frozenset(code for wrong, code in found if wrong)


# --- creating topics

_LEGAL: Final = re.compile(r"[a-zA-Z0-9._-]{1,249}")


def bad_name(name: str) -> bool:
    return name in (".", "..") or _LEGAL.fullmatch(name) is None


def create_topics(state: MetadataState, request: m.CreateTopicsRequest, defaults: tuple[int, int]) -> Outcome:
    """`defaults`: `num.partitions` and `default.replication.factor`."""
    asked = sum(len(it.assignments) or (defaults[0] if it.num_partitions < 0 else it.num_partitions) for it in request.topics)
    if asked > MOST:
        return Outcome(tuple(Entry(faults=_TOO_MANY) for _ in request.topics))
    names = Counter(it.name for it in request.topics)
    entries: list[Entry] = []
    made: list[str] = []
    for topic in request.topics:
        faults = (
            _name_faults(state, topic.name, names, made) | _config_faults(topic.configs) | _placing_faults(state, topic, defaults)
        )
        wants: tuple[Want, ...] = ()
        if not faults:
            made.append(topic.name)
            wants = _new_topic(topic, defaults)
        entries.append(Entry(faults=faults, wants=wants))
    return Outcome(tuple(entries), writes=not request.validate_only)


def _name_faults(state: MetadataState, name: str, names: Counter[str], made: Sequence[str]) -> Codes:
    known = [topic.name for topic in state.topics.values()]
    like = name.replace(".", "_")
    collides = any(it != name and it.replace(".", "_") == like for it in (*known, *made))
    return _codes(
        (names[name] > 1 or name == "__cluster_metadata", E.INVALID_REQUEST),
        (bad_name(name) or collides, E.INVALID_TOPIC_EXCEPTION),
        (name in known, E.TOPIC_ALREADY_EXISTS),
    )


def _config_faults(pairs: Sequence[m.ConfigPair]) -> Codes:
    return _codes((any(it.value is None or is_good(OF_TOPICS, it.name, it.value) is False for it in pairs), E.INVALID_CONFIG))


def is_good(keys: Any, key: str, value: str) -> bool | None:
    """Return whether a value is allowed; None when these rules do not say."""
    known: Values | None = keys.get(key)
    if known is None:
        return False if key == UNKNOWN_KEY else None
    return True if value in known.good else False if value in known.bad else None


def _placing_faults(state: MetadataState, topic: m.CreatableTopic, defaults: tuple[int, int]) -> Codes:
    if topic.assignments:
        given = topic.num_partitions != -1 or topic.replication_factor != -1
        indexes = sorted(it.partition for it in topic.assignments)
        sizes = {len(it.broker_ids) for it in topic.assignments}
        wrong = (
            indexes != list(range(len(indexes)))
            or len(sizes) > 1
            or any(_bad_assignment(state, it.broker_ids) or not _live(state, it.broker_ids) for it in topic.assignments)
        )
        return _codes((given, E.INVALID_REQUEST), (wrong, E.INVALID_REPLICA_ASSIGNMENT))
    factor = defaults[1] if topic.replication_factor == -1 else topic.replication_factor
    return _codes(
        (topic.num_partitions == 0 or topic.num_partitions < -1, E.INVALID_PARTITIONS),
        (_bad_factor(state, factor), E.INVALID_REPLICATION_FACTOR),
    )


def _bad_factor(state: MetadataState, factor: int) -> bool:
    """CM-16, CM-17, CM-20: as many brokers that are not on their way down, and one of them alive, to lead."""
    usable = [it for it in state.brokers.values() if it.fenced or not it.in_controlled_shutdown]
    return factor <= 0 or factor > len(usable) or all(it.fenced for it in usable)


def _bad_assignment(state: MetadataState, replicas: Sequence[NodeId]) -> bool:
    return not replicas or len(set(replicas)) < len(replicas) or any(it not in state.brokers for it in replicas)


def _live(state: MetadataState, replicas: Sequence[NodeId]) -> tuple[NodeId, ...]:
    return tuple(it for it in replicas if it in state.brokers and state.brokers[it].active)


def _new_topic(topic: m.CreatableTopic, defaults: tuple[int, int]) -> tuple[Want, ...]:
    made: dict[str, UUID] = {}

    def is_topic(state: MetadataState, record: Any) -> bool:
        if not isinstance(record, r.TopicRecord) or record.name != topic.name or record.topic_id in state.topics:
            return False
        made["id"] = record.topic_id
        return True

    placed = {it.partition: it.broker_ids for it in topic.assignments}
    count = len(placed) or (defaults[0] if topic.num_partitions == -1 else topic.num_partitions)
    factor = defaults[1] if topic.replication_factor == -1 else topic.replication_factor
    configs = [_config(2, topic.name, key, value) for key, value in {it.name: it.value for it in topic.configs}.items()]
    partitions = [
        _new_partition(lambda state: made.get("id"), index, placed.get(index), factor if not placed else None)
        for index in range(count)
    ]
    return (Want(is_topic), *configs, *partitions)


def _config(kind: int, name: str, key: str, value: str | None) -> Want:
    wanted = r.ConfigRecord(resource_type=kind, resource_name=name, name=key, value=value)
    return Want(lambda _state, record: record == wanted)


def _new_partition(
    topic_id: Callable[[MetadataState], UUID | None], index: int, replicas: tuple[NodeId, ...] | None, factor: int | None
) -> Want:
    """CM-18 to CM-20: placed as told, or well; the live ones are in sync, and the first of them leads."""

    def fits(state: MetadataState, record: Any) -> bool:
        if not isinstance(record, r.PartitionRecord) or record.partition != index or record.topic_id != topic_id(state):
            return False
        where = record.replicas
        if where != replicas if replicas is not None else (len(where) != factor or _bad_assignment(state, where)):
            return False
        if replicas is None and not is_well_placed(state, where):
            return False
        if record.directories != first_directories(state, where):
            return False
        isr = _live(state, where)
        fresh = (record.leader_epoch, record.partition_epoch, record.recovering) == (0, 0, False)
        moving = record.adding_replicas or record.removing_replicas or record.elr or record.last_known_elr
        return bool(isr) and record.isr == isr and record.leader == isr[0] and fresh and not moving

    return Want(fits)


# --- more partitions, fewer topics


def create_partitions(state: MetadataState, request: m.CreatePartitionsRequest) -> Outcome:
    names = Counter(it.name for it in request.topics)
    entries = tuple(_growth(state, it, names) for it in request.topics)
    if any(it.faults == _TOO_MANY for it in entries) or sum(len(it.wants) for it in entries) > MOST:
        return Outcome(tuple(Entry(faults=_TOO_MANY) for _ in entries))
    return Outcome(entries, writes=not request.validate_only)


def _growth(state: MetadataState, wanted: m.CreatePartitionsTopic, names: Counter[str]) -> Entry:
    twice = names[wanted.name] > 1
    found = state.topic_named(wanted.name)
    if found is None or not found[1].partitions:  # its partitions come in later records of the same batch
        return Entry(faults=_codes((twice, E.INVALID_REQUEST), (True, E.UNKNOWN_TOPIC_OR_PARTITION)))
    topic_id, topic = found
    present, factor = len(topic.partitions), len(topic.partitions[0].replicas)
    more = wanted.count - present
    placed = None if wanted.assignments is None else [it.broker_ids for it in wanted.assignments]
    bad_placing = placed is not None and (
        len(placed) != more or any(_bad_assignment(state, it) or len(it) != factor or not _live(state, it) for it in placed)
    )
    faults = _codes(
        (twice, E.INVALID_REQUEST),
        (more <= 0, E.INVALID_PARTITIONS),
        (bad_placing, E.INVALID_REPLICA_ASSIGNMENT),
        (placed is None and _bad_factor(state, factor), E.INVALID_REPLICATION_FACTOR),
    )
    if faults or more > MOST:
        return Entry(faults=faults or _TOO_MANY)
    wants = tuple(
        _new_partition(lambda _state: topic_id, present + n, None if placed is None else placed[n], factor) for n in range(more)
    )
    return Entry(wants=wants)


def delete_topics(state: MetadataState, request: m.DeleteTopicsRequest) -> Outcome:
    """Follow Kafka's `ControllerApis`: what is named twice is refused once, and a topic that is named by its name and by its id
    is refused by its name, and not told by its id."""
    names = Counter(it.name for it in request.topics if it.topic_id is None)
    ids = Counter(it.topic_id for it in request.topics if it.name is None)
    entries: dict[object, Entry] = {}
    for at, it in enumerate(request.topics):
        if (it.name is None) == (it.topic_id is None):
            entries[at] = Entry(faults=frozenset({E.INVALID_REQUEST}))
        elif it.name is not None:
            found = state.topic_named(it.name)
            faults = _codes(
                (names[it.name] > 1 or (found is not None and ids[found[0]]), E.INVALID_REQUEST),
                (names[it.name] == 1 and found is None, E.UNKNOWN_TOPIC_OR_PARTITION),
            )
            entries[it.name] = Entry(faults=faults, wants=() if faults or found is None else (_removal(found[0]),))
        elif it.topic_id is not None:
            topic = state.topics.get(it.topic_id)
            faults = _codes(
                (ids[it.topic_id] > 1, E.INVALID_REQUEST), (ids[it.topic_id] == 1 and topic is None, E.UNKNOWN_TOPIC_ID)
            )
            if faults or topic is None or names[topic.name] != 1:
                entries[it.topic_id] = Entry(faults=faults, wants=() if faults else (_removal(it.topic_id),))
    return Outcome(tuple(entries.values()))


def _removal(topic_id: UUID) -> Want:
    return Want(lambda _state, record: record == r.RemoveTopicRecord(topic_id=topic_id))


# --- moves


def alter_reassignments(state: MetadataState, request: m.AlterPartitionReassignmentsRequest) -> Outcome:
    count = Counter((it.topic, it.partition) for it in request.partitions)
    return Outcome(
        tuple(
            Entry(faults=frozenset({E.INVALID_REQUEST}))
            if count[it.topic, it.partition] > 1
            else _move(state, it, request.allow_replication_factor_change)
            for it in {(it.topic, it.partition): it for it in request.partitions}.values()
        )
    )


def _move(state: MetadataState, wanted: m.ReassignablePartition, any_factor: bool) -> Entry:
    found = state.topic_named(wanted.topic)
    now = None if found is None else found[1].partitions.get(wanted.partition)
    if found is None or now is None:
        return Entry(faults=frozenset({E.UNKNOWN_TOPIC_OR_PARTITION}))
    before = tuple(it for it in now.replicas if it not in now.adding_replicas)
    if wanted.replicas is None:
        stays = [it for it in (*now.isr, *now.elr) if it not in now.adding_replicas]
        unclean = state.topic_config(wanted.topic, "unclean.leader.election.enable") == "true"
        faults = _codes(
            (not now.adding_replicas and not now.removing_replicas, E.NO_REASSIGNMENT_IN_PROGRESS),
            (not before or (not stays and not unclean), E.INVALID_REPLICA_ASSIGNMENT),
        )
        fits = _cancelled
        target = before
    else:
        target = wanted.replicas
        factor = len([it for it in now.replicas if it not in now.removing_replicas])
        faults = _codes(
            (_bad_assignment(state, target), E.INVALID_REPLICA_ASSIGNMENT),
            (not any_factor and len(target) != factor, E.INVALID_REPLICATION_FACTOR),
        )
        fits = _moving
    if faults:
        return Entry(faults=faults)
    topic_id, index = found[0], wanted.partition

    def matches(_state: MetadataState, record: Any) -> bool:
        if not isinstance(record, r.PartitionChangeRecord) or (record.topic_id, record.partition) != (topic_id, index):
            return False
        return fits(now, changed_partition(now, record), before, target)

    return Entry(wants=(Want(matches, optional=fits(now, now, before, target)),))


Nodes = tuple[NodeId, ...]


def _cancelled(old: PartitionRegistration, new: PartitionRegistration, before: Nodes, target: Nodes) -> bool:
    """CM-44."""
    stays = tuple(it for it in old.isr if it not in old.adding_replicas)
    eligible = any(it not in old.adding_replicas for it in old.elr)
    one = len(new.isr) == 1 and new.recovering
    in_sync = set(new.isr) == set(stays) if stays else one or (eligible and len(new.isr) < 2)
    return new.replicas == before and not new.adding_replicas and not new.removing_replicas and in_sync


def _moving(old: PartitionRegistration, new: PartitionRegistration, before: Nodes, target: Nodes) -> bool:
    """CM-41 to CM-43, CM-45. What an abandoned move was adding goes at once, unless nothing else is in sync."""
    abandoned = [it for it in old.adding_replicas if it not in target]
    if all(it in abandoned for it in old.isr) and (old.isr or all(it in abandoned for it in old.elr)):
        before, abandoned = (*before, *abandoned), []
    leaving = {it for it in before if it not in target}
    staying = [it for it in old.isr if it not in abandoned]
    coming = {it for it in target if it not in before}
    in_sync = {it for it in staying if it not in leaving}
    if (coming or leaving) and in_sync and all(it in staying for it in awaited(coming, leaving, target)):
        return new.replicas == target and not new.adding_replicas and not new.removing_replicas and set(new.isr) == in_sync
    return (
        new.replicas[: len(target)] == target
        and set(new.replicas[len(target) :]) == leaving
        and len(new.replicas) == len(target) + len(leaving)
        and set(new.adding_replicas) == coming
        and set(new.removing_replicas) == leaving
        and (set(new.isr) == set(staying) or (not staying and len(new.isr) == 1))
    )


def listed_moves(state: MetadataState, request: m.ListPartitionReassignmentsRequest) -> dict[tuple[str, int], tuple[Nodes, ...]]:
    """The partitions that move, with replicas, added and removed ones (CM-46)."""
    asked = None if request.partitions is None else {(it.topic, it.partition) for it in request.partitions}
    return {
        (topic.name, index): (it.replicas, it.adding_replicas, it.removing_replicas)
        for topic in state.topics.values()
        for index, it in topic.partitions.items()
        if (it.adding_replicas or it.removing_replicas) and (asked is None or (topic.name, index) in asked)
    }


# --- elections and brokers


def election(state: MetadataState, topic: str, index: int, kind: int) -> Entry:
    """CM-38. The records are those of any other election: `i20_isr_and_leader` looks at them."""
    found = state.topic_named(topic)
    now = None if found is None else found[1].partitions.get(index)
    if now is None:
        return Entry(faults=frozenset({E.UNKNOWN_TOPIC_OR_PARTITION}))
    first = now.replicas[0]
    if now.leader is not None and (kind == m.ElectionType.UNCLEAN or now.leader == first):
        return Entry(faults=frozenset({E.ELECTION_NOT_NEEDED}))
    refused = E.PREFERRED_LEADER_NOT_AVAILABLE if kind == m.ElectionType.PREFERRED else E.ELIGIBLE_LEADERS_NOT_AVAILABLE
    candidates = (first,) if kind == m.ElectionType.PREFERRED else now.replicas
    live = [it for it in _live(state, candidates) if kind == m.ElectionType.UNCLEAN or it in (now.isr or now.elr)]
    if not live:
        leaves = now.leader is None or now.leader not in _live(state, now.replicas)  # then any other member may come to lead
        return Entry(faults=frozenset({refused}), maybe=frozenset({E.NONE}) if leaves else NONE)
    sure = all(_directory_online(state, now, it) for it in live)
    return Entry(maybe=NONE if sure else frozenset({refused}))


_PLACED_LATER: Final = (UUID(int=0), UUID(int=1))
"""Directories that a broker has still to choose (KIP-858)."""


def _directory_online(state: MetadataState, now: PartitionRegistration, broker: NodeId) -> bool:
    if len(now.directories) != len(now.replicas):
        return True
    where = now.directories[now.replicas.index(broker)]
    return where in _PLACED_LATER or where in state.brokers[broker].log_dirs


def unregister_broker(state: MetadataState, request: m.UnregisterBrokerRequest) -> Outcome:
    known = state.brokers.get(request.broker_id)
    if known is None:
        return Outcome(whole=frozenset({E.BROKER_ID_NOT_REGISTERED}))
    wanted = r.UnregisterBrokerRecord(broker_id=request.broker_id, broker_epoch=known.broker_epoch)
    return Outcome((Entry(wants=(Want(lambda _state, record: record == wanted),)),))
