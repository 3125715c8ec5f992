"""What the files and the nodes of a cluster at rest say about a run: logs, directories, traces, node output."""

from __future__ import annotations

import asyncio
import itertools
import json
import os
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from kraftlite.local.state import LocalNode
from kraftlite.log.batch import iter_batches, iter_records
from kraftlite.obs.timeline import merge_timelines, read_timeline
from tests.harness.history import Key, Reader, Writer
from tests.harness.local import Cluster, wait_for

REFUSED = ("INVALID_RECORD", "CORRUPT_MESSAGE", "UNKNOWN_SERVER_ERROR")
"""What a follower must never say about records of its leader."""


def replica_states(cluster: Cluster) -> dict[int, dict[Key, Any]]:
    """Node → partition → `ReplicaState`, of the brokers that answer."""
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")
    nodes = [(node.id, node.grpc) for node in cluster.state.nodes if node.is_broker]
    return asyncio.run(_ask(nodes))


async def _ask(nodes: list[tuple[int, str]]) -> dict[int, dict[Key, Any]]:
    from kraftlite.model.errors import ApiError
    from kraftlite.model.ids import Endpoint
    from kraftlite.model.messages.introspection import ReplicaStatesRequest
    from kraftlite.model.messages.methods import REPLICA_STATES
    from kraftlite.rpc.transport import GrpcTransport
    from kraftlite.runtime.ports import TransportError

    transport: Any = GrpcTransport()
    found: dict[int, dict[Key, Any]] = {}
    try:
        for node_id, address in nodes:
            host, _, port = address.rpartition(":")
            try:
                answer = await transport.call(Endpoint(host, int(port)), REPLICA_STATES, ReplicaStatesRequest(topics=None), 5000)
            except (TransportError, ApiError):
                continue
            found[node_id] = {(state.topic, state.partition): state for state in answer.replicas}
    finally:
        await transport.close()
    return found


def wait_settled(cluster: Cluster, keys: list[Key], timeout_s: float = 30) -> dict[int, dict[Key, Any]]:
    """Until all replicas have one LEO and it is the HW everywhere, and exactly one leads."""
    last: dict[int, dict[Key, Any]] = {}
    unsettled: dict[Key, Any] = {}

    def settled() -> bool:
        last.clear()
        last.update(replica_states(cluster))
        unsettled.clear()
        for key in keys:
            states = {node: of_node[key] for node, of_node in last.items() if key in of_node}
            offsets = {offset for state in states.values() for offset in (state.leo, state.hw)}
            leaders = sum(state.is_leader for state in states.values())
            if len(states) != len(cluster.brokers) or len(offsets) != 1 or leaders != 1:
                unsettled[key] = {node: (state.is_leader, state.hw, state.leo) for node, state in states.items()}
        return not unsettled

    try:
        wait_for("every replica of the workload has the same LEO and HW", settled, timeout_s=timeout_s, every_s=0.2)
    except AssertionError as error:
        raise AssertionError(f"{error}; node: (leads, HW, LEO) of {unsettled}") from None
    return last


Session = tuple[int, int]
"""Producer id and epoch."""


def log_bytes(node: LocalNode, key: Key) -> bytes:
    directory = Path(node.data_dir) / f"{key[0]}-{key[1]}"
    return b"".join(path.read_bytes() for path in sorted(directory.glob("*.log")))


def check_logs(cluster: Cluster, keys: list[Key], writers: list[Writer], readers: list[Reader]) -> Iterator[str]:
    """Replicas are equal byte by byte; what is in them is what was written, read and acknowledged."""
    states = wait_settled(cluster, keys)
    brokers = [node for node in cluster.state.nodes if node.is_broker]
    for key in keys:
        first = log_bytes(brokers[0], key)
        for node in brokers[1:]:
            if log_bytes(node, key) != first:
                yield f"{key}: the logs of nodes {brokers[0].id} and {node.id} differ"
        records: dict[int, bytes] = {}
        sessions: dict[int, Session] = {}
        for header, batch in iter_batches(first):
            for delta, record in enumerate(iter_records(batch)):
                offset = header.base_offset + delta
                if offset in records:
                    yield f"{key}: offset {offset} twice"
                records[offset] = record.value or b""
                sessions[offset] = (header.producer_id, header.producer_epoch)
        hw = states[brokers[0].id][key].hw
        if sorted(records) != list(range(hw)):
            yield f"{key}: {len(records)} records from {min(records, default=None)} to {max(records, default=None)}, HW {hw}"
        yield from _check_partition(key, records, sessions, writers, readers)


def _check_partition(
    key: Key, records: dict[int, bytes], sessions: dict[int, Session], writers: list[Writer], readers: list[Reader]
) -> Iterator[str]:
    by_writer: dict[str, list[tuple[int, int]]] = defaultdict(list)
    for offset, value in records.items():
        name, number, _ = value.split(b":", 2)
        by_writer[name.decode()].append((offset, int(number)))
    names = {writer.name for writer in writers if writer.topic == key[0]}
    if strangers := set(by_writer) - names:
        yield f"{key}: records of {strangers}"
    for writer in writers:
        if writer.topic != key[0]:
            continue
        numbers = [number for _, number in by_writer[writer.name]]
        if numbers and max(numbers) >= writer.sent[key]:
            yield f"{key}: {writer.name} never sent {max(numbers)}"
        if writer.acks != "all":
            continue
        yield from check_order(f"{key}: {writer.name}", by_writer[writer.name], sessions)
        yield from check_acknowledged(f"{key}: {writer.name}", by_writer[writer.name], writer.acked[key])
    for reader in readers:
        wrong = [offset for offset, value in reader.seen[key].items() if records.get(offset) != value]
        if wrong:
            yield f"{key}: {reader.name} read {len(wrong)} records that are not there, the first at {min(wrong)}"


def check_order(whose: str, written: list[tuple[int, int]], sessions: dict[int, Session]) -> Iterator[str]:
    """Numbers grow with their offsets. Only a new epoch of the same producer may begin further back: when a broker begins to
    lead, or the ISR grows, between two requests under way, the first is refused as too early and the second as out of order;
    librdkafka then begins an epoch, and sends again what it has no answer for in any partition, also what was appended."""
    for (before_at, before), (after_at, after) in itertools.pairwise(written):
        (old_id, old_epoch), (new_id, new_epoch) = sessions[before_at], sessions[after_at]
        if after <= before and not (new_id == old_id and new_epoch > old_epoch):
            yield f"{whose}: {after} behind {before} (order or duplicate)"
            return


def check_acknowledged(whose: str, written: list[tuple[int, int]], acked: dict[int, int]) -> Iterator[str]:
    """What was acknowledged is where it was said to be, and was not sent again."""
    at = dict(written)
    last = {number: offset for offset, number in written}
    missing = [
        (offset, number) for offset, number in acked.items() if number not in last or (offset >= 0 and at.get(offset) != number)
    ]
    if missing:
        yield f"{whose}: {len(missing)} acknowledged records are not there, the first: {min(missing)}"
    again = [(offset, number) for offset, number in acked.items() if 0 <= offset < last.get(number, -1)]
    if again:
        yield f"{whose}: {len(again)} acknowledged records were written again, the first: {min(again)}"


def check_metadata_logs(cluster: Cluster, high_watermark: int) -> Iterator[str]:
    """Below the quorum's HW all nodes, brokers too, have the same batches."""
    known: dict[int, tuple[int, bytes]] = {}
    for node in cluster.state.nodes:
        directory = Path(node.data_dir) / "__cluster_metadata-0"
        next_offset = None
        for path in sorted(directory.glob("*.log")):
            for header, batch in iter_batches(path.read_bytes()):
                if header.base_offset >= high_watermark:
                    break
                if next_offset is not None and header.base_offset != next_offset:
                    yield f"node {node.id}: metadata offset {header.base_offset} follows {next_offset}"
                next_offset = header.next_offset
                raw = bytes(batch)
                other, expected = known.setdefault(header.base_offset, (node.id, raw))
                if expected != raw:
                    yield f"metadata batch {header.base_offset} differs on nodes {other} and {node.id}"


def check_traces(cluster: Cluster, topics: set[str]) -> Iterator[str]:
    """One leader per raft epoch and per partition's leader epoch, no fault, nothing at error level, no stack."""
    elected: dict[int, int] = {}
    started: dict[tuple[str, int], int] = {}
    for node in cluster.state.nodes:
        raft_epoch = -1
        for event in read_timeline(node.trace_path):
            match event["event"]:
                case "raft.leader_elected":
                    epoch = event["raft_epoch"]
                    if elected.setdefault(epoch, node.id) != node.id:
                        yield f"raft epoch {epoch} was won by {elected[epoch]} and {node.id}"
                case "raft.state_changed":
                    if event["raft_epoch"] < raft_epoch:
                        yield f"node {node.id}: raft epoch went from {raft_epoch} to {event['raft_epoch']}"
                    raft_epoch = event["raft_epoch"]
                case "partition.leader_started" if _topic_of(event["tp"]) in topics:
                    key = (str(event["tp"]), event["leader_epoch"])
                    if started.setdefault(key, node.id) != node.id:
                        yield f"{key} was led by {started[key]} and {node.id}"
                case "fetcher.partition_paused" if event["error"] in (
                    "INVALID_RECORD",
                    "CORRUPT_MESSAGE",
                    "UNKNOWN_SERVER_ERROR",
                ):
                    yield f"node {node.id} refused what {event['leader_id']} sent for {event['tp']}: {event['error']}"
                case "node.faulted":
                    yield f"node {node.id} faulted: {event['where']}: {event['reason']}\n{event.get('trace') or ''}"
        yield from check_output(node)


def _topic_of(tp: Any) -> str:
    return str(tp[0])


def check_output(node: LocalNode) -> Iterator[str]:
    for line in node.log_path.read_text("utf-8", "replace").splitlines():
        try:
            level = json.loads(line).get("level") if line.startswith("{") else None
        except ValueError:
            level = None
        if level == "error" or "Traceback" in line or "exception" in line.lower() or line.startswith("kraftlite: "):
            yield f"node {node.id} says: {line[:2000]}"


def check_directories(cluster: Cluster, assignments: Callable[[], dict[str, dict[int, tuple[int, ...]]]]) -> Iterator[str]:
    """Every partition directory belongs to a replica that the metadata knows, and nothing waits for deletion. The metadata are
    asked for each look: a client from elsewhere that knocks at these ports may make an internal topic at any time."""
    assigned: dict[str, dict[int, tuple[int, ...]]] = {}

    def leftovers() -> list[str]:
        nonlocal assigned
        assigned = assignments()
        found = []
        for node in cluster.state.nodes:
            for path in sorted(Path(node.data_dir).iterdir()) if node.is_broker else ():
                if not path.is_dir() or path.name == "__cluster_metadata-0" or path.name.endswith("-stray"):
                    continue
                topic, _, index = path.name.rpartition("-")
                if not index.isdecimal() or node.id not in assigned.get(topic, {}).get(int(index), ()):
                    found.append(f"{node.id}/{path.name}")
        return found

    try:
        wait_for("directories of deleted topics are gone", lambda: not leftovers(), every_s=0.2)
    except AssertionError:
        yield f"directories that nobody should have: {leftovers()[:10]}"
    for topic, partitions in assigned.items():
        for index, replicas in partitions.items():
            for node_id in replicas:
                if not (Path(cluster.node(node_id).data_dir) / f"{topic}-{index}").is_dir():
                    yield f"node {node_id} has no directory of {topic}-{index}"


def tails(cluster: Cluster, lines: int = 25) -> str:
    """The end of each node's output and of the common trace."""
    parts = []
    for node in cluster.state.nodes:
        text = node.log_path.read_text("utf-8", "replace").splitlines() if node.log_path.exists() else []
        parts.append(f"--- node {node.id} ({node.state}) {node.log_path}\n" + "\n".join(line[:300] for line in text[-lines:]))
    events = merge_timelines([node.trace_path for node in cluster.state.nodes])[-4 * lines :]
    parts.append("--- trace\n" + "\n".join(json.dumps(event)[:300] for event in events))
    return "\n".join(parts)
