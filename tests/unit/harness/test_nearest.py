"""The inner loop takes the tests that are nearest to a change, and stops in time."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from tests.harness.nearest import ForSeconds, imported, nearest

TESTS = {
    "tests/unit/log/test_reads.py": "from kraftlite.log.reads import find\nfrom kraftlite.model import limits\n",
    "tests/unit/log/test_all.py": "import json\nimport os\nfrom kraftlite.log import (\n    reads,\n    scan,\n)\n",
    "tests/unit/log/test_indexes.py": "from kraftlite.log.indexes import OffsetIndex\n",
    "tests/unit/raft/test_core.py": "from kraftlite.raft.core import RaftCore\n",
}


def test_imports_are_found_in_every_form() -> None:
    assert imported("import a.b\nfrom c import d as e\n\ndef f():\n    from g.h import (\n        i,\n        j,\n    )\n") >= {
        "a.b", "c", "c.d", "g.h", "g.h.i", "g.h.j",
    }  # fmt: skip


def test_who_imports_a_changed_module_comes_first_then_its_package_and_nobody_else() -> None:
    assert nearest(["kraftlite/log/reads.py", "docs/TESTING.md"], TESTS) == [
        "tests/unit/log/test_reads.py",
        "tests/unit/log/test_all.py",
        "tests/unit/log/test_indexes.py",
    ]


def test_a_changed_test_comes_before_all_others_and_a_page_has_none() -> None:
    assert nearest(["kraftlite/log/reads.py", "tests/unit/raft/test_core.py"], TESTS)[0] == "tests/unit/raft/test_core.py"
    assert nearest(["docs/TESTING.md", "kraftlite/__init__.py"], TESTS) == []


def test_no_test_begins_when_the_time_is_over_and_those_left_are_counted() -> None:
    item: Any = SimpleNamespace(nodeid="tests/a.py::test_b[1]")
    assert ForSeconds(60).pytest_runtest_protocol(item) is None
    late = ForSeconds(-1)
    assert late.pytest_runtest_protocol(item) is True and late.pytest_runtest_protocol(item) is True
    lines: list[str] = []
    reporter: Any = SimpleNamespace(write_line=lines.append)
    late.pytest_terminal_summary(reporter)
    assert lines == ["2 tests in 1 files were not begun within -1 s; scripts/test has all"]
