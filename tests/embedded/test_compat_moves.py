"""kafka-reassign-partitions while partitions move, and kafka-configs of what there is not (TO-14, TO-19)."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.embedded.test_compat import CONFIG, Tools, _live
from tests.harness.embedded import embedded
from tests.harness.local import Cluster, wait_for

pytestmark = [pytest.mark.clients, pytest.mark.xdist_group("embedded")]


@pytest.fixture(scope="module")
def three() -> Iterator[Cluster]:
    with embedded(controllers=1, brokers=3, config=CONFIG) as cluster:
        yield cluster


def test_to_19_a_throttle_that_is_set_while_a_partition_moves(three: Cluster, topic: str, tmp_path: Path) -> None:
    tool, (first, second, third), file = Tools(three.bootstrap), three.brokers, tmp_path / "move.json"

    def plan(*replicas: int) -> None:
        file.write_text(json.dumps({"version": 1, "partitions": [{"topic": topic, "partition": 0, "replicas": replicas}]}))

    tool.good("kafka-topics", "--create", "--topic", topic, "--replica-assignment", f"{first}:{second}")
    three.kill(third)
    try:
        wait_for("it is fenced", lambda: str(third) not in _live(tool))
        tool.own("reassign", "start", f"{topic}-0={third},{first}")
        plan(first, second)
        moved = ["--reassignment-json-file", str(file)]
        throttle = ["--additional", "--throttle", "1000000", "--disallow-replication-factor-change"]
        assert "limit was set to 1000000 B/s" in tool.good("kafka-reassign-partitions", "--execute", *moved, *throttle)
        held = tool.good("kafka-configs", "--topic", topic, "--describe")
        assert f"  leader.replication.throttled.replicas=0:{first},0:{second} " in held
        tool.own("reassign", "start", f"{topic}-0={third},{first}")
        plan(third, first)
        cancelled = tool.good("kafka-reassign-partitions", "--cancel", *moved, "--preserve-throttles")
        assert f"Successfully cancelled partition reassignment for: {topic}-0\n" in cancelled
        assert cancelled.endswith("\nNone of the specified partition moves are active.")
        cleared = tool.good("kafka-reassign-partitions", "--verify", *moved)
        found = f"replica set is {first},{second} rather than {third},{first}."
        assert cleared.splitlines()[1:3] == [f"There is no active reassignment of partition {topic}-0, but {found}", ""]
        assert "throttled" not in tool.good("kafka-configs", "--topic", topic, "--describe")
    finally:
        three.restart(third)


@pytest.mark.parametrize(("kind", "name"), [("broker", "99"), ("group", "nobody"), ("client-metric", "nope")])
def test_to_14_what_there_is_not_has_no_configs(three: Cluster, kind: str, name: str) -> None:
    entity = ["--entity-type", f"{kind}s", "--entity-name", name]
    said = Tools(three.bootstrap).good("kafka-configs", "--describe", *entity)
    assert said == f"The {kind} '{name}' doesn't exist and doesn't have dynamic config.\n"
