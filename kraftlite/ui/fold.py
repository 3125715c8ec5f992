"""The state that the page shows, from the words of all nodes at one moment. Pure.

Nothing is estimated: a number that nobody has said is None, and each number stays with the node that said it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any, Final

from kraftlite.model.messages.introspection import NodeStatusResponse, ReplicaState
from kraftlite.obs.faults import Fault
from kraftlite.ui import claims as c
from kraftlite.ui.losses import TOLD_MS
from kraftlite.ui.words import ALIVE, DEAD, PAUSED, SILENT, UNKNOWN, Key, NodeWords

MAX_ROWS: Final = 200
"""Partitions that the page gets; those with trouble come first. The totals count all."""
MAX_FAULTS: Final = 50
MAX_STORIED: Final = 20
"""Partitions whose stories the overview tells."""
STALE_MS: Final = 1_000
_STOPPED: Final = "the node stopped"
"""The words of a node for the end of its faults with itself."""
_NAMED: Final = 4
CONTROLLER: Final = "controller"
STANDING: Final = "standing"


def node_of(node: NodeWords, now_ms: int, faults: Sequence[Fault]) -> dict[str, Any]:
    """One node: its process, its last words, and the fault that it is under."""
    return {
        "id": node.id,
        "roles": list(node.roles),
        "kafka": node.kafka,
        "grpc": node.grpc,
        "process": node.process,
        "life": node.life(now_ms),
        "heard_ms": node.heard_ms,
        "rtt_ms": node.rtt_ms,
        "error": node.error,
        "polled": node.polled,
        "replicas_ms": node.replicas_ms,
        "leads": None if node.replicas_ms is None else sum(it.is_leader for it in node.replicas.values()),
        "holds": None if node.replicas_ms is None else len(node.replicas) + node.cut,
        "status": None if node.status is None else _status(node.status),
        "fault": None if (fault := _fault_of(node, faults)) is None else fault.to_dict(),
    }


def _fault_of(node: NodeWords, faults: Sequence[Fault]) -> Fault | None:
    """The newest fault that the node is under, or of which its process ended: that of a disk that was made to fail, say."""
    for fault in reversed(faults):
        if fault.node == node.id and (fault.active or (node.process == "stopped" and fault.ended_how == _STOPPED)):
            return fault
    return None


def _status(status: NodeStatusResponse) -> dict[str, Any]:
    return {
        "broker_state": status.broker_state,
        "broker_epoch": status.broker_epoch,
        "raft_state": status.raft_state,
        "raft_epoch": status.raft_epoch,
        "leader_id": status.leader_id,
        "hw": status.raft_high_watermark,
        "leo": status.raft_leo,
        "metadata_offset": status.metadata_offset,
        "active": status.active_controller,
    }


def partition_of(nodes: Sequence[NodeWords], key: Key, now_ms: int, memory: c.Memory) -> dict[str, Any]:
    """One partition: the verdict about its leader, its ISR by whoever knows the newest, and what each replica says of itself."""
    found = c.partition_claims(nodes, key, now_ms)
    verdict, _ = memory.settle(key, c.verdict_of(found), now_ms)
    said = {node.id: node.replicas[key] for node in nodes if key in node.replicas}
    alive = {node.id for node in nodes if node.life(now_ms) == ALIVE}
    teller = _teller(said, verdict, alive)
    newest = said[teller]
    isr = [int(member) for member in newest.isr]
    replicas = [int(member) for member in newest.replicas] or sorted({*said, *isr})
    lost = memory.losses.look(key, newest.topic_id, said, now_ms)
    has_leader = verdict.kind in (c.AGREE, c.SPREADING, c.DISAGREE, c.SPLIT, c.SAME_EPOCH)
    row: dict[str, Any] = {
        "name": f"{key[0]}-{key[1]}",
        "topic": key[0],
        "partition": key[1],
        "verdict": verdict.to_dict(),
        "claims": [{name: it for name, it in claim.to_dict().items() if name != "heard_ms"} for claim in found],
        "told_by": teller,
        "partition_epoch": newest.partition_epoch,
        "isr": isr,
        "min_isr": newest.min_isr or None,
        "replicas": [_replica(node, said.get(node), node in alive) | _seen(newest, node) for node in replicas],
        "leaderless": not has_leader,
        "under_replicated": len(isr) < len(replicas),
        "under_min": bool(newest.min_isr) and len(isr) < newest.min_isr,
        "waits_for": sorted(member for member in isr if member not in alive) if has_leader else [],
        "lost": None if lost is None else lost.to_dict(),
    }
    row["standing"] = _standing(row)
    since = memory.since((STANDING, *key), row["standing"], now_ms)
    return {**row, "since_ms": since.ms, "since_exact": since.exact}


def _standing(row: dict[str, Any]) -> str:
    """The worst that is to be said of a partition: split, leaderless, under_min, waiting, short, news, or whole."""
    if row["verdict"]["kind"] in (c.SPLIT, c.SAME_EPOCH):
        return "split"
    for name, found in (
        ("leaderless", row["leaderless"]),
        ("under_min", row["under_min"]),
        ("waiting", row["waits_for"]),
        ("short", row["under_replicated"]),
        ("news", row["verdict"]["kind"] != c.AGREE),
    ):
        if found:
            return name
    return "whole"


def _teller(said: dict[int, ReplicaState], verdict: c.Verdict, alive: set[int]) -> int:
    """The node whose word on the ISR is taken: the leader's, else the newest of those that answer, else the newest."""
    if verdict.leader in said and verdict.leader in alive:
        return int(verdict.leader)
    return max(said, key=lambda node: (node in alive, said[node].partition_epoch, -node))


def _replica(node: int, said: ReplicaState | None, fresh: bool) -> dict[str, Any]:
    if said is None:
        return {"node": node, "says": None, "epoch": None, "leo": None, "hw": None, "start": None, "fresh": fresh}
    return {
        "node": node,
        "says": "leader" if said.is_leader else "follower",
        "epoch": said.leader_epoch,
        "leo": said.leo,
        "hw": said.hw,
        "start": said.log_start_offset,
        "bytes": said.size_bytes,
        "fresh": fresh,
    }


def _seen(teller: ReplicaState, node: int) -> dict[str, Any]:
    """The end of a follower's log as the leader has it by its fetches, -1 when there was none in its epoch; and whether the high
    watermark stands still for it. None where no leader says it."""
    if not teller.is_leader or node not in teller.followers:
        return {"seen": None, "holds": None}
    end = next((end for it, end in zip(teller.followers, teller.follower_leos, strict=False) if it == node), None)
    holds = end is not None and teller.hw < teller.leo and node in teller.maximal_isr and end <= teller.hw
    return {"seen": end, "holds": holds}


def internal(row: dict[str, Any]) -> bool:
    """Return whether it is of a topic that brokers keep for themselves."""
    return bool(row["topic"].startswith("__"))


def troubled(row: dict[str, Any]) -> bool:
    return bool(row["standing"] not in ("whole", "news") or row["lost"])


def partitions_of(nodes: Sequence[NodeWords], now_ms: int, memory: c.Memory) -> dict[str, Any]:
    """All partitions that some node has spoken of, those with trouble first, and counted. No count is there before any broker has
    said what it holds."""
    keys = sorted({key for node in nodes for key in node.replicas})
    memory.forget([CONTROLLER, *keys, *((STANDING, *key) for key in keys)])
    memory.losses.forget(keys)
    rows = [partition_of(nodes, key, now_ms, memory) for key in keys]
    rows.sort(key=lambda row: (not troubled(row), internal(row), row["topic"], row["partition"]))
    brokers = [node for node in nodes if "broker" in node.roles]
    heard = [node for node in brokers if node.replicas_ms is not None]
    known, answering = bool(heard), sum(node.life(now_ms) == ALIVE for node in brokers)
    now = known and answering > 0  # of what nobody says now nothing is counted but that nobody leads
    return {
        "of_brokers": len(brokers),
        "answering": answering,
        "total": len(rows) if known else None,
        "leaderless": sum(row["leaderless"] for row in rows) if known else None,
        "under_replicated": sum(row["under_replicated"] for row in rows) if now else None,
        "under_min": sum(row["under_min"] for row in rows) if now else None,
        "waiting": sum(bool(row["waits_for"]) for row in rows) if now else None,
        "cut": sum(node.cut for node in nodes),
        "rows": rows,
    }


class Judge:
    """Judges all partitions anew when a node has said something else, or fallen silent, or come back, and once in STALE_MS:
    a verdict may depend on how long it has lasted."""

    def __init__(self) -> None:
        self.memory = c.Memory()
        self.version = 0
        """Counts how often the partitions were something else than before."""
        self._parts: dict[str, Any] = {}
        self._signature: object = None
        self._judged_ms = 0

    def partitions(self, nodes: Sequence[NodeWords], at_ms: int) -> dict[str, Any]:
        signature = [(words.id, words.version, words.life(at_ms)) for words in nodes]
        if signature != self._signature or at_ms - self._judged_ms >= STALE_MS:
            found = partitions_of(nodes, at_ms, self.memory)
            self._signature, self._judged_ms = signature, at_ms
            if found != self._parts:
                self._parts = found
                self.version += 1
        return self._parts

    def interesting(self, nodes: Sequence[NodeWords], at_ms: int) -> list[str]:
        """The partitions whose stories the overview tells: those with trouble first."""
        rows = self.partitions(nodes, at_ms).get("rows", [])
        own = [row for row in rows if not internal(row)]
        found = own if any(map(troubled, own)) else [*own, *[row for row in rows if internal(row) and troubled(row)][:_NAMED]]
        return [row["name"] for row in found][:MAX_STORIED]


def page_of(rows: Sequence[dict[str, Any]], wanted: str) -> dict[str, Any]:
    """The rows that the page gets: those with `wanted` in their names, the first MAX_ROWS."""
    shown = [row for row in rows if wanted in row["name"]]
    return {"matching": len(shown), "rows": shown[:MAX_ROWS]}


def quorum_of(nodes: Sequence[NodeWords], now_ms: int, memory: c.Memory) -> dict[str, Any]:
    """The verdict about the active controller, with all claims."""
    found = c.controller_claims(nodes, now_ms)
    # A broker follows as an observer: it hears of an election late, which is no disagreement of the quorum.
    voters = {node.id for node in nodes if "controller" in node.roles}
    verdict, since = memory.settle(CONTROLLER, c.verdict_of([claim for claim in found if claim.by in voters]), now_ms)
    return {
        "verdict": verdict.to_dict(),
        "since_ms": since.ms,
        "since_exact": since.exact,
        "claims": [claim.to_dict() for claim in found],
    }


# --- the line on top, which says what is wrong


def headlines(
    nodes: Sequence[dict[str, Any]], quorum: dict[str, Any], parts: dict[str, Any], now_ms: int
) -> list[dict[str, Any]]:
    """All that is wrong, the worst first, each with whom it is about and since when; one line that says so when nothing is."""
    if not nodes:
        return [_line("info", "nobody has been heard yet")]
    found = [
        *_of_unheard(quorum, nodes),
        *_of_quorum(quorum),
        *_of_nodes(nodes),
        *_of_losses(parts, now_ms),
        *_of_partitions(parts),
    ]
    order = ("alarm", "warn", "info", "ok")
    found.sort(key=lambda line: order.index(line["level"]))
    if found:
        return found
    if parts["total"] is None and parts["of_brokers"]:
        return [_line("info", "no broker has said anything yet")]
    return [_line("ok", f"everybody agrees; all {len(nodes)} nodes answer")]


def _line(
    level: str, text: str, since: tuple[int | None, bool] = (None, True), kind: str | None = None, name: object = None
) -> dict[str, Any]:
    about = None if kind is None else {"kind": kind, "name": "" if name is None else str(name)}
    return {"level": level, "text": text, "since_ms": since[0], "since_exact": since[1], "about": about}


def _of_unheard(quorum: dict[str, Any], nodes: Sequence[dict[str, Any]]) -> Iterable[dict[str, Any]]:
    """Say what is not known, also when no controller runs that could be heard."""
    lives = [node["life"] for node in nodes if "controller" in node["roles"]]
    if lives and quorum["verdict"]["kind"] == c.UNHEARD:
        level = "alarm" if all(life == DEAD for life in lives) else "info"
        why = "no controller has a process" if level == "alarm" else "no controller has been heard yet"
        since = (quorum["since_ms"], quorum["since_exact"])
        yield _line(level, f"nobody has said anything of the quorum: {why}", since, CONTROLLER)


def _of_quorum(quorum: dict[str, Any]) -> Iterable[dict[str, Any]]:
    verdict, since = quorum["verdict"], (quorum["since_ms"], quorum["since_exact"])
    kind, leader, epoch = verdict["kind"], verdict["leader"], verdict["epoch"]
    who = " and ".join(map(str, verdict["leaders"]))
    if kind == c.SAME_EPOCH:
        yield _line("alarm", f"{who} both lead the quorum in epoch {epoch}: this must never happen", since, CONTROLLER)
    elif kind == c.SPLIT:
        text = f"{who} each say that they lead the quorum; epoch {epoch} of {leader} is the newest, and only it can commit"
        yield _line("alarm", text, since, CONTROLLER)
    elif kind == c.LAST_WORD:
        text = "no controller answers" if leader is None else f"controller {leader} was the active one and does not answer"
        yield _line("alarm", f"{text}; no other is active yet", since, CONTROLLER)
    elif kind == c.NOBODY:
        yield _line("alarm", "no controller is active: an election runs, or there is no majority", since, CONTROLLER)
    elif kind == c.DISAGREE:
        text = f"controller {leader} leads in epoch {epoch}, and not every controller that answers has heard of it"
        yield _line("warn", text, since, CONTROLLER)


_LIFE: Final = {
    DEAD: ("warn", "has no process"),
    PAUSED: ("warn", "is paused: its process stands still"),
    SILENT: ("warn", "does not answer"),
    UNKNOWN: ("info", "has not been heard yet"),
}


def _of_nodes(nodes: Sequence[dict[str, Any]]) -> Iterable[dict[str, Any]]:
    for node in nodes:
        if node["life"] == ALIVE:
            continue
        level, words = _LIFE[node["life"]]
        fault = node["fault"]
        since_ms = node["heard_ms"]
        text = f"{'broker' if 'broker' in node['roles'] else 'controller'} {node['id']} {words}"
        if fault is not None:
            past = {"kill": "killed", "pause": "paused", "stop": "stopped"}.get(fault["kind"], fault["kind"])
            text += f", {past if fault['active'] else f'after {past}'} by {fault['who']} ({fault['door']})"
            since_ms = fault["seen_ms"] or fault["asked_ms"]
        yield _line(level, text, (since_ms, True), "node", node["id"])


_STANDINGS: Final = (
    ("split", "alarm", "have two nodes that say they lead; the newer epoch counts"),
    ("leaderless", "alarm", "have no leader that answers"),
    ("under_min", "alarm", "have fewer replicas in sync than min.insync.replicas: acks=all is refused"),
    ("waiting", "warn", "wait for {members}, in sync by the metadata and not answering: acks=all is held up"),
    ("short", "info", "have fewer replicas in sync than replicas"),
)


def _of_partitions(parts: dict[str, Any]) -> Iterable[dict[str, Any]]:
    for name, level, words in _STANDINGS:
        rows = [row for row in parts["rows"] if row["standing"] == name]
        if not rows:
            continue
        members = sorted({member for row in rows for member in row["waits_for"]})
        yield _grouped(level, rows, words.format(members=", ".join(map(str, members))))


def _of_losses(parts: dict[str, Any], now_ms: int) -> Iterable[dict[str, Any]]:
    rows = [row for row in parts["rows"] if row["lost"] and now_ms - row["lost"]["seen_ms"] < TOLD_MS]
    if not rows:
        return
    total = sum(row["lost"]["count"] for row in rows)
    text = f"{_names(rows)} lost {total} committed record{'' if total == 1 else 's'}"
    if len(rows) == 1:
        it = rows[0]["lost"]
        which = f"offset {it['first']}" if it["count"] == 1 else f"offsets {it['first']} to {it['last']}"
        text += f", {which}: broker {it['leader']} leads epoch {it['epoch']} without them"
    else:
        text += ": their leaders began to lead without them"
    oldest = min(rows, key=lambda row: row["lost"]["seen_ms"])
    yield _line("alarm", text, (oldest["lost"]["seen_ms"], True), "partition", oldest["name"])


def _names(rows: Sequence[dict[str, Any]]) -> str:
    if len(rows) == 1:
        return str(rows[0]["name"])
    own = [row["name"] for row in rows if not internal(row)]
    kept = Counter(row["topic"] for row in rows if internal(row))
    names = ", ".join([*own[:_NAMED], *([f"{len(own) - _NAMED} more"] if len(own) > _NAMED else [])])
    return " and ".join(filter(None, [names, *(f"{count} of {topic}" for topic, count in sorted(kept.items()))]))


def _grouped(level: str, rows: Sequence[dict[str, Any]], words: str) -> dict[str, Any]:
    if len(rows) == 1:
        words = words.replace("have ", "has ", 1).replace("wait for", "waits for", 1)
    oldest = min(rows, key=lambda row: row["since_ms"])
    return _line(level, f"{_names(rows)} {words}", (oldest["since_ms"], oldest["since_exact"]), "partition", rows[0]["name"])


def state_of(
    nodes: Sequence[NodeWords], parts: dict[str, Any], faults: Sequence[Fault], now_ms: int, memory: c.Memory
) -> dict[str, Any]:
    """Nodes, quorum, faults, the counts of partitions (without their rows), and the line on top."""
    shown = [node_of(node, now_ms, faults) for node in nodes]
    quorum = quorum_of(nodes, now_ms, memory)
    return {
        "t": now_ms,
        "nodes": shown,
        "quorum": quorum,
        "partitions": {name: value for name, value in parts.items() if name != "rows"},
        "faults": [fault.to_dict() for fault in faults[-MAX_FAULTS:]][::-1],
        "headlines": headlines(shown, quorum, parts, now_ms),
    }
