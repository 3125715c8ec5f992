"""DQ-30 and DQ-33 on the wire: AddRaftVoter and RemoveRaftVoter through a broker."""

from __future__ import annotations

from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest

from kraftlite.model.errors import ErrorCode
from kraftlite.model.ids import Endpoint, NodeId, VoterEndpoint
from kraftlite.model.messages import methods as m
from kraftlite.model.messages.raft import (
    AddVoterRequest,
    AddVoterResponse,
    DescribeQuorumResponse,
    QuorumReplica,
    RemoveVoterRequest,
    RemoveVoterResponse,
)
from tests.harness.wire_fakes import Harness

E = ErrorCode
DIRECTORY = UUID(int=4_000)
ADD: dict[str, Any] = {
    "cluster_id": None,
    "timeout": 100,
    "voter_id": 4,
    "voter_directory_id": DIRECTORY,
    "listeners": [{"name": "CONTROLLER", "host": "c4", "port": 9093}],
}
REMOVE: dict[str, Any] = {"cluster_id": None, "voter_id": 4, "voter_directory_id": DIRECTORY}


@pytest.mark.parametrize("version", [0, 1])
async def test_dq_30_dq_33_changes_of_the_voters_are_forwarded_whole(version: int) -> None:
    async with Harness() as h:
        refused = "node 4 is a voter already"
        h.controller.answers[m.ADD_VOTER] = lambda _request: AddVoterResponse(
            error=E.DUPLICATE_VOTER, message=refused, leader_id=NodeId(11), leader_epoch=1
        )
        h.controller.answers[m.REMOVE_VOTER] = lambda _request: RemoveVoterResponse(
            error=E.NONE, message=None, leader_id=NodeId(11), leader_epoch=1
        )
        client = await h.client()
        added = await client.call(80, version, ADD | ({"ack_when_committed": False} if version else {}))
        assert (added.error_code, added.error_message) == (E.DUPLICATE_VOTER, refused)
        removed = await client.call(81, 0, REMOVE)
        assert (removed.error_code, removed.error_message) == (E.NONE, None)
        (_, add, _), (_, remove, _) = h.controller.calls
        assert add == AddVoterRequest(
            cluster_id=None,
            voter_id=NodeId(4),
            voter_directory_id=DIRECTORY,
            listeners=(VoterEndpoint(name="CONTROLLER", host="c4", port=9093),),
            ack_when_committed=version == 0,
        )
        assert remove == RemoveVoterRequest(cluster_id=None, voter_id=NodeId(4), voter_directory_id=DIRECTORY)


async def test_dq_42_all_listeners_of_the_voters_are_told() -> None:
    async with Harness() as h:
        listeners = tuple(
            VoterEndpoint(name=name, host="c", port=port) for name, port in (("CONTROLLER", 9093), ("SECOND", 9094))
        )
        voter = QuorumReplica(
            replica_id=NodeId(11),
            directory_id=DIRECTORY,
            log_end_offset=99,
            last_fetch_timestamp_ms=None,
            last_caught_up_timestamp_ms=None,
            endpoint=Endpoint("c", 9093),
            listeners=listeners,
        )
        observer = replace(voter, replica_id=NodeId(12), listeners=())
        h.controller.answers[m.DESCRIBE_QUORUM] = lambda _request: DescribeQuorumResponse(
            leader_id=NodeId(11), leader_epoch=4, high_watermark=None, voters=(voter,), observers=(observer,)
        )
        asked = {"topics": [{"topic_name": "__cluster_metadata", "partitions": [{"partition_index": 0}]}]}
        answer = await (await h.client()).call(55, 2, asked)
        told = [(node.node_id, it.name, it.host, it.port) for node in answer.nodes for it in node.listeners]
        assert told == [(11, "CONTROLLER", "c", 9093), (11, "SECOND", "c", 9094)]


async def test_dq_21_clients_are_told_the_level_of_kraft_version_that_the_quorum_has() -> None:
    """KAFKA-18979."""
    async with Harness(offset=77, features={"metadata.version": 29}) as h:
        h.kraft_version = 1
        answer = await (await h.client()).call(18, 4, {"client_software_name": "x", "client_software_version": "1"})
        told = [(it.name, it.max_version_level) for it in answer.finalized_features]
        assert told == [("kraft.version", 1), ("metadata.version", 29)]


@pytest.mark.parametrize(("key", "values"), [(80, ADD), (81, REMOVE)])
async def test_cp_57_without_a_controller_a_change_of_the_voters_times_out(key: int, values: dict[str, Any]) -> None:
    async with Harness() as h:
        answer = await (await h.client()).call(key, 0, values)
        assert answer.error_code == E.REQUEST_TIMED_OUT and len(h.controller.calls) == 1
