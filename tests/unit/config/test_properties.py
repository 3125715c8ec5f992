from __future__ import annotations

import pytest

from kraftlite.config.properties import format_properties, parse_properties


def parsed(text: str) -> dict[str, str]:
    return {item.key: item.value for item in parse_properties(text)}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a=b", {"a": "b"}),
        ("a = b ", {"a": "b "}),
        ("a:b\nc d", {"a": "b", "c": "d"}),
        ("  a\t=\tb", {"a": "b"}),
        ("# no\n! no\n\na=#yes", {"a": "#yes"}),
        ("a=one,\\\n    two", {"a": "one,two"}),
        ("a=back\\\\\nb=c", {"a": "back\\", "b": "c"}),
        ("a\\=b=c", {"a=b": "c"}),
        ("a\\ b=c", {"a b": "c"}),
        ("a=\\u0041\\t|\\q", {"a": "A\t|q"}),
        ("a=b=c:d", {"a": "b=c:d"}),
        ("a", {"a": ""}),
        ("a=", {"a": ""}),
        ("a=1\r\nb=2\rc=3", {"a": "1", "b": "2", "c": "3"}),
        ("a=x\\", {"a": "x"}),
        ("#comment \\\na=b", {"a": "b"}),
    ],
)
def test_parse(text: str, expected: dict[str, str]) -> None:
    assert parsed(text) == expected


def test_lines_are_those_where_a_property_begins() -> None:
    assert [item.line for item in parse_properties("\na=1\nb=2\\\n 3\n#\nc=4")] == [2, 3, 6]


def test_a_bad_escape_names_its_line() -> None:
    with pytest.raises(ValueError, match="line 2"):
        parse_properties("a=b\nc=\\uZZZZ")


def test_what_is_written_is_read() -> None:
    values = {"a": "b\\c", "d": " leading", "e": "tab\tnewline\n", "f": "x=y:z#"}
    assert parsed(format_properties(values)) == values
