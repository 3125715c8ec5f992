"""Apache Kafka beside kraftlite, where it can be had."""

from __future__ import annotations

import sys
from typing import TypeVar

from tests.clients.java.tools import Missing, jars

T = TypeVar("T")


def sides(kraftlite: T, kafka: T) -> dict[str, T]:
    """Both by their names; without Apache Kafka, and why is told, where its jars cannot be had."""
    try:
        jars()
    except Missing as missing:
        print(f"without Apache Kafka: {missing}", file=sys.stderr)
        return {"kraftlite": kraftlite}
    return {"kraftlite": kraftlite, "Apache Kafka": kafka}
