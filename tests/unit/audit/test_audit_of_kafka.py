"""The audit takes directories as Apache Kafka leaves them: indexes that are laid out beforehand, checkpoints without a byte.

`tests/postmortem` audits those of a real one.
"""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from kraftlite.log import checkpoints
from kraftlite.spark.jobs.audit import AuditReport, audit
from tests.harness.audit_cluster import START_MS, Broker, make_cluster

Cluster = dict[str, Broker]


@pytest.fixture
def cluster(tmp_path: Path) -> Cluster:
    return make_cluster(tmp_path)


def run(cluster: Cluster) -> AuditReport:
    return audit({name: [broker.path] for name, broker in cluster.items()}, engine="local")


def laid_out(broker: Broker) -> None:
    """The indexes of the last segment as Apache Kafka leaves them when it is killed: zeros at the end, and before them entries
    of what the log had before it was truncated."""
    broker.crash()
    last = broker.segments[2]
    with last.with_suffix(".index").open("ab") as file:
        file.write(struct.pack(">iiii", 90, 9_999, 95, 3) + b"\0" * 800)
    with last.with_suffix(".timeindex").open("ab") as file:
        file.write(struct.pack(">qi", START_MS + 10**6, 95) + b"\0" * 1200)


def test_to_43_what_a_truncation_left_in_a_preallocated_index_is_good(cluster: Cluster) -> None:
    laid_out(cluster["b2"])
    assert run(cluster).findings == ()


def test_a_wrong_entry_before_a_true_one_is_none_of_that(cluster: Cluster) -> None:
    laid_out(cluster["b2"])
    path = cluster["b2"].segments[2].with_suffix(".index")
    data = bytearray(path.read_bytes())
    offset, position = struct.unpack_from(">ii", data)
    struct.pack_into(">ii", data, 0, offset, position + 1)
    path.write_bytes(data)
    (found,) = run(cluster).findings
    assert (found.kind, found.broker, Path(found.file).name, found.position) == ("bad_index", "b2", path.name, 0)


def test_a_checkpoint_without_a_byte_has_no_entries(cluster: Cluster) -> None:
    """Apache Kafka makes its checkpoints before it has anything to write."""
    (cluster["b2"].path / checkpoints.LOG_START_CHECKPOINT).write_bytes(b"")
    assert run(cluster).findings == ()
