"""Prints the dump of a file: on the terminal, as text or as JSON lines."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click


class Report:
    """Prints what is found, as text or as JSON lines, and counts damage. Of records `contents` are keys and values, and
    `metadata` all the rest. Of indexes `entries` are printed, or what is wrong with them only."""

    def __init__(
        self, *, as_json: bool, batches_only: bool, contents: bool = True, metadata: bool = True, entries: bool = True
    ) -> None:
        self.contents = contents
        self.metadata = metadata
        self.entries = entries
        self.as_json = as_json
        self.batches_only = batches_only
        self.damage = 0

    def file(self, path: Path, **facts: Any) -> None:
        if self.as_json:
            self._json({"file": str(path), **facts})
            return
        click.echo(f"Dumping {path}")
        if "start_offset" in facts:
            click.echo(f"Log starting offset: {facts['start_offset']}")
        if path.name == "bootstrap.checkpoint":
            click.echo("KRaft bootstrap snapshot")
        if "snapshot_end_offset" in facts:
            click.echo(f"Snapshot end offset: {facts['snapshot_end_offset']}, epoch: {facts['snapshot_epoch']}")

    def line(self, text: str, value: dict[str, Any]) -> None:
        if self.as_json:
            self._json(value)
        else:
            click.echo(text)

    def problem(self, text: str) -> None:
        self.damage += 1
        if self.as_json:
            self._json({"problem": text})
        else:
            click.echo(text)

    def _json(self, value: dict[str, Any]) -> None:
        click.echo(json.dumps(value, default=str, ensure_ascii=False))
