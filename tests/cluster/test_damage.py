"""Files of every kind are damaged while their node is down: it heals without losing a record, or says which file is bad."""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from kraftlite.cli.main import cli
from kraftlite.local.state import LocalError
from tests.harness.damage import IN_A_PARTITION, ONLY_COPY, REFUSED, UNMENDABLE_CONTROLLER, Damage, around_the_partitions, logs
from tests.harness.local import CALM, PATIENCE_S, Cluster, running, wait_for

pytestmark = [pytest.mark.cluster, pytest.mark.xdist_group("damage")]

RECORDS, RECORD_BYTES = 115, 20_000
"""Per partition: three segments of the smallest size that Kafka allows."""
CONFIG = {**CALM, "broker.session.timeout.ms": "2500"}
"""Who registers and then refuses leaves a session behind that the next start has to wait for."""
SEEN_BY_READERS = ("last-segment-bit-flipped", "page-zeroed")
"""Inside a batch that was closed in order: nobody looks there until somebody reads it."""


@pytest.fixture(scope="module")
def undamaged() -> Iterator[Cluster]:
    with running(controllers=1, brokers=3, config=CONFIG) as found:
        yield found


@pytest.fixture
def cluster(undamaged: Cluster) -> Iterator[Cluster]:
    """With every node running, before and after: a test that fails with a node down must not fail the ones behind it."""
    yield undamaged
    undamaged.heal()


def value_of(partition: int, number: int) -> bytes:
    seed = hashlib.sha256(f"{partition}/{number}".encode()).digest()
    return (seed * (RECORD_BYTES // len(seed) + 1))[:RECORD_BYTES]


def fill(cluster: Cluster, topic: str, victim: int, partitions: int) -> None:
    """A topic that the victim leads, every record acknowledged by all three replicas."""
    others = [broker for broker in cluster.brokers if broker != victim]
    cluster.create_topic(
        topic,
        assignment=[[victim, *others]] * partitions,
        config={"segment.bytes": str(1 << 20), "min.insync.replicas": "2"},
    )
    failed: list[str] = []
    producer = cluster.producer(**{"enable.idempotence": True, "batch.size": 50_000, "linger.ms": 50})
    for number in range(RECORDS):
        for partition in range(partitions):
            producer.produce(
                topic,
                value_of(partition, number),
                partition=partition,
                on_delivery=lambda error, _: failed.append(str(error)) if error is not None else None,
            )
            producer.poll(0)
    assert producer.flush(2 * PATIENCE_S) == 0
    assert not failed


def folders(cluster: Cluster, topic: str, partition: int) -> dict[int, Path]:
    return {broker: Path(cluster.node(broker).data_dir) / f"{topic}-{partition}" for broker in cluster.brokers}


def log_bytes(folder: Path) -> bytes:
    return b"".join(path.read_bytes() for path in logs(folder))


def same_bytes(cluster: Cluster, topic: str, partition: int) -> dict[int, bytes]:
    """Each replica's log, once they are the same; what they are when that does not come."""
    replicas: dict[int, bytes] = {}

    def same() -> bool:
        replicas.update({broker: log_bytes(folder) for broker, folder in folders(cluster, topic, partition).items()})
        return len(set(replicas.values())) == 1

    with contextlib.suppress(AssertionError):
        wait_for("equal replicas", same, timeout_s=10, every_s=0.2)
    return replicas


def lead_again(cluster: Cluster, topic: str, victim: int) -> None:
    """The victim is the preferred leader of everything: let it answer for what it has."""
    result = CliRunner().invoke(cli, ["elect-leaders", "--topic", topic, "-b", cluster.bootstrap])
    assert result.exit_code == 0, result.output
    others = tuple(broker for broker in cluster.brokers if broker != victim)
    for partition in cluster.partitions(topic):
        cluster.wait_leader(topic, partition, not_in=others)


def read_all(cluster: Cluster, topic: str, partition: int) -> list[bytes]:
    """To the end; that is not before RECORDS: a new leader may learn a moment later how far the high watermark is."""
    from confluent_kafka import Consumer, TopicPartition

    consumer = Consumer(
        {
            "bootstrap.servers": cluster.bootstrap,
            "group.id": "t",
            "enable.auto.commit": False,
            "check.crcs": True,
            "enable.partition.eof": True,
        }
    )
    found: list[bytes] = []
    ended = False
    try:
        consumer.assign([TopicPartition(topic, partition, 0)])
        while True:
            message = consumer.poll(PATIENCE_S)
            if message is None and ended:
                return found
            assert message is not None, f"{topic}-{partition} stalls behind {len(found)} records"
            if message.error() is not None:
                assert message.error().name() == "_PARTITION_EOF", message.error()
                if len(found) >= RECORDS:
                    return found
                ended = True
                continue
            found.append(message.value())
    finally:
        consumer.close()


def end_and_damage(cluster: Cluster, topic: str, victim: int, *, clean: bool) -> None:
    """Partition i suffers the i-th damage."""
    fill(cluster, topic, victim, len(IN_A_PARTITION))
    if clean:
        stop(cluster, victim)
        assert (Path(cluster.node(victim).data_dir) / ".kafka_cleanshutdown").exists()
    else:
        cluster.kill(victim)
    for index, damage in enumerate(IN_A_PARTITION.values()):
        damage(folders(cluster, topic, index)[victim])
    cluster.restart(victim)
    cluster.wait_whole(topic)
    lead_again(cluster, topic, victim)


def stop(cluster: Cluster, node_id: int) -> None:
    cluster.terminate(node_id)
    cluster.wait_stopped(node_id)


def wrong_partitions(cluster: Cluster, topic: str, indexes: list[int]) -> list[str]:
    """The victim leads and must have every record; the replicas must be byte-identical."""
    wrong = []
    names = list(IN_A_PARTITION)
    for index in indexes:
        replicas = same_bytes(cluster, topic, index)
        if len(set(replicas.values())) != 1:
            wrong.append(f"{names[index]}: replicas differ: { {broker: len(data) for broker, data in replicas.items()} }")
        found = read_all(cluster, topic, index)
        if found != [value_of(index, number) for number in range(RECORDS)]:
            wrong.append(f"{names[index]}: read {len(found)} of {RECORDS} records")
    return wrong


def refuses(cluster: Cluster, node_id: int, damage: Damage, words: str) -> str | None:
    """What is wrong with how the stopped node refuses to start with this damage; its directory is put back."""
    node = cluster.node(node_id)
    data, backup = Path(node.data_dir), Path(node.directory) / "backup"
    shutil.copytree(data, backup)
    said = node.log_path.stat().st_size
    try:
        damage(data)
        cluster.restart(node_id)
    except LocalError as error:
        text = str(error)
        log = node.log_path.read_bytes()[said:].decode()
        if "Traceback" in log or len([line for line in log.splitlines() if line.startswith("kraftlite: ")]) != 1:
            return f"not one line: {log}"
        if words not in text or str(data) not in text or "ended while starting" not in text:
            return text
        return None
    else:
        stop(cluster, node_id)
        return "it started"
    finally:
        if data.is_dir():
            shutil.rmtree(data)
        else:
            data.unlink(missing_ok=True)
        backup.rename(data)


def test_bl_14_rf_12_what_cannot_heal_is_refused_by_name(cluster: Cluster) -> None:
    victim = cluster.brokers[2]
    cluster.create_topic("solo", assignment=[[victim]])
    assert cluster.produce("solo", ["kept"]) == []
    stop(cluster, victim)
    wrong = {name: found for name, (damage, words) in REFUSED.items() if (found := refuses(cluster, victim, damage, words))}
    assert not wrong
    cluster.restart(victim)
    cluster.wait_leader("solo")
    assert cluster.consume("solo", at_least=1) == ["kept"]


def test_the_only_copy_that_lost_records_is_refused_and_the_others_are_served(cluster: Cluster) -> None:
    """ADR 7. Nothing of it is deleted; a person puts it back, or goes on with what is left."""
    victim = cluster.brokers[2]
    cluster.create_topic("only", assignment=[[victim]] * (len(ONLY_COPY) + 1))
    for partition in range(len(ONLY_COPY) + 1):
        assert cluster.produce("only", ["kept"] * 20, partition=partition) == []
    stop(cluster, victim)
    data = Path(cluster.node(victim).data_dir)
    backup = Path(cluster.node(victim).directory) / "backup"
    shutil.copytree(data, backup)
    for partition, damage in enumerate(ONLY_COPY.values()):
        damage(data / f"only-{partition}")
    # One file for all partitions of the topic: written anew.
    (data / f"only-{len(ONLY_COPY)}" / "partition.metadata").write_bytes(b"garbage")
    said = cluster.node(victim).log_path.stat().st_size
    cluster.restart(victim)
    cluster.wait_leader("only", len(ONLY_COPY))
    assert cluster.consume("only", partition=len(ONLY_COPY), at_least=20) == ["kept"] * 20
    log = cluster.node(victim).log_path.read_bytes()[said:].decode()
    silent = [name for partition, name in enumerate(ONLY_COPY) if f"only-{partition}" not in refusals(log)]
    assert not silent, log
    stop(cluster, victim)
    for partition in (0, 1):  # put back
        path = data / f"only-{partition}"
        path.unlink(missing_ok=True)
        shutil.copytree(backup / f"only-{partition}", path)
    for partition in range(2, len(ONLY_COPY)):  # given up
        (data / f"only-{partition}" / "accept-data-loss").touch()
    cluster.restart(victim)
    for partition in range(len(ONLY_COPY)):
        cluster.wait_leader("only", partition)
        assert cluster.produce("only", ["next"], partition=partition) == []
    for partition in (0, 1):
        assert cluster.consume("only", partition=partition, at_least=21) == ["kept"] * 20 + ["next"]
    shutil.rmtree(backup)


def test_lg_54_followers_join_a_log_whose_end_was_given_up_before_anybody_writes(cluster: Cluster) -> None:
    """They come to the end of it by fetching: there must be something to fetch behind the hole."""
    victim, *others = cluster.brokers
    cluster.create_topic("shorter", assignment=[[victim, *others]])
    for other in others:
        stop(cluster, other)
    for _ in range(5):
        assert cluster.produce("shorter", ["kept"], partition=0) == []
    stop(cluster, victim)
    path = folders(cluster, "shorter", 0)[victim]
    last = logs(path)[-1]
    os.truncate(last, last.stat().st_size - 10)
    (path / "accept-data-loss").touch()
    for broker in cluster.brokers:
        cluster.restart(broker)
    cluster.wait_whole("shorter")
    assert cluster.consume("shorter", at_least=4) == ["kept"] * 4


def refusals(log: str) -> set[str]:
    """The partitions that a node said it refuses."""
    lines = [line for line in log.splitlines() if "broker.log_refused" in line]
    return {found for line in lines for found in re.findall(r"only-\d+", line)[:1]}


def test_rf_46_the_only_controller_does_not_forget(cluster: Cluster) -> None:
    """Nobody else has the metadata: what a crash cannot have done is refused, and a torn end is not."""
    cluster.create_topic("remembered")
    (controller,) = cluster.controllers
    cluster.kill(controller)
    wrong = {
        name: found
        for name, (damage, words) in UNMENDABLE_CONTROLLER.items()
        if (found := refuses(cluster, controller, damage, words))
    }
    assert not wrong
    log = logs(Path(cluster.node(controller).data_dir) / "__cluster_metadata-0")[-1]
    log.write_bytes(log.read_bytes() + b"half a batch")
    cluster.restart(controller)
    cluster.wait_brokers()
    cluster.wait_topic("remembered")


def test_lg_54_metadata_that_is_older_than_the_logs_costs_no_record() -> None:
    """A person went on without the end of the metadata log, as the only controller says that one can."""
    with running(controllers=1, brokers=1, config=CONFIG) as cluster:
        (controller,), (broker,) = cluster.controllers, cluster.brokers
        cluster.create_topic("ahead", assignment=[[broker]])
        assert cluster.produce("ahead", ["first"]) == []
        folder = Path(cluster.node(controller).data_dir) / "__cluster_metadata-0"
        size = logs(folder)[-1].stat().st_size
        stop(cluster, broker)
        cluster.restart(broker)
        cluster.wait_leader("ahead")
        assert cluster.produce("ahead", ["second"]) == []
        stop(cluster, broker)
        stop(cluster, controller)
        with logs(folder)[-1].open("r+b") as log:
            log.truncate(size)
        (folder / "flushed-offset").unlink()
        said = cluster.node(broker).log_path.stat().st_size
        cluster.restart(controller, broker)
        assert "older than this log" in cluster.node(broker).log_path.read_bytes()[said:].decode()
        assert not list(Path(cluster.node(broker).data_dir).glob("*-damaged"))
        stop(cluster, broker)
        cluster.restart(broker)  # the metadata has come to the epoch of the log
        cluster.wait_leader("ahead")
        assert cluster.consume("ahead", at_least=2) == ["first", "second"]


def test_lg_07_lg_29_files_around_the_partitions_heal(cluster: Cluster) -> None:
    victim = cluster.brokers[1]
    fill(cluster, "around", victim, 2)
    stop(cluster, victim)
    data = Path(cluster.node(victim).data_dir)
    around_the_partitions(data, "around-0")
    cluster.restart(victim)
    cluster.wait_whole("around")
    lead_again(cluster, "around", victim)
    for partition in range(2):
        assert len(set(same_bytes(cluster, "around", partition).values())) == 1
        assert read_all(cluster, "around", partition) == [value_of(partition, number) for number in range(RECORDS)]
    names = {
        path.name.partition(".")[0] + ("-" + path.name.rpartition("-")[2] if "." in path.name else "") for path in data.iterdir()
    }
    assert {"gone-0-stray", "unknown-7-stray", "lost+found", "nonsense"} <= names
    wait_for("the deletion is finished", lambda: not [path for path in data.iterdir() if path.name.endswith("-delete")])


@pytest.mark.slow
def test_lg_26_a_killed_broker_heals_every_damage(cluster: Cluster) -> None:
    end_and_damage(cluster, "killed", cluster.brokers[0], clean=False)
    wrong = wrong_partitions(cluster, "killed", list(range(len(IN_A_PARTITION))))
    assert not wrong, "\n".join(wrong)


@pytest.mark.slow
def test_lg_27_a_clean_shutdown_does_not_vouch_for_what_is_missing(cluster: Cluster) -> None:
    """The marker saves the scan, so a bit that flips inside a batch is found when it is read, as in Kafka: never silently.

    Without the partition's directory the broker fetches it anew.
    """
    victim = cluster.brokers[0]
    end_and_damage(cluster, "stopped", victim, clean=True)
    unseen = [index for index, name in enumerate(IN_A_PARTITION) if name in SEEN_BY_READERS]
    wrong = wrong_partitions(cluster, "stopped", [index for index in range(len(IN_A_PARTITION)) if index not in unseen])
    assert not wrong, "\n".join(wrong)
    for index in unseen:
        with pytest.raises(AssertionError, match="CRC"):
            read_all(cluster, "stopped", index)
        dumped = CliRunner().invoke(cli, ["log", "dump", "--batches-only", str(folders(cluster, "stopped", index)[victim])])
        assert dumped.exit_code == 1
        assert "wrong CRC" in dumped.output
    stop(cluster, victim)
    for index in unseen:
        shutil.rmtree(folders(cluster, "stopped", index)[victim])
    cluster.restart(victim)
    cluster.wait_whole("stopped")
    lead_again(cluster, "stopped", victim)
    wrong = wrong_partitions(cluster, "stopped", unseen)
    assert not wrong, "\n".join(wrong)


@pytest.mark.slow
def test_lg_34_a_full_disk_takes_one_broker_out_and_no_record(cluster: Cluster) -> None:
    victim = cluster.brokers[0]
    stop(cluster, victim)
    data, aside = Path(cluster.node(victim).data_dir), Path(cluster.node(victim).directory) / "aside"
    data.rename(aside)
    data.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1g", "tmpfs", str(data)], capture_output=True, check=False)
    try:
        if mounted.returncode != 0:
            pytest.skip("no file system can be mounted here")
        shutil.copytree(aside, data, dirs_exist_ok=True)
        there = os.statvfs(data)  # in whole pages
        size = (there.f_blocks - there.f_bfree) * there.f_frsize + (3 << 20)
        subprocess.run(["mount", "-o", f"remount,size={size}", str(data)], capture_output=True, check=True)
        cluster.restart(victim)
        fill(cluster, "full", victim, 4)
        wait_for("the broker has stopped", lambda: cluster.node(victim).state == "stopped")
        said = [line for line in cluster.node(victim).log_path.read_text().splitlines() if line.startswith("kraftlite: ")]
        assert "No space left on device" in said[-1]
        assert str(data) in said[-1]
        for partition in range(4):
            assert read_all(cluster, "full", partition) == [value_of(partition, number) for number in range(RECORDS)]
    finally:
        if cluster.node(victim).state != "stopped":
            cluster.kill(victim)
        if mounted.returncode == 0:
            gone = ["umount", str(data)]
            wait_for("unmounted", lambda: subprocess.run(gone, capture_output=True, check=False).returncode == 0)
        data.rmdir()
        aside.rename(data)
    cluster.restart(victim)
    cluster.wait_whole("full")
