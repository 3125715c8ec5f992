"""`kraftlite produce --transactional-id` and `consume --isolation-level`, against an embedded cluster. Source: KIP-98."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from kraftlite.cli.compat import producer_perf
from kraftlite.cli.compat.tool import UsageError
from kraftlite.cli.main import cli
from kraftlite.testing import SyncCluster
from tests.harness.exactly_once import settle


@pytest.fixture(scope="module")
def cluster() -> Iterator[SyncCluster]:
    with SyncCluster(controllers=1, brokers=1, combined=True) as found:
        yield found


def run(cluster: SyncCluster, *arguments: str, lines: str = "") -> Result:
    return CliRunner().invoke(cli, [*arguments, "--bootstrap-server", cluster.bootstrap_servers], input=lines)


def consumed(cluster: SyncCluster, topic: str, level: str) -> list[str]:
    """When every outcome that was decided before is carried out."""
    settle(cluster.bootstrap_servers)
    found = run(cluster, "consume", topic, "--from-beginning", "--isolation-level", level, "--timeout", "2")
    return found.stdout.splitlines()


def test_all_lines_are_one_transaction(cluster: SyncCluster) -> None:
    cluster.create_topic("paid", partitions=3)
    done = run(cluster, "produce", "paid", "--transactional-id", "payer", lines="a\nb\nc\n")
    assert done.exit_code == 0, done.output
    assert re.match(r"3 of 3 records acknowledged in .*; the transaction was committed$", done.stderr.strip())
    failed = run(cluster, "produce", "paid", "--transactional-id", "payer", "--key-separator", ":", lines="k:d\nno key\n")
    assert failed.exit_code == 1 and "; the transaction was aborted" in failed.stderr and "line 2" in failed.stderr
    assert sorted(consumed(cluster, "paid", "read_committed")) == ["a", "b", "c"]
    assert sorted(consumed(cluster, "paid", "read_uncommitted")) == ["a", "b", "c", "d"]


def test_a_transaction_needs_all_acknowledgements(cluster: SyncCluster) -> None:
    done = run(cluster, "produce", "paid", "--transactional-id", "payer", "--acks", "1")
    assert done.exit_code == 2 and "--transactional-id needs --acks all" in done.output


def test_a_file_that_cannot_be_read_aborts(cluster: SyncCluster, tmp_path: Path) -> None:
    done = run(cluster, "produce", "paid", "--transactional-id", "payer", "--input", str(tmp_path))
    assert done.exit_code == 1 and "committed" not in done.stderr


def test_to_32_performance_is_measured_in_transactions(cluster: SyncCluster, capsys: pytest.CaptureFixture[str]) -> None:
    cluster.create_topic("measured", partitions=1)
    where = ("--topic", "measured", "--bootstrap-server", cluster.bootstrap_servers)
    size = ("--num-records", "5", "--record-size", "10", "--throughput", "-1")
    for asked in (("--transactional-id", "perf"), ("--transaction-duration-ms", "1")):
        producer_perf.run([*where, *size, *asked])
        assert capsys.readouterr().out.startswith("5 records sent, ")
    assert len(consumed(cluster, "measured", "read_committed")) == 10
    with pytest.raises(UsageError, match="greater than zero"):
        producer_perf.run([*where, *size, "--transaction-duration-ms", "0"])
