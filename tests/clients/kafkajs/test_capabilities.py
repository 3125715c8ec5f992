"""KafkaJS: the capabilities that every client is put through."""

from __future__ import annotations

import json

import pytest

from tests.clients.capabilities import Capabilities
from tests.clients.programs import BUILT, FOLDER, Client, npm_packages
from tests.clients.years.versions import LZ4JS

pytestmark = [pytest.mark.clients, pytest.mark.node, pytest.mark.slow, pytest.mark.xdist_group("clients")]
TWICE = "when a broker refuses, KafkaJS sends again what is under way to others, under a new sequence"
HERE = FOLDER / "kafkajs"


def version() -> str:
    return str(json.loads((HERE / "package.json").read_text())["dependencies"]["kafkajs"])


def prepare() -> list[str]:
    return [npm_packages(HERE), str(HERE / "program.js")]


class TestKafkaJs(Capabilities):
    client = Client(
        name="KafkaJS",
        version=version,
        prepare=prepare,
        timed_out="INVALID_PRODUCER_EPOCH",
        env={"NODE_PATH": str(BUILT / "kafkajs" / "node_modules")},
        lacks={
            "codec lz4": LZ4JS,
            "group: cooperative": "KafkaJS has no incremental rebalances",
            "group: static members": "KafkaJS has no group.instance.id",
            "transactions: brokers are killed": TWICE,
            "group: KIP-848": "KafkaJS has no consumer protocol",
        },
    )
