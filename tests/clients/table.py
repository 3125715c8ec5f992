"""A pytest plugin: what every client can do, counted by capability, as a table on the terminal and in docs/CLIENTS.md.

`python -m pytest -p tests.clients.table --clients-table docs/CLIENTS.md tests/clients`. The client is the folder that a test
lives in, the capability its mark. A cell is ✗ if any of its tests failed, – if all were skipped, ✓ otherwise; every ✗ and –
has its reason below.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

HERE = Path(__file__).parent
HEAD = """# Clients

Every client is put through the same tests (`tests/clients/capabilities.py`) on a cluster of one controller and three brokers.
`make clients` runs them with every client whose runtime is on the machine, and writes this page. The README.md in the client's
folder in `tests/clients` says what is not as one would expect, and why.

✓ passes, ✗ fails, – skipped. The reasons for ✗ and – are below the table.
"""

CLOSED = """
## At closed listeners

The same clients at listeners that want TLS, certificates or passwords (`tests/clients/security.py`). A refusal passes when the
client shows what it shows when Apache Kafka 4.3 refuses it, and so does a session or a token that ends when no record is lost.
"""

YEARS = """
## Clients of earlier years

Earlier releases of the same clients are put through the essentials of the tests above (`tests/clients/years/versions.py`).
Releases with the same result share a row.
"""

TAIL = """
## Clients that are not tested

- `@confluentinc/kafka-javascript`: its binary is downloaded from GitHub, and a build from source needs the headers of libcurl and
  OpenSSL. It is librdkafka, as confluent-kafka and kcat are.
- `@platformatic/kafka` (1.35.0) and `kafka-ts` (1.5.0): over a broker's death both do with kraftlite what they do with Apache
  Kafka 4.3, killed in the same way. They give a send up after three seconds of retries, which is less than
  `broker.session.timeout.ms`. A client that writes to a partition of the dead leader first loses two to four sends. One that
  writes with `acks=all` to another partition first waits in that send until the dead broker leaves the ISR, and loses none. (With
  a `replica.lag.time.max.ms` of 0.3 s, as embedded clusters have, nobody waits, and two to three sends are lost with both
  brokers.) The first client also ends its consumer's stream after four attempts to fetch from the broker that is gone.
- rskafka (Rust, 0.6.0) was tried by hand beside Apache Kafka: topics, records in every codec with headers, null keys and null
  values, offsets by time, deleted records and its errors are the same with both, but for the text of one error.
- Web UIs: no package registry has one. AKHQ, Kafbat UI and Kafdrop are not in Maven Central, and the Go module proxy does not
  hand out Redpanda Console (nor Kowl, its predecessor); they come as container images and from GitHub. The overview in the table
  is what such a UI asks of a cluster with a node down: its brokers, all topics, all groups with their offsets, the records.
  Those UIs are built with franz-go and kafka-clients.
"""


@dataclass
class Cell:
    passed: int = 0
    failed: dict[str, None] = field(default_factory=dict)
    skipped: dict[str, None] = field(default_factory=dict)

    @property
    def sign(self) -> str:
        if self.failed:
            return "✗"
        if self.passed:
            return "✓"
        return "–" if self.skipped else ""


class Table:
    def __init__(self) -> None:
        self.names: dict[str, str] = {}
        """By folder: the client with its version."""
        self.capabilities: dict[str, None] = {}
        self.cells: dict[tuple[str, str], Cell] = {}

    def count(self, folder: str, capabilities: Iterable[str], outcome: str, reason: str) -> None:
        for capability in capabilities:
            self.capabilities.setdefault(capability)
            cell = self.cells.setdefault((folder, capability), Cell())
            if outcome == "passed":
                cell.passed += 1
            elif outcome == "failed":
                cell.failed.setdefault(reason)
            else:
                cell.skipped.setdefault(reason)

    def folders(self) -> list[str]:
        return [it for it in self.names if any(folder == it for folder, _ in self.cells)]

    def ranges(self) -> str:
        """With a row for each client and result, and all releases that have it. Each client's name ends with its release."""
        found: dict[tuple[str, tuple[str, ...]], list[str]] = {}
        for folder in self.folders():
            name, _, release = self.names[folder].rpartition(" ")
            signs = tuple(self._sign(folder, it) for it in self.capabilities)
            found.setdefault((name, signs), []).append(release)
        rows = [["", "releases", *self.capabilities]]
        rows += [[name, ", ".join(releases), *signs] for (name, signs), releases in found.items()]
        lines = ["| " + " | ".join(row) + " |" for row in rows]
        lines.insert(1, "|---" * len(rows[0]) + "|")
        return "\n".join([*lines, "", *self._reasons()])

    def markdown(self) -> str:
        folders = self.folders()
        rows = [["", *(self.names[it] for it in folders)]]
        rows += [[it, *(self._sign(folder, it) for folder in folders)] for it in self.capabilities]
        lines = ["| " + " | ".join(row) + " |" for row in rows]
        lines.insert(1, "|---" * len(rows[0]) + "|")
        return "\n".join([*lines, "", *self._reasons()])

    def _sign(self, folder: str, capability: str) -> str:
        cell = self.cells.get((folder, capability))
        return "" if cell is None else cell.sign

    def _reasons(self) -> list[str]:
        """One line for each client and reason, with the capabilities that it is the reason of."""
        lines = []
        for folder in self.folders():
            by_reason: dict[tuple[str, str], list[str]] = {}
            for capability in self.capabilities:
                cell = self.cells.get((folder, capability))
                if cell is None or cell.sign not in ("✗", "–"):
                    continue
                for reason in cell.failed or cell.skipped:
                    by_reason.setdefault((cell.sign, reason), []).append(capability)
            name = self.names[folder] if folder == self.names[folder] else self.names[folder].split(" ")[0]
            all_of = [it for (owner, it) in self.cells if owner == folder]
            for (sign, reason), found in by_reason.items():
                which = "everything" if found == all_of else ", ".join(found)
                lines.append(f"- {sign} {name}, {which}: {reason}")
        return lines


class Plugin:
    def __init__(self, target: Path | None) -> None:
        self._target = target
        self._table = Table()
        self._closed = Table()
        """At closed listeners."""
        self._years = Table()
        """Of earlier releases, each under its own name."""

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        for item in items:
            folder = folder_of(item)
            if folder is None or not capabilities_of(item):
                continue
            client = getattr(getattr(item, "cls", None), "client", None)
            if client is not None and client.past:
                name = f"{client.name} {client.version()}"
                self._years.names[name] = name
            elif client is not None:
                self._of(item).names[folder] = f"{client.name} {client.version()}"
            else:
                self._table.names.setdefault(folder, folder)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self, item: pytest.Item, call: pytest.CallInfo[None]) -> Any:
        report: pytest.TestReport = yield
        folder, capabilities = folder_of(item), capabilities_of(item)
        if folder is not None and (report.when == "call" or report.outcome != "passed"):
            client = getattr(getattr(item, "cls", None), "client", None)
            past = client is not None and client.past
            table, name = (self._years, f"{client.name} {client.version()}") if past else (self._of(item), folder)
            table.count(name, capabilities, report.outcome, reason_of(report))
        return report

    def _of(self, item: pytest.Item) -> Table:
        return self._closed if item.path.name == "test_security.py" else self._table

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        text = f"{self._table.markdown()}\n{CLOSED}\n{self._closed.markdown()}\n{YEARS}\n{self._years.ranges()}"
        terminalreporter.section("clients")
        terminalreporter.write_line(text)
        if self._target is not None:
            self._target.write_text(f"{HEAD}\n{text}\n{TAIL}")


def folder_of(item: pytest.Item) -> str | None:
    folder = item.path.parent
    return folder.name if folder.parent == HERE else None


def capabilities_of(item: pytest.Item) -> list[str]:
    return [str(name) for mark in item.iter_markers("capability") for name in mark.args]


def reason_of(report: pytest.TestReport) -> str:
    """One line."""
    if report.outcome == "passed":
        return ""
    if isinstance(report.longrepr, tuple):
        return str(report.longrepr[2]).removeprefix("Skipped: ").splitlines()[0]
    crash = getattr(report.longrepr, "reprcrash", None)
    text = getattr(crash, "message", None) or str(report.longrepr)
    return f"{report.nodeid.rsplit('::', 1)[-1]}: {text.splitlines()[0][:200]}"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--clients-table", type=Path, help="write the table of clients and capabilities into this file")


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(Plugin(config.getoption("--clients-table")), "clients-table")
