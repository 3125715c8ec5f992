"""Control records of a metadata log, as kafka-dump-log prints them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from itertools import zip_longest
from typing import Any
from uuid import UUID

from kraftlite.log.control import (
    ControlRecord,
    KRaftVersion,
    KRaftVoters,
    LeaderChange,
    SnapshotFooter,
    SnapshotHeader,
    VoterNode,
)
from kraftlite.model.ids import NodeId, uuid_to_str


def in_kafkas_words(control: ControlRecord) -> str:
    """` KRaftVersion {"version":0,"kRaftVersion":1}`: the name that DumpLogSegments has for it, and its fields as JSON."""
    match control:
        case LeaderChange():
            version = 1 if control.voter_directories else 0
            name, fields = (
                "LeaderChange:",
                {
                    "version": version,
                    "leaderId": control.leader_id,
                    "voters": _voters(control.voters, control.voter_directories),
                    "grantingVoters": _voters(control.granting_voters, control.granting_directories),
                },
            )
        case SnapshotHeader():
            name, fields = "SnapshotHeader", {"version": 0, "lastContainedLogTimestamp": control.last_contained_log_timestamp_ms}
        case SnapshotFooter():
            name, fields = "SnapshotFooter", {"version": 0}
        case KRaftVersion():
            name, fields = "KRaftVersion", {"version": 0, "kRaftVersion": control.kraft_version}
        case KRaftVoters():
            name, fields = "KRaftVoters", {"version": 0, "voters": [_node(it) for it in control.voters]}
        case _:
            raise AssertionError(f"{control} is a marker")
    return f" {name} {json.dumps(fields, separators=(',', ':'), ensure_ascii=False)}"


def _voters(voters: Sequence[NodeId], directories: Sequence[UUID]) -> list[dict[str, Any]]:
    return [
        {"voterId": voter} | ({} if directory is None else {"voterDirectoryId": uuid_to_str(directory)})
        for voter, directory in zip_longest(voters, directories)
    ]


def _node(voter: VoterNode) -> dict[str, Any]:
    return {
        "voterId": voter.voter_id,
        "voterDirectoryId": uuid_to_str(voter.directory_id),
        "endpoints": [{"name": it.name, "host": it.host, "port": it.port} for it in voter.endpoints],
        "kRaftVersionFeature": {
            "minSupportedVersion": voter.min_kraft_version,
            "maxSupportedVersion": voter.max_kraft_version,
        },
    }
