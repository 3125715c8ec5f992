"""Tests are small rooms too. What is larger from before is listed with its size, which may only shrink."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from pathlib import Path

from tests.tidy.test_tidy import FUNCTION_LINES, MODULE_LINES, ROOT

SLACK = 20
"""Lines that a listed one may be below its number; then the number is lowered."""
LONG_MODULES = {
    "tests/clients/compare_requests.py": 708,
    "tests/clients/orders.py": 517,
    "tests/embedded/test_compat.py": 544,
    "tests/harness/replication_cluster.py": 679,
    "tests/harness/wire_fakes.py": 560,
    "tests/spec/controller/test_event_loop.py": 602,
    "tests/spec/coordinator/test_groups.py": 534,
    "tests/spec/raft/test_elections.py": 695,
    "tests/spec/wire/test_admin.py": 683,
    "tests/spec/wire/test_produce_fetch.py": 576,
    "tests/unit/audit/test_audit.py": 831,
    "tests/unit/columns/test_records.py": 551,
    "tests/unit/coordinator/test_consumer_groups.py": 565,
    "tests/unit/obs/test_explain.py": 615,
    "tests/unit/sim/test_checkers_metadata.py": 609,
    "tests/unit/sim/test_checkers_replication.py": 665,
    "tests/unit/spark/test_segment_source.py": 510,
    "tests/unit/wire/test_hot_codecs.py": 534,
}
LONG_FUNCTIONS = {
    "tests/clients/compare_requests.py::groups": 110,
    "tests/clients/java/test_group_protocol.py::migrate": 84,
    "tests/clients/orders.py::topics": 82,
    "tests/cluster/test_groups.py::test_ml_22_cp_31_cp_37_the_coordinator_is_killed_and_the_group_goes_on": 76,
    "tests/testing_plugin/test_plugin.py::test_every_fixture": 74,
}


def modules() -> dict[str, int]:
    """Lines of each module of the tests."""
    return {path.relative_to(ROOT).as_posix(): len(path.read_text().splitlines()) for path in _sources()}


def functions() -> dict[str, int]:
    """Lines of the longest function of each name in a module."""
    found: dict[str, int] = {}
    for path in _sources():
        for node in ast.walk(ast.parse(path.read_text(), str(path))):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.end_lineno is not None:
                name = f"{path.relative_to(ROOT).as_posix()}::{node.name}"
                found[name] = max(found.get(name, 0), node.end_lineno - node.lineno + 1)
    return found


def _sources() -> list[Path]:
    return sorted((ROOT / "tests").rglob("*.py"))


def complaints(sizes: Mapping[str, int], limit: int, listed: Mapping[str, int]) -> list[str]:
    found = [
        f"{name}: {size} lines, {listed.get(name, limit)} are allowed"
        for name, size in sizes.items()
        if size > listed.get(name, limit)
    ]
    for name, most in listed.items():
        size = sizes.get(name, 0)
        if size <= limit:
            found.append(f"{name}: {size} lines, take it off the list")
        elif size < most - SLACK:
            found.append(f"{name}: {size} lines, write that into the list instead of {most}")
    return found


def test_modules_of_tests_are_small() -> None:
    found = complaints(modules(), MODULE_LINES, LONG_MODULES)
    assert not found, "cut what is longer by concern:\n" + "\n".join(found)


def test_functions_of_tests_are_small() -> None:
    found = complaints(functions(), FUNCTION_LINES, LONG_FUNCTIONS)
    assert not found, "cut what is longer:\n" + "\n".join(found)


def test_the_list_only_shrinks() -> None:
    listed = {"grew": 600, "same": 600, "shrank": 600, "small": 600, "gone": 600}
    sizes = {"grew": 601, "same": 600, "shrank": 600 - SLACK - 1, "small": 500, "new": 501, "fine": 500}
    assert complaints(sizes, 500, listed) == [
        "grew: 601 lines, 600 are allowed",
        "new: 501 lines, 500 are allowed",
        f"shrank: {600 - SLACK - 1} lines, write that into the list instead of 600",
        "small: 500 lines, take it off the list",
        "gone: 0 lines, take it off the list",
    ]
