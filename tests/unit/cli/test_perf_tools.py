"""The performance tests and kafka-delegation-tokens: what they refuse, and in which words (TO-32, TO-33)."""

from __future__ import annotations

import re
import time
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from kraftlite.cli.compat import consumer_perf, producer_perf
from kraftlite.cli.compat.tool import finish
from kraftlite.cli.main import cli
from kraftlite.client.errors import RequestRefused
from kraftlite.model.errors import ErrorCode

PRODUCER = "kafka-producer-perf-test --topic t --throughput -1 --bootstrap-server 127.0.0.1:1"
CONSUMER = "kafka-consumer-perf-test --topic t --bootstrap-server 127.0.0.1:1"


def tool(line: str) -> Result:
    return CliRunner().invoke(cli, ["compat", *line.split()], catch_exceptions=False)


@pytest.mark.parametrize(
    ("line", "told"),
    [
        (f"{PRODUCER} --record-size 1 --num-records 0", "--num-records should be greater than zero"),
        (f"{PRODUCER} --record-size 1 --num-records -1", "--num-records should be greater than zero"),
        (
            f"{PRODUCER} --record-size 1 --num-records 1 --reporting-interval 0",
            "--reporting-interval should be greater than zero",
        ),
        (f"{PRODUCER} --record-size 1 --num-records 1 --reporting-interval x", "--reporting-interval: invalid int value: 'x'"),
        (f"{PRODUCER} --record-size 1 --num-records 1_0", "--num-records: invalid int value: '1_0'"),
        (
            f"{PRODUCER} --record-size 1 --num-records 2 --warmup-records 2",
            "must be strictly fewer than the number of records",
        ),
        (f"{PRODUCER} --payload-file /nope --num-records 1", "--payload-file /nope: No such file or directory"),
        (
            f"{CONSUMER} --num-records 3 --messages 3",
            "Exactly one of the following arguments is required: [messages], [num-records]",
        ),
        (CONSUMER, "Exactly one of the following arguments is required: [messages], [num-records]"),
        (f"{CONSUMER} --include t.* --num-records 3", "Exactly one of the following arguments is required: [topic], [include]"),
        ("kafka-consumer-perf-test --num-records 3", "Exactly one of the following arguments is required: [topic], [include]"),
    ],
)
def test_what_the_performance_tests_refuse(line: str, told: str) -> None:
    result = tool(line)
    assert result.exit_code == 1 and told in result.stderr and result.stdout in ("", "Reading payloads from: /nope\n")


class Acknowledging:
    """A producer that has each record acknowledged after a millisecond at least."""

    def produce(self, topic: str, value: bytes, on_delivery: Any) -> None:
        time.sleep(0.001)
        on_delivery(None, None)

    def poll(self, timeout_s: float) -> int:
        return 0

    def flush(self, timeout_s: float) -> int:
        return 0


def test_a_window_is_as_long_as_it_is_asked_to_be(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    payloads = tmp_path / "payloads"
    payloads.write_text("a\nb\n")
    line = f"{PRODUCER} --num-records 500 --payload-file {payloads} --reporting-interval 100"
    assert producer_perf.run(line.split()[1:], lambda *_: Acknowledging()) == 0
    said = capsys.readouterr().out.splitlines()
    assert said[:2] == [f"Reading payloads from: {payloads}", "Number of records read: 2"]
    windows = [line for line in said if re.match(r"\d+ records sent, .* max latency\.$", line)]
    assert len(windows) >= 2, "500 records last half a second or longer, and were one window of five"


def test_a_steady_state_begins_behind_the_first_records(capsys: pytest.CaptureFixture[str]) -> None:
    """A measurement with --warmup-records was refused."""
    line = f"{PRODUCER} --num-records 600 --record-size 1 --warmup-records 200 --reporting-interval 50"
    assert producer_perf.run(line.split()[1:], lambda *_: Acknowledging()) == 0
    said = capsys.readouterr().out.splitlines()
    assert said[0] == "Warmup first 200 records. Steady state results will print after the complete test summary."
    assert said.count("In steady state.") == 1 and said.index("In steady state.") >= 1
    assert said[-2].startswith("600 records sent, ") and said[-2].endswith("99.9th.")
    assert said[-1].startswith("400 steady state records sent, ") and said[-1].endswith("99.9th.")


def test_a_steady_state_is_measured_from_its_own_beginning(capsys: pytest.CaptureFixture[str]) -> None:
    stats = producer_perf.Stats(0.0, steady=True)
    for number in range(1, 1001):
        stats.add(float(number), 0)
    stats.end_window()
    stats.silent = True
    stats.add(1.0, 0)
    stats.end_window()
    stats.print_total()
    steady, window, total = capsys.readouterr().out.splitlines()
    assert steady == "In steady state." and window.endswith(", 500.5 ms avg latency, 1000.0 ms max latency.")
    assert total.startswith("1001 steady state records sent, ")
    assert total.endswith(" 1000.00 ms max latency, 500 ms 50th, 950 ms 95th, 990 ms 99th, 999 ms 99.9th.")


@pytest.mark.parametrize("rate", ["0.5", "1e3", "1000.5"])
def test_a_rate_may_be_a_fraction(rate: str, capsys: pytest.CaptureFixture[str]) -> None:
    line = f"--topic t --throughput {rate} --bootstrap-server 127.0.0.1:1 --num-records 1 --record-size 1"
    began = time.monotonic()
    assert producer_perf.run(line.split(), lambda *_: Acknowledging()) == 0
    assert (time.monotonic() - began > 1.5) == (rate == "0.5"), "one record in two seconds"


class Silent:
    """A consumer that is told nothing."""

    def subscribe(self, topics: list[str], on_assign: Any) -> None:
        self.topics = topics

    def consume(self, count: int, timeout_s: float) -> list[Any]:
        return []

    def close(self) -> None:
        pass


def test_a_consumer_of_topics_by_a_pattern(capsys: pytest.CaptureFixture[str]) -> None:
    silent = Silent()
    line = "--include t|u --num-records 3 --bootstrap-server 127.0.0.1:1 --timeout 0 --hide-header"
    assert consumer_perf.run(line.split(), lambda *_: silent) == 0 and silent.topics == ["^(t|u)$"]
    assert capsys.readouterr().out.startswith(
        "WARNING: Exiting before consuming the expected number of records: timeout (0 ms) exceeded."
    )


def test_a_bare_refusal_has_kafkas_words(capsys: pytest.CaptureFixture[str]) -> None:
    def refused(_arguments: object) -> int:
        raise RequestRefused(ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED)

    assert finish("kafka-delegation-tokens", refused, []) == 1
    assert capsys.readouterr().err == (
        "Error: DELEGATION_TOKEN_REQUEST_NOT_ALLOWED: Delegation Token requests are not allowed on PLAINTEXT/1-way SSL channels "
        "and on delegation token authenticated channels.\n"
    )
