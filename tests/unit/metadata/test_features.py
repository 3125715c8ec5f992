"""Feature levels."""

from __future__ import annotations

import pytest

from kraftlite.metadata.features import (
    LATEST_METADATA_VERSION,
    METADATA_VERSIONS,
    MIN_METADATA_VERSION,
    metadata_version,
    metadata_version_from_name,
    supported_range,
    supports_directories,
    supports_transactions,
)


def test_the_table_has_every_level_from_the_minimum_to_the_latest() -> None:
    assert list(METADATA_VERSIONS) == list(range(MIN_METADATA_VERSION, LATEST_METADATA_VERSION + 1))
    assert (metadata_version(7).name, metadata_version(30).name) == ("3.3-IV3", "4.3-IV0")
    names = [version.name for version in METADATA_VERSIONS.values()]
    assert len(set(names)) == len(names)


@pytest.mark.parametrize(("text", "level"), [("4.3-IV0", 30), ("4.0", 25), ("3.7-IV2", 17), ("13", 13)])
def test_a_level_by_name_release_or_number(text: str, level: int) -> None:
    assert metadata_version_from_name(text).level == level


@pytest.mark.parametrize("text", ["4.9", "31", "6", "", "x"])
def test_an_unknown_level_is_an_error_that_names_what_is_known(text: str) -> None:
    with pytest.raises(ValueError, match=r"4\.3-IV0"):
        metadata_version_from_name(text)


def test_capabilities_begin_at_their_level() -> None:
    assert [supports_transactions(level) for level in (12, 13)] == [False, True]
    assert [supports_directories(level) for level in (16, 17)] == [False, True]


def test_what_a_node_registers() -> None:
    found = supported_range("metadata.version")
    assert found is not None and (found.min_level, found.max_level) == (7, 30)
    assert supported_range("no.such.version") is None
