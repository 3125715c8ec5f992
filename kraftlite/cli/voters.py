"""quorum add and quorum remove, and what kafka-metadata-quorum has of them. Source: KIP-853; DQ-30, DQ-33, DQ-43."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from kraftlite.cli.target import Target, target_options
from kraftlite.client.errors import RequestRefused
from kraftlite.client.voters import add_voter, remove_voter
from kraftlite.model.ids import node_id_of, uuid_from_str, uuid_to_str

if TYPE_CHECKING:
    from uuid import UUID

    from kraftlite.client.cluster import ClusterClient
    from kraftlite.model.ids import NodeId, VoterEndpoint


_OF_THE_CLIENT: Final = tuple(f"{name}{mark}" for name in ("sasl.mechanism", "sasl.jaas.config") for mark in "=:")
"""The beginnings of what a node says of properties by which a client logs in: the file of kafka-metadata-quorum may have them."""


class VoterError(Exception):
    """The voters were not changed, or not as far as this command knows: one line."""


def add_controller(cluster: ClusterClient, config: Path, *, dry_run: bool = False) -> str:
    """Add the controller that is configured by this file, on this machine; returns the line to print. Raises VoterError."""
    node_id, directory_id, endpoints = described(config)
    shown = ", ".join(f"{it.name}://{it.host}:{it.port}" for it in endpoints)
    if not dry_run:
        _carried_out(lambda: add_voter(cluster, node_id, directory_id, endpoints))
    said = "DRY RUN of adding" if dry_run else "Added"
    return f"{said} controller {node_id} with directory id {uuid_to_str(directory_id)} and endpoints: {shown}"


def remove_controller(cluster: ClusterClient, node_id: int, directory: str, *, dry_run: bool = False) -> str:
    """Remove a voter; returns the line to print. Raises VoterError."""
    try:
        directory_id = uuid_from_str(directory)
    except ValueError as error:
        raise VoterError(f"Failed to parse --controller-directory-id: {error}") from None
    if not dry_run:
        _carried_out(lambda: remove_voter(cluster, node_id, directory_id))
    return f"{'DRY RUN of removing' if dry_run else 'Removed'}  KRaft controller {node_id} with directory id {directory}"


def described(config: Path) -> tuple[NodeId, UUID, tuple[VoterEndpoint, ...]]:
    """The id of the controller that a file configures, the id of its metadata directory, and its listeners. Raises VoterError."""
    from kraftlite.config.server import ConfigError, load
    from kraftlite.host.disk import HostDisk
    from kraftlite.node.forming import controller_endpoints
    from kraftlite.node.meta_properties import path_in, read_meta_properties

    try:
        loaded = load(config, os.environ, check=False)
        problems = tuple(problem for problem in loaded.problems if not problem.startswith(_OF_THE_CLIENT))
        if problems:
            raise ConfigError(problems)
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


def _carried_out(change: Callable[[], None]) -> None:
    try:
        change()
    except RequestRefused as error:
        raise VoterError(str(error)) from None


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
@click.argument("voter", required=False, metavar="[ID]")
@click.option("--controller-id", "-i", metavar="ID", help="The voter's node id, as kafka-metadata-quorum takes it.")
@click.option("--controller-directory-id", "-d", metavar="DIRECTORY", help="Default: the one by which the voters know it.")
@click.option("--dry-run", is_flag=True, help="Only say what would be asked.")
@target_options
def quorum_remove(
    voter: str | None, controller_id: str | None, controller_directory_id: str | None, dry_run: bool, target: Target
) -> None:
    """Remove a controller from the voters, whether it runs or not.

    One that runs with controller.quorum.auto.join.enable adds itself again.
    """
    given = voter if controller_id is None else controller_id
    if given is None or (voter is not None and controller_id is not None):
        raise click.UsageError("name one voter: kraftlite quorum remove ID")
    node_id = node_id_of(given)
    if node_id is None:
        raise click.UsageError(f"{given}: allowed is a node id")
    try:
        cluster = target.cluster()
        directory = _directory_of(cluster, node_id) if controller_directory_id is None else controller_directory_id
        click.echo(remove_controller(cluster, node_id, directory, dry_run=dry_run))
    except VoterError as error:
        raise click.ClickException(str(error)) from None


def _directory_of(cluster: ClusterClient, node_id: int) -> str:
    """The directory by which the voters know a node. Raises VoterError for one that does not vote, or has none."""
    from kraftlite.local.client import VOTERS_UPGRADE, voter_directories

    voters = voter_directories(cluster)
    if node_id not in voters:
        raise VoterError(f"node {node_id} does not vote; the voters are {', '.join(map(str, voters))}")
    directory = voters[node_id]
    if directory is None:
        raise VoterError(f"the voters are configured, and cannot be changed before: {VOTERS_UPGRADE}")
    return directory
