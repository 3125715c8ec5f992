"""What users type-check: the examples and every public name of `kraftlite.testing`, under mypy --strict, without an Any."""

from __future__ import annotations

import ast
import inspect
import sys
from pathlib import Path

import pytest

import kraftlite.testing
from kraftlite.testing import plugin
from tests.typing.strangers import FILES, ROOT, check, problems, write_project

# Public types are made in kraftlite.testing alone. To read nothing else of ours makes this quick, and turns what leaks from
# elsewhere into Any, which the assertions of every_name.py refuse. tests/packaging looks at the whole of the installed wheel.
QUICK = ["[mypy-kraftlite.*]", "follow_imports = skip", "[mypy-kraftlite.testing.*]", "follow_imports = silent"]
QUICK += ["[mypy-kraftlite]", "follow_imports = silent"]


def test_a_strangers_project_is_clean(tmp_path: Path) -> None:
    write_project(tmp_path, QUICK)
    output = check(sys.executable, tmp_path, {"MYPYPATH": str(ROOT)})
    assert not problems(output), output


def test_an_error_in_the_project_is_seen(tmp_path: Path) -> None:
    """The check above can fail."""
    write_project(tmp_path, QUICK)
    (tmp_path / "test_readme_0.py").write_text("from kraftlite.testing import SyncCluster\n\nSyncCluster().leeder('t')\n")
    (tmp_path / "refused.py").write_text("")
    found = problems(check(sys.executable, tmp_path, {"MYPYPATH": str(ROOT)}))
    assert any(it.startswith("test_readme_0.py:3") for it in found)
    assert any(it.startswith("refused.py:") and "arg-type" in it for it in found)


def test_the_project_uses_every_public_name() -> None:
    tree = ast.parse((FILES / "every_name.py").read_text())
    used = {alias.name for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) for alias in node.names}
    assert set(kraftlite.testing.__all__) <= used


@pytest.mark.parametrize("name", kraftlite.testing.__all__)
def test_no_public_signature_says_any(name: str) -> None:
    thing = getattr(kraftlite.testing, name)
    functions = [thing] if inspect.isfunction(thing) else [it for _, it in inspect.getmembers(thing, inspect.isfunction)]
    functions += [it.fget for _, it in inspect.getmembers(thing, lambda it: isinstance(it, property)) if it.fget is not None]
    signatures = {it.__qualname__: str(it.__annotations__) for it in functions if not it.__name__.startswith("_")}
    signatures[f"{name}.__init__"] = str(getattr(getattr(thing, "__init__", None), "__annotations__", ""))
    assert not {where: text for where, text in signatures.items() if "Any" in text}


def test_no_fixture_is_of_any_type() -> None:
    tree = ast.parse(inspect.getsource(plugin))
    fixtures = [
        it for it in tree.body if isinstance(it, ast.FunctionDef) and any("fixture" in ast.unparse(d) for d in it.decorator_list)
    ]
    public = {it.name: ast.unparse(it.returns) for it in fixtures if it.returns is not None and not it.name.startswith("_")}
    assert len(public) == 6
    assert not {name: text for name, text in public.items() if "Any" in text or "..." in text}


def test_the_package_says_that_it_is_typed() -> None:
    assert (Path(kraftlite.testing.__file__).parents[1] / "py.typed").exists()
