"""Writes the directories of this version for the versions that come: `python -m tests.compat_dirs.make`, before a release.

It makes `<version>/` beside this file: `directories.tar.gz` with the directories of a controller and a broker, `content.json`
with what a client reads from them, and `answers.json` with what the commands print as JSON. They are committed and never
changed again.
"""

from __future__ import annotations

import gzip
import io
import json
import sys
import tarfile
import tempfile
from pathlib import Path
from typing import Any

from confluent_kafka.admin import AdminClient, NewTopic

import kraftlite
from tests.compat_dirs import content
from tests.compat_dirs.cluster import COMMANDS, OF_FILES, Nodes

HERE = Path(__file__).resolve().parent
MAX_BYTES = 100_000
PARTS = 3
LEFT_OUT = {".lock"}


def fill(nodes: Nodes) -> None:
    """Two restarts of the broker, one of them after a kill, so that there is more than one leader epoch and recovery."""
    nodes.format()
    nodes.start(1)
    nodes.start(2)
    admin = AdminClient({"bootstrap.servers": nodes.bootstrap, **content.QUIET})
    topics = [NewTopic(name, partitions, 1, config=config) for name, (partitions, config) in content.TOPICS.items()]
    for future in admin.create_topics(topics).values():
        future.result(content.LIMIT_S)
    key, value = content.BROKER_DEFAULT
    nodes.run("config", "alter", "--broker-defaults", "--set", f"{key}={value}")
    nodes.run("quota", "alter", "--user", "alice", "--set", "producer_byte_rate=1000000")
    content.write(nodes.bootstrap, 0)
    nodes.kill(2)
    nodes.start(2)
    content.write(nodes.bootstrap, 1)
    content.commit(nodes.bootstrap)
    nodes.run("records", "delete", "trimmed", "--before", str(content.TRIMMED_BEFORE))
    nodes.stop(2)
    nodes.start(2)
    content.write(nodes.bootstrap, 2)


def archive(data: Path) -> bytes:
    """The same bytes for the same files: names in order, no owner, no times."""
    raw = io.BytesIO()
    with tarfile.open(fileobj=raw, mode="w", format=tarfile.PAX_FORMAT) as tar:
        tar.dereference = True  # partitions share files by hard links; here each has its own
        for path in sorted(data.rglob("*")):
            if path.name in LEFT_OUT:
                continue
            info = tar.gettarinfo(str(path), arcname=str(path.relative_to(data.parent)))
            info.uid = info.gid = 0
            info.uname = info.gname = ""
            info.mtime, info.mode = 0, 0o755 if path.is_dir() else 0o644
            bytes_ = path.read_bytes().replace(f"{data.parent}/".encode(), b"") if path.suffix == ".jsonl" else None
            if bytes_ is None and path.is_file():
                bytes_ = path.read_bytes()
            info.size = 0 if bytes_ is None else len(bytes_)
            tar.addfile(info, None if bytes_ is None else io.BytesIO(bytes_))
    return gzip.compress(raw.getvalue(), mtime=0)


def main() -> None:
    target = HERE / kraftlite.__version__
    if target.exists():
        sys.exit(f"error: {target} is there already; the directories of a version are made once")
    with tempfile.TemporaryDirectory(prefix="kraftlite-compat-") as temporary:
        folder = Path(temporary)
        nodes = Nodes(folder)
        try:
            fill(nodes)
            content.check_written(nodes.bootstrap, PARTS)
            told = {**content.read(nodes.bootstrap), "configs": content.configs(nodes.bootstrap)}
            answers = nodes.answers(COMMANDS)
            nodes.stop(2)
            nodes.stop(1)
            answers |= nodes.answers(OF_FILES)
        finally:
            nodes.close()
        assert list((folder / "data" / "1").rglob("*.checkpoint")), "the controller has written no snapshot"
        packed = archive(folder / "data")
        answers = _without_places(answers, temporary)
    assert len(packed) < MAX_BYTES, f"{len(packed)} bytes"
    target.mkdir()
    (target / "directories.tar.gz").write_bytes(packed)
    for name, what in {"content.json": told, "answers.json": answers}.items():
        (target / name).write_text(json.dumps(what, indent=1, sort_keys=True) + "\n")
    print(f"{target.relative_to(HERE.parents[1])}: {len(packed)} bytes packed")


def _without_places(answers: Any, folder: str) -> Any:
    """No path of this machine in what is committed."""
    return json.loads(json.dumps(answers).replace(f"{folder}/", ""))


if __name__ == "__main__":
    main()
