"""A pytest plugin: what every client can do, counted by capability, as a table on the terminal and in docs/CLIENTS.md.

`python -m pytest -p tests.clients.table --clients-table docs/CLIENTS.md tests/clients` writes the page anew. With
`--clients-renew docs/CLIENTS.md` a run of some of the tests changes only what they are about. The client is the folder that a
test lives in, the capability its mark. A cell is ✗ if any of its tests failed, – if all were skipped, ✓ otherwise; every ✗ and –
has its reason below.
"""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import pytest

from tests.clients.page import Page, Table

HERE = Path(__file__).parent


class Plugin:
    def __init__(self, target: Path | None, renewed: Path | None) -> None:
        self._target = target
        self._renewed = renewed
        self._run = Page()
        self._before = Page() if renewed is None else Page.parsed(renewed.read_text())

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        if self._renewed is None:
            return
        collected = Page()
        for item in session.items:
            found = place_of(item, collected)
            if found is not None:
                table, client, capabilities = found
                for capability in capabilities:
                    table.cell(client, capability)
        if others := self._before.others(collected):
            text = f"{self._renewed} has other releases than {', '.join(others)}: a whole run renews it (scripts/clients)"
            raise pytest.UsageError(text)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self, item: pytest.Item, call: pytest.CallInfo[None]) -> Any:
        report: pytest.TestReport = yield
        found = place_of(item, self._run)
        if found is not None and (report.when == "call" or report.outcome != "passed"):
            count(*found, report)
        return report

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        terminalreporter.section("clients")
        for table in self._run.tables:
            if table.cells:
                terminalreporter.write_line(str(table))
        if self._target is not None:
            self._target.write_text(str(self._run))
        if self._renewed is not None:
            self._before.renew(self._run)
            self._renewed.write_text(str(self._before))


def count(table: Table, client: str, capabilities: list[str], report: pytest.TestReport) -> None:
    test = report.nodeid.rsplit("::", 1)[-1]
    for capability in capabilities:
        cell = table.cell(client, capability)
        cell.ran.add(test)
        if report.outcome == "passed":
            cell.passed = True
        elif report.outcome == "failed":
            cell.failed.setdefault(test, reason_of(report))
        else:
            cell.skipped.setdefault(reason_of(report))


def place_of(item: pytest.Item, page: Page) -> tuple[Table, str, list[str]] | None:
    """The table that a test is counted in, the client that it is about, and the capabilities; None: it counts nowhere."""
    folder = item.path.parent
    capabilities = [str(name) for mark in item.iter_markers("capability") for name in mark.args]
    if folder.parent != HERE or not capabilities:
        return None
    client = getattr(getattr(item, "cls", None), "client", None) or client_in(folder.name)
    name = f"{client.name} {client.version()}" if client is not None else folder.name
    if client is not None and client.past:
        return page.years, name, capabilities
    return page.closed if item.path.name == "test_security.py" else page.clients, name, capabilities


def client_in(folder: str) -> Any:
    """The client that the tests of a folder are about, also those that are not in a class of it."""
    if not (HERE / folder / "test_capabilities.py").exists():
        return None
    found = importlib.import_module(f"tests.clients.{folder}.test_capabilities")
    return next((it.client for it in vars(found).values() if getattr(it, "client", None) is not None), None)


def reason_of(report: pytest.TestReport) -> str:
    """One line."""
    if isinstance(report.longrepr, tuple):
        return str(report.longrepr[2]).removeprefix("Skipped: ").splitlines()[0]
    crash = getattr(report.longrepr, "reprcrash", None)
    text = getattr(crash, "message", None) or str(report.longrepr)
    return str(text).splitlines()[0][:200]


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--clients-table", type=Path, help="write the table of clients and capabilities into this file")
    parser.addoption("--clients-renew", type=Path, help="renew in this file what the tests that run are about")


def pytest_configure(config: pytest.Config) -> None:
    plugin = Plugin(config.getoption("--clients-table"), config.getoption("--clients-renew"))
    config.pluginmanager.register(plugin, "clients-table")
