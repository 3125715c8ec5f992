"""The rules of the house that a test can hold (docs/ARCHITECTURE.md, "Rules of the house")."""

from __future__ import annotations

import ast
import re
import subprocess
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "kraftlite"
MODULE_LINES = 500
FUNCTION_LINES = 70

# Packages whose code also runs under virtual time: everything that touches the machine comes through a port.
SIMULATED = (
    "model",
    "runtime",
    "protocol",
    "timeline",
    "log",
    "raft",
    "metadata",
    "controller",
    "replication",
    "coordinator",
    "broker",
)
# What waits, reads the machine's clock or talks to it. A module of the simulated packages that decides may import none of it.
WAITING_IMPORTS = {"asyncio", "time", "threading", "socket", "structlog", "logging", "grpc", "concurrent"}
# The modules of the simulated packages that may wait. All others decide: rule 1 of docs/ARCHITECTURE.md.
WAITS_BY_NAME = re.compile(r"(^|/)(driver|\w+_driver|service|server|ports)\.py$|^broker/handlers/")
WAITS = {
    "broker/controller_channel.py": "driver: asks the active controller, again and again",
    "broker/introspection.py": "driver: answers other nodes' questions",
    "broker/log_cleaner.py": "driver: the task that compacts logs",
    "broker/log_dirs.py": "driver: directories that open, fail and close",
    "broker/log_dirs_loading.py": "driver: logs that are opened beside each other",
    "broker/producer_ids.py": "driver: producers wait for a block of ids",
    "broker/publisher.py": "driver: applies a delta in steps",
    "controller/registration.py": "driver: registers the controller, again and again",
    "broker/transactions.py": "driver: asks coordinators, and has markers written",
    "coordinator/coordinator.py": "driver: routes requests to the shard of their group",
    "coordinator/transactions/coordinator.py": "driver: routes requests to the shard of their transactional id",
    "coordinator/core/loader.py": "driver: reads a partition of a coordinator's topic in turns",
    "log/flusher.py": "driver: flushes segments, off the loop",
    "log/log.py": "flush is awaited, off the loop; nothing else is",
    "log/segment.py": "sync is awaited, off the loop; nothing else is",
    "metadata/loader.py": "driver: replays the log in turns, awaits publishers",
    "metadata/snapshotter.py": "driver: writes a snapshot in turns",
    "protocol/primitives.py": "threading.local: what a request may still have is counted by the thread that reads it",
    "raft/client.py": "the interface of the driver to its listener",
    "raft/snapshots.py": "syncs a snapshot off the loop",
    "replication/alter_partition.py": "driver: sends what leaders propose",
    "replication/delete_records.py": "driver: a deletion waits for the followers",
    "replication/manager.py": "driver: what clients and followers ask of partitions",
    "replication/produce.py": "driver: long batches are checked on another thread",
    "replication/sessions.py": "a parked fetch of a follower is a Future here: to hand it to a driver costs each one a call",
    "replication/waiting.py": "driver: what clients wait for",
    "runtime/begun.py": "the beginning of a task, in the call that makes it",
    "runtime/turns.py": "the turns that long work takes",
}
# Calls that race against another event. Who starts one reads its result and cancels it; for a task of `Ports.tasks` a refusal
# by the peer would be a fault of this node.
OWN_CALLS = {"broker/controller_channel.py", "replication/fetcher_driver.py"}


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


def waits(path: Path) -> list[int]:
    """Lines of a module that import what waits, define a coroutine or await."""
    found = []
    for node in ast.walk(tree(path)):
        names: list[str] = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            names = [node.module]
        waiting = ast.AsyncFunctionDef | ast.Await | ast.AsyncFor | ast.AsyncWith
        if isinstance(node, waiting) or any(name.split(".")[0] in WAITING_IMPORTS for name in names):
            found.append(node.lineno)  # type: ignore[attr-defined]
    return found


def test_modules_decide_without_waiting_unless_they_are_drivers() -> None:
    found, listed = [], set()
    for path in sources(*SIMULATED):
        name = path.relative_to(PACKAGE).as_posix()
        lines = waits(path)
        if lines and name in WAITS:
            listed.add(name)
        elif lines and not WAITS_BY_NAME.search(name):
            found += [where(path, line) for line in lines]
    assert not found, "these decide, so they may not wait; a driver is called `*_driver` or listed in WAITS:\n" + "\n".join(found)
    assert listed == set(WAITS), f"these wait no more, take them off the list: {sorted(set(WAITS) - listed)}"


def test_tasks_are_started_through_their_owner() -> None:
    """`Ports.tasks` knows whom a task belongs to, so that it ends with its node and its failure is the node's fault."""
    found = [
        where(path, number)
        for path in sources(*SIMULATED)
        if path.relative_to(PACKAGE).as_posix() not in OWN_CALLS
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if re.search(r"\b(ensure_future|create_task|TaskGroup|run_in_executor|to_thread)\b", line.split("#")[0])
    ]
    assert not found, "use Ports.tasks:\n" + "\n".join(found)


def test_every_package_is_in_a_layer() -> None:
    contract = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"][0]
    layers = {name.strip() for layer in contract["layers"] for name in layer.split("|")}
    packages = {f"kraftlite.{path.parent.name}" for path in PACKAGE.glob("*/__init__.py")}
    assert layers == packages, f"in no layer: {sorted(packages - layers)}; no such package: {sorted(layers - packages)}"
    rows = re.findall(r"^\| \d+ \| ([^|]+) \|", (ROOT / "docs/ARCHITECTURE.md").read_text(), re.MULTILINE)
    described = re.findall(r"`(\w+)`", "".join(rows))
    assert {f"kraftlite.{name}" for name in described} == packages - {"kraftlite._pb"}, "docs/ARCHITECTURE.md, Layout"


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


def test_tests_of_later_stages_are_in_their_folders() -> None:
    """`scripts/test` looks for them nowhere else: to collect all tests in each process takes longer than many of them."""
    script = (ROOT / "scripts" / "test").read_text()
    (listed,) = re.findall(r"processes=\(tests/\{([\w,]+)\} (tests/\S+)\)", script)
    with_processes = (*(f"tests/{it}/" for it in listed[0].split(",")), listed[1])
    for marks, folders in (("spark", ("tests/spark/",)), ("(cluster|clients)", with_processes)):
        marker = re.compile(rf"\bmark\.{marks}\b")
        found = [
            path.relative_to(ROOT).as_posix() for path in (ROOT / "tests").rglob("test_*.py") if marker.search(path.read_text())
        ]
        elsewhere = [it for it in found if not it.startswith(folders)]
        assert found and not elsewhere, elsewhere
