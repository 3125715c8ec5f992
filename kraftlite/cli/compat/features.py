"""kafka-features. Source: TO-25; Kafka's FeatureCommand."""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable, Sequence
from typing import TypeVar

import click

from kraftlite.cli.compat.tool import Parser, ToolError, UsageError, cluster_of, whole
from kraftlite.cli.features import (
    Update,
    feature_lines,
    fetch_features,
    level_of,
    level_text,
    release_updates,
    update_features,
)
from kraftlite.metadata.features import (
    DEFAULT_LEVELS,
    DEPENDENCIES,
    LATEST_METADATA_VERSION,
    METADATA_VERSION,
    METADATA_VERSIONS,
    default_level,
    supported_range,
)
from kraftlite.model.limits import MAX_INT16
from kraftlite.model.messages.choices import FeatureUpgradeType

R = TypeVar("R")


def _parser() -> Parser:
    parser = Parser("kafka-features", "This tool manages feature flags in Kafka.")
    parser.connection(controller=True)
    actions = parser.add_subparsers(dest="command", metavar="COMMAND")
    about = "describe upgrade downgrade disable version-mapping feature-dependencies"
    for name in about.split():
        action = actions.add_parser(name, tool=f"kafka-features {name}")
        if name in ("upgrade", "downgrade"):
            action.add_argument("--metadata")
            action.add_argument("--release-version")
        if name == "version-mapping":
            action.add_argument("--release-version")
        if name == "describe":
            action.add_argument("--node-id", type=whole(32))
        if name != "describe" and name != "version-mapping":
            action.add_argument("--feature", action="append", default=[])
        if name in ("downgrade", "disable"):
            action.add_argument("--unsafe", action="store_true")
        if name in ("upgrade", "downgrade", "disable"):
            action.add_argument("--dry-run", action="store_true")
    return parser


def run(arguments: Sequence[str]) -> int:
    options = _parser().read(arguments)
    if options.command is None:
        raise UsageError("too few arguments: one of describe, upgrade, downgrade, disable, version-mapping, feature-dependencies")
    if options.command == "version-mapping":
        return version_mapping(options.release_version)
    if options.command == "feature-dependencies":
        return feature_dependencies(options.feature)
    if options.command == "describe":
        if options.node_id is not None and options.node_id < 0:
            raise ToolError(f"Invalid node id {options.node_id}: must be non-negative.")
        for line in feature_lines(*fetch_features(cluster_of(options), options.node_id)):
            click.echo(line)
        return 0
    updates, kind = _updates(options)
    cluster = cluster_of(options)
    lines, failed = update_features(cluster, updates, kind, verb=options.command, dry_run=options.dry_run)
    for line in lines:
        click.echo(line)
    if failed:
        raise ToolError(f"{failed} out of {len(updates)} operation(s) failed.")
    return 0


def _updates(options: argparse.Namespace) -> tuple[list[Update], FeatureUpgradeType]:
    kind = FeatureUpgradeType.UPGRADE
    if options.command != "upgrade":
        kind = FeatureUpgradeType.UNSAFE_DOWNGRADE if options.unsafe else FeatureUpgradeType.SAFE_DOWNGRADE
    updates: list[Update] = []
    if options.command == "disable":
        updates = [(name, 0) for name in options.feature]
    elif options.release_version is not None:
        if options.metadata is not None or options.feature:
            raise ToolError("Can not specify `release-version` with other feature flags.")
        updates = _known(lambda: release_updates(release_name(options.release_version), kind))
    else:
        if options.metadata is not None:
            click.echo(" `metadata` flag is deprecated and may be removed in a future release.")
            updates.append((METADATA_VERSION, _known(lambda: level_of(METADATA_VERSION, release_name(options.metadata)))))
        updates += [_name_and_level(item) for item in options.feature]
    named = set()
    for name, level in updates:
        if level < 0:
            raise ToolError("Cannot specify a negative version level.")
        if level == 0 and kind is FeatureUpgradeType.UPGRADE:
            flag = "The upgradeType flag should be set to SAFE_DOWNGRADE or UNSAFE_DOWNGRADE"
            raise ToolError(f"{flag} when the provided maxVersionLevel:0 is < 1.")
        if name in named:
            raise ToolError(f"Feature {name} was specified more than once.")
        named.add(name)
    if not updates:
        raise ToolError(f"You must specify at least one feature to {options.command}")
    return updates, kind


def _known(find: Callable[[], R]) -> R:
    try:
        return find()
    except ValueError as error:
        raise ToolError(str(error)) from None


def release_name(text: str) -> str:
    """A release or a version by its name: Kafka's tools take no number here."""
    if text.isdecimal():
        names = ", ".join(version.name for version in METADATA_VERSIONS.values())
        raise ValueError(f"Unknown metadata.version '{text}'. Supported metadata.version are: {names}")
    return text


def java_short(text: str) -> int | None:
    """Read a number as Java's Short.parseShort does; None: there is none."""
    if not (text.isascii() and re.fullmatch(r"[+-]?[0-9]{1,20}", text)):
        return None
    level = int(text)
    return level if -MAX_INT16 - 1 <= level <= MAX_INT16 else None


def _name_and_level(item: str) -> Update:
    name, equals, text = item.partition("=")
    if not equals:
        raise ToolError(f"Can't parse feature=level string {item}: equals sign not found.")
    level = java_short(text.strip())
    if level is None:
        raise ToolError(f"Can't parse feature=level string {item}: unable to parse {text.strip()} as a short.")
    return name.strip(), level


def version_mapping(release: str | None) -> int:
    """Print the levels that belong to a release."""
    shown = METADATA_VERSIONS[LATEST_METADATA_VERSION].name if release is None else release
    level = _known(lambda: level_of(METADATA_VERSION, release_name(shown)))
    click.echo(f"{METADATA_VERSION}={level} ({shown})")
    for name in DEFAULT_LEVELS:
        click.echo(f"{name}={default_level(name, level)}")
    return 0


def feature_dependencies(items: Sequence[str]) -> int:
    """Print what each level of a feature needs of others."""
    if not items:
        raise UsageError("argument --feature is required")
    for item in items:
        name, level = _name_and_level(item)
        if name == METADATA_VERSION:
            if level not in METADATA_VERSIONS:
                raise ToolError(f"Unknown metadata.version {level}")
            click.echo(f"{name}={level} ({level_text(name, level)}) has no dependencies.")
            continue
        known = supported_range(name)
        if known is None:
            raise ToolError(f"Unknown feature: {name}")
        if not known.min_level <= level <= known.max_level:
            raise ToolError(f"No feature:{name} with feature level {level}")
        needed = DEPENDENCIES.get((name, level))
        click.echo(f"{name}={level} {'has no dependencies.' if needed is None else 'requires:'}")
        for other, least in (needed or {}).items():
            shown = f" ({level_text(other, least)})" if other == METADATA_VERSION else ""
            click.echo(f"    {other}={least}{shown}")
    return 0
