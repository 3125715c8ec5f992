"""What `kraftlite sim` takes: subjects to explain, and faults that can be carried out."""

from __future__ import annotations

import pytest
from click.testing import CliRunner

from kraftlite.cli.main import cli
from kraftlite.sim.fault_plan import FaultPlan, parse

SHORT = ("sim", "--seed", "1", "--shape", "1+1", "--duration", "1")


@pytest.mark.parametrize("more", [("--explain", "controller", "--no-faults"), ("--no-faults", "--explain", "controller")])
def test_the_controller_is_explained_without_a_name(more: tuple[str, ...]) -> None:
    result = CliRunner().invoke(cli, [*SHORT, *more])
    assert result.exit_code == 0, result.output
    assert "controller" in result.output and "every check holds" in result.output


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        ("100 kill nobody for 10", "unknown target 'nobody': allowed are a node id, 'controller' and 'leader TOPIC-PARTITION'"),
        ("100 kill leader orders for 10", "unknown target 'leader orders'"),
        ("100 kill 99 for 10", "there is no node 99; the nodes are 1, 2"),
        ("100 kill for 10", "kill takes one target, e.g. kill 2"),
        ("100 kill 1 and 2", "kill takes one target"),
        ("100 cut 1 for 10", "cut takes two targets, e.g. cut 2 and 3"),
        ("100 split 1 for 10", "split takes no target"),
        ("-5 kill 1", "time -5"),
        ("100 explode 1", "unknown fault 'explode'"),
        ("soon kill 1", "is no fault"),
    ],
)
def test_a_fault_that_cannot_be_is_one_line(fault: str, words: str) -> None:
    result = CliRunner().invoke(cli, [*SHORT, "--fault", fault])
    assert result.exit_code == 1
    (line,) = result.output.strip().splitlines()
    assert line.startswith("Error: --fault: ") and words in line


def test_a_fault_is_printed_as_it_is_read() -> None:
    for line in (
        "12000 kill leader t1-0 for 3000",
        "1 cut 1 and controller for 5",
        "2 split for 10 amount 6",
        "3 late 1 and 2 for 9",
    ):
        assert str(parse(line)) == line
    assert parse("7 kill 2") == FaultPlan(at_ms=7, kind="kill", target="2")
