"""Golden scenarios of the metadata quorum. `pytest --rewrite tests/scenarios/test_raft_scenarios.py` renews them.

nodes 1,2,3 observers=4 seed=1   a new cluster, nothing delivered yet
tick N MS                        node N's clock alone runs
deliver A>B … | settle           deliver what is in flight on these links | everything, until nothing is
drop A>B … | cut A B | isolate N | heal
append N a b c                   prepare, schedule, and let the linger pass
flush on|off | flush N           flushes complete at once, or when told
crash N | start N | wipe N | shutdown N | resign N
snapshot N offset=O | clean N
run MS                           all clocks run and everything is delivered; only the trace is shown, not the messages
state | log N                    what there is
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kraftlite.log.batch import iter_batches
from kraftlite.model.errors import ErrorCode
from kraftlite.model.messages import raft as m
from kraftlite.runtime.trace import TraceEvent
from tests.harness.datadriven import Args, run_scenario
from tests.harness.raft_checker import InvariantChecker
from tests.harness.raft_cluster import Message, RaftCluster, SimNode

SCENARIOS = sorted((Path(__file__).parent / "raft").glob("*.scn"))
OPTIONS = {"max_retention_bytes", "election_timeout_ms", "fetch_timeout_ms", "election_backoff_max_ms"}


def position(value: m.OffsetAndEpoch) -> str:
    return f"{value.offset}@{value.epoch}"


def describe_request(body: Any) -> str:
    if isinstance(body, m.VoteRequest):
        kind = "pre_vote" if body.pre_vote else "vote"
        return f"Vote {kind} epoch={body.candidate_epoch} log={body.last_epoch_end_offset}@{body.last_epoch}"
    if isinstance(body, m.BeginQuorumEpochRequest):
        return f"BeginQuorumEpoch epoch={body.leader_epoch}"
    if isinstance(body, m.EndQuorumEpochRequest):
        return f"EndQuorumEpoch epoch={body.leader_epoch} successors=({','.join(map(str, body.preferred_successors))})"
    if isinstance(body, m.RaftFetchRequest):
        return f"Fetch epoch={body.current_leader_epoch} from={body.fetch_offset}@{body.last_fetched_epoch}"
    assert isinstance(body, m.FetchSnapshotRequest)
    return f"FetchSnapshot {position(body.snapshot_id)} position={body.position}"


def describe_response(body: Any) -> str:
    if body.error is not ErrorCode.NONE:
        return f"{body.error.name} epoch={body.leader_epoch} leader={body.leader_id}"
    if isinstance(body, m.VoteResponse):
        return "granted" if body.vote_granted else f"refused epoch={body.leader_epoch} leader={body.leader_id}"
    if isinstance(body, m.RaftFetchResponse):
        if body.diverging_epoch is not None:
            return f"diverging {position(body.diverging_epoch)}"
        if body.snapshot_id is not None:
            return f"snapshot {position(body.snapshot_id)}"
        headers = [header for header, _ in iter_batches(body.payload)]
        records = f"[{headers[0].base_offset},{headers[-1].next_offset})" if headers else "[]"
        return f"{records} hw={body.high_watermark}"
    if isinstance(body, m.FetchSnapshotResponse):
        return f"{len(body.payload)} of {body.size} bytes"
    return "ok"


class World:
    """Runs the commands of one file."""

    def __init__(self) -> None:
        self.cluster: RaftCluster | None = None
        self.lines: list[str] = []
        self.show_messages = True

    def handle(self, command: str, args: Args, body: list[str]) -> str:
        self.lines = []
        getattr(self, f"do_{command}")(args)
        return "\n".join(self.lines)

    @property
    def c(self) -> RaftCluster:
        assert self.cluster is not None, "the first command is `nodes`"
        return self.cluster

    def node(self, args: Args, index: int = 0) -> SimNode:
        return self.c[int(args.words[index])]

    def on_event(self, node: SimNode, event: TraceEvent) -> None:
        if event.event.startswith("raft."):
            facts = " ".join(f"{key}={self.show(value)}" for key, value in event.facts().items())
            self.lines.append(f"{node.id} {event.event:<28} {facts}".rstrip())

    @staticmethod
    def show(value: Any) -> str:
        return f"({','.join(map(str, value))})" if isinstance(value, tuple) else str(value).replace(" ", "_")

    def on_post(self, message: Message) -> None:
        if not self.show_messages:
            return
        link = f"{message.source}>{message.target}"
        lost = "  (lost)" if (message.source, message.target) in self.c.cuts else ""
        if message.kind == "req":
            self.lines.append(f"{link} {describe_request(message.body)}{lost}")
        else:
            self.lines.append(f"{link} {message.method.name} -> {describe_response(message.body)}{lost}")

    def do_nodes(self, args: Args) -> None:
        voters = [int(word) for word in args.words[0].split(",")]
        observers = [int(word) for word in args.get("observers").split(",") if word]
        options = {name: args.int(name) for name in sorted(OPTIONS) if name in args.named}
        self.cluster = RaftCluster(voters, observers, seed=args.int("seed", 1), start=False, **options)
        self.cluster.on_event, self.cluster.on_post = self.on_event, self.on_post
        self.cluster.on_step = InvariantChecker(self.cluster).check
        for node in self.cluster.nodes.values():
            node.start()

    def do_tick(self, args: Args) -> None:
        self.node(args).advance(int(args.words[1]))

    def do_deliver(self, args: Args) -> None:
        for link in args.words:
            source, target = link.split(">")
            if not self.c.deliver_link(int(source), int(target)):
                self.lines.append(f"{link} nothing in flight")

    def do_drop(self, args: Args) -> None:
        for link in args.words:
            source, target = link.split(">")
            self.lines.append(f"{link} dropped {self.c.drop_link(int(source), int(target))}")

    def do_settle(self, args: Args) -> None:
        self.c.settle()

    def do_cut(self, args: Args) -> None:
        self.c.cut(int(args.words[0]), int(args.words[1]))

    def do_isolate(self, args: Args) -> None:
        self.c.isolate(int(args.words[0]))

    def do_heal(self, args: Args) -> None:
        self.c.heal()

    def do_append(self, args: Args) -> None:
        node = self.node(args)
        node.append(*args.words[1:])
        node.advance(25)

    def do_flush(self, args: Args) -> None:
        if args.words[0] in ("on", "off"):
            self.c.auto_flush = args.words[0] == "on"
        else:
            self.node(args).flush()

    def do_crash(self, args: Args) -> None:
        self.node(args).crash()

    def do_start(self, args: Args) -> None:
        self.node(args).start()

    def do_wipe(self, args: Args) -> None:
        self.node(args).wipe()
        checker = self.c.on_step.__self__  # type: ignore[union-attr]
        checker.forget(self.node(args))

    def do_shutdown(self, args: Args) -> None:
        self.node(args).shut_down()

    def do_resign(self, args: Args) -> None:
        self.node(args).resign()

    def do_snapshot(self, args: Args) -> None:
        node = self.node(args)
        offset = args.int("offset")
        covered = [record for batch in node.recorder.batches if batch.last_offset < offset for record in batch.records]
        node.snapshot(offset, covered)

    def do_clean(self, args: Args) -> None:
        node = self.node(args)
        node.core.metalog.unlink(node.core.metalog.clean(node.wall_ms, node.recorder.next_offset))

    def do_run(self, args: Args) -> None:
        self.show_messages = False
        self.c.run(int(args.words[0]))
        self.show_messages = True

    def do_state(self, args: Args) -> None:
        for node in self.c.nodes.values():
            if not node.alive:
                self.lines.append(f"{node.id} down")
                continue
            core = node.core
            role = core.state_name if core.state.name in (core.state_name, "unattached") else f"observer ({core.state.name})"
            self.lines.append(
                f"{node.id} {role:<12} epoch={core.epoch} leader={core.leader.leader_id} "
                f"log=[{core.metalog.log_start_offset},{core.leo}) hw={core.high_watermark} "
                f"applied=({','.join(node.recorder.records)})"
            )

    def do_log(self, args: Args) -> None:
        log = self.node(args).core.metalog.log
        offset = log.log_start_offset
        while offset < log.leo:
            for header, _ in iter_batches(log.read(offset, 1 << 20, up_to=log.leo)):
                kind = "control" if header.is_control else "records"
                self.lines.append(f"[{header.base_offset},{header.next_offset}) epoch={header.partition_leader_epoch} {kind}")
                offset = header.next_offset


@pytest.mark.parametrize("path", SCENARIOS, ids=lambda path: path.stem)
def test_raft_scenario(path: Path, rewrite: bool) -> None:
    run_scenario(path, World().handle, rewrite=rewrite)
