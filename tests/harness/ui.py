"""Nodes that say what a test wants, and requests to the page without a socket."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from uuid import UUID

from kraftlite.local.layout import plan, write_files
from kraftlite.local.state import LocalCluster, save
from kraftlite.model.ids import NodeId
from kraftlite.model.messages.introspection import NodeStatusResponse, ReplicaState
from kraftlite.ui.acts import Acts
from kraftlite.ui.app import Page
from kraftlite.ui.guard import Tokens
from kraftlite.ui.watch import Watcher
from kraftlite.ui.whom import InDirectory
from kraftlite.ui.words import NodeWords

NOW = 1_000_000


def status(
    node: int, *, leader: int | None = 1, epoch: int = 1, active: bool = False, state: str = "follower"
) -> NodeStatusResponse:
    return NodeStatusResponse(
        node_id=NodeId(node),
        cluster_id="c",
        roles=("controller",),
        broker_state=None,
        broker_epoch=None,
        raft_state="leader" if active else state,
        raft_epoch=epoch,
        leader_id=None if leader is None else NodeId(leader),
        raft_high_watermark=10,
        raft_leo=11,
        metadata_offset=9,
        active_controller=active,
    )


def controller(node: int, *, age_ms: int | None = 0, process: str = "running", **said: Any) -> NodeWords:
    """A controller whose last words are `age_ms` old; None: it has never been heard."""
    words = NodeWords(id=node, roles=("controller",), process=process)
    if age_ms is not None:
        words.hear_status(status(node, **said), NOW - age_ms, 3)
    return words


def replica(
    *,
    leads: bool = False,
    leader: int | None = 4,
    epoch: int = 0,
    leo: int = 100,
    hw: int = 90,
    isr: Sequence[int] = (4, 5, 6),
    **more: Any,
) -> ReplicaState:
    values: dict[str, Any] = {
        "topic": "orders",
        "topic_id": UUID(int=1),
        "partition": 0,
        "is_leader": leads,
        "leader_epoch": epoch,
        "partition_epoch": 0,
        "isr": tuple(map(NodeId, isr)),
        "log_start_offset": 0,
        "hw": hw,
        "leo": leo,
        "size_bytes": 1000,
        "leader_id": None if leader is None else NodeId(leader),
        "replicas": tuple(map(NodeId, (4, 5, 6))),
        "min_isr": 2,
    }
    return ReplicaState(**{**values, **more})


def broker(node: int, *said: ReplicaState, age_ms: int | None = 0, process: str = "running") -> NodeWords:
    words = NodeWords(id=node, roles=("broker",), process=process)
    if age_ms is not None:
        words.hear_status(status(node, state="observer"), NOW - age_ms, 3)
        words.hear_replicas(said, NOW - age_ms)
    return words


def client_report(client: str = "test", **more: Any) -> dict[str, Any]:
    """A report of a client that writes to `orders`, and waited once."""
    values: dict[str, Any] = {"client": client, "topic": "orders", "at": NOW, "sent": 9, "consumed": 4, "p50": 3, "p99": 20}
    values |= {"errors": {"NOT_ENOUGH_REPLICAS": 1}, "partitions": [[0, 5, 1, 0, 2, None]], "gaps": [[0, 1_000, 2_500]]}
    return {**values, **more}


@dataclass
class Answer:
    """The answer to one request."""

    status: int = 0
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b""

    @property
    def json(self) -> Any:
        return json.loads(self.body)


async def ask(
    app: Any,
    path: str,
    *,
    method: str = "GET",
    headers: Mapping[str, str] | Sequence[tuple[str, str]] = (),
    body: bytes = b"",
    query: str = "",
) -> Answer:
    """One request and its whole answer."""
    listed = list(headers.items()) if isinstance(headers, Mapping) else list(headers)
    found = Answer()
    sent = False

    async def receive() -> dict[str, Any]:
        nonlocal sent
        if sent:
            await asyncio.Event().wait()
        sent = True
        return {"type": "http.request", "body": body, "more_body": False}

    async def send(message: Mapping[str, Any]) -> None:
        if message["type"] == "http.response.start":
            found.status = message["status"]
            found.headers = {name.decode().lower(): value.decode() for name, value in message["headers"]}
        else:
            found.body += message.get("body", b"")

    scope = {
        "type": "http",
        "http_version": "1.1",
        "method": method,
        "scheme": "http",
        "path": path,
        "raw_path": path.encode(),
        "root_path": "",
        "query_string": query.encode(),
        "headers": [(name.lower().encode(), value.encode()) for name, value in listed],
        "client": ("127.0.0.1", 50_000),
        "server": ("127.0.0.1", 8088),
    }
    await app(scope, receive, send)
    return found


def idle_cluster(folder: Path) -> LocalCluster:
    """A controller and a broker, neither of which runs."""
    made = plan(folder / "c", controllers=1, brokers=1, combined=False)
    write_files(made, {})
    save(made)
    return made


def idle_page(folder: Path, tokens: Tokens) -> Page:
    """The page of such a cluster."""
    directory = Path(idle_cluster(folder).data_dir)
    return Page(Watcher(InDirectory(directory), None), Acts(directory), tokens, 8088)  # type: ignore[arg-type]
