"""Policies for clusters of tests."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def team_topics(topic: Any) -> str | None:
    if topic.topic == "broken":
        raise RuntimeError("the policy has a bug")
    return None if topic.topic.startswith(("team-", "__")) else f"{topic.topic} does not begin with team-"


class ShortRetention:
    def configure(self, values: Mapping[str, str]) -> None:
        self.node_id = values["node.id"]

    def validate(self, change: Any) -> str | None:
        wanted = change.configs.get("retention.ms")
        return None if wanted is None or 0 <= int(wanted) <= 1_000 else "retention.ms must be 1000 at most"
