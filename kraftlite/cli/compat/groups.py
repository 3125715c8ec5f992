"""kafka-groups: every kind of group. Source: KIP-1043; Kafka's GroupsCommand."""

from __future__ import annotations

from collections.abc import Sequence

import click

from kraftlite.cli.compat.tool import Parser, UsageError, cluster_of
from kraftlite.cli.groups import KINDS
from kraftlite.client.cluster import check


def run(arguments: Sequence[str]) -> int:
    parser = Parser("kafka-groups", "This tool helps to list groups of all types.")
    parser.connection()
    for name in ("list", "consumer", "share", "streams"):
        parser.add_argument(f"--{name}", action="store_true")
    parser.add_argument("--group-type")
    parser.add_argument("--protocol")
    options = parser.read(arguments)
    if not options.list:
        raise UsageError("Command must include exactly one action: --list.")
    if options.consumer + options.share + options.streams + bool(options.group_type) > 1:
        raise UsageError("Only one of --consumer, --share, --streams and --group-type may be given")
    for name in ("consumer", "share", "streams"):
        if getattr(options, name) and options.protocol is not None:
            raise UsageError(f'Option "[{name}]" can\'t be used with option "[protocol]"')
    wanted = (options.group_type or "").capitalize()
    if wanted not in ("", *KINDS):
        raise UsageError("--group-type must be a valid group type.")
    cluster = cluster_of(options)
    rows = []
    for node in cluster.brokers():
        answer = check(cluster.call(16, 5, {"states_filter": [], "types_filter": []}, broker=node))
        rows += [(str(one.group_id), str(one.group_type).capitalize(), str(one.protocol_type)) for one in answer.groups]
    shown = [
        row
        for row in sorted(rows)
        if (not wanted or row[1] == wanted)
        and (options.protocol is None or row[2] == options.protocol)
        and (not options.consumer or (row[1] in ("Consumer", "Classic") and row[2] in ("consumer", "")))
        and (not options.share or row[1] == "Share")
        and (not options.streams or row[1] == "Streams")
    ]
    table = [("GROUP", "TYPE", "PROTOCOL"), *shown]
    width = max(20, *(len(row[0]) for row in table))  # of every column
    for row in table:
        click.echo(" ".join(cell.ljust(width) for cell in row).rstrip())
    return 0
