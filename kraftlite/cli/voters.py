"""quorum add and quorum remove, and what kafka-metadata-quorum has of them. Source: KIP-853; DQ-30, DQ-33, DQ-43."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from kraftlite.cli.target import Target, target_options
from kraftlite.model.ids import node_id_of, uuid_from_str, uuid_to_str
from kraftlite.protocol.api_keys import ADD_RAFT_VOTER, REMOVE_RAFT_VOTER

if TYPE_CHECKING:
    from uuid import UUID

    from kraftlite.client.cluster import ClusterClient
    from kraftlite.model.ids import NodeId, VoterEndpoint

_TIMEOUT_MS: Final = 30_000


class VoterError(Exception):
    """The voters were not changed, or not as far as this command knows: one line."""


def add_controller(cluster: ClusterClient, config: Path, *, dry_run: bool = False) -> str:
    """Add the controller that is configured by this file, on this machine; returns the line to print. Raises VoterError."""
    node_id, directory_id, endpoints = described(config)
    shown = ", ".join(f"{it.name}://{it.host}:{it.port}" for it in endpoints)
    if not dry_run:
        values = {
            "cluster_id": None,
            "timeout": _TIMEOUT_MS,
            "voter_id": node_id,
            "voter_directory_id": directory_id,
            "listeners": [{"name": it.name, "host": it.host, "port": it.port} for it in endpoints],
        }
        _ask(cluster, ADD_RAFT_VOTER, values)
    said = "DRY RUN of adding" if dry_run else "Added"
    return f"{said} controller {node_id} with directory id {uuid_to_str(directory_id)} and endpoints: {shown}"


def remove_controller(cluster: ClusterClient, node_id: int, directory: str, *, dry_run: bool = False) -> str:
    """Remove a voter; returns the line to print. Raises VoterError."""
    try:
        directory_id = uuid_from_str(directory)
    except ValueError as error:
        raise VoterError(f"Failed to parse --controller-directory-id: {error}") from None
    if not dry_run:
        values = {"cluster_id": None, "voter_id": node_id, "voter_directory_id": directory_id}
        _ask(cluster, REMOVE_RAFT_VOTER, values)
    return f"{'DRY RUN of removing' if dry_run else 'Removed'}  KRaft controller {node_id} with directory id {directory}"


def described(config: Path) -> tuple[NodeId, UUID, tuple[VoterEndpoint, ...]]:
    """The id of the controller that a file configures, the id of its metadata directory, and its listeners. Raises VoterError."""
    from kraftlite.config.server import ConfigError, load
    from kraftlite.host.disk import HostDisk
    from kraftlite.node.forming import controller_endpoints
    from kraftlite.node.meta_properties import path_in, read_meta_properties

    try:
        loaded = load(config, os.environ)
    except ConfigError as error:
        raise VoterError(f"{config}: {error}") from None
    if not loaded.is_controller:
        raise VoterError(f"{config}: process.roles does not contain controller, and only controllers vote")
    try:
        properties = read_meta_properties(HostDisk(), loaded.metadata_log_dir)
    except (OSError, ValueError) as error:
        raise VoterError(str(error)) from None
    if properties is None:
        raise VoterError(f"{path_in(loaded.metadata_log_dir)} is not there: format the controller first")
    return loaded.node_id, properties.directory_id, controller_endpoints(loaded)


def _ask(cluster: ClusterClient, key: int, values: dict[str, Any]) -> None:
    from kraftlite.client.connection import code_of
    from kraftlite.model.errors import ErrorCode

    answer = cluster.call(key, 0, values, timeout_ms=_TIMEOUT_MS)
    code = code_of(answer)
    if code is not ErrorCode.NONE:
        raise VoterError(f"{code.name}: {answer.error_message or 'the quorum refuses'}")


@click.command("add")
@click.option(
    "--config", "-c", type=click.Path(path_type=Path), required=True, metavar="FILE", help="The controller's server.properties."
)
@click.option("--dry-run", is_flag=True, help="Only say what would be asked.")
@target_options
def quorum_add(config: Path, dry_run: bool, target: Target) -> None:
    """Add a controller of this machine to the voters. It runs and has caught up: quorum describe shows it as an observer."""
    try:
        cluster = target.cluster()
        cluster.brokers()  # who cannot be asked is told before anything is said of files
        click.echo(add_controller(cluster, config, dry_run=dry_run))
    except VoterError as error:
        raise click.ClickException(str(error)) from None


@click.command("remove")
@click.option("--controller-id", "-i", required=True, metavar="ID", help="The voter's node id.")
@click.option("--controller-directory-id", "-d", required=True, metavar="DIRECTORY", help="The directory id in quorum describe.")
@click.option("--dry-run", is_flag=True, help="Only say what would be asked.")
@target_options
def quorum_remove(controller_id: str, controller_directory_id: str, dry_run: bool, target: Target) -> None:
    """Remove a controller from the voters, whether it runs or not.

    One that runs with controller.quorum.auto.join.enable adds itself again.
    """
    node_id = node_id_of(controller_id)
    if node_id is None:
        raise click.UsageError(f"--controller-id {controller_id}: allowed is a node id")
    try:
        click.echo(remove_controller(target.cluster(), node_id, controller_directory_id, dry_run=dry_run))
    except VoterError as error:
        raise click.ClickException(str(error)) from None
