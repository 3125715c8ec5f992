"""The code that runs have reached: functions and branches of the packages that decide, by coverage.py.

coverage.py is not among the requirements of kraftlite: it comes with the extra `dev`. Runs take about three times as long with it
on Python 3.11; later versions of Python help it.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import tempfile
import tomllib
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, Final

PACKAGES: Final = ("raft", "controller", "metadata", "replication", "coordinator", "broker", "log", "timeline")
ROOT: Final = Path(__file__).parents[1]
REASONS: Final = Path(__file__).with_name("unreached.toml")

Arcs = dict[str, set[tuple[int, int]]]
"""File → (line, next line) of every step that was taken; negative where a function is entered or left."""


class CoverageMissing(Exception):
    """The library that measures is not installed."""


class Tracer:
    """Measures this process from `start` to `stop`. One at a time: it takes Python's trace function."""

    def __init__(self) -> None:
        self._coverage = _measuring()
        self._told: Arcs = {}

    def start(self) -> None:
        self._coverage.start()

    def stop(self) -> None:
        self._coverage.stop()

    def news(self) -> Arcs:
        """The steps that were taken for the first time since the last call."""
        data, found = self._coverage.get_data(), Arcs()
        for path in sorted(data.measured_files()):
            known = self._told.setdefault(path, set())
            new = set(data.arcs(path) or ()) - known
            if new:
                known |= new
                found[path] = new
        return found


def _measuring() -> Any:
    """A `coverage.Coverage` of the packages. Raises CoverageMissing."""
    try:
        library = importlib.import_module("coverage")
    except ModuleNotFoundError:
        raise CoverageMissing(
            "coverage.py is not installed: pip install 'coverage>=7.12', or the extra dev of kraftlite"
        ) from None
    return library.Coverage(
        data_file=None, branch=True, config_file=False, messages=False, source=[str(ROOT / package) for package in PACKAGES]
    )


def merge(into: Arcs, more: Mapping[str, Iterable[tuple[int, int]]]) -> int:
    """Add steps, and return how many of them are new."""
    before = sum(map(len, into.values()))
    for path, arcs in more.items():
        into.setdefault(path, set()).update(arcs)
    return sum(map(len, into.values())) - before


# --- what was reached


@dataclass(frozen=True, slots=True, kw_only=True)
class Function:
    """`name`: module:qualified name, without `kraftlite.`. `missing`: (line, next line) of the branches that were not taken."""

    package: str
    name: str
    path: str
    line: int
    reached: bool
    branches: int
    missing: tuple[tuple[int, int], ...]

    @property
    def where(self) -> str:
        return f"kraftlite/{self.path}:{self.line}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Reason:
    """Functions that may stay unreached, by name or as patterns with `*`, and why. `rare`: few seeds reach them."""

    functions: tuple[str, ...]
    why: str
    rare: bool = False

    def covers(self, name: str) -> bool:
        return any(fnmatchcase(name, pattern) for pattern in self.functions)


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """A package: how much of it there is, how much was reached, and how many of the functions that were not have a reason."""

    package: str
    functions: int
    reached: int
    with_reason: int
    branches: int
    branches_reached: int

    @property
    def open_functions(self) -> int:
        return self.functions - self.reached - self.with_reason


class CodeReach:
    """The functions of the packages with what of each was reached, and the reasons for what may stay unreached."""

    def __init__(self, functions: Sequence[Function], reasons: Sequence[Reason]) -> None:
        self.functions = functions
        self.reasons = reasons
        missing = [it for it in functions if not it.reached]
        self._why = {it.name: why for it in missing if (why := self._reason(it.name)) is not None}
        self.unexplained = [it for it in missing if it.name not in self._why]

    def _reason(self, name: str) -> str | None:
        return next((it.why for it in self.reasons if it.covers(name)), None)

    def why(self, function: Function) -> str | None:
        """The reason of a function that was not reached; None when there is none."""
        return self._why.get(function.name)

    @property
    def rows(self) -> list[Row]:
        by_package: dict[str, list[Function]] = defaultdict(list)
        for it in self.functions:
            by_package[it.package].append(it)
        return [
            Row(
                package=package,
                functions=len(found),
                reached=sum(it.reached for it in found),
                with_reason=sum(it.name in self._why for it in found),
                branches=sum(it.branches for it in found),
                branches_reached=sum(it.branches - len(it.missing) for it in found),
            )
            for package in PACKAGES
            if (found := by_package[package])
        ]

    @property
    def idle_reasons(self) -> list[str]:
        """Names and patterns of reasons that no unreached function needs: it is gone, or reached by now and not rare."""
        names = [it.name for it in self.functions]
        missing = [it.name for it in self.functions if not it.reached]
        return [
            pattern
            for reason in self.reasons
            for pattern in reason.functions
            if not any(fnmatchcase(name, pattern) for name in (names if reason.rare else missing))
        ]


def read_reasons(path: Path = REASONS) -> tuple[Reason, ...]:
    """Raises ValueError naming the entry that cannot be used; OSError."""
    found = []
    for number, entry in enumerate(tomllib.loads(path.read_text(encoding="utf-8")).get("unreached", []), 1):
        functions, why = entry.get("functions"), entry.get("why")
        rare = entry.get("rare", False)
        texts = isinstance(functions, list) and functions and all(isinstance(it, str) for it in functions)
        known = set(entry) <= {"functions", "why", "rare"} and isinstance(rare, bool)
        if not texts or not isinstance(why, str) or not why.strip() or not known:
            raise ValueError(
                f"{path}: entry {number} of [[unreached]] needs functions (names) and why (a line), and may have rare (true)"
            )
        found.append(Reason(functions=tuple(functions), why=why, rare=rare))
    return tuple(found)


def measure(arcs: Arcs) -> tuple[Function, ...]:
    """Every function of the packages, reached or not, in order. Raises CoverageMissing."""
    with tempfile.TemporaryDirectory() as scratch:
        report = Path(scratch) / "report.json"
        with contextlib.chdir(ROOT):  # the paths of the report begin there
            coverage = _measuring()
            data = coverage.get_data()
            data.add_arcs({path: sorted(found) for path, found in sorted(arcs.items())})
            # Modules of which nothing was run at all count, too.
            data.touch_files([str(path.resolve()) for package in PACKAGES for path in sorted((ROOT / package).rglob("*.py"))])
            coverage.json_report(outfile=str(report))
        files: dict[str, Any] = json.loads(report.read_text(encoding="utf-8"))["files"]
    found = []
    for name in sorted(files):
        path = (ROOT / name).resolve().relative_to(ROOT.resolve())
        module = ".".join(path.with_suffix("").parts).removesuffix(".__init__")
        for function, facts in files[name]["functions"].items():
            summary = facts["summary"]
            if not function or not summary["num_statements"]:
                continue  # the module itself; what has no body, as the methods of a protocol
            found.append(
                Function(
                    package=path.parts[0],
                    name=f"{module}:{function}",
                    path=path.as_posix(),
                    line=facts["start_line"],
                    reached=bool(summary["covered_lines"]),
                    branches=summary["num_branches"],
                    missing=tuple((begin, end) for begin, end in facts["missing_branches"]),
                )
            )
    return tuple(found)
