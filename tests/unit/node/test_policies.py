"""Policies as a node loads and calls them: entry points, refusals, failures, and one that does not come back."""

from __future__ import annotations

import asyncio
import random
import threading
from collections.abc import Mapping
from typing import Any

import pytest

from kraftlite.config.server import load
from kraftlite.model.errors import ApiError, ErrorCode
from kraftlite.model.ids import NodeId
from kraftlite.model.policy import ConfigsToAlter, PolicyKind, TopicToCreate
from kraftlite.node.policies import MAX_CALLS, NodePolicies, load_policies
from kraftlite.runtime.ports import Ports
from kraftlite.runtime.trace import ListTracer
from tests.harness.clock import FakeClock
from tests.harness.disk import MemDisk
from tests.harness.transport import MemNetwork

HERE = __name__
CREATE, ALTER = "create.topic.policy.class.name", "alter.config.policy.class.name"


def short_names(topic: TopicToCreate) -> str | None:
    return f"{topic.topic} is too long" if len(topic.topic) > 3 else None


class Limits:
    """A policy with state."""

    def configure(self, values: Mapping[str, str]) -> None:
        self.node_id = values["node.id"]

    def validate(self, change: ConfigsToAlter) -> str | None:
        if "broken" in change.configs:
            raise KeyError("broken")
        return f"not on {self.node_id}" if "forbidden" in change.configs else None


class NeedsMore:
    def __init__(self, more: object) -> None: ...


NOT_CALLABLE = 5


def _ports() -> Ports:
    clock = FakeClock(now_ms=1_000)
    tasks: Any = None
    return Ports(
        node_id=NodeId(1),
        clock=clock,
        disk=MemDisk(),
        transport=MemNetwork(clock).transport("a"),
        tracer=ListTracer(),
        tasks=tasks,
        entropy=random.Random(1),
        fault=lambda error, where: None,
    )


def policies(ports: Ports | None = None, **keys: str) -> NodePolicies | None:
    values = {"node.id": "7", "process.roles": "controller", "controller.listener.names": "C", "listeners": "C://:1"}
    values |= {"controller.quorum.voters": "7@localhost:1", "log.dirs": "/x", "listener.security.protocol.map": "C:GRPC"}
    config = load(None, overrides={**values, **{name.replace("_", "."): text for name, text in keys.items()}})
    return load_policies(config, ports or _ports())


def topic(name: str) -> TopicToCreate:
    return TopicToCreate(topic=name, num_partitions=1, replication_factor=1, assignments=None)


def change(*names: str) -> ConfigsToAlter:
    return ConfigsToAlter(resource_type="TOPIC", resource_name="t", configs=dict.fromkeys(names, "1"))


def test_cm_66_none_without_a_policy() -> None:
    assert policies() is None


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("org.example.Policy", "a policy is a Python entry point, module:name; Java classes cannot be loaded"),
        ("no_such_module:x", "cannot be loaded: ModuleNotFoundError: No module named 'no_such_module'"),
        (f"{HERE}:nothing", "cannot be loaded: AttributeError"),
        (f"{HERE}:NeedsMore", "cannot be loaded: TypeError"),
        (f"{HERE}:NOT_CALLABLE", "is neither callable nor has it a method validate"),
        (":x", "a policy is a Python entry point"),
    ],
)
def test_cm_66_a_policy_that_cannot_be_loaded_is_refused(text: str, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        policies(create_topic_policy_class_name=text)


async def test_cm_65_a_callable_and_a_class() -> None:
    found = policies(create_topic_policy_class_name=f"{HERE}:short_names", alter_config_policy_class_name=f"{HERE}:Limits")
    assert found is not None and all(found.has(kind) for kind in PolicyKind)
    verdicts = await found.judge([topic("abc"), topic("abcd"), change("fine"), change("forbidden")], 10_000)
    assert verdicts == [None, verdicts[1], None, verdicts[3]]
    assert [(it.code, it.message) for it in verdicts if it is not None] == [
        (ErrorCode.POLICY_VIOLATION, "abcd is too long"),
        (ErrorCode.POLICY_VIOLATION, "not on 7"),
    ]


async def test_cm_66_an_exception_is_the_answer_to_its_question_and_is_traced() -> None:
    ports = _ports()
    found = policies(ports, alter_config_policy_class_name=f"{HERE}:Limits")
    assert found is not None and not found.has(PolicyKind.CREATE_TOPIC)
    first, second = await found.judge([change("broken"), change("fine")], 10_000)
    assert second is None and first is not None
    assert first.code is ErrorCode.UNKNOWN_SERVER_ERROR and "Limits failed: KeyError: 'broken'" in str(first.message)
    (told,) = ports.tracer.events  # type: ignore[attr-defined]
    assert told.event == "controller.operation_failed" and "in validate" in told.trace


async def test_cm_66_an_answer_that_is_neither_is_an_error() -> None:
    found = NodePolicies({PolicyKind.CREATE_TOPIC: lambda _topic: True}, {PolicyKind.CREATE_TOPIC: "x:y"}, _ports())
    (verdict,) = await found.judge([topic("a")], 10_000)
    assert verdict is not None and "x:y returned bool; allowed are None and the reason" in str(verdict.message)


async def test_cm_66_a_policy_that_does_not_come_back_costs_its_request_and_keeps_its_place() -> None:
    ports, release = _ports(), threading.Event()
    clock: Any = ports.clock
    found = NodePolicies({PolicyKind.CREATE_TOPIC: lambda _topic: release.wait(60)}, {PolicyKind.CREATE_TOPIC: "x:y"}, ports)
    asked = [asyncio.ensure_future(found.judge([topic("a")], 5_000)) for _ in range(MAX_CALLS)]
    await asyncio.sleep(0)
    with pytest.raises(ApiError, match=f"{MAX_CALLS} calls of policies have not come back"):
        await found.judge([topic("a")], 5_000)
    await clock.run_for(5_001)
    for task in asked:
        with pytest.raises(ApiError, match="The policy x:y did not answer within 5000 ms") as late:
            await task
        assert late.value.code is ErrorCode.REQUEST_TIMED_OUT
    release.set()
    for thread in [it for it in threading.enumerate() if it.name == "policy"]:
        thread.join(60)
    await asyncio.sleep(0)
    assert found._calls == 0
