"""Whatever happens to the files of a metadata log: what is left of it is shown and told, and nothing raises but NoMetadata."""

from __future__ import annotations

import lzma
import random
import tarfile
from pathlib import Path

import pytest

from kraftlite.obs.explain import History, Subject, UnknownSubject, explain
from kraftlite.postmortem import tree
from kraftlite.postmortem.commands import Opened, Shell
from kraftlite.postmortem.events import log_events
from kraftlite.postmortem.files import NoMetadata, find
from kraftlite.postmortem.reading import entries_of
from kraftlite.postmortem.replay import MetadataAt
from tests.postmortem.make import ARCHIVE


@pytest.fixture(scope="module")
def files() -> dict[str, bytes]:
    """The segment and a snapshot of one node of the incident."""
    with lzma.open(ARCHIVE) as raw, tarfile.open(fileobj=raw) as tar:
        found = {it.name: tar.extractfile(it) for it in tar.getmembers() if it.name.startswith("node-1/__cluster_metadata-0/")}
        wanted = {name.rpartition("/")[2]: file for name, file in found.items() if name.endswith((".log", ".checkpoint"))}
        return {name: file.read() for name, file in wanted.items() if file is not None}


def damaged(data: bytes, rng: random.Random) -> bytes:
    out = bytearray(data)
    match rng.randrange(4):
        case 0:
            return bytes(out[: rng.randrange(len(out))])
        case 1:
            at = rng.randrange(len(out))
            out[at : at + rng.randrange(1, 200)] = rng.randbytes(rng.randrange(200))
        case 2:
            for _ in range(rng.randrange(1, 6)):
                out[rng.randrange(len(out))] ^= 1 << rng.randrange(8)
        case _:
            at = rng.randrange(len(out))
            del out[at : at + rng.randrange(1, 500)]
    return bytes(out)


@pytest.mark.parametrize("seed", range(40))
def test_to_43_damage_is_a_sentence(files: dict[str, bytes], tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)
    for name, data in files.items():
        (tmp_path / name).write_bytes(damaged(data, rng) if rng.random() < 0.7 else data)
    metadata = MetadataAt(find([tmp_path])[0])
    try:
        lines: list[str] = []
        shell = Shell(Opened(metadata), lines.append)
        for words in (["find", "/"], ["history", "/topics"], ["diff", "60"], ["at", "70"]):
            shell.run(words)
        image, start = metadata.oldest()
        assert len(list(tree.lines(tree.root(image)))) > 10
        history = History(log_events(entries_of(metadata.batches(start)), image), log_only=True)
        assert explain(history, Subject.parse("cluster")).text()
    except (NoMetadata, UnknownSubject) as error:
        assert str(error)
    assert all("\n" not in note for note in metadata.notes.all())
