"""`python -O` removes assertions, and a failed assertion is what stops a faulty node: it is refused wherever one comes in."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

REASON = "kraftlite does not run under python -O"


def optimized(*arguments: str, cwd: Path | None = None, by_variable: bool = False) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "PYTHONDONTWRITEBYTECODE": "1"}
    flags = [] if by_variable else ["-O"]
    if by_variable:
        environment["PYTHONOPTIMIZE"] = "1"
    return subprocess.run(
        [sys.executable, *flags, *arguments], env=environment, cwd=cwd, capture_output=True, text=True, timeout=60, check=False
    )


@pytest.mark.parametrize(
    "arguments", [("--version",), ("up",), ("sim", "--seed", "1"), ("start", "--config", "nowhere")], ids=" ".join
)
def test_the_command_line_refuses_in_one_line(arguments: tuple[str, ...]) -> None:
    done = optimized("-m", "kraftlite", *arguments)
    assert done.returncode == 1
    assert done.stdout == ""
    assert done.stderr.startswith(f"error: {REASON}") and done.stderr.count("\n") == 1


def test_the_environment_variable_is_no_way_around() -> None:
    done = optimized("-m", "kraftlite", "--version", by_variable=True)
    assert done.returncode == 1 and done.stderr.startswith(f"error: {REASON}")


@pytest.mark.parametrize(
    "statement",
    [
        "from kraftlite.testing import Cluster",
        "from kraftlite.testing import other_than",
        "import kraftlite.testing; kraftlite.testing.SyncCluster",
        "import kraftlite.testing.cluster",
        "import kraftlite.node.build",
        "import kraftlite.raft.core",
        "import kraftlite.log.log",
        "import kraftlite.sim.run",
        "import kraftlite.local.demo",
        "import kraftlite.spark.session",
    ],
)
def test_imports_refuse_and_say_why(statement: str) -> None:
    done = optimized("-c", statement)
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1].startswith(f"ImportError: {REASON}")


def test_runs_of_pytest_that_do_not_use_the_plugin_go_on(tmp_path: Path) -> None:
    """The plugin is loaded in every environment that has kraftlite: who does not use it must not notice."""
    (tmp_path / "test_theirs.py").write_text("def test_theirs():\n    pass\n")
    done = optimized("-m", "pytest", "-q", "-p", "no:xdist", "-p", "no:cacheprovider", str(tmp_path), cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_fixture_of_the_plugin_refuses(tmp_path: Path) -> None:
    (tmp_path / "test_ours.py").write_text("def test_ours(kafka_bootstrap_servers):\n    pass\n")
    done = optimized("-m", "pytest", "-q", "-p", "no:xdist", "-p", "no:cacheprovider", str(tmp_path), cwd=tmp_path)
    assert done.returncode == 1
    assert REASON in done.stdout and "INTERNALERROR" not in done.stdout + done.stderr
