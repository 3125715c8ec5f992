"""`pytest --file-times=N`: the N files whose tests took longest, in seconds of the clock and of processor time.

The processor time is that of this process and of the processes that it has waited for. Where it is far below the time of the
clock, tests wait, and another worker costs nothing. It works with xdist, whose workers send the numbers with each report.
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Iterator

import pytest

_CPU = "cpu_seconds"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--file-times", type=int, default=0, metavar="N", help="show the N files whose tests took longest")


def pytest_configure(config: pytest.Config) -> None:
    if config.getoption("--file-times"):
        config.pluginmanager.register(FileTimes(config.getoption("--file-times")), "kraftlite file times")


def _cpu() -> float:
    used = os.times()
    return used.user + used.system + used.children_user + used.children_system


class FileTimes:
    """Adds up what the phases of all tests took."""

    def __init__(self, shown: int) -> None:
        self._shown = shown
        self._phases: dict[tuple[str, str], list[float]] = defaultdict(lambda: [0.0, 0.0])
        self._tests: dict[str, int] = defaultdict(int)
        self._since = 0.0

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_setup(self) -> Iterator[None]:
        self._since = _cpu()
        return (yield)

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_call(self) -> Iterator[None]:
        self._since = _cpu()
        return (yield)

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_teardown(self) -> Iterator[None]:
        self._since = _cpu()
        return (yield)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self) -> Iterator[None]:
        report = yield
        setattr(report, _CPU, _cpu() - self._since)
        return report

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        file = report.nodeid.partition("::")[0]
        both = self._phases[file, report.when]
        both[0] += report.duration
        both[1] += getattr(report, _CPU, 0.0)
        self._tests[file] += report.when == "call"

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        terminalreporter.section(f"the {self._shown} files that took longest")
        terminalreporter.write_line(f"{'clock':>8} {'cpu':>8} {'setup':>8} {'call':>8} {'teardown':>8} {'tests':>6}")
        rows = sorted((self._row(file) for file in self._tests), reverse=True)
        total = [sum(it) for it in zip(*(numbers for *numbers, _ in rows), strict=True)]
        for *numbers, name in [*rows[: self._shown], *([[*total, "all"]] if rows else [])]:
            *times, tests = numbers
            terminalreporter.write_line(" ".join(f"{it:8.1f}" for it in times) + f" {tests:6}  {name}")

    def _row(self, file: str) -> tuple[float, float, float, float, float, int, str]:
        """Seconds of the clock, of the processor, of the clock for each phase; the number of tests, the file."""
        setup, call, teardown = (self._phases[file, when] for when in ("setup", "call", "teardown"))
        clock, cpu = (sum(both) for both in zip(setup, call, teardown, strict=True))
        return clock, cpu, setup[0], call[0], teardown[0], self._tests[file], file
