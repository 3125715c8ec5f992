"""A Java client that is not let in is told the same by kraftlite as by Apache Kafka. Source: KIP-152; SE-03, SE-10 to SE-12."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.clients.java.secured import MODULES, certify, secured_kafka
from tests.clients.java.tools import Missing, jars, kafka_tool
from tests.harness.certificates import Authority
from tests.harness.secured_node import secured_node

pytestmark = [pytest.mark.clients, pytest.mark.jvm, pytest.mark.slow, pytest.mark.xdist_group("clients")]


class Sides(NamedTuple):
    """The addresses with SASL alone and with TLS as well, of Apache Kafka and of kraftlite. `trust`: their authority."""

    kafka: tuple[str, str]
    ours: tuple[str, str]
    trust: Path


@pytest.fixture(scope="module")
def sides(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sides]:
    try:
        jars()
    except Missing as missing:
        pytest.skip(str(missing))
    folder = tmp_path_factory.mktemp("refusals")
    certify(folder)
    stores = {
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(folder / "broker.pem"),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(folder / "authority.pem"),
    }
    (folder / "node").mkdir()
    with ExitStack() as stack:
        kafka = stack.enter_context(secured_kafka(folder))
        node = stack.enter_context(
            secured_node(folder / "node", {"sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512"} | NO_TOKENS, stores)
        )
        ours = (node.sasl.replace("localhost", "127.0.0.1"), node.secure.replace("localhost", "127.0.0.1"))
        yield Sides((kafka.listeners["SASL_PLAINTEXT"], kafka.listeners["SASL_SSL"]), ours, folder / "authority.pem")


NO_TOKENS = {f"listener.name.{name}.oauthbearer.sasl.jaas.config": "" for name in ("sasl", "short", "secure")}


def login(mechanism: str, user: str, password: str) -> dict[str, str]:
    module = "plain.PlainLoginModule" if mechanism == "PLAIN" else "scram.ScramLoginModule"
    return {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": mechanism,
        "sasl.jaas.config": f'{MODULES}.{module} required username="{user}" password="{password}";',
    }


MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
CASES: Mapping[str, Mapping[str, str]] = {
    **{f"{it}, wrong password": login(it, "alice", "wrong") for it in MECHANISMS},
    **{f"{it}, unknown user": login(it, "nobody", "wrong") for it in MECHANISMS},
    "an unknown authority": {**login("PLAIN", "alice", "wrong"), "security.protocol": "SASL_SSL", "trust": "stranger"},
    "wrong password over TLS": {**login("PLAIN", "alice", "wrong"), "security.protocol": "SASL_SSL", "trust": "ours"},
    "no mechanism in common": {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "OAUTHBEARER",
        "sasl.jaas.config": f'{MODULES}.oauthbearer.OAuthBearerLoginModule required unsecuredLoginStringClaim_sub="alice";',
    },
}


def told(addresses: tuple[str, str], values: Mapping[str, str], trust: Path, folder: Path) -> list[str]:
    """The exceptions that a tool shows, without addresses."""
    given = dict(values)
    kind = given.pop("trust", None)
    if kind is not None:
        path = folder / "trust.pem"
        if kind == "ours":
            shutil.copy(trust, path)
        else:
            path.write_text(Authority("stranger").pem)
        given |= {"ssl.truststore.type": "PEM", "ssl.truststore.location": str(path)}
    config = folder / "client.properties"
    config.write_text("".join(f"{key}={value}\n" for key, value in given.items()))
    address = addresses[given["security.protocol"] == "SASL_SSL"]
    done = kafka_tool("kafka-topics", "--bootstrap-server", address, "--command-config", str(config), "--list")
    assert done.code != 0, done
    found = re.findall(r"[\w.]+(?:Exception|Error): [^\n]+", done.out + done.err)
    return sorted({_without_order(re.sub(r"127\.0\.0\.1:\d+|localhost/", "<address>", line)) for line in found})


def _without_order(line: str) -> str:
    """Kafka's list of mechanisms is a set."""
    return re.sub(r"\[(.*?)\]", lambda it: str(sorted(it[1].split(", "))), line)


@pytest.mark.parametrize("case", CASES)
def test_who_is_not_let_in_is_told_the_same(sides: Sides, case: str, tmp_path: Path) -> None:
    theirs = told(sides.kafka, CASES[case], sides.trust, tmp_path)
    assert theirs and told(sides.ours, CASES[case], sides.trust, tmp_path) == theirs
