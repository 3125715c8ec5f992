"""The failures of the demonstration: kill a leader, kill the active controller, bring both back; each when the last is over."""

from __future__ import annotations

import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kraftlite.client.errors import ClientError
from kraftlite.local import cluster as local
from kraftlite.local import process
from kraftlite.local.client import cluster_at, fetch_quorum
from kraftlite.local.ledger import author
from kraftlite.local.state import LocalError, load
from kraftlite.local.stream import Streamer

_BEGIN_AT = 0.10
_BEGIN_RECORDS = 1000
_WAIT_S = 60.0


@dataclass(slots=True)
class Times:
    """The times at which things were done (wall milliseconds, 0: not yet), and the nodes to which."""

    broker: int = -1
    led: tuple[int, ...] = ()
    broker_killed_ms: int = 0
    broker_overcome_ms: int = 0
    controller: int = -1
    controller_epoch: int = -1
    controller_killed_ms: int = 0
    controller_overcome_ms: int = 0
    acknowledged_meanwhile: int = 0
    """Records acknowledged between the controller's death and the answer of the next one."""
    restarted_ms: int = 0
    whole_ms: int = 0

    def history(self) -> Iterator[dict[str, Any]]:
        """Return the faults that were injected, as `kraftlite pipeline failover-report` reads them."""
        for node, killed_ms in ((self.broker, self.broker_killed_ms), (self.controller, self.controller_killed_ms)):
            if killed_ms:
                yield {"event": "kill", "node": node, "time_ms": killed_ms}
                if self.restarted_ms:
                    yield {"event": "start", "node": node, "time_ms": self.restarted_ms}


class Chaos(threading.Thread):
    """Runs beside the stream. `error` is what kept it from finishing, if anything did."""

    def __init__(self, data_dir: Path, bootstrap: str, partitions: int, streamer: Streamer, say: Callable[[str], None]) -> None:
        super().__init__(name="chaos", daemon=True)
        self.times = Times()
        self.error: str | None = None
        self._data_dir = data_dir
        self._servers = bootstrap
        self._partitions = partitions
        self._streamer = streamer
        self._say = say
        self._cluster = cluster_at(bootstrap)

    def run(self) -> None:
        try:
            self._wait_for_records()
            self._kill_leader()
            self._kill_controller()
            self._restart()
        except (LocalError, ClientError) as error:
            self.error = str(error)
        finally:
            self._streamer.pace.limit = None

    def _wait_for_records(self) -> None:
        count = self._streamer.source.count
        wanted = max(1, int(count * _BEGIN_AT)) if count is not None else _BEGIN_RECORDS
        process.wait_until(
            lambda: self._streamer.ledger.acknowledged >= wanted or self._streamer.finished.is_set(), timeout_s=600, poll_s=0.05
        )

    def _kill_leader(self) -> None:
        leaders = self._leaders()
        victim, _ = min(Counter(leaders.values()).items(), key=lambda item: (-item[1], item[0]))
        self.times.broker = victim
        self.times.led = tuple(index for index, leader in sorted(leaders.items()) if leader == victim)
        local.kill(self._data_dir, victim, signal.SIGKILL, by=author("demo"))
        self.times.broker_killed_ms = _now_ms()
        self._say(f"killed node {victim} (SIGKILL), the leader of partitions {', '.join(map(str, self.times.led))}")
        self._wait("every partition has another leader", lambda: victim not in self._leaders().values())
        new = self._leaders()
        self._say("new leaders: " + ", ".join(f"partition {index}: node {new[index]}" for index in self.times.led))
        self._wait_for_acks(_now_ms())
        self.times.broker_overcome_ms = _now_ms()

    def _wait_for_acks(self, since_ms: int) -> None:
        """Until every partition that gets records is acknowledged again."""
        gaps = self._streamer.ledger.gaps
        self._wait(
            "every partition acknowledges again",
            lambda: self._streamer.finished.is_set() or all(gap.last_ack_ms > since_ms for gap in list(gaps.values())),
        )

    def _kill_controller(self) -> None:
        quorum = fetch_quorum(self._servers)
        victim = quorum["leader_id"]
        self.times.controller, self.times.controller_epoch = victim, quorum["leader_epoch"]
        local.kill(self._data_dir, victim, signal.SIGKILL, by=author("demo"))
        self.times.controller_killed_ms = _now_ms()
        acknowledged = self._streamer.ledger.acknowledged
        self._say(f"killed node {victim} (SIGKILL), the active controller of epoch {quorum['leader_epoch']}")
        found: dict[str, Any] = {}

        def changed() -> bool:
            found.update(fetch_quorum(self._servers))
            return bool(found["leader_id"] not in (victim, -1))

        self._wait("another controller is active", changed)
        self.times.controller_overcome_ms = _now_ms()
        self.times.acknowledged_meanwhile = self._streamer.ledger.acknowledged - acknowledged
        self._say(f"node {found['leader_id']} is the active controller of epoch {found['leader_epoch']}")

    def _restart(self) -> None:
        self.times.restarted_ms = _now_ms()
        cluster = load(self._data_dir)
        victims = [cluster.node(node) for node in dict.fromkeys((self.times.broker, self.times.controller))]
        local.start(cluster, victims, by=author("demo"))
        self._say(f"restarted nodes {' and '.join(str(node.id) for node in victims)}")
        self._wait("every ISR is whole", self._whole)
        self.times.whole_ms = _now_ms()
        self._say("every ISR is whole again")

    def _topic(self) -> dict[int, Any]:
        """Partitions by index; none when the cluster does not answer."""
        try:
            found = self._cluster.topics([self._streamer.topic])
        except ClientError:
            return {}
        return {int(part.partition_index): part for topic in found.values() for part in topic.partitions}

    def _leaders(self) -> dict[int, int]:
        """Leader by partition; -1 where there is none, or the cluster did not answer."""
        found = self._topic()
        missing = dict.fromkeys(range(self._partitions), -1)
        return {**missing, **{index: int(partition.leader_id) for index, partition in found.items()}}

    def _whole(self) -> bool:
        found = self._topic()
        return len(found) == self._partitions and all(len(part.isr_nodes) == len(part.replica_nodes) for part in found.values())

    def _wait(self, what: str, condition: Callable[[], bool]) -> None:
        if not process.wait_until(condition, timeout_s=_WAIT_S, poll_s=0.05):
            raise LocalError(f"gave up after {_WAIT_S:.0f} s of waiting until {what}")


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
