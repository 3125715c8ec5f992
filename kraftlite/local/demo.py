"""The main job: a real data set goes through a replicated cluster while its leaders are killed, and nothing is lost.

`python -m kraftlite.local.demo [--once] [--input FILE.jsonl|-]`; `scripts/run` calls it. Exit status 0 only if the verdict holds.
"""

from __future__ import annotations

import json
import signal
import sys
import time
from pathlib import Path

import click
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from kraftlite.client.errors import ClientError
from kraftlite.local import cluster as local
from kraftlite.local.chaos import Chaos
from kraftlite.local.client import cluster_at, fetch_quorum
from kraftlite.local.source import Source, flights, lines
from kraftlite.local.state import STATE_NAME, LocalCluster, LocalError, load
from kraftlite.local.stream import Pace, Streamer, Verdict, read_back

TOPIC = "flights"
PARTITIONS = 6
REPLICAS = 3
MIN_ISR = 2
_PACE = 8000.0
_STREAM_S = 30.0
console = Console(highlight=False)


@click.command()
@click.option("--once", is_flag=True, help="Stop the cluster at the end instead of leaving it running until Ctrl-C.")
@click.option("--input", "source", metavar="FILE.jsonl|-", help="Stream the lines of a file, or of standard input.")
@click.option("--data-dir", type=click.Path(path_type=Path), default=Path("var/demo"), show_default=True, metavar="DIR")
@click.option("--topic", default=None, metavar="NAME", help="Default: flights, or events with --input.")
@click.option(
    "--history",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="Write what was acknowledged and what was killed, for `kraftlite pipeline`.",
)
def demo(once: bool, source: str | None, data_dir: Path, topic: str | None, history: Path | None) -> None:
    """Stream a data set through a local cluster while its leaders are killed, and check that nothing is lost."""
    data_dir = data_dir.absolute()
    chosen = flights() if source is None else lines(source)
    name = topic or (TOPIC if source is None else "events")
    cluster = _start(data_dir)
    holds = False
    try:
        _create_topic(cluster.bootstrap_servers, name)
        holds = _run(data_dir, cluster, name, chosen, history)
        if not once:
            _leave_running(data_dir, cluster, name)
    finally:
        console.print("stopping the cluster …")
        local.down(data_dir)
    sys.exit(0 if holds else 1)


def _start(data_dir: Path) -> LocalCluster:
    if (data_dir / STATE_NAME).exists():
        console.print("removing the cluster of the last run …")
        local.down(data_dir, wipe=True)
    started = time.monotonic()
    cluster = local.up(data_dir)
    table = Table(title=f"cluster {cluster.cluster_id}, up after {time.monotonic() - started:.1f} s", title_justify="left")
    for column in ("node", "roles", "pid", "Kafka clients", "gRPC"):
        table.add_column(column)
    for node in cluster.nodes:
        table.add_row(str(node.id), ", ".join(node.roles), str(node.pid), node.kafka or "", node.grpc)
    console.print(table)
    return cluster


def _create_topic(bootstrap: str, name: str) -> None:
    from kraftlite.client.admin import create_topic

    # The flights are of 2013: by the time in their records they would expire at once.
    config = {"min.insync.replicas": str(MIN_ISR), "retention.ms": "-1"}
    with cluster_at(bootstrap) as cluster:
        create_topic(cluster, name, PARTITIONS, REPLICAS, config)
    console.print(f"created topic {name}: {PARTITIONS} partitions, {REPLICAS} replicas, min.insync.replicas={MIN_ISR}")


def _run(data_dir: Path, cluster: LocalCluster, topic: str, source: Source, history: Path | None) -> bool:
    bootstrap = cluster.bootstrap_servers
    limit = _PACE if source.count is None else min(_PACE, max(1.0, source.count / _STREAM_S))
    streamer = Streamer(bootstrap, topic, source, Pace(limit))
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console) as progress:
        sending = progress.add_task(f"{source.name}: acknowledged", total=source.count)
        started = time.time()

        def say(text: str) -> None:
            progress.console.print(f"{time.time() - started:6.1f} s  {text}")

        chaos = Chaos(data_dir, bootstrap, PARTITIONS, streamer, say)
        chaos.start()
        streamer.run(lambda: progress.update(sending, completed=streamer.ledger.acknowledged))
        chaos.join()
        reading = progress.add_task("read back", total=streamer.ledger.acknowledged)
        verdict = read_back(bootstrap, topic, PARTITIONS, streamer.ledger, lambda read: progress.update(reading, completed=read))
    if history is not None:
        write_history(history, topic, chaos, streamer)
        console.print(f"wrote what was acknowledged to {history}", markup=False)
    _tell(data_dir, bootstrap, topic, chaos, streamer)
    return _conclude(verdict, chaos, streamer)


def _tell(data_dir: Path, bootstrap: str, topic: str, chaos: Chaos, streamer: Streamer) -> None:
    from kraftlite.local.report import tell
    from kraftlite.local.story import History
    from kraftlite.obs.timeline import merge_timelines
    from kraftlite.postmortem.reading import read_metadata_log

    cluster = load(data_dir)
    leader = cluster.node(fetch_quorum(bootstrap)["leader_id"])
    history = History(read_metadata_log(Path(leader.data_dir) / "__cluster_metadata-0"), topic)
    controllers = [node.trace_path for node in cluster.nodes if node.is_controller]
    trace = merge_timelines(controllers, since_ms=chaos.times.broker_killed_ms)
    console.print()
    console.print("What happened, by the metadata log of the active controller:")
    for line in tell(chaos.times, history, trace, streamer.ledger):
        console.print(line, markup=False, soft_wrap=True)
    console.print()


def write_history(path: Path, topic: str, chaos: Chaos, streamer: Streamer) -> None:
    """Write the faults and the acknowledgements, a line of JSON each, for the jobs that check them."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w") as file:
        for line in (*chaos.times.history(), *streamer.ledger.history(topic)):
            file.write(json.dumps(line, separators=(",", ":")) + "\n")


def _conclude(verdict: Verdict, chaos: Chaos, streamer: Streamer) -> bool:
    if chaos.error is not None:
        console.print(f"the failures did not go as planned: {chaos.error}", style="red", markup=False)
    if streamer.ledger.first_error is not None:
        console.print(f"first error of the producer: {streamer.ledger.first_error}", style="red", markup=False)
    holds = verdict.holds and chaos.error is None
    console.print(verdict.line(), style="bold green" if holds else "bold red", markup=False, soft_wrap=True)
    return holds


def _leave_running(data_dir: Path, cluster: LocalCluster, topic: str) -> None:
    program = Path(sys.argv[0]).with_name("kraftlite")
    beside = Path(sys.executable).with_name("kraftlite")
    kraftlite = str(beside if beside.exists() else program)
    console.print()
    console.print("The cluster goes on running until Ctrl-C. Its bootstrap addresses:")
    console.print(f"  export KRAFTLITE_BOOTSTRAP_SERVER={cluster.bootstrap_servers}", soft_wrap=True)
    console.print("Try next:")
    for command in (
        f"describe {topic}",
        f"consume {topic} --from-beginning --max-messages 3",
        "quorum describe --replication",
    ):
        console.print(f"  KRAFTLITE_DATA_DIR={data_dir} {kraftlite} {command}", soft_wrap=True)
    try:
        signal.pause()
    except KeyboardInterrupt:
        console.print()


def main() -> None:
    status = 130

    def interrupt(number: int, frame: object) -> None:
        nonlocal status
        status = 128 + number
        raise KeyboardInterrupt

    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is signal.SIG_DFL:
            signal.signal(number, interrupt)
    try:
        demo.main(standalone_mode=False)
    except click.ClickException as error:
        console.print(f"error: {error.format_message()}", style="red", markup=False)
        sys.exit(error.exit_code)
    except (LocalError, ClientError) as error:
        console.print(f"error: {error}", style="red", markup=False)
        sys.exit(1)
    except (KeyboardInterrupt, click.Abort):
        console.print("interrupted")
        sys.exit(status)


if __name__ == "__main__":
    main()
