"""A cluster lives as long as it was asked to: not shorter for a second start, not longer for a process that was forked."""

from __future__ import annotations

import contextlib
import os
import socket
import struct

import pytest

from kraftlite.testing import Cluster, ClusterError, SyncCluster
from tests.spec.testing.test_cluster import connect


def test_a_cluster_that_runs_outlives_a_second_start() -> None:
    """`with kafka_cluster:` in a test would end the cluster of the whole session."""
    with SyncCluster(controllers=1, brokers=1) as cluster:
        with pytest.raises(ClusterError, match="the cluster runs already"), cluster:
            pass
        assert cluster.controller() == 1


async def test_a_second_start_with_asyncio_ends_nothing_either() -> None:
    async with Cluster(controllers=1, brokers=1) as cluster:
        with pytest.raises(ClusterError, match="the cluster runs already"):
            await cluster.start()
        assert cluster.controller() == 1


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
def test_a_forked_process_keeps_no_broker_alive() -> None:
    """A worker of `multiprocessing` has copies of all sockets: a broker that dies would not be missed, and its port not free."""
    with SyncCluster(controllers=1, brokers=2) as cluster:
        first, second = cluster.brokers
        address = cluster.nodes[first].kafka
        with connect(address) as open_before:
            open_before.sendall(struct.pack(">ihhih", 10, 18, 0, 1, -1))  # ApiVersions: it is served when it answers
            (size,) = struct.unpack(">i", open_before.recv(4, socket.MSG_WAITALL))
            assert len(open_before.recv(size, socket.MSG_WAITALL)) == size
            cluster.pause(second)  # its sockets are with nobody who polls them
            ends, begins = os.pipe()
            child = os.fork()
            if child == 0:
                try:
                    os.close(begins)
                    os.read(ends, 1)  # until the test is over
                finally:
                    os._exit(0)
            os.close(ends)
            try:
                cluster.resume(second)
                for node_id in (first, second):
                    cluster.kill(node_id)
                open_before.settimeout(5)
                with contextlib.suppress(ConnectionResetError):
                    assert open_before.recv(1) == b""
                for node_id in (first, second):
                    with pytest.raises(ConnectionRefusedError):
                        connect(cluster.nodes[node_id].kafka)
                cluster.restart(first, second)
                cluster.wait_for(brokers=cluster.brokers)
            finally:
                os.close(begins)
                os.waitpid(child, 0)
