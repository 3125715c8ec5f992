"""How long an assignment lasts at least: the group's own interval, that of the broker while it runs, that of its file."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest

from kraftlite.coordinator.config import GroupConfig
from kraftlite.coordinator.modern.cluster import Cluster
from kraftlite.metadata.image import ConfigurationsImage, MetadataImage
from kraftlite.metadata.pmap import PMap
from kraftlite.model.group_configs import ASSIGNMENT_INTERVAL, ASSIGNMENT_INTERVAL_KEY
from kraftlite.model.ids import NodeId

BROKER, GROUP = 4, 32


def interval(own: str | None = None, **dynamic: str) -> int:
    resources: dict[tuple[int, str], Mapping[str, str]] = {
        (BROKER, name.strip("_")): {ASSIGNMENT_INTERVAL_KEY: value} for name, value in dynamic.items()
    }
    if own is not None:
        resources[GROUP, "g"] = {ASSIGNMENT_INTERVAL: own}
    configs = ConfigurationsImage(resources=PMap({name: PMap(dict(values)) for name, values in resources.items()}))
    config = GroupConfig.from_values({ASSIGNMENT_INTERVAL_KEY: "700", "group.consumer.min.assignment.interval.ms": "300"})
    return Cluster(config, replace(MetadataImage.EMPTY, configs=configs), NodeId(1)).assignment_interval_ms("g")


@pytest.mark.parametrize(
    ("found", "wanted"),
    [
        (interval(), 700),
        (interval(_="800"), 800),
        (interval(_="800", _1="900"), 900),
        (interval(_2="900"), 700),
        (interval("500", _1="900"), 500),
        (interval(_1="20000"), 15_000),
        (interval(_1="5"), 300),
        (interval(_1="nonsense"), 700),
    ],
)
def test_the_nearest_value_counts_within_the_bounds_of_the_file(found: int, wanted: int) -> None:
    assert found == wanted
