"""The sdist and the wheel, built and tried in empty environments: `make packaging`. Needs the package index and a C compiler."""

from __future__ import annotations

import tarfile
import zipfile
from pathlib import Path

import pytest

from tests.packaging.build import Artifacts, build_all
from tests.packaging.try_out import try_out

pytestmark = pytest.mark.slow
SDIST_LIMIT = 3_000_000


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Artifacts:
    """Built twice, or NotReproducible."""
    return build_all(tmp_path_factory.mktemp("build"), tmp_path_factory.mktemp("dist"))


def test_the_sdist_has_what_is_built_from_and_no_tests(made: Artifacts) -> None:
    with tarfile.open(made.sdist) as tar:
        names = {it.name.partition("/")[2] for it in tar.getmembers()}
    assert {"kraftlite/log/_scan.c", "kraftlite/log/_scan_core.h", "kraftlite/columns/_hashes.c", "hatch_build.py"} <= names
    assert {"LICENSE", "kraftlite/py.typed"} <= names
    assert not [it for it in names if it.startswith(("tests", "docs", "var")) or it.endswith((".so", ".pyc"))]
    assert made.sdist.stat().st_size < SDIST_LIMIT


def test_the_wheel_has_what_is_compiled_for_every_later_python(made: Artifacts) -> None:
    assert "-cp311-abi3-" in made.wheel.name
    with zipfile.ZipFile(made.wheel) as wheel:
        names = wheel.namelist()
        compiled = {it for it in names if it.endswith(".so")}
        assert compiled == {"kraftlite/log/_scan.abi3.so", "kraftlite/columns/_hashes.abi3.so"}
        assert not [it for it in compiled if b"/tmp/" in wheel.read(it)]
    assert "kraftlite/py.typed" in names and "pyspark_kraftlite/__init__.py" in names
    assert [it for it in names if it.endswith("/licenses/LICENSE")]


def test_the_wheel_works_where_nothing_else_is(made: Artifacts, tmp_path: Path) -> None:
    try_out(made.wheel, tmp_path, types=True)


def test_the_sdist_works_where_nothing_else_is(made: Artifacts, tmp_path: Path) -> None:
    try_out(made.sdist, tmp_path)
