"""How a release of a client is made to run: the program of its folder, with its packages in a folder of their own.

They are kept outside of the tree, in `$KRAFTLITE_CLIENTS_CACHE` or `~/.cache/kraftlite/clients`, one folder for each release;
those in Java with the other jars (`tests/clients/java/tools.py`). What is not there is fetched by the ordinary package manager.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final

from tests.clients.java import tools
from tests.clients.programs import Client, Missing
from tests.clients.years.versions import Past

HERE: Final = Path(__file__).parent
INSTALL_TIMEOUT_S: Final = 300


def client_of(past: Past) -> Client:
    """The client that the tests drive."""
    prepare = CLIENTS[past.client]
    return Client(
        name=past.client,
        version=lambda: past.version,
        prepare=lambda: prepare(past),
        lacks=past.lacks,
        past=True,
    )


def folder_of(past: Past, *inputs: bytes) -> Path:
    """Where this release is kept. Another one when what it is made of (`inputs`) changes."""
    root = Path(os.environ.get("KRAFTLITE_CLIENTS_CACHE") or Path.home() / ".cache" / "kraftlite" / "clients")
    digest = hashlib.sha256(b"\0".join([*(it.encode() for it in past.packages), *inputs])).hexdigest()[:8]
    return root / f"{past.client.replace(' ', '-')}-{past.version}-{digest}"


def built(folder: Path, build: Callable[[Path], None]) -> None:
    """Build it unless it is there: aside, and renamed when it is complete."""
    if folder.is_dir():
        return
    folder.parent.mkdir(parents=True, exist_ok=True)
    scratch = Path(tempfile.mkdtemp(dir=folder.parent, prefix="installing-"))
    try:
        build(scratch)
        if not folder.is_dir():  # another process may have been faster
            scratch.rename(folder)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def run(*command: str, cwd: Path | None = None, env: Mapping[str, str] | None = None) -> None:
    """Raises Missing with the last line of what it said when it fails: a registry that is not reached, most of the time."""
    try:
        done = subprocess.run(
            command,
            cwd=cwd,
            env={**os.environ, **(env or {})},
            capture_output=True,
            text=True,
            timeout=INSTALL_TIMEOUT_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise Missing(f"{command[0]} did not end within {INSTALL_TIMEOUT_S} s") from None
    if done.returncode != 0:
        said = (done.stderr or done.stdout).strip().splitlines()
        raise Missing(f"{Path(command[0]).name} {command[1]} failed: {said[-1] if said else done.returncode}")


def runs(interpreter: str) -> bool:
    """It is there, and not only by its name: that may be of a manager of versions."""
    if shutil.which(interpreter) is None:
        return False
    return subprocess.run([interpreter, "-c", ""], capture_output=True, timeout=60, check=False).returncode == 0


def java(past: Past) -> Sequence[str]:
    try:
        return tools.program(tools.resolved(HERE / "pom.xml", past.version))
    except tools.Missing as missing:
        raise Missing(str(missing)) from None


def python(module: str) -> Callable[[Past], Sequence[str]]:
    """Its packages are installed into a folder that is put before all others; wheels only: nothing is compiled."""

    def prepare(past: Past) -> Sequence[str]:
        interpreter = sys.executable if past.python is None else f"python{past.python}"
        if not runs(interpreter):
            raise Missing(f"{past.client} {past.version} needs Python {past.python}, which is not installed")
        tag = f"{sys.version_info[0]}.{sys.version_info[1]}" if past.python is None else past.python
        folder = folder_of(past, tag.encode())
        wanted = [f"{past.client}=={past.version}", *past.packages]
        pip = [sys.executable, "-m", "pip", "install", "-q", "--disable-pip-version-check", "--only-binary", ":all:"]
        built(folder, lambda to: run(*pip, "--python-version", tag, "--target", str(to), *wanted))
        paths = os.pathsep.join([str(folder), str(HERE.parents[2])])
        return ["env", f"PYTHONPATH={paths}", interpreter, "-S", "-m", f"tests.clients.{module}.program"]

    return prepare


def go(program: str, module: str) -> Callable[[Past], Sequence[str]]:
    """Its sources are copied and built with the tag `years` and a go.mod of that release; go finds what else it needs. `module`
    is what the sources import; a Past whose module had another name then says so in its packages, as `was=NAME`."""

    def prepare(past: Past) -> Sequence[str]:
        if shutil.which("go") is None:
            raise Missing("go is not installed")
        sources = sorted((HERE.parent / program).glob("*.go"))
        was = [it.removeprefix("was=") for it in past.packages if it.startswith("was=")]
        name = was[0] if was else module
        wanted = [(name, past.version), *(tuple(it.split("@")) for it in past.packages if "@" in it)]
        folder = folder_of(past, *(it.read_bytes() for it in sources))

        def build(to: Path) -> None:
            for source in sources:
                (to / source.name).write_text(source.read_text().replace(f'"{module}', f'"{name}'))
            requires = "".join(f"require {path} v{version.removeprefix('v')}\n" for path, version in wanted)
            (to / "go.mod").write_text(f"module kraftlite/clients/past\n\ngo 1.22\n\n{requires}")
            run("go", "mod", "tidy", cwd=to)
            run("go", "build", "-tags", "years", "-o", "program", ".", cwd=to)

        built(folder, build)
        return [str(folder / "program")]

    return prepare


def node(past: Past) -> Sequence[str]:
    if shutil.which("node") is None or shutil.which("npm") is None:
        raise Missing("node and npm are not installed")
    program = HERE.parent / "kafkajs" / "program.js"
    folder = folder_of(past)
    wanted = [f"{past.client.lower()}@{past.version}", *past.packages]
    npm = ["npm", "install", "--no-package-lock", "--no-audit", "--no-fund", "--ignore-scripts", "--prefix"]
    built(folder, lambda to: run(*npm, str(to), *wanted))
    return ["env", f"NODE_PATH={folder / 'node_modules'}", "node", str(program)]


CLIENTS: Final[Mapping[str, Callable[[Past], Sequence[str]]]] = {
    "kafka-clients (Java)": java,
    "confluent-kafka": python("confluent"),
    "kafka-python": python("kafka_python"),
    "aiokafka": python("aiokafka"),
    "franz-go": go("franz_go", "github.com/twmb/franz-go"),
    "Sarama": go("sarama", "github.com/IBM/sarama"),
    "kafka-go": go("kafka_go", "github.com/segmentio/kafka-go"),
    "KafkaJS": node,
}
