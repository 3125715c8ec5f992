"""Commands about the local cluster: up, ps, kill, pause, resume, restart, down."""

from __future__ import annotations

import re
import shlex
import signal
import time
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

import click

from kraftlite.cli.common import (
    BOOTSTRAP_VARIABLE,
    DATA_DIR_VARIABLE,
    data_dir_of,
    data_dir_option,
    local_errors,
    output_option,
    pairs,
    print_json,
    print_table,
)
from kraftlite.cli.recordings import NEEDS
from kraftlite.cli.target import CONFIG_VARIABLE
from kraftlite.cli.ui import show_links
from kraftlite.local import cluster as local
from kraftlite.local import process, state
from kraftlite.local.layout import FAULTS_ENABLE
from kraftlite.local.ledger import author
from kraftlite.local.secure import admin_security, client_dir, command_config, secure_dir
from kraftlite.security.first_users import ADMIN, FIRST_USERS


def print_nodes(cluster: state.LocalCluster) -> None:
    pages = ("metrics",) if any(node.metrics is not None for node in cluster.nodes) else ()
    addresses = ("kafka", "grpc", *pages)
    rows = []
    for node in (found.describe() for found in cluster.nodes):
        shown = [node["addresses"].get(name) for name in addresses]
        rows.append((node["id"], ",".join(node["roles"]), node["pid"], node["state"], *shown, node["data_dir"]))
    print_table(("NODE", "ROLES", "PID", "STATE", *(name.upper() for name in addresses), "DATA DIRECTORY"), rows)


@click.command("up")
@click.option("--controllers", type=click.IntRange(1), metavar="N", help="Controllers (default 3).")
@click.option("--brokers", type=click.IntRange(1), metavar="N", help="Brokers (default 3).")
@click.option("--combined", is_flag=True, default=None, help="Nodes that are both broker and controller.")
@click.option(
    "--secure",
    is_flag=True,
    default=None,
    envvar="KRAFTLITE_SECURE",
    help="TLS everywhere, SCRAM and client certificates, ACLs, and users with ready client files.",
)
@data_dir_option
@click.option("--detach", "-d", is_flag=True, help="Leave the nodes running and return.")
@click.option("--config", multiple=True, metavar="KEY=VALUE", help="A configuration value of every node.")
@click.option("--faults", is_flag=True, help="Let the nodes be told to cause faults to themselves: kraftlite fault.")
@click.option("--ui", "with_page", is_flag=True, help="Serve the page on which a failover is watched, beside the nodes.")
@output_option
def up(
    controllers: int | None,
    brokers: int | None,
    combined: bool | None,
    secure: bool | None,
    data_dir: Path | None,
    detach: bool,
    config: tuple[str, ...],
    faults: bool,
    with_page: bool,
    output: str,
) -> None:
    """Start a local cluster of real processes; runs until Ctrl-C, or with --detach until `kraftlite down`.

    A directory that has a cluster keeps it: same nodes, ports, cluster id and data.
    """
    directory = data_dir_of(data_dir)
    started = time.monotonic()
    if with_page:
        _check_page()
    with local_errors():
        cluster = local.up(
            directory,
            controllers=controllers,
            brokers=brokers,
            combined=combined,
            secure=secure,
            extra={**_allowing(directory, faults=faults, with_page=with_page), **pairs(config)},
            by=author("cli"),
            on_wait=_say_waiting,
        )
    try:
        with local_errors():
            _tell(cluster, directory, time.monotonic() - started, with_page=with_page, output=output)
        if not detach:
            supervise(directory)
    except KeyboardInterrupt:
        if detach:
            raise
        stop(directory)
    except BaseException:
        if not detach:
            stop(directory)
        raise


def _tell(cluster: state.LocalCluster, directory: Path, took_s: float, *, with_page: bool, output: str) -> None:
    """Print what has been started, and how to use it; starts the page, if it is asked for, whose links belong to it."""
    for warning in local.check_config(cluster):
        click.echo(f"warning: {warning}", err=True)
    links = _page(directory) if with_page else None
    if output == "json":
        found = {"bootstrap_servers": cluster.bootstrap_servers, "nodes": [node.describe() for node in cluster.nodes]}
        print_json(found if links is None else {**found, "ui": links})
    else:
        print_nodes(cluster)
        click.echo("")
        click.echo(f"Cluster {cluster.cluster_id} is up after {took_s:.1f} s. To use it:")
        click.echo(f"  export {BOOTSTRAP_VARIABLE}={cluster.bootstrap_servers}")
        if directory != state.default_data_dir({}).absolute():
            click.echo(f"  export {DATA_DIR_VARIABLE}={shlex.quote(str(directory))}")
        if cluster.secure:
            _tell_users(directory)
        if links is not None:
            show_links(links)


def _allowing(directory: Path, *, faults: bool, with_page: bool) -> dict[str, str]:
    """The page has buttons for faults: a cluster that is made for it allows them. One that is there keeps what it has, unless
    it is asked for."""
    made = not (directory / state.STATE_NAME).exists()
    return {FAULTS_ENABLE: "true"} if faults or (with_page and made) else {}


def _tell_users(directory: Path) -> None:
    click.echo(f"  export {CONFIG_VARIABLE}={shlex.quote(str(command_config(directory)))}")
    click.echo("")
    click.echo("It takes clients with a user's password (SASL_SSL) or certificate (SSL). The files of each kind of client are in")
    for user in FIRST_USERS:
        role = "may do everything" if user == ADMIN else "may do what ACLs allow: kraftlite acl add"
        click.echo(f"  {client_dir(directory, user)}: {role}")
    click.echo(f"The authority that they trust is {secure_dir(directory) / 'ca.pem'}. More users: kraftlite user add NAME")


def _check_page() -> None:
    if find_spec("starlette") is None or find_spec("uvicorn") is None:
        raise click.ClickException(NEEDS)


def _page(directory: Path) -> dict[str, str]:
    """Start the page beside the nodes; returns its links."""
    from kraftlite.ui import beside

    return beside.start(directory)


def _stop_page(directory: Path) -> None:
    from kraftlite.ui import beside

    beside.stop(directory)


def supervise(directory: Path) -> None:
    """Say when a node ends or comes back, as long as one is there. Raises ClickException when they all have ended, and nobody has
    stopped the cluster."""
    states: dict[int, str] = {}
    click.echo("Press Ctrl-C to stop it.", err=True)
    while True:
        try:
            cluster = state.load(directory)
        except state.LocalError:
            return  # wiped from elsewhere
        for node in cluster.nodes:
            found = node.state
            if states.get(node.id, found) != found:
                click.echo(f"node {node.id} is {found}", err=True)
            states[node.id] = found
        if all(found == process.STOPPED for found in states.values()):
            if not process.wait_until(lambda: _is_settled(directory), _SETTLED_WITHIN_S):
                ended = "\n".join(f"  node {node.id}, whose log is {node.log_path}" for node in _left(directory))
                raise click.ClickException(f"every node has ended, and nobody has stopped the cluster:\n{ended}")
            if not _left(directory):
                click.echo("every node has ended", err=True)
                return
        time.sleep(0.2)


_SETTLED_WITHIN_S = 5.0
"""`down` forgets a process a moment after it has ended, and `restart` begins another one."""


def _left(directory: Path) -> list[state.LocalNode]:
    """The nodes that nobody has stopped, whether they run or have ended; none when the cluster is gone."""
    try:
        return [node for node in state.load(directory).nodes if node.pid is not None]
    except state.LocalError:
        return []


def _is_settled(directory: Path) -> bool:
    left = _left(directory)
    return not left or any(node.state != process.STOPPED for node in left)


def stop(directory: Path) -> None:
    """Stop the cluster gracefully; interrupted once more, kill what runs still: nobody else would."""
    click.echo("stopping …", err=True)
    with local_errors():
        try:
            _stop_page(directory)
            _report_late(local.down(directory, by=author("cli"), on_wait=_say_waiting))
        except KeyboardInterrupt:
            click.echo("killing the nodes …", err=True)
            local.kill_all(directory)
            raise


def _say_waiting(line: str) -> None:
    click.echo(f"{line} …", err=True)


def _report_late(late: list[int]) -> None:
    for node_id in late:
        click.echo(f"warning: node {node_id} did not stop within {local.STOP_TIMEOUT_S:.0f} s and was killed", err=True)


@click.command("ps")
@data_dir_option
@output_option
def ps(data_dir: Path | None, output: str) -> None:
    """The nodes of the local cluster."""
    from kraftlite.ui import beside

    with local_errors():
        cluster = state.load(data_dir_of(data_dir))
    page = beside.find(Path(cluster.data_dir))
    if output == "json":
        found = {"nodes": [node.describe() for node in cluster.nodes]}
        print_json(found if page is None else {**found, "ui": {"pid": page.pid, "address": page.address}})
    else:
        print_nodes(cluster)
        if page is not None:
            click.echo(f"\nThe page is served at {page.address} (process {page.pid})")


_TARGET = re.compile(r"\d{1,10}|controller|leader \S{1,249}-\d{1,10}")
_NODE = click.argument("target", nargs=-1, required=True, metavar="NODE | controller | leader TOPIC-PARTITION")


def node_of(directory: Path, target: Sequence[str]) -> int:
    """The id of the node that `target` names: by id, as the active controller, or as the leader of a partition."""
    words = " ".join(target)
    if not _TARGET.fullmatch(words):
        raise click.UsageError(f"{words}: allowed are a node's id, controller, and leader TOPIC-PARTITION")
    cluster = state.load(directory)
    if words.isdecimal():
        return cluster.node(int(words)).id
    if cluster.is_contained:
        from kraftlite.local.supervised import active_controller, leader_of

        return cluster.node(active_controller(cluster) if words == "controller" else leader_of(cluster, target[1])).id
    if words == "controller":
        from kraftlite.local.client import fetch_quorum

        return cluster.node(int(fetch_quorum(_running(cluster), admin_security(cluster))["leader_id"])).id
    return cluster.node(_leader_of(cluster, target[1])).id


def _running(cluster: state.LocalCluster) -> str:
    """The addresses of the brokers that run."""
    found = [node.kafka for node in cluster.nodes if node.kafka and node.state == process.RUNNING]
    if not found:
        raise state.LocalError(f"no broker of the cluster in {cluster.data_dir} runs: name the node by its id")
    return ",".join(found)


def _leader_of(cluster: state.LocalCluster, partition: str) -> int:
    from kraftlite.local.client import cluster_at

    topic, _, index = partition.rpartition("-")
    with cluster_at(_running(cluster), admin_security(cluster)) as client:
        leaders = client.leaders([topic])
    if (topic, int(index)) not in leaders:
        raise state.LocalError(f"there is no partition {partition}")
    leader = leaders[topic, int(index)]
    if leader is None:
        raise state.LocalError(f"partition {partition} has no leader")
    return leader


def _what_follows(directory: Path, node_id: int) -> str | None:
    """Say what a killed or paused node means to the cluster, and how long that takes."""
    from kraftlite.config.server import ConfigError
    from kraftlite.config.server import load as load_config

    cluster = state.load(directory)
    node = cluster.node(node_id)
    controller = next((other for other in cluster.nodes if other.is_controller), node)
    try:
        config = load_config(controller.config_path)
    except ConfigError:
        return None
    told = []
    if node.is_broker:
        silence = config.get_int("broker.session.timeout.ms") / 1000
        told.append(
            f"Its partitions go to other leaders once the controller misses it, after {silence:g} s of silence: "
            "kraftlite describe --watch"
        )
    if node.is_controller:
        silence = config.get_int("controller.quorum.fetch.timeout.ms") / 1000
        told.append(
            f"If it is the active controller, another one is elected after {silence:g} s: kraftlite quorum describe --status"
        )
    return "\n".join(told)


_NUMBER = click.argument("node", type=click.IntRange(0))


def _done(node_id: int, word: str, output: str) -> None:
    if output == "json":
        print_json({"node": node_id, "done": word})
    else:
        click.echo(f"node {node_id} {word}")


@click.command("kill")
@_NODE
@click.option(
    "--signal",
    "name",
    type=click.Choice(["KILL", "TERM"], case_sensitive=False),
    default="KILL",
    show_default=True,
    help="KILL: at once. TERM: a controlled shutdown.",
)
@data_dir_option
@output_option
def kill(target: tuple[str, ...], name: str, data_dir: Path | None, output: str) -> None:
    """Kill a node, as a crash would."""
    number = signal.Signals[f"SIG{name.upper()}"]
    directory = data_dir_of(data_dir)
    with local_errors():
        node = node_of(directory, target)
        local.kill(directory, node, number, by=author("cli"))
        after = _what_follows(directory, node) if number == signal.SIGKILL and output != "json" else None
    _done(node, "killed" if number == signal.SIGKILL else "told to stop", output)
    if after:
        click.echo(after, err=True)


@click.command("pause")
@_NODE
@data_dir_option
@output_option
def pause(target: tuple[str, ...], data_dir: Path | None, output: str) -> None:
    """Stop a node where it is (SIGSTOP), as a long garbage collection or a frozen machine would."""
    directory = data_dir_of(data_dir)
    with local_errors():
        node = node_of(directory, target)
        local.pause(directory, node, by=author("cli"))
        after = _what_follows(directory, node) if output != "json" else None
    _done(node, "paused", output)
    if after:
        click.echo(after, err=True)


@click.command("resume")
@_NUMBER
@data_dir_option
@output_option
def resume(node: int, data_dir: Path | None, output: str) -> None:
    """Let a paused node go on."""
    with local_errors():
        local.resume(data_dir_of(data_dir), node, by=author("cli"))
    _done(node, "resumed", output)


@click.command("restart")
@_NODE
@data_dir_option
@output_option
def restart(target: tuple[str, ...], data_dir: Path | None, output: str) -> None:
    """Start a node again, stopping it gracefully first if it runs."""
    directory = data_dir_of(data_dir)
    with local_errors():
        node = node_of(directory, target)
        local.restart(directory, node, on_late=_report_late, by=author("cli"))
    _done(node, "restarted", output)


@click.command("down")
@data_dir_option
@click.option("--wipe", is_flag=True, help="Remove the cluster's data as well.")
@output_option
def down(data_dir: Path | None, wipe: bool, output: str) -> None:
    """Stop the local cluster: brokers first, then controllers."""
    directory = data_dir_of(data_dir)
    with local_errors():
        _stop_page(directory)
        late = local.down(directory, wipe=wipe, by=author("cli"), on_wait=_say_waiting)
    _report_late(late)
    if output == "json":
        print_json({"stopped": True, "wiped": wipe, "killed": late})
    else:
        click.echo("stopped and removed" if wipe else "stopped; start it again with: kraftlite up")
