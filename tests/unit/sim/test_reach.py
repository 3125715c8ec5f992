"""What runs reach is counted: answers by API and code, what followed what, functions and branches."""

from __future__ import annotations

import ast
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from kraftlite.model.errors import ErrorCode
from kraftlite.replication.api import OffsetResult
from kraftlite.sim.answers import api_of, errors_of
from kraftlite.sim.code_reach import (
    PACKAGES,
    REASONS,
    ROOT,
    Arcs,
    CodeReach,
    CoverageMissing,
    Function,
    Reason,
    Tracer,
    merge,
    read_reasons,
)
from kraftlite.sim.coverage import Coverage
from kraftlite.sim.run import Outcome, RunPlan, run
from kraftlite.sim.service import ADMIN, FETCH, AdminAsk
from kraftlite.sim.shape import NAMED


@dataclass
class Item:
    error: int
    name: str = ""


@dataclass
class Answer:
    topics: tuple[Item, ...] = ()
    error_code: int = 0
    inner: Item | None = None


@pytest.mark.parametrize(
    ("answer", "names"),
    [
        (OffsetResult(error=ErrorCode.OFFSET_NOT_AVAILABLE), ["OFFSET_NOT_AVAILABLE"]),
        (OffsetResult(error=ErrorCode.NONE), ["NONE"]),
        (Answer(), ["NONE"]),
        (Answer(topics=(Item(0), Item(3), Item(3), Item(6))), ["UNKNOWN_TOPIC_OR_PARTITION", "NOT_LEADER_OR_FOLLOWER"]),
        (Answer(error_code=-1), ["UNKNOWN_SERVER_ERROR"]),
        (Answer(inner=Item(3)), ["UNKNOWN_TOPIC_OR_PARTITION"]),
        (Answer(error_code=30_000), ["30000"]),
        (object(), ["NONE"]),
    ],
)
def test_an_answer_has_the_codes_of_the_whole_and_of_its_parts(answer: object, names: list[str]) -> None:
    assert list(errors_of(answer)) == names


def test_operations_that_share_a_method_are_apis_of_their_own() -> None:
    assert api_of(ADMIN, AdminAsk("create_topics", None)) == "create_topics"
    assert api_of(FETCH, object()) == "Fetch"


def test_a_run_counts_what_it_reached() -> None:
    result = run(RunPlan(seed=1, shape=NAMED["1+1"], faults=(), duration_ms=2_000))
    assert result.outcome is Outcome.OK
    found = result.coverage
    assert found.answers[("Produce", "NONE")] > 0 and found.answers[("create_topics", "NONE")] > 0
    assert found.follows[("raft.batch_appended", "raft.hw_advanced")] > 0
    assert len({checker for checker, _, _ in found.checkers}) > 5
    features = list(found.features())
    assert len(features) == len(set(features))
    assert sum(kind in ("raft", "events") for kind, _ in features) == found.pairs
    both = Coverage()
    both.add(found)
    both.add(found)
    assert set(both.features()) == set(features) and both.answers[("Produce", "NONE")] % 2 == 0


# --- code


def function(name: str, *, reached: bool, branches: int = 0, missing: int = 0) -> Function:
    package = name.partition(".")[0]
    lines = tuple((number, number + 1) for number in range(missing))
    path = name.partition(":")[0].replace(".", "/") + ".py"
    return Function(package=package, name=name, path=path, line=7, reached=reached, branches=branches, missing=lines)


FUNCTIONS = (
    function("log.log:Log.read", reached=True, branches=4, missing=1),
    function("log.scan:a", reached=False, branches=2, missing=2),
    function("log.scan:b", reached=False),
    function("raft.core:Core.check", reached=False),
)


def test_what_is_unreached_is_compared_with_the_reasons() -> None:
    reasons = (Reason(functions=("log.scan:*",), why="tools"), Reason(functions=("log.log:Log.read", "gone:x"), why="?"))
    code = CodeReach(FUNCTIONS, reasons)
    raft, log = code.rows
    assert (raft.package, raft.functions, raft.reached, raft.open_functions) == ("raft", 1, 0, 1)
    assert (log.functions, log.reached, log.with_reason, log.open_functions) == (3, 1, 2, 0)
    assert (log.branches, log.branches_reached) == (6, 3)
    assert [it.name for it in code.unexplained] == ["raft.core:Core.check"]
    assert code.why(FUNCTIONS[1]) == "tools" and code.why(FUNCTIONS[3]) is None
    assert code.idle_reasons == ["log.log:Log.read", "gone:x"], "reached by now, and gone"
    assert FUNCTIONS[3].where == "kraftlite/raft/core.py:7"


def test_a_reason_for_what_few_seeds_reach_is_idle_only_when_the_function_is_gone() -> None:
    reason = Reason(functions=("log.scan:*", "log.log:Log.read", "gone:x"), why="few seeds", rare=True)
    code = CodeReach(FUNCTIONS, (reason,))
    assert code.idle_reasons == ["gone:x"]
    assert code.why(FUNCTIONS[1]) == "few seeds"


def test_the_reasons_name_functions_that_are_there() -> None:
    names = set()
    for package in PACKAGES:
        for path in (ROOT / package).rglob("*.py"):
            module = ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
            names |= {f"{module}:{name}" for name in _functions(ast.parse(path.read_text()), "")}
    for reason in read_reasons(REASONS):
        assert reason.why.strip() and "\n" not in reason.why
        for pattern in reason.functions:
            alone = Reason(functions=(pattern,), why="")
            assert any(alone.covers(name) for name in names), f"{pattern}: nothing is named so"


def _functions(tree: ast.AST, prefix: str) -> list[str]:
    found = []
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            name = f"{prefix}{node.name}"
            found += [*([] if isinstance(node, ast.ClassDef) else [name]), *_functions(node, f"{name}.")]
        else:
            found += _functions(node, prefix)
    return found


@pytest.mark.parametrize(
    "text",
    [
        "[[unreached]]\nfunctions = []\nwhy = 'x'",
        "[[unreached]]\nfunctions = ['a']",
        "[[unreached]]\nfunctions = ['a']\nwhy = ' '",
        "[[unreached]]\nfunctions = 'a'\nwhy = 'x'",
        "[[unreached]]\nfunctions = [1]\nwhy = 'x'",
        "[[unreached]]\nfunctions = ['a']\nwhy = 'x'\nuntil = 'y'",
        "[[unreached]]\nfunctions = ['a']\nwhy = 'x'\nrare = 'yes'",
    ],
)
def test_a_reason_needs_functions_and_a_line(tmp_path: Path, text: str) -> None:
    path = tmp_path / "unreached.toml"
    path.write_text(text)
    with pytest.raises(ValueError, match=r"entry 1 of \[\[unreached\]\] needs functions"):
        read_reasons(path)


def test_steps_are_merged_and_the_new_ones_counted() -> None:
    known: Arcs = {}
    assert merge(known, {"a": [(1, 2), (2, 3)]}) == 2
    assert merge(known, {"a": [(2, 3), (3, 4)], "b": [(1, 2)]}) == 2
    assert known == {"a": {(1, 2), (2, 3), (3, 4)}, "b": {(1, 2)}}


def test_without_the_library_it_is_said_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "coverage", None)
    with pytest.raises(CoverageMissing, match=r"coverage\.py is not installed: pip install"):
        Tracer()
