"""Runs replication scenarios: commands on a `StepCluster`, trace events and messages as text."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from kraftlite.log.config import LogConfig
from kraftlite.metadata.records import MetadataRecord, NoOpRecord, PartitionChangeRecord
from kraftlite.model.errors import ApiError, ErrorCode
from kraftlite.model.ids import UNCHANGED, NodeId
from kraftlite.model.messages.controller import AlterPartitionRequest, AlterPartitionResponse
from kraftlite.model.messages.replica import ReplicaFetchRequest, ReplicaFetchResponse, ReplicaFetchResult
from kraftlite.replication.api import ProduceResult
from kraftlite.runtime.trace import ListTracer, TraceEvent
from tests.harness.datadriven import Args
from tests.harness.replication_cluster import TP, Node, StepCluster, log_values, read_values

SHOWN = ("partition.", "log.truncated", "log.restarted", "fetcher.partition_paused")
HIDDEN = ("partition.isr_shrunk", "partition.isr_expanded")


class _Tracer(ListTracer):
    def __init__(self, name: str, lines: list[str], names: dict[str, str]) -> None:
        super().__init__()
        self._name, self._lines, self._names = name, lines, names

    def emit(self, event: TraceEvent) -> None:
        super().emit(event)
        if event.event.startswith(SHOWN) and event.event not in HIDDEN:
            facts = {key: value for key, value in event.facts().items() if key != "tp"}
            if "id" in facts:
                facts["id"] = self._names.get(f"{self._name} {facts['id']}", facts["id"])
            self._lines.append(line(f"{self._name} {event.event}", facts))


class _Cluster(StepCluster):
    def __init__(self, lines: list[str], names: dict[str, str], **options: Any) -> None:
        self._lines, self._names = lines, names
        super().__init__(**options)

    def tracer_for(self, broker_id: NodeId) -> ListTracer:
        return self.tracers.setdefault(broker_id, _Tracer(str(broker_id), self._lines, self._names))


def line(head: str, facts: dict[str, Any]) -> str:
    return f"{head:<31} {' '.join(f'{key}={text(value)}' for key, value in facts.items())}".rstrip()


def text(value: Any) -> str:
    if isinstance(value, tuple):
        return f"({','.join(text(item) for item in value)})"
    return str(value).replace(" ", "_")


def _ids(value: str) -> tuple[int, ...]:
    return tuple(int(part) for part in value.strip("()").split(",") if part)


class ScenarioRunner:
    """One scenario file. Call `handle` per block."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.names: dict[str, str] = {}
        self.cluster: _Cluster | None = None
        self.in_flight: list[tuple[Node, AlterPartitionRequest]] = []
        self.seen_records = 0
        self.produced = 0

    @property
    def c(self) -> _Cluster:
        assert self.cluster is not None, "begin with `partition`"
        return self.cluster

    def handle(self, command: str, args: Args, body: list[str]) -> str:
        self.lines.clear()
        handler: Callable[[Args], None] | None = getattr(self, f"do_{command}", None)
        if handler is None:
            raise ValueError(f"no command {command}")
        handler(args)
        if self.cluster is not None:
            self._collect_alters()
        return "\n".join(self.lines)

    def say(self, head: str, **facts: Any) -> None:
        self.lines.append(line(head, facts))

    # --- set-up -------------------------------------------------------------------------------------------------------

    def do_partition(self, args: Args) -> None:
        replicas = _ids(args.get("replicas", "(1,2,3)"))
        config = LogConfig(min_insync_replicas=args.int("min_isr", 1))
        self.cluster = c = _Cluster(
            self.lines,
            self.names,
            count=max(args.int("brokers", 0), *replicas),
            lag_time_max_ms=args.int("lag_time_max_ms", 10_000),
            log_config=config,
        )
        first = args.int("first_record", 0)
        padding = first - len(c.controller.records) - 2
        if padding > 0:
            c.controller.write(*[NoOpRecord()] * padding)
        isr = _ids(args.named["isr"]) if "isr" in args.named else replicas
        leader = args.int("leader", isr[0])
        isr = (leader, *(member for member in isr if member != leader))
        c.create(replicas, isr=isr, leader_epoch=args.int("leader_epoch", 0), partition_epoch=args.int("partition_epoch", 0))
        for node in c.nodes.values():
            if node.id != leader and node.id in replicas and node.id in isr:
                node.fetch_once(NodeId(leader))
        self.seen_records = len(c.controller.records)
        self.lines.clear()

    # --- clients ------------------------------------------------------------------------------------------------------

    def do_produce(self, args: Args) -> None:
        node = self._node(args)
        name = args.get("id", "p?")
        acks = {"all": -1}.get(args.get("acks", "1"), 0) or int(args.get("acks", "1").replace("all", "-1"))
        values = []
        for _ in range(args.int("records", 1)):
            values.append(f"v{self.produced}")
            self.produced += 1
        parked = f"p{node.manager._produce._parked + 1}"
        self.names[f"{node.id} {parked}"] = name
        leo = self._leo(node)
        shown = len(self.lines)
        waits = False

        def done(result: ProduceResult) -> None:
            if result.error is not ErrorCode.NONE or not waits:
                facts: dict[str, Any] = {"id": name, "error": result.error.name}
                if result.error is ErrorCode.NONE:
                    facts = {"id": name, "base": result.base_offset}
                if result.leader is not None:
                    facts |= {"leader": result.leader.leader_id, "leader_epoch": result.leader.leader_epoch}
                self.say(f"{node.id} produce.answered", **facts)

        node.produce(values, acks=acks, timeout_ms=args.int("timeout_ms", 30_000), on_done=done)
        waits = True
        if self._leo(node) != leo:
            self.lines.insert(shown, line(f"{node.id} log.appended", {"base": leo, "leo": self._leo(node)}))

    def do_consume(self, args: Args) -> None:
        node = self._node(args)
        leader_epoch = int(args.named["leader_epoch"]) if "leader_epoch" in args.named else None
        last = int(args.named["last_epoch"]) if "last_epoch" in args.named else None
        found = node.consume(args.int("offset", 0), leader_epoch=leader_epoch, last_fetched_epoch=last)
        if found.error is not ErrorCode.NONE:
            self.say(f"{node.id} consume.answered", error=found.error.name)
            return
        offsets = [offset for offset, _ in read_values(found.records)]
        facts: dict[str, Any] = {"offsets": _list(offsets), "hw": found.hw}
        if found.diverging is not None:
            facts["diverging"] = f"epoch:{found.diverging.leader_epoch},end:{found.diverging.end_offset}"
        self.say(f"{node.id} consume.answered", **facts)

    def do_offsets(self, args: Args) -> None:
        """ListOffsets for the latest offset."""
        node = self._node(args)
        found = node.manager.list_offset(TP, None, -1, current_leader_epoch=None, read_committed=False)
        self.say(f"{node.id} offsets.answered", error=found.error.name, latest=found.offset)

    # --- replication --------------------------------------------------------------------------------------------------

    def do_fetch(self, args: Args) -> None:
        for word in args.words:
            for _ in range(args.int("times", 1)):
                self._fetch(self.c[int(word)], args)

    def _fetch(self, node: Node, args: Args) -> None:
        leader_id = NodeId(args.int("from")) if "from" in args.named else next(iter(node.fetchers()), None)
        if leader_id is None:
            self.lines.append(f"{node.id} fetches from nobody")
            return
        leader = self.c.nodes[leader_id]
        core = node.fetchers()[leader_id]
        request = node.fetch_request(leader_id)
        if request is None:
            self.lines.append(f"{node.id} has nothing to fetch from {leader_id}")
            return
        key = (node.partition().topic_id, 0)
        followed = core._followed[key]
        head = f"{node.id}>{leader_id} Fetch offset={followed.sent_offset}"
        if not leader.up or leader.partition().leader_epoch != followed.leader_epoch:
            head += f" leader_epoch={followed.leader_epoch}"
        if not leader.up or args.get("lost") == "request":
            self.lines.append(f"{head} -> lost")
            node.fail_fetch(leader_id)
            return
        before = len(self.lines)
        response = leader.serve_fetch(request)
        self.lines.insert(before, f"{head} -> {self._answer(leader, request, response)}")
        if args.get("lost") == "response":
            self.lines[before] += " (lost)"
            node.fail_fetch(leader_id)
            return
        leo, shown = self._leo(node), len(self.lines)
        node.take_response(leader_id, response)
        if self._leo(node) > leo:
            self.lines.insert(shown, line(f"{node.id} log.appended", {"base": leo, "leo": self._leo(node)}))
        if core.offsets_request() is not None:
            self._resolve_offsets(node, leader)

    def _answer(self, leader: Node, request: ReplicaFetchRequest, response: ReplicaFetchResponse) -> str:
        if response.error is not ErrorCode.NONE:
            return response.error.name
        result = next(iter(response.partitions), None)
        if result is None:
            return f"[] hw={leader.log().hw}"
        return _result(result, response.payload)

    def _resolve_offsets(self, node: Node, leader: Node) -> None:
        from kraftlite.model.messages.methods import REPLICA_OFFSETS
        from tests.harness.replication_cluster import run_now

        core = node.fetchers()[leader.id]
        answer = run_now(leader.manager.handlers()[REPLICA_OFFSETS](core.offsets_request()))  # type: ignore[arg-type]
        found = answer.partitions[0]
        self.lines.append(f"{node.id}>{leader.id} Offsets -> log_start={found.log_start_offset} leo={found.leo}")
        core.handle_offsets(answer.partitions, self.c.clock.now_ms())

    def do_tick(self, args: Args) -> None:
        self.c.tick(int(args.words[0]))

    def _collect_alters(self) -> None:
        for node in self.c.nodes.values():
            if not node.up:
                continue
            request = node.alter_request()
            if request is not None:
                item = request.partitions[0]
                isr = tuple(member.broker_id for member in item.new_isr)
                self.lines.append(
                    f"{node.id}>C AlterPartition leader_epoch={item.leader_epoch} partition_epoch={item.partition_epoch} "
                    f"isr={text(isr)}"
                )
                self.in_flight.append((node, request))

    def do_deliver(self, args: Args) -> None:
        """`deliver C`: requests to the controller and its answers. `deliver metadata [to=(1,2)]`: the controller's records."""
        if args.words[0] == "metadata":
            targets = _ids(args.get("to")) or tuple(self.c.nodes)
            for target in targets:
                if self.c[target].up:
                    self.c[target].catch_up()
            return
        in_flight, self.in_flight = self.in_flight, []
        for node, request in in_flight:
            try:
                response = self.c.controller.alter_partition(request)
            except ApiError as error:
                self._say_records()
                self.lines.append(f"C>{node.id} AlterPartition -> {error.code.name}")
                node.take_alter(None)
                continue
            self._say_records()
            self._say_alter_answer(node, response)
            if args.get("answers") == "lost":
                self.lines[-1] += " (lost)"
                node.take_alter(None)
            elif node.up:
                node.take_alter(response)

    def _say_alter_answer(self, node: Node, response: AlterPartitionResponse) -> None:
        result = response.partitions[0]
        answer = f"ok partition_epoch={result.partition_epoch}" if result.error is ErrorCode.NONE else result.error.name
        self.lines.append(f"C>{node.id} AlterPartition -> {answer}")

    def _say_records(self) -> None:
        records = self.c.controller.records
        for offset in range(self.seen_records, len(records)):
            self.lines.append(f"{'C controller.record_appended':<31} {_record(records[offset])} @{offset}")
        self.seen_records = len(records)

    # --- faults and elections -----------------------------------------------------------------------------------------

    def do_fence(self, args: Args) -> None:
        self.c.controller.set_fenced(NodeId(int(args.words[0])), True)
        self._say_records()

    def do_unfence(self, args: Args) -> None:
        self.c.controller.set_fenced(NodeId(int(args.words[0])), False)
        self._say_records()

    def do_elect(self, args: Args) -> None:
        self.c.controller.elect(NodeId(int(args.words[0])))
        self._say_records()

    def do_unclean(self, args: Args) -> None:
        self.c.controller.elect_unclean(leader=NodeId(int(args.words[0])))
        self._say_records()

    def do_reassign(self, args: Args) -> None:
        """Each word: a replica set; all of them become one metadata update."""
        for word in args.words:
            replicas = tuple(NodeId(r) for r in _ids(word))
            state = self.c.controller.registration()
            removes = any(it not in replicas for it in state.replicas)
            self.c.controller.write(
                PartitionChangeRecord(
                    topic_id=self.c[1].partition().topic_id,
                    partition=0,
                    leader=state.leader if removes else UNCHANGED,  # the epoch rises
                    replicas=replicas,
                    isr=tuple(member for member in state.isr if member in replicas),
                )
            )
        self._say_records()

    def do_crash(self, args: Args) -> None:
        """The machine dies; what was not synced is lost, unless `keeps=page-cache` (then only the process died)."""
        self.c[int(args.words[0])].crash(lose_page_cache=args.get("keeps") != "page-cache")

    def do_restart(self, args: Args) -> None:
        node = self.c[int(args.words[0])]
        node.boot()
        node.broker_epoch = self.c.controller.register(node.id, fenced=args.get("fenced") == "yes")
        self._say_records()
        if args.get("metadata", "yes") == "yes":
            node.catch_up()

    def do_flush(self, args: Args) -> None:
        for word in args.words:
            node = self.c[int(word)]
            node.log().flush_sync()
            node.manager._hws.write()
            node.log().on_roll = None

    def do_alter_config(self, args: Args) -> None:
        config = replace(self.c.log_config, min_insync_replicas=args.int("min_isr"))
        for node in self.c.nodes.values():
            if node.up:
                list(node.manager.update_log_config_steps(TP.topic, config))

    def do_delete_records(self, args: Args) -> None:
        node = self._node(args)
        node.log().increment_log_start(args.int("before"), "asked")
        node.partition().log_start_changed(urgent=True)

    # --- looking ------------------------------------------------------------------------------------------------------

    def do_state(self, args: Args) -> None:
        """As the seed prints it."""
        leader = next((node for node in self.c.nodes.values() if node.up and node.partition().is_leader), None)
        for node in self.c.nodes.values():
            if not node.up or node.manager.partition(TP) is None:
                continue
            offsets = [offset for offset, _ in log_values(node.log())]
            name = f"R{node.id} (leader)" if node.partition().is_leader else f"R{node.id}"
            found = f"{name:<11} | log = {_list(offsets)}"
            if node is leader or node.partition().is_leader:
                known = {node.id: node.log().leo} | {
                    follower.broker_id: follower.leo for follower in node.partition().leader.followers.values()
                }
                leos = ", ".join(f"R{r} LEO = {'?' if known[r] is None else known[r]}" for r in sorted(known))
                found += f", HighWatermark = {node.log().hw}, {leos}"
            elif args.get("hw") == "yes":
                found += f", HighWatermark = {node.log().hw}"
            self.lines.append(found)

    def do_show(self, args: Args) -> None:
        """Leader's view: ISR, what is pending, epochs."""
        for node in self.c.nodes.values():
            if not node.up or node.manager.partition(TP) is None or (args.words and int(args.words[0]) != node.id):
                continue
            partition = node.partition()
            if partition.leader is None:
                self.say(f"{node.id} follows", leader=partition.leader_id, leader_epoch=partition.leader_epoch)
                continue
            self.say(
                f"{node.id} leads",
                leader_epoch=partition.leader_epoch,
                partition_epoch=partition.partition_epoch,
                isr=partition.leader.isr.committed,
                maximal_isr=partition.leader.isr.maximal,
                recovering=partition.leader.isr.recovering,
                epochs=node.log().epoch_entries,
            )

    def _node(self, args: Args) -> Node:
        return self.c[int(args.words[0])]

    @staticmethod
    def _leo(node: Node) -> int:
        partition = node.manager.partition(TP)
        return -1 if partition is None or partition.log is None else partition.log.leo


def _list(offsets: list[int]) -> str:
    return f"[{','.join(map(str, offsets))}]"


def _result(result: ReplicaFetchResult, payload: bytes) -> str:
    if result.error is not ErrorCode.NONE:
        return result.error.name
    if result.diverging_epoch is not None:
        return f"diverging epoch={result.diverging_epoch.leader_epoch} end={result.diverging_epoch.end_offset}"
    values = read_values(payload[: result.records_length])
    records = f"[{values[0][0]},{values[-1][0] + 1})" if values else "[]"
    return f"{records} hw={result.high_watermark}"


def _record(record: MetadataRecord) -> str:
    if not isinstance(record, PartitionChangeRecord):
        return type(record).__name__.removesuffix("Record")
    facts = {
        name: value for name in ("leader", "isr", "replicas", "recovering") if (value := getattr(record, name)) is not UNCHANGED
    }
    return f"PartitionChange {TP} " + " ".join(f"{name}={text(value)}" for name, value in facts.items())
