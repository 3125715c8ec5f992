"""Times and errors of `kraftlite explain`; the stories are in tests/unit/obs."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar

import click
import pytest
from click.testing import CliRunner, Result

from kraftlite.cli.main import cli
from kraftlite.cli.times import moment
from kraftlite.obs.export.mermaid import MOST
from tests.harness.exports import READERS

NOW = 1_700_000_000_000


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (None, None),
        ("-5m", NOW - 300_000),
        ("-1.5s", NOW - 1_500),
        ("-250ms", NOW - 250),
        ("-2h", NOW - 7_200_000),
        ("-1d", NOW - 86_400_000),
        ("1700000000.5", NOW + 500),
        ("12.4", 5_000 + 12_400),
        ("2023-11-14T22:13:20Z", NOW),
        ("2023-11-14T23:13:20+01:00", NOW),
    ],
)
def test_times(text: str | None, expected: int | None) -> None:
    assert moment(text, "--since", NOW, 5_000) == expected


def test_a_time_without_a_zone_is_local() -> None:
    local = datetime.fromtimestamp(NOW // 1000, tz=UTC).astimezone().replace(tzinfo=None)
    assert moment(local.isoformat(), "--since", NOW, 0) == NOW


@pytest.mark.parametrize("text", ["-5x", "yesterday", "5m", "", "nan", "inf", "1e400"])
def test_what_is_not_a_time_is_refused(text: str) -> None:
    with pytest.raises(click.UsageError, match=r"--until .*allowed are -5m"):
        moment(text, "--until", NOW, 0)


def run(*arguments: str) -> Result:
    return CliRunner().invoke(cli, ["explain", *arguments])


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    lines = [
        {"ts": NOW, "node": 2, "event": "node.starting", "roles": "broker", "cluster_id": "c", "version": "1"},
        {"ts": NOW + 400, "node": 2, "event": "node.started", "roles": "broker"},
    ]
    path = tmp_path / "trace.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines) + '{"ts": 17, "no')
    return path


def test_trace_files_instead_of_a_cluster(trace: Path) -> None:
    done = run("node", "2", "--trace", str(trace))
    assert done.exit_code == 0 and "node 2 started within 400 ms" in done.output
    value = json.loads(run("node", "2", "--trace", str(trace), "--json").output)
    assert [story["kind"] for story in value["stories"]] == ["started"]
    assert json.loads(run("node", "2", "--trace", str(trace), "-o", "json").output) == value


def test_errors_are_one_line(trace: Path, tmp_path: Path) -> None:
    for arguments, status, words in (
        (("node", "3", "--trace", str(trace)), 1, "nothing is recorded of node 3; there are: 2"),
        (("partition", "t-0", "--trace", str(trace)), 1, "there is no partition"),
        (("node", "two", "--trace", str(trace)), 2, "node two: allowed is a number"),
        (("partition", "--trace", str(trace)), 2, "partition needs a name"),
        (("node", "2", "--trace", str(trace), "--since", "5", "--until", "4"), 2, "--since 5 is after --until 4"),
        (("node", "2", "--trace", str(trace), "--format", "otlp", "--json"), 2, "--format otlp and --json exclude each other"),
        (("node", "2", "--trace", str(trace), "--format", "dot"), 2, "'dot' is not one of 'text', 'perfetto'"),
        (("node", "2", "--trace", str(trace), "--since", "-1s", "--format", "shiviz"), 1, "node 2: no story to export"),
        (("node", "2", "--data-dir", str(tmp_path / "none")), 1, "there is no local cluster in"),
    ):
        done = run(*arguments)
        assert done.exit_code == status and words in done.output, done.output


def steps(*arguments: str) -> int:
    return sum(len(story["steps"]) for story in json.loads(run(*arguments, "--json").stdout)["stories"])


@pytest.mark.parametrize("tool", READERS)
def test_another_tool_gets_as_many_steps_as_json_has(trace: Path, tool: str) -> None:
    wanted = ("node", "2", "--trace", str(trace))
    done = run(*wanted, "--format", tool)
    assert done.exit_code == 0 and not done.stderr
    assert len(READERS[tool](done.stdout.rstrip("\n"))) == steps(*wanted) > 1
    assert run(*wanted, "--format", "text").stdout == run(*wanted).stdout


def test_a_diagram_that_mermaid_would_not_draw_is_said(tmp_path: Path) -> None:
    starts = [{"ts": NOW + at * 1000, "node": 2, "event": "node.starting", "roles": "broker"} for at in range(MOST // 50)]
    path = tmp_path / "trace.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in starts))
    done = run("node", "2", "--trace", str(path), "--format", "mermaid")
    assert done.exit_code == 0 and "Mermaid draws 50000 unless its maxTextSize says more" in done.stderr
    assert len(done.stdout) > MOST


def test_lines_that_no_node_writes_are_left_out(trace: Path) -> None:
    before = run("node", "2", "--trace", str(trace)).output
    hostile = [
        '{"ts": Infinity, "node": 2, "event": "x"}',
        '{"ts": -1, "node": 2, "event": "x"}',
        '{"ts": 1e300, "node": 2, "event": "x"}',
    ]
    hostile.append(json.dumps({"ts": NOW, "node": 2, "event": "x", "cause": ["record@1"]}))
    trace.write_text("\n".join([*hostile, trace.read_text()]))
    assert run("node", "2", "--trace", str(trace)).output == before


class _Collector(BaseHTTPRequestHandler):
    """Takes what is sent to it, and answers by the path."""

    taken: ClassVar[list[tuple[str, str, Any]]] = []

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.taken.append((self.path, self.headers["Content-Type"], json.loads(body)))
        status, said = {
            "/refuses": (503, b"full \x1b[31m"),
            "/partly": (200, b'{"partialSuccess": {"rejectedSpans": "2", "errorMessage": "too old"}}'),
            "/odd": (200, b"[" * 10_000),
            "/elsewhere": (307, b""),
        }.get(self.path, (200, b"{}"))
        self.send_response(status)
        if status == 307:
            self.send_header("Location", "/v1/traces")
        self.send_header("Content-Length", str(len(said)))
        self.end_headers()
        self.wfile.write(said)

    def log_message(self, format: str, *args: Any) -> None:
        return


@pytest.fixture
def collector() -> Iterator[str]:
    _Collector.taken.clear()
    with ThreadingHTTPServer(("127.0.0.1", 0), _Collector) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()


def test_stories_are_sent_to_a_collector(trace: Path, collector: str) -> None:
    wanted = ("node", "2", "--trace", str(trace))
    done = run(*wanted, "--otlp", collector)
    assert done.exit_code == 0 and done.output.endswith(f"sent to {collector}/v1/traces\n")
    printed = json.loads(run(*wanted, "--format", "otlp").stdout)
    assert _Collector.taken == [("/v1/traces", "application/json", printed)]
    assert run(*wanted, "--otlp", f"{collector}/mine?tenant=1").exit_code == 0
    assert _Collector.taken[-1][0] == "/mine?tenant=1"


@pytest.mark.parametrize(
    ("path", "words"),
    [
        ("/refuses", "answers 503: full"),
        ("/partly", "has refused a part: 2 spans: too old"),
        ("/elsewhere", "answers 307"),
    ],
)
def test_a_collector_that_does_not_take_them_is_an_error(trace: Path, collector: str, path: str, words: str) -> None:
    done = run("node", "2", "--trace", str(trace), "--otlp", collector + path)
    assert done.exit_code == 1 and words in done.output and "\x1b" not in done.output
    assert len(_Collector.taken) == 1, "it is not sent to where the collector points"


def test_an_odd_answer_of_a_collector_is_none_that_refuses(trace: Path, collector: str) -> None:
    assert run("node", "2", "--trace", str(trace), "--otlp", f"{collector}/odd").exit_code == 0


@pytest.mark.parametrize("url", ["", "localhost:4318", "file:///etc/passwd", "ftp://x", "http://", "http://x:99999", "http://[x"])
def test_what_is_no_collector_is_refused_before_anything_is_sent(trace: Path, url: str) -> None:
    done = run("node", "2", "--trace", str(trace), "--otlp", url)
    assert done.exit_code == 2 and "allowed is http://HOST:PORT" in done.output


def test_nobody_at_the_collector_is_said_in_one_line(trace: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    done = run("node", "2", "--trace", str(trace), "--otlp", f"http://127.0.0.1:{port}")
    assert done.exit_code == 1 and "cannot be reached: [Errno 111] Connection refused" in done.output
    both = run("node", "2", "--trace", str(trace), "--otlp", "http://127.0.0.1:1", "--json")
    assert both.exit_code == 2 and "--otlp sends the stories instead of printing them" in both.output


_STARTED = {
    "ts": NOW + 500,
    "node": 2,
    "event": "partition.leader_started",
    "tp": ["orders", 0],
    "leader_epoch": 1,
    "partition_epoch": 1,
    "start_offset": 0,
    "hw": 0,
    "isr": [2, 3],
    "cause": "record@50",
}


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"partition_epoch": None}, "partition.leader_started has no partition_epoch"),
        ({"partition_epoch": "x"}, "partition_epoch 'x': allowed is a whole number"),
        ({"tp": 7}, "tp 7: allowed is a topic and a number"),
        ({"isr": {}}, "isr a object: allowed is a list"),
    ],
)
def test_a_damaged_line_is_told_and_the_others_are_explained(change: dict[str, Any], words: str, tmp_path: Path) -> None:
    path = tmp_path / "trace.jsonl"
    damaged = {name: value for name, value in {**_STARTED, **change}.items() if value is not None}
    path.write_text("".join(json.dumps(it) + "\n" for it in (damaged, {**_STARTED, "node": 3, "ts": NOW})))
    done = run("partition", "orders-0", "--trace", str(path))
    assert done.exit_code == 0, done.output
    assert "orders-0" in done.stdout
    assert done.stderr.startswith("warning: a line of the trace is damaged and left out: ") and words in done.stderr


def test_an_event_that_is_not_known_is_no_damage(tmp_path: Path) -> None:
    path = tmp_path / "trace.jsonl"
    later = {"ts": NOW, "node": 2, "event": "partition.of_a_later_version", "tp": ["orders", 0], "anything": {"at": ["all"]}}
    path.write_text("".join(json.dumps(it) + "\n" for it in (later, _STARTED)))
    done = run("partition", "orders-0", "--trace", str(path))
    assert done.exit_code == 0 and done.stderr == ""
