"""Doubles as Kafka's tools, which are Java programs, print them."""

from __future__ import annotations

import pytest

from kraftlite.model.java_text import java_double


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "0.0"),
        (5, "5.0"),
        (12.5, "12.5"),
        (1_000_000, "1000000.0"),
        (9_999_999.5, "9999999.5"),
        (10_000_000, "1.0E7"),
        (12_345_678.5, "1.23456785E7"),
        (123_456_789_012_345, "1.23456789012345E14"),
        (0.001, "0.001"),
        (0.0005, "5.0E-4"),
        (-1_000_000, "-1000000.0"),
        (float("inf"), "Infinity"),
    ],
)
def test_as_java_prints_it(value: float, text: str) -> None:
    assert java_double(value) == text
