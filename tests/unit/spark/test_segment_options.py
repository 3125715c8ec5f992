"""What `scan=segments` takes and means, and what it refuses with the reason."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("pyspark")

from kraftlite.local.state import LocalCluster, LocalNode, save
from kraftlite.spark.segments.options import Files
from kraftlite.spark.source.datasource import KraftliteDataSource
from kraftlite.spark.source.options import SourceOptions, parse


@pytest.fixture
def place(tmp_path: Path) -> Path:
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
    return tmp_path


def given(path: Path | str, *, streaming: bool = False, **options: str) -> SourceOptions:
    named = {name.replace("__", "."): value for name, value in options.items()}
    return parse({"scan": "Segments", "path": str(path), **named}, streaming=streaming)


def test_what_it_means(place: Path) -> None:
    one, two = str(place / "one"), str(place / "two")
    assert given(one).files == Files(dirs=(("one", (one,)),))
    assert given(f"b2={two}, b1={one}", view="batches").files == Files(dirs=(("b1", (one,)), ("b2", (two,))), batches=True)
    assert given(f"b1={two},b1={one}", endAt="LogEnd").files == Files(dirs=(("b1", (two, one)),), log_end=True)
    found = given(one, failOnDataLoss="false", minPartitions="3", kafka__isolation__level="read_uncommitted")
    assert (found.pattern, found.fail_on_data_loss, found.min_partitions) == (".*", False, 3)
    assert given(one, subscribe="a,b").topics == ("a", "b")
    assert parse({"kafka.bootstrap.servers": "here:1", "subscribe": "t", "scan": "broker"}, streaming=True).files is None


def test_the_directory_of_a_local_cluster(place: Path) -> None:
    node = LocalNode(id=4, roles=("broker",), kafka=None, replication=None, controller=None, directory=str(place / "node-4"))
    (place / "node-4" / "data").mkdir(parents=True)
    save(LocalCluster(data_dir=str(place), cluster_id="c", controllers=1, brokers=1, combined=False, nodes=(node,)))
    assert given(place).files == Files(dirs=(("b4", (str(place / "node-4" / "data"),)),))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"kafka__bootstrap__servers": "here:1"},
            "'kafka.bootstrap.servers' is not valid with scan=segments: no broker is",
        ),
        ({"kafka__isolation__level": "read_committed"}, "transactions were aborted is not read from files"),
        ({"kafkaConsumer__pollTimeoutMs": "5"}, "'kafkaConsumer.pollTimeoutMs' is not valid with scan=segments"),
        ({"fetchOffset__numRetries": "5"}, "'fetchOffset.numRetries' is not valid with scan=segments"),
        ({"maxOffsetsPerTrigger": "5"}, "'maxOffsetsPerTrigger' is for streaming queries"),
        ({"groupIdPrefix": "mine"}, "'groupIdPrefix' is for streaming queries"),
        ({"view": "rows"}, "view is 'rows'; allowed are records and batches"),
        ({"endAt": "now"}, "endAt is 'now'; allowed are highWatermark and logEnd"),
        ({"scan": "files"}, "scan is 'files'; allowed are broker and segments"),
        ({"view": "batches", "endAt": "logEnd"}, "'endAt' is not valid with view=batches: every batch of every replica is a row"),
        ({"view": "batches", "startingOffsets": "earliest"}, "'startingOffsets' is not valid with view=batches"),
        ({"view": "batches", "includeHeaders": "true"}, "'includeHeaders' is not valid with view=batches"),
        ({"path": " "}, "'path' must be specified with scan=segments"),
        ({"path": "/nowhere/at/all"}, "path is '/nowhere/at/all': there is no such directory"),
        ({"path": "b1=/nowhere/at/all"}, "/nowhere/at/all: there is no such directory"),
        ({"subscribe": "a", "assign": '{"a":[0]}'}, "Only one of the following options"),
        ({"viev": "batches"}, "did you mean 'view'"),
    ],
)
def test_what_is_refused(place: Path, options: dict[str, str], message: str) -> None:
    with pytest.raises(ValueError) as error:
        given(**{"path": str(place / "one"), **options})
    assert message in str(error.value)


@pytest.mark.parametrize("name", ["path", "view", "endAt"])
def test_what_says_something_about_files_when_brokers_are_asked(name: str) -> None:
    with pytest.raises(ValueError, match=f"option '{name}' is for scan=segments, and scan is broker"):
        parse({"kafka.bootstrap.servers": "here:1", "subscribe": "t", name: "x"}, streaming=False)


def test_streams_are_refused(place: Path) -> None:
    with pytest.raises(ValueError, match="option 'scan' is segments, which is for batch queries"):
        given(place / "one", streaming=True)
    source = KraftliteDataSource({"scan": "segments", "path": str(place / "one")})
    with pytest.raises(ValueError, match="a stream is read from brokers"):
        source.streamReader(source.schema())
