"""Tools of Kafka that are run against both clusters. A story is a sequence of commands and of what they printed."""

from __future__ import annotations

import json
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

from tests.clients import compare_transactions
from tests.clients.compare_sides import Side
from tests.clients.java import tools

Step = tuple[str, list[str]]
Steps = Callable[[Side], Iterator[Step]]

ANSWERS_TIMEOUT_S: Final = 900.0
"""For about eight hundred questions on a busy machine. Some are asked until the client gives up, after 1.5 s."""


def stories(only: Sequence[str]) -> Iterator[tuple[str, Steps]]:
    for name, steps in STORIES.items():
        if not only or any(part.lower() in name.lower() for part in only):
            yield name, steps


def _run(side: Side, command: str, *, ordered: bool = True) -> Step:
    name, *args = command.split()
    lines = side.tool(name, *args)
    return command, lines if ordered else sorted(lines)


def topics(side: Side) -> Iterator[Step]:
    side.create("t", [[1, 2], [2, 3]], retention_ms="5")
    for command in (
        "topics --describe --topic t",
        "topics --describe --topic nope",
        "topics --describe --topic t --unavailable-partitions",
        "topics --create --topic t --replica-assignment 1",
        "topics --create --topic many --replication-factor 9",
        "topics --create --topic ..",
        "topics --alter --topic t --partitions 1",
        "topics --alter --topic t --partitions 2",
        "topics --delete --topic nope",
        "get-offsets --topic t",
        "get-offsets --topic t --time max-timestamp",
        "get-offsets --topic t --time -7",
        "get-offsets --topic t --time earliest-pending-upload",
        "get-offsets --topic-partitions t:1,",
        "leader-election --election-type preferred --topic t --partition 0",
        "leader-election --election-type preferred --topic t --partition 9",
        "leader-election --election-type unclean --topic nope --partition 0",
    ):
        yield _run(side, command)


def groups(side: Side) -> Iterator[Step]:
    side.create("g-topic", [[1, 2]])
    side.tool("console-producer", "--topic", "g-topic", stdin="a\nb\nc\n")
    yield _run(side, "console-consumer --topic g-topic --group tools --from-beginning --max-messages 3")
    for command in (
        "consumer-groups --describe --group tools",
        "consumer-groups --describe --group tools --members --verbose",
        "consumer-groups --describe --group nope",
        "consumer-groups --reset-offsets --group tools --topic g-topic --to-offset 99 --execute",
        "consumer-groups --reset-offsets --group tools --topic g-topic:7 --to-earliest --execute",
        "consumer-groups --delete-offsets --group tools --topic nope",
        "consumer-groups --delete-offsets --group nope --topic g-topic",
        "consumer-groups --delete --group nope",
        "groups --describe --group tools",
    ):
        yield _run(side, command)
    yield _run(side, "consumer-groups --list --type", ordered=False)


def configs(side: Side) -> Iterator[Step]:
    side.create("c", retention_ms="5")
    for command in (
        "configs --describe --entity-type topics --entity-name c",
        "configs --describe --entity-type topics --entity-name nope",
        "configs --describe --entity-type brokers --entity-name 1",
        "configs --describe --entity-type brokers --entity-name 9",
        "configs --alter --entity-type brokers --entity-name 1 --add-config log.cleaner.threads=2",
        "configs --alter --entity-type brokers --entity-name 1 --add-config log.retention.ms=abc",
        "configs --alter --entity-type brokers --entity-default --add-config log.roll.ms=5000000",
        "configs --alter --entity-type topics --entity-name c --add-config cleanup.policy=[compact,delete]",
        "configs --alter --entity-type topics --entity-name c --add-config segment.ms=-5",
        "configs --alter --entity-type topics --entity-name c --delete-config retention.ms",
        "configs --alter --entity-type groups --entity-name g --add-config consumer.session.timeout.ms=50000",
        "configs --alter --entity-type client-metrics --entity-name m --add-config interval.ms=1000,metrics=[a.,b.]",
        "configs --describe --entity-type groups --entity-name nope",
        "configs --describe --entity-type client-metrics --entity-name nope",
        "configs --describe --entity-type users",
        "configs --describe --entity-type ips",
        "configs --alter --entity-type users --entity-name u --add-config producer_byte_rate=1000",
        "configs --alter --entity-type users --entity-name u --add-config nope=1000",
        "configs --describe --entity-type broker-loggers --entity-name 1",
        "client-metrics --list",
    ):
        yield _run(side, command)


def quorum(side: Side) -> Iterator[Step]:
    for command in (
        "metadata-quorum describe --status",
        "metadata-quorum remove-controller --controller-id 1 --controller-directory-id AAAAAAAAAAAAAAAAAAAAAQ",
        "features describe",
        "features upgrade --feature metadata.version=29 --dry-run",
        "features downgrade --feature metadata.version=29 --dry-run",
        "features upgrade --feature nope=2",
        "features upgrade --feature metadata.version=99",
        "features disable --feature group.version --dry-run",
        "features disable --feature nope",
        "features downgrade --feature metadata.version=28 --unsafe",
        "features downgrade --feature metadata.version=22 --feature eligible.leader.replicas.version=0 --unsafe",
        "features downgrade --feature metadata.version=6",
        "features downgrade --feature group.version=1 --feature eligible.leader.replicas.version=1",
        "log-dirs --describe --broker-list 9",
    ):
        yield _run(side, command)


def transactions(side: Side) -> Iterator[Step]:
    """An id of its own in a listing of which the rest, producer ids and coordinators included, is another on each side, and the
    producers of a topic of its own: what the stories leave in theirs depends on how often they had to ask."""
    compare_transactions.prepared(side)
    talk = compare_transactions.Talk(side)
    talk.begun(5, "listed")
    command, lines = _run(side, "transactions list")
    kept = [line for line in lines if line.split()[0] in ("exit", "TransactionalId", "listed", "error:")]
    yield command, [" ".join(line.split()) for line in kept if line.split()[0] != "listed"]
    yield "transactions list, one of them", [_named(line) for line in kept if line.split()[0] == "listed"]
    for command in (
        "transactions describe --transactional-id never-begun",
        "transactions find-hanging --broker-id 9",
        "transactions find-hanging --topic a/b --partition 0",
        "transactions describe-producers --topic a/b --partition 0",
        f"transactions abort --topic {compare_transactions.TOPIC} --partition 0 --start-offset 99",
        f"transactions abort --topic {compare_transactions.TOPIC} --partition 0 --producer-id -1 --producer-epoch 0 "
        "--coordinator-epoch 0",
    ):
        yield _run(side, command)
    side.create("described")
    yield "produced", [str(compare_transactions.codes(talk.produce(talk.begun(5, "listed"), 12, topic="described")))]
    command, lines = _run(side, "transactions describe-producers --topic described --partition 0 --broker-id 2")
    yield command, [" ".join(line.split()[1:]) for line in lines]  # without the producer ids


def _named(line: str) -> str:
    """A line of the listing without the coordinator and the producer id."""
    name, _coordinator, _producer, *state = line.split()
    return " ".join([name, *state])


def moves(side: Side) -> Iterator[Step]:
    side.create("m", [[1, 2]])
    with tempfile.TemporaryDirectory() as folder:

        def plan(topic: str, replicas: list[int]) -> str:
            file = Path(folder) / f"{topic}-{'-'.join(map(str, replicas))}.json"
            file.write_text(json.dumps({"version": 1, "partitions": [{"topic": topic, "partition": 0, "replicas": replicas}]}))
            return f"--reassignment-json-file {file}"

        throttled = f"reassign-partitions --execute {plan('m', [2, 1])} --throttle 5000 --replica-alter-log-dirs-throttle 600"
        for what, command in (
            ("list", "reassign-partitions --list"),
            ("an unknown broker", f"reassign-partitions --execute {plan('m', [9])}"),
            ("an unknown topic", f"reassign-partitions --execute {plan('nope', [1])}"),
            ("cancel nothing", f"reassign-partitions --cancel {plan('m', [1, 2])}"),
            ("verify", f"reassign-partitions --verify {plan('m', [1, 2])}"),
            ("a broker twice", f"reassign-partitions --execute {plan('m', [1, 1])}"),
            ("another factor", f"reassign-partitions --execute {plan('m', [1])} --disallow-replication-factor-change"),
            ("a throttle", throttled),
            ("what it throttles", "configs --describe --entity-type topics --entity-name m"),
            ("verify what was throttled", f"reassign-partitions --verify {plan('m', [2, 1])}"),
            ("what is throttled then", "configs --describe --entity-type brokers --entity-name 1"),
        ):
            yield what, _run(side, command)[1]


def admin_client(side: Side) -> Iterator[Step]:
    """What Java's AdminClient says to each of its calls (`Answers.java`)."""
    side.create("adm", [[1, 2, 3], [2, 3, 1]], retention_ms="-1")
    side.create("adm-pair", [[1, 2]])
    yield from _answers(side, "Answers")


def rarely_asked(side: Side) -> Iterator[Step]:
    """What the AdminClient says to its calls about transactions, voters, tokens and some of groups (`RareAnswers.java`)."""
    side.create("rare-answers", [[1, 2, 3]])
    yield from _answers(side, "RareAnswers")


def _answers(side: Side, program: str) -> Iterator[Step]:
    command = [*tools.java(program, more=[tools.programs()]), side.bootstrap_servers]
    done = subprocess.run(command, capture_output=True, text=True, timeout=ANSWERS_TIMEOUT_S, check=False)
    assert done.returncode == 0, f"{side.name}: {program}: {done.stderr[-2000:]}"
    for line in side.reduced(done.stdout).splitlines():
        question, answer = line.split(": ", 1)
        yield question, [answer]


STORIES: Final[Mapping[str, Steps]] = {
    "kafka-topics and offsets": topics,
    "kafka-consumer-groups": groups,
    "kafka-configs": configs,
    "quorum and features": quorum,
    "kafka-transactions": transactions,
    "kafka-reassign-partitions": moves,
    "AdminClient": admin_client,
    "AdminClient, rarely asked": rarely_asked,
}
