"""kraftlite answers as a real Apache Kafka does, but for what docs/DIFFERENCES.md explains."""

from __future__ import annotations

import pytest

from tests.clients import compare, compare_known
from tests.clients.compare_sides import both

pytestmark = [pytest.mark.clients, pytest.mark.jvm, pytest.mark.slow, pytest.mark.xdist_group("clients")]


@pytest.mark.capability("the same answers as Apache Kafka")
def test_every_difference_is_explained(request: pytest.FixtureRequest, java: None) -> None:
    if request.config.getoption("--kafka-external") is not None:
        pytest.skip("--kafka-external: this starts both clusters itself")
    with both() as sides:
        found = [str(it) for it in compare.differences(sides, [])]
    assert len(found) > 20, "nothing was compared: some are known"
    assert [it for it in found if compare_known.reason(it) is None] == []
