"""Differences that are on purpose: patterns of lines of `tests.clients.compare`, by the heading of docs/DIFFERENCES.md that
explains them."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Final

_OWN_FILE: Final = r"^DescribeConfigs\.(broker|group)\.configs\..*<its file's>"
_FEATURES: Final = "share|streams|transaction"

KNOWN: Final[Mapping[str, Sequence[str]]] = {
    "APIs that are not offered": (
        r"^ApiVersions\.apis\.[^:]+: .* \| \(not there\)$",
        r"^quorum and features: metadata-quorum remove-controller",
        r"^AdminClient: (alterReplicaLogDirs|describeShareGroups): .*\| .*UnsupportedVersionException",
    ),
    "Features": (
        rf"^ApiVersions\.(supported|finalized)\.({_FEATURES})\.version: ",
        r"^ApiVersions\.supported\.kraft\.version: 0 to 1 \| 0 to 0$",
        r"^ApiVersions\.finalized\.kraft\.version: ",
        rf"^quorum and features: features describe: (Feature: ({_FEATURES}|kraft)\.version[^|]*)+\|",
    ),
    "Transactions": (r"^transactions in each state\.old clients, (aborted|committed), of the epoch before: EndTxn v5 ",),
    "Configuration keys": (
        _OWN_FILE,
        r"^DescribeConfigs\.(broker|group)\.configs\.[^:]+: .* \| \(not there\)$",
        r"^DescribeConfigs\.broker\.configs\.[^:]+: \(not there\) \| ",
        r"^DescribeConfigs\.broker\.configs\.(broker\.id|controller\.quorum\.(bootstrap\.servers|voters)|metric\.reporters): ",
        r"^DescribeConfigs\.broker\.configs\.(listeners|listener\.security\.protocol\.map|principal\.builder\.class|log\.dir): ",
        r"^DescribeConfigs\.broker\.configs\.group\.coordinator\.rebalance\.protocols: ",
        r"^IncrementalAlterConfigs\.default level: ",
        r"^IncrementalAlterConfigs\.rate of connections: .*'none'.* \| .*'invalid_config'",
        r"^kafka-configs: configs --describe --entity-type broker-loggers",
        r"^AdminClient: incrementalAlterConfigs [^|]*type=BROKER[^|]* log\.cleaner\.threads SET 50000: ",
    ),
    "Small segments": (r"^topic configs\.segment\.bytes\.",),
    "Tiered storage": (r"^topic configs\.remote\.storage\.enable\.",),
    "Texts of errors": (
        r"^Produce\.[^:]+: \['(\w+)', None, .* \| \['\1', '",
        r"^Produce\.(null key, compacted|from tomorrow): \['(\w+)', .* \| \['\2', ",
        r"^partitions\.[^:]+: .*'(\w+)', (None|'[^']*')\]\]+ \| .*'\1', (None|['\"].*['\"])\]\]+$",
        r"^topic configs\.min\.cleanable\.dirty\.ratio\.'(2147483648|9223372036854775808)'",
        r"^groups\.find",
        r"^AdminClient: [^|]*\b(\w+Exception): (This server does not host this|The group id is invalid)[^|]* \| .*\b\1: ",
        r"^AdminClient: alterClientQuotas, ip and user: .*\bInvalidRequestException: .*\| InvalidRequestException: ",
        r"^groups\.consumer heartbeat, unknown member: ",
        r"^DescribeConfigs\.errors\.no such kind",
        r"^IncrementalAlterConfigs\.(read only|no such operation): ",
    ),
    "Malformed record batches": (
        r"^poison\.both\.[^|]*: \['unknown_server_error', \[\], 0\] \| \['invalid_record', \[\], 0\]$",
        r"^poison\.stricter\.[^|]*: \['none', \[\]\] \| \['invalid_record', \[\]\]$",
        r"^batches, odd wholes\.(two batches, the second cut off|a batch, then a byte), v\d+: \['none', .* \| \['invalid_rec",
        r"^batches, odd headers\.any time, \w+: (base timestamp|timestamp delta) -?922\d+: \['none', .* \| \['invalid_times",
        r"^batches, odd headers\.[^:]*: producer \(7, -[12], 0\): .* \| \['invalid_record', \[\]\]$",
        r"^batches, odd headers\.(uncompressed|zstd), \w+: [^:]*: \['unknown_server_error', \[\]\] \| ",
        r"^batches, odd headers\.(uncompressed|zstd), \w+: timestamp delta -17600000000\d+: \['none', .* \| \['none', ",
        r"^batches, odd transactions\.[^:]*, append time, id: its own: \['none', .* \| \['invalid_timestamp', \[0, 1, 2\]\]$",
        r"^poison\.stricter\.says LogAppendTime \((none|zstd)\): \['none', \[\]\] \| \['invalid_timestamp', \[0, 1, 2\]\]$",
    ),
    "Groups": (
        r"^odd groups\.consumer[^:]*, no member: OffsetFetch v9, [^:]*: \[\['unknown_server_error'\], .*'unknown_member_id'",
        r"^odd groups\.(joined|replaced|stable)[^:]*, earlier: ConsumerGroupHeartbeat [^:]*: \[\['none'\], 1, .*\['none'\], 2",
        r"^odd comers to groups\.(unknown|consumer, (static, )?left), [^:]*: JoinGroup, no type, deleted: "
        r"\['none'\] \| \['group_id_not_found'\]$",
    ),
    "Offsets topic of an embedded cluster": (r"^CreateTopics\.internal: ",),
    "What differs from run to run": (
        r"^quorum and features: metadata-quorum describe --status: ",
        r'^kafka-reassign-partitions: .*"log_dirs"',
        r"get-offsets --topic t --time -7: .*(UnsupportedVersionException|unexpected error UNSUPPORTED_VERSION)",
    ),
}


def reason(line: str) -> str | None:
    """The heading under which this difference is explained; None: nowhere."""
    for heading, patterns in KNOWN.items():
        if any(re.search(pattern, line) for pattern in patterns):
            return heading
    return None
