"""docs/DIFFERENCES.md explains every difference from Apache Kafka that `tests.clients.compare` lets pass."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from kraftlite.model.config_effects import EFFECTS, Effect
from tests.clients import compare_known
from tests.tidy import differences_keys

TEXT = (Path(__file__).parents[2] / "docs" / "DIFFERENCES.md").read_text()


@pytest.mark.parametrize("heading", compare_known.KNOWN)
def test_every_kind_of_difference_is_explained(heading: str) -> None:
    section = re.search(rf"^## {re.escape(heading)}\n\n(.+?)(?:\n## |\Z)", TEXT, re.MULTILINE | re.DOTALL)
    assert section is not None, f"docs/DIFFERENCES.md has no text under {heading!r}"


def test_what_is_new_is_not_let_pass() -> None:
    assert compare_known.reason("ApiVersions.apis.produce: 0 to 13 | (not there)") == "APIs that are not offered"
    assert compare_known.reason("Fetch.fine: ['none', []] | ['offset_out_of_range', []]") is None
    assert compare_known.reason("Produce.corrupt: ['corrupt_message', None, -1] | ['none', None, 0]") is None


def test_the_configuration_keys_that_differ_are_listed() -> None:
    assert differences_keys.written(TEXT) == TEXT, "run: python -m tests.tidy.differences_keys"


@pytest.mark.parametrize("name", [name for name, found in EFFECTS.items() if found.rule.effect is Effect.REFUSED])
def test_each_key_that_is_refused_is_on_the_page(name: str) -> None:
    families = [name, *(".".join(name.split(".")[:length]) + ".*" for length in range(1, name.count(".") + 1))]
    assert any(f"`{family}`" in TEXT for family in families)
