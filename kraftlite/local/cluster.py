"""The operations on a local cluster: up, kill, pause, resume, restart, down."""

from __future__ import annotations

import contextlib
import json
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from kraftlite.local import process
from kraftlite.local.faults import forget_links
from kraftlite.local.layout import added_to_files, plan, refuse_leftovers, refuse_path, with_metrics_ports, write_files
from kraftlite.local.ledger import PYTHON, Ledger, author
from kraftlite.local.ready import PATIENCE, READY_TIMEOUT_S, size_of, wait_ready
from kraftlite.local.secure import create, first_credentials, formatted
from kraftlite.local.state import (
    STARTING_NAME,
    STATE_NAME,
    LocalCluster,
    LocalError,
    LocalNode,
    load,
    locked,
    locked_within,
    save,
)
from kraftlite.local.supervised import let_start, wait_answer
from kraftlite.local.wipe import remove_files
from kraftlite.model.faults import KINDS
from kraftlite.model.ids import METADATA_TOPIC
from kraftlite.obs.faults import INJECTED, Author

STOP_TIMEOUT_S = 60.0
KILL_TIMEOUT_S = 10.0
"""The wait for a process that was killed to be gone."""
LAUNCH_TIMEOUT_S = 120.0
WITH_THE_PROCESS = tuple(kind for kind in INJECTED if KINDS[kind].family != "network")
"""The faults that end with the process of their node. Those of its links have another end, which lasts."""
OTHERS_TIMEOUT_S = 300.0
"""The wait of `down` for a command that is changing the cluster: longer than `up` takes on a busy machine."""
DEFAULT_CONTROLLERS = 3
DEFAULT_BROKERS = 3


def up(
    data_dir: Path,
    *,
    controllers: int | None = None,
    brokers: int | None = None,
    combined: bool | None = None,
    secure: bool | None = None,
    extra: Mapping[str, str] | None = None,
    by: Author | None = None,
    on_wait: Callable[[str], None] = lambda line: None,
) -> LocalCluster:
    """Make the cluster, or take the one that is there, and start every node that does not run; returns when all are ready.

    An existing cluster keeps its ids, ports and cluster id; `controllers`, `brokers`, `combined`, `secure` must agree with it if
    given. `on_wait` is told once when another command holds this one up.
    """
    data_dir = data_dir.absolute()
    refuse_path(data_dir)
    with locked(data_dir / ".up.lock", "up", on_wait):
        if (data_dir / STATE_NAME).exists():
            cluster = load(data_dir)
            refuse_containers(cluster, "up -d")
            _check_same(cluster, controllers, brokers, combined, secure)
            if extra:
                cluster = _rewrite(cluster, extra)
        else:
            cluster = _make(data_dir, controllers, brokers, bool(combined), bool(secure), extra or {})
        stopped = [node for node in cluster.nodes if node.state == process.STOPPED]
        try:
            # Directories are formatted once. One that is empty later on has lost something, and its node says so.
            first = (data_dir / STARTING_NAME).exists()
            lost = {} if first else _without_disk(stopped)
            started = start(cluster, [node for node in stopped if node not in lost], format_first=first, by=by)
            (data_dir / STARTING_NAME).unlink(missing_ok=True)
            formatted(started)
        except BaseException:
            current = load(data_dir)
            stop_nodes([current.node(node.id) for node in stopped])
            raise
        for node, directory in lost.items():
            raise LocalError(f"{_lost(node, directory)}. The other nodes run")
        return started


def _make(
    data_dir: Path, controllers: int | None, brokers: int | None, combined: bool, secure: bool, extra: Mapping[str, str]
) -> LocalCluster:
    """Write the files of a new cluster. When that fails, or is interrupted, there are none."""
    starting = data_dir / STARTING_NAME
    starting.touch()
    try:
        cluster = plan(
            data_dir,
            controllers=controllers if controllers is not None else DEFAULT_CONTROLLERS,
            brokers=brokers if brokers is not None else (controllers if combined and controllers else DEFAULT_BROKERS),
            combined=combined,
            secure=secure,
        )
        refuse_leftovers(cluster)
    except BaseException:
        starting.unlink(missing_ok=True)
        raise
    try:
        if cluster.secure:
            create(cluster)
        cluster = with_metrics_ports(cluster, extra)
        write_files(cluster, extra)
        check_config(cluster)
        save(cluster)
    except BaseException:
        with contextlib.suppress(LocalError, OSError):  # what was in the way is told
            remove_files(data_dir, cluster)
        raise
    return cluster


def check_config(cluster: LocalCluster) -> tuple[str, ...]:
    """The warnings about the nodes' configurations. Raises LocalError with everything that is wrong with them."""
    from kraftlite.config.server import ConfigError
    from kraftlite.config.server import load as load_config

    problems: dict[str, None] = {}
    warnings: dict[str, None] = {}
    for node in cluster.nodes:
        place = f" ({node.config_path}:"
        try:
            found = load_config(node.config_path).warnings
        except ConfigError as error:
            problems.update(dict.fromkeys(problem.partition(place)[0] for problem in error.problems))
        else:
            warnings.update(dict.fromkeys(found))
    if problems:
        raise LocalError("the nodes cannot run with this configuration: " + "; ".join(problems))
    return tuple(warnings)


def _check_same(
    cluster: LocalCluster, controllers: int | None, brokers: int | None, combined: bool | None, secure: bool | None
) -> None:
    if secure is not None and secure != cluster.secure:
        raise LocalError(
            f"{cluster.data_dir} has a cluster that was made {'with' if cluster.secure else 'without'} --secure, and stays so; "
            "use another --data-dir, or remove it with: kraftlite down --wipe"
        )
    wanted = (
        cluster.controllers if controllers is None else controllers,
        cluster.brokers if brokers is None else brokers,
        cluster.combined if combined is None else combined,
    )
    if wanted != (cluster.controllers, cluster.brokers, cluster.combined):
        kind = "combined " if cluster.combined else ""
        raise LocalError(
            f"{cluster.data_dir} has a {kind}cluster of {cluster.controllers} controllers and {cluster.brokers} brokers; "
            "use another --data-dir, or remove it with: kraftlite down --wipe"
        )


def _rewrite(cluster: LocalCluster, extra: Mapping[str, str]) -> LocalCluster:
    if cluster.running:
        raise LocalError(
            f"the cluster in {cluster.data_dir} is running; stop it with kraftlite down before changing its --config"
        )
    cluster = with_metrics_ports(cluster, extra)
    with added_to_files(cluster, extra):
        check_config(cluster)
        save(cluster)
    return cluster


def start(
    cluster: LocalCluster,
    nodes: Sequence[LocalNode],
    *,
    wait: bool = True,
    format_first: bool = False,
    joining: bool = False,
    by: Author | None = None,
    how: str = "start",
) -> LocalCluster:
    """Start these nodes and wait until each is ready. Raises LocalError naming the node that did not make it, and why.

    `format_first`: they are the first of a new cluster; `joining`: they are new in a cluster that runs. Without `wait` it returns
    as soon as the processes exist. In the ledger of faults it ends what had ended the nodes, as `how`
    says, by `by`.
    """
    if not nodes:
        return cluster
    data_dir = Path(cluster.data_dir)
    offsets = {node.id: size_of(node.log_path) for node in nodes}
    if not format_first and not joining:
        for node, directory in _without_disk(nodes).items():
            raise LocalError(_lost(node, directory))
    supervised = [node for node in nodes if node.is_supervised]
    own = [node for node in nodes if node not in supervised]
    let_start(supervised)
    # A process whose id is not written down nobody could stop.
    with process.uninterrupted(), locked(data_dir / ".cluster.lock"):
        current = load(data_dir)
        still = [node for node in own if current.node(node.id).state == process.STOPPED]
        pids = _launch(cluster, still, format_first=format_first, joining=joining) if still else {}
        started = {
            node_id: replace(current.node(node_id), pid=pid, mark=process.start_mark(pid) or "gone")
            for node_id, pid in pids.items()
        }
        current = replace(current, nodes=tuple(started.get(node.id, node) for node in current.nodes))
        try:
            save(current)
        except BaseException:
            stop_nodes(list(started.values()))
            raise
    by = by or author(PYTHON)
    with contextlib.suppress(LocalError):  # a node that does not answer now ends its half when its time is over
        forget_links(data_dir, [node.id for node in nodes], by=by)
    ledger = Ledger(data_dir, by)
    for node in nodes:
        ledger.end(node.id, how)
    if wait:
        wait_ready([current.node(node.id) for node in own], offsets)
        wait_answer(current, supervised, READY_TIMEOUT_S * PATIENCE)
    return current


def _without_disk(nodes: Sequence[LocalNode]) -> dict[LocalNode, str]:
    """The controllers of a dynamic quorum whose metadata directories are empty, and these directories."""
    from kraftlite.config.server import ConfigError
    from kraftlite.config.server import load as load_config

    found = {}
    for node in nodes:
        if node.directory_id is None:
            continue
        try:
            directory = load_config(node.config_path).metadata_log_dir
        except ConfigError:
            continue  # which the node says better
        if not any((Path(directory) / name).exists() for name in ("meta.properties", f"{METADATA_TOPIC}-0")):
            found[node] = directory
    return found


def _lost(node: LocalNode, directory: str) -> str:
    """Say what has happened to a controller whose disk is empty. Formatted anew it is another replica, which must not vote in the
    place of the one that is lost (DQ-44)."""
    leave, more = ("broker", " and kraftlite add-broker") if node.is_broker else ("controller", "")
    what = (
        f"controller {node.id} has lost its disk: there is nothing in {directory}. The quorum knows it by the "
        f"directory {node.directory_id}, and another one does not vote in its place"
    )
    if not (node.log_path.exists() or Path(node.data_dir).exists()):  # nor can it be told from one whose files were all removed
        what = (
            f"controller {node.id} has never run, or all that it wrote is gone, its log {node.log_path}, too: what was adding it "
            "was ended before it had begun"
        )
    remedy = f"kraftlite remove-{leave} {node.id}, then kraftlite add-controller{more}"
    return f"{what}. While most of the controllers run, go on with: {remedy}"


def _is_new(node: LocalNode) -> bool:
    """A broker that `add-broker` has written down, and never started, because it was killed. Whatever has run has a log."""
    return not (node.is_controller or node.log_path.exists() or Path(node.data_dir).exists()) and node.config_path.exists()


def _launch(cluster: LocalCluster, nodes: Sequence[LocalNode], *, format_first: bool, joining: bool) -> dict[int, int]:
    request = {
        "cluster_id": cluster.cluster_id,
        "add_scram": first_credentials(cluster) if format_first else [],
        "nodes": [
            {
                "id": node.id,
                "config": str(node.config_path),
                "log": str(node.log_path),
                "voters": cluster.first_voters if format_first and cluster.dynamic else "" if cluster.dynamic else None,
                "directory_id": node.directory_id,
                "format": format_first or joining or _is_new(node),
            }
            for node in nodes
        ],
    }
    try:
        command = [sys.executable, "-m", "kraftlite.local.launch"]
        done = process.answer_of(command, json.dumps(request), cwd=cluster.data_dir, timeout_s=LAUNCH_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        raise LocalError(f"the nodes could not be started within {2 * LAUNCH_TIMEOUT_S:.0f} s") from None
    if done.returncode == -signal.SIGTERM:
        raise LocalError(f"the nodes could not be started within {LAUNCH_TIMEOUT_S:.0f} s")
    if done.returncode != 0:
        lines = [line for line in done.stderr.splitlines() if line.strip()]
        raise LocalError(f"the nodes could not be started: {lines[-1] if lines else 'no reason was given'}")
    return {int(node_id): int(pid) for node_id, pid in json.loads(done.stdout)["pids"].items()}


def kill(data_dir: Path, node_id: int, number: signal.Signals, *, by: Author | None = None) -> LocalNode:
    """Signal a running (or, with SIGKILL, paused) node. With SIGKILL returns when it is gone; with SIGTERM at once.

    This, `pause`, `resume` and `restart` are written into the ledger of faults; `by` says who asks (default: this user, from a
    program).
    """
    node = _reachable(load(data_dir), node_id)
    ledger = Ledger(data_dir, by or author(PYTHON))
    fault = ledger.ask("kill" if number == signal.SIGKILL else "stop", node_id)
    _signal(ledger, fault, node, number)
    if number == signal.SIGKILL and process.wait_until(lambda: node.state == process.STOPPED, STOP_TIMEOUT_S):
        ledger.see(fault, node_id)
        ledger.end(node_id, "kill", ("pause", *WITH_THE_PROCESS))
    return node


def _reachable(cluster: LocalCluster, node_id: int) -> LocalNode:
    """The node. Raises LocalError for one in a container where nobody takes such requests."""
    node = cluster.node(node_id)
    if node.contained and not node.is_supervised:
        raise LocalError(
            f"node {node_id} runs in a container without a supervisor: KRAFTLITE_FAULTS=true docker compose up -d, or "
            f"docker kill, pause and start {node.endpoint.host}"
        )
    return node


def _signal(ledger: Ledger, fault: str, node: LocalNode, number: signal.Signals) -> None:
    if not node.send(number):
        ledger.fail(fault, node.id, "it is not running")
        raise LocalError(f"node {node.id} is not running")


def pause(data_dir: Path, node_id: int, *, by: Author | None = None) -> LocalNode:
    node = _reachable(load(data_dir), node_id)
    ledger = Ledger(data_dir, by or author(PYTHON))
    fault = ledger.ask("pause", node_id)
    _signal(ledger, fault, node, signal.SIGSTOP)
    if process.wait_until(lambda: node.state != process.RUNNING, 5):
        ledger.see(fault, node_id)
    return node


def resume(data_dir: Path, node_id: int, *, by: Author | None = None) -> LocalNode:
    node = _reachable(load(data_dir), node_id)
    ledger = Ledger(data_dir, by or author(PYTHON))
    fault = ledger.ask("resume", node_id)
    _signal(ledger, fault, node, signal.SIGCONT)
    if process.wait_until(lambda: node.state != process.PAUSED, 5):
        ledger.see(fault, node_id)
        ledger.end(node_id, "resume", ("pause",))
        ledger.finish(fault, node_id)
    return node


def restart(
    data_dir: Path, node_id: int, *, on_late: Callable[[list[int]], None] = lambda late: None, by: Author | None = None
) -> LocalCluster:
    """Stop the node gracefully if it runs, then start it, with the same directory and ports; returns when it is ready.

    `on_late` is told when it did not stop in time and was killed.
    """
    cluster = load(data_dir)
    _reachable(cluster, node_id)
    by = by or author(PYTHON)
    ledger = Ledger(data_dir, by)
    fault = ledger.ask("restart", node_id)
    late = stop_nodes([cluster.node(node_id)])
    ledger.see(fault, node_id)
    if late:
        on_late(late)
    try:
        found = start(cluster, [cluster.node(node_id)], by=by, how="restart")
    except LocalError as error:
        ledger.fail(fault, node_id, str(error))
        raise
    ledger.finish(fault, node_id)
    return found


def start_node(data_dir: Path, node_id: int, *, by: Author | None = None) -> LocalCluster:
    """Start a node that has no process, and return when it is ready."""
    by = by or author(PYTHON)
    cluster = load(data_dir)
    node = _reachable(cluster, node_id)
    ledger = Ledger(data_dir, by)
    fault = ledger.ask("start", node_id)
    try:
        if node.state != process.STOPPED:
            raise LocalError(f"node {node_id} runs already")
        found = start(cluster, [node], by=by)
    except LocalError as error:
        ledger.fail(fault, node_id, str(error))
        raise
    ledger.finish(fault, node_id)
    return found


def stop_nodes(nodes: Sequence[LocalNode]) -> list[int]:
    """SIGTERM, wait, and SIGKILL for those that take too long, whose ids are returned. Paused nodes are resumed first."""
    for node in nodes:
        if node.send(signal.SIGTERM):
            node.send(signal.SIGCONT)
    process.wait_until(lambda: all(node.state == process.STOPPED for node in nodes), STOP_TIMEOUT_S)
    late = [node for node in nodes if node.state != process.STOPPED]
    _kill(late)
    return [node.id for node in late]


def _kill(nodes: Sequence[LocalNode]) -> None:
    for node in nodes:
        node.send(signal.SIGKILL)
    process.wait_until(lambda: all(node.state == process.STOPPED for node in nodes), KILL_TIMEOUT_S)


def down(
    data_dir: Path,
    *,
    wipe: bool = False,
    by: Author | None = None,
    on_wait: Callable[[str], None] = lambda line: None,
    patience_s: float = OTHERS_TIMEOUT_S,
) -> list[int]:
    """Stop brokers, then controllers (which the brokers' controlled shutdown needs). Returns the ids that took too long and were
    killed.

    The ledger of faults notes it, but for a cluster that is wiped. An `up` that is under way, or a change of the nodes, goes
    before: `on_wait` is told of it. Raises LocalError when that does not end within `patience_s`.

    `wipe` removes what `up` and the nodes wrote, and the directory itself when nothing else is in it. Then all nodes are killed
    at once: whatever they would bring into order and write first is removed.
    """
    data_dir = data_dir.absolute()
    load(data_dir)  # where no cluster is, no file of a lock is made
    with locked_within(data_dir / ".up.lock", patience_s, "down", on_wait):
        cluster = load(data_dir)
        refuse_containers(cluster, "down")
        if wipe:
            with locked(data_dir / ".cluster.lock"):
                cluster = load(data_dir)
                _kill(cluster.nodes)
                remove_files(data_dir, cluster)
            return []
        _note_down(cluster, Ledger(data_dir, by or author(PYTHON)))
        late = stop_nodes([node for node in cluster.nodes if node.is_broker and not node.is_controller])
        late += stop_nodes([node for node in cluster.nodes if node.is_controller])
        _forget_stopped(data_dir)
    return late


def kill_all(data_dir: Path) -> None:
    """Kill all nodes, for somebody who does not wait for `down`."""
    _kill(load(data_dir).nodes)
    _forget_stopped(data_dir)


def _forget_stopped(data_dir: Path) -> None:
    """Nodes that have no process have no id of one. A node that somebody has started again meanwhile keeps its own. A file that
    cannot be written does not matter: the ids of processes that have ended are known as such."""
    with contextlib.suppress(LocalError), locked(data_dir / ".cluster.lock"):
        now = load(data_dir)
        gone = {node.id for node in now.nodes if node.state == process.STOPPED}
        save(replace(now, nodes=tuple(replace(it, pid=None, mark=None) if it.id in gone else it for it in now.nodes)))


def refuse_containers(cluster: LocalCluster, instead: str) -> None:
    """Raises LocalError, with the command of docker compose that does it, where others than we begin and end the nodes."""
    if cluster.is_contained:
        raise LocalError(f"the nodes of the cluster in {cluster.data_dir} run in containers: docker compose {instead}")


def _note_down(cluster: LocalCluster, ledger: Ledger) -> None:
    """Write that every node that runs is to stop. A ledger that cannot be written keeps nobody from stopping a cluster."""
    with contextlib.suppress(LocalError):
        for node in cluster.nodes:
            if node.state != process.STOPPED:
                ledger.ask("stop", node.id)
