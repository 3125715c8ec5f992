"""The files: while a node is down one or two are damaged; then it heals, or refuses in one line, and nothing is lost.

In this process, on disks in memory: a round takes a second. `tests/cluster/test_damage.py` does the like to processes.
"""

from __future__ import annotations

import copy
import random
import re
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from kraftlite.simhost.inodes import Directory, Inode
from kraftlite.testing import SyncCluster
from kraftlite.testing.errors import ClusterError, WaitTimeout
from tests.fuzz import mutate, values
from tests.fuzz.batches import Batch, Rec
from tests.fuzz.client import PRODUCE, Client, Gone, Silent, fetch, values_of
from tests.fuzz.paying import TOPIC as PAID
from tests.fuzz.paying import Payer
from tests.fuzz.sound import flaw

CONTROLLERS, BROKERS = (1, 2, 3), (4, 5, 6)
KEPT, SOLO = "kept", "solo"
STATE: Final = {"transaction.state.log.num.partitions": "3"}
REFUSALS: Final = (
    "Fault",
    "StorageError",
    "OSError",
    "FileNotFoundError",
    "NotADirectoryError",
    "IsADirectoryError",
    "PermissionError",
)
"""What a node may end itself with while it starts: told in one line."""
HUGE: Final = (b"9223372036854775807", b"9223372036854775808", b"-1", b"2147483648", b"9" * 40, b"", b"x", b"0")
HEAL_S: Final = 20.0
IN_ITS_PLACE: Final = "a directory in its place"


@dataclass(slots=True)
class Round:
    """What was done to which file, and what came of it."""

    victim: int
    clean: bool
    damages: list[tuple[str, str]]
    wrong: str | None = None

    @property
    def kind(self) -> str:
        what = " + ".join(f"{role_of(path)} {re.sub(r' .*', '', damage)}" for path, damage in self.damages)
        return f"{what}: {re.sub(r'[0-9]+', 'N', str(self.wrong).splitlines()[0])[:120]}"

    def __str__(self) -> str:
        done = "; ".join(f"{path} {damage}" for path, damage in self.damages)
        return f"node {self.victim} {'stopped' if self.clean else 'killed'}; {done}\n    {self.wrong}"


def role_of(path: str) -> str:
    """segment, index, quorum-state, …: what a file is for."""
    folder, _, name = path.rpartition("/")
    suffix = name.rpartition(".")[2] if "." in name.strip(".") else name
    return f"metadata {suffix}" if "__cluster_metadata" in folder else suffix


def _flip(data: bytearray, rng: random.Random) -> bytes:
    if data:
        data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
    return bytes(data)


def _zero(data: bytearray, rng: random.Random) -> bytes:
    at = rng.randrange(len(data) + 1)
    size = rng.choice((1, 8, 64, 4096))
    data[at : at + size] = bytes(len(data[at : at + size]))
    return bytes(data)


def _greatest(data: bytearray, rng: random.Random) -> bytes:
    """A binary number that is as great, or as small, as it can be."""
    value = rng.choice((b"\x7f", b"\x80", b"\xff", b"\x00")) + rng.choice((b"\xff", b"\x00")) * rng.choice((1, 3, 7))
    at = rng.randrange(max(1, len(data) - len(value)))
    data[at : at + len(value)] = value
    return bytes(data)


def _number(data: bytearray, rng: random.Random) -> bytes:
    numbers = list(re.finditer(rb"\d+", bytes(data)))
    if not numbers:
        return mutate.damage(bytes(data), rng)
    at = rng.choice(numbers)
    return bytes(data[: at.start()]) + rng.choice(HUGE) + bytes(data[at.end() :])


DAMAGES: Final[dict[str, Callable[[bytearray, random.Random], bytes | None]]] = {
    "flipped": _flip,
    "cut": lambda data, rng: bytes(data[: rng.randrange(len(data) + 1)]),
    "one byte short": lambda data, rng: bytes(data[:-1]),
    "zeroed in part": _zero,
    "all zeros": lambda data, rng: bytes(len(data)),
    "empty": lambda data, rng: b"",
    "deleted": lambda data, rng: None,
    "garbled": lambda data, rng: rng.randbytes(max(24, len(data))),
    "longer by junk": lambda data, rng: bytes(data) + rng.randbytes(rng.choice((1, 8, 12, 61, 5000))),
    "another number": _number,
    "greatest number": _greatest,
    "bytes damaged": lambda data, rng: mutate.damage(bytes(data), rng),
}


@dataclass(slots=True)
class World:
    """Three controllers, three brokers; a topic with all replicas and one partition per broker that has no other."""

    rng: random.Random
    cluster: SyncCluster = field(init=False)
    written: dict[tuple[str, int], list[bytes]] = field(default_factory=dict)
    payer: Payer = field(init=False)
    spoilt: set[tuple[str, int]] = field(default_factory=set)
    """Of sole replicas: what was damaged may be refused from now on."""
    clean: bool = False
    """The node was stopped in order before its files were damaged."""

    def __post_init__(self) -> None:
        self.cluster = SyncCluster(controllers=3, brokers=3, config=STATE)
        self.cluster.start()
        small = {"segment.ms": "1", "min.insync.replicas": "2", "retention.ms": "-1"}
        turned = [[BROKERS[(n + k) % 3] for k in range(3)] for n in range(3)]
        self.cluster.create_topic(KEPT, assignment=turned, config=small)
        self.cluster.create_topic(PAID, assignment=turned, config=small)
        self.payer = Payer(self.cluster, len(turned))
        self.cluster.create_topic(SOLO, assignment=[[it] for it in BROKERS], config={**small, "min.insync.replicas": "1"})

    @property
    def nodes(self) -> Any:
        return self.cluster._nodes

    def client(self, node_id: int) -> Client:
        host, _, port = str(self.cluster.nodes[node_id].kafka).rpartition(":")
        return Client((host, int(port)))

    def write(self) -> None:
        """A few batches more in each partition, all acknowledged; each is a segment of its own."""
        for topic, partition in [(KEPT, n) for n in range(3)] + [(SOLO, n) for n in range(3)]:
            if (topic, partition) in self.spoilt:
                continue
            known = self.written.setdefault((topic, partition), [])
            for _ in range(3):
                value = b"%s-%d-%d" % (topic.encode(), partition, len(known))
                self._produce(topic, partition, value, len(known))
                known.append(value)
        self.payer.pay()

    def _produce(self, topic: str, partition: int, value: bytes, number: int) -> None:
        record = Rec(offset_delta=0, key=None, value=value)
        data = Batch(
            records=(record,),
            base_timestamp=1_600_000_000_000 + number * 1000,
            producer_id=7000,
            producer_epoch=0,
            base_sequence=number,
        ).encode()
        part = {"name": topic, "partition_data": [{"index": partition, "records": data}]}
        end = time.monotonic() + HEAL_S
        while True:
            told: Any = None
            leader = self.cluster.leader(topic, partition)
            if leader is not None:
                client = self.client(leader)
                try:
                    answer = client.call(
                        PRODUCE, 8, {"transactional_id": None, "acks": -1, "timeout": 5000, "topic_data": [part]}
                    )
                    told = answer.responses[0].partition_responses[0]
                    if int(told.error_code) == 0:
                        assert told.base_offset in (number, -1), (
                            f"{topic}-{partition}: offset {told.base_offset} for record {number}"
                        )
                        return
                except (Gone, Silent, OSError):
                    pass  # asked again: it is idempotent
                finally:
                    client.close()
            assert time.monotonic() < end, f"{topic}-{partition} takes no record: {told}, leader {leader}"
            time.sleep(0.02)

    # --- damage

    def files(self, node_id: int) -> dict[str, Inode]:
        found: dict[str, Inode] = {}

        def walk(directory: Directory, where: str) -> None:
            for name, it in directory.entries.items():
                if isinstance(it, Directory):
                    walk(it, f"{where}/{name}")
                else:
                    found[f"{where}/{name}"] = it

        walk(self.nodes.hosts[node_id].disk._root, "")
        return found

    def damage(self, node_id: int) -> tuple[str, str]:
        """One file of one role; half the time of the records' own, or a checkpoint of all partitions."""
        rng, files = self.rng, self.files(node_id)
        disk = self.nodes.hosts[node_id].disk
        if node_id in BROKERS and rng.randrange(5) == 0:
            path, kind, data = self._checkpoint()
        else:
            path = self._pick(sorted(files))
            kind = rng.choice((*DAMAGES, "replaced by another file", IN_ITS_PLACE))
            if kind == IN_ITS_PLACE:
                disk.unlink(path)
                disk.mkdir(path)
                if rng.randrange(2):
                    disk.write_file_atomically(f"{path}/a file", b"x")
                return self._spoil(node_id, path), kind
            if kind == "replaced by another file":
                data = bytes(files[rng.choice(self._others(files, path))].data)
            else:
                data = DAMAGES[kind](bytearray(files[path].data), rng)
        if data is None:
            disk.unlink(path)
        else:
            disk.write_file_atomically(path, data)
        return self._spoil(node_id, path), kind

    def _others(self, files: Mapping[str, Inode], path: str) -> list[str]:
        """Files that may come in its place. Behind a kill nothing tells a segment from one of another partition (ROBUSTNESS)."""
        mixed = path.endswith(".log") and not self.clean
        return sorted(
            it for it in files if not (mixed and it.endswith(".log") and it.rpartition("/")[0] != path.rpartition("/")[0])
        )

    def _spoil(self, node_id: int, path: str) -> str:
        """What a sole replica has may be refused from now on."""
        found = re.search(rf"/{SOLO}-(\d)/", path)
        if found:
            self.spoilt.add((SOLO, int(found[1])))
        elif not re.search(rf"/({KEPT}|{PAID}|__)", path):  # it is about all partitions
            self.spoilt.update((SOLO, n) for n in range(3) if BROKERS[n] == node_id)
        return path

    def _pick(self, paths: list[str]) -> str:
        rng = self.rng
        records = [it for it in paths if it.endswith(".log") and "__cluster" not in it]
        if records and rng.randrange(3) == 0:
            folder = rng.choice(sorted({it.rpartition("/")[0] for it in records}))
            own = [it for it in records if it.startswith(folder + "/")]
            return rng.choice((own[0], own[-1], rng.choice(own)))
        by_role: dict[str, list[str]] = {}
        for path in paths:
            if "__cluster" not in path or rng.randrange(3) == 0:
                by_role.setdefault(role_of(path), []).append(path)
        by_role = by_role or {"any": paths}
        return rng.choice(by_role[rng.choice(sorted(by_role))])

    def _checkpoint(self) -> tuple[str, str, bytes]:
        """A well-formed checkpoint that says what is not so."""
        rng = self.rng
        lines = []
        for (topic, partition), known in sorted(self.written.items()):
            if topic == KEPT or rng.randrange(2):
                offset = rng.choice((0, 1, len(known) // 2, len(known) - 1, len(known), len(known) + 1, 2**31, 2**63 - 1, -1))
                lines.append(f"{topic} {partition} {offset}")
        name = rng.choice(("log-start-offset-checkpoint", "recovery-point-offset-checkpoint", "replication-offset-checkpoint"))
        text = "\n".join(["0", str(len(lines)), *lines, ""])
        return f"/data/{name}", f"says {', '.join(lines)}", text.encode()

    def round(self) -> Round:
        rng = self.rng
        victim = rng.choice(CONTROLLERS + BROKERS + BROKERS)
        clean = self.clean = bool(rng.randrange(2))
        self.write()
        if clean:
            self.cluster.stop(victim)
        else:
            self.cluster.kill(victim)
        disk = self.nodes.hosts[victim].disk
        before, spoilt = copy.deepcopy(disk._root), set(self.spoilt)
        done = Round(victim, clean, [self.damage(victim) for _ in range(rng.choice((1, 1, 2)))])
        done.wrong = self._start(victim)
        if done.wrong is None and self.cluster.nodes[victim].state != "running":
            disk._root, self.spoilt = before, spoilt
            self.nodes.failures.pop(victim, None)
            again = self._start(victim)
            if again is not None or self.cluster.nodes[victim].state != "running":
                done.wrong = f"with its files put back it does not start: {again or self.nodes.failures.get(victim)}"
        if done.wrong is None:
            done.wrong = self._healed(victim)
        return done

    def _start(self, victim: int) -> str | None:
        """What is wrong with how it starts; None when it runs or has refused in one line."""
        try:
            self.cluster.restart(victim)
        except ClusterError as error:
            failure = self.nodes.failures.get(victim)
            if failure is None:
                return f"it neither starts nor refuses: {error}"
            kind = failure.split(": ")[1]
            if kind not in REFUSALS:
                return f"it ends with a stack: {failure}"
            if "\n" in failure:
                return f"it refuses in more than one line: {failure}"
        return None

    def _healed(self, victim: int) -> str | None:
        try:
            for partition in range(3):
                self.cluster.wait_for(topic=KEPT, partition=partition, isr=BROKERS, timeout=HEAL_S)
            self._lead_again()
            for (topic, partition), expected in self.written.items():
                if topic == KEPT or BROKERS[partition] == victim:
                    self._compare(topic, partition, expected)
            self.payer.check()
            self.write()
        except (WaitTimeout, ClusterError) as error:
            return f"it does not heal: {error}"
        except AssertionError as error:
            return f"{error}{f'; nodes that ended: {failures}' if (failures := dict(self.nodes.failures)) else ''}"
        except (Gone, Silent, OSError) as error:
            return f"a client got nothing: {type(error).__name__}: {error}"
        failures = dict(self.nodes.failures)
        return f"a node ended itself: {failures}" if failures else None

    def _lead_again(self) -> None:
        """Each partition is led by its preferred replica: the victim answers for what it has."""
        body = {"election_type": 0, "topic_partitions": [{"topic": KEPT, "partitions": [0, 1, 2]}], "timeout": 10_000}
        client = self.client(BROKERS[0])
        try:
            client.call(43, 1, body)
        finally:
            client.close()
        for partition in range(3):
            self.cluster.wait_for(topic=KEPT, partition=partition, leader=BROKERS[partition], timeout=HEAL_S)

    def _compare(self, topic: str, partition: int, expected: list[bytes]) -> None:
        spoilt = (topic, partition) in self.spoilt
        leader = self.cluster.leader(topic, partition)
        if spoilt and leader is None:
            return
        assert leader is not None, f"{topic}-{partition} has no leader"
        found = self._read(leader, topic, partition, len(expected))
        if found is None or found == expected:
            return
        if spoilt and found == expected[: len(found)]:
            return  # a sole replica's end was cut: a crash may do that
        first = next((n for n, (a, b) in enumerate(zip(found, expected, strict=False)) if a != b), len(found))
        raise AssertionError(
            f"{topic}-{partition}, led by {leader}, has {len(found)} of {len(expected)} acknowledged records; first other "
            f"is {first}: {found[first : first + 1]}"
        )

    def _read(self, leader: int, topic: str, partition: int, wanted: int) -> list[bytes] | None:
        """None: a reader that checks CRCs notices, as with any batch that was closed in order and changed afterwards (LG-27)."""
        client = self.client(leader)
        found: list[bytes] = []
        try:
            end = time.monotonic() + HEAL_S
            while len(found) < wanted:
                error, data, _hw = fetch(client, topic, partition, len(found))
                if "CRC" in str(flaw(data, len(found), dense=True)[1]):
                    return None
                more = values_of(data)
                found += more
                if not more and (error == 1 or time.monotonic() > end or (topic, partition) in self.spoilt):
                    return found
                if not more:
                    time.sleep(0.02)
        finally:
            client.close()
        return found

    def close(self) -> None:
        try:
            self.cluster.close()
        except ClusterError:
            return  # what was wrong was told


def rounds(seed: int) -> Iterator[Round]:
    """Without end. A cluster that something was wrong with is given up for a new one."""
    number = 0
    while True:
        rng = random.Random(f"{seed}/files/{number}")
        world = World(rng)
        try:
            for _ in range(12):
                try:
                    done = world.round()
                except AssertionError as error:
                    done = Round(0, False, [], f"before the damage: {error}")
                yield done
                if done.wrong is not None:
                    break
        finally:
            world.close()
        number += 1


def hunt(seed: int, seconds: float, say: Callable[[str], None]) -> Counter[str]:
    found: Counter[str] = Counter()
    end, count = time.monotonic() + seconds, 0
    for count, done in enumerate(rounds(seed), 1):  # noqa: B007
        if done.wrong is not None:
            found[done.kind] += 1
            if found[done.kind] == 1:
                say(f"files: {done}")
        if time.monotonic() > end:
            break
    say(f"files: {count} rounds")
    return found


__all__ = ["hunt", "rounds", "values"]
