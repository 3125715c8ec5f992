"""The specification in docs/spec, the tests that bear its ids, and who cites them.

`python -m tests.tidy.spec --write` writes under each row which tests hold it; `python -m tests.tidy.spec RF-02` shows one row.
A test bears an id when its function is named by it (`test_rf_02_…`) or its own docstring names it; a golden scenario when its
head does. The docstring of a module says what the module is about, and does not make its tests bear anything.
"""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final

from tests.tidy import spec_tables

ROOT: Final = Path(__file__).resolve().parents[2]
FOLDER: Final = ROOT / "docs" / "spec"
ID: Final = re.compile(r"(?<![\w-])([A-Z]{2}-\d\d)(?![\w-])")
_IN_NAME: Final = re.compile(r"(?:^|_)([a-z]{2}_\d\d)(?=_|$)")
_ROW: Final = re.compile(
    r"- \*\*(?P<id>[A-Z]{2}-\d\d)\*\* \((?P<weight>[MSC])(?P<missing>, not built)?\) (?P<text>.+\.[)\"]?) \[(?P<source>[^][]+)\]"
)
HELD: Final = "  - held by "
_SHOWN: Final = 3
_FOLDERS: Final = ("tests/spec/", "tests/unit/", "tests/scenarios/", "tests/sim/", "tests/embedded/", "tests/")
"""Of several tests the ones that show a behaviour most directly come first."""


@dataclass(frozen=True, slots=True)
class Row:
    """One behaviour. `weight`: M, S or C. `missing`: it is not built. `where`: file and line of docs/spec."""

    id: str
    weight: str
    missing: bool
    text: str
    source: str
    where: str


def pages() -> list[Path]:
    return sorted(path for path in FOLDER.glob("*.md") if path.name != "README.md")


@cache
def rows() -> tuple[Row, ...]:
    """Every row, in order. Raises ValueError for a line that begins like a row and is none."""
    found = []
    for page in pages():
        for number, line in enumerate(page.read_text().splitlines(), 1):
            if not line.startswith("- **") or page.name == "invariants.md":
                continue
            where = f"{page.relative_to(ROOT)}:{number}"
            row = _ROW.fullmatch(line)
            if row is None:
                raise ValueError(f"{where}: a row is `- **ID** (M) Sentence. [source]`, not {line!r}")
            found.append(Row(row["id"], row["weight"], row["missing"] is not None, row["text"], row["source"], where))
    return tuple(found)


@cache
def tracked() -> tuple[str, ...]:
    """Files that a clone has, or will have with the next commit."""
    git = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(git, cwd=ROOT, capture_output=True, text=True, check=False)
    if listed.returncode != 0:  # an unpacked release
        folders = ("kraftlite", "tests", "docs", "proto")
        return tuple(sorted(p.relative_to(ROOT).as_posix() for folder in folders for p in (ROOT / folder).rglob("*.*")))
    return tuple(name for name in listed.stdout.splitlines() if (ROOT / name).is_file())


@cache
def texts() -> tuple[tuple[str, str], ...]:
    """Each tracked file that is text, with its name."""
    found = []
    for name in tracked():
        try:
            found.append((name, (ROOT / name).read_text()))
        except (UnicodeDecodeError, IsADirectoryError):
            continue
    return tuple(found)


def ids_in_name(name: str) -> list[str]:
    """The ids in a test's name, of families that the specification has: `test_rf_02_…` has RF-02."""
    found = (match[1].upper().replace("_", "-") for match in _IN_NAME.finditer(name))
    return [one for one in found if one[:2] in _families()]


@cache
def _families() -> frozenset[str]:
    return frozenset(row.id[:2] for row in rows())


@cache
def bearers() -> dict[str, tuple[str, ...]]:
    """For each id the tests that bear it, as `file::function`, or `file` for a golden scenario; the most direct ones first."""
    found: dict[str, list[tuple[int, int, str]]] = {}
    for name, text in texts():
        if not name.startswith("tests/"):
            continue
        rank = next(at for at, folder in enumerate(_FOLDERS) if name.startswith(folder))
        if name.endswith(".scn"):
            head = "\n".join(line for line in text.splitlines() if line.startswith("#"))
            for one in ID.findall(head):
                found.setdefault(one, []).append((rank, 1, name))
        else:
            for order, test in enumerate(_tests(name)):
                for one in {*ids_in_name(test.name), *ID.findall(test.docstring)}:
                    found.setdefault(one, []).append((rank, order, f"{name}::{test.name}"))
    return {one: tuple(dict.fromkeys(test for _, _, test in sorted(tests, key=_by_rank))) for one, tests in found.items()}


def _by_rank(test: tuple[int, int, str]) -> tuple[int, str, int]:
    rank, order, name = test
    return rank, name.partition("::")[0], order


@dataclass(frozen=True, slots=True)
class _Test:
    name: str
    line: int
    docstring: str


@cache
def _all_tests() -> dict[str, tuple[_Test, ...]]:
    found = {}
    for name, text in texts():
        if (
            name.startswith("tests/")
            and name.endswith(".py")
            and "def test_" in text
            and (ID.search(text) or _IN_NAME.search(text))
        ):
            functions = (node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))
            tests = (_Test(it.name, it.lineno, ast.get_docstring(it) or "") for it in functions if it.name.startswith("test_"))
            found[name] = tuple(sorted(tests, key=lambda test: test.line))
    return found


def _tests(name: str) -> tuple[_Test, ...]:
    return _all_tests().get(name, ())


def held(one: str) -> str:
    """The line below a row: a few of its tests, of different files where there are several."""
    tests = list(bearers().get(one, ()))
    firsts = list({test.partition("::")[0]: test for test in reversed(tests)}.values())
    shown = sorted({*firsts[::-1][:_SHOWN], *tests[: max(0, _SHOWN - len(firsts))]}, key=tests.index) if tests else []
    rest = [test for test in tests if test not in shown]
    shown += rest[: _SHOWN - len(shown)]
    more = len(tests) - len(shown)
    return HELD + ", ".join(f"`{test}`" for test in shown) + (f" and {more} more" if more else "")


def written(page: str) -> str:
    """The page with what is written from code and tests written anew."""
    checkers = _checkers()
    lines = []
    for line in page.splitlines():
        if line.startswith((HELD, spec_tables.CHECKED)):
            continue
        lines.append(spec_tables.with_defaults(line))
        row = _ROW.fullmatch(line)
        if row is not None and not row["missing"] and bearers().get(row["id"]):
            lines.append(held(row["id"]))
        number = spec_tables.invariant_of(line)
        if number in checkers:
            lines.append(spec_tables.CHECKED + ", ".join(f"`{name}`" for name in checkers[number]))
    return "\n".join(lines) + "\n"


@cache
def _checkers() -> dict[int, list[str]]:
    return spec_tables.checkers(texts())


def invariants() -> dict[int, list[str]]:
    """The numbers of docs/spec/invariants.md, each with its checkers."""
    lines = (FOLDER / "invariants.md").read_text().splitlines()
    numbers = [number for line in lines if (number := spec_tables.invariant_of(line)) is not None]
    return {number: _checkers().get(number, []) for number in numbers}


def citations() -> Iterator[tuple[str, str]]:
    """Every id that a file cites, with where it does: `(id, file:line)`."""
    for name, text in texts():
        if name == "docs/spec/README.md":
            continue  # names the families that are yet to come
        for number, line in enumerate(text.splitlines(), 1):
            for one in ID.findall(line):
                yield one, f"{name}:{number}"
        for test in _tests(name):
            for one in ids_in_name(test.name):
                yield one, f"{name}:{test.line}"


def main(arguments: list[str]) -> int:
    if arguments == ["--write"]:
        for page in pages():
            page.write_text(written(page.read_text()))
        return 0
    wanted = [row for row in rows() if row.id in arguments]
    for row in wanted:
        print(f"{row.id} ({row.weight}) {row.text} [{row.source}]\n  {row.where}")
        print("".join(f"  {test}\n" for test in bearers().get(row.id, ())), end="")
    return 0 if wanted else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
