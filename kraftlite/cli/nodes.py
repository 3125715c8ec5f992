"""Commands about one node: random-uuid, format, storage info, start, config explain."""

from __future__ import annotations

import os
import random
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from kraftlite.cli.common import local_errors, output_option, pairs, print_json, print_table
from kraftlite.cli.files import read_text

if TYPE_CHECKING:
    from kraftlite.config.server import ServerConfig
    from kraftlite.node.forming import Formation

INITIAL_VARIABLE: Final = "KRAFTLITE_INITIAL_CONTROLLERS"
_CONFIG = click.option("--config", "-c", type=click.Path(path_type=Path), metavar="FILE", help="The node's server.properties.")
_OVERRIDE = click.option("--override", multiple=True, metavar="KEY=VALUE", help="A value that wins over file and environment.")


def _load(config: Path | None, override: tuple[str, ...], *, quiet: bool = False, check: bool = True) -> ServerConfig:
    from kraftlite.config.server import ConfigError, load

    try:
        loaded = load(config, os.environ, {**_closing(config), **pairs(override, "--override")}, check=check)
    except ConfigError as error:
        count = len(error.problems)
        if count == 1:
            raise click.ClickException(f"configuration: {error.problems[0]}") from None
        listed = "".join(f"\n  - {problem}" for problem in error.problems)
        raise click.ClickException(f"configuration: {count} problems{listed}") from None
    if not quiet:
        for warning in loaded.warnings:
            click.echo(f"warning: {warning}", err=True)
    return loaded


def _closing(config: Path | None) -> dict[str, str]:
    """The keys that close a node which is configured by its environment, as in a container."""
    if config is not None:
        return {}
    from kraftlite.local.container import closing

    with local_errors():
        return closing(os.environ)


def _first_users(config: Path | None, override: tuple[str, ...]) -> tuple[str, ...]:
    """The credentials with which a closed cluster of containers begins; makes its certificates if no other node has."""
    if not _closing(config):
        return ()
    from kraftlite.local.container import make

    formatted = _formatted_as(_load(config, override, quiet=True, check=False)) is not None
    with local_errors():
        return make(os.environ, formatted=formatted)


@click.command("random-uuid")
def random_uuid() -> None:
    """Print a new random id for a cluster: 22 characters of URL-safe base64."""
    from kraftlite.model.ids import random_uuid as new_uuid
    from kraftlite.model.ids import uuid_to_str

    click.echo(uuid_to_str(new_uuid(random.SystemRandom())))


@click.command("format")
@_CONFIG
@_OVERRIDE
@click.option("--cluster-id", "-t", metavar="ID", help="The cluster's id (random-uuid makes one); default: CLUSTER_ID.")
@click.option("--release-version", "-r", metavar="V", help="The metadata.version to begin with, for example 4.3-IV0.")
@click.option("--ignore-formatted", "-g", is_flag=True, help="Skip directories that are formatted already.")
@click.option("--standalone", "-s", is_flag=True, help="A quorum whose voters can change begins with this controller alone.")
@click.option(
    "--initial-controllers",
    "-I",
    metavar="ID@HOST:PORT:DIRECTORY,…",
    help="A quorum whose voters can change begins with these controllers; the same list on each of them. Default, where no such "
    f"option is given: {INITIAL_VARIABLE}.",
)
@click.option(
    "--no-initial-controllers", "-N", is_flag=True, help="This controller waits until it is added to the voters of a quorum."
)
@click.option(
    "--add-scram",
    "-S",
    multiple=True,
    metavar="MECHANISM=[name=…,password=…]",
    help="A SCRAM user with whom the cluster begins; the same on each controller. Instead of password: salt, saltedpassword.",
)
@click.option("--kraft-version", type=int, hidden=True)
@click.option("--feature", multiple=True, hidden=True)
def format_storage(
    config: Path | None,
    override: tuple[str, ...],
    cluster_id: str | None,
    release_version: str | None,
    ignore_formatted: bool,
    standalone: bool,
    no_initial_controllers: bool,
    initial_controllers: str | None,
    add_scram: tuple[str, ...],
    kraft_version: int | None,
    feature: tuple[str, ...],
) -> None:
    """Prepare a node's directories for their first start."""
    if config is None and "KAFKA_PROCESS_ROLES" not in os.environ:
        raise click.UsageError("--config is missing: give the node's server.properties")
    features = _features(feature)
    add_scram += _first_users(config, override)
    loaded = _load(config, override)
    cluster_id = cluster_id or loaded.cluster_id
    if cluster_id is None:
        raise click.UsageError(
            "--cluster-id is missing: every node of a cluster is formatted with the same one (kraftlite random-uuid)"
        )
    if initial_controllers is None and not standalone and not no_initial_controllers:
        initial_controllers = os.environ.get(INITIAL_VARIABLE)
    forming = _formation(loaded, standalone, initial_controllers, no_initial_controllers, kraft_version)
    for line in _format(loaded, cluster_id, release_version, ignore_formatted, forming, add_scram, features):
        click.echo(line)


def _features(items: tuple[str, ...]) -> dict[str, int]:
    from kraftlite.cli.features import level_of

    found: dict[str, int] = {}
    for name, text in ((name.strip(), text.strip()) for name, text in pairs(items, "--feature", "name=level").items()):
        try:
            found[name] = level_of(name, text)
        except ValueError as error:
            raise click.UsageError(str(error)) from None
    return found


def _formation(
    loaded: ServerConfig, standalone: bool, initial: str | None, nobody: bool, kraft_version: int | None
) -> Formation | None:
    from kraftlite.node import forming

    try:
        return forming.formation(
            loaded,
            standalone=standalone,
            initial_controllers=initial,
            no_initial_controllers=nobody,
            kraft_version=kraft_version,
            entropy=random.SystemRandom(),
        )
    except forming.FormingError as error:
        raise click.ClickException(str(error)) from None


def _format(
    loaded: ServerConfig,
    cluster_id: str,
    release_version: str | None,
    ignore_formatted: bool,
    forming: Formation | None = None,
    add_scram: tuple[str, ...] = (),
    features: Mapping[str, int] | None = None,
) -> list[str]:
    from kraftlite.host.disk import HostDisk
    from kraftlite.node import storage

    try:
        return list(
            storage.format_directories(
                HostDisk(),
                loaded,
                cluster_id,
                release_version=release_version,
                features=features,
                ignore_formatted=ignore_formatted,
                forming=forming,
                add_scram=add_scram,
            )
        )
    except storage.StorageError as error:
        raise click.ClickException(str(error)) from None
    except OSError as error:
        raise click.ClickException(f"{error.filename or 'the directory'}: {error.strerror or error}") from None


@click.command("info")
@_CONFIG
@_OVERRIDE
@output_option
def storage_info(config: Path | None, override: tuple[str, ...], output: str) -> None:
    """Show what a node's directories contain; exit status 1 if something is wrong with them."""
    from kraftlite.host.disk import HostDisk
    from kraftlite.node import storage

    if config is None and "KAFKA_PROCESS_ROLES" not in os.environ:
        raise click.UsageError("--config is missing: give the node's server.properties")
    info = storage.info(HostDisk(), _load(config, override, quiet=True))
    if output == "json":
        print_json({"directories": list(info.directories), "metadata": dict(info.metadata), "problems": list(info.problems)})
    else:
        if info.directories:
            noun = "directory" if len(info.directories) == 1 else "directories"
            click.echo(f"Found log {noun}:")
            for directory in info.directories:
                click.echo(f"  {directory}")
            click.echo("")
        if info.metadata:
            listed = ", ".join(f"{key}={value}" for key, value in sorted(info.metadata.items()))
            click.echo(f"Found metadata: {{{listed}}}")
            click.echo("")
        if info.problems:
            click.echo("Found problem:" if len(info.problems) == 1 else "Found problems:")
            for problem in info.problems:
                click.echo(f"  {problem}")
            click.echo("")
    if info.problems:
        sys.exit(1)


@click.command("start")
@_CONFIG
@_OVERRIDE
@click.option(
    "--supervised",
    is_flag=True,
    help="As the first process of a container: the trace lies where the containers of the cluster share it, and where the "
    "environment sets kraftlite.faults.enable the node is a child, which is killed, paused and started again on request.",
)
def start(config: Path | None, override: tuple[str, ...], supervised: bool) -> None:
    """Run a node in the foreground until SIGTERM or Ctrl-C.

    Without --config the node is configured by its environment (KAFKA_NODE_ID, KAFKA_PROCESS_ROLES, …, CLUSTER_ID) and formats
    its directories at the first start (KRAFTLITE_INITIAL_CONTROLLERS: see format); with nothing set it is a single combined node
    on port 9092.
    """
    first_users = _first_users(config, override)
    loaded = _load(config, override)
    if supervised and config is not None:
        raise click.UsageError("--supervised is for a node that is configured by its environment, without --config")
    if supervised:
        override = _beside_others(loaded, override)
    if config is None:
        from kraftlite.model.ids import random_uuid as new_uuid
        from kraftlite.model.ids import uuid_to_str

        cluster_id = loaded.cluster_id
        if cluster_id is None and loaded.roles == ("broker", "controller") and len(loaded.quorum_voters) == 1:
            cluster_id = _formatted_as(loaded) or uuid_to_str(new_uuid(random.SystemRandom()))
        if cluster_id is not None:
            first = _formatted_as(loaded) is None
            forming = _formation(loaded, False, os.environ.get(INITIAL_VARIABLE), False, None) if first else None
            for line in _format(loaded, cluster_id, None, True, forming, first_users):
                click.echo(line)
    from kraftlite.node import serve

    sys.exit(serve.run(None if config is None else str(config), {**_closing(config), **pairs(override, "--override")}))


def _beside_others(loaded: ServerConfig, override: tuple[str, ...]) -> tuple[str, ...]:
    """The overrides of a node in a container, whose trace lies in the directory that its cluster shares, where `kraftlite logs`,
    `explain` and the page find it. Where faults are enabled this becomes the supervisor of the node, and does not return."""
    from kraftlite.local.container import NODES_VARIABLE, described

    faults = loaded.get_bool("kraftlite.faults.enable")
    with local_errors():
        cluster = described(os.environ)
        if cluster is None:
            if faults:
                click.echo(
                    f"warning: the node has no supervisor: {NODES_VARIABLE}, by which commands find it, is not set", err=True
                )
            return override
        node = cluster.node(loaded.node_id)
        trace = () if loaded.get("kraftlite.trace.file") is not None else (f"kraftlite.trace.file={node.trace_path}",)
        if not faults:
            node.door_path.unlink(missing_ok=True)  # of a supervisor that was killed with its container
            return (*trace, *override)
        from kraftlite.local import supervisor
        from kraftlite.local.ledger import LEDGER_NAME

        data_dir = Path(cluster.data_dir)
        ends = f"kraftlite.faults.ledger={data_dir / LEDGER_NAME}"
        again = [part for item in (ends, *trace, *override) for part in ("--override", item)]
        command = [sys.executable, "-m", "kraftlite", "start", *again]
        sys.exit(supervisor.run(command, loaded.node_id, data_dir))


@click.command("keys")
@click.argument("words", nargs=-1, metavar="[PART]…")
@output_option
def config_keys(words: tuple[str, ...], output: str) -> None:
    """List each configuration key of a node: whether it is applied, in part, without effect, or refused, and why.

    With PART only the keys that contain one of these parts: kraftlite config keys quota ssl
    """
    from kraftlite.model.config_effects import EFFECTS

    chosen = {name: found for name, found in EFFECTS.items() if not words or any(word in name for word in words)}
    if words and not chosen:
        raise click.ClickException(f"no configuration key contains {' or '.join(words)}")
    if output == "json":
        print_json(
            [
                {"key": name, "effect": str(it.rule.effect), "default": it.default, "words": it.rule.words}
                for name, it in chosen.items()
            ]
        )
    else:
        print_table(("KEY", "EFFECT", "WHY"), [(name, str(it.rule.effect), it.rule.words) for name, it in chosen.items()])


def _formatted_as(loaded: ServerConfig) -> str | None:
    from kraftlite.config.properties import parse_properties

    try:
        properties = parse_properties(read_text(Path(loaded.metadata_log_dir) / "meta.properties"))
    except (OSError, ValueError):
        return None
    return next((item.value for item in properties if item.key == "cluster.id"), None)


@click.command("explain")
@_CONFIG
@_OVERRIDE
@click.option("--all", "everything", is_flag=True, help="Show defaults, too.")
@output_option
def explain(config: Path | None, override: tuple[str, ...], everything: bool, output: str) -> None:
    """Print each value of a node's configuration and where it came from; exit status 1 if the node could not start with it."""
    from kraftlite.config.server import DEFAULT_SOURCE

    loaded = _load(config, override, quiet=True, check=False)
    lines = [line for line in loaded.explain() if everything or line.source != DEFAULT_SOURCE]
    if output == "json":
        print_json(
            {
                "values": [{"key": i.key, "value": i.value, "source": i.source, "known": i.known} for i in lines],
                "warnings": list(loaded.warnings),
                "problems": list(loaded.problems),
            }
        )
    else:
        print_table(
            ("KEY", "VALUE", "SOURCE"), [(i.key, i.value, i.source if i.known else f"{i.source} (unknown)") for i in lines]
        )
        for warning in loaded.warnings:
            click.echo(f"warning: {warning}", err=True)
        for problem in loaded.problems:
            click.echo(f"problem: {problem}", err=True)
    if loaded.problems:
        sys.exit(1)
