"""The part of the pytest plugin that writes pages: what a test did to its embedded clusters, each as one file with its recording.

`kraftlite.testing.plugin` loads it with `--kraftlite-ui`.
"""

from __future__ import annotations

import re
from collections.abc import Generator
from pathlib import Path
from typing import Final

import pytest

from kraftlite.obs.recording_reader import RecordingError, read_bytes
from kraftlite.testing.plugin import PAGES, WATCH
from kraftlite.ui.export import html_of
from kraftlite.ui.replay import tape_of

FOLDER: Final = "kraftlite-ui"
MAX_NAME: Final = 180


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Write the pages while the clusters of the test still run: before its fixtures are torn down."""
    report = yield
    watch = item.stash.get(WATCH, None)
    wanted = report.failed or (item.config.getoption(PAGES) == "always" and report.when == "call")
    if watch is not None and wanted and report.when != "teardown":
        told = [_write(item, number, data) for number, data in enumerate(watch.recordings())]
        if told:
            report.sections.append(("kafka page", "\n".join(told)))
    return report


def _folder(config: pytest.Config) -> Path:
    given = config.getoption("--kraftlite-ui-dir")
    if given is not None:
        return Path(given).absolute()
    junit = config.getoption("xmlpath", None)
    return (Path(junit).absolute().parent if junit else config.rootpath) / FOLDER


def _write(item: pytest.Item, number: int, data: bytes) -> str:
    """The line for the report. A page that cannot be written is said there, and is no failure of the test."""
    name = re.sub(r"[^\w.-]+", "-", item.nodeid)[-MAX_NAME:].strip("-.") + (f"-{number + 1}" if number else "")
    folder = _folder(item.config)
    try:
        tape = tape_of(lambda: read_bytes(data))
        tape["cluster"]["recording"]["title"] = item.nodeid
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{name}.kljsonl").write_bytes(data)
        page = folder / f"{name}.html"
        page.write_text(html_of(tape))
    except (OSError, RecordingError) as error:
        return f"there is no page: {error}"
    return f"what happened to the cluster: {page.as_uri()}"
