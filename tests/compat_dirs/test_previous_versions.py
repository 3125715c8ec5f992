"""This version starts from the directories of each earlier one, reads its traces and tells no less (docs/PUBLIC.md)."""

from __future__ import annotations

import json
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kraftlite.obs.timeline import read_timeline
from tests.compat_dirs import content
from tests.compat_dirs.cluster import COMMANDS, OF_FILES, Nodes, running

HERE = Path(__file__).resolve().parent
VERSIONS = sorted(path.parent.name for path in HERE.glob("*/directories.tar.gz"))
STARTS = ("stopped", "power cut")


def unpack(version: str, folder: Path) -> None:
    with tarfile.open(HERE / version / "directories.tar.gz") as tar:
        tar.extractall(folder, filter="data")


def loaded(version: str, name: str) -> Any:
    return json.loads((HERE / version / name).read_text())


def lacks(old: Any, new: Any, where: str = "$", *, values: bool = False) -> list[str]:
    """What of an earlier answer a program that reads it would miss: keys may be added, and elements of lists in any number.

    `values`: they must be the same, too. Without it, types must; null is of any type.
    """
    if isinstance(old, dict) and isinstance(new, dict):
        gone = [f"{where}.{key} is gone" for key in old if key not in new]
        return gone + [it for key in old if key in new for it in lacks(old[key], new[key], f"{where}.{key}", values=values)]
    if isinstance(old, list) and isinstance(new, list):
        return [it for number, one in enumerate(old) if new for it in _best(one, new, f"{where}[{number}]", values)]
    if values:
        return [] if old == new else [f"{where} was {old!r} and is {new!r}"]
    same = old is None or new is None or type(old) is type(new)
    return [] if same else [f"{where} was a {type(old).__name__} and is a {type(new).__name__}"]


def _best(one: Any, new: list[Any], where: str, values: bool) -> list[str]:
    return min((lacks(one, it, where, values=values) for it in new), key=len)


def test_there_are_versions() -> None:
    assert "0.1.0" in VERSIONS


@pytest.mark.parametrize(
    ("old", "new", "missing"),
    [
        ({"a": 1}, {"a": 2, "b": 3}, 0),
        ({"a": 1, "b": 1}, {"a": 2}, 1),
        ({"a": 1}, {"a": "1"}, 1),
        ({"a": None}, {"a": "1"}, 0),
        ([{"a": 1}, {"b": {"c": 1}}], [{"b": {"c": 2}}, {"a": 2}], 0),
        ([{"a": 1}, {"b": {"c": 1}}], [{"b": {}}, {"a": 2}], 1),
        ({"a": []}, {"a": {}}, 1),
    ],
)
def test_what_an_answer_lacks(old: Any, new: Any, missing: int) -> None:
    assert len(lacks(old, new)) == missing


@pytest.fixture(params=VERSIONS)
def version(request: pytest.FixtureRequest) -> str:
    found: str = request.param
    return found


@pytest.fixture(params=STARTS)
def nodes(request: pytest.FixtureRequest, version: str, tmp_path: Path) -> Iterator[Nodes]:
    unpack(version, tmp_path)
    if request.param == "power cut":  # recovery reads every segment and makes its indexes anew
        for path in [*tmp_path.glob("data/*/.kafka_cleanshutdown"), *tmp_path.rglob("*index")]:
            path.unlink()
    with running(tmp_path) as found:
        yield found


@pytest.mark.cluster
def test_its_directories_start(nodes: Nodes, version: str) -> None:
    """Every record, offset, epoch, configuration, quota and committed offset is there, and the logs go on where they ended."""
    wanted = loaded(version, "content.json")
    found = content.read(nodes.bootstrap)
    assert found["partitions"] == wanted["partitions"]
    assert found["committed"] == wanted["committed"]
    assert content.configs(nodes.bootstrap) == wanted["configs"]
    entity, value = nodes.run("quota", "describe").strip().split("=")
    assert entity == "user alice: producer_byte_rate" and float(value) == 1_000_000
    old = loaded(version, "answers.json")
    answers = nodes.answers(COMMANDS)
    assert not {name: it for name in answers if (it := lacks(old[name], answers[name]))}

    content.write(nodes.bootstrap, 9)
    content.commit(nodes.bootstrap)
    more = content.read(nodes.bootstrap)
    for partition, was in wanted["partitions"].items():
        assert more["partitions"][partition]["high"] == was["high"] + len(content.COMPRESSIONS)
        assert more["partitions"][partition]["records"][: len(was["records"])] == was["records"]
    nodes.stop(2)
    nodes.stop(1)
    assert "damag" not in nodes.said(2)


def kraftlite(folder: Path, *arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "kraftlite", *arguments], cwd=folder, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_its_files_are_decoded_as_they_were(version: str, tmp_path: Path) -> None:
    unpack(version, tmp_path)
    printed = [json.loads(it) for it in kraftlite(tmp_path, *OF_FILES["log dump"], "--json").splitlines()]
    assert not lacks(loaded(version, "answers.json")["log dump"], printed, values=True)
    assert '"snapshot' in kraftlite(tmp_path, "log", "dump", "data/1/__cluster_metadata-0", "--json").lower()


def test_its_traces_are_read(version: str, tmp_path: Path) -> None:
    unpack(version, tmp_path)
    for node_id in (1, 2):
        path = tmp_path / f"data/{node_id}/kraftlite-trace.jsonl"
        events = list(read_timeline(path))
        assert len(events) == len(path.read_text().splitlines()) > 20
        assert {it["node"] for it in events} == {node_id}
    old = loaded(version, "answers.json")["explain"]
    told = json.loads(kraftlite(tmp_path, *OF_FILES["explain"], "--json"))
    assert not lacks(old, told)
    assert [it["kind"] for it in told["stories"]][: len(old["stories"])] == [it["kind"] for it in old["stories"]]
    both = ("--trace", "data/1/kraftlite-trace.jsonl", "--trace", "data/2/kraftlite-trace.jsonl", "--json")
    node = json.loads(kraftlite(tmp_path, "explain", "node", "2", *both))
    assert {"started", "died", "stopped"} <= {it["kind"] for it in node["stories"]}


def test_nothing_of_the_machine_is_in_it(version: str, tmp_path: Path) -> None:
    unpack(version, tmp_path)
    files = [path for path in [*tmp_path.rglob("*"), *(HERE / version).glob("*.json")] if path.is_file()]
    assert not [str(path) for path in files if b"/tmp/" in path.read_bytes() or b"/home/" in path.read_bytes()]
    assert sum(path.stat().st_size for path in (HERE / version).iterdir()) < 100_000
