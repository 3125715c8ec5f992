"""kafka-storage. Source: TO-01 to TO-07; Kafka's StorageTool."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

import click

from kraftlite.cli.compat.features import feature_dependencies, java_short, release_name, version_mapping
from kraftlite.cli.compat.tool import Parser, ToolError, UsageError
from kraftlite.cli.features import level_of, level_text
from kraftlite.metadata.features import KRAFT_VERSION, METADATA_VERSION, METADATA_VERSIONS, supported_range


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
        return _dependencies(options.feature)
    from kraftlite.cli import nodes

    if options.command == "random-uuid":
        return _invoke(nodes.random_uuid, [])
    if not options.config:
        raise UsageError("argument --config/-c is required")
    if options.command == "info":
        return _invoke(nodes.storage_info, ["--config", options.config])
    return _format(options)


def _dependencies(items: Sequence[str]) -> int:
    """Print the dependencies as kafka-features does, which says of what it cannot read something else."""
    for item in items:
        name, equals, text = item.partition("=")
        if not equals:
            raise ToolError(f"Invalid feature format: {item}. Expected format: 'feature=version' (e.g. 'group.version=1')")
        level = java_short(text.strip())
        if level is None:
            raise ToolError(f"Invalid version format: {text.strip()} for feature {name.strip()}")
        known = supported_range(name.strip())
        if known is not None and name.strip() != METADATA_VERSION and not known.min_level <= level <= known.max_level:
            raise ToolError(f"Feature level {level} is not supported for feature {name.strip()}")
        feature_dependencies([item])
    return 0 if items else feature_dependencies(items)


def _format(options: argparse.Namespace) -> int:
    from kraftlite.cli import nodes

    if not options.cluster_id:
        raise UsageError("argument --cluster-id/-t is required")
    named = options.initial_controllers is not None
    if options.standalone + options.no_initial_controllers + named > 1:
        raise UsageError("--standalone, --no-initial-controllers and --initial-controllers exclude one another")
    arguments = ["--config", options.config, "--cluster-id", options.cluster_id]
    arguments += ["--ignore-formatted"] if options.ignore_formatted else []
    arguments += ["--standalone"] if options.standalone else []
    arguments += ["--no-initial-controllers"] if options.no_initial_controllers else []
    arguments += ["--initial-controllers", options.initial_controllers] if named else []
    arguments += [f"--add-scram={item}" for item in options.add_scram]
    release = options.release_version
    if release is not None:
        try:
            release = level_text(METADATA_VERSION, level_of(METADATA_VERSION, release_name(release)))
        except ValueError as error:
            raise ToolError(str(error)) from None
    levels: dict[str, int] = {}
    for item in options.feature:
        name, equals, text = item.partition("=")
        if not equals:
            raise UsageError(f"Can't parse feature=level string {item}: equals sign not found.")
        name, text = name.strip(), text.strip()
        level = java_short(text)
        if level is None:
            raise UsageError(f"Can't parse feature=level string {item}: unable to parse {text} as a short.")
        if name != METADATA_VERSION:
            known = supported_range(name)
            if level < 0 and known is not None:
                raise ToolError(f"No feature:{name} with feature level {level}")
            levels[name] = level
            continue
        if options.release_version is not None:
            raise ToolError(f"Use --release-version instead of --feature {METADATA_VERSION}=X to avoid ambiguity.")
        if level not in METADATA_VERSIONS:
            least, most = min(METADATA_VERSIONS), max(METADATA_VERSIONS)
            raise ToolError(f"No MetadataVersion with feature level {level}. Valid feature levels are from {least} to {most}.")
        release = METADATA_VERSIONS[level].name
    for name, level in levels.items():
        arguments += ["--kraft-version", str(level)] if name == KRAFT_VERSION else [f"--feature={name}={level}"]
    arguments += ["--release-version", release] if release is not None else []
    return _invoke(nodes.format_storage, arguments)


def _invoke(command: click.Command, arguments: list[str]) -> int:
    status = command.main(args=arguments, prog_name="kafka-storage", standalone_mode=False)
    return status if isinstance(status, int) else 0
