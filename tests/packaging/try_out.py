"""Tries an sdist or a wheel as somebody who installs it: `python -m tests.packaging.try_out dist/kraftlite-*.whl`.

An empty environment, the artifact and what it depends on; then the command line, a cluster, clients, the pytest plugin and, with
`--types`, mypy --strict over a stranger's project. Nothing of the repository is on its path. Needs the package index.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.typing import strangers

PROBE = Path(__file__).with_name("probe.py")
PLUGIN_OPTIONS = ("-q", "-p", "no:cacheprovider")
FIXTURES = ("kafka_bootstrap_servers", "kafka_topic", "kafka_admin", "kafka_cluster", "kafka_chaos", "kafka_cluster_factory")


class Refused(Exception):
    """What does not work once it is installed."""


def try_out(artifact: Path, folder: Path, *, types: bool = False) -> None:
    """`folder`: an empty one. Raises Refused with the output of what failed."""
    version = version_of(artifact)
    _run([sys.executable, "-m", "venv", str(folder / "venv")], folder)
    python = str(folder / "venv" / "bin" / "python")
    pip = [python, "-m", "pip", "--disable-pip-version-check", "install", "--quiet"]
    _run([*pip, str(artifact)], folder)
    print(_run([python, "-I", str(PROBE), str(folder / "data"), version], folder).strip())

    _run([*pip, "pytest"], folder)
    project = folder / "project"
    project.mkdir()
    strangers.write_project(project)
    shown = _run([python, "-I", "-m", "pytest", *PLUGIN_OPTIONS, "--fixtures"], folder)
    missing = [it for it in FIXTURES if f"\n{it} " not in shown]
    if missing:
        raise Refused(f"the plugin is not found: no fixture {', '.join(missing)}")
    examples = sorted(it.name for it in project.glob("test_*.py"))
    print(_run([python, "-I", "-m", "pytest", *PLUGIN_OPTIONS, *examples], project).strip().splitlines()[-1])

    if types:
        _run([*pip, "mypy"], folder)
        output = strangers.check(python, project)
        if found := strangers.problems(output):
            raise Refused("mypy --strict in a stranger's project:\n" + "\n".join(found))
        print(f"mypy --strict: {output.splitlines()[-1]}, all of them expected")


def version_of(artifact: Path) -> str:
    """Of `kraftlite-1.2.3.tar.gz` or `kraftlite-1.2.3-….whl`. Raises Refused."""
    name, _, rest = artifact.name.partition("-")
    if name != "kraftlite" or not artifact.name.endswith((".tar.gz", ".whl")):
        raise Refused(f"{artifact.name} is neither an sdist nor a wheel of kraftlite")
    return rest.removesuffix(".tar.gz").split("-", 1)[0]


def _run(command: list[str], cwd: Path) -> str:
    environment = {key: value for key, value in os.environ.items() if not key.startswith(("PYTHON", "KRAFTLITE_", "KAFKA_"))}
    done = subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True, timeout=900, check=False)
    if done.returncode != 0:
        raise Refused(f"{' '.join(command)}: exit status {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.packaging.try_out")
    parser.add_argument("artifacts", nargs="+", type=Path)
    parser.add_argument("--types", action="store_true", help="run mypy --strict over a stranger's project, too")
    options = parser.parse_args()
    for artifact in options.artifacts:
        print(f"== {artifact.name}", flush=True)
        with tempfile.TemporaryDirectory(prefix="kraftlite-try-") as folder:
            try:
                try_out(artifact.absolute(), Path(folder), types=options.types)
            except Refused as error:
                sys.exit(f"error: {artifact.name}: {error}")


if __name__ == "__main__":
    main()
