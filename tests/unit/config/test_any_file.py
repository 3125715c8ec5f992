"""Whatever a configuration file contains: words, not a traceback."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kraftlite.config.properties import parse_properties
from kraftlite.config.server import ConfigError, load
from kraftlite.model.config_effects import EFFECTS

NODE = {
    "process.roles": "broker,controller",
    "node.id": "1",
    "controller.quorum.voters": "1@localhost:9093",
    "controller.listener.names": "CONTROLLER",
    "listeners": "PLAINTEXT://localhost:9092,REPLICATION://localhost:9192,CONTROLLER://localhost:9093",
    "inter.broker.listener.name": "REPLICATION",
}
PIECES = [
    "PLAINTEXT",
    "CONTROLLER",
    "SSL",
    "GRPC",
    "REPLICATION",
    "://",
    ":",
    ",",
    "@",
    "localhost",
    "0.0.0.0",
    "[::1]",
    "[",
    "]",
    "*",
    "true",
    "-1",
    "broker",
    "9092",
    "9093",
    "~",
    "/",
    ".",
]
PIECE = st.one_of(st.sampled_from(PIECES), st.text(max_size=3))
VALUES = st.one_of(
    st.text(max_size=30),
    st.integers(-(2**70), 2**70).map(str),
    st.floats().map(str),
    st.lists(PIECE, max_size=12).map("".join),
)
KEYS = st.one_of(
    st.sampled_from(sorted(EFFECTS)),
    st.sampled_from(sorted(NODE)),
    st.sampled_from(["listener.name.", "listener.name.x.", "listener.name.x.plain."]).flatmap(
        lambda start: st.sampled_from(["", *sorted(EFFECTS)]).map(lambda key: start + key)
    ),
    st.text(max_size=20),
)


def told(path: Path, content: bytes) -> list[str]:
    path.write_bytes(content)
    try:
        return list(load(path, hostname=lambda: "here").warnings)
    except ConfigError as error:
        return list(error.problems)


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("config") / "server.properties"


@settings(max_examples=400, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(changes=st.dictionaries(KEYS, VALUES, max_size=5))
def test_any_values(path: Path, changes: dict[str, str]) -> None:
    lines = "".join(f"{key}={value}\n" for key, value in {**NODE, **changes}.items())
    for line in told(path, lines.encode("utf-8", "surrogatepass")):
        assert line and len(line) < 20_000 and line.isprintable()


@settings(max_examples=400, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(content=st.one_of(st.binary(max_size=300), st.text(alphabet="a=: \\u0d8f#!\n\r\t\f.", max_size=200).map(str.encode)))
def test_any_bytes(path: Path, content: bytes) -> None:
    assert told(path, content), "neither roles nor a node id"


@settings(max_examples=300)
@given(text=st.text(alphabet="a=:\\ \n#u0123d8f\t", max_size=100))
def test_any_text_is_properties_or_a_line_that_is_named(text: str) -> None:
    try:
        found = parse_properties(text)
    except ValueError as error:
        assert str(error).startswith("line ")
    else:
        assert all(1 <= item.line <= text.count("\n") + text.count("\r") + 1 for item in found)


def test_a_control_character_of_a_value_is_shown_as_an_escape(path: Path) -> None:
    """A tab is allowed in a value and no blank of a name, so it reaches the message that refuses the name."""
    [problem] = [one for one in told(path, b"process.roles=controller\nlisteners=CO\tT://:9093\n") if "listeners" in one][:1]
    assert "CO\\x09T" in problem
    assert problem.isprintable()
