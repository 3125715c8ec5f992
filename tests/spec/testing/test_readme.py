"""The README's example is run as it stands there."""

from __future__ import annotations

from pathlib import Path
from typing import Any

README = Path(__file__).resolve().parents[3] / "README.md"


async def test_the_example_of_the_readme() -> None:
    section = README.read_text().split("### In your tests", 1)[1]
    code = section.split("```python\n", 1)[1].split("```", 1)[0]
    names: dict[str, Any] = {}
    exec(compile(code, str(README), "exec"), names)
    (test,) = [value for name, value in names.items() if name.startswith("test_")]
    await test()
