"""The inner loop: the test files nearest to a change, for as long as there is time.

`python -m tests.harness.nearest` prints the files: test files that were changed, then those that import a changed module, those
that import least first, because they are about it, and then those of its package. The change is what differs from the last
commit; where nothing does, that commit.
`pytest --for-seconds=N` begins no test behind so many seconds, and says how many it left.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).resolve().parents[2]
_IMPORT: Final = re.compile(r"^\s*(?:from\s+([\w.]+)\s+import\s+(\([^)]*\)|[^\n]*)|import\s+([\w.]+))", re.MULTILINE)
_ELSEWHERE: Final = ("tests/cluster/", "tests/clients/", "tests/spark/", "tests/containers/", "tests/packaging/")
"""Their tests start processes, and belong to `scripts/test`."""


def imported(source: str) -> set[str]:
    """The modules that `source` imports; of `from a import b` both `a` and `a.b`, of which the second may be none."""
    found: set[str] = set()
    for module, names, alone in _IMPORT.findall(source):
        found.add(module or alone)
        found |= {f"{module}.{name}" for name in re.findall(r"\w+", names) if module}
    return found


def module_of(path: str) -> str:
    """The name by which the file is imported: `kraftlite/log/log.py` is `kraftlite.log.log`."""
    return path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")


def nearest(changed: Iterable[str], tests: Mapping[str, str]) -> list[str]:
    """The test files to run for a change, nearest first. `tests`: what each test file says, by its path."""
    changed = [it for it in changed if it.endswith(".py")]
    modules = {module_of(it) for it in changed}
    packages = {f"/{it.split('/')[1]}/" for it in changed if it.startswith("kraftlite/") and it.count("/") > 1}
    by_imports = {path: imported(source) for path, source in tests.items()}
    groups = (
        (path for path in tests if path in changed),
        (path for path, names in by_imports.items() if names & modules),
        (path for path in tests if any(it in path for it in packages)),
    )
    return list(dict.fromkeys(path for group in groups for path in sorted(group, key=lambda it: (len(by_imports[it]), it))))


def _git(*arguments: str) -> list[str]:
    if shutil.which("git") is None:
        return []
    done = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=False)
    return done.stdout.splitlines() if done.returncode == 0 else []


def changed_files() -> list[str]:
    """Paths from the root. Empty also where there is no repository, as in a source distribution, or no git."""
    now = _git("diff", "--name-only", "HEAD") + _git("ls-files", "--others", "--exclude-standard")
    return now or _git("show", "--name-only", "--format=", "-m", "--first-parent", "HEAD")


def main() -> int:
    files = (it.relative_to(ROOT).as_posix() for it in sorted((ROOT / "tests").rglob("test_*.py")))
    tests = {it: (ROOT / it).read_text() for it in files if not it.startswith(_ELSEWHERE)}
    print("\n".join(nearest(changed_files(), tests)))
    return 0


# --- the pytest plugin


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--for-seconds", type=float, default=0, metavar="N", help="begin no test behind so many seconds")


def pytest_configure(config: pytest.Config) -> None:
    if config.getoption("--for-seconds"):
        config.pluginmanager.register(ForSeconds(config.getoption("--for-seconds")), "kraftlite for seconds")


class ForSeconds:
    """Counts from the start of pytest, collection included."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._deadline = time.monotonic() + seconds
        self.left: dict[str, int] = {}

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> bool | None:
        if time.monotonic() < self._deadline:
            return None
        file = item.nodeid.partition("::")[0]
        self.left[file] = self.left.get(file, 0) + 1
        return True

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        if self.left:
            terminalreporter.write_line(
                f"{sum(self.left.values())} tests in {len(self.left)} files were not begun within {self._seconds:g} s; "
                "scripts/test has all"
            )


if __name__ == "__main__":
    sys.exit(main())
