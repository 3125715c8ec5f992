"""A process that has gRPC connections starts other programs."""

import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = """
import asyncio, os, subprocess
from kraftlite.rpc.options import ERROR_KEY
from grpc import aio

def threads():
    tasks = os.listdir("/proc/self/task")
    return {task for task in tasks if open(f"/proc/self/task/{task}/comm").read().strip() == "event_engine"}

async def main():
    server = aio.server()
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    async with aio.insecure_channel(f"127.0.0.1:{port}") as channel:
        await channel.channel_ready()
        before = threads()
        subprocess.run(["true"], preexec_fn=lambda: None, check=True)
        print(len(before) > 0, before <= threads())
    await server.stop(0)

asyncio.run(main())
"""


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="the names of threads are in /proc, which Linux has")
def test_a_fork_leaves_the_threads_of_grpc_alone() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=60, check=False)
    assert done.stdout.split() == ["True", "True"], done.stderr
