"""quorum describe, in the layout of kafka-metadata-quorum (TO-20)."""

from __future__ import annotations

import time
from typing import Any

import click

from kraftlite.cli.common import output_option, print_json
from kraftlite.cli.target import Target, target_options
from kraftlite.local.client import quorum_of


@click.command("describe")
@click.option("--status", is_flag=True, help="Leader, epoch, high watermark, voters and observers.")
@click.option("--replication", is_flag=True, help="Each replica's log end offset and lag.")
@click.option("--human-readable", is_flag=True, help="With --replication: times as “ms ago”.")
@target_options
@output_option
def describe_quorum(status: bool, replication: bool, human_readable: bool, target: Target, output: str) -> None:
    """Describe the quorum of controllers: --status, which is the default, or --replication."""
    if status and replication:
        raise click.UsageError("give one of --status and --replication")
    if human_readable and not replication:
        raise click.UsageError("--human-readable needs --replication")
    cluster = target.cluster()
    quorum = quorum_of(cluster)
    if output == "json":
        print_json(quorum)
    elif not replication:
        cluster.brokers()
        for line in status_lines(quorum, cluster.cluster_id):
            click.echo(line)
    else:
        for line in replication_lines(quorum, int(time.time() * 1000) if human_readable else None):
            click.echo(line)


def status_lines(quorum: dict[str, Any], cluster_id: str) -> list[str]:
    voters = quorum["voters"]
    leader = next((voter for voter in voters if voter["id"] == quorum["leader_id"]), None)
    lag, lag_time = 0, -1
    if leader is not None:
        last = min(voters, key=lambda voter: voter["log_end_offset"])
        lag = leader["log_end_offset"] - last["log_end_offset"]
        caught_up = leader["last_caught_up_timestamp"], last["last_caught_up_timestamp"]
        if last is leader:
            lag_time = 0
        elif min(caught_up) >= 0:
            lag_time = caught_up[0] - caught_up[1]
    values = {
        "ClusterId": cluster_id,
        "LeaderId": quorum["leader_id"],
        "LeaderEpoch": quorum["leader_epoch"],
        "HighWatermark": quorum["high_watermark"],
        "MaxFollowerLag": lag,
        "MaxFollowerLagTimeMs": lag_time,
        "CurrentVoters": _members(voters),
        "CurrentObservers": _members(quorum["observers"]),
    }
    return [f"{name + ':':<23} {value}" for name, value in values.items()]


def _members(members: list[dict[str, Any]]) -> str:
    texts = []
    for member in members:
        directory = "" if member["directory_id"] is None else f', "directoryId": "{member["directory_id"]}"'
        endpoints = ", ".join(f'"{endpoint}"' for endpoint in member["endpoints"])
        listed = f', "endpoints": [{endpoints}]' if endpoints else ""
        texts.append(f'{{"id": {member["id"]}{directory}{listed}}}')
    return f"[{', '.join(texts)}]"


def replication_lines(quorum: dict[str, Any], now_ms: int | None = None) -> list[str]:
    """Tab-separated columns padded to their widest cell, leader first. `now_ms` makes times relative."""
    header = ("NodeId", "DirectoryId", "LogEndOffset", "Lag", "LastFetchTimestamp", "LastCaughtUpTimestamp", "Status")
    leader = next((voter for voter in quorum["voters"] if voter["id"] == quorum["leader_id"]), None)
    leo = leader["log_end_offset"] if leader is not None else quorum["high_watermark"]
    rows: list[tuple[str, ...]] = [header]
    followers = [voter for voter in quorum["voters"] if voter["id"] != quorum["leader_id"]]
    groups = [([leader] if leader else [], "Leader"), (followers, "Follower"), (quorum["observers"], "Observer")]
    for members, status in groups:
        for member in members:
            end = member["log_end_offset"]
            rows.append(
                (
                    str(member["id"]),
                    member["directory_id"] or "AAAAAAAAAAAAAAAAAAAAAA",
                    str(end),
                    str(leo - end),
                    _time(member["last_fetch_timestamp"], now_ms),
                    _time(member["last_caught_up_timestamp"], now_ms),
                    status,
                )
            )
    widths = [max(len(row[i]) for row in rows) for i in range(len(header))]
    return ["".join(cell.ljust(width) + "\t" for cell, width in zip(row, widths, strict=True)) for row in rows]


def _time(timestamp_ms: int, now_ms: int | None) -> str:
    return str(timestamp_ms) if now_ms is None or timestamp_ms < 0 else f"{now_ms - timestamp_ms} ms ago"
