"""Every API of a broker by a user with no grant, an exact one, a prefixed one, a wildcard, and a denial, on real sockets.

Source: SE-31, SE-36, SE-37, SE-39, SE-40.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

import pytest

from kraftlite.model.acls import CLUSTER_NAME, AclBinding, Operation, PatternType, Permission, ResourceType
from kraftlite.model.errors import ErrorCode
from kraftlite.testing import SyncCluster
from kraftlite.wire.apis.call import Need as ApiNeed
from kraftlite.wire.rights.table import BROKER_ROWS
from tests.harness.api_samples import BROKER_SAMPLES, GROUP, TOPIC, Need, Sample
from tests.harness.authorized import (
    LOADING,
    NO_EXTRAS,
    QUIET,
    REFUSALS,
    STANDARD,
    User,
    codes,
    create,
    entry,
    grant_only,
    prepared,
    users_by_address,
)

pytestmark = [pytest.mark.clients, pytest.mark.xdist_group("embedded")]

OP, R = Operation, ResourceType


@dataclass
class World:
    server: str
    admin: User
    alice: User
    facts: dict[str, Any] = field(default_factory=dict)
    count: int = 0

    def fresh(self, sample: Sample) -> None:
        """Names that no earlier request has used, for what a request creates or deletes."""
        self.count += 1
        self.facts["new"] = f"new-{self.count}"
        if sample.key == 20:
            self.facts["doomed_name"] = f"doomed-{self.count}"
            self.facts["doomed"] = create(self.admin, self.facts["doomed_name"])

    def resolved(self, need: Need) -> Need:
        operation, kind, name = need
        return operation, kind, name.format(**self.facts) if "{" in name else name


@pytest.fixture(scope="module")
def world() -> Iterator[World]:
    with users_by_address(), SyncCluster(controllers=1, brokers=1, config={**STANDARD, **QUIET}) as cluster:
        server = cluster.bootstrap_servers
        found = World(server, User("admin", server), User("alice", server))
        found.facts.update(prepared(found.admin))
        yield found
        for user in (found.admin, found.alice):
            user.close()


def granted(need: Need, how: str = "exact") -> list[AclBinding]:
    operation, kind, name = need
    if how == "prefixed":
        return [entry(kind, name[:-2], operation, pattern=PatternType.PREFIXED)]
    if how == "wildcard":
        return [entry(kind, "*", operation)]
    if how == "denied":
        return [entry(kind, name, operation), entry(kind, name, operation, permission=Permission.DENY)]
    return [] if how == "none" else [entry(kind, name, operation)]


def asked(world: World, sample: Sample) -> Any:
    """The answer for alice; coordinators may have to load first."""
    while True:
        answer = world.alice.call(sample.key, sample.version, sample.values(world.facts))
        if not codes(answer) & LOADING:
            return answer


CASES = [(sample, need) for sample in BROKER_SAMPLES for need in sample.needs]


@pytest.mark.parametrize("how", ["none", "exact", "prefixed", "wildcard", "denied"])
@pytest.mark.parametrize(
    ("sample", "need"), CASES, ids=lambda it: str(it) if isinstance(it, Sample) else f"{it[0].name}-{it[1].name}"
)
def test_each_api_asks_for_each_right_that_it_needs(world: World, sample: Sample, need: Need, how: str) -> None:
    """All other rights are there, so that this one decides. Source: SE-39, SE-40."""
    kind = need[1]
    if kind is R.CLUSTER and how in ("prefixed", "wildcard"):
        pytest.skip("the cluster has one name")
    world.fresh(sample)
    others = [] if sample.alternatives else [world.resolved(one) for one in sample.needs if one != need]
    mine = granted(world.resolved(need), how)
    grant_only(world.admin, [*mine, *(one for other in others for one in granted(other))])
    answer = asked(world, sample)
    refused = {code for code in codes(answer) if code in REFUSALS}
    allowed = how in ("exact", "prefixed", "wildcard")
    if sample.shows is not None and sample.needs[-1] == need:
        assert sample.shows(answer) == allowed and not refused, answer
    else:
        expected = set() if allowed else {ApiNeed(need[0], kind).refusal.value}
        assert refused == expected, answer


def test_the_samples_are_of_every_api_and_of_all_that_each_needs() -> None:
    needed = {(key, need.operation, need.resource) for key, row in BROKER_ROWS.items() for need in row.needs}
    sampled = {(sample.key, operation, kind) for sample in BROKER_SAMPLES for operation, kind, _ in sample.needs}
    assert sampled == needed


# --- what is told ---------------------------------------------------------------------------------------------------------


def test_a_topic_that_may_not_be_described_looks_as_one_that_there_is_not(world: World) -> None:
    """Source: SE-36."""
    grant_only(world.admin, [])

    def told(name: str) -> bytes:
        frame = world.alice.send(3, 11, {"topics": [{"topic_id": UUID(int=0), "name": name}], **NO_EXTRAS})
        return frame[4:].replace(name.encode(), b"NAME")

    assert told(TOPIC) == told("nothing1")
    every = world.alice.call(3, 11, {"topics": None, **NO_EXTRAS})
    assert every.topics == ()
    (by_id,) = world.alice.call(3, 12, {"topics": [{"topic_id": world.facts["id"], "name": None}], **NO_EXTRAS}).topics
    assert (by_id.error_code.value, by_id.name, by_id.topic_id) == (29, None, world.facts["id"])
    (unknown,) = world.alice.call(3, 12, {"topics": [{"topic_id": UUID(int=5), "name": None}], **NO_EXTRAS}).topics
    assert unknown.error_code.value == ErrorCode.UNKNOWN_TOPIC_ID


def test_all_topics_are_those_that_may_be_described(world: World) -> None:
    create(world.admin, "other-1")
    grant_only(world.admin, [entry(R.TOPIC, "other", OP.READ, pattern=PatternType.PREFIXED)])
    assert [one.name for one in world.alice.call(3, 11, {"topics": None, **NO_EXTRAS}).topics] == ["other-1"]
    pages = world.alice.call(75, 0, {"topics": [], "response_partition_limit": 10, "cursor": None})
    assert [one.name for one in pages.topics] == ["other-1"]


def test_operations_are_those_that_the_client_has(world: World) -> None:
    """Source: SE-37."""
    bits = {one: 1 << one for one in OP}
    grant_only(
        world.admin, [entry(R.TOPIC, TOPIC, OP.READ), entry(R.GROUP, GROUP, OP.DELETE), entry(R.CLUSTER, CLUSTER_NAME, OP.ALTER)]
    )
    request = {
        "topics": [{"topic_id": UUID(int=0), "name": TOPIC}],
        **NO_EXTRAS,
        "include_topic_authorized_operations": True,
    }
    (topic,) = world.alice.call(3, 11, request).topics
    assert topic.topic_authorized_operations == bits[OP.READ] | bits[OP.DESCRIBE]
    (page,) = world.alice.call(75, 0, {"topics": [{"name": TOPIC}], "response_partition_limit": 9, "cursor": None}).topics
    assert page.topic_authorized_operations == bits[OP.READ] | bits[OP.DESCRIBE]
    (group,) = world.alice.call(15, 5, {"groups": [GROUP], "include_authorized_operations": True}).groups
    assert group.authorized_operations == bits[OP.DELETE] | bits[OP.DESCRIBE]
    cluster = world.alice.call(60, 1, {"include_cluster_authorized_operations": True, "endpoint_type": 1})
    assert cluster.cluster_authorized_operations == bits[OP.ALTER] | bits[OP.DESCRIBE]
    grant_only(world.admin, [])
    cluster = world.alice.call(60, 1, {"include_cluster_authorized_operations": True, "endpoint_type": 1})
    assert cluster.cluster_authorized_operations == 0


def test_any_topic_to_write_to_is_enough_for_an_idempotent_producer(world: World) -> None:
    request = {"transactional_id": None, "transaction_timeout": 10_000, "producer_id": -1, "producer_epoch": -1}
    grant_only(world.admin, [entry(R.TOPIC, "some", OP.WRITE, pattern=PatternType.PREFIXED)])
    assert world.alice.call(22, 4, request).error_code.value == 0
    every = entry(R.TOPIC, "*", OP.WRITE, permission=Permission.DENY)
    grant_only(world.admin, [entry(R.TOPIC, "some", OP.WRITE, pattern=PatternType.PREFIXED), every])
    assert world.alice.call(22, 4, request).error_code.value == 31


def test_one_topic_that_is_denied_does_not_stop_the_others(world: World) -> None:
    """Offsets of two topics, of which one may be read (SE-36)."""
    grant_only(world.admin, [entry(R.GROUP, GROUP, OP.READ), entry(R.TOPIC, TOPIC, OP.READ)])
    partition = {"partition_index": 0, "committed_offset": 0, "committed_leader_epoch": -1, "committed_metadata": ""}
    topics = [{"name": name, "partitions": [partition]} for name in ("denied", TOPIC)]
    offsets = {"topics": topics, "group_id": GROUP, "member_id": "", "generation_id_or_member_epoch": -1}
    answer = world.alice.call(8, 7, {**offsets, "group_instance_id": None})
    assert {one.name: one.partitions[0].error_code.value for one in answer.topics} == {"denied": 29, TOPIC: 0}
    asked_for = {"group_id": GROUP, "topics": None}
    grant_only(world.admin, [entry(R.GROUP, GROUP, OP.DESCRIBE)])
    (group,) = world.alice.call(9, 8, {"groups": [asked_for], "require_stable": False}).groups
    assert group.error_code.value == 0 and group.topics == ()


def test_a_created_topic_is_shown_without_configs_to_who_may_not_see_them(world: World) -> None:
    topic = {"name": "bare", "num_partitions": 3, "replication_factor": 1, "assignments": [], "configs": []}
    request = {"topics": [topic], "timeout": 5_000, "validate_only": True}
    grant_only(world.admin, [entry(R.CLUSTER, CLUSTER_NAME, OP.CREATE)])
    (made,) = world.alice.call(19, 7, request).topics
    assert (made.error_code.value, made.num_partitions, int(made.topic_config_error_code)) == (0, -1, 29)
    grant_only(world.admin, [entry(R.CLUSTER, CLUSTER_NAME, OP.CREATE), entry(R.TOPIC, "bare", OP.DESCRIBE_CONFIGS)])
    (made,) = world.alice.call(19, 7, request).topics
    assert (made.num_partitions, int(made.topic_config_error_code)) == (3, 0) and made.configs


def test_an_unknown_topic_is_told_as_such_to_who_may_describe_it(world: World) -> None:
    def deleted(name: str) -> int:
        (found,) = world.alice.call(20, 6, {"topics": [{"name": name, "topic_id": UUID(int=0)}], "timeout": 5_000}).responses
        return int(found.error_code.value)

    grant_only(world.admin, [entry(R.TOPIC, "gone", OP.DESCRIBE), entry(R.TOPIC, TOPIC, OP.DESCRIBE)])
    assert (deleted("gone"), deleted("nothing"), deleted(TOPIC)) == (3, 29, 29)


def test_a_revoked_grant_holds_for_the_next_request_of_an_open_connection(world: World) -> None:
    """Source: SE-33."""
    produce = next(one for one in BROKER_SAMPLES if one.key == 0)
    grant_only(world.admin, [entry(R.TOPIC, TOPIC, OP.WRITE)])
    assert codes(asked(world, produce)) == {0}
    grant_only(world.admin, [])
    assert codes(asked(world, produce)) == {29}


def test_an_acknowledgement_that_nobody_waits_for_is_refused_by_closing(world: World) -> None:
    produce = next(one for one in BROKER_SAMPLES if one.key == 0)
    grant_only(world.admin, [])
    user = User("alice", world.server)
    with suppress(ConnectionError):
        user.send(0, 9, {**produce.values(world.facts), "acks": 0})
        raise AssertionError("the node answered")
    user.close()
