"""Apache Kafka's own command-line tools, and Java programs with its clients, run against any cluster.

`jars()` resolves `pom.xml` with Maven into a cache outside of the tree, once for each version of Kafka
(`$KRAFTLITE_JAVA_CACHE`, else `~/.cache/kraftlite`); `$KRAFTLITE_KAFKA_VERSION` takes another version than the pinned one.
`kafka_tool("kafka-topics", …)` is then what `bin/kafka-topics.sh …` is. Needs `java` and `javac` of at least 17, and `mvn` for
the first run; `missing()` says what is not there.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final

HERE: Final = Path(__file__).parent
TOOLS: Final[Mapping[str, str]] = {
    "kafka-acls": "org.apache.kafka.tools.AclCommand",
    "kafka-broker-api-versions": "org.apache.kafka.tools.BrokerApiVersionsCommand",
    "kafka-client-metrics": "org.apache.kafka.tools.ClientMetricsCommand",
    "kafka-cluster": "org.apache.kafka.tools.ClusterTool",
    "kafka-configs": "kafka.admin.ConfigCommand",
    "kafka-console-consumer": "org.apache.kafka.tools.consumer.ConsoleConsumer",
    "kafka-console-producer": "org.apache.kafka.tools.ConsoleProducer",
    "kafka-consumer-groups": "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand",
    "kafka-consumer-perf-test": "org.apache.kafka.tools.ConsumerPerformance",
    "kafka-delete-records": "org.apache.kafka.tools.DeleteRecordsCommand",
    "kafka-dump-log": "org.apache.kafka.tools.DumpLogSegments",
    "kafka-e2e-latency": "org.apache.kafka.tools.EndToEndLatency",
    "kafka-features": "org.apache.kafka.tools.FeatureCommand",
    "kafka-get-offsets": "org.apache.kafka.tools.GetOffsetShell",
    "kafka-groups": "org.apache.kafka.tools.GroupsCommand",
    "kafka-leader-election": "org.apache.kafka.tools.LeaderElectionCommand",
    "kafka-log-dirs": "org.apache.kafka.tools.LogDirsCommand",
    "kafka-metadata-quorum": "org.apache.kafka.tools.MetadataQuorumCommand",
    "kafka-metadata-shell": "org.apache.kafka.shell.MetadataShell",
    "kafka-producer-perf-test": "org.apache.kafka.tools.ProducerPerformance",
    "kafka-reassign-partitions": "org.apache.kafka.tools.reassign.ReassignPartitionsCommand",
    "kafka-replica-verification": "org.apache.kafka.tools.ReplicaVerificationTool",
    "kafka-server-start": "kafka.Kafka",
    "kafka-storage": "kafka.tools.StorageTool",
    "kafka-topics": "org.apache.kafka.tools.TopicCommand",
    "kafka-transactions": "org.apache.kafka.tools.TransactionsCommand",
    "kafka-verifiable-consumer": "org.apache.kafka.tools.VerifiableConsumer",
    "kafka-verifiable-producer": "org.apache.kafka.tools.VerifiableProducer",
}
"""The scripts of Kafka's `bin/`, and the classes that they run."""

FLAGS: Final = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xshare:auto", "-Xlog:disable", "-Xlog:all=off")
"""Short runs: no optimizing compiler, one collector thread. A class data archive (see `_archive`) starts a tool in 0.3 s."""
TOOL_TIMEOUT_S: Final = 90.0


class Missing(Exception):
    """What is needed to run Java against the cluster is not there; the message says what."""


@dataclass(frozen=True)
class Done:
    """How a tool ended. `out` and `err` are what it wrote."""

    code: int
    out: str
    err: str

    @property
    def lines(self) -> list[str]:
        return self.out.splitlines()


def kafka_version() -> str:
    """The version of Kafka that is run: that of pom.xml unless the environment has another one."""
    pinned = re.search(r"<kafka\.version>(.+?)<", (HERE / "pom.xml").read_text())
    assert pinned is not None
    return os.environ.get("KRAFTLITE_KAFKA_VERSION") or pinned[1]


@cache
def jars() -> Path:
    """The folder with the jars of this version; resolved by Maven if it is not there yet. Missing: that is not possible."""
    return resolved(HERE / "pom.xml", kafka_version())


def resolved(pom: Path, version: str) -> Path:
    """The folder with the jars that this pom asks for, for this version of Kafka. Missing: there is no Java, or no Maven."""
    for program in ("java", "javac"):
        if shutil.which(program) is None:
            raise Missing(f"{program} is not installed")
    root = Path(os.environ.get("KRAFTLITE_JAVA_CACHE") or Path.home() / ".cache" / "kraftlite")
    folder = root / f"java-{version}-{hashlib.sha256(pom.read_bytes()).hexdigest()[:8]}"
    if not (folder / "jars").is_dir():
        _resolve(folder, pom, version)
    return folder / "jars"


def _resolve(folder: Path, pom: Path, version: str) -> None:
    if shutil.which("mvn") is None:
        raise Missing("mvn is not installed, and no jars were resolved before")
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix="resolving-") as scratch:
        copied = Path(scratch) / "jars"
        command = ["mvn", "-q", "-B", "-f", str(pom), f"-Dkafka.version={version}"]
        goal = ["dependency:copy-dependencies", f"-DoutputDirectory={copied}", "-DincludeScope=runtime"]
        try:
            done = subprocess.run([*command, *goal], capture_output=True, text=True, timeout=600, check=False)
        except subprocess.TimeoutExpired:
            raise Missing("mvn did not resolve the jars within 600 s") from None
        if done.returncode != 0:
            raise Missing(f"mvn cannot resolve the jars: {(done.stdout or done.stderr).strip().splitlines()[:1]}")
        (folder / "cds").mkdir(parents=True, exist_ok=True)
        if not (folder / "jars").is_dir():  # another process may have been faster
            copied.rename(folder / "jars")


def missing() -> str | None:
    """Why nothing can be run, for a skip; None: it can."""
    try:
        jars()
    except Missing as reason:
        return str(reason)
    return None


def classpath(*more: Path, of: Path | None = None) -> str:
    """Of `of`, a folder of jars, which are those of the pinned version when it is None."""
    return os.pathsep.join([*map(str, more), f"{of or jars()}/*"])


def _archive(name: str, of: Path | None = None) -> tuple[list[str], Path | None]:
    """Flags that use the archive of loaded classes of this tool, or that write it (to the file that is returned)."""
    file = (of or jars()).parent / "cds" / f"{name}.jsa"
    if file.exists():
        return [f"-XX:SharedArchiveFile={file}"], None
    scratch = file.with_suffix(f".{os.getpid()}")
    return [f"-XX:ArchiveClassesAtExit={scratch}"], scratch


def java(
    name: str,
    *,
    heap_mb: int = 256,
    log: str = "warn",
    more: Sequence[Path] = (),
    flags: Sequence[str] = FLAGS,
    of: Path | None = None,
) -> list[str]:
    """The beginning of a command that runs a tool of Kafka, or a class by its name."""
    main = TOOLS.get(name, name)
    options = [f"-Xmx{heap_mb}m", *flags, f"-Dorg.slf4j.simpleLogger.defaultLogLevel={log}"]
    return ["java", *options, "-cp", classpath(*more, of=of), main]


@cache
def programs() -> Path:
    """The jar with the programs here (`Program`), compiled anew when one of them has changed."""
    return compiled(HERE, jars())


def compiled(folder: Path, of: Path) -> Path:
    """The jar with the programs of a folder, compiled with these jars unless that was done before."""
    sources = sorted(folder.glob("*.java"))
    digest = hashlib.sha256(b"".join(it.read_bytes() for it in sources)).hexdigest()[:12]
    jar = of.parent / f"programs-{digest}.jar"
    if not jar.exists():
        with tempfile.TemporaryDirectory(dir=of.parent, prefix="compiling-") as scratch:
            lint = ["-Xlint:all,-path,-classfile", "-Werror"]
            _run("javac", "-J-Xmx256m", *lint, "-d", f"{scratch}/classes", "-cp", classpath(of=of), *map(str, sources))
            _run("jar", "-J-Xmx256m", "-c", "-f", f"{scratch}/{jar.name}", "-C", f"{scratch}/classes", ".")
            (Path(scratch) / jar.name).rename(jar)
    return jar


def program(of: Path | None = None) -> list[str]:
    """The command that runs `Program`, with an archive of the classes that its clients load: with the jars of this folder (None:
    those of the pinned version, with which it is always compiled: what an older client lacks is missed only where it is used)."""
    jar = programs()
    flags, written = _archive(jar.stem, of)
    command = java("Program", more=[jar], of=of)
    if written is not None:
        _run(command[0], *flags, *command[1:], stdin='{"op": "warm", "bootstrap": "127.0.0.1:1"}\n')
        written.rename((of or jars()).parent / "cds" / f"{jar.stem}.jsa")
        flags, _ = _archive(jar.stem, of)
    return [command[0], *flags, *command[1:]]


def _run(*command: str, stdin: str = "") -> None:
    done = subprocess.run(command, input=stdin, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, f"{command[0]}: {done.stdout}{done.stderr}"


def kafka_tool(name: str, *args: str, stdin: str = "", timeout_s: float = TOOL_TIMEOUT_S) -> Done:
    """Run a tool to its end. subprocess.TimeoutExpired: it did not end, and was killed."""
    flags, written = _archive(name)
    command = java(name)
    command[1:1] = flags
    try:
        done = subprocess.run([*command, *args], input=stdin, capture_output=True, text=True, timeout=timeout_s, check=False)
    finally:
        if written is not None and written.exists():
            written.rename(jars().parent / "cds" / f"{name}.jsa")
    return Done(done.returncode, done.stdout, done.stderr)
