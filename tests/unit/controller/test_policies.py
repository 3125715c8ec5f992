"""Policies in the way of a controller: what they are asked, what their verdicts do, and what happens meanwhile."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from kraftlite.model.errors import ApiError, ErrorCode
from kraftlite.model.ids import NodeId
from kraftlite.model.messages import controller as m
from kraftlite.model.messages import methods
from kraftlite.model.policy import ConfigsToAlter, PolicyKind, PolicyQuestion, TopicToCreate
from tests.unit.controller.test_driver import Rig

SET, DELETE, APPEND = 0, 1, 2
TOPIC, BROKER = 2, 4


class Judge:
    """Refuses what has "bad" in it, and notes what it is asked. `hold`: answers only then."""

    def __init__(self, *kinds: PolicyKind) -> None:
        self.kinds = kinds or tuple(PolicyKind)
        self.asked: list[PolicyQuestion] = []
        self.hold: asyncio.Event | None = None

    def has(self, kind: PolicyKind) -> bool:
        return kind in self.kinds

    async def judge(self, questions: Sequence[PolicyQuestion], timeout_ms: int) -> list[ApiError | None]:
        self.asked += questions
        if self.hold is not None:
            await self.hold.wait()
        bad = ApiError(ErrorCode.POLICY_VIOLATION, "it is bad")
        return [bad if "bad" in str(question) else None for question in questions]


async def rig_with(judge: Judge) -> Rig:
    rig = await Rig(policies=judge).start()
    await rig.broker(1)
    await rig.broker(2)
    return rig


def new(name: str, *, assignments: Sequence[Sequence[int]] = (), **configs: str) -> m.CreatableTopic:
    return m.CreatableTopic(
        name=name,
        num_partitions=-1 if assignments else 2,
        replication_factor=-1,
        assignments=tuple(
            m.ReplicaAssignment(partition=index, broker_ids=tuple(NodeId(it) for it in ids))
            for index, ids in enumerate(assignments)
        ),
        configs=tuple(m.ConfigPair(name=key.replace("_", "."), value=value) for key, value in configs.items()),
    )


async def create(rig: Rig, *topics: m.CreatableTopic, validate_only: bool = False) -> dict[str, tuple[ErrorCode, str | None]]:
    request = m.CreateTopicsRequest(topics=topics, validate_only=validate_only, timeout_ms=500)
    task = asyncio.ensure_future(rig.drivers[0].handlers()[methods.CREATE_TOPICS](request))
    for _ in range(4):
        await rig.settle()
    return {it.name: (it.error, it.message) for it in task.result().topics}


async def alter(rig: Rig, kind: int, name: str, *changes: tuple[str, int, str | None], validate_only: bool = False) -> Any:
    ops = tuple(m.ConfigChange(name=key, op=op, value=value) for key, op, value in changes)
    resource = m.ConfigResourceChange(resource_type=kind, resource_name=name, changes=ops)
    request = m.IncrementalAlterConfigsRequest(resources=(resource,), validate_only=validate_only, timeout_ms=500)
    task = asyncio.ensure_future(rig.drivers[0].handlers()[methods.INCREMENTAL_ALTER_CONFIGS](request))
    for _ in range(4):
        await rig.settle()
    (found,) = task.result().resources
    return found.error, found.message


async def test_cm_65_a_topic_that_is_refused_does_not_come_and_the_others_do() -> None:
    judge = Judge(PolicyKind.CREATE_TOPIC)
    rig = await rig_with(judge)
    found = await create(rig, new("good", retention_ms="5"), new("bad"), new("placed", assignments=[[2, 1]]))
    assert found == {
        "good": (ErrorCode.NONE, None),
        "bad": (ErrorCode.POLICY_VIOLATION, "it is bad"),
        "placed": (ErrorCode.NONE, None),
    }
    assert judge.asked == [
        TopicToCreate(topic="good", num_partitions=2, replication_factor=1, assignments=None, configs={"retention.ms": "5"}),
        TopicToCreate(topic="bad", num_partitions=2, replication_factor=1, assignments=None),
        TopicToCreate(topic="placed", num_partitions=None, replication_factor=None, assignments={0: (2, 1)}),
    ]
    assert sorted(rig.drivers[0].core.state.replication.topic_ids) == ["good", "placed"]


async def test_cm_65_what_is_wrong_already_is_not_asked_about() -> None:
    judge = Judge()
    rig = await rig_with(judge)
    assert (await create(rig, new("..")))[".."][0] is ErrorCode.INVALID_TOPIC_EXCEPTION
    assert (await create(rig, new("t", retention_ms="soon")))["t"][0] is ErrorCode.INVALID_CONFIG
    assert (await alter(rig, TOPIC, "nope", ("retention.ms", SET, "5")))[0] is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert judge.asked == []


async def test_cm_65_validating_asks_as_well_and_writes_nothing() -> None:
    judge = Judge()
    rig = await rig_with(judge)
    end = rig.quorum.leo
    found = await create(rig, new("good"), new("bad"), validate_only=True)
    assert [code for code, _ in found.values()] == [ErrorCode.NONE, ErrorCode.POLICY_VIOLATION]
    refused = await alter(rig, BROKER, "1", ("log.retention.ms", SET, "5"), ("bad.key", SET, "1"), validate_only=True)
    assert refused == (ErrorCode.POLICY_VIOLATION, "it is bad")
    assert rig.quorum.leo == end


async def test_cm_65_changes_of_configs_are_asked_about_with_their_new_values() -> None:
    judge = Judge(PolicyKind.ALTER_CONFIG)
    rig = await rig_with(judge)
    await create(rig, new("t", cleanup_policy="delete", retention_ms="5"))
    await alter(rig, TOPIC, "t", ("cleanup.policy", APPEND, "compact"), ("retention.ms", SET, "5"), ("segment.ms", DELETE, None))
    await alter(rig, TOPIC, "t", ("retention.ms", DELETE, None))
    assert judge.asked == [
        ConfigsToAlter(resource_type="TOPIC", resource_name="t", configs={"cleanup.policy": "delete", "retention.ms": "5"}),
        ConfigsToAlter(resource_type="TOPIC", resource_name="t", configs={"cleanup.policy": "delete,compact"}),
        ConfigsToAlter(resource_type="TOPIC", resource_name="t", configs={"retention.ms": None}),
    ]
    assert rig.drivers[0].core.state.configs.get((TOPIC, "t")) == {"cleanup.policy": "delete,compact"}


async def test_cm_65_more_partitions_are_not_asked_about_as_in_kafka() -> None:
    judge = Judge()
    rig = await rig_with(judge)
    await create(rig, new("t"))
    before = len(judge.asked)
    wanted = m.CreatePartitionsTopic(name="t", count=5, assignments=None)
    request = m.CreatePartitionsRequest(topics=(wanted,), validate_only=False, timeout_ms=500)
    task = asyncio.ensure_future(rig.drivers[0].handlers()[methods.CREATE_PARTITIONS](request))
    for _ in range(4):
        await rig.settle()
    assert task.result().topics[0].error is ErrorCode.NONE
    assert len(judge.asked) == before


async def test_cm_65_what_a_legacy_request_leaves_out_is_not_asked_about() -> None:
    judge = Judge(PolicyKind.ALTER_CONFIG)
    rig = await rig_with(judge)
    await create(rig, new("t", retention_ms="5"))
    resource = m.LegacyConfigResource(
        resource_type=TOPIC, resource_name="t", configs=(m.ConfigPair(name="segment.ms", value="8"),)
    )
    request = m.AlterConfigsRequest(resources=(resource,), validate_only=False, timeout_ms=500)
    task = asyncio.ensure_future(rig.drivers[0].handlers()[methods.ALTER_CONFIGS](request))
    for _ in range(4):
        await rig.settle()
    assert task.result().resources[0].error is ErrorCode.NONE
    assert judge.asked[-1] == ConfigsToAlter(resource_type="TOPIC", resource_name="t", configs={"segment.ms": "8"})
    assert rig.drivers[0].core.state.configs.get((TOPIC, "t")) == {"segment.ms": "8"}


async def test_cm_66_the_controller_serves_others_while_a_policy_thinks() -> None:
    judge = Judge(PolicyKind.CREATE_TOPIC)
    rig = await rig_with(judge)
    judge.hold = asyncio.Event()
    request = m.CreateTopicsRequest(topics=(new("slow"),), validate_only=False, timeout_ms=500)
    slow = asyncio.ensure_future(rig.drivers[0].handlers()[methods.CREATE_TOPICS](request))
    await rig.settle()
    assert (await alter(rig, BROKER, "1", ("log.retention.ms", SET, "5")))[0] is ErrorCode.NONE
    assert not slow.done()
    judge.hold.set()
    for _ in range(4):
        await rig.settle()
    assert slow.result().topics[0].error is ErrorCode.NONE


async def test_cm_66_a_change_meanwhile_is_judged_anew() -> None:
    judge = Judge(PolicyKind.ALTER_CONFIG)
    rig = await rig_with(judge)
    await create(rig, new("t", cleanup_policy="delete"))
    judge.hold = asyncio.Event()
    ops = (m.ConfigChange(name="cleanup.policy", op=APPEND, value="compact"),)
    resource = m.ConfigResourceChange(resource_type=TOPIC, resource_name="t", changes=ops)
    request = m.IncrementalAlterConfigsRequest(resources=(resource,), validate_only=False, timeout_ms=500)
    appended = asyncio.ensure_future(rig.drivers[0].handlers()[methods.INCREMENTAL_ALTER_CONFIGS](request))
    await rig.settle()
    core = rig.drivers[0].core
    core.submit(
        "meanwhile",
        lambda _now: core.state.configs.incremental_alter(
            m.IncrementalAlterConfigsRequest(
                resources=(
                    m.ConfigResourceChange(
                        resource_type=TOPIC,
                        resource_name="t",
                        changes=(m.ConfigChange(name="cleanup.policy", op=SET, value=""),),
                    ),
                ),
                validate_only=False,
                timeout_ms=500,
            )
        ),
        lambda _answer: None,
        rig.clock.now_ms(),
    )
    judge.hold.set()
    for _ in range(6):
        await rig.settle()
    assert appended.result().resources[0].error is ErrorCode.NONE
    assert [dict(it.configs) for it in judge.asked[-2:]] == [{"cleanup.policy": "delete,compact"}, {"cleanup.policy": "compact"}]


async def test_cm_66_a_judge_that_has_no_verdict_costs_the_request() -> None:
    class Silent(Judge):
        async def judge(self, questions: Sequence[PolicyQuestion], timeout_ms: int) -> list[ApiError | None]:
            raise ApiError(ErrorCode.REQUEST_TIMED_OUT, f"no verdict within {timeout_ms} ms")

    rig = await rig_with(Silent())
    request = m.CreateTopicsRequest(topics=(new("t"),), validate_only=False, timeout_ms=500)
    task = asyncio.ensure_future(rig.drivers[0].handlers()[methods.CREATE_TOPICS](request))
    await rig.settle()
    await rig.settle()
    with pytest.raises(ApiError, match="no verdict within 500 ms"):
        await task
    assert rig.drivers[0].active and not rig.faults
