"""The examples of docs/PYTEST.md are run as they stand there."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.harness.pytest_runs import run

DOCUMENT = Path(__file__).resolve().parents[3] / "docs" / "PYTEST.md"


def test_the_examples_of_the_document(pytester: pytest.Pytester) -> None:
    examples = [it.split("```", 1)[0] for it in DOCUMENT.read_text().split("```python\n")[1:]]
    for number, code in enumerate(examples):
        pytester.path.joinpath(f"test_example_{number}.py").write_text(code)
    result = run(pytester)
    result.assert_outcomes(passed=8)
    assert len(examples) == 8
