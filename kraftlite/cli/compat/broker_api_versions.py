"""kafka-broker-api-versions. Source: TO-36; Kafka's BrokerApiVersionsCommand."""

from __future__ import annotations

from collections.abc import Sequence

import click

from kraftlite.cli.compat.tool import Parser, cluster_of
from kraftlite.client.cluster import check

from kio.schema.index import api_key_map, schema_name_map  # isort: skip  # after the client, which hides what kio need not load

_CONTROLLER_ONLY = frozenset({4, 5, 6, 7, 52, 53, 54, 56, 58, 59, 62, 63, 67, 70, 73, 82})


def run(arguments: Sequence[str]) -> int:
    parser = Parser("kafka-broker-api-versions", "This tool helps to retrieve broker version information.")
    parser.connection()
    options = parser.read(arguments)
    cluster = cluster_of(options)
    values = {"client_software_name": "kraftlite", "client_software_version": "1"}
    for node in cluster.brokers().values():
        found = check(cluster.call(18, 3, values, broker=node.id))
        ranges = {int(one.api_key): (int(one.min_version), int(one.max_version)) for one in found.api_keys}
        click.echo(f"{node.address} (id: {node.id} rack: {node.rack or 'null'} isFenced: false) -> (")
        known = sorted(set(ranges) | {key for key in api_key_map if key not in _CONTROLLER_ONLY})
        click.echo(",\n".join(f"\t{_line(key, ranges.get(key))}" for key in known))
        click.echo(")")
    return 0


def _line(key: int, found: tuple[int, int] | None) -> str:
    name = api_key_map.get(key)
    called = f"{''.join(part.capitalize() for part in str(name).split('_'))}({key})" if name else f"UNKNOWN({key})"
    if found is None:
        return f"{called}: UNSUPPORTED"
    low, high = found
    shown = str(low) if low == high else f"{low} to {high}"
    usable = high if name is None else min(high, max(schema_name_map[name]))
    return f"{called}: {shown} [usable: {usable}]"
