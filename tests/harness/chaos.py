"""A schedule of faults drawn from a seed, a workload under it, and the verdict afterwards."""

from __future__ import annotations

import itertools
import os
import random
import shutil
import signal
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from kraftlite.local import cluster as local
from kraftlite.local import process
from kraftlite.local.client import fetch_quorum
from kraftlite.local.state import LocalError
from tests.harness.history import PHOENIX, Administrator, Background, Key, MetadataWatcher, Reader, TopicFate, Writer
from tests.harness.local import FAST, PATIENCE_S, Cluster, running, wait_for
from tests.harness.verdict import check_directories, check_logs, check_metadata_logs, check_traces, replica_states, tails

CONFIG = {
    **FAST,
    "auto.create.topics.enable": "false",
    "log.segment.delete.delay.ms": "500",
    "replica.fetch.backoff.ms": "200",
    "replica.high.watermark.checkpoint.interval.ms": "1000",
    "log.flush.offset.checkpoint.interval.ms": "1000",
}
SNAPSHOTS = {
    "metadata.log.segment.ms": "1500",
    "metadata.log.max.record.bytes.between.snapshots": "3000",
    "metadata.max.retention.bytes": "4000",
}
"""Metadata snapshots every few seconds, so that who was away needs one."""

SESSION_S = 1.5
TIMEOUTS = (
    "broker.session.timeout.ms",
    "controller.quorum.election.timeout.ms",
    "controller.quorum.fetch.timeout.ms",
    "replica.lag.time.max.ms",
)
"""What a node is given to be heard of. Where others want the processors, too, it needs as much more: nodes that are late fail
again and again, and the faults of the run drown in that."""
MOST_CROWDED = 4.0
TOPICS = {
    "strict": {"min.insync.replicas": "2", "segment.bytes": "1048576"},
    "loose": {"min.insync.replicas": "1", "segment.bytes": "1048576"},
    "single": {"min.insync.replicas": "1"},
}
PARTITIONS = 3
INTERNAL = ("__consumer_offsets", "__transaction_state")
"""A broker creates them itself, for the first client that looks for its group's coordinator, as the readers do."""


class Chaos:
    """Does the faults of one seed. Knows which nodes should be alive; one that is not and was not told to is a problem."""

    def __init__(self, cluster: Cluster, seed: int, *, session_s: float) -> None:
        self.cluster = cluster
        self.session_s = session_s
        self.random = random.Random(seed)
        self.gentle = seed % 4 != 0
        """Mostly one node at a time, and time for the others to go on: else there is nothing but outage."""
        self.down: set[int] = set()
        self.paused: set[int] = set()
        self.story: list[str] = []
        self.problems: list[str] = []
        self.began = time.monotonic()

    def say(self, text: str) -> None:
        self.story.append(f"{time.monotonic() - self.began:6.2f} {text}")

    @property
    def everyone(self) -> list[int]:
        return [node.id for node in self.cluster.state.nodes]

    def incarnation(self, node: int) -> Any:
        return self.cluster.node(node).pid

    # --- single faults

    def kill(self, *nodes: int) -> None:
        victims = [node for node in nodes if node not in self.down]
        self.say(f"SIGKILL {victims}")
        self._expect_alive(victims)
        for node in victims:
            self.down.add(node)
            self.paused.discard(node)
            local.kill(self.cluster.data_dir, node, signal.SIGKILL)

    def terminate(self, *nodes: int) -> None:
        """SIGTERM, without waiting for the end."""
        victims = [node for node in nodes if node not in self.down]
        self.say(f"SIGTERM {victims}")
        self._expect_alive(victims)
        for node in victims:
            self.down.add(node)
            local.kill(self.cluster.data_dir, node, signal.SIGTERM)

    def pause(self, *nodes: int) -> None:
        victims = [node for node in nodes if node not in self.down | self.paused]
        self.say(f"SIGSTOP {victims}")
        self._expect_alive(victims)
        self.paused |= set(victims)
        self.cluster.pause(*victims)

    def resume(self, *nodes: int) -> None:
        victims = [node for node in nodes if node in self.paused]
        if victims:
            self.say(f"SIGCONT {victims}")
        for node in victims:
            self.paused.discard(node)
            if node in self.down:  # told to stop while it was paused: it may end at once
                try:
                    self.cluster.resume(node)
                except LocalError:
                    continue
            else:
                self.cluster.resume(node)

    def restart(self, *nodes: int) -> None:
        """Start what is down, without waiting until it is ready. What still ends by a SIGTERM is waited for."""
        victims = [node for node in nodes if node in self.down]
        if not victims:
            return
        self.resume(*victims)
        for node in victims:
            try:
                self.cluster.wait_stopped(node, timeout_s=30)
            except AssertionError:
                self.problems.append(f"node {node} did not end within 30 s of SIGTERM")
                local.kill(self.cluster.data_dir, node, signal.SIGKILL)
        self.say(f"start {victims}")
        state = self.cluster.state
        local.start(state, [state.node(node) for node in victims], wait=False)
        self.down -= set(victims)

    def _expect_alive(self, nodes: list[int]) -> None:
        for node in nodes:
            if self.cluster.node(node).state == "stopped":
                self.down.add(node)
                self.problems.append(f"node {node} ended by itself, before {self.story[-1]}")
                raise Died

    def check_alive(self) -> None:
        for node in self.everyone:
            if node not in self.down and self.cluster.node(node).state == "stopped":
                self.down.add(node)
                self.problems.append(f"node {node} ended by itself, after {self.story[-1] if self.story else 'nothing'}")

    # --- the schedule

    def sleep(self, longest_s: float) -> None:
        time.sleep(self.random.random() * longest_s)

    def some(self, nodes: list[int]) -> list[int]:
        return self.random.sample(nodes, self.random.randint(1, len(nodes)))

    def _leader(self) -> int:
        try:
            views = self.cluster.partitions(self.random.choice(sorted(TOPICS)))
        except Exception:  # noqa: BLE001 - nobody answers: any node will do
            views = {}
        leaders = [view.leader for view in views.values() if view.leader in self.cluster.brokers]
        return self.random.choice(leaders or self.cluster.brokers)

    def _controller(self) -> int:
        """The active controller by the nodes' traces: asking would take time when nobody answers."""
        from kraftlite.obs.timeline import merge_timelines

        events = merge_timelines([self.cluster.node(node).trace_path for node in self.cluster.controllers])
        leaders = [event["node"] for event in events if event["event"] == "raft.leader_elected"]
        return leaders[-1] if leaders else self.random.choice(self.cluster.controllers)

    def faults(self) -> list[Callable[[], None]]:
        choice, some, brokers, controllers = self.random.choice, self.some, self.cluster.brokers, self.cluster.controllers
        one = [
            lambda: self.kill(self._leader()),
            lambda: self.kill(self._controller()),
            lambda: self.kill(self._leader(), self._controller()),
            lambda: self.terminate(self._leader()),
            lambda: self.terminate(self._controller()),
            lambda: self._blink([self._leader()], 0.5 * self.session_s),
            lambda: self._blink([self._leader()], 2 * self.session_s),
            lambda: self._blink([self._controller()], 3.0),
            lambda: self._blink([choice(brokers)], 2 * self.session_s),
            lambda: self.pause(choice(self.everyone)),
            lambda: self._pause_then(self.kill, [choice(self.everyone)]),
            lambda: self._pause_then(self.terminate, [choice(brokers)]),
            lambda: self._terminate_then_kill([choice(self.everyone)]),
            lambda: self._bounce([choice(self.everyone)]),
            lambda: self._bounce([self._leader()]),
        ]
        if self.gentle:
            return one
        return [
            *one,
            lambda: self.kill(*some(brokers)),
            lambda: self.kill(*some(self.everyone)),
            lambda: self.kill(*brokers),
            lambda: self.kill(*controllers),
            lambda: self.kill(*self.everyone),
            lambda: self.terminate(*some(brokers)),
            lambda: self.terminate(*some(self.everyone)),
            lambda: self._blink(some(self.everyone), 0.8),
            lambda: self._blink(some(self.everyone), 3 * self.session_s),
            lambda: self.pause(*some(self.everyone)),
            lambda: self._pause_then(self.kill, some(self.everyone)),
            lambda: self._pause_then(self.terminate, some(self.everyone)),
            lambda: self._terminate_then_kill(some(self.everyone)),
            lambda: self._bounce(some(self.everyone)),
        ]

    def _blink(self, nodes: list[int], longest_s: float) -> None:
        self.pause(*nodes)
        self.sleep(longest_s)
        self.resume(*nodes)

    def _pause_then(self, action: Callable[..., None], nodes: list[int]) -> None:
        self.pause(*nodes)
        self.sleep(2 * self.session_s)
        action(*nodes)

    def _terminate_then_kill(self, nodes: list[int]) -> None:
        nodes = [node for node in nodes if node not in self.down]
        self.terminate(*nodes)
        self.sleep(0.3)
        for node in nodes:
            if self.cluster.node(node).state != "stopped":
                local.kill(self.cluster.data_dir, node, signal.SIGKILL)
        self.say(f"SIGKILL while stopping {nodes}")

    def _bounce(self, nodes: list[int]) -> None:
        """Kill and start again, several times, also while it starts."""
        for _ in range(self.random.randint(1, 3)):
            self.kill(*nodes)
            self.restart(*nodes)
            self.sleep(1.0)

    def run(self, duration_s: float) -> None:
        deadline = time.monotonic() + duration_s
        broken_at: float | None = None
        while time.monotonic() < deadline:
            try:
                self.random.choice(self.faults())()
            except (Died, LocalError) as error:
                self.say(f"({type(error).__name__}: {error})")
            self.sleep(4.0 if self.gentle else 2.0)
            self.check_alive()
            # Most of the time most of it runs; a broker that finds no quorum for a minute gives up, and rightly.
            if self.random.random() < 0.6 or len(self.down | self.paused) > (1 if self.gentle else 3):
                broken = sorted(self.down)
                self.restart(*(broken if self.random.random() < 0.7 else self.some(broken) if broken else []))
            if self.paused and self.random.random() < 0.7:
                self.resume(*sorted(self.paused))
            unhealthy = len((self.down | self.paused) & set(self.cluster.controllers)) > 1
            broken_at = None if not unhealthy else broken_at or time.monotonic()
            if broken_at is not None and time.monotonic() - broken_at > 8:
                self.restart(*sorted(self.down))
                self.resume(*sorted(self.paused))

    def heal(self) -> None:
        self.say("heal")
        self.resume(*sorted(self.paused))
        self.restart(*sorted(self.down))


class Died(Exception):
    """A node is not alive that should be."""


def run_seed(seed: int, *, duration_s: float = 12.0, keep: Path | None = None) -> None:
    """One run. AssertionError with everything that is needed to understand it when something is wrong."""
    combined = seed % 5 == 4
    crowd = min(_crowd(), MOST_CROWDED)
    patient = {name: str(round(int(CONFIG[name]) * crowd)) for name in TIMEOUTS}
    config = {**CONFIG, **patient, **(SNAPSHOTS if seed % 2 else {})}
    with running(controllers=3, brokers=3, combined=combined, config=config) as cluster:
        chaos = Chaos(cluster, seed, session_s=SESSION_S * crowd)
        problems: list[str] = []
        try:
            problems = _run(cluster, chaos, seed, duration_s)
        except Exception:  # noqa: BLE001 - whatever it was, the nodes' side of it is needed
            problems = [traceback.format_exc(limit=-4)]
        problems = chaos.problems + problems
        if problems:
            chaos.check_alive()
            text = "\n".join(
                [
                    f"seed {seed}; again with: KRAFTLITE_CHAOS_SEEDS={seed} pytest -m slow tests/cluster/test_chaos.py",
                    *(f"PROBLEM {problem}" for problem in problems),
                    *chaos.story,
                    tails(cluster),
                ]
            )
            if keep is not None:
                for node in cluster.state.nodes:
                    process.send(node.pid, node.mark, signal.SIGSTOP)
                folder = keep / f"seed-{seed}-{int(time.time())}"
                shutil.copytree(cluster.data_dir, folder)
                (folder / "report.txt").write_text(text)
            raise AssertionError(text)


def _run(cluster: Cluster, chaos: Chaos, seed: int, duration_s: float) -> list[str]:
    for name, config in TOPICS.items():
        cluster.create_topic(name, partitions=PARTITIONS, config=config)
    cluster.create_topic(PHOENIX, partitions=2)
    keys = [(name, index) for name in TOPICS for index in range(PARTITIONS)]
    servers = cluster.bootstrap
    writers = [
        Writer("w1", servers, "strict", PARTITIONS, seed),
        Writer("w2", servers, "strict", PARTITIONS, seed),
        Writer("w3", servers, "loose", PARTITIONS, seed),
        Writer("w4", servers, "loose", PARTITIONS, seed),
        Writer("w5", servers, "single", PARTITIONS, seed, acks="1"),
        Writer("w6", servers, PHOENIX, 2, seed, acks="1"),
    ]
    readers = [Reader("r1", servers, keys, seed), Reader("r2", servers, keys, seed)]
    watcher = MetadataWatcher({n: str(cluster.node(n).kafka) for n in cluster.brokers}, chaos.incarnation)
    admin = Administrator(servers, seed, keys)
    everything: list[Background] = [*writers, *readers, watcher, admin]
    for part in everything:
        part.start()
    problems: list[str] = []
    healed_at = 0.0
    try:
        chaos.run(duration_s)
        chaos.heal()
        healed_at = time.monotonic()
        problems += _recovery(cluster, chaos, writers, healed_at)
    except BaseException:
        for reader in readers:
            reader.stop()
        raise
    finally:
        if not healed_at:
            chaos.heal()
        for part in [*writers, admin, watcher]:
            part._stop.set()
        admin.stop()
        wait_for(f"{PHOENIX} is there", lambda: _exists(cluster))
        for part in [*writers, watcher]:
            part.stop()
    for topic in TOPICS:
        cluster.wait_whole(topic, timeout_s=PATIENCE_S * _crowd())
    assignments = _wait_assignments(cluster, admin)
    problems += list(check_logs(cluster, [*keys, (PHOENIX, 0), (PHOENIX, 1)], writers, readers))
    for reader in readers:
        reader.stop()
    problems += [problem for part in everything for problem in part.problems()]
    problems += list(check_fates(cluster, admin, assignments))
    problems += list(check_directories(cluster, lambda: _wait_assignments(cluster, admin)))
    problems += list(check_metadata_logs(cluster, fetch_quorum(cluster.bootstrap)["high_watermark"]))
    problems += list(check_traces(cluster, set(TOPICS)))
    chaos.check_alive()
    _report(chaos, seed, writers, readers, admin, watcher, healed_at)
    return problems


def _exists(cluster: Cluster) -> bool:
    """Whether the topic is there, creating it if need be: its last deletion may not have been followed by a creation."""
    from confluent_kafka import KafkaException

    if cluster.partitions(PHOENIX):
        return True
    try:
        cluster.create_topic(PHOENIX, partitions=2)
    except KafkaException:  # somebody did, and the broker that was asked does not know yet; or nobody answers yet
        return False
    return True


def _recovery(cluster: Cluster, chaos: Chaos, writers: list[Writer], healed_at: float) -> Iterator[str]:
    """After healing: all partitions acknowledge, ISRs are whole, and not only after minutes. On a machine that has its
    processors for this run it takes seconds, elsewhere as much longer as others want them, too."""
    before = {(writer.name, key): len(acked) for writer in writers for key, acked in writer.acked.items()}

    def acknowledging() -> bool:
        return all(
            len(w.acked[(w.topic, i)]) > before.get((w.name, (w.topic, i)), 0)
            for w in writers
            for i in range(PARTITIONS)
            if w.topic != PHOENIX
        )

    try:
        wait_for("every writer is acknowledged on every partition", acknowledging, timeout_s=40 * _crowd())
    except AssertionError as error:
        standing = "\n".join(writer.standing() for writer in writers)
        raise AssertionError(f"{error}\n{standing}") from None
    acknowledged_s = time.monotonic() - healed_at
    for topic in TOPICS:
        cluster.wait_whole(topic, timeout_s=PATIENCE_S * _crowd())
    whole_s = time.monotonic() - healed_at
    chaos.say(f"acknowledged everywhere {acknowledged_s:.1f} s after healing, whole after {whole_s:.1f} s")
    replaced = any(at > healed_at for writer in writers for at in writer.replaced_at)
    crowd = _crowd()
    if acknowledged_s > 15 * crowd and not replaced:
        yield f"{acknowledged_s:.1f} s from healing to an acknowledgement of every partition"
    if whole_s > 20 * crowd:
        yield f"{whole_s:.1f} s from healing to whole ISRs"


def _crowd() -> float:
    """How many tasks of the last minute wanted each of the machine's processors, or waited for its disks; 1.0 at least."""
    return max(1.0, os.getloadavg()[0] / (os.cpu_count() or 1))


def _wait_assignments(cluster: Cluster, admin: Administrator) -> dict[str, dict[int, tuple[int, ...]]]:
    """The assignment as all brokers agree on it, every partition with a leader and a whole ISR."""

    def agreed() -> dict[str, dict[int, tuple[int, ...]]] | None:
        views = [view.topics if view is not None else None for view in cluster.views().values()]
        first = views[0] if len(views) == len(cluster.brokers) else None
        if first is None or any(view != first for view in views):
            return None
        fit = all(p.leader >= 0 and set(p.isr) == set(p.replicas) for topic in first.values() for p in topic.values())
        return {name: {i: p.replicas for i, p in topic.items()} for name, topic in first.items()} if fit else None

    found: dict[str, dict[int, tuple[int, ...]]] = wait_for(
        "all brokers describe the same whole topics", agreed, timeout_s=PATIENCE_S * _crowd()
    )
    return found


def check_fates(cluster: Cluster, admin: Administrator, assigned: dict[str, dict[int, tuple[int, ...]]]) -> Iterator[str]:
    """What the administrator was promised is so."""
    if strangers := set(assigned) - set(admin.fates) - set(TOPICS) - {PHOENIX, *INTERNAL}:
        yield f"topics that nobody created: {sorted(strangers)}"
    for fate in admin.fates.values():
        yield from _check_fate(cluster, fate, assigned.get(fate.name))


def _check_fate(cluster: Cluster, fate: TopicFate, found: dict[int, tuple[int, ...]] | None) -> Iterator[str]:
    if found is None:
        if fate.created and fate.deleted is False:
            yield f"{fate.name} was created and is not there"
        return
    if fate.created is False:
        yield f"{fate.name} was refused and is there"
    if fate.deleted:
        yield f"{fate.name} was deleted and is there"
    if len(found) not in fate.partitions:
        yield f"{fate.name} has {len(found)} partitions, possible are {fate.partitions}"
    from confluent_kafka.admin import ConfigResource, ResourceType

    resource = ConfigResource(ResourceType.TOPIC, fate.name)
    value = cluster.admin().describe_configs([resource])[resource].result(20)["retention.ms"].value
    if value not in fate.configs:
        yield f"{fate.name} has retention.ms={value}, possible are {fate.configs}"


def slowest_recovery(chaos: Chaos, writers: list[Writer]) -> tuple[float, float, Key | None]:
    """The longest time from the last fault (or repair) to the first acknowledgement: (seconds, when, partition)."""
    moments = [float(line.split()[0]) for line in chaos.story]
    found: tuple[float, float, Key | None] = (0.0, 0.0, None)
    for writer in writers:
        for key, times in writer.acked_at.items():
            for (before, _), (after, _) in itertools.pairwise(times):
                last = max((m for m in moments if m <= after - chaos.began), default=0.0)
                silent = after - chaos.began - max(last, before - chaos.began)
                if silent > found[0]:
                    found = (silent, after - chaos.began, key)
    return found


def _report(
    chaos: Chaos,
    seed: int,
    writers: list[Writer],
    readers: list[Reader],
    admin: Administrator,
    watcher: MetadataWatcher,
    healed_at: float,
) -> None:
    """What this run exercised: a seed that did nothing proves nothing."""
    acked = {writer.name: sum(len(of) for of in writer.acked.values()) for writer in writers}
    slow = slowest_recovery(chaos, writers)
    print(f"seed {seed}: slowest recovery {slow[0]:.1f} s, at {slow[1]:.1f} s of {slow[2]}")
    gaps = {w.name: f"{g[0]:.1f}s at {g[1] - chaos.began:.1f} {g[2]}" for w in writers if (g := w.longest_gap())}
    calls = Counter(f"{what.split()[0]} {verdict}" for _, what, verdict in admin.calls)
    print(f"seed {seed}: acked {acked}, longest gaps {gaps}")
    print(f"  read {[sum(len(s) for s in r.seen.values()) for r in readers]}, {watcher.views} views, {dict(calls)}")
    print("  " + "; ".join(chaos.story), flush=True)


__all__ = ["Chaos", "replica_states", "run_seed"]
