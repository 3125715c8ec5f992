"""What a release is made of, and what stops one; tests/packaging/test_artifacts.py builds it for real."""

from __future__ import annotations

import re
import subprocess
import tomllib
from pathlib import Path

import pytest

import kraftlite
from tests.packaging.build import ROOT
from tests.packaging.release import not_ready
from tests.packaging.try_out import Refused, version_of

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())


def git(folder: Path, *arguments: str) -> None:
    own = ("-c", "user.name=A Tester", "-c", "user.email=tester@example.org", "-c", "commit.gpgsign=false")
    subprocess.run(["git", *own, *arguments], cwd=folder, check=True, capture_output=True)


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A project that is ready to be released as 1.2.3."""
    files = {
        "kraftlite/__init__.py": '"""It."""\n\n__version__ = "1.2.3"\n',
        "pyproject.toml": '[project]\nname = "kraftlite"\ndynamic = ["version"]\n',
        "CHANGELOG.md": "# Changelog\n\n## Unreleased\n\n## 1.2.3 - 2026-11-22\n\n- It is.\n",
        "tests/compat_dirs/1.2.3/directories.tar.gz": "",
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    git(tmp_path, "init", "--quiet")
    git(tmp_path, "add", "--all")
    git(tmp_path, "commit", "--quiet", "--message", "It is there")
    return tmp_path


def test_a_project_that_is_ready(project: Path) -> None:
    assert list(not_ready(project, "1.2.3")) == []


def test_a_version_that_is_none(project: Path) -> None:
    assert any("is not a version" in it for it in not_ready(project, "1.2"))


def test_a_tag_that_is_there(project: Path) -> None:
    git(project, "tag", "v1.2.3")
    assert list(not_ready(project, "1.2.3")) == ["the tag v1.2.3 is there already"]


@pytest.mark.parametrize(
    ("name", "old", "new", "words"),
    [
        ("kraftlite/__init__.py", "1.2.3", "1.2.2", "kraftlite/__init__.py says 1.2.2, not 1.2.3"),
        ("pyproject.toml", 'dynamic = ["version"]', 'version = "1.2.3"', "a version of its own"),
        ("CHANGELOG.md", "## 1.2.3 - 2026-11-22", "## 1.2.3", "no heading '## 1.2.3 - YYYY-MM-DD'"),
        ("CHANGELOG.md", "## Unreleased\n", "## Unreleased\n\n- More.\n", "still has changes under 'Unreleased'"),
        ("CHANGELOG.md", "## Unreleased\n", "## Unreleased\n\n### Added\n- More.\n", "still has changes under 'Unreleased'"),
    ],
)
def test_what_is_not_ready_is_said(project: Path, name: str, old: str, new: str, words: str) -> None:
    path = project / name
    path.write_text(path.read_text().replace(old, new))
    git(project, "commit", "--quiet", "--all", "--message", "It changed")
    (problem,) = not_ready(project, "1.2.3")
    assert words in problem


def test_an_unclean_tree(project: Path) -> None:
    (project / "notes.txt").write_text("not committed")
    assert list(not_ready(project, "1.2.3")) == ["the working tree is not clean: notes.txt"]


def test_directories_of_the_version_are_wanted(project: Path) -> None:
    git(project, "rm", "--quiet", "tests/compat_dirs/1.2.3/directories.tar.gz")
    git(project, "commit", "--quiet", "--message", "They are gone")
    assert any("tests.compat_dirs.make" in it for it in not_ready(project, "1.2.3"))


def test_the_version_stands_in_one_place() -> None:
    assert PROJECT["project"]["dynamic"] == ["version"] and "version" not in PROJECT["project"]
    assert PROJECT["tool"]["hatch"]["version"]["path"] == "kraftlite/__init__.py"


def test_this_version_has_its_changes_and_directories() -> None:
    """Both are made with the change of the version, so that `scripts/release` finds them."""
    changes = (ROOT / "CHANGELOG.md").read_text()
    assert re.search(rf"^## {re.escape(kraftlite.__version__)} - \d{{4}}-\d\d-\d\d$", changes, re.MULTILINE)
    assert (ROOT / "tests" / "compat_dirs" / kraftlite.__version__ / "directories.tar.gz").is_file()


def test_the_licence_is_whole() -> None:
    text = (ROOT / "LICENSE").read_text()
    assert PROJECT["project"]["license"] == "Apache-2.0" and PROJECT["project"]["license-files"] == ["LICENSE"]
    assert "Version 2.0, January 2004" in text and "9. Accepting Warranty or Additional Liability." in text
    assert "END OF TERMS AND CONDITIONS" in text and len(text.splitlines()) == 202


def test_what_is_built_from_is_in_the_sdist() -> None:
    included = PROJECT["tool"]["hatch"]["build"]["targets"]["sdist"]["include"]
    assert all(it.startswith("/") and (ROOT / it[1:]).exists() for it in included), "unanchored names match in tests, too"
    assert {"/kraftlite", "/pyspark_kraftlite", "/hatch_build.py", "/README.md"} <= set(included)
    assert not [it for it in included if it.startswith("/tests")]
    for name in ("kraftlite/log/_scan.c", "kraftlite/log/_scan_core.h", "kraftlite/py.typed", "pyspark_kraftlite/py.typed"):
        assert (ROOT / name).is_file(), name


@pytest.mark.parametrize(
    ("name", "version"),
    [("kraftlite-0.1.0.tar.gz", "0.1.0"), ("kraftlite-1.2.3rc1-cp311-abi3-linux_x86_64.whl", "1.2.3rc1")],
)
def test_the_version_of_an_artifact(name: str, version: str) -> None:
    assert version_of(Path("dist") / name) == version


def test_another_file_is_refused() -> None:
    with pytest.raises(Refused, match="neither an sdist nor a wheel"):
        version_of(Path("dist/other-1.0.tar.gz"))
