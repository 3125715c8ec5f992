"""`kraftlite fault`: faults that running nodes of the local cluster cause to themselves."""

from __future__ import annotations

import re
import signal
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import click

from kraftlite.cli.common import data_dir_of, data_dir_option, local_errors, output_option, print_json, print_table
from kraftlite.cli.local_nodes import node_of
from kraftlite.cli.times import Jump, Span
from kraftlite.local import faults, process, state
from kraftlite.local.ledger import author
from kraftlite.model.faults import CLIENTS, MAX_FOR_MS, Injection, UnknownFault, failing_code

LEASE_MS: Final = 5_000
"""A fault that is held lasts so long beyond the life of who holds it."""
RENEW_S: Final = 1.5


class Code(click.ParamType[int]):
    """One of Kafka's error codes, by name or number."""

    name = "CODE"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        try:
            return failing_code(value)
        except UnknownFault as error:
            raise click.UsageError(f"--error: {error}") from None


class Share(click.ParamType[int]):
    """A share in percent, as so many of a million."""

    name = "PERCENT"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        match = re.fullmatch(r"(\d{1,3}(?:\.\d{1,4})?)%?", str(value))
        ppm = round(float(match[1]) * 10_000) if match is not None else 0
        if not 0 < ppm <= 1_000_000:
            raise click.UsageError(f"{value}: allowed is a share above 0% and up to 100%, as in 5%")
        return ppm


_for_option = click.option(
    "--for", "for_us", type=Span(), metavar="SPAN", help="How long, at most 10m, as in 5s. Without it: until Ctrl-C."
)
_NODE: Final = "controller, leader:TOPIC-PARTITION, or a node's id"
_END: Final = f"{_NODE}, or clients"


def target(directory: Path, text: str) -> int:
    """The id of a node that is named by its id, as the active controller, or as the leader of a partition."""
    return node_of(directory, text.split(":", 1) if text.startswith("leader:") else [text])


def other_end(directory: Path, text: str) -> int:
    return CLIENTS if text == "clients" else target(directory, text)


def _common(function: Callable[..., Any]) -> Callable[..., Any]:
    return _for_option(data_dir_option(output_option(function)))


def _injection(kind: str, **given: Any) -> Injection:
    """A fault that is held; `faults.inject` gives it its id."""
    return Injection(id="new", kind=kind, for_ms=LEASE_MS, **given)


def _do(directory: Path, nodes: Sequence[int], fault: Injection, for_us: int | None, output: str) -> None:
    """Inject at each of the nodes, and hold it if it has no time of its own."""
    for_ms = LEASE_MS if for_us is None else for_us // 1000
    if not 0 < for_ms <= MAX_FOR_MS:
        raise click.UsageError(f"--for: {for_ms} ms: allowed is 1ms to {MAX_FOR_MS // 60_000}m")
    lasting = replace(fault, for_ms=for_ms)
    done: dict[str, int] = {}
    try:
        for node_id in nodes:
            done[faults.inject(directory, node_id, lasting, by=author("cli"))] = node_id
    except state.LocalError:
        if done:
            faults.end(directory, list(done), by=author("cli"))
        raise
    _tell(done, lasting, output, held=for_us is None)
    if for_us is None:
        _hold(directory, done, lasting)


def _tell(done: dict[str, int], fault: Injection, output: str, *, held: bool) -> None:
    if output == "json":
        found = [
            {"id": identity, "node": node_id, "kind": fault.kind, "other": fault.other} for identity, node_id in done.items()
        ]
        print_json({"faults": found, "for_ms": None if held else fault.for_ms})
        return
    end = "until Ctrl-C" if held else f"for {fault.for_ms / 1000:g} s"
    facts = fault.facts
    for identity, node_id in done.items():
        click.echo(f"{identity}: {fault.kind} of node {node_id}{f', {facts}' if facts else ''}, {end}")


def _hold(directory: Path, done: dict[str, int], fault: Injection) -> None:
    """Prolong it until Ctrl-C or SIGTERM, and end it then. Who is killed meanwhile leaves it to the nodes, which end it."""

    def interrupt(number: int, frame: object) -> None:
        raise KeyboardInterrupt

    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, interrupt)
    try:
        while True:
            time.sleep(RENEW_S)
            for identity, node_id in done.items():
                faults.prolong(directory, node_id, fault, identity)
    except KeyboardInterrupt:
        click.echo("ended", err=True)
    finally:
        faults.end(directory, list(done), by=author("cli"))


def _link(kind: str, nodes: tuple[str, str], for_us: int | None, data_dir: Path | None, output: str, **given: Any) -> None:
    directory = data_dir_of(data_dir)
    with local_errors():
        node, other = target(directory, nodes[0]), other_end(directory, nodes[1])
        _do(directory, [node], _injection(kind, other=other, **given), for_us, output)


@click.command("cut")
@click.argument("node", metavar="NODE")
@click.argument("other", metavar="OTHER")
@click.option("--one-way", is_flag=True, help="Only what NODE sends to OTHER.")
@_common
def cut_command(node: str, other: str, one_way: bool, for_us: int | None, data_dir: Path | None, output: str) -> None:
    """Let messages between two nodes, or between a broker and its clients, vanish.

    NODE is controller, leader:TOPIC-PARTITION or an id; OTHER may also be clients, whose bytes are held as TCP holds them.
    """
    kind = "cut-one-way" if one_way else "cut"
    _link(kind, (node, other), for_us, data_dir, output, incoming=not one_way)


@click.command("refuse")
@click.argument("node", metavar="NODE")
@click.argument("other", metavar="OTHER")
@_common
def refuse_command(node: str, other: str, for_us: int | None, data_dir: Path | None, output: str) -> None:
    """Let connections between two nodes, or of a broker's clients, fail at once, also those that there are."""
    _link("refuse", (node, other), for_us, data_dir, output)


@click.command("slow")
@click.argument("node", metavar="NODE")
@click.argument("other", metavar="OTHER")
@click.argument("delay", type=Span(), metavar="SPAN")
@_common
def slow_command(node: str, other: str, delay: int, for_us: int | None, data_dir: Path | None, output: str) -> None:
    """Let every message between two nodes take SPAN longer, as in 250ms. For clients: kraftlite fault api."""
    _link("slow", (node, other), for_us, data_dir, output, amount=delay)


@click.command("lossy")
@click.argument("node", metavar="NODE")
@click.argument("other", metavar="OTHER")
@click.argument("share", type=Share(), metavar="PERCENT")
@_common
def lossy_command(node: str, other: str, share: int, for_us: int | None, data_dir: Path | None, output: str) -> None:
    """Let a share of the messages between two nodes be lost: who sent one hears of it after its timeout."""
    _link("lossy", (node, other), for_us, data_dir, output, amount=share)


@click.command("disk")
@click.argument("node", metavar="NODE")
@click.argument("how", type=click.Choice(["slow", "stall", "full", "error"]))
@click.argument("delay", type=Span(), metavar="[SPAN]", required=False)
@click.option("--dir", "path", metavar="DIR", default="", help="Only one of the node's log directories.")
@_common
def disk_command(
    node: str, how: str, delay: int | None, path: str, for_us: int | None, data_dir: Path | None, output: str
) -> None:
    """Let the disk of a node be slow, stall, be full, or fail.

    slow: every write and flush takes SPAN longer, up to 1s. stall: flushes wait until the end. full: there is no room.
    error: every operation fails; the node then gives up the directory, or stops, and that does not end with the fault.
    """
    if (delay is None) == (how == "slow"):
        raise click.UsageError("slow needs a SPAN, as in 200ms" if how == "slow" else f"{how} takes no SPAN")
    directory = data_dir_of(data_dir)
    with local_errors():
        fault = _injection(f"disk-{how}", amount=delay or 0, path=path)
        _do(directory, [target(directory, node)], fault, for_us, output)


@click.command("clock", context_settings={"ignore_unknown_options": True})
@click.argument("node", metavar="NODE")
@click.argument("jump", type=Jump(), metavar="+SPAN|-SPAN")
@_common
def clock_command(node: str, jump: int, for_us: int | None, data_dir: Path | None, output: str) -> None:
    """Let the wall clock of a node jump forth or back, as in +1h; at the end it jumps back."""
    directory = data_dir_of(data_dir)
    with local_errors():
        fault = _injection("wall-jump", amount=jump)
        _do(directory, [target(directory, node)], fault, for_us, output)


@click.command("api")
@click.argument("api", metavar="API")
@click.option("--error", type=Code(), metavar="CODE", help="Kafka's code, as NOT_LEADER_OR_FOLLOWER or 6.")
@click.option("--delay", type=Span(), metavar="SPAN", help="Answer so much later.")
@click.option("--count", type=click.IntRange(1), metavar="N", help="Only the next N requests, at each node.")
@click.option("--node", "nodes", multiple=True, metavar="NODE", help=f"At which node: {_NODE}. Default: every broker that runs.")
@_common
def api_command(
    api: str,
    error: int | None,
    delay: int | None,
    count: int | None,
    nodes: tuple[str, ...],
    for_us: int | None,
    data_dir: Path | None,
    output: str,
) -> None:
    """Let brokers answer an API of Kafka's protocol with an error, or late, as in: fault api Produce --error 6 --count 3."""
    if error is None and delay is None:
        raise click.UsageError("one of --error and --delay is needed")
    directory = data_dir_of(data_dir)
    with local_errors():
        cluster = state.load(directory)
        code = error or 0
        kind = "api-error" if code else "api-slow"
        fault = _injection(kind, api=api, error=code, amount=delay or 0, count=count or 0)
        brokers = [node.id for node in cluster.nodes if node.is_broker and node.state == process.RUNNING]
        chosen = [target(directory, node) for node in nodes] or brokers
        if not chosen:
            raise state.LocalError(f"no broker of the cluster in {directory} runs")
        _do(directory, chosen, fault, for_us, output)


@click.command("list")
@data_dir_option
@output_option
def list_command(data_dir: Path | None, output: str) -> None:
    """The faults that the running nodes have now, in their own words. What was before: kraftlite explain."""
    with local_errors():
        found = [it.to_dict() for it in faults.listed(data_dir_of(data_dir))]
    if output == "json":
        print_json({"faults": found})
        return
    if not found:
        click.echo("no node has a fault")
        return
    rows = [(it["id"], it["node"], it["kind"], it["what"], f"{it['left_ms'] / 1000:.1f} s", it["hits"]) for it in found]
    print_table(("ID", "NODE", "KIND", "WHAT", "LEFT", "HITS"), rows)


@click.command("end")
@click.argument("ids", nargs=-1, metavar="[ID]…")
@click.option("--all", "everything", is_flag=True, help="All that the nodes have.")
@data_dir_option
@output_option
def end_command(ids: tuple[str, ...], everything: bool, data_dir: Path | None, output: str) -> None:
    """End faults before their time."""
    if bool(ids) == everything:
        raise click.UsageError("name the ids of faults (kraftlite fault list), or give --all")
    with local_errors():
        ended = faults.end(data_dir_of(data_dir), None if everything else ids, by=author("cli"))
        missing = [identity for identity in ids if identity not in ended]
        if missing:
            raise state.LocalError(f"no node has a fault {missing[0]}: it has ended, or there was none (kraftlite fault list)")
    if output == "json":
        print_json({"ended": ended})
    else:
        click.echo(f"ended {', '.join(ended)}" if ended else "no node had a fault")
