"""kraftlite user: who may log in, by SCRAM; kraftlite certs: the certificates of a secure local cluster."""

from __future__ import annotations

import io
import sys
import tarfile
from pathlib import Path
from typing import TYPE_CHECKING

import click

from kraftlite.cli.common import data_dir_of, data_dir_option, local_errors, output_option, print_json, print_table
from kraftlite.cli.target import Target, target_options

if TYPE_CHECKING:
    from kraftlite.client.cluster import ClusterClient
    from kraftlite.local.state import LocalCluster


_NAME = click.argument("name")
_STDIN = click.option("--password-stdin", is_flag=True, help="Read the password from standard input; else a new one is made.")


@click.command("list")
@target_options
@output_option
def list_users(target: Target, output: str) -> None:
    """The users that have credentials in the cluster."""
    from kraftlite.client.admin import describe_scram
    from kraftlite.security.scram import NUMBERS

    names = {number: name for name, number in NUMBERS.items()}
    with local_errors(), target.cluster() as client:
        found = describe_scram(client, None)
    rows = [(name, names.get(kind, str(kind)), iterations) for name, kinds in sorted(found.items()) for kind, iterations in kinds]
    if output == "json":
        print_json([{"user": name, "mechanism": kind, "iterations": iterations} for name, kind, iterations in rows])
    else:
        print_table(("USER", "MECHANISM", "ITERATIONS"), rows)


@click.command("add")
@_NAME
@_STDIN
@data_dir_option
@target_options
def add(name: str, password_stdin: bool, data_dir: Path | None, target: Target) -> None:
    """Add a user. It may log in everywhere at once, and do what ACLs allow: `kraftlite acl add`."""
    with local_errors(), target.cluster() as client:
        from kraftlite.client.admin import describe_scram

        if name in describe_scram(client, [name]):
            raise click.ClickException(f"there is a user {name} already; for a new password: kraftlite user rotate {name}")
        _set_password(client, name, _password(password_stdin), _local(data_dir))


@click.command("rotate")
@_NAME
@_STDIN
@data_dir_option
@target_options
def rotate(name: str, password_stdin: bool, data_dir: Path | None, target: Target) -> None:
    """Give a user a new password. Connections that are open stay; the old password opens no other."""
    with local_errors(), target.cluster() as client:
        from kraftlite.client.admin import describe_scram

        if name not in describe_scram(client, [name]):
            raise click.ClickException(f"there is no user {name}: kraftlite user list")
        _set_password(client, name, _password(password_stdin), _local(data_dir))


@click.command("delete")
@_NAME
@data_dir_option
@target_options
def delete(name: str, data_dir: Path | None, target: Target) -> None:
    """Delete a user's credentials. Its ACLs stay, and so do connections that are open."""
    from kraftlite.client.admin import alter_scram, describe_scram

    with local_errors(), target.cluster() as client:
        known = describe_scram(client, [name]).get(name)
        if known is None:
            raise click.ClickException(f"there is no user {name}: kraftlite user list")
        alter_scram(client, name, [mechanism for mechanism, _ in known], {})
    cluster = _local(data_dir)
    if cluster is not None:
        from kraftlite.local.secure import forget_user

        forget_user(cluster, name)
    click.echo(f"user {name} is deleted")


@click.command("export")
@click.argument("name", nargs=-1)
@click.option(
    "--into",
    required=True,
    metavar="DIR",
    help="The absolute path of the directory in which the archive will be unpacked; the paths in the files are below it.",
)
@data_dir_option
def export(name: tuple[str, ...], into: str, data_dir: Path | None) -> None:
    """Write the client files of NAME…, or of all users, to standard output, as a tar for another place.

    They have passwords and keys in them, and the archive gives them to their owner alone: … --into "$PWD" | tar -x"""
    from kraftlite.local.secure import exported_files, known_users

    if not into.startswith("/") or not into.isprintable():
        raise click.UsageError(f"--into {into!r}: allowed is an absolute path of printable characters")
    if sys.stdout.isatty():
        raise click.UsageError("the archive is not for a terminal: pipe it to tar -x")
    with local_errors():
        cluster = _secure(data_dir)
        files = list(exported_files(cluster, name or known_users(Path(cluster.data_dir)), Path(into)))
        with tarfile.open(fileobj=sys.stdout.buffer, mode="w|") as archive:
            for path, data in files:
                entry = tarfile.TarInfo(path)
                entry.size, entry.mode = len(data), 0o600
                archive.addfile(entry, io.BytesIO(data))


def _password(from_stdin: bool) -> str:
    from kraftlite.security.first_users import new_password

    if not from_stdin:
        return new_password()
    given = sys.stdin.readline(_MAX_PASSWORD + 2).rstrip("\n")
    if not 1 <= len(given) <= _MAX_PASSWORD or not given.isprintable():
        raise click.ClickException(f"the password on standard input: allowed are 1 to {_MAX_PASSWORD} printable characters")
    return given


_MAX_PASSWORD = 256


def _local(data_dir: Path | None) -> LocalCluster | None:
    """The secure local cluster of this directory, if there is one: it has files for its users' clients."""
    from kraftlite.local.state import LocalError, load

    try:
        cluster = load(data_dir_of(data_dir))
    except LocalError:
        return None
    return cluster if cluster.secure else None


def _set_password(client: ClusterClient, name: str, password: str, cluster: LocalCluster | None) -> None:
    from kraftlite.client.admin import alter_scram
    from kraftlite.local.secure import check_user, client_dir, write_client_files
    from kraftlite.security.first_users import ITERATIONS, MECHANISM
    from kraftlite.security.scram import NUMBERS

    if cluster is not None:
        check_user(name)
    alter_scram(client, name, [], {NUMBERS[MECHANISM]: (ITERATIONS, password)})
    click.echo(f"user {name} logs in with {MECHANISM} and this password: {password}")
    if cluster is not None:
        write_client_files(cluster, name, password)
        click.echo(f"files for clients: {client_dir(Path(cluster.data_dir), name)}")


@click.command("show")
@data_dir_option
@output_option
def show(data_dir: Path | None, output: str) -> None:
    """Show whose certificates there are, and until when they hold."""
    from kraftlite.local.secure import certificate_files, described, is_revoked

    with local_errors():
        cluster = _secure(data_dir)
        rows = [
            (owner, *described(path), "revoked" if is_revoked(cluster, path) else "good", str(path))
            for owner, path in certificate_files(cluster)
        ]
    header = ("OWNER", "SUBJECT", "VALID UNTIL", "SHA-256", "STATE", "FILE")
    if output == "json":
        print_json([dict(zip((name.lower().replace(" ", "_") for name in header), row, strict=True)) for row in rows])
    else:
        print_table(header, [(*row[:3], row[3][:23] + "…", *row[4:]) for row in rows])


@click.command("rotate")
@data_dir_option
def rotate_certificates(data_dir: Path | None) -> None:
    """Give every node a new certificate of the same authority. Running nodes take it for new connections."""
    from kraftlite.local.secure import authority_of, issue_nodes

    with local_errors():
        cluster = _secure(data_dir)
        issue_nodes(cluster, authority_of(cluster))
    click.echo(f"{len(cluster.nodes)} nodes have new certificates")


@click.command("revoke")
@click.argument("owner", nargs=-1, required=True)
@data_dir_option
def revoke_certificates(owner: tuple[str, ...], data_dir: Path | None) -> None:
    """Take back the certificates of OWNER…: users, nodes (node-1) or files.

    Within two seconds running nodes refuse them and close the connections on which they were shown. New ones: `user rotate`,
    `certs rotate`. Passwords are not touched."""
    from kraftlite.local.secure import revoke

    with local_errors():
        cluster = _secure(data_dir)
        for one in owner:
            click.echo(f"{one}: {revoke(cluster, one)} is revoked")


def _secure(data_dir: Path | None) -> LocalCluster:
    from kraftlite.local.state import LocalError, load

    cluster = load(data_dir_of(data_dir))
    if not cluster.secure:
        raise LocalError(f"the cluster in {cluster.data_dir} has no certificates: it was made without --secure")
    return cluster
