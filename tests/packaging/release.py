"""What `scripts/release VERSION` does: refuse what is not ready, build, try, tag. Publishing stays a person's decision."""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from tests.packaging.build import ROOT, NotReproducible, build_all, digest
from tests.packaging.try_out import Refused, try_out

VERSION = re.compile(r"\d+\.\d+\.\d+((a|b|rc)\d+)?")
_DECLARED = re.compile(r'^__version__ = "([^"]+)"$', re.MULTILINE)
_HEADING = r"^## {} - (\d{{4}}-\d{{2}}-\d{{2}})$"


def not_ready(root: Path, version: str) -> Iterator[str]:
    """Sentences, each of which forbids to release `root` as `version`."""
    if not VERSION.fullmatch(version):
        yield f"{version!r} is not a version: allowed is MAJOR.MINOR.PATCH, with a1, b1 or rc1 behind it"
    if dirty := _git(root, "status", "--porcelain"):
        yield f"the working tree is not clean: {', '.join(line[3:] for line in dirty.splitlines()[:5])}"
    if _git(root, "tag", "--list", f"v{version}"):
        yield f"the tag v{version} is there already"
    declared = _DECLARED.findall((root / "kraftlite" / "__init__.py").read_text())
    if declared != [version]:
        yield f"kraftlite/__init__.py says {', '.join(declared) or 'no version'}, not {version}"
    if re.search(r'^version = "', (root / "pyproject.toml").read_text(), re.MULTILINE):
        yield "pyproject.toml says a version of its own; it stands in kraftlite/__init__.py alone"
    changes = (root / "CHANGELOG.md").read_text()
    if not re.search(_HEADING.format(re.escape(version)), changes, re.MULTILINE):
        yield f"CHANGELOG.md has no heading '## {version} - YYYY-MM-DD'"
    if re.search(r"^## Unreleased\n+(?!## )\S", changes, re.MULTILINE):
        yield "CHANGELOG.md still has changes under 'Unreleased': they belong to this version, or do not go out with it"
    if not (root / "tests" / "compat_dirs" / version / "directories.tar.gz").is_file():
        yield f"tests/compat_dirs/{version} is missing: run python -m tests.compat_dirs.make and commit it"


def _git(root: Path, *arguments: str) -> str:
    return subprocess.run(["git", *arguments], cwd=root, capture_output=True, text=True, check=True).stdout


def main() -> None:
    parser = argparse.ArgumentParser(prog="scripts/release", description="Build, try and tag a release. Publishes nothing.")
    parser.add_argument("version")
    parser.add_argument("--dry-run", action="store_true", help="everything but the tag")
    options = parser.parse_args()
    version: str = options.version
    problems = list(not_ready(ROOT, version))
    for problem in problems:
        print(f"not ready: {problem}", file=sys.stderr)
    if problems and not options.dry_run:
        sys.exit(1)
    with tempfile.TemporaryDirectory(prefix="kraftlite-release-") as folder:
        work = Path(folder)
        try:
            made = build_all(work / "build", ROOT / "dist")
            for artifact in (made.wheel, made.sdist):
                print(f"== {artifact.relative_to(ROOT)}  sha256 {digest(artifact)}", flush=True)
                (work / artifact.suffix).mkdir()
                try_out(artifact, work / artifact.suffix, types=artifact is made.wheel)
        except (NotReproducible, Refused, subprocess.CalledProcessError) as error:
            sys.exit(f"error: {error}")
    if options.dry_run:
        print("dry run: nothing was tagged")
        sys.exit(1 if problems else 0)
    _git(ROOT, "tag", "--annotate", f"v{version}", "--message", f"kraftlite {version}")
    print(f"""
tagged v{version}. Not done, because it cannot be taken back; when CI is green for this commit:

  git push origin v{version}
  python -m pip install twine && python -m twine upload dist/kraftlite-{version}.tar.gz

The package index takes wheels for Linux only from a manylinux image (auditwheel); without one, who installs from there builds the
sdist, and has the scanner in C where a compiler is.""")


if __name__ == "__main__":
    main()
