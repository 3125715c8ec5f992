"""What a swarm prints: what was reached and what never was, for readers and as JSON; and what its options are refused for."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from kraftlite.cli.main import cli
from kraftlite.cli.swarm_report import as_json, report
from kraftlite.sim.code_reach import CodeReach, Function, Reason
from kraftlite.sim.coverage import Coverage
from kraftlite.sim.run import Outcome, RunPlan
from kraftlite.sim.swarm import Summary, Totals


def totals() -> Totals:
    found = Totals(elapsed_s=60)
    for number, origin in enumerate(("seed", "seed", "changed"), 1):
        coverage = Coverage()
        coverage.raft[("follower", "leader")] = number
        coverage.events[("leader", f"raft.hw_{number}")] = 4
        coverage.answers.update({("Fetch", "NONE"): 7, ("Fetch", "OFFSET_OUT_OF_RANGE"): 1, ("create_topics", "NONE"): 2})
        coverage.faults["kill"] = number
        summary = Summary(
            plan=RunPlan(seed=number),
            outcome=Outcome.SAFETY if number == 3 else Outcome.OK,
            checker="Durability[6]",
            story="it is gone",
            trace="",
            shape="",
            elapsed_s=1.0,
            virtual_ms=3_600_000,
            steps=1,
            counts={"events": 4},
            coverage=coverage,
        )
        found.add(summary, origin)  # type: ignore[arg-type]
    return found


def code() -> CodeReach:
    def function(name: str, line: int, **more: Any) -> Function:
        facts: dict[str, Any] = {"package": "log", "path": "log/scan.py", "reached": False, "branches": 0, "missing": (), **more}
        return Function(name=f"log.scan:{name}", line=line, **facts)

    functions = (
        function("found", 3, reached=True, branches=4, missing=((5, 7), (8, -3))),
        function("tool", 20),
        function("forgotten", 30, branches=2, missing=((31, 32), (31, 33))),
    )
    return CodeReach(functions, (Reason(functions=("log.scan:tool",), why="for people"), Reason(functions=("x:gone",), why="?")))


def test_the_report_says_what_was_reached_and_what_never(capsys: pytest.CaptureFixture[str]) -> None:
    report(totals(), code(), missing=True)
    printed = capsys.readouterr().out
    lines = [" ".join(line.split()) for line in printed.splitlines()]
    for line in (
        "Fetch NONE 21, OFFSET_OUT_OF_RANGE 3",
        "create_topics NONE 6",
        "RUNS PAIRS EVERYTHING STEPS",
        "plain seeds 2 7 3.5",
        "changed plans 1 1 1.0",
        "log 1/3 66.7 % 1 1 (33.3 %) 2/6 66.7 %",
        "kraftlite/log/scan.py:20 tool for people",
        "kraftlite/log/scan.py:30 forgotten no reason",
        "kraftlite/log/scan.py:5 found line 7",
        "kraftlite/log/scan.py:8 found the end",
        "kraftlite/sim/unreached.toml has a reason for x:gone, which is reached by now or gone: remove it",
        "faults: kill 6",
        "3 seeds in 60 s (3 per minute), 3.0 h of virtual time, 1 failed",
        "SAFETY Durability[6]: kraftlite sim --seed 3",
    ):
        assert line in lines, line
    curve = [line for line in lines if line.endswith("█") and line[0].isdecimal()]
    assert [line.split()[:3] for line in curve] == [["1", "2", "6"], ["2", "3", "7"], ["3", "4", "8"]]
    never = printed.partition("never reached\n")[2].partition("\n\n")[0]
    assert "raft.state_changed" in never and "power-all" in never and "Fetch FENCED_LEADER_EPOCH" in never
    assert "raft.hw_1" not in never and "kill," not in never and "Fetch OFFSET_OUT_OF_RANGE" not in never
    assert all(len(line) <= 140 for line in never.splitlines())


def test_what_is_missing_is_listed_when_it_is_asked_for(capsys: pytest.CaptureFixture[str]) -> None:
    report(totals(), code(), missing=False)
    printed = capsys.readouterr().out
    assert "1 (33.3 %)" in printed and "forgotten" not in printed
    report(totals(), None, missing=False)
    assert "PACKAGE" not in capsys.readouterr().out


def test_the_same_as_json() -> None:
    found = json.loads(json.dumps(as_json(totals(), code())))
    assert found["answers"] == {"Fetch NONE": 21, "Fetch OFFSET_OUT_OF_RANGE": 3, "create_topics NONE": 6}
    assert found["raft_transitions"] == {"follower>leader": 6} and found["faults"] == {"kill": 6}
    assert "raft.state_changed" in found["never"]["events"] and "kill" not in found["never"]["faults"]
    assert found["curve"][-1] == {"runs": 3, "pairs": 4, "features": 8, "steps": 0}
    assert found["origins"] == {"changed": {"runs": 1, "new": 1}, "seed": {"runs": 2, "new": 7}}
    assert found["code"]["packages"]["log"]["functions_reached"] == 1
    assert found["code"]["unreached"][1] == {"function": "log.scan:forgotten", "where": "kraftlite/log/scan.py:30", "why": None}
    assert found["failures"][0]["reproduce"] == "kraftlite sim --seed 3"
    assert "code" not in as_json(totals(), None)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--seeds", "0"), "--seeds 0: allowed is 1 or more"),
        (("--corpus", "x"), "--corpus is where --guided keeps its plans: give both, or none"),
        (("--duration", "0"), "--duration 0: allowed is 0.1 to 3600 seconds"),
    ],
)
def test_an_option_that_cannot_be_is_one_line(options: tuple[str, ...], words: str) -> None:
    result = CliRunner().invoke(cli, ["swarm", *options])
    assert result.exit_code != 0 and words in result.output


def test_without_coverage_py_the_swarm_says_so_before_the_first_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "coverage", None)
    for option in ("--coverage", "--coverage-missing"):
        result = CliRunner().invoke(cli, ["swarm", option])
        assert result.exit_code == 1
        assert result.output.startswith("Error: --coverage: coverage.py is not installed: pip install")


def test_a_corpus_that_is_none_is_refused(tmp_path: Path) -> None:
    (tmp_path / "plans.jsonl").write_text("nonsense\n")
    result = CliRunner().invoke(cli, ["swarm", "--guided", "--corpus", str(tmp_path)])
    assert result.exit_code == 1 and "plans.jsonl:1: 'nonsense' is no plan of a run" in result.output


def test_a_plan_is_run_as_it_was_printed() -> None:
    plan = '{"seed": 1, "duration_ms": 500, "shape": "1+1", "knobs": {"log.roll.ms": "200"}, "faults": ["100 reset 1 and 2"]}'
    result = CliRunner().invoke(cli, ["sim", "--plan", plan, "-o", "json"])
    assert result.exit_code == 0, result.output
    found = json.loads(result.output)
    assert found["knobs"] == {"log.roll.ms": "200"} and found["faults"] == ["100 reset 1 and 2"]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--plan", "{}"), "Error: --plan: '{}' is no plan of a run: seed is missing"),
        (("--plan", '{"seed": 1}', "--seed", "1"), "--plan says everything"),
        (("--plan", '{"seed": 1, "faults": ["1 kill 99"]}'), "Error: --plan: 1 kill 99: there is no node 99"),
        (
            ("--plan", '{"seed": 1, "knobs": {"log.cleaner.threads": "999"}}'),
            "--plan: ",
        ),
        ((), "--seed or --plan is missing"),
    ],
)
def test_a_plan_that_cannot_be_is_one_line(options: tuple[str, ...], words: str) -> None:
    result = CliRunner().invoke(cli, ["sim", *options])
    assert result.exit_code != 0 and words in result.output and "Traceback" not in result.output
