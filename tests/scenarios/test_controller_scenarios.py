"""Golden scenarios of the controller: `tests/scenarios/controller/*.scn`. Renew with `pytest --rewrite`, then judge the diff.

Commands: quorum, register, heartbeat, create, alter_partition, elect_leaders, config, delete, tick, commit, hold, release, elect,
show. Output: the trace of every node (standbys only when they claim or renounce), and each operation's answer.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kraftlite.model.ids import NodeId
from kraftlite.runtime.trace import TraceEvent
from tests.harness.controller_world import Answer, World
from tests.harness.datadriven import Args, run_scenario

SCENARIOS = sorted((Path(__file__).parent / "controller").glob("*.scn"))
_QUIET = frozenset({"controller.stable_advanced"})


def text(value: Any) -> str:
    return "(" + ",".join(str(item) for item in value) + ")" if isinstance(value, tuple) else str(value)


def numbers(words: str) -> list[int]:
    return [int(word) for word in words.split(",") if word]


class Session:
    def __init__(self) -> None:
        self.world: World | None = None
        self.seen: dict[int, int] = {}
        self.waiting: list[tuple[str, Answer]] = []

    def handle(self, command: str, args: Args, _body: list[str]) -> str:
        lines = getattr(self, f"do_{command}")(args) or []
        return "\n".join([*self.trace(), *lines, *self.answers()])

    @property
    def w(self) -> World:
        assert self.world is not None, "start with: quorum"
        return self.world

    def trace(self) -> list[str]:
        lines: list[str] = []
        for node_id, node in self.w.nodes.items():
            lines += [
                f"{node_id} {event.event:<33} {self.facts(event)}".rstrip()
                for event in node.tracer.events[self.seen.get(node_id, 0) :]
                if event.event not in _QUIET
            ]
            self.seen[node_id] = len(node.tracer.events)
        return lines

    @staticmethod
    def facts(event: TraceEvent) -> str:
        facts = event.facts()
        if event.event == "controller.record_appended":
            return f"{facts['record']} {facts['detail']} @{facts['offset']}".replace("  ", " ")
        return " ".join(f"{name}={text(value)}" for name, value in facts.items() if name != "cause")

    def answers(self) -> list[str]:
        lines = []
        for name, answer in list(self.waiting):
            if answer.done:
                self.waiting.remove((name, answer))
                lines.append(f"-> {name}: {self.shown(answer)}")
        return lines

    @staticmethod
    def shown(answer: Answer) -> str:
        if answer.error is not None:
            return answer.error.code.name
        response = answer.response
        for many in ("topics", "partitions", "results", "resources"):
            if hasattr(response, many):
                return " ".join(entry.error.name for entry in getattr(response, many))
        names = ("broker_epoch", "is_caught_up", "is_fenced", "should_shut_down")
        return " ".join(f"{name}={getattr(response, name)}".lower() for name in names if hasattr(response, name))

    def ask(self, name: str, answer: Answer) -> None:
        self.waiting.append((name, answer))

    # --- commands

    def do_quorum(self, args: Args) -> None:
        self.world = World(args.int("nodes", 1))

    def do_register(self, args: Args) -> None:
        for broker in numbers(args.words[0]):
            self.ask(f"register {broker}", self.w.register(broker, incarnation=args.int("incarnation", 1)))

    def do_heartbeat(self, args: Args) -> None:
        for broker in numbers(args.words[0]):
            offset = args.int("offset", self.w.quorum.high_watermark - 1)
            answer = self.w.heartbeat(
                broker, offset=offset, want_fence="want_fence" in args.words, want_shut_down="want_shut_down" in args.words
            )
            self.ask(f"heartbeat {broker}", answer)

    def do_create(self, args: Args) -> None:
        assignments = [numbers(part) for part in args.get("replicas").split("/") if part]
        configs = dict(pair.split(":") for pair in args.get("configs").split(",") if pair)
        topic = self.w.topic(args.words[0], assignments=assignments, configs=configs)
        self.ask(f"create {args.words[0]}", self.w.create_many(topic))

    def do_delete(self, args: Args) -> None:
        self.ask(f"delete {args.words[0]}", self.w.delete(args.words[0]))

    def do_alter_partition(self, args: Args) -> None:
        topic, index = args.words[0].rsplit("-", 1)
        extra = {name: args.int(name) for name in ("broker", "leader_epoch", "partition_epoch") if args.get(name)}
        answer = self.w.alter_partition(
            numbers(args.get("isr")), topic=topic, index=int(index), recovering="recovering" in args.words, **extra
        )
        self.ask(f"alter_partition {args.words[0]}", answer)

    def do_elect_leaders(self, args: Args) -> None:
        topic, index = args.words[1].rsplit("-", 1)
        kind = {"preferred": 0, "unclean": 1}[args.words[0]]
        self.ask(f"elect {args.words[0]} {args.words[1]}", self.w.elect(kind, (topic, int(index))))

    def do_config(self, args: Args) -> None:
        kind, name = args.words[0].split(":")
        changes = [(key, 0, value) for key, value in args.named.items()]
        self.ask("config", self.w.set_config({"topic": 2, "broker": 4}[kind], name, *changes))

    def do_tick(self, args: Args) -> None:
        alive = numbers(args.get("alive"))
        for _ in range(int(args.words[0]) // 500):
            self.w.advance(500)
            for broker in alive:
                self.w.heartbeat(broker)

    def do_hold(self, _args: Args) -> None:
        self.w.commit_at_once = False

    def do_release(self, _args: Args) -> None:
        self.w.commit_at_once = True
        self.w.settle()

    def do_elect(self, args: Args) -> None:
        self.w.quorum.elect(int(args.words[0]))
        self.w.settle()

    def do_show(self, args: Args) -> list[str]:
        if args.words and args.words[0] == "brokers":
            return [
                f"broker {b.broker_id} epoch={b.broker_epoch} fenced={b.fenced} leaving={b.in_controlled_shutdown}".lower()
                for b in (self.w.state.cluster.brokers[NodeId(i)] for i in sorted(self.w.state.cluster.brokers))
            ]
        if args.words and args.words[0] == "agreement":
            hashes = {node.core.state_hash() for node in self.w.nodes.values()}
            return ["all controllers hold the same state" if len(hashes) == 1 else "controllers differ"]
        lines = []
        for name in sorted(self.w.state.replication.topic_ids):
            info = self.w.state.replication.topic(name)
            for index, p in sorted(info.partitions.items()):
                recovering = " recovering" if p.recovering else ""
                lines.append(
                    f"{name}-{index} replicas={text(p.replicas)} isr={text(p.isr)} leader={p.leader} "
                    f"leader_epoch={p.leader_epoch} partition_epoch={p.partition_epoch}{recovering}".lower()
                )
        return lines or ["no topics"]


@pytest.mark.parametrize("path", SCENARIOS, ids=lambda path: path.stem)
def test_scenario(path: Path, rewrite: bool) -> None:
    run_scenario(path, Session().handle, rewrite=rewrite)
