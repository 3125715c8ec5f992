"""Every API by a user with every single grant and every single denial: what is asked, and what an answer is reduced to.

The questions are the samples of `tests/harness/api_samples`, which cover the table of rights, and requests for lists, by old
versions, and about what there is not. `python -m tests.clients.compare_rights` puts them to Apache Kafka and to kraftlite.
Source: SE-31, SE-36, SE-40.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final
from uuid import UUID

from kraftlite.model.acls import (
    CLUSTER_NAME,
    EVERYBODY,
    OPERATIONS_ON,
    WILDCARD,
    AclBinding,
    Operation,
    PatternType,
    Permission,
    ResourceType,
)
from tests.clients.compare_sides import flat, plain
from tests.harness.api_samples import (
    BROKER_SAMPLES,
    CONSUMERS,
    GROUP,
    TOPIC,
    TXN,
    Sample,
    consumer,
    fetched,
    metadata,
    offset_fetch,
    produced,
    sample,
)
from tests.harness.authorized import (
    LOADING,
    User,
    codes,
    commit_offset,
    create,
    entries_of,
    entry,
    grant_only,
    prepared,
    until_loaded,
)

R, OP, P = ResourceType, Operation, PatternType
_ZERO: Final = UUID(int=0)
_NOPE: Final = "nope"
CONTROLLER_KEYS: Final = frozenset({19, 20, 29, 30, 31, 32, 33, 37, 43, 44, 45, 46, 49, 51, 55, 57, 60, 64, 80, 81})
"""What a controller decides for clients of its own port."""
PATIENCE: Final = 200
"""Questions to a coordinator that has to load first."""
VOLATILE: Final = frozenset(
    {
        "throttle_time",
        "error_message",
        "producer_id",
        "producer_epoch",
        "coordinator_epoch",
        "current_txn_start_offset",
        "last_timestamp",
        "start_timestamp",
        "transaction_start_time",
        "records",
        "base_offset",
        "offset",
        "log_append_time",
        "log_start_offset",
        "high_watermark",
        "low_watermark",
        "last_stable_offset",
        "end_offset",
        "leader_epoch",
        "timestamp",
        "host",
        "port",
        "cluster_id",
        "client_host",
        "client_id",
        "member_id",
        "member_epoch",
        "group_epoch",
        "assignment_epoch",
        "active_producers",
        "nodes",
        "node_endpoints",
        "topics_hash",
        "log_dir",
        "heartbeat_interval",
        "assignor_name",
        "partition_size",
        "hmac",
        "leader_id",
        "replica_nodes",
        "isr_nodes",
        "eligible_leader_replicas",
        "last_known_elr",
        "offline_replicas",
        "is_internal",
        "token_id",
        "group_state",
        "group_states",
        "assignment",
        "total_bytes",
        "usable_bytes",
        "replica_directory_id",
        "last_fetch_timestamp",
        "last_caught_up_timestamp",
        "log_end_offset",
    }
)
"""Fields that are about something else than rights, or differ from run to run."""
COUNTED: Final = frozenset({"configs"})
"""Lists of which only what is here tells something about rights: `tests.clients.compare` compares what is in them."""


def _configured(*resources: tuple[int, str]) -> list[dict[str, Any]]:
    return [{"resource_type": kind, "resource_name": name, "configuration_keys": ["retention.ms"]} for kind, name in resources]


def _altered(*resources: tuple[int, str]) -> list[dict[str, Any]]:
    return [{"resource_type": kind, "resource_name": name, "configs": []} for kind, name in resources]


def _metadata_of_all(it: Mapping[str, Any]) -> dict[str, Any]:
    return {**metadata({}), "topics": None, "include_topic_authorized_operations": True, **it}


_EVERY: Final = ((2, TOPIC), (2, _NOPE), (4, ""), (4, "1"), (8, "1"), (16, "m"), (32, GROUP), (32, _NOPE))
_TIMED: Final = {"timeout": 5_000, "validate_only": True}
_NEW: Final = {"num_partitions": 1, "replication_factor": 1, "assignments": [], "configs": []}
_ANY_ACL: Final = {
    "resource_type_filter": 1,
    "resource_name_filter": None,
    "pattern_type_filter": 1,
    "principal_filter": "User:zed",
    "host_filter": None,
    "operation": 1,
    "permission_type": 1,
}
_REGEX: Final = {**consumer("regex-1", None), "subscribed_topic_regex": "orders.*"}
_TOKEN: Final = {"owner_principal_type": "User", "owner_principal_name": "zed", "renewers": [], "max_lifetime": 1000}


def asked(name: str, key: int, version: int, values: Any) -> Sample:
    """A further request of an API. Its needs are those of the sample of the same key."""
    return sample(key, version, values, name=name)


def _about_topics() -> Iterator[Sample]:
    yield asked("all", 3, 12, _metadata_of_all({}))
    yield asked("all, old", 3, 9, _metadata_of_all({"include_cluster_authorized_operations": True}))
    yield asked("unknown", 3, 12, metadata({"topic_id": None, "name": _NOPE}))
    yield asked("unknown id", 3, 12, metadata({"topic_id": UUID(int=5), "name": None}))
    yield asked("all", 75, 0, {"topics": [], "response_partition_limit": 100, "cursor": None})
    yield asked("unknown", 75, 0, {"topics": [{"name": _NOPE}], "response_partition_limit": 100, "cursor": None})
    yield asked("unknown", 1, 12, fetched({"topic": _NOPE}))
    yield asked("unknown id", 1, 13, fetched({"topic_id": UUID(int=5)}))
    yield asked("unknown", 0, 9, {**produced(None), "topic_data": [{**produced(None)["topic_data"][0], "name": _NOPE}]})
    partition = {"partition_index": 0, "current_leader_epoch": -1, "timestamp": -1}
    both = [{"name": name, "partitions": [partition]} for name in (TOPIC, _NOPE)]
    yield asked("two", 2, 7, {"replica_id": -1, "isolation_level": 0, "topics": both})
    yield asked(
        "two",
        21,
        2,
        {"timeout": 5_000, "topics": [{"name": it["name"], "partitions": [{"partition_index": 0, "offset": 0}]} for it in both]},
    )
    yield asked("two", 61, 0, {"topics": [{"name": it["name"], "partition_indexes": [0]} for it in both]})


def _about_groups() -> Iterator[Sample]:
    yield asked("all offsets", 9, 8, {"groups": [{"group_id": GROUP, "topics": None}], "require_stable": False})
    old = {"group_id": GROUP, "topics": [{"name": TOPIC, "partition_indexes": [0]}, {"name": _NOPE, "partition_indexes": [0]}]}
    yield asked("version 1", 9, 1, old)
    yield asked("version 5", 9, 5, old)
    yield asked("version 5, all", 9, 5, {**old, "topics": None})
    unknown = offset_fetch({"topic_id": UUID(int=5)})
    yield asked("unknown id", 9, 10, unknown)
    both = [{"name": name} for name in (TOPIC, _NOPE)]
    committed = {"partition_index": 0, "committed_offset": 0, "committed_leader_epoch": -1, "committed_metadata": ""}
    commit = {"group_id": GROUP, "generation_id_or_member_epoch": -1, "member_id": "", "group_instance_id": None}
    yield asked("two", 8, 9, {**commit, "topics": [{"name": it["name"], "partitions": [committed]} for it in both]})
    yield asked("unknown id", 8, 10, {**commit, "topics": [{"topic_id": UUID(int=5), "partitions": [committed]}]})
    yield asked("two", 10, 4, {"key_type": 0, "coordinator_keys": [GROUP, "other"]})
    yield asked("operations", 15, 5, {"groups": [GROUP, "other"], "include_authorized_operations": True})
    yield asked("operations", 69, 0, {"group_ids": [CONSUMERS, "other"], "include_authorized_operations": True})
    yield asked("two", 42, 2, {"groups_names": ["nobody", "other"]})
    yield asked("regex", 68, 1, _REGEX)


def _about_the_cluster() -> Iterator[Sample]:
    nothing = {"topics": [], "timeout": 5_000}
    yield asked("two", 19, 7, lambda it: {"topics": [{"name": it["new"], **_NEW}, {"name": TOPIC, **_NEW}], **_TIMED})
    yield asked("nothing", 19, 7, {"topics": [], **_TIMED})
    named = [{"name": name, "topic_id": _ZERO} for name in (_NOPE, "never")]
    yield asked("unknown", 20, 6, {"topics": named, "timeout": 5_000})
    yield asked("unknown id", 20, 6, {"topics": [{"name": None, "topic_id": UUID(int=5)}], "timeout": 5_000})
    yield asked("by name", 20, 3, {"topic_names": [_NOPE], "timeout": 5_000})
    yield asked("nothing", 20, 6, nothing)
    more = [{"name": name, "count": 2, "assignments": None} for name in (TOPIC, _NOPE)]
    yield asked("two", 37, 3, {"topics": more, **_TIMED})
    yield asked("nothing", 37, 3, {"topics": [], **_TIMED})
    described = {"resources": _configured(*_EVERY), "include_synonyms": False, "include_documentation": False}
    yield asked("every kind", 32, 4, described)
    for key, version in ((33, 2), (44, 1)):
        yield asked("every kind", key, version, {"resources": _altered(*_EVERY), "validate_only": True})
        yield asked("nothing", key, version, {"resources": [], "validate_only": True})
    yield asked("every kind", 29, 3, _ANY_ACL)
    yield asked("nothing", 30, 3, {"creations": []})
    yield asked("nothing", 31, 3, {"filters": []})
    yield asked("nothing", 43, 2, {"election_type": 0, "topic_partitions": [], "timeout": 5_000})
    yield asked("nothing", 45, 0, nothing)
    yield asked("one", 46, 0, {"timeout": 5_000, "topics": [{"name": TOPIC, "partition_indexes": [0]}]})
    yield asked("nothing", 49, 1, {"entries": [], "validate_only": True})
    yield asked("one", 50, 0, {"users": [{"name": "zed"}]})
    yield asked("nothing", 51, 0, {"deletions": [], "upsertions": []})
    yield asked("nothing", 57, 1, {"timeout": 5_000, "feature_updates": [], "validate_only": True})
    yield asked("for another", 38, 3, _TOKEN)
    yield asked("unknown", 39, 2, {"hmac": b"x", "renew_period": 1})
    yield asked("unknown", 40, 2, {"hmac": b"x", "expiry_time_period": 1})
    yield asked("all", 41, 3, {"owners": None})
    yield asked("of another", 41, 3, {"owners": [{"principal_type": "User", "principal_name": "zed"}]})
    for kind in (1, 2, 3):
        yield asked(f"operations, {kind}", 60, 1, {"include_cluster_authorized_operations": True, "endpoint_type": kind})
    yield asked("nothing", 47, 0, {"group_id": GROUP, "topics": []})
    yield asked("nothing", 35, 4, {"topics": []})
    yield asked("nothing", 65, 0, {"transactional_ids": []})
    yield asked(
        "two-phase",
        22,
        6,
        {
            "transactional_id": TXN,
            "transaction_timeout": 10_000,
            "producer_id": -1,
            "producer_epoch": -1,
            "enable_2_pc": True,
            "keep_prepared_txn": False,
        },
    )


SILENT: Final = ("50", "24-broker")
"""Kafka does not answer to these: DescribeUserScramCredentials for all users, where it is to be refused, and AddPartitionsToTxn
of no transactions."""
SAMPLES: Final[tuple[Sample, ...]] = (
    *(it for it in BROKER_SAMPLES if str(it) not in SILENT),
    *_about_topics(),
    *_about_groups(),
    *_about_the_cluster(),
)


def title(one: Sample) -> str:
    return f"{one.key} v{one.version}{one.name and f' {one.name}'}"


# --- grants -------------------------------------------------------------------------------------------------------------


NAMES: Final[Mapping[ResourceType, Sequence[str]]] = {
    R.TOPIC: (TOPIC, "{new}", "{doomed_name}"),
    R.GROUP: (GROUP, CONSUMERS, "consumers-2", "nobody", "regex-1"),
    R.CLUSTER: (CLUSTER_NAME,),
    R.TRANSACTIONAL_ID: (TXN, "txn-open"),
    R.USER: ("User:zed",),
}
"""What the samples name."""


def _on(kind: ResourceType, operation: Operation, how: str, permission: Permission = Permission.ALLOW) -> list[AclBinding]:
    if how == "wildcard":
        return [entry(kind, WILDCARD, operation, permission=permission)]
    if how == "prefixed":
        names = (name if "{" in name else name[:4] for name in NAMES[kind])
        return [entry(kind, name, operation, pattern=P.PREFIXED, permission=permission) for name in names]
    return [entry(kind, name, operation, permission=permission) for name in NAMES[kind]]


def _everything(**more: Any) -> list[AclBinding]:
    return [entry(kind, CLUSTER_NAME if kind is R.CLUSTER else WILDCARD, OP.ALL, **more) for kind in NAMES]


def states() -> Iterator[tuple[str, list[AclBinding]]]:
    """Sets of entries by name. `{new}` and `{doomed_name}` in a resource's name are to be filled in."""
    yield "nothing", []
    yield "everything", _everything()
    yield "everything to everybody", _everything(principal=EVERYBODY)
    yield "everything to another", _everything(principal="User:bob")
    for kind in NAMES:
        for operation in (*OPERATIONS_ON[kind], OP.ALL):
            for how in ("exact",) if kind in (R.CLUSTER, R.USER) else ("exact", "prefixed", "wildcard"):
                named = f"{operation.name} on {kind.name}, {how}"
                yield f"only {named}", _on(kind, operation, how)
                yield f"not {named}", [*_everything(), *_on(kind, operation, how, Permission.DENY)]


@dataclass
class Asked:
    """One cluster with its administrator and alice, who has what the state says. `controllers`: the same two at the controller's
    port; empty: it is not asked."""

    admin: User
    alice: User
    controllers: tuple[User, ...] = ()
    facts: dict[str, Any] = field(default_factory=dict)

    def prepare(self) -> None:
        self.facts = prepared(self.admin)
        assert self.admin.call(38, 3, {**_TOKEN, "max_lifetime": -1}).error_code.value == 0
        for version, values in ((0, consumer("consumers-2", [TOPIC])), (1, _REGEX)):
            until_loaded(self.admin, 68, version, values)

    def answers(self, entries: Sequence[AclBinding], number: int) -> dict[str, dict[str, str]]:
        """What alice is told, by the title of the sample."""
        self.facts["new"] = f"new-{number}"
        commit_offset(self.admin)
        if self.facts.get("doomed_name") is None:
            self.facts["doomed_name"] = f"doomed-{number}"
            self.facts["doomed"] = create(self.admin, self.facts["doomed_name"])
        names = {key: value for key, value in self.facts.items() if isinstance(value, str)}
        mine = [_filled(one, names) for one in entries]
        grant_only(self.admin, mine)
        for admin in self.controllers[:1]:
            while entries_of(admin) != len(set(mine)):
                pass
        found = {}
        for one in SAMPLES:
            found[title(one)] = told = self._told(self.alice, one)
            if one.key == 20 and "none" in (value for path, value in told.items() if path.endswith("error_code")):
                self.facts["doomed_name"] = None
            for user in self.controllers[1:] if one.key in CONTROLLER_KEYS else ():
                found[f"controller {title(one)}"] = self._told(user, one)
        return found

    def _told(self, user: User, one: Sample) -> dict[str, str]:
        doomed = self.facts.get("doomed_name")
        for _ in range(PATIENCE):
            try:
                answer = user.call(one.key, one.version, one.values(self.facts))
            except (ConnectionError, TimeoutError) as error:
                user.reopen()
                return {"": "silent" if isinstance(error, TimeoutError) else "closed"}
            if not codes(answer) & LOADING:
                break
        return reduced(answer, {self.facts["new"]: "new", doomed: "doomed"} if doomed else {self.facts["new"]: "new"})


RECORD: Final = Path(__file__).with_name("rights.json")


def recorded(said: Mapping[str, Mapping[str, Mapping[str, str]]]) -> str:
    """Answers by state and title as a text: the states in order, and by title the different answers, and which of them each state
    has."""
    found: dict[str, Any] = {}
    for title_ in next(iter(said.values())):
        different: list[Mapping[str, str]] = []
        for answers in said.values():
            if answers[title_] not in different:
                different.append(answers[title_])
        which = " ".join(str(different.index(answers[title_])) for answers in said.values())
        found[title_] = {"answers": different, "by_state": which}
    lines = [f" {json.dumps(title_)}: {json.dumps(one)}" for title_, one in found.items()]
    return f'{{"states": {json.dumps(list(said))},\n"questions": {{\n' + ",\n".join(lines) + "\n}}\n"


def kafkas_answers() -> dict[str, dict[str, dict[str, str]]]:
    """What Apache Kafka has answered, by state and title."""
    found = json.loads(RECORD.read_text())
    return {
        state: {title_: one["answers"][int(one["by_state"].split()[number])] for title_, one in found["questions"].items()}
        for number, state in enumerate(found["states"])
    }


def differences(theirs: Mapping[str, str], ours: Mapping[str, str]) -> Iterator[str]:
    for path in sorted({*theirs, *ours}):
        if theirs.get(path) != ours.get(path):
            yield f"{path}: {theirs.get(path, '(not there)')} | {ours.get(path, '(not there)')}"


def _filled(one: AclBinding, names: Mapping[str, str]) -> AclBinding:
    return replace(one, resource_name=one.resource_name.format(**names)) if "{" in one.resource_name else one


def reduced(answer: Any, names: Mapping[str, str]) -> dict[str, str]:
    """The leaves of an answer that say what somebody may do or see. `names`: what stands for the names that are new each time;
    what is left of earlier ones is left out."""
    return flat(_without(plain(answer), names))


_KEYS: Final = frozenset({19, 20, 29, 30, 31, 32, 33, 37, 43, 44, 45, 46, 49, 51, 55, 57, 60, 64, 80, 81})
"""What a controller decides for clients of its own port."""


_NAMED_BY: Final = (
    "resource_type",
    "resource_name",
    "name",
    "topic_name",
    "topic_id",
    "group_id",
    "key",
    "transactional_id",
    "user",
)
"""What tells the members of a list apart; their order does not matter."""
_TIMES_FROM_MS: Final = 10**12
_EARLIER: Final = re.compile(r"(new|doomed)-\d+")


def _without(value: Any, names: Mapping[str, str]) -> Any:
    """Lists of named things become dicts."""
    if isinstance(value, dict):
        return {
            name: ("some" if it else "none") if name in COUNTED else _without(it, names)
            for name, it in value.items()
            if name not in VOLATILE
        }
    if isinstance(value, str):
        return names.get(value, value)
    if isinstance(value, int) and value > _TIMES_FROM_MS:
        return "<time>"
    if not isinstance(value, list):
        return value
    if value and all(isinstance(it, dict) and any(key in it for key in _NAMED_BY) for it in value):
        named = ([str(it[key]) for key in _NAMED_BY if key in it] for it in value)
        return {
            f"<{' '.join(names.get(part, part) for part in parts)}>": _without(it, names)
            for parts, it in zip(named, value, strict=True)
            if not any(_EARLIER.fullmatch(part) and part not in names for part in parts)
        }
    # Alice's own delegation tokens come and go.
    return [
        _without(it, names) for it in value if not (isinstance(it, dict) and it.get("token_requester_principal_name") == "alice")
    ]
