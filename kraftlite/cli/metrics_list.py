"""metrics list: every series that the page of a node can have."""

from __future__ import annotations

import json
from importlib.resources import files
from typing import Any

import click

from kraftlite.cli.common import output_option, print_json, print_table


def series() -> list[dict[str, Any]]:
    """The table, with names as samples have them on the page; `other`: the name by which Confluent's boards ask, or None."""
    from kraftlite.obs.dialects import other_name

    found = []
    for row in json.loads(files("kraftlite.obs").joinpath("series.json").read_text("utf-8")):
        other = other_name(row["name"], row["type"])
        ending = "_total" if row["type"] == "counter" else ""
        second = None if other is None else other[0] + ("_total" if other[1] == "counter" else "")
        found.append({**row, "name": row["name"] + ending, "other": second})
    return found


@click.command("list")
@click.argument("words", nargs=-1, metavar="[PART]…")
@output_option
def list_series(words: tuple[str, ...], output: str) -> None:
    """List each series that the metrics page of a node can have: its type, its labels, the nodes that have it, and what it says.

    Names are those of Strimzi's rules for Kafka; OTHER NAME is that of Confluent's rules, under which the page has the series a
    second time. With PART only the names that contain one of these parts: kraftlite metrics list raft loop
    """
    chosen = [
        row for row in series() if not words or any(word in name for word in words for name in (row["name"], row["other"] or ""))
    ]
    if words and not chosen:
        raise click.ClickException(f"no series contains {' or '.join(words)}")
    if output == "json":
        print_json(chosen)
    else:
        print_table(
            ("NAME", "TYPE", "LABELS", "NODES", "OTHER NAME", "HELP"),
            [
                (
                    row["name"],
                    row["type"],
                    ",".join(row["labels"]) or "-",
                    ",".join(row["nodes"]),
                    row["other"] or "-",
                    row["help"],
                )
                for row in chosen
            ],
        )
