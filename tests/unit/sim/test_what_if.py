"""A what-if: the same seed with one fault changed, where both part, and what it changed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from kraftlite.cli.main import cli
from kraftlite.obs.recording_reader import Header, read
from kraftlite.sim.fault_plan import parse
from kraftlite.sim.plans import parse_plan, text_of
from kraftlite.sim.run import RunPlan
from kraftlite.sim.shape import NAMED
from kraftlite.sim.what_if import changed

SEED = ["sim", "--seed", "3", "--shape", "3+3", "--duration", "6", "--fault", "3000 isolate controller for 6000"]


def test_a_shorter_cut_has_no_second_controller() -> None:
    told = CliRunner().invoke(cli, [*SEED, "--what-if", "1=3000 isolate controller for 1000", "-o", "json"])
    assert told.exit_code == 0, told.output
    found = json.loads(told.output)
    assert found["as_it_was"]["two_active_controllers_ms"] > 500 and found["what_if"]["two_active_controllers_ms"] == 0
    assert found["parting"]["same"] > 100 and found["parting"]["at_ms"] > 5000
    assert found["parting"]["as_it_was"] != found["parting"]["what_if"]


def test_the_same_fault_is_the_same_run() -> None:
    told = CliRunner().invoke(cli, [*SEED, "--what-if", "1=3000 isolate controller for 6000"])
    assert told.exit_code == 0 and told.output.endswith("both runs are the same, event for event\n")


def test_faults_are_replaced_left_out_and_added() -> None:
    plan = RunPlan(seed=1, shape=NAMED["3+3"], faults=(parse("1 kill 4"), parse("2 pause 5 for 10")))
    found = changed(plan, {1: None, 2: parse("3 stop 6"), 3: parse("9 kill 1")}).faults
    assert found is not None and [str(it) for it in found] == ["3 stop 6", "9 kill 1"]
    with pytest.raises(ValueError, match="fault 4: the run has 2 faults; allowed is a number from 1 to 3"):
        changed(plan, {4: parse("1 kill 4")})


def test_another_seed_keeps_the_cluster_and_the_faults() -> None:
    plan = RunPlan(seed=1)
    found = changed(plan, {}, seed=7)
    assert found.seed == 7 and found.drawn() == plan.drawn() and parse_plan(text_of(found)) == found


def test_the_changed_run_is_recorded_and_says_what_it_is(tmp_path: Path) -> None:
    path = tmp_path / "r.kljsonl"
    told = CliRunner().invoke(cli, [*SEED, "--what-if", "seed=4", "--what-if", "1=", "--record", str(path), "-o", "json"])
    found = json.loads(told.output)["what_if"]
    header = next(read(path))
    assert isinstance(header, Header) and found["faults"] == [] and found["seed"] == 4
    plan = parse_plan(header.plan)
    again = CliRunner().invoke(cli, ["sim", "--plan", text_of(plan), "-o", "json"])
    assert json.loads(again.output)["trace"] == found["trace"]


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ("isolate", "isolate: allowed is NUMBER=FAULT"),
        ("x=1 kill 4", "allowed is NUMBER=FAULT"),
        ("seed=-1", "seed= with a whole number from 0"),
        ("1=1 dance 4", "unknown fault 'dance'"),
        ("5=1 kill 4", "the run has 1 faults"),
        ("1=1 kill 99", "there is no node 99"),
    ],
)
def test_what_is_wrong_is_said_in_one_line(given: str, why: str) -> None:
    told = CliRunner().invoke(cli, [*SEED, "--what-if", given])
    assert told.exit_code == 1 and why in told.output and "Traceback" not in told.output


def test_it_stands_alone() -> None:
    told = CliRunner().invoke(cli, [*SEED, "--what-if", "1=", "--trace", "x"])
    assert told.exit_code == 2 and "--what-if compares two runs" in told.output
