"""axe-core in a page: what is wrong with it for somebody who does not see it, or has no mouse (WCAG 2.2, A and AA, and good
practice). It is fetched by npm once, in the version that package.json pins."""

from __future__ import annotations

import fcntl
from functools import cache
from pathlib import Path
from typing import Any, Final

import pytest

from tests.clients.programs import BUILT, Missing, npm_packages

HERE: Final = Path(__file__).parent
_RUN: Final = """async () => (await axe.run(document, {resultTypes: ["violations"]})).violations.flatMap(rule =>
    rule.nodes.map(node => `${rule.id}: ${node.target.join(" ")}: ${node.failureSummary}`))"""


@cache
def _script() -> str:
    """Skips the test, with the reason, where there is no npm."""
    BUILT.mkdir(parents=True, exist_ok=True)
    with (BUILT / "axe.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # the workers of one run share the folder
        try:
            npm_packages(HERE)
        except Missing as missing:
            pytest.skip(f"axe-core cannot be fetched: {missing}")
    return (BUILT / HERE.name / "node_modules" / "axe-core" / "axe.min.js").read_text()


def violations(page: Any) -> list[str]:
    """One line for each element with which something is wrong, as the page is now."""
    script = _script()
    if not page.evaluate("typeof axe === 'object'"):
        page.evaluate(f"() => {{ {script}\n}}")
    found: list[str] = page.evaluate(_RUN)
    return found
