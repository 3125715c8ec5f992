"""A stream that writes exactly once while another broker is killed every few seconds: `python -m tests.spark.soak_exactly_once`.

A cluster of processes, of three controllers and three brokers, and a driver of Spark. Now and then the active controller is
killed with the broker, and the driver with all its processes, which begins again where its checkpoint says. At the end a reader
of committed records must see every row once, each partition must have the batches in their order, and everything that is visible
must have been decided. Prints what was killed and what came of it; ends with 1 when that does not hold.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

from kraftlite.audit.sink import audit_sink
from kraftlite.client.kafka_client import KafkaClient
from kraftlite.client.settings import ClientSettings
from kraftlite.exactly_once.records import STATE_TOPIC
from tests.harness.exactly_once import Seen, committed
from tests.harness.halting import LEAVE, give
from tests.harness.local import Cluster, running
from tests.harness.sink_drivers import Driver

ROWS = 200
"""Of each file, which is a batch."""
OUT = "soaked"
CONTROLLER_EVERY, DRIVER_EVERY = 4, 3
"""The active controller dies with every fourth broker, the driver with every third."""


class Story:
    """All that happens to one query. `every_s`: the time from one broker's death to the next one's."""

    def __init__(self, cluster: Cluster, at: Path, every_s: float) -> None:
        self._cluster, self._at, self._every_s = cluster, at, every_s
        self._bootstrap = cluster.bootstrap
        self.files = self.kills = self.drivers = 0
        self.driver = self._drive()

    def _drive(self) -> Driver:
        self.drivers += 1
        return Driver(self._bootstrap, OUT, self._at, None, kind="continuous", again=10_000)

    def go_on(self, seconds: float) -> None:
        """A file a second."""
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0:
            give(self._at, self.files * ROWS, ROWS)
            self.files += 1
            time.sleep(min(1.0, left))

    def strike(self) -> None:
        brokers = self._cluster.brokers
        victims = [brokers[self.kills % len(brokers)]]
        self.kills += 1
        if self.kills % CONTROLLER_EVERY == 0:
            victims.append(self._cluster.active_controller())
        self._cluster.kill(*victims)
        if self.kills % DRIVER_EVERY == 0:
            self.driver.kill()
            self.driver = self._drive()
        self.go_on(self._every_s / 2)
        self._cluster.restart(*victims)
        self.go_on(self._every_s / 2)

    def finish(self) -> None:
        self._cluster.heal()
        (self._at / LEAVE).touch()
        self.driver.leave()


def wrong(seen: Sequence[Seen], rows: int) -> list[str]:
    """What is not as it must be, in a sentence each."""
    values = [(it.value or b"").decode() for it in seen]
    found = []
    if twice := len(values) - len(set(values)):
        found.append(f"{twice} rows are there more than once")
    if missing := {f"v{it}" for it in range(rows)} - set(values):
        found.append(f"{len(missing)} rows are missing, such as {min(missing)}")
    if more := set(values) - {f"v{it}" for it in range(rows)}:
        found.append(f"{len(more)} rows were never sent, such as {min(more)}")
    for one, other in pairwise(seen):
        batches = [int((it.stamp or "//").split("/")[1]) for it in (one, other)]
        if one.partition == other.partition and batches[1] < batches[0]:
            found.append(f"partition {one.partition} has rows of batch {batches[1]} behind those of batch {batches[0]}")
            break
    return found


def main() -> int:
    parser = argparse.ArgumentParser(prog="tests.spark.soak_exactly_once", description=__doc__)
    parser.add_argument("--minutes", type=float, default=3.0)
    parser.add_argument("--every", type=float, default=5.0, help="seconds from one kill to the next")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="soak-") as folder, running(controllers=3, brokers=3) as cluster:
        cluster.create_topic(OUT, partitions=2, replication=3)
        story = Story(cluster, Path(folder), options.every)
        try:
            story.go_on(options.every)
            end = time.monotonic() + 60 * options.minutes
            while time.monotonic() < end:
                story.strike()
            story.finish()
        finally:
            story.driver.kill()
        seen = committed(cluster.bootstrap, OUT)
        found = wrong(seen, story.files * ROWS)
        client = KafkaClient(ClientSettings(bootstrap=tuple(cluster.bootstrap.split(","))))
        found += [f"{it.kind}: {it.detail}" for it in audit_sink(client, [OUT], STATE_TOPIC).found if not it.is_note]
        failures = story.driver.failures
    print(f"{story.kills} brokers killed, {story.drivers - 1} drivers killed, {len(failures)} failures of the query")
    for failure in failures:
        print(f"  {failure.splitlines()[0][:200]}")
    print(f"{story.files} files of {ROWS} rows, {len(seen)} rows seen: {'; '.join(found) or 'every row once'}")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
