"""A broker without file descriptors refuses connections; it neither spins nor ends. In a process of its own, for its limit."""

from __future__ import annotations

import subprocess
import sys
import textwrap

import pytest

SCRIPT = """
import asyncio, os, resource, socket, sys, time
import tests.harness.wire_fakes as fakes
from kraftlite.host.loop import new_event_loop
from kraftlite.runtime.trace.wire import ConnectionRefused
from tests.spec.wire.test_connections import METADATA_ALL

resource.setrlimit(resource.RLIMIT_NOFILE, (128, 128))


async def scenario() -> None:
    async with fakes.Harness() as h:
        good = await h.client()
        await good.call(3, 9, METADATA_ALL)
        port = h.listener.endpoint.port
        refused = lambda: [event.reason for event in h.tracer.events if isinstance(event, ConnectionRefused)]
        writers = []
        while not refused():  # the clients are in this process, too: half of the descriptors are theirs
            writers.append((await asyncio.open_connection("127.0.0.1", port))[1])
        assert all(reason.startswith("file descriptor") for reason in refused()), refused()
        with open("/dev/null"):
            pass  # the node can still open its own files
        late, taken = socket.socket(), []
        late.setblocking(False)
        try:
            while True:
                taken.append(os.open("/dev/null", os.O_RDONLY))
        except OSError:
            pass
        late.connect_ex(("127.0.0.1", port))
        begin = time.process_time()
        await asyncio.sleep(1)
        assert time.process_time() - begin < 0.5, "the loop spins"
        await good.call(3, 9, METADATA_ALL)
        for fd in taken:
            os.close(fd)
        late.close()
        for writer in writers:
            writer.transport.abort()
        await fakes.until(lambda: h.listener.connection_count == 1)
        for _ in range(30):  # asyncio accepts again after a second
            await asyncio.sleep(0.1)
            h.clock.advance(100)
        other = await h.client()
        await other.call(3, 9, METADATA_ALL)


loop = new_event_loop(sys.argv[1])
asyncio.set_event_loop(loop)
loop.run_until_complete(scenario())
print("done")
"""


@pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
def test_connections_leave_file_descriptors_to_the_node(loop: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(SCRIPT), loop], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "done"
