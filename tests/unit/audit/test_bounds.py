"""Files that are too large to be what they are called are refused by name, and never read whole."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("numpy")

from kraftlite.audit.scan import scan_segment
from kraftlite.host.files import MAX_INDEX_BYTES, MAX_TEXT_BYTES
from kraftlite.log.checkpoints import HW_CHECKPOINT
from kraftlite.segments import directories
from kraftlite.segments.files import MAX_SEGMENT_BYTES, open_log
from kraftlite.sim import regressions
from tests.harness.audit_cluster import Broker, make_cluster


@pytest.fixture
def broker(tmp_path: Path) -> Broker:
    return make_cluster(tmp_path)["b1"]


def listed(broker: Broker) -> directories.Replica:
    (found,) = directories.discover({"b1": [broker.path]})
    return found.replicas[0]


def grow(path: Path, size: int) -> None:
    """By a hole: it takes no room on the disk."""
    with path.open("ab") as file:
        file.truncate(size)


def test_a_log_of_more_than_an_int_of_bytes_is_no_segment(broker: Broker) -> None:
    path = broker.segments[0]
    grow(path, MAX_SEGMENT_BYTES)
    with open_log(str(path)) as file:
        assert file.read(1)
    grow(path, MAX_SEGMENT_BYTES + 1)
    with pytest.raises(
        OSError, match=f"has {MAX_SEGMENT_BYTES + 1} bytes; a segment has at most {MAX_SEGMENT_BYTES}.*{path.name}"
    ):
        open_log(str(path))
    scan = scan_segment(listed(broker).segments[0])
    assert scan.unread is not None and f"a segment has at most {MAX_SEGMENT_BYTES}" in scan.unread
    assert scan.headers.size == 0


@pytest.mark.parametrize("suffix", [".index", ".timeindex"])
def test_an_index_that_is_too_large_is_told(broker: Broker, suffix: str) -> None:
    path = broker.segments[0].with_suffix(suffix)
    grow(path, MAX_INDEX_BYTES + 1)
    scan = scan_segment(listed(broker).segments[0])
    assert scan.unread == f"{path} has {MAX_INDEX_BYTES + 1} bytes; allowed are at most {MAX_INDEX_BYTES}"


def test_checkpoints_that_are_too_large_are_told(broker: Broker) -> None:
    grow(Path(broker.path) / HW_CHECKPOINT, MAX_TEXT_BYTES + 1)
    epochs = broker.directory / "leader-epoch-checkpoint"
    epochs.touch()
    grow(epochs, MAX_TEXT_BYTES + 1)
    (found,) = directories.discover({"b1": [broker.path]})
    (told,) = [it.problem for it in found.checkpoints if it.problem]
    assert f"{HW_CHECKPOINT} has {MAX_TEXT_BYTES + 1} bytes" in told
    assert f"has {MAX_TEXT_BYTES + 1} bytes" in (found.replicas[0].epochs_problem or "")


def test_regressions_are_read_up_to_a_bound(tmp_path: Path) -> None:
    path = tmp_path / "regressions.toml"
    path.touch()
    grow(path, MAX_TEXT_BYTES + 1)
    with pytest.raises(ValueError, match=f"{path.name} has {MAX_TEXT_BYTES + 1} bytes"):
        regressions.load(path)
