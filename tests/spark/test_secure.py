"""The recipe of docs/SECURITY.md for Spark on a closed cluster is run as it stands there but for where things lie. SE-34."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from confluent_kafka import Consumer, Producer

from kraftlite.cli.main import cli
from kraftlite.local import cluster as local
from kraftlite.local.secure import client_dir

DOCUMENT = Path(__file__).resolve().parents[2] / "docs" / "SECURITY.md"
COUNT = 300

pytestmark = [pytest.mark.spark, pytest.mark.slow]


@pytest.fixture(scope="module")
def closed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    data_dir = tmp_path_factory.mktemp("closed")
    local.up(data_dir, controllers=1, brokers=1, secure=True)
    try:
        yield data_dir
    finally:
        local.down(data_dir)


def librdkafka(data_dir: Path) -> dict[str, Any]:
    text = (client_dir(data_dir, "admin") / "librdkafka.conf").read_text()
    return dict(line.split("=", 1) for line in text.splitlines())


def read(data_dir: Path, topic: str, count: int) -> set[bytes]:
    consumer = Consumer({**librdkafka(data_dir), "group.id": "check", "auto.offset.reset": "earliest"})
    consumer.subscribe([topic])
    try:
        found: set[bytes] = set()
        while len(found) < count:
            messages = consumer.consume(count, 60)
            assert messages, f"{len(found)} of {count}"
            found |= {bytes(it.value() or b"") for it in messages}
        return found
    finally:
        consumer.close()


def test_the_recipe(spark: Any, closed: Path, tmp_path: Path) -> None:
    recipe = DOCUMENT.read_text().split("### Spark", 1)[1]
    shell, code = (recipe.split(f"```{it}\n", 1)[1].split("```", 1)[0] for it in ("bash", "python"))
    code = code.replace('"lake/', f'"{tmp_path}/lake/').replace("~/.kraftlite/local", str(closed))
    env = {"KRAFTLITE_DATA_DIR": str(closed), "KRAFTLITE_BOOTSTRAP_SERVER": "", "KRAFTLITE_COMMAND_CONFIG": ""}
    commands = [shlex.split(line)[1:] for line in shell.splitlines()]
    grants = [it for it in commands if it[0] == "acl"]
    assert len(grants) == 2

    def run(command: list[str]) -> None:
        done = CliRunner().invoke(cli, command, env=env)
        assert done.exit_code == 0, f"{command}: {done.output}"

    for command in commands:
        if command not in grants:
            run([*command, "--replication-factor", "1"])
    producer = Producer(librdkafka(closed))
    wanted = {str(it).encode() for it in range(COUNT)}
    for value in wanted:
        producer.produce("orders", value)
    assert producer.flush(60) == 0
    with pytest.raises(Exception, match=r"may not|not authorized|AUTHORIZATION_FAILED"):
        exec(compile(code, f"{DOCUMENT.name}, before the grants", "exec"), {})
    for command in grants:
        run(command)
    exec(compile(code, DOCUMENT.name, "exec"), {})
    assert read(closed, "copies", COUNT) == wanted
