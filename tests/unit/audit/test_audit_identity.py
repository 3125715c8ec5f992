"""What tells whose a log is, and the metadata log, whose high watermark no file knows."""

from __future__ import annotations

from pathlib import Path
from uuid import UUID

import pytest

pytest.importorskip("numpy")

from kraftlite.audit.findings import Finding
from kraftlite.host.disk import HostDisk
from kraftlite.log import checkpoints
from kraftlite.spark.jobs.audit import AuditReport, audit
from tests.harness.audit_cluster import END, Broker, flip, make_cluster, record_batch
from tests.unit.audit.test_audit import Cluster, epoch_at, only, run, second

ONE, TWO = UUID(int=1 << 70), UUID(int=1 << 71)


def write_ids(cluster: Cluster, *ids: UUID | None) -> None:
    for broker, topic_id in zip(cluster.values(), ids, strict=True):
        if topic_id is not None:
            checkpoints.write_partition_metadata(HostDisk(), str(broker.directory), topic_id)


def test_all_replicas_of_the_same_topic(tmp_path: Path) -> None:
    cluster = make_cluster(tmp_path)
    write_ids(cluster, ONE, ONE, ONE)
    assert run(cluster).findings == ()


@pytest.mark.parametrize(("ids", "broker", "what"), [
    ((ONE, TWO, ONE), "b2", "other replicas have"),
    ((TWO, ONE, ONE), "b1", "other replicas have"),
    ((ONE, ONE, None), "b3", "the file is missing"),
])  # fmt: skip
def test_a_directory_of_another_topic(tmp_path: Path, ids: tuple[UUID | None, ...], broker: str, what: str) -> None:
    cluster = make_cluster(tmp_path)
    write_ids(cluster, *ids)
    found = only(run(cluster))
    assert (found.kind, found.broker, Path(found.file).name) == ("bad_partition_metadata", broker, "partition.metadata")
    assert what in found.detail


def test_one_of_two_may_be_either(tmp_path: Path) -> None:
    cluster = make_cluster(tmp_path, brokers=2)
    write_ids(cluster, ONE, TWO)
    found = only(run(cluster))
    assert found.kind == "bad_partition_metadata" and found.detail.endswith("it may be either")


def test_a_broker_that_crashed_may_not_have_it_yet(tmp_path: Path) -> None:
    cluster = make_cluster(tmp_path)
    write_ids(cluster, ONE, None, ONE)
    cluster["b2"].crash()
    assert run(cluster).findings == ()


def test_an_identity_that_is_none(tmp_path: Path) -> None:
    cluster = make_cluster(tmp_path)
    write_ids(cluster, ONE, ONE, ONE)
    (cluster["b2"].directory / checkpoints.PARTITION_METADATA).write_text("version: 9\n")
    found = only(run(cluster))
    assert (found.kind, found.broker) == ("bad_partition_metadata", "b2")


# The metadata log: as above, under its own name, with no checkpoint that speaks of it, its nodes killed.


@pytest.fixture
def quorum(tmp_path: Path) -> Cluster:
    cluster = make_cluster(tmp_path)
    for broker in cluster.values():
        broker.crash()
        broker.directory.rename(broker.path / "__cluster_metadata-0")
        for name in (checkpoints.HW_CHECKPOINT, checkpoints.RECOVERY_POINT_CHECKPOINT, checkpoints.LOG_START_CHECKPOINT):
            (broker.path / name).unlink()
    return {name: Moved(broker.name, broker.path) for name, broker in cluster.items()}


class Moved(Broker):
    @property
    def directory(self) -> Path:
        return self.path / "__cluster_metadata-0"


def compared_below(report: AuditReport) -> int | None:
    (partition,) = report.partitions
    return partition.compared_below


def checked(quorum: Cluster) -> tuple[list[Finding], int | None]:
    report = run(quorum)
    return list(report.findings), compared_below(report)


def test_metadata_logs_are_compared_to_where_they_agree(quorum: Cluster) -> None:
    assert checked(quorum) == ([], END)


def test_a_flipped_bit_below_what_others_have_too_is_damage(quorum: Cluster) -> None:
    flip(quorum["b2"].segments[2], 2 * len(quorum["b2"].batches(2)[0]) + 80)
    found = only(run(quorum))
    assert (found.kind, found.broker, found.offset) == ("bad_crc", "b2", 90)


def test_a_flipped_bit_in_the_last_batch_may_be_a_torn_write(quorum: Cluster) -> None:
    flip(quorum["b2"].segments[2], 7 * len(quorum["b2"].batches(2)[0]) + 80)
    found = only(run(quorum))
    assert (found.kind, found.severity, found.broker, found.offset) == ("torn_tail", "note", "b2", END - 5)


def test_a_leader_that_was_deposed_may_have_more(quorum: Cluster) -> None:
    """The same offset in another epoch: nobody has counted it."""
    quorum["b1"].rewrite(2, lambda batches: [*batches, record_batch(END, 3)])
    for name in ("b2", "b3"):
        quorum[name].rewrite(2, lambda batches: [*batches, record_batch(END, 4)])
    assert checked(quorum) == ([], END + 5)


def test_two_contents_in_one_epoch(quorum: Cluster) -> None:
    """Two leaders in one epoch, or damage that nobody noticed."""
    quorum["b3"].rewrite(2, lambda batches: [*batches[:4], record_batch(100, 2, producer=8), *batches[5:]])
    found = only(run(quorum))
    assert (found.kind, found.broker, found.offset) == ("content_diverged", "b3", 100)


def test_an_epoch_that_differs_below(quorum: Cluster) -> None:
    epoch_at(quorum["b1"].segments[1], 6 * second(quorum["b1"]), 1)
    found = only(run(quorum))
    assert (found.kind, found.broker, found.offset) == ("epoch_diverged", "b1", 70)


def test_the_only_metadata_log(quorum: Cluster) -> None:
    report = audit({"b1": [quorum["b1"].path]}, engine="local")
    assert report.findings == () and compared_below(report) is None
