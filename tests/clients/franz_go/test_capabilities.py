"""franz-go: the capabilities that every client is put through."""

from __future__ import annotations

from typing import Any

import pytest

from tests.clients.capabilities import Capabilities
from tests.clients.clusters import Start
from tests.clients.programs import FOLDER, Client, Ready, go_program, go_version, told_results
from tests.clients.transactions import coordinator, keyed

pytestmark = [pytest.mark.clients, pytest.mark.golang, pytest.mark.slow, pytest.mark.xdist_group("clients")]
HERE = FOLDER / "franz_go"


class TestFranzGo(Capabilities):
    client = Client(
        name="franz-go",
        version=lambda: go_version(HERE, "twmb/franz-go"),
        prepare=lambda: go_program(HERE),
        timed_out="INVALID_TXN_STATE",
    )

    def test_guess(self, ready: Ready) -> None:
        """`kcl misc probe-version`: from the newest release back it takes the first whose requests are all there, in these
        versions. Share groups are of 4.0, so nothing newer is left; what kraftlite does offer has the versions of 4.3."""
        (found,) = ready.admin({"do": "guess_version"})
        assert set(found["missing"]) <= NOT_OFFERED, "DIFFERENCES.md lists what is not offered"
        assert found["without"] == "v4.3"
        assert found["guess"] == "at least v3.9"

    def test_a_commit_that_nobody_confirms(self, start: Start, command: list[str], topic: str) -> None:
        """The coordinator dies before the commit, and its broker is named until it is fenced: the client returns the error of the
        connection (README.md). The application finds out how the transaction ended, and each is there once."""
        with start({"min.insync.replicas": "2", "broker.session.timeout.ms": "6000"}) as cluster:
            cluster.create_topic(topic, partitions=2)
            begin, commit = {"do": "begin"}, {"do": "commit"}
            steps = [begin, both("a"), {"do": "wait"}, commit, begin, both("b"), commit]
            job = {"op": "transact", "topic": topic, "transactional_id": topic, "steps": steps}
            with Ready(self.client, command, cluster.bootstrap).start(**job) as writer:
                writer.until("it has written", lambda: len(writer.of("result")) == 2)
                cluster.kill(coordinator(cluster, topic))
                assert told_results(writer.stop()) == [None] * len(steps)
            for partition in (0, 1):
                assert keyed(cluster, topic, partition) == [("k", "a"), ("k", "b")]


def both(value: str) -> dict[str, Any]:
    """The step that writes it to both partitions."""
    return {"do": "send", "records": [{"partition": partition, "key": "k", "value": value} for partition in (0, 1)]}


NOT_OFFERED = {
    *(71, 72),  # telemetry: where the node has no metrics page
    *(76, 77, 78, 79, 83, 84, 85, 86, 87, 90, 91, 92),  # share groups
    *(80, 81),  # voters that come and go: a controller has them
    *(88, 89),  # streams groups
}
"""API keys of Kafka 4.3 that a broker of kraftlite does not know."""
