"""GrpcTransport over real sockets on the loopback."""

from __future__ import annotations

import asyncio
import errno
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest

from kraftlite.model.errors import ApiError, ErrorCode, Fault
from kraftlite.model.ids import Endpoint, NodeId
from kraftlite.model.messages import raft as r
from kraftlite.model.messages.methods import FETCH_SNAPSHOT, NODE_STATUS, RAFT_FETCH, VOTE
from kraftlite.rpc import codec
from kraftlite.rpc import server as rpc_server
from kraftlite.rpc.options import CHANNEL_OPTIONS
from kraftlite.rpc.transport import GrpcTransport
from kraftlite.runtime.begun import begin
from kraftlite.runtime.ports import TransportError
from kraftlite.runtime.trace import TraceEvent
from kraftlite.runtime.trace.rpc import RpcRequestFailed
from tests.harness.wire_fakes import LoopTasks

ANY = Endpoint("127.0.0.1", 0)


def fetch_request(offset: int = 0, *, max_bytes: int = 10) -> r.RaftFetchRequest:
    return r.RaftFetchRequest(
        cluster_id="c",
        replica_id=NodeId(2),
        replica_directory_id=None,
        current_leader_epoch=1,
        fetch_offset=offset,
        last_fetched_epoch=0,
        max_wait_ms=0,
        max_bytes=max_bytes,
    )


def vote_request(epoch: int = 1) -> r.VoteRequest:
    return r.VoteRequest(
        cluster_id=None,
        voter_id=NodeId(1),
        voter_directory_id=UUID(int=9),
        candidate_id=NodeId(2),
        candidate_directory_id=None,
        candidate_epoch=epoch,
        last_epoch=0,
        last_epoch_end_offset=0,
        pre_vote=True,
    )


class Node:
    """Answers votes and fetches: a fetch of an odd offset waits for `release`, one below zero is refused, and so on."""

    def __init__(self) -> None:
        self.release = asyncio.Event()
        self.waiting = 0
        self.cancelled = 0
        self.events: list[TraceEvent] = []

    def emit(self, event: TraceEvent) -> None:
        self.events.append(event)

    async def vote(self, request: r.VoteRequest) -> r.VoteResponse:
        if request.candidate_epoch == 1_000:
            raise ApiError(ErrorCode.INVALID_REQUEST, "nö")
        if request.candidate_epoch == 2_000:
            raise KeyError("a bug")
        if request.candidate_epoch == 3_000:
            raise Fault("half of it was done")
        return r.VoteResponse(
            error=ErrorCode.NONE, leader_id=None, leader_epoch=request.candidate_epoch, leader_endpoint=None, vote_granted=True
        )

    async def fetch(self, request: r.RaftFetchRequest) -> r.RaftFetchResponse:
        if request.fetch_offset == 1_000:
            raise ApiError(ErrorCode.INVALID_REQUEST, "nö")
        if request.fetch_offset == 2_000:
            raise KeyError("a bug")
        if request.fetch_offset == 3_000:
            raise Fault("half of it was done")
        if request.fetch_offset == 2**62:
            request = replace(request, fetch_offset=2**64)  # more than the message's field holds
        if request.fetch_offset % 2:
            self.waiting += 1
            try:
                await self.release.wait()
            except asyncio.CancelledError:
                self.cancelled += 1
                raise
            finally:
                self.waiting -= 1
        return r.RaftFetchResponse(
            error=ErrorCode.NONE,
            leader_id=NodeId(1),
            leader_epoch=1,
            leader_endpoint=Endpoint("h", 1),
            high_watermark=request.fetch_offset,
            log_start_offset=0,
            diverging_epoch=None,
            snapshot_id=None,
            payload=b"x" * request.max_bytes,
        )

    async def fetch_snapshot(self, request: r.FetchSnapshotRequest) -> r.FetchSnapshotResponse:
        return r.FetchSnapshotResponse(
            error=ErrorCode.NONE,
            leader_id=None,
            leader_epoch=1,
            snapshot_id=request.snapshot_id,
            size=9,
            position=request.position,
            payload=b"s" * request.max_bytes,
        )

    def handlers(self) -> dict[Any, Any]:
        return {VOTE: self.vote, RAFT_FETCH: self.fetch, FETCH_SNAPSHOT: self.fetch_snapshot}


@asynccontextmanager
async def pair() -> AsyncIterator[tuple[GrpcTransport, Endpoint, Node, GrpcTransport, list[tuple[BaseException, str]]]]:
    faults: list[tuple[BaseException, str]] = []
    node = Node()
    server = GrpcTransport(fault=lambda error, where: faults.append((error, where)), tracer=node)
    client = GrpcTransport()
    endpoint = await server.serve(ANY, node.handlers())
    try:
        yield client, endpoint, node, server, faults
    finally:
        await client.close()
        await server.close()


async def until(condition: Any, seconds: float = 5) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "condition not reached"
        await asyncio.sleep(0.005)


async def test_bytes_are_counted_by_service_at_the_node_that_asks() -> None:
    async with pair() as (client, endpoint, _, server, _):
        assert client.channel_bytes == {}
        await client.call(endpoint, VOTE, vote_request(), 5_000)
        raft = client.channel_bytes["Raft"]
        votes = (raft.sent, raft.received)
        assert min(votes) > 0
        for size in (1, 100_000):
            before = raft.received
            await client.call(endpoint, RAFT_FETCH, fetch_request(max_bytes=size), 5_000)
            assert size < raft.received - before < size + 1_000, "of a stream, too"
        assert raft.sent > votes[0] and set(client.channel_bytes) == {"Raft"}
        with pytest.raises(ApiError):
            await client.call(endpoint, VOTE, vote_request(1_000), 5_000)
        assert server.channel_bytes == {}, "what it answers, who asked counts"


async def test_port_0_binds_a_port_and_calls_are_answered() -> None:
    async with pair() as (client, endpoint, *_):
        assert endpoint.host == "127.0.0.1" and endpoint.port > 0
        assert (await client.call(endpoint, VOTE, vote_request(7), 5000)).leader_epoch == 7
        fetched = await client.call(endpoint, RAFT_FETCH, fetch_request(4, max_bytes=3 << 20), 5000)
        assert fetched.high_watermark == 4 and fetched.payload == b"x" * (3 << 20)
        snapshot = r.FetchSnapshotRequest(
            cluster_id=None,
            replica_id=NodeId(2),
            replica_directory_id=None,
            current_leader_epoch=1,
            snapshot_id=r.OffsetAndEpoch(1, 2),
            position=3,
            max_bytes=1000,
        )
        assert (await client.call(endpoint, FETCH_SNAPSHOT, snapshot, 5000)).payload == b"s" * 1000


async def test_a_call_that_begins_outside_of_a_task_is_answered() -> None:
    async with pair() as (client, endpoint, *_):
        answers: list[int] = []

        async def ask() -> None:
            answers.append((await client.call(endpoint, RAFT_FETCH, fetch_request(4), 5000)).high_watermark)
            answers.append((await client.call(endpoint, VOTE, vote_request(7), 5000)).leader_epoch)

        task = begin(LoopTasks(), ask(), name="ask")
        assert task is not None
        await task
        assert answers == [4, 7]


async def test_a_refusal_arrives_as_the_same_api_error() -> None:
    async with pair() as (client, endpoint, _, _, faults):
        for method, request in ((VOTE, vote_request(1_000)), (RAFT_FETCH, fetch_request(1_000))):
            with pytest.raises(ApiError) as refused:
                await client.call(endpoint, method, request, 5000)
            assert (refused.value.code, refused.value.message) == (ErrorCode.INVALID_REQUEST, "nö")
        assert faults == []


@pytest.mark.parametrize("message", ["x" * 30_000, "%" * 30_000, "é" * 30_000, "\U0001f980" * 30_000])
async def test_a_refusal_with_a_long_message_is_still_a_refusal(message: str) -> None:
    async def refuse(_: r.VoteRequest) -> r.VoteResponse:
        raise ApiError(ErrorCode.INVALID_CONFIG, message)

    server, client = GrpcTransport(), GrpcTransport()
    endpoint = await server.serve(ANY, {VOTE: refuse})
    with pytest.raises(ApiError) as caught:
        await client.call(endpoint, VOTE, vote_request(), 5_000)
    assert caught.value.code is ErrorCode.INVALID_CONFIG and message[:400] in str(caught.value)
    await asyncio.gather(client.close(), server.close())


async def test_a_broken_handler_costs_its_request_and_is_told_with_its_stack() -> None:
    async with pair() as (client, endpoint, node, _, faults):
        for method, request in ((VOTE, vote_request(2_000)), (RAFT_FETCH, fetch_request(2_000))):
            with pytest.raises(TransportError, match="KeyError"):
                await client.call(endpoint, method, request, 5000)
        failed = [event for event in node.events if isinstance(event, RpcRequestFailed)]
        assert [event.method for event in failed] == ["Raft/Vote", "Raft/Fetch"]
        assert all(event.error == "KeyError: 'a bug'" and "test_transport.py" in event.trace for event in failed)
        assert faults == []
        assert (await client.call(endpoint, RAFT_FETCH, fetch_request(2), 5000)).high_watermark == 2


async def test_a_fault_in_a_handler_is_the_servers_and_a_transport_error_for_the_caller() -> None:
    async with pair() as (client, endpoint, _, _, faults):
        for method, request in ((VOTE, vote_request(3_000)), (RAFT_FETCH, fetch_request(3_000))):
            with pytest.raises(TransportError, match="Fault"):
                await client.call(endpoint, method, request, 5000)
        assert [where for _, where in faults] == ["rpc Raft/Vote", "rpc Raft/Fetch"]
        assert (await client.call(endpoint, RAFT_FETCH, fetch_request(2), 5000)).high_watermark == 2


async def test_a_method_that_is_not_served_and_a_wrong_request() -> None:
    async with pair() as (client, endpoint, *_):
        with pytest.raises(TransportError, match="UNIMPLEMENTED"):
            await client.call(endpoint, NODE_STATUS, NODE_STATUS.request(), 5000)
        with pytest.raises(TypeError, match="takes VoteRequest, not RaftFetchRequest"):
            await client.call(endpoint, VOTE, fetch_request(), 5000)


async def test_a_long_poll_holds_up_nobody_on_the_same_stream() -> None:
    async with pair() as (client, endpoint, node, *_):
        polls = [asyncio.create_task(client.call(endpoint, RAFT_FETCH, fetch_request(2 * n + 1), 20_000)) for n in range(5)]
        await until(lambda: node.waiting == 5)
        quick = [client.call(endpoint, RAFT_FETCH, fetch_request(2 * n), 5000) for n in range(20)]
        assert [answer.high_watermark for answer in await asyncio.gather(*quick)] == list(range(0, 40, 2))
        assert node.waiting == 5
        node.release.set()
        assert [answer.high_watermark for answer in await asyncio.gather(*polls)] == [1, 3, 5, 7, 9]


async def test_a_timeout_is_a_transport_error_and_cancels_at_the_peer() -> None:
    async with pair() as (client, endpoint, node, *_):
        with pytest.raises(TransportError, match="no answer within 50 ms"):
            await client.call(endpoint, RAFT_FETCH, fetch_request(1), 50)
        await until(lambda: node.cancelled == 1)
        assert (await client.call(endpoint, RAFT_FETCH, fetch_request(2), 5000)).high_watermark == 2


async def test_cancelling_a_call_cancels_it_at_the_peer_and_leaves_the_stream_alone() -> None:
    async with pair() as (client, endpoint, node, *_):
        stays = asyncio.create_task(client.call(endpoint, RAFT_FETCH, fetch_request(3), 20_000))
        goes = asyncio.create_task(client.call(endpoint, RAFT_FETCH, fetch_request(1), 20_000))
        await until(lambda: node.waiting == 2)
        goes.cancel()
        with pytest.raises(asyncio.CancelledError):
            await goes
        await until(lambda: node.cancelled == 1)
        node.release.set()
        assert (await stays).high_watermark == 3
        at_once = asyncio.create_task(client.call(endpoint, RAFT_FETCH, fetch_request(5), 20_000))
        at_once.cancel()  # before it was even sent
        with pytest.raises(asyncio.CancelledError):
            await at_once


async def test_a_used_port_is_an_os_error_that_names_it() -> None:
    async with pair() as (_, endpoint, node, _, _):
        other = GrpcTransport()
        for host in ("127.0.0.1", "localhost", "", "0.0.0.0"):
            with pytest.raises(OSError, match=rf"cannot listen on {host}:{endpoint.port}: Address already in use") as refused:
                await other.serve(Endpoint(host, endpoint.port), node.handlers())
            assert refused.value.errno == errno.EADDRINUSE
        with pytest.raises(OSError, match=r"cannot listen on no-such-host\.invalid:1"):
            await other.serve(Endpoint("no-such-host.invalid", 1), node.handlers())
        await other.close()


async def test_nobody_there_is_a_transport_error_at_once() -> None:
    async with pair() as (client, endpoint, _, server, _):
        await server.close()
        for method, request in ((VOTE, vote_request()), (RAFT_FETCH, fetch_request())):
            started = time.monotonic()
            with pytest.raises(TransportError, match=f"{method} to {endpoint}: UNAVAILABLE"):
                await client.call(endpoint, method, request, 30_000)
            assert time.monotonic() - started < 3


async def test_closing_gives_handlers_their_grace_and_fails_the_rest() -> None:
    async with pair() as (client, endpoint, node, server, _):
        finishing = asyncio.create_task(client.call(endpoint, RAFT_FETCH, fetch_request(1), 20_000))
        await until(lambda: node.waiting == 1)
        closing = asyncio.create_task(server.close(grace_ms=10_000))
        await asyncio.sleep(0)
        with pytest.raises(TransportError, match="shutting down"):
            await client.call(endpoint, RAFT_FETCH, fetch_request(2), 5_000)
        node.release.set()
        assert (await finishing).high_watermark == 1
        await closing
    async with pair() as (client, endpoint, node, server, _):
        lost = asyncio.create_task(client.call(endpoint, RAFT_FETCH, fetch_request(1), 20_000))
        await until(lambda: node.waiting == 1)
        await server.close(grace_ms=30)
        with pytest.raises(TransportError):
            await lost
        await client.close()
        with pytest.raises(TransportError, match="closed"):
            await client.call(endpoint, VOTE, vote_request(), 1000)


async def test_own_calls_fail_when_the_transport_closes() -> None:
    async with pair() as (client, endpoint, node, _, _):
        calls = [asyncio.create_task(client.call(endpoint, RAFT_FETCH, fetch_request(1), 20_000))]
        await until(lambda: node.waiting == 1)
        await client.close()
        with pytest.raises(TransportError):
            await calls[0]
        await until(lambda: node.waiting == 0)


PEER = """
import asyncio, os, sys
sys.path.insert(0, ".")
from kraftlite.model.ids import Endpoint
from kraftlite.rpc.transport import GrpcTransport
from tests.unit.rpc.test_transport import Node

async def main():
    transport = GrpcTransport()
    bound = await transport.serve(Endpoint("127.0.0.1", int(sys.argv[1])), Node().handlers())
    print(bound.port, flush=True)
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)  # ends when the test closes our standard input
    os._exit(0)

if "fork" in sys.argv:
    if pid := os.fork():
        os.waitpid(pid, 0)
        sys.exit()
if "uvloop" in sys.argv:
    import uvloop
    uvloop.run(main())
else:
    asyncio.run(main())
"""


def stop_peer(process: subprocess.Popen[str]) -> None:
    process.kill()
    process.communicate()  # closes its pipes: a forked child ends with them


def start_peer(port: int = 0, *flags: str) -> tuple[subprocess.Popen[str], Endpoint]:
    command = [sys.executable, "-c", PEER, str(port), *flags]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    return process, Endpoint("127.0.0.1", int(process.stdout.readline()))


async def test_a_killed_peer_fails_outstanding_calls_at_once_and_is_found_again_when_it_is_back() -> None:
    process, endpoint = start_peer()
    client = GrpcTransport()
    try:
        await client.call(endpoint, VOTE, vote_request(), 5000)
        poll = asyncio.create_task(client.call(endpoint, RAFT_FETCH, fetch_request(1), 60_000))
        await client.call(endpoint, RAFT_FETCH, fetch_request(2), 5000)
        stop_peer(process)
        started = time.monotonic()
        with pytest.raises(TransportError):
            await poll
        with pytest.raises(TransportError):
            await client.call(endpoint, RAFT_FETCH, fetch_request(2), 60_000)
        assert time.monotonic() - started < 3
        process, _ = start_peer(endpoint.port)
        started = time.monotonic()
        while True:
            try:
                await client.call(endpoint, RAFT_FETCH, fetch_request(2), 5000)
                break
            except TransportError:
                assert time.monotonic() - started < 5
                await asyncio.sleep(0.01)
    finally:
        stop_peer(process)
        await client.close()


async def test_a_paused_peer_is_noticed_by_the_timeout_and_answers_again_afterwards() -> None:
    process, endpoint = start_peer()
    client = GrpcTransport()
    try:
        await client.call(endpoint, RAFT_FETCH, fetch_request(2), 5000)
        process.send_signal(signal.SIGSTOP)
        for method, request in ((RAFT_FETCH, fetch_request(2)), (VOTE, vote_request())):
            started = time.monotonic()
            with pytest.raises(TransportError):
                await client.call(endpoint, method, request, 100)
            assert 0.09 <= time.monotonic() - started < 3
        process.send_signal(signal.SIGCONT)
        assert (await client.call(endpoint, RAFT_FETCH, fetch_request(4), 5000)).high_watermark == 4
    finally:
        stop_peer(process)
        await client.close()


@pytest.mark.parametrize("flag", ["uvloop", "fork"])
async def test_a_peer_on_uvloop_or_after_a_fork(flag: str) -> None:
    process, endpoint = start_peer(0, flag)
    client = GrpcTransport()
    try:
        assert (await client.call(endpoint, RAFT_FETCH, fetch_request(4), 5000)).high_watermark == 4
        assert (await client.call(endpoint, VOTE, vote_request(3), 5000)).leader_epoch == 3
    finally:
        stop_peer(process)
        await client.close()


@contextmanager
def limits(**values: int) -> Iterator[None]:
    """The server's bounds, small enough for a test."""
    before = {name: getattr(rpc_server, name) for name in values}
    vars(rpc_server).update(values)
    try:
        yield
    finally:
        vars(rpc_server).update(before)


async def test_a_peer_that_reads_no_answers_is_given_no_more_of_them_and_loses_its_stream() -> None:
    limit = 2 << 20
    with limits(RPC_MAX_UNREAD_BYTES_PER_STREAM=limit, RPC_STALLED_MS=500):
        await _reads_nothing(limit)


async def _reads_nothing(limit: int) -> None:
    import grpc
    from grpc import aio

    async with pair() as (client, endpoint, _, server, faults):
        (serving,) = server._servers
        most = 0
        async with aio.insecure_channel(str(endpoint), options=CHANNEL_OPTIONS) as channel:
            stream = channel.stream_stream(codec.path(RAFT_FETCH))()
            found = codec.MessageCodec(RAFT_FETCH, r.RaftFetchRequest)
            for number in range(200):
                await stream.write(codec.encode_head_frame(number, *found.split(fetch_request(2, max_bytes=1 << 20))))
                most = max(most, serving.unread_bytes)
            assert (await client.call(endpoint, VOTE, vote_request(7), 5000)).leader_epoch == 7

            def gone() -> bool:
                nonlocal most
                most = max(most, serving.unread_bytes)
                return serving.unread_bytes < limit

            await until(gone, 20)
            assert limit <= most <= limit + (2 << 20)
            with pytest.raises(aio.AioRpcError) as lost:
                while await stream.read() is not aio.EOF:  # type: ignore[attr-defined]
                    pass
            assert lost.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        assert faults == []


async def test_a_number_that_is_under_way_and_too_many_requests_end_the_stream() -> None:
    from grpc import aio

    with limits(RPC_MAX_REQUESTS_PER_STREAM=5):
        async with pair() as (client, endpoint, node, _, faults):
            for numbers in ((1, 2, 1), range(6)):
                async with aio.insecure_channel(str(endpoint)) as channel:
                    stream = channel.stream_stream(codec.path(RAFT_FETCH))()
                    found = codec.MessageCodec(RAFT_FETCH, r.RaftFetchRequest)
                    for number in numbers:
                        await stream.write(codec.encode_head_frame(number, *found.split(fetch_request(1))))
                    with pytest.raises(aio.AioRpcError, match="under way already"):
                        await stream.read()
                await until(lambda: node.waiting == 0)
            node.release.set()
            assert (await client.call(endpoint, RAFT_FETCH, fetch_request(2), 5000)).high_watermark == 2
            assert faults == []
