"""Builds the sdist and the wheel as a release does: from tracked files alone, twice, in different places, to the same bytes."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import tarfile
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
TOOLS = ("build", "hatchling>=1.27", "setuptools>=70")
"""What `[build-system]` of pyproject.toml asks for, and the frontend."""


@dataclass(frozen=True)
class Artifacts:
    sdist: Path
    wheel: Path


class NotReproducible(Exception):
    """The same sources gave different bytes."""


def build_all(work: Path, out: Path) -> Artifacts:
    """Both in `out`; `work` is scratch. The wheel is built from the sdist, as pip does it.

    Raises NotReproducible, and CalledProcessError when a build fails.
    """
    python = _environment(work / "tools")
    first = _build(python, work / "first" / "source", work / "first" / "out")
    second = _build(python, work / "a second place" / "of another length", work / "second out")
    for one, other in ((first.sdist, second.sdist), (first.wheel, second.wheel)):
        if one.name != other.name or digest(one) != digest(other):
            raise NotReproducible(f"{one.name}: {digest(one)}; built again as {other.name}: {digest(other)}")
    out.mkdir(parents=True, exist_ok=True)
    return Artifacts(Path(shutil.copy(first.sdist, out)), Path(shutil.copy(first.wheel, out)))


def digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _environment(folder: Path) -> str:
    subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
    python = str(folder / "bin" / "python")
    pip = [python, "-m", "pip", "--disable-pip-version-check", "install", "--quiet"]
    subprocess.run([*pip, *TOOLS], check=True)
    return python


def _build(python: str, source: Path, out: Path) -> Artifacts:
    _export(source)
    _run(python, source, out, "--sdist")
    (sdist,) = out.glob("*.tar.gz")
    unpacked = source.with_name("unpacked")
    with tarfile.open(sdist) as tar:
        tar.extractall(unpacked, filter="data")
    _run(python, unpacked / sdist.name.removesuffix(".tar.gz"), out, "--wheel")
    (wheel,) = out.glob("*.whl")
    return Artifacts(sdist, wheel)


def _export(target: Path) -> None:
    """The tracked files as they are in the working tree."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True).stdout.decode()
    for name in filter(None, listed.split("\0")):
        if (ROOT / name).is_file():
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, target / name)


def _run(python: str, source: Path, out: Path, kind: str) -> None:
    environment = {key: value for key, value in os.environ.items() if key not in ("PYTHONPATH", "SOURCE_DATE_EPOCH")}
    subprocess.run(
        [python, "-m", "build", "--no-isolation", kind, "--outdir", str(out), str(source)],
        env=environment,
        stdout=subprocess.DEVNULL,
        check=True,
    )
