"""Growing and shrinking a local cluster while it runs: nodes come and go, and the cluster's description follows.

A new controller is added to the voters (KIP-853) when it has caught up; one that leaves is removed from them before it stops. A
broker that leaves takes no new replicas (KIP-1066), hands over those that it has (KIP-455), is stopped and unregistered.
"""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Callable, Iterator
from dataclasses import fields, replace
from pathlib import Path
from typing import Final

from kraftlite.client.acls import create_acls, delete_acls
from kraftlite.client.admin import alter_configs
from kraftlite.client.cluster import ClusterClient, check
from kraftlite.client.drain import drain, held_by
from kraftlite.client.errors import ClientError, RequestRefused
from kraftlite.client.moves import named
from kraftlite.client.voters import add_voter, cannot_leave, remove_voter
from kraftlite.local import process
from kraftlite.local.client import VOTERS_UPGRADE, cluster_at, controllers_at, voter_directories
from kraftlite.local.cluster import check_config, refuse_containers, start, stop_nodes
from kraftlite.local.layout import counted, grown, rewrite_files
from kraftlite.local.ledger import PYTHON, Ledger, author
from kraftlite.local.secure import (
    admin_security,
    authority_of,
    certificate_security,
    forget_node,
    issue_node,
    rewrite_client_files,
)
from kraftlite.local.state import LocalCluster, LocalError, LocalNode, load, locked, save
from kraftlite.model.acls import (
    CLUSTER_NAME,
    AclBinding,
    AclBindingFilter,
    Operation,
    PatternType,
    Permission,
    ResourceType,
)
from kraftlite.model.cordoned import CORDONED_DIRS
from kraftlite.model.errors import ErrorCode
from kraftlite.model.ids import VoterEndpoint, uuid_from_str
from kraftlite.model.messages.choices import AlterConfigOp, ConfigResourceType
from kraftlite.obs.faults import Author
from kraftlite.protocol.api_keys import UNREGISTER_BROKER

VOTER_PATIENCE_S: Final = 60.0
"""The time in which a new controller has to catch up and be added, and a voter has to be removed."""
DRAIN_TIMEOUT_S: Final = 3_600.0

Say = Callable[[str], None]


def _quiet(line: str) -> None:
    return None


# --- growing


def add_broker(data_dir: Path, *, say: Say = _quiet, by: Author | None = None) -> LocalNode:
    """Start one more broker; returns when it serves. It gets replicas of new topics, and what is reassigned to it."""
    with _changing(data_dir, "add-broker", say) as cluster, _controllers(cluster) as controllers:
        return _joined(cluster, "broker", controllers, by)


def add_controller(data_dir: Path, *, say: Say = _quiet, by: Author | None = None) -> LocalNode:
    """Start one more controller, and add it to the voters; returns when it votes."""
    with _changing(data_dir, "add-controller", say) as cluster, _controllers(cluster) as controllers:
        cluster = _with_changing_voters(cluster, controllers)
        node = _joined(cluster, "controller", controllers, by)
        assert node.controller is not None and node.directory_id is not None
        host, _, port = node.controller.rpartition(":")
        endpoint = VoterEndpoint(name="CONTROLLER", host=host, port=int(port))
        try:
            add_voter(controllers, node.id, uuid_from_str(node.directory_id), [endpoint], patience_s=VOTER_PATIENCE_S)
        except ClientError as error:
            raise LocalError(
                f"controller {node.id} runs and is not among the voters yet: {error}; to add it: "
                f"kraftlite quorum add --config {node.config_path}"
            ) from None
        return node


def _joined(cluster: LocalCluster, role: str, controllers: ClusterClient, by: Author | None) -> LocalNode:
    """A new node of this role, ready; or none, and the cluster as it was."""
    after, node = grown(cluster, role)
    if Path(node.directory).exists():
        raise LocalError(f"{node.directory} is there already, and would be the directory of the new node; move it away")
    if cluster.secure:
        issue_node(after, node, authority_of(after))
        create_acls(controllers, [_acts_as_node(node)])
    try:
        _take(cluster, after)
        check_config(after)
        started = start(after, [node], joining=True, by=by)
    except BaseException:  # an interruption, too: nobody else would take back what is half there
        current = load(Path(cluster.data_dir))
        stop_nodes([it for it in current.nodes if it.id == node.id])
        with contextlib.suppress(ClientError):  # what was in the way of the node is told
            if node.is_broker:
                controllers.call(UNREGISTER_BROKER, 0, {"broker_id": node.id})  # it may not have come to register: either will do
        with contextlib.suppress(ClientError):
            _forget(after, node, controllers)
        raise
    return started.node(node.id)


def _acts_as_node(node: LocalNode) -> AclBinding:
    """The entry by which the nodes that run take a new one for a node: they learn of super.users when they are started."""
    return AclBinding(
        resource_type=ResourceType.CLUSTER,
        resource_name=CLUSTER_NAME,
        pattern_type=PatternType.LITERAL,
        principal=f"User:node-{node.id}",
        host="*",
        operation=Operation.CLUSTER_ACTION,
        permission_type=Permission.ALLOW,
    )


def _with_changing_voters(cluster: LocalCluster, controllers: ClusterClient) -> LocalCluster:
    """The cluster, whose voters can be changed. Of a cluster with configured voters this is what an upgrade of kraft.version has
    made; its files say so from then on. Raises LocalError where that has not been done."""
    if cluster.dynamic:
        return cluster
    directories = voter_directories(controllers)
    if None in directories.values():
        raise LocalError(
            f"the voters of the cluster in {cluster.data_dir} are configured, and cannot be changed before: {VOTERS_UPGRADE}"
        )
    nodes = tuple(replace(node, directory_id=directories.get(node.id)) for node in cluster.nodes)
    after = replace(cluster, dynamic=True, nodes=nodes)
    _take(cluster, after)
    return after


# --- shrinking


def remove_controller(data_dir: Path, node_id: int, *, say: Say = _quiet, by: Author | None = None) -> None:
    """Remove a controller from the voters, whether it runs or not, stop it, and remove its files."""
    with _changing(data_dir, "remove-controller", say) as cluster, _controllers(cluster) as controllers:
        node = cluster.node(node_id)
        if not node.is_controller:
            raise LocalError(f"node {node_id} is no controller; to remove it: kraftlite remove-broker {node_id}")
        if node.is_broker:
            raise LocalError(f"node {node_id} is a broker, too; to remove it with both roles: kraftlite remove-broker {node_id}")
        cluster = _with_changing_voters(cluster, controllers)
        _leave_quorum(cluster, node, controllers)
        _stop(cluster, node, by)
        _forget(cluster, node, controllers)


def remove_broker(
    data_dir: Path,
    node_id: int,
    *,
    fewer_replicas: bool = False,
    timeout_s: float = DRAIN_TIMEOUT_S,
    say: Say = _quiet,
    by: Author | None = None,
) -> None:
    """Move everything off a broker, stop it, unregister it, and remove its files. One that is a controller, too, leaves the
    voters before it is stopped.

    `fewer_replicas`: partitions for which there is no other broker go on with one replica less. `timeout_s`: for the moves; what
    was begun goes on after it, and the broker stays.
    """
    with _changing(data_dir, "remove-broker", say) as cluster, _controllers(cluster) as controllers:
        node = cluster.node(node_id)
        if not node.is_broker:
            raise LocalError(f"node {node_id} is no broker; to remove it: kraftlite remove-controller {node_id}")
        if cluster.brokers == 1:
            raise LocalError(f"node {node_id} is the only broker of the cluster in {cluster.data_dir}: kraftlite down --wipe")
        if node.is_controller:
            cluster = _with_changing_voters(cluster, controllers)
            _voters_without(cluster, node, controllers)
        with _brokers(cluster, without=node_id) as client:
            runs = node.state != process.STOPPED
            _check_reachable(client, node, runs)
            with _cordoned(client, controllers, node, runs):
                running = [it.id for it in cluster.nodes if it.is_broker and it.id != node_id and it.state == process.RUNNING]
                drain(client, node_id, running, fewer_replicas=fewer_replicas, timeout_s=timeout_s, say=say)
                if node.is_controller:
                    _leave_quorum(cluster, node, controllers)
                _stop(cluster, node, by)
                if late := [f"{topic}-{index}" for topic, index in held_by(client, node_id)]:
                    raise LocalError(
                        f"broker {node_id} got replicas while it stopped, of {named(late)}: start it with kraftlite restart "
                        f"{node_id}, and remove it again"
                    )
            _unregister(controllers, node_id)
            _forget(cluster, node, controllers)


def _unregister(controllers: ClusterClient, node_id: int) -> None:
    """Make the cluster forget a broker; one that has never come to register is forgotten."""
    try:
        check(controllers.call(UNREGISTER_BROKER, 0, {"broker_id": node_id}))
    except RequestRefused as error:
        if error.code is not ErrorCode.BROKER_ID_NOT_REGISTERED:
            raise


def _check_reachable(client: ClusterClient, node: LocalNode, runs: bool) -> None:
    """Raises LocalError when the only copies are on a broker that does not run."""
    if runs:
        return
    held = set(held_by(client, node.id))
    lost = [
        f"{topic}-{index}" for (topic, index), leader in client.leaders().items() if (topic, index) in held and leader is None
    ]
    if lost:
        raise LocalError(
            f"broker {node.id} does not run, and {named(lost)} would be lost with it: start it (kraftlite restart {node.id}), or "
            "delete those topics"
        )


@contextlib.contextmanager
def _cordoned(client: ClusterClient, controllers: ClusterClient, node: LocalNode, runs: bool) -> Iterator[None]:
    """No new replica is placed on the broker meanwhile (KIP-1066); a broker that does not run gets none anyway."""
    kind, name = ConfigResourceType.BROKER, str(node.id)
    if runs:
        try:
            alter_configs(client, kind, name, [(CORDONED_DIRS, AlterConfigOp.SET, "*")])
        except RequestRefused as error:
            raise LocalError(f"broker {node.id} cannot be kept from getting new replicas: {error.reason}") from None
    try:
        yield
    finally:
        if runs:
            alter_configs(controllers, kind, name, [(CORDONED_DIRS, AlterConfigOp.DELETE, None)])


def _leave_quorum(cluster: LocalCluster, node: LocalNode, controllers: ClusterClient) -> None:
    """Remove the node from the voters, if it is one of them."""
    directory = _voters_without(cluster, node, controllers)
    if directory is None:
        return
    try:
        remove_voter(controllers, node.id, uuid_from_str(directory), patience_s=VOTER_PATIENCE_S)
    except ClientError as error:
        raise LocalError(f"controller {node.id} was not removed from the voters: {error}") from None


def _voters_without(cluster: LocalCluster, node: LocalNode, controllers: ClusterClient) -> str | None:
    """The directory by which the voters know the node; None: it is none of them. Raises LocalError when those that would be left
    could not elect a leader."""
    voters = voter_directories(controllers)
    if node.id not in voters:
        return None
    if why := cannot_leave(voters, node.id, [it.id for it in cluster.nodes if it.state == process.RUNNING]):
        raise LocalError(f"{why}; start the others, or add one with kraftlite add-controller")
    directory = voters[node.id]
    assert directory is not None, "voters that can be changed have directory ids"
    return directory


def _stop(cluster: LocalCluster, node: LocalNode, by: Author | None) -> None:
    """Stop the process, which the ledger of faults notes."""
    ledger = Ledger(Path(cluster.data_dir), by or author(PYTHON))
    fault = ledger.ask("stop", node.id)
    stop_nodes([node])
    ledger.finish(fault, node.id)


# --- the description, and what goes with it


@contextlib.contextmanager
def _changing(data_dir: Path, command: str, say: Say) -> Iterator[LocalCluster]:
    """The cluster, whose shape nobody else changes meanwhile; who has to wait for that is told so by `say`."""
    data_dir = data_dir.absolute()
    with locked(data_dir / ".up.lock", command, say):
        cluster = load(data_dir)
        refuse_containers(cluster, "up -d")
        yield cluster


def _brokers(cluster: LocalCluster, without: int = -1) -> ClusterClient:
    running = [node.kafka for node in cluster.nodes if node.kafka and node.id != without and node.state == process.RUNNING]
    if not running:
        raise LocalError(f"no {'other ' if without >= 0 else ''}broker of the cluster in {cluster.data_dir} runs: kraftlite up")
    return cluster_at(",".join(running), admin_security(cluster))


def _controllers(cluster: LocalCluster) -> ClusterClient:
    running = [node.controller for node in cluster.nodes if node.controller and node.state == process.RUNNING]
    if not running:
        raise LocalError(f"no controller of the cluster in {cluster.data_dir} runs: kraftlite up")
    return controllers_at(",".join(running), certificate_security(cluster))


def _take(before: LocalCluster, after: LocalCluster) -> None:
    """The cluster is `after` from now on: its description, and the files of its nodes and users."""
    rewrite_files(before, after)  # first: a node that is described has its file, whatever happens here
    with locked(Path(after.data_dir) / ".cluster.lock"):
        now = {node.id: node for node in load(Path(after.data_dir)).nodes}
        kept = tuple(replace(it, pid=now[it.id].pid, mark=now[it.id].mark) if it.id in now else it for it in after.nodes)
        save(replace(after, nodes=kept))
    if after.secure:
        rewrite_client_files(after)


def _forget(cluster: LocalCluster, node: LocalNode, controllers: ClusterClient) -> None:
    """Remove everything of a node that does not run any more."""
    _take(cluster, counted(replace(cluster, nodes=tuple(it for it in cluster.nodes if it.id != node.id))))
    shutil.rmtree(node.directory, ignore_errors=True)
    if cluster.secure:
        forget_node(cluster, node)
        entry = _acts_as_node(node)
        delete_acls(controllers, [AclBindingFilter(**{field.name: getattr(entry, field.name) for field in fields(entry)})])
