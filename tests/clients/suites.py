"""The tests of clients' own authors, put to kraftlite: `python -m tests.clients.suites [SUITE…]`.

Needs Go, and for confluent-kafka-go a C compiler; takes three to six minutes each. The sources come as Go modules and are built
below `var/clients/suites`. A suite that is bound to localhost:9092 and 9093 needs these ports. Prints what failed, and ends
with 1 unless all of it is explained here.

Sources: pkg/kgo of franz-go; kafka of confluent-kafka-go, which is librdkafka; kafka-go.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from tests.clients.closed import kraftlite_node
from tests.clients.programs import BUILT, Missing
from tests.harness.local import running

LIMIT_S: Final = 1_200
_RESULT: Final = re.compile(r"^\s*--- (PASS|FAIL|SKIP): (\S+)", re.MULTILINE)

Environment = Mapping[str, str]


@dataclass(frozen=True, kw_only=True)
class Suite:
    """`module` and `version` as Go knows them. `package`: whose tests are run. `explained`: tests that fail whatever the cluster
    does, or for what the test expects of it, and why; `skipped`: those that are not run. `settings`: of a node at the ports that
    the suite has written down; None: it takes any cluster, by `environment` of its bootstrap servers. `change` makes the sources
    ready; `files`: of the folder of the tests."""

    module: str
    version: str
    package: str
    environment: Callable[[str], Environment]
    skipped: Mapping[str, str] = field(default_factory=dict)
    explained: Mapping[str, str] = field(default_factory=dict)
    settings: Mapping[str, str] | None = None
    change: Callable[[Path], None] = lambda _source: None
    files: Mapping[str, str] = field(default_factory=dict)
    arguments: tuple[str, ...] = ()


def _without_compose(source: Path) -> None:
    """The suite would start its cluster by docker compose, for which it needs two hundred modules; here it is there already."""
    shutil.rmtree(source / "schemaregistry")
    compose = source / "no-compose"
    compose.mkdir()
    name = "github.com/testcontainers/testcontainers-go/modules/compose"
    (compose / "go.mod").write_text(f"module {name}\ngo 1.21\n")
    (compose / "compose.go").write_text(
        "package compose\n"
        "type Result struct{ Error error }\n"
        "type LocalDockerCompose struct{}\n"
        "func NewLocalDockerCompose([]string, string) *LocalDockerCompose { return &LocalDockerCompose{} }\n"
        "func (d *LocalDockerCompose) Down() Result { return Result{} }\n"
        "func (d *LocalDockerCompose) WithCommand([]string) *LocalDockerCompose { return d }\n"
        "func (d *LocalDockerCompose) Invoke() Result { return Result{} }\n"
    )
    (source / "go.sum").unlink()
    (source / "go.mod").write_text(
        "module github.com/confluentinc/confluent-kafka-go/v2\ngo 1.21\n"
        f"require github.com/stretchr/testify v1.9.0\nrequire {name} v0.0.0\nreplace {name} => ./no-compose\n"
    )


_PLAIN: Final = "org.apache.kafka.common.security.plain.PlainLoginModule"
_USERS: Final = {"admin": "admin-secret", "testuser": "testpass", "adminplain": "admin-secret"}
_FIXED: Final = {
    "advertised.listeners": "PLAINTEXT://localhost:9092,SASL_PLAINTEXT://localhost:9093,REPLICATION://127.0.0.1:9192",
    "num.partitions": "4",
    "default.replication.factor": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "message.max.bytes": "200000000",
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:admin;User:ANONYMOUS",
    "allow.everyone.if.no.acl.found": "true",
    "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
    "listener.name.sasl_plaintext.plain.sasl.jaas.config": f"{_PLAIN} required "
    + " ".join(f'user_{name}="{password}"' for name, password in _USERS.items())
    + ";",
}
"""A node as these suites' own docker-compose files have it."""
_LISTENERS: Final = {"SASL_PLAINTEXT": "SASL_PLAINTEXT"}
_PORTS: Final = (9092, 9093, 9191, 9192)
_SCRAM: Final = (
    "SCRAM-SHA-256=[name=adminscram,password=admin-secret-256]",
    "SCRAM-SHA-512=[name=adminscram,password=admin-secret-512]",
)
_NOT_CONNECTED: Final = "the test calls a function that it has not set, and panics whatever the cluster does"

SUITES: Final[Mapping[str, Suite]] = {
    "franz-go": Suite(
        module="github.com/twmb/franz-go",
        version="v1.22.2",
        package="pkg/kgo",
        environment=lambda bootstrap: {
            "KGO_SEEDS": bootstrap,
            "KGO_TEST_RF": "3",
            "KGO_TEST_RECORDS": "20000",
            "KGO_LOG_LEVEL": "none",
        },
        skipped={"Share": "there are no share groups"},
    ),
    "confluent-kafka-go": Suite(
        module="github.com/confluentinc/confluent-kafka-go/v2",
        version="v2.11.1",
        package="kafka",
        environment=lambda _bootstrap: {"CLUSTER_TYPE": "kraft"},
        settings=_FIXED,
        change=_without_compose,
        explained={
            "TestTransactionalProducer": "it flushes for -1 ms, which are over at once, and expects that all is delivered",
            "TestParallelConsumerCloses": "which of two refusals a consumer gives that two threads close is a matter of time",
        },
        arguments=("-docker.exists",),
        files={
            "testconf.json": json.dumps(
                {
                    "Brokers": "localhost:9092",
                    "BrokersSasl": "localhost:9093",
                    "SaslUsername": "testuser",
                    "SaslPassword": "testpass",
                    "SaslMechanism": "PLAIN",
                    "TopicName": "test",
                    "GroupID": "testgroup",
                    "PerfMsgCount": 1000,
                    "PerfMsgSize": 100,
                    "Config": [],
                }
            )
        },
    ),
    "kafka-go": Suite(
        module="github.com/segmentio/kafka-go",
        version="v0.4.51",
        package=".",
        environment=lambda _bootstrap: {"KAFKA_VERSION": "3.7.0", "KAFKA_SKIP_NETTEST": "1"},
        settings=_FIXED,
        skipped={
            "TestReaderConsumerGroup/consumer_group_commits_on_close": _NOT_CONNECTED,
            "TestReaderConsumerGroup/verify_offset_committed": _NOT_CONNECTED,
        },
        explained={
            "TestRebalanceTooManyConsumers": "its first reader asks for a topic that is not there, and does not look again; "
            "Apache Kafka's KRaft creates it with the same answer, UNKNOWN_TOPIC_OR_PARTITION",
            "TestReaderConsumerGroup/consumer_group_rebalance": "it expects twelve of 24 messages in each of two "
            "readers that share three partitions",
            "TestReaderReadCompactedMessage": "its reader does not get past a batch without records (docs/DIFFERENCES.md, "
            "small segments); Apache Kafka 4 refuses its segment.bytes of 200",
            "TestClientElectLeaders": "it gives the controller no time, for which that of Apache Kafka's KRaft answers "
            "REQUEST_TIMED_OUT, too (compare patience)",
        },
    ),
}


def built(name: str, suite: Suite) -> tuple[Path, Path]:
    """Return the program of the tests, and the folder to run it in. Raises Missing."""
    if shutil.which("go") is None:
        raise Missing("Go is not there")
    there = BUILT / "suites" / name
    program, source = there / "tests", there / "source"
    if not program.exists():
        shutil.rmtree(there, ignore_errors=True)
        there.mkdir(parents=True)
        told = _go(there, "mod", "download", "-json", f"{suite.module}@{suite.version}")
        shutil.copytree(json.loads(told)["Dir"], source)
        for path in (source, *source.rglob("*")):
            path.chmod(path.stat().st_mode | 0o200)
        suite.change(source)
        _go(source, "mod", "tidy")
        _go(source, "test", "-c", "-vet=off", "-o", str(program), f"./{suite.package}")
    folder = source / suite.package
    for file, text in suite.files.items():
        (folder / file).write_text(text)
    return program, folder


def _go(where: Path, *arguments: str) -> str:
    done = subprocess.run(["go", *arguments], cwd=where, capture_output=True, text=True, timeout=LIMIT_S, check=False)
    if done.returncode:
        raise Missing(f"go {' '.join(arguments)}: {(done.stderr or done.stdout).strip()[-500:]}")
    return done.stdout


@contextmanager
def _cluster(suite: Suite) -> Iterator[str]:
    """Give the bootstrap servers."""
    if suite.settings is None:
        with running(controllers=1, brokers=3, config={}) as cluster:
            yield cluster.bootstrap
        return
    scram = [part for it in _SCRAM for part in ("--add-scram", it)]
    with (
        tempfile.TemporaryDirectory(prefix="kraftlite-suite-") as folder,
        kraftlite_node(Path(folder), suite.settings, _LISTENERS, ports=_PORTS, form=scram) as (address, _),
    ):
        yield address


def run(name: str, suite: Suite) -> bool:
    """Run a suite, print what came of it, and return whether nothing is left to be explained."""
    program, folder = built(name, suite)
    skip = ["-test.skip", "|".join(suite.skipped)] if suite.skipped else []
    command = [str(program), "-test.v", f"-test.timeout={LIMIT_S}s", *skip, *suite.arguments]
    output = program.parent / "output.txt"
    with _cluster(suite) as bootstrap, output.open("w") as file:
        environment = {**os.environ, **suite.environment(bootstrap)}
        code = subprocess.run(
            command, cwd=folder, env=environment, stdout=file, stderr=file, timeout=LIMIT_S + 60, check=False
        ).returncode
    results: dict[str, str] = {test: kind for kind, test in _RESULT.findall(output.read_text(errors="replace"))}
    counts = {kind: sum(it == kind for it in results.values()) for kind in ("PASS", "FAIL", "SKIP")}
    failed = [test for test, it in results.items() if it == "FAIL"]
    parents = {test for test in failed if any(other.startswith(f"{test}/") for other in failed)}
    left = [test for test in failed if test not in parents and test not in suite.explained]
    print(f"{name} {suite.version}: {counts['PASS']} passed, {counts['FAIL']} failed, {counts['SKIP']} skipped")
    for test in failed:
        if test not in parents:
            print(f"  {test}: {suite.explained.get(test, f'FAILED, see {output}')}")
    if code and not failed:
        print(f"  ended with {code} and no failed test, see {output}")
    return not left and bool(counts["PASS"]) and (code == 0 or bool(failed))


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.clients.suites")
    parser.add_argument("names", nargs="*", choices=[*SUITES, []], metavar="SUITE", help=", ".join(SUITES))
    told = parser.parse_args()
    fine = True
    for name in told.names or SUITES:
        try:
            fine &= run(name, SUITES[name])
        except Missing as error:
            print(f"{name}: {error}")
            fine = False
    return 0 if fine else 1


if __name__ == "__main__":
    sys.exit(main())
