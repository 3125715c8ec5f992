"""Run by the python of an empty environment, outside of the repository: a cluster of processes, one inside a test, real clients.

`python probe.py DATA_DIR VERSION`. It imports nothing but what was installed. Exit status 0 when all of it works.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from importlib.metadata import metadata
from importlib.resources import files
from pathlib import Path


def kraftlite(*arguments: str) -> str:
    command = [str(Path(sys.executable).with_name("kraftlite")), *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True, timeout=180).stdout


def round_trip(bootstrap: str, topic: str, count: int) -> None:
    from confluent_kafka import Consumer, Producer

    producer = Producer({"bootstrap.servers": bootstrap, "acks": "all", "log_level": 0})
    for number in range(count):
        producer.produce(topic, f"value {number}".encode())
    assert producer.flush(60) == 0
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "probe", "auto.offset.reset": "earliest", "log_level": 0})
    consumer.subscribe([topic])
    found = []
    while len(found) < count:
        message = consumer.poll(60)
        assert message is not None and message.error() is None, message
        found.append(message.value())
    consumer.close()
    assert sorted(found) == sorted(f"value {number}".encode() for number in range(count))


def main() -> None:
    data_dir, version = sys.argv[1:]
    os.environ["KRAFTLITE_DATA_DIR"] = data_dir
    os.environ.pop("KRAFTLITE_BOOTSTRAP_SERVER", None)

    import kraftlite as package

    assert package.__file__ is not None and Path(package.__file__).is_relative_to(sys.prefix), package.__file__
    assert package.__version__ == version == metadata("kraftlite")["Version"]
    assert metadata("kraftlite")["License-Expression"] == "Apache-2.0"
    assert files("kraftlite").joinpath("py.typed").is_file()
    said = kraftlite("--version")
    assert said.startswith(f"kraftlite {version}\n"), said
    print(said.strip())

    try:
        kraftlite("up", "--detach", "--controllers", "1", "--brokers", "1")
        kraftlite("create-topic", "orders", "--partitions", "2", "--replication-factor", "1")
        nodes = json.loads(kraftlite("ps", "--json"))["nodes"]
        (bootstrap,) = [it["addresses"]["kafka"] for it in nodes if "broker" in it["roles"]]
        round_trip(bootstrap, "orders", 100)
    finally:
        kraftlite("down", "--wipe")
    print("a cluster of processes has taken and given records")

    from kraftlite.testing import SyncCluster, other_than

    with SyncCluster(controllers=1, brokers=2) as cluster:
        cluster.create_topic("orders", replication_factor=2)
        leader = cluster.leader("orders")
        assert leader is not None
        cluster.kill(leader)
        cluster.wait_for(topic="orders", leader=other_than(leader))
        round_trip(cluster.bootstrap_servers, "orders", 10)
    print("a cluster inside of this process has outlived its leader")


if __name__ == "__main__":
    main()
