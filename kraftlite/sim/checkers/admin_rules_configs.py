"""The rules of admin requests about configs, features, quotas and credentials, as `admin_rules` has those about topics.

Written against docs/spec (CM-47 to CM-53, CM-59, CM-61), not against `controller`.
"""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Final

from kraftlite.metadata import records as r
from kraftlite.model.errors import ErrorCode as E
from kraftlite.model.ids import NodeId
from kraftlite.model.messages import controller as m
from kraftlite.model.messages import security as s
from kraftlite.sim.checkers.admin_rules import Codes, Entry, Outcome, Want, is_good
from kraftlite.sim.checkers.model import MetadataState, has_elr
from kraftlite.sim.workloads.admin_values import (
    INTERVALS,
    OF_BROKERS,
    OF_CLIENT_METRICS,
    OF_GROUPS,
    OF_TOPICS,
    READ_ONLY,
    Values,
)

TOPIC, BROKER, METRICS, GROUP = 2, 4, 16, 32
KEYS: Final[Mapping[int, Mapping[str, Values]]] = {
    TOPIC: OF_TOPICS, BROKER: {**OF_BROKERS, **INTERVALS}, METRICS: OF_CLIENT_METRICS, GROUP: OF_GROUPS,
}  # fmt: skip
_SET, _DELETE, _APPEND, _SUBTRACT = range(4)
ELR: Final = "eligible.leader.replicas.version"
MIN_ISR: Final = "min.insync.replicas"
_ELR_FROM: Final = 23
"""The `metadata.version` that eligible leader replicas need."""
OF_ONE_BROKER: Final = frozenset({"cordoned.log.dirs"})
"""Keys, of those that are drawn, that no default of the cluster may give (CM-51)."""
_DEFAULT_LIST: Final = "delete"
"""The default of `cleanup.policy`, the only list that is asked for."""


def _is(record: Any) -> Want:
    return Want(lambda _state, found: found == record)


# --- configs


def alter_configs(state: MetadataState, request: m.IncrementalAlterConfigsRequest | m.AlterConfigsRequest) -> Outcome:
    count = Counter((it.resource_type, it.resource_name) for it in request.resources)
    entries = []
    for it in request.resources:
        resource = (it.resource_type, it.resource_name)
        current = state.configs.get(resource, {})
        if isinstance(it, m.ConfigResourceChange):
            faults, wanted = _changed(resource, it.changes, current)
        else:
            faults, wanted = _replaced(resource, it.configs, current)
        everywhere = resource == (BROKER, "") and any(key in OF_ONE_BROKER and text is not None for key, text in wanted.items())
        if count[resource] > 1 or _no_resource(resource) or everywhere:
            faults |= {E.INVALID_REQUEST}
        faults |= _disagreement(state, resource, wanted)
        entries.append(_resource(resource, faults | _missing(state, resource), current, wanted, elr=has_elr(state)))
    return Outcome(tuple(entries), writes=not request.validate_only)


def _disagreement(state: MetadataState, resource: tuple[int, str], wanted: Mapping[str, str | None]) -> set[E]:
    """EL-03: with eligible leader replicas there is one value for all brokers."""
    if not has_elr(state) or resource[0] != BROKER or MIN_ISR not in wanted:
        return set()
    return {E.INVALID_CONFIG} if resource[1] != "" or wanted[MIN_ISR] is None else set()


def _resource(
    resource: tuple[int, str],
    faults: set[E],
    current: Mapping[str, str],
    wanted: Mapping[str, str | None],
    *,
    elr: bool,
) -> Entry:
    if faults:
        return Entry(faults=frozenset(faults))
    kind, name = resource
    wants = tuple(
        _is(r.ConfigRecord(resource_type=kind, resource_name=name, name=key, value=value))
        for key, value in wanted.items()
        if value != current.get(key) or (kind == BROKER and value is not None)
    )
    minimum = wanted.get(MIN_ISR)
    if elr and MIN_ISR in wanted and (minimum != current.get(MIN_ISR) or (kind == BROKER and minimum is not None)):
        wants += (_is(r.ClearElrRecord(topic_name=name if kind == TOPIC else "")),)
    unsure = any(value is not None and is_good(KEYS[kind], key, value) is None for key, value in wanted.items())
    return Entry(wants=wants, maybe=frozenset({E.INVALID_CONFIG, E.INVALID_REQUEST}) if unsure else frozenset())


def _no_resource(resource: tuple[int, str]) -> bool:
    kind, name = resource
    if kind == BROKER:
        return name != "" and not name.isdecimal()
    return kind not in KEYS or name == ""


def _missing(state: MetadataState, resource: tuple[int, str]) -> set[E]:
    kind, name = resource
    if kind == TOPIC and state.topic_named(name) is None:
        return {E.UNKNOWN_TOPIC_OR_PARTITION}
    if kind == BROKER and name.isdecimal() and NodeId(int(name)) not in {*state.brokers, *state.controllers}:
        return {E.BROKER_ID_NOT_REGISTERED}
    return set()


def _refusal(kind: int, key: str, value: str | None) -> set[E]:
    """The error of one value of one key; None: the key is removed."""
    if kind == BROKER and key in READ_ONLY and value is not None:
        return {E.INVALID_REQUEST}
    if value is None or kind not in KEYS or is_good(KEYS[kind], key, value) is not False:
        return set()
    if kind == BROKER:  # a key that Kafka does not know may belong to a plug-in
        return {E.INVALID_REQUEST} if key in KEYS[BROKER] else set()
    return {E.INVALID_REQUEST if kind == METRICS else E.INVALID_CONFIG}


def _changed(
    resource: tuple[int, str], changes: Sequence[m.ConfigChange], current: Mapping[str, str]
) -> tuple[set[E], dict[str, str | None]]:
    kind, faults = resource[0], set[E]()
    wanted: dict[str, str | None] = {}
    for it in changes:
        if it.name in wanted or it.op not in range(4) or (it.value is None and it.op != _DELETE):
            faults.add(E.INVALID_REQUEST)
        value = None if it.op == _DELETE else it.value
        if it.op in (_APPEND, _SUBTRACT) and it.value is not None:
            known = KEYS.get(kind, {}).get(it.name)
            if known is None or not known.items:
                faults.add(E.INVALID_CONFIG)
            else:
                value = _list(current.get(it.name, _DEFAULT_LIST), it.op, it.value.split(","))
                if any(item not in known.items for item in value.split(",") if item):
                    faults.add(E.INVALID_CONFIG)
                wanted[it.name] = value
                continue
        wanted[it.name] = value
        faults |= _refusal(kind, it.name, value)
    return faults, wanted


def _list(before: str, op: int, named: Sequence[str]) -> str:
    items = [it for it in before.split(",") if it]
    if op == _APPEND:
        return ",".join(dict.fromkeys((*items, *named)))
    return ",".join(it for it in items if it not in named)


def _replaced(
    resource: tuple[int, str], pairs: Sequence[m.ConfigPair], current: Mapping[str, str]
) -> tuple[set[E], dict[str, str | None]]:
    """CM-50: what is not named goes."""
    faults: set[E] = set()
    wanted: dict[str, str | None] = {}
    for it in pairs:
        if it.name in wanted or it.value is None:
            faults.add(E.INVALID_REQUEST)
        wanted[it.name] = it.value
        faults |= _refusal(resource[0], it.name, it.value)
    for key in current:
        wanted.setdefault(key, None)
    return faults, wanted


# --- features

KRAFT_VERSION: Final = "kraft.version"
_SUPPORTED: Final[Mapping[str, tuple[int, int]]] = {
    ELR: (0, 1), "metadata.version": (7, 30), "group.version": (0, 1), KRAFT_VERSION: (0, 1), "transaction.version": (0, 2),
}  # fmt: skip
_CHANGES_METADATA: Final = frozenset({7, 8, 11, 13, 14, 15, 17, 23, 30})
"""Levels of `metadata.version` below which records of that level are not understood: Kafka's `MetadataVersion`."""
_CONTROLLERS_REGISTER: Final = 15


def update_features(
    state: MetadataState, request: m.UpdateFeaturesRequest, voters: Sequence[NodeId], min_isr: str = "1"
) -> Outcome:
    """CM-53, FV-02 to FV-04: all or nothing. `voters`: those that must have registered. `min_isr`: the static value of the
    controllers."""
    names = Counter(it.name for it in request.updates)
    whole: set[E] = set()
    entries = []
    for it in request.updates:
        if names[it.name] > 1:
            whole.add(E.INVALID_REQUEST)
        if _bad_level(state, it, voters):
            whole.add(E.INVALID_UPDATE_VERSION)
        now = state.features.get(it.name, 0)
        # A control record of the quorum says the kraft.version.
        wants: tuple[Want, ...] = (_is(r.FeatureLevelRecord(name=it.name, level=it.level)),) if it.name != KRAFT_VERSION else ()
        if it.name == ELR and it.level != now:
            wants += _with_elr(state, it.level, min_isr)
        entries.append(Entry(wants=wants))
    levels = {**state.features, **{it.name: it.level for it in request.updates}}
    if levels.get(ELR, 0) > 0 and levels.get("metadata.version", 0) < _ELR_FROM:
        whole.add(E.INVALID_UPDATE_VERSION)
    return Outcome(tuple(entries), whole=frozenset(whole), writes=not request.validate_only)


def _with_elr(state: MetadataState, level: int, min_isr: str) -> tuple[Want, ...]:
    """EL-01, EL-03: one value for all brokers, and nobody is eligible from before."""
    wants: list[Want] = []
    if level and MIN_ISR not in state.configs.get((BROKER, ""), {}):
        wants.append(_is(r.ConfigRecord(resource_type=BROKER, resource_name="", name=MIN_ISR, value=min_isr)))
    for (kind, name), values in state.configs.items():
        if level and kind == BROKER and name and MIN_ISR in values:
            wants.append(_is(r.ConfigRecord(resource_type=kind, resource_name=name, name=MIN_ISR, value=None)))
    any_elr = any(it.elr or it.last_known_elr for topic in state.topics.values() for it in topic.partitions.values())
    return (*wants, *([_is(r.ClearElrRecord(topic_name=""))] if any_elr else []))


def _bad_level(state: MetadataState, it: m.FeatureUpdate, voters: Sequence[NodeId]) -> bool:
    now = state.features.get(it.name, 0)
    if it.upgrade_type not in (1, 2, 3) or it.level < 0:
        return True
    if it.name not in _SUPPORTED or _unsupported(state, it, voters):
        return True
    if (it.level < now and it.upgrade_type == 1) or (it.level > now and it.upgrade_type != 1):
        return True
    return it.name == "metadata.version" and any(it.level < level <= now for level in _CHANGES_METADATA)


def _unsupported(state: MetadataState, it: m.FeatureUpdate, voters: Sequence[NodeId]) -> bool:
    nodes = [*(one.features for one in state.brokers.values()), *(one.features for one in state.controllers.values())]
    ranges = [next(((one.min_level, one.max_level) for one in features if one.name == it.name), (0, 0)) for features in nodes]
    ranges.append(_SUPPORTED[it.name])
    registering = state.features.get("metadata.version", 0) >= _CONTROLLERS_REGISTER
    silent = registering and any(voter not in state.controllers for voter in voters)
    return silent or any(not low <= it.level <= high for low, high in ranges)


# --- quotas

_CLIENT_KEYS: Final = {"producer_byte_rate": True, "consumer_byte_rate": True, "request_percentage": False,
                       "controller_mutation_rate": False}  # fmt: skip
"""Quotas of users and clients: whether they are whole numbers."""
_IP_KEYS: Final = {"connection_creation_rate": True}


def alter_quotas(state: MetadataState, request: s.AlterClientQuotasRequest) -> Outcome:
    seen: list[tuple[s.QuotaEntityPart, ...]] = []
    entries = []
    for it in request.entries:
        entity = tuple(sorted(it.entity))
        bad = entity in seen or _bad_entity(entity) or _bad_ops(entity, it.ops)
        seen.append(entity)
        current = state.quotas.get(entity, {})
        wants = tuple(
            _is(r.ClientQuotaRecord(entity=entity, key=op.key, value=op.value))
            for op in it.ops
            if op.value != current.get(op.key)
        )
        entries.append(Entry(faults=frozenset({E.INVALID_REQUEST})) if bad else Entry(wants=wants))
    return Outcome(tuple(entries), writes=not request.validate_only)


def _bad_entity(entity: Sequence[s.QuotaEntityPart]) -> bool:
    types = [it.type for it in entity]
    if not types or len(set(types)) < len(types) or any(it.name == "" for it in entity):
        return True
    if types == ["ip"]:
        try:
            ipaddress.ip_address(entity[0].name or "::")
        except ValueError:
            return True
        return False
    return any(it not in ("user", "client-id") for it in types)


def _bad_ops(entity: Sequence[s.QuotaEntityPart], ops: Sequence[s.QuotaOp]) -> bool:
    keys = _IP_KEYS if [it.type for it in entity] == ["ip"] else _CLIENT_KEYS
    if len({it.key for it in ops}) < len(ops):
        return True
    for it in ops:
        if it.value is None:
            continue  # removing what cannot be there changes nothing
        value = float(it.value)
        if it.key not in keys or not value > 0 or (keys[it.key] and value != int(value)):
            return True
    return False


# --- credentials


def scram_users(request: s.AlterUserScramCredentialsRequest) -> list[str]:
    """The users of a request, in the order of its answer."""
    return list(dict.fromkeys([*(it.name for it in request.deletions), *(it.name for it in request.upsertions)]))


def alter_scram(state: MetadataState, request: s.AlterUserScramCredentialsRequest) -> Outcome:
    """CM-59: an entry for each user."""
    changes: tuple[s.ScramDeletion | s.ScramUpsertion, ...] = (*request.deletions, *request.upsertions)
    count = Counter((it.name, it.mechanism) for it in changes)
    entries = []
    for user in scram_users(request):
        mine = [it for it in changes if it.name == user]
        faults: set[E] = set()
        for it in mine:
            faults |= _bad_credential(state, it)
            if count[it.name, it.mechanism] > 1:
                faults.add(E.DUPLICATE_RESOURCE)
        wants = () if faults else tuple(_is(_credential(it)) for it in mine)
        entries.append(Entry(faults=frozenset(faults), wants=wants))
    return Outcome(tuple(entries))


def _bad_credential(state: MetadataState, it: s.ScramDeletion | s.ScramUpsertion) -> Codes:
    found: set[E] = set()
    if not it.name:
        found.add(E.UNACCEPTABLE_CREDENTIAL)
    if it.mechanism not in (1, 2):
        found.add(E.UNSUPPORTED_SASL_MECHANISM)
    if isinstance(it, s.ScramUpsertion):
        if not 4096 <= it.iterations <= 16_384:
            found.add(E.UNACCEPTABLE_CREDENTIAL)
    elif (it.name, it.mechanism) not in state.credentials:
        found.add(E.RESOURCE_NOT_FOUND)
    return frozenset(found)


def _credential(it: s.ScramDeletion | s.ScramUpsertion) -> r.UserScramCredentialRecord | r.RemoveUserScramCredentialRecord:
    """RFC 5802, section 3."""
    if isinstance(it, s.ScramDeletion):
        return r.RemoveUserScramCredentialRecord(name=it.name, mechanism=it.mechanism)
    digest = {1: hashlib.sha256, 2: hashlib.sha512}[it.mechanism]
    client_key = hmac.new(it.salted_password, b"Client Key", digest).digest()
    return r.UserScramCredentialRecord(
        name=it.name,
        mechanism=it.mechanism,
        salt=it.salt,
        stored_key=digest(client_key).digest(),
        server_key=hmac.new(it.salted_password, b"Server Key", digest).digest(),
        iterations=it.iterations,
    )
