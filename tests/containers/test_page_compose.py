"""The page of `KRAFTLITE_FAULTS=true docker compose up` with a real engine: its buttons reach the nodes of other containers."""

from __future__ import annotations

import json
import re
import urllib.error
import urllib.request
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from tests.containers.engine import NODES, PAGE_PORT, cluster, docker, eventually

pytestmark = pytest.mark.containers

PAGE = f"http://127.0.0.1:{PAGE_PORT}"


@pytest.fixture(scope="module", autouse=True, params=["", "1"], ids=["open", "closed"])
def stack(request: pytest.FixtureRequest) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("KRAFTLITE_FAULTS", "true")
        with cluster(secure=request.param):
            if not request.param:
                admin = AdminClient({"bootstrap.servers": "localhost:29092,localhost:39092,localhost:49092"})
                admin.create_topics([NewTopic("orders", 1, replica_assignment=[[5, 6, 4]])])["orders"].result(60)
            else:
                run = (
                    "kraftlite",
                    "create-topic",
                    "orders",
                    "--replica-assignment",
                    "5:6:4",
                    "--bootstrap-server",
                    "kafka-1:19092",
                )
                command = "/var/lib/kraftlite/cluster/secure/clients/admin/client.properties"
                docker("exec", "kafka-1", *run, "--command-config", command)
            yield


@pytest.fixture(scope="module")
def tokens(stack: None) -> tuple[str, str]:
    """The operator's and the viewer's, of the links that the log has."""
    found: list[str] = []

    def printed() -> bool:
        found[:] = re.findall(rf"{PAGE}/#([\w-]{{22}})", docker("logs", "kraftlite-ui"))
        return len(found) == 2

    eventually("the links are in the log", printed)
    return found[0], found[1]


def ask(token: str, path: str, body: dict[str, Any] | None = None, host: str = f"127.0.0.1:{PAGE_PORT}") -> tuple[int, Any]:
    headers = {"Authorization": f"Bearer {token}", "X-Kraftlite": "1", "Content-Type": "application/json", "Host": host}
    data = None if body is None else json.dumps(body).encode()
    try:
        with urllib.request.urlopen(urllib.request.Request(f"{PAGE}{path}", data, headers), timeout=20) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as error:
        return error.code, json.load(error)


def state(token: str) -> Any:
    status, found = ask(token, "/api/v1/state")
    assert status == 200, found
    return found


def lives(token: str) -> dict[int, str]:
    return {node["id"]: node["life"] for node in state(token)["nodes"]}


def leaders(token: str) -> set[int]:
    """Those that say that they lead orders-0, and answer."""
    rows = [row for row in state(token)["rows"] if row["name"] == "orders-0"]
    return {row["verdict"]["leader"] for row in rows if row["verdict"]["kind"] == "agree"}


def do(token: str, **fault: Any) -> None:
    def taken() -> bool:
        status, found = ask(token, "/api/v1/faults", fault)
        assert status in (202, 429), found
        return status == 202  # one every 100 ms

    eventually(f"{fault} is taken", taken)


def test_a_node_is_killed_and_paused_and_restarted_by_button(tokens: tuple[str, str]) -> None:
    operator, viewer = tokens
    before = [docker("inspect", "-f", "{{.State.StartedAt}}", name) for name in NODES]
    eventually("all answer", lambda: set(lives(viewer).values()) == {"alive"})
    eventually("5 leads", lambda: leaders(viewer) == {5})
    assert ask(viewer, "/api/v1/faults", {"kind": "kill", "node": 5})[0] == 403
    do(operator, kind="kill", node=5)
    eventually("5 is dead and another leads", lambda: lives(viewer)[5] == "dead" and leaders(viewer) in ({4}, {6}))
    do(operator, kind="pause", node=1)
    eventually("1 is paused", lambda: lives(viewer)[1] == "paused")
    do(operator, kind="resume", node=1)
    do(operator, kind="restart", node=5)
    eventually("all answer again", lambda: set(lives(viewer).values()) == {"alive"})
    assert [docker("inspect", "-f", "{{.State.StartedAt}}", name) for name in NODES] == before


def test_the_story_names_the_fault_of_the_page(tokens: tuple[str, str]) -> None:
    """So what the nodes record lies where the page finds it."""

    def told() -> bool:
        status, found = ask(tokens[1], "/api/v1/stories?kind=partition&name=orders-0")
        return status == 200 and any("kill" in json.dumps(story) for story in found["stories"])

    eventually("the kill is in a story of the partition", told)


def test_a_link_is_cut_and_heals(tokens: tuple[str, str]) -> None:
    do(tokens[0], kind="cut", node=4, other=6, for_ms=60_000)
    eventually("both have it", lambda: sum(it["active"] for it in state(tokens[1])["faults"]) >= 1)
    do(tokens[0], kind="end")
    eventually("nobody has it", lambda: not any(it["active"] for it in state(tokens[1])["faults"]))


def test_the_page_runs_a_client_inside_of_the_network(tokens: tuple[str, str]) -> None:
    status, found = ask(tokens[0], "/api/v1/clients", {"kind": "start", "topic": "orders", "rate": 50})
    assert status == 202, found
    eventually("it is acknowledged", lambda: any(it["acked"] > 20 for it in state(tokens[1])["clients"]))
    assert ask(tokens[0], "/api/v1/clients", {"kind": "stop"})[0] == 202


def test_a_frozen_container_is_paused_and_holds_up_nobody(tokens: tuple[str, str]) -> None:
    docker("pause", "kafka-3")
    try:
        eventually("it is told", lambda: lives(tokens[1])[6] == "paused")
        assert {node: life for node, life in lives(tokens[1]).items() if node != 6} == dict.fromkeys((1, 2, 3, 4, 5), "alive")
    finally:
        docker("unpause", "kafka-3")
    eventually("it answers", lambda: lives(tokens[1])[6] == "alive")


def test_the_page_is_for_this_machine_and_has_no_docker_socket(tokens: tuple[str, str]) -> None:
    assert ask(tokens[0], "/api/v1/state", host=f"kraftlite-ui:{PAGE_PORT}")[0] == 403
    assert ask("x" * 22, "/api/v1/state")[0] == 401
    published = json.loads(docker("inspect", "-f", "{{json .NetworkSettings.Ports}}", "kraftlite-ui"))
    assert {it["HostIp"] for ports in published.values() if ports for it in ports} == {"127.0.0.1"}
    assert "docker.sock" not in docker("inspect", "-f", "{{json .Mounts}}", "kraftlite-ui")


def test_commands_in_a_container_read_what_the_nodes_recorded() -> None:
    assert "node 5" in docker("exec", "kafka-2", "kraftlite", "logs", "--node", "5")
    told = json.loads(docker("exec", "kafka-2", "kraftlite", "explain", "partition", "orders-0", "-o", "json"))
    assert "kill" in json.dumps(told)
