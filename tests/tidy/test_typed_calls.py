"""Calls between nodes are checked by mypy: what does not fit a method is refused, what fits has the type of its response."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from tests.tidy.test_tidy import ROOT

CALLS = """
from kraftlite.model.ids import Endpoint
from kraftlite.model.messages.methods import DESCRIBE_QUORUM, VOTE
from kraftlite.model.messages.raft import DescribeQuorumRequest, DescribeQuorumResponse, VoteRequest, VoteResponse
from kraftlite.raft.events import Reply, RequestReceived
from kraftlite.runtime.ports import Handlers, Transport, route

async def describe(request: DescribeQuorumRequest) -> DescribeQuorumResponse:
    raise NotImplementedError

async def calls(transport: Transport, peer: Endpoint, vote: VoteRequest) -> None:
    answer = await transport.call(peer, VOTE, vote, 1_000)
    reveal_type(answer)  # VoteResponse
    await transport.call(peer, VOTE, DescribeQuorumRequest(), 1_000)  # wrong
    described: VoteResponse = await transport.call(peer, DESCRIBE_QUORUM, DescribeQuorumRequest(), 1_000)  # wrong

handlers: Handlers = dict([route(DESCRIBE_QUORUM, describe)])
route(VOTE, describe)  # wrong
RequestReceived(request_id=1, request=DescribeQuorumRequest())  # wrong
Reply(request_id=1, response="granted")  # wrong
"""


def test_a_request_of_another_method_is_refused_by_mypy(tmp_path: Path) -> None:
    path = tmp_path / "typed_calls.py"
    path.write_text(CALLS)
    command = [sys.executable, "-m", "mypy", "--config-file", str(ROOT / "pyproject.toml"), "--no-pretty", str(path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=600, check=False)
    told = [line for line in done.stdout.splitlines() if "/typed_calls.py:" in line]
    lines = CALLS.splitlines()
    wrong = [number for number, line in enumerate(lines, 1) if line.endswith("# wrong")]
    assert sorted({int(line.split(":")[1]) for line in told if ": error:" in line}) == wrong, done.stdout + done.stderr
    assert any("Revealed type" in line and "messages.raft.VoteResponse" in line for line in told), done.stdout


def test_no_request_or_response_of_a_node_is_any() -> None:
    """Where one is of many kinds it is a union, or an object that is looked at."""
    found = []
    for package in ("model", "runtime", "raft", "metadata", "controller", "replication", "coordinator", "broker", "rpc"):
        for path in sorted((ROOT / "kraftlite" / package).rglob("*.py")):
            for number, line in enumerate(path.read_text().splitlines(), 1):
                if re.search(r"\b(request|response): Any\b", line):
                    found.append(f"{path.relative_to(ROOT)}:{number}: {line.strip()}")
    assert not found, "say which messages:\n" + "\n".join(found)
