"""docs/CLIENTS.md as tables that are written and read again, so that a run of a few tests can renew what is theirs.

The order of rows and columns says nothing of the order of the tests: the page stays the same when a run has the same results.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import takewhile
from typing import Final

HEAD: Final = """# Clients

Every client is put through the same tests (`tests/clients/capabilities.py`) on a cluster of one controller and three brokers.
`make clients` runs them with every client whose runtime is on the machine, and writes this page. The README.md in the client's
folder in `tests/clients` says what is not as one would expect, and why.

✓ passes, ✗ fails, – skipped. The reasons for ✗ and – are below the table.
"""
CLOSED: Final = """
## At closed listeners

The same clients at listeners that want TLS, certificates or passwords (`tests/clients/security.py`). A refusal passes when the
client shows what it shows when Apache Kafka 4.3 refuses it, and so does a session or a token that ends when no record is lost.
"""
YEARS: Final = """
## Clients of earlier years

Earlier releases of the same clients are put through the essentials of the tests above (`tests/clients/years/versions.py`).
Releases with the same result share a row.
"""
TAIL: Final = """
## What clients leave to their applications

- franz-go: `EndTransaction` may return "unable to dial … connection refused" while the coordinator's broker is dead and not
  fenced yet. The client does not ask again for the coordinator when it meets that broker twice in a row, and the longer
  `broker.session.timeout.ms` is, the likelier it does; with Apache Kafka 4.3 it is the same. Nobody has confirmed the commit
  then. The application aborts, as the client's documentation says, looks whether the transaction was committed all the same,
  and does it again if not. The program of these tests does that, and each transaction is there once
  (`tests/clients/franz_go/README.md`).
- KafkaJS: `send` may succeed when a broker dies although nobody has acknowledged one of its partitions. A broker that has
  answered for its own partitions is not asked again when it leads that of the dead one, too. The answer of `send` then has no
  entry for that partition, and the records may be nowhere; with Apache Kafka 4.3 it is the same. An application compares the
  answer with the partitions that it sent to. The program of these tests does that, and sends the missing part again before
  anything else; with `idempotent` it has the sequence of the first time, and is there once (`tests/clients/kafkajs/README.md`).

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
PASSED, FAILED, SKIPPED = "✓", "✗", "–"
_FAMILIES: Final = ("produce", "codec", "headers", "seek", "group", "transactions", "admin", "a broker", "login", "refused")
"""The first words of capabilities, in the order of the page; those of others come last. Within a family the alphabet decides."""
_EVERYTHING: Final = "everything"


@dataclass
class Cell:
    """What the tests of one capability of one client said."""

    passed: bool = False
    failed: dict[str, str] = field(default_factory=dict)
    """By test."""
    skipped: dict[str, None] = field(default_factory=dict)
    ran: set[str] = field(default_factory=set)
    """The tests, of a run; nothing of a page."""

    @property
    def sign(self) -> str:
        if self.failed:
            return FAILED
        if self.passed:
            return PASSED
        return SKIPPED if self.skipped else ""

    @property
    def reasons(self) -> list[str]:
        if self.failed:
            return [f"{test}: {text}" for test, text in self.failed.items()]
        return list(self.skipped) if self.sign == SKIPPED else []

    def renewed(self, run: Cell) -> Cell:
        """With the word of the tests that ran again. What others have failed stays failed, and a skip takes no pass away."""
        failed = {test: text for test, text in self.failed.items() if test not in run.ran}
        return Cell(self.passed or run.passed, {**failed, **run.failed}, run.skipped or self.skipped)


@dataclass
class Table:
    """`wide`: a column for each client, else a row for each result, with all releases of a client that have it. Clients are named
    with their release, which is the last word, or, in a wide table, the first one that has a digit and what follows."""

    wide: bool = True
    cells: dict[tuple[str, str], Cell] = field(default_factory=dict)
    """By client and capability."""

    def cell(self, client: str, capability: str) -> Cell:
        return self.cells.setdefault((client, capability), Cell())

    def clients(self) -> list[str]:
        return sorted({client for client, _ in self.cells}, key=by_release)

    def capabilities(self) -> list[str]:
        return sorted({it for _, it in self.cells}, key=by_family)

    def sign(self, client: str, capability: str) -> str:
        found = self.cells.get((client, capability))
        return "" if found is None else found.sign

    def renew(self, run: Table) -> None:
        """Take what ran from `run`, and leave everything else as it is."""
        for key, cell in run.cells.items():
            self.cells[key] = self.cells[key].renewed(cell) if key in self.cells else cell

    def others(self, run: Table) -> list[str]:
        """The clients of a run of which this table has another release."""
        known = {short(it): it for it in self.clients()} if self.wide else {}
        return [it for it in run.clients() if known.get(short(it), it) != it]

    # --- as text

    def __str__(self) -> str:
        rows = self._columns() if self.wide else self._ranges()
        lines = ["| " + " | ".join(row) + " |" for row in rows]
        lines.insert(1, "|---" * len(rows[0]) + "|")
        return "\n".join([*lines, "", *self._reasons()]) + "\n"

    def _columns(self) -> list[list[str]]:
        clients = self.clients()
        return [["", *clients], *([it, *(self.sign(client, it) for client in clients)] for it in self.capabilities())]

    def _ranges(self) -> list[list[str]]:
        capabilities = self.capabilities()
        found: dict[tuple[str, ...], list[str]] = {}
        for client in self.clients():
            name, _, release = client.rpartition(" ")
            found.setdefault((name, *(self.sign(client, it) for it in capabilities)), []).append(release)
        return [["", "releases", *capabilities], *([key[0], ", ".join(releases), *key[1:]] for key, releases in found.items())]

    def _reasons(self) -> Iterator[str]:
        """A line for each reason, with the clients and the capabilities that it is the reason of."""
        found: dict[tuple[str, str, str, str], list[str]] = {}
        for client in self.clients():
            every = [it for it in self.capabilities() if (client, it) in self.cells]
            by_reason: dict[tuple[str, str], list[str]] = {}
            for capability in every:
                cell = self.cells[client, capability]
                for reason in cell.reasons:
                    by_reason.setdefault((cell.sign, reason), []).append(capability)
            name, _, release = client.rpartition(" ")
            for (sign, reason), capabilities in by_reason.items():
                which = _EVERYTHING if capabilities == every else ", ".join(capabilities)
                key = (sign, short(client) if self.wide else name, which, reason)
                found.setdefault(key, []).append(release)
        for (sign, name, which, reason), releases in found.items():
            yield f"- {sign} {name}{'' if self.wide else ' ' + ', '.join(releases)}, {which}: {reason}"

    @classmethod
    def parsed(cls, text: str, *, wide: bool) -> Table:
        """Read what `str` has written. ValueError: it is not that."""
        table = cls(wide)
        lines = [it for it in text.splitlines() if it]
        rows = [[it.strip() for it in line.strip("|").split("|")] for line in lines if line.startswith("|")]
        if len(rows) < 2:
            raise ValueError("there is no table where one belongs")
        (_, *heads), _, *rest = rows
        for first, *others in rest:
            if wide:
                signs = [(client, first, sign) for client, sign in zip(heads, others, strict=True)]
            else:
                clients = [f"{first} {release}" for release in others[0].split(", ")]
                signs = [(client, *it) for client in clients for it in zip(heads[1:], others[1:], strict=True)]
            for client, capability, sign in signs:
                if sign:
                    table.cell(client, capability).passed = sign == PASSED
        for line in lines:
            if line.startswith((f"- {FAILED} ", f"- {SKIPPED} ")):
                table._read_reason(line[2:3], line[4:])
        return table

    def _read_reason(self, sign: str, text: str) -> None:
        clients, rest = self._who(text)
        every = sorted({it for client, it in self.cells if client in clients}, key=len, reverse=True)
        found = []
        while True:
            capability = next((it for it in [*every, _EVERYTHING] if re.match(re.escape(it) + "(: |, )", rest)), None)
            if capability is None:
                raise ValueError(f"this tells of no row of the table: {text}")
            more, rest = rest[len(capability)], rest[len(capability) + 2 :]
            found.append(capability)
            if more == ":":
                break
        for client in clients:
            for capability in every if found == [_EVERYTHING] else found:
                cell = self.cells.get((client, capability))
                if cell is not None and sign == FAILED:
                    test, _, said = rest.partition(": ")
                    cell.failed[test] = said
                elif cell is not None:
                    cell.skipped[rest] = None

    def _who(self, text: str) -> tuple[list[str], str]:
        """The clients that a reason begins with, and what follows them."""
        for client in self.clients():
            name = short(client) if self.wide else client.rpartition(" ")[0]
            if not text.startswith(f"{name}, " if self.wide else f"{name} "):
                continue
            rest = text[len(name) + 1 :].lstrip()
            if self.wide:
                return [client], rest
            releases = self._releases(name, rest)
            if releases:
                return [f"{name} {it}" for it in releases], rest[len(", ".join(releases)) + 2 :]
        raise ValueError(f"this tells of no client of the table: {text}")

    def _releases(self, name: str, text: str) -> list[str]:
        """The releases of the client that a text begins with."""
        known = {client.rpartition(" ")[2] for client in self.clients() if client.rpartition(" ")[0] == name}
        return list(takewhile(known.__contains__, text.split(", ")))


@dataclass
class Page:
    """The tables of the page: what all clients can do, what they do at closed listeners, and what earlier releases can do."""

    clients: Table = field(default_factory=Table)
    closed: Table = field(default_factory=Table)
    years: Table = field(default_factory=lambda: Table(wide=False))

    @property
    def tables(self) -> tuple[Table, Table, Table]:
        return self.clients, self.closed, self.years

    def renew(self, run: Page) -> None:
        for mine, its in zip(self.tables, run.tables, strict=True):
            mine.renew(its)

    def others(self, run: Page) -> list[str]:
        """The clients of a run of which this page has another release: only a whole run makes it that of the new one."""
        return [it for mine, its in zip(self.tables, run.tables, strict=True) for it in mine.others(its)]

    def __str__(self) -> str:
        return f"{HEAD}\n{self.clients}{CLOSED}\n{self.closed}{YEARS}\n{self.years}{TAIL}"

    @classmethod
    def parsed(cls, text: str) -> Page:
        """Read what `str` has written. ValueError: it is not that."""
        titles = [it.strip().splitlines()[0] for it in (CLOSED, YEARS, TAIL)]
        parts = re.split("|".join(f"^{re.escape(it)}$" for it in titles), text, flags=re.MULTILINE)
        if len(parts) != 4:
            raise ValueError(f"the page has other headings than {', '.join(titles)}")
        clients, closed = (Table.parsed(it, wide=True) for it in parts[:2])
        return cls(clients, closed, Table.parsed(parts[2], wide=False))


def short(client: str) -> str:
    """The first word of a client's name."""
    return client.split(" ")[0]


def by_release(client: str) -> tuple[str, list[int], str]:
    """To sort clients by name, and releases of one by their numbers."""
    words = client.split(" ")
    name = list(takewhile(lambda it: not it[:1].isdigit(), words))
    return " ".join(name).casefold(), [int(it) for it in re.findall(r"\d+", " ".join(words[len(name) :]))], client


def by_family(capability: str) -> tuple[int, str, str]:
    rank = next((n for n, it in enumerate(_FAMILIES) if capability.startswith(it)), len(_FAMILIES))
    return rank, capability.casefold(), capability
