"""kcat: list, produce, consume."""

from __future__ import annotations

import json
import os
import subprocess

import pytest

from tests.clients.kcat.where import ENVIRONMENT, KCAT
from tests.harness.local import Cluster

pytestmark = [
    pytest.mark.clients,
    pytest.mark.xdist_group("clients"),
    pytest.mark.skipif(KCAT is None, reason="kcat is not installed"),
]


def kcat(cluster: Cluster, *args: str, stdin: str | None = None) -> str:
    done = subprocess.run(
        [str(KCAT), "-b", cluster.bootstrap, *args],
        input=stdin,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        env={**os.environ, **ENVIRONMENT},
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.capability("produce, acks=all")
def test_produce_consume_list(processes: Cluster, topic: str) -> None:
    cluster = processes
    cluster.create_topic(topic)
    kcat(cluster, "-P", "-t", topic, "-K", ":", stdin="".join(f"k{n}:v{n}\n" for n in range(50)))
    lines = kcat(cluster, "-C", "-t", topic, "-o", "beginning", "-e", "-q", "-f", "%o %k %s\n").splitlines()
    assert lines == [f"{n} k{n} v{n}" for n in range(50)]
    listed = json.loads(kcat(cluster, "-L", "-J"))
    assert {broker["id"] for broker in listed["brokers"]} == set(cluster.brokers)
    assert topic in {found["topic"] for found in listed["topics"]}
