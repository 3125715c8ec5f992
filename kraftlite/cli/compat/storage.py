"""kafka-storage. Source: TO-01 to TO-07; Kafka's StorageTool."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

import click

from kraftlite.cli.compat.features import feature_dependencies, version_mapping
from kraftlite.cli.compat.tool import Parser, ToolError, UsageError
from kraftlite.cli.features import level_of, level_text
from kraftlite.metadata.features import KRAFT_VERSION, METADATA_VERSION
from kraftlite.model.limits import MAX_INT16


def _parser() -> Parser:
    parser = Parser("kafka-storage", "The Kafka storage tool.")
    actions = parser.add_subparsers(dest="command", metavar="COMMAND")
    for name in ("info", "format", "version-mapping", "feature-dependencies", "random-uuid"):
        action = actions.add_parser(name, tool=f"kafka-storage {name}")
        if name in ("info", "format"):
            action.add_argument("--config", "-c", metavar="FILE")
        if name == "format":
            action.add_argument("--cluster-id", "-t")
            action.add_argument("--ignore-formatted", "-g", action="store_true")
            action.add_argument("--standalone", "-s", action="store_true")
            action.add_argument("--no-initial-controllers", "-N", action="store_true")
            action.add_argument("--initial-controllers", "-I")
            action.add_argument("--add-scram", "-S", action="append", default=[])
        if name in ("format", "version-mapping"):
            action.add_argument("--release-version", "-r")
        if name in ("format", "feature-dependencies"):
            action.add_argument("--feature", "-f", action="append", default=[])
    return parser


def run(arguments: Sequence[str]) -> int:
    options = _parser().read(arguments)
    if options.command is None:
        raise UsageError("too few arguments: one of info, format, version-mapping, feature-dependencies, random-uuid")
    if options.command == "version-mapping":
        return version_mapping(options.release_version)
    if options.command == "feature-dependencies":
        return feature_dependencies(options.feature)
    from kraftlite.cli import nodes

    if options.command == "random-uuid":
        return _invoke(nodes.random_uuid, [])
    if not options.config:
        raise UsageError("argument --config/-c is required")
    if options.command == "info":
        return _invoke(nodes.storage_info, ["--config", options.config])
    return _format(options)


def _format(options: argparse.Namespace) -> int:
    from kraftlite.cli import nodes

    if not options.cluster_id:
        raise UsageError("argument --cluster-id/-t is required")
    if options.standalone + options.no_initial_controllers + bool(options.initial_controllers) > 1:
        raise UsageError("--standalone, --no-initial-controllers and --initial-controllers exclude one another")
    arguments = ["--config", options.config, "--cluster-id", options.cluster_id]
    arguments += ["--ignore-formatted"] if options.ignore_formatted else []
    arguments += ["--standalone"] if options.standalone else []
    arguments += ["--no-initial-controllers"] if options.no_initial_controllers else []
    arguments += ["--initial-controllers", options.initial_controllers] if options.initial_controllers else []
    arguments += [f"--add-scram={item}" for item in options.add_scram]
    release = options.release_version
    for item in options.feature:
        name, equals, text = item.partition("=")
        if not equals:
            raise UsageError(f"Can't parse feature=level string {item}: equals sign not found.")
        if name != METADATA_VERSION:
            if not (text.isascii() and text.isdecimal() and int(text) <= MAX_INT16):
                raise UsageError(f"Can't parse feature=level string {item}: unable to parse {text} as a short.")
            arguments += ["--kraft-version", text] if name == KRAFT_VERSION else [f"--feature={name}={text}"]
            continue
        if release is not None:
            raise UsageError(f"{METADATA_VERSION} is given both with --release-version and with --feature")
        try:
            release = level_text(name, level_of(name, text))
        except ValueError as error:
            raise ToolError(str(error)) from None
    arguments += ["--release-version", release] if release else []
    return _invoke(nodes.format_storage, arguments)


def _invoke(command: click.Command, arguments: list[str]) -> int:
    status = command.main(args=arguments, prog_name="kafka-storage", standalone_mode=False)
    return status if isinstance(status, int) else 0
