"""The rules of the house that a test can hold (docs/ARCHITECTURE.md, "Rules of the house")."""

from __future__ import annotations

import ast
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "kraftlite"
MODULE_LINES = 500
FUNCTION_LINES = 70

# Packages whose code also runs under virtual time: everything that touches the machine comes through a port.
SIMULATED = ("model", "runtime", "timeline", "log", "raft", "metadata", "controller", "replication", "coordinator", "broker")
# Modules with decisions only. A driver may await; these may not.
CORE_FORBIDDEN_IMPORTS = {"asyncio", "time", "threading", "socket", "structlog", "logging", "grpc", "concurrent"}


def sources(*folders: str) -> Iterator[Path]:
    roots = [PACKAGE / folder for folder in folders] if folders else [PACKAGE]
    for root in roots:
        for path in sorted(root.rglob("*.py")):
            if "_pb" not in path.relative_to(PACKAGE).parts:
                yield path


def tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text(), str(path))


def where(path: Path, line: int) -> str:
    return f"{path.relative_to(ROOT)}:{line}"


def test_modules_are_small() -> None:
    long = [
        f"{path.relative_to(ROOT)}: {n} lines" for path in sources() if (n := len(path.read_text().splitlines())) > MODULE_LINES
    ]
    assert not long, "cut these modules by concern:\n" + "\n".join(long)


def test_functions_are_small() -> None:
    long = []
    for path in sources():
        for node in ast.walk(tree(path)):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.end_lineno is not None:
                length = node.end_lineno - node.lineno + 1
                if length > FUNCTION_LINES:
                    long.append(f"{where(path, node.lineno)} {node.name}: {length} lines")
    assert not long, "cut these functions:\n" + "\n".join(long)


def test_no_ambient_time_entropy_or_files_where_the_simulator_runs() -> None:
    found = []
    forbidden = re.compile(
        r"\btime\.(time|monotonic|perf_counter|sleep)\b|\basyncio\.(sleep|create_task|get_event_loop|wait_for|timeout)\b"
        r"|\brandom\.(random|randint|choice|uniform|shuffle|getrandbits)\(|\bos\.(urandom|open|rename|fsync|replace)\b|\buuid4\(|\bdatetime\.now\b"
    )
    for path in sources(*SIMULATED):
        for number, line in enumerate(path.read_text().splitlines(), 1):
            if forbidden.search(line.split("#")[0]):
                found.append(f"{where(path, number)}: {line.strip()}")
    assert not found, "go through a port:\n" + "\n".join(found)


def test_cores_do_not_wait() -> None:
    found = []
    for path in sources(*SIMULATED):
        if "core" not in path.stem:
            continue
        for node in ast.walk(tree(path)):
            names: list[str] = []
            if isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom) and node.module:
                names = [node.module]
            found += [where(path, node.lineno) for name in names if name.split(".")[0] in CORE_FORBIDDEN_IMPORTS]  # type: ignore[attr-defined]
            if isinstance(node, ast.AsyncFunctionDef | ast.Await):
                found.append(where(path, node.lineno))
    assert not found, "a core decides and never waits:\n" + "\n".join(found)


def test_nothing_catches_everything() -> None:
    """Only a task's top may catch all, and only to hand it to the fault handler (`fault(`), a caller's future, a rollback, or to
    let it cost one request and tell so (`failed`, an event `…Failed`; docs/adr/0005)."""
    found = []
    for path in sources():
        for node in ast.walk(tree(path)):
            if not isinstance(node, ast.ExceptHandler):
                continue
            named = [node.type] if not isinstance(node.type, ast.Tuple) else node.type.elts
            broad = node.type is None or any(isinstance(n, ast.Name) and n.id in {"Exception", "BaseException"} for n in named)
            body = ast.unparse(ast.Module(body=node.body, type_ignores=[]))
            if broad and not re.search(r"\braise\b|fault|set_exception|\bclassify|\bfailed\b|Failed\(|_Outcome\(", body):
                found.append(where(path, node.lineno))
    assert not found, "an error is swallowed:\n" + "\n".join(found)


def test_public_classes_state_their_contract() -> None:
    missing = []
    for path in sources():
        for node in tree(path).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_") and not ast.get_docstring(node):
                frozen = any("dataclass" in ast.unparse(d) for d in node.decorator_list)
                tiny = len(node.body) <= 12 and (
                    frozen
                    or any(
                        "Error" in ast.unparse(b) or "TraceEvent" in ast.unparse(b) or "Enum" in ast.unparse(b)
                        for b in node.bases
                    )
                )
                if not tiny:
                    missing.append(f"{where(path, node.lineno)} {node.name}")
    assert not missing, "no docstring:\n" + "\n".join(missing)


def test_every_package_has_a_docstring() -> None:
    missing = [str(p.relative_to(ROOT)) for p in sources() if p.name == "__init__.py" and not ast.get_docstring(tree(p))]
    assert not missing, missing


def tracked() -> list[str]:
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=False)
    if listed.returncode != 0:
        pytest.skip("not a git checkout")
    return listed.stdout.splitlines()


def test_nothing_generated_or_foreign_is_committed() -> None:
    bad = [
        f
        for f in tracked()
        if re.search(r"(^|/)(uv\.lock|poetry\.lock|package-lock\.json)$|\.(pyc|log|parquet|index|timeindex)$|/__pycache__/", f)
    ]
    assert not bad, bad


def test_no_debris() -> None:
    """No notes to ourselves: what is known to be missing is a strict xfail, a line in the README, or done."""
    marker = re.compile(r"\b(TODO|FIXME|XXX|HACK)\b")
    found = [
        where(path, number)
        for path in sources()
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if marker.search(line) and "noqa" not in line
    ]
    assert not found, found


def test_no_mock_patch() -> None:
    found = [
        str(path.relative_to(ROOT))
        for folder in ("unit", "sim", "spec", "scenarios")
        for path in sorted((ROOT / "tests" / folder).rglob("*.py"))
        if re.search(r"mock\.patch|monkeypatch\.setattr|unittest\.mock", path.read_text())
    ]
    assert not found, f"fakes are ports: {found}"


def test_tests_on_spark_are_in_their_folder() -> None:
    """`scripts/test` looks for them nowhere else: to collect all tests in each process takes longer than many of them."""
    marker = ".".join(("mark", "spark"))
    tests = ROOT / "tests"
    found = [str(it.relative_to(ROOT)) for it in sorted(tests.rglob("test_*.py")) if marker in it.read_text()]
    assert found and all(it.startswith("tests/spark/") for it in found), found
