"""Answers of any API that say an error and nothing else: what an injected fault makes a client believe.

Where a response has a code of its own, that is the answer, as in Kafka's `getErrorResponse`. Elsewhere the response names what
the request named, each with the code, and `MIRRORS` says which list mirrors which.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING, Any, Final

from kraftlite.model.errors import ErrorCode

if TYPE_CHECKING:
    from kraftlite.wire.apis.call import Call

CODE: Final = "error_code"
NEVER: Final = frozenset({"ApiVersions", "SaslHandshake", "SaslAuthenticate"})
"""The APIs with which a connection begins. They are neither failed nor slowed: a client that cannot begin is `refuse`."""
NO_PLACE: Final = frozenset(
    {
        "AlterClientQuotas",
        "AlterReplicaLogDirs",
        "AlterUserScramCredentials",
        "CreateAcls",
        "DeleteAcls",
        "DescribeProducers",
        "DescribeTransactions",
        "WriteTxnMarkers",
    }
)
"""Their codes stand beside what only a real answer could name."""


@dataclass(frozen=True, slots=True)
class Mirror:
    """The list `answered` of a response has an entry for each entry of the list `asked` of the request.

    `same`: fields of both, by their names in the response. `item`: the field that is the entry itself, where it is no structure.
    `rest`: what the others say when nothing is known. The code stands at the innermost list.
    """

    answered: str
    asked: str
    same: Mapping[str, str] = field(default_factory=dict)
    item: str = ""
    rest: Mapping[str, Any] = field(default_factory=dict)
    within: Mirror | None = None
    code: str = CODE


_TOPIC: Final = {"name": "name", "topic_id": "topic_id"}
_INDEX: Final = {"partition_index": "partition_index"}
_RESOURCE: Final = {"resource_type": "resource_type", "resource_name": "resource_name"}
_UNPLACED: Final = {"node_id": -1, "host": "", "port": -1}
_NO_OFFSET: Final = {"committed_offset": -1, "committed_leader_epoch": -1, "metadata": ""}
_NO_TOPIC: Final = {"is_internal": False, "partitions": (), "topic_authorized_operations": -(1 << 31)}
_NO_GROUP: Final = {
    "group_state": "",
    "protocol_type": "",
    "protocol_data": "",
    "members": (),
    "authorized_operations": -(1 << 31),
    "group_epoch": 0,
    "assignment_epoch": 0,
    "assignor_name": "",
}
_BY_PARTITION: Final = Mirror("partitions", "partitions", _INDEX)

MIRRORS: Final[Mapping[str, tuple[Mirror, ...]]] = {
    "Produce": (
        Mirror(
            "responses",
            "topic_data",
            _TOPIC,
            within=Mirror(
                "partition_responses",
                "partition_data",
                {"index": "index"},
                rest={"base_offset": -1, "log_append_time": None, "log_start_offset": -1},
            ),
        ),
    ),
    "Fetch": (
        Mirror(
            "responses",
            "topics",
            {"topic": "topic"},
            within=Mirror(
                "partitions",
                "partitions",
                {"partition_index": "partition"},
                rest={
                    "high_watermark": -1,
                    "last_stable_offset": -1,
                    "log_start_offset": -1,
                    "aborted_transactions": (),
                    "records": None,
                },
            ),
        ),
    ),
    "ListOffsets": (
        Mirror(
            "topics",
            "topics",
            _TOPIC,
            within=Mirror("partitions", "partitions", _INDEX, rest={"timestamp": -1, "offset": -1, "leader_epoch": -1}),
        ),
    ),
    "Metadata": (Mirror("topics", "topics", _TOPIC, rest=_NO_TOPIC),),
    "OffsetCommit": (Mirror("topics", "topics", _TOPIC, within=_BY_PARTITION),),
    "OffsetFetch": (
        Mirror("groups", "groups", {"group_id": "group_id"}, rest={"topics": ()}),
        Mirror(
            "topics", "topics", _TOPIC, within=Mirror("partitions", "partition_indexes", item="partition_index", rest=_NO_OFFSET)
        ),
    ),
    "FindCoordinator": (Mirror("coordinators", "coordinator_keys", item="key", rest=_UNPLACED),),
    "DescribeGroups": (Mirror("groups", "groups", item="group_id", rest=_NO_GROUP),),
    "ConsumerGroupDescribe": (Mirror("groups", "group_ids", item="group_id", rest=_NO_GROUP),),
    "CreateTopics": (Mirror("topics", "topics", _TOPIC),),
    "DeleteTopics": (
        Mirror("responses", "topics", _TOPIC),
        Mirror("responses", "topic_names", item="name"),
    ),
    "DeleteRecords": (
        Mirror("topics", "topics", _TOPIC, within=Mirror("partitions", "partitions", _INDEX, rest={"low_watermark": -1})),
    ),
    "OffsetForLeaderEpoch": (
        Mirror(
            "topics",
            "topics",
            {"topic": "topic"},
            within=Mirror("partitions", "partitions", {"partition": "partition"}, rest={"leader_epoch": -1, "end_offset": -1}),
        ),
    ),
    "AddPartitionsToTxn": (
        Mirror(
            "results_by_topic_v3_and_below",
            "v3_and_below_topics",
            _TOPIC,
            within=Mirror("results_by_partition", "partitions", item="partition_index", code="partition_error_code"),
        ),
    ),
    "TxnOffsetCommit": (Mirror("topics", "topics", _TOPIC, within=_BY_PARTITION),),
    "DescribeConfigs": (Mirror("results", "resources", _RESOURCE, rest={"configs": ()}),),
    "AlterConfigs": (Mirror("responses", "resources", _RESOURCE),),
    "IncrementalAlterConfigs": (Mirror("responses", "resources", _RESOURCE),),
    "CreatePartitions": (Mirror("results", "topics", {"name": "name"}),),
    "DeleteGroups": (Mirror("results", "groups_names", item="group_id"),),
    "DescribeTopicPartitions": (Mirror("topics", "topics", _TOPIC, rest=_NO_TOPIC),),
}


def answer(name: str, key: int, version: int, frame: memoryview, pos: int, code: ErrorCode) -> bytes | None:
    """The body of the answer to the request at `pos`, which says `code`; None where this version has no place for a code.

    Raises ProtocolViolation for a request that cannot be read.
    """
    from kraftlite.protocol.kio_codec import decode_request, encode_sparse_response, refused_response

    whole = refused_response(key, version, code)
    if whole is not None:
        return whole
    mirrors = MIRRORS.get(name)
    if mirrors is None:
        return None
    request = decode_request(key, version, frame, pos)
    asked = [it for it in mirrors if hasattr(request, it.asked)]
    bodies = (encode_sparse_response(key, version, {it.answered: _entries(it, request, code)}) for it in asked)
    return next((it for it in bodies if it is not None), None)


def is_unanswered(call: Call) -> bool:
    """Return whether the client expects no answer: it learns of an error by losing its connection (RP-01)."""
    from kraftlite.protocol.kio_codec import decode_request

    if call.api.name != "Produce":
        return False
    return bool(decode_request(call.api.key, call.version, call.frame, call.pos).acks == 0)


@cache
def offered_apis() -> frozenset[str]:
    """The names of the APIs that a node may offer to clients, but for those that a connection begins with."""
    from kraftlite.protocol.kio_codec import api_name
    from kraftlite.wire.rights.table import BROKER_ROWS

    return frozenset(api_name(key) for key in BROKER_ROWS) - NEVER


def failing_apis() -> frozenset[str]:
    """Those of them that may answer with an error and nothing else."""
    return offered_apis() - NO_PLACE


def _entries(mirror: Mirror, request: Any, code: ErrorCode) -> list[dict[str, Any]]:
    found = []
    for asked in getattr(request, mirror.asked) or ():
        entry: dict[str, Any] = dict(mirror.rest)
        entry |= {there: getattr(asked, here) for there, here in mirror.same.items() if hasattr(asked, here)}
        if mirror.item:
            entry[mirror.item] = asked
        if mirror.within is None:
            entry[mirror.code] = code.value
        else:
            entry[mirror.within.answered] = _entries(mirror.within, asked, code)
        found.append(entry)
    return found
