"""Lists of throttled replicas that are none, on whole nodes (QU-10)."""

from __future__ import annotations

from pathlib import Path

from kraftlite.broker.handlers.admin import alter_configs
from kraftlite.model.errors import ErrorCode
from kraftlite.model.messages.controller import (
    AlterConfigOp,
    ConfigChange,
    ConfigResourceChange,
    ConfigResourceType,
    IncrementalAlterConfigsRequest,
)
from tests.harness.node_cluster import MemCluster, MemNode
from tests.spec.node.test_directories import broker_of, cluster_of

KEY = "leader.replication.throttled.replicas"
NONE = [":2", "0:", "\u00b2:2", f"{'9' * 5_000}:2", "0:2,:2", "*,0:2"]


async def alter(cluster: MemCluster, node: MemNode, value: str) -> ErrorCode:
    changes = (ConfigChange(name=KEY, op=int(AlterConfigOp.SET), value=value),)
    resource = ConfigResourceChange(resource_type=ConfigResourceType.TOPIC, resource_name="a", changes=changes)
    request = IncrementalAlterConfigsRequest(resources=(resource,), validate_only=False, timeout_ms=10_000)
    answer = await cluster.call(alter_configs(broker_of(node).context, request), "the change")
    code: ErrorCode = answer.resources[0].error
    return code


async def test_qu_10_a_list_that_is_none_is_refused(tmp_path: Path) -> None:
    cluster = await cluster_of(tmp_path, brokers=1)
    node = cluster.nodes[2]
    await cluster.create_topic("a")
    assert [await alter(cluster, node, value) for value in NONE] == [ErrorCode.INVALID_CONFIG] * len(NONE)
    for value in ("*", "", "0:2, 00:02"):
        assert await alter(cluster, node, value) is ErrorCode.NONE
