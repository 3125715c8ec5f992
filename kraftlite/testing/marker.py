"""`@pytest.mark.kafka(partitions=3, replication_factor=3, config={…})`: what `kafka_topic` is like."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

NAMES = ("partitions", "replication_factor", "config")


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicSpec:
    """`replication_factor` None: as many as three."""

    partitions: int = 1
    replication_factor: int | None = None
    config: Mapping[str, object] = field(default_factory=dict)


def topic_spec(marks: Iterable[tuple[tuple[Any, ...], Mapping[str, Any]]]) -> TopicSpec:
    """Merge marks (positional arguments, keywords), the farthest first: the nearest one's keywords win. Raises ValueError."""
    found: dict[str, Any] = {}
    for args, keywords in marks:
        if args:
            raise ValueError(f"@pytest.mark.kafka takes keywords only ({', '.join(NAMES)}), not {args[0]!r}")
        for name, value in keywords.items():
            _check(name, value)
            found[name] = value
    return TopicSpec(**found)


def _check(name: str, value: Any) -> None:
    if name not in NAMES:
        raise ValueError(f"@pytest.mark.kafka has no keyword {name!r}; allowed are {', '.join(NAMES)}")
    if name == "config":
        if not isinstance(value, Mapping) or not all(isinstance(key, str) for key in value):
            raise ValueError(f"@pytest.mark.kafka(config={value!r}): allowed is a mapping of topic configuration keys to values")
    elif isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise ValueError(f"@pytest.mark.kafka({name}={value!r}): allowed is a whole number of at least 1")
