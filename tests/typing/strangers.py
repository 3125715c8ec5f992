"""A stranger's project, in a directory of its own: the documents' examples, and a file that uses every public name.

`mypy --strict` looks at it as at any other project; where kraftlite comes from is up to the caller.
"""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterable, Mapping
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
FILES = Path(__file__).resolve().parent / "stranger"
DOCUMENTS = {"README.md": "### In your tests", "docs/PYTEST.md": "# The pytest plugin"}
"""Documents whose examples a reader copies, and the heading from which on they are."""
EXPECTED_EXAMPLES = {"README.md": 1, "docs/PYTEST.md": 8}
_MARKED = re.compile(r"# \[([a-z-]+)\]$")
_ERROR = re.compile(r"^(?P<file>[^:]+):(?P<line>\d+): error: (?P<text>.*)  \[(?P<code>[a-z-]+)\]$")


def examples() -> dict[str, str]:
    """File name to code, of the Python examples in the documents. README: those of its section alone."""
    found = {}
    for document, heading in DOCUMENTS.items():
        section = (ROOT / document).read_text().split(f"{heading}\n", 1)[1]
        if document == "README.md":
            section = section.split("\n### ", 1)[0]
        blocks = [it.split("```", 1)[0] for it in section.split("```python\n")[1:]]
        assert len(blocks) == EXPECTED_EXAMPLES[document], f"{document} has {len(blocks)} examples"
        stem = Path(document).stem.lower()
        found.update({f"test_{stem}_{number}.py": code for number, code in enumerate(blocks)})
    return found


def write_project(folder: Path, sections: Iterable[str] = ()) -> None:
    """`sections`: more of mypy.ini, beyond what a stranger's has."""
    files = {path.name: path.read_text() for path in FILES.glob("*.py")} | examples()
    for name, code in files.items():
        (folder / name).write_text(code)
    (folder / "mypy.ini").write_text("\n".join(["[mypy]", "strict = True", "files = .", *sections, ""]))


def check(python: str, folder: Path, environment: Mapping[str, str] | None = None) -> str:
    """What mypy says to the project, run by `python`."""
    done = subprocess.run(
        [python, "-m", "mypy", "--cache-dir", str(folder / ".cache"), "--hide-error-context", "--no-pretty"],
        cwd=folder,
        env={**os.environ, **(environment or {})},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode in (0, 1), done.stdout + done.stderr
    return done.stdout


def problems(output: str) -> list[str]:
    """Where the output is not what it should be: an error in each marked line of `refused.py`, and none anywhere else."""
    lines = (FILES / "refused.py").read_text().splitlines()
    wanted = {(number, mark[1]) for number, line in enumerate(lines, 1) if (mark := _MARKED.search(line))}
    assert wanted
    seen, found = set(), []
    for line in output.splitlines():
        error = _ERROR.match(line)
        if error is None:
            continue
        place = (int(error["line"]), error["code"])
        if Path(error["file"]).name == "refused.py" and place in wanted:
            seen.add(place)
        else:
            found.append(line)
    return found + [f"refused.py:{line}: mypy has no {code} to tell" for line, code in sorted(wanted - seen)]
