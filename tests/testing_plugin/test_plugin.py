"""Every fixture of the plugin, what it refuses, and what a failed test's report says."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest

import kraftlite.testing
from kraftlite.testing import SyncCluster
from tests.harness.pytest_runs import run, run_apart


def test_every_fixture(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        """
        import pytest
        from confluent_kafka import Consumer, Producer
        from confluent_kafka.admin import AdminClient
        from kraftlite.testing import CLIENTS, SOMEBODY, Chaos, SyncCluster, other_than

        def test_the_cluster(kafka_cluster, kafka_bootstrap_servers):
            assert isinstance(kafka_cluster, SyncCluster)
            assert (kafka_cluster.controllers, kafka_cluster.brokers) == ((1, 2, 3), (4, 5, 6))
            assert kafka_bootstrap_servers == kafka_cluster.bootstrap_servers

        names = []

        @pytest.mark.kafka(partitions=2)
        class TestTopics:
            @pytest.mark.kafka(replication_factor=2, config={"min.insync.replicas": 2, "cleanup.policy": "compact"})
            def test_as_it_was_wished(self, kafka_cluster, kafka_topic):
                names.append(kafka_topic)
                assert kafka_cluster.topics()[kafka_topic] == (0, 1)
                assert len(kafka_cluster.isr(kafka_topic, 1)) == 2

            @pytest.mark.parametrize("x", ["ä /", "b"])
            def test_a_new_one_for_each_test(self, kafka_admin, kafka_topic, x):
                assert isinstance(kafka_admin, AdminClient)
                names.append(kafka_topic)
                assert len(set(names)) == len(names)
                assert set(names) <= set(kafka_admin.list_topics(timeout=10).topics)

        def test_a_group_reads_what_was_written(kafka_bootstrap_servers, kafka_topic):
            producer = Producer({"bootstrap.servers": kafka_bootstrap_servers})
            producer.produce(kafka_topic, b"paid")
            assert producer.flush(10) == 0
            consumer = Consumer(
                {"bootstrap.servers": kafka_bootstrap_servers, "group.id": kafka_topic, "auto.offset.reset": "earliest"}
            )
            consumer.subscribe([kafka_topic])
            message = consumer.poll(10)
            assert message is not None and message.value() == b"paid"
            consumer.close()

        def test_chaos(kafka_cluster, kafka_topic, kafka_chaos):
            assert isinstance(kafka_chaos, Chaos)
            leader = kafka_cluster.leader(kafka_topic)
            with kafka_chaos.killed(leader):
                kafka_cluster.wait_for(topic=kafka_topic, leader=other_than(leader))
            assert kafka_cluster.nodes[leader].state == "running"
            with kafka_chaos.paused(4):
                assert kafka_cluster.nodes[4].state == "paused"
            with kafka_chaos.partitioned(CLIENTS, 5):
                assert kafka_cluster.troubles() == ("cut from clients: 5",)
            with kafka_chaos.stopped(6):
                kafka_chaos.restart(6)
            with pytest.raises(RuntimeError), kafka_chaos.killed(1, 4):
                raise RuntimeError
            kafka_chaos.cut(1, 2)
            kafka_chaos.delay(4, 5, 10)
            assert kafka_cluster.troubles() == ("cut: 1 to 2, 2 to 1", "delayed: 4 to 5, 5 to 4")
            kafka_chaos.heal()
            kafka_chaos.pause(5)
            kafka_chaos.resume(5)
            assert kafka_cluster.troubles() == ()

        async def test_a_cluster_of_its_own(kafka_cluster_factory):
            own = kafka_cluster_factory(controllers=1, brokers=1, combined=True, config={"num.partitions": 7})
            own.create_topic("orders")
            own.kill(1)
            with pytest.raises(ValueError, match="brokers=0"):
                kafka_cluster_factory(brokers=0)
        """
    )
    result = run(pytester, "-v", "-o", "asyncio_mode=auto")
    result.assert_outcomes(passed=7)


def test_what_is_left_broken_is_an_error_and_healed(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        """
        import pytest

        @pytest.fixture
        def restores(kafka_chaos):
            kafka_chaos.kill(4)
            yield
            kafka_chaos.restart(4)

        def test_killed(kafka_chaos):
            kafka_chaos.kill(4)

        def test_healed(kafka_cluster, kafka_chaos):
            assert kafka_cluster.live_brokers() == (4, 5, 6) and kafka_cluster.troubles() == ()
            kafka_chaos.pause(1)
            kafka_chaos.cut(5, 6, one_way=True)

        def test_broken_without_chaos(kafka_cluster):
            kafka_cluster.stop(6)

        def test_fixture_that_restores(kafka_cluster, restores):
            assert kafka_cluster.nodes[4].state == "stopped"

        def test_last(kafka_cluster, kafka_topic):
            assert len(kafka_cluster.isr(kafka_topic)) == 3
        """
    )
    result = run(pytester)
    result.assert_outcomes(passed=5, errors=3)
    result.stdout.fnmatch_lines(
        [
            "*ERROR at teardown of test_killed*",
            "the test left its cluster broken: node 4 is stopped (healed now)",
            "*ERROR at teardown of test_healed*",
            "the test left its cluster broken: node 1 is paused; cut: 5 to 6 (healed now)",
            "*ERROR at teardown of test_broken_without_chaos*",
            "the test left its cluster broken: node 6 is stopped (healed now)",
        ]
    )


def test_wrong_markers_and_options(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        """
        import pytest

        @pytest.mark.kafka(partition=3)
        def test_unknown(): pass

        @pytest.mark.kafka(3)
        def test_positional(): pass

        @pytest.mark.kafka(replication_factor=0)
        def test_number(): pass

        @pytest.mark.kafka(config=["a"])
        def test_config(): pass

        @pytest.mark.kafka(replication_factor=2)
        def test_refused(kafka_topic): pass
        """
    )
    result = run(pytester, "--kafka-nodes", "1", "-v")
    result.assert_outcomes(errors=5)
    allowed = "allowed is a whole number of at least 1"
    result.stdout.fnmatch_lines(
        [
            "*::test_unknown: @pytest.mark.kafka has no keyword 'partition'; allowed are partitions, replication_factor, config",
            "*::test_positional: @pytest.mark.kafka takes keywords only (partitions, replication_factor, config), not 3",
            f"*::test_number: @pytest.mark.kafka(replication_factor=0): {allowed}",
            "*::test_config: @pytest.mark.kafka(config=?'a'?): allowed is a mapping of topic configuration keys to values",
            "*topic test_refused-1 was refused: INVALID_REPLICATION_FACTOR*",
        ]
    )
    result = run(pytester, "--kafka-nodes", "0")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines([f"*--kafka-nodes: '0': {allowed}"])
    result = run(pytester, "--markers")
    result.stdout.fnmatch_lines(["@pytest.mark.kafka(partitions=1, replication_factor=None, config=None): *"])


def test_a_failed_test_shows_the_cluster(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        """
        import pytest
        from confluent_kafka import Producer
        from kraftlite.testing import other_than

        def test_before(kafka_topic): pass

        def test_fails(kafka_cluster, kafka_bootstrap_servers, kafka_topic, kafka_chaos):
            kafka_cluster.create_topic("audit", assignment=[[6]])
            producer = Producer({"bootstrap.servers": kafka_bootstrap_servers, "log_level": 0})
            producer.produce(kafka_topic, b"paid")
            assert producer.flush(10) == 0
            leader = kafka_cluster.leader(kafka_topic)
            with kafka_chaos.partitioned(4, 5, one_way=True), kafka_chaos.paused(1):
                kafka_chaos.kill(leader)
                kafka_cluster.wait_for(topic=kafka_topic, leader=other_than(leader))
                pytest.fail(f"leader was {leader}")

        def test_of_its_own(kafka_cluster_factory):
            kafka_cluster_factory(controllers=1, brokers=1).create_topic("own")
            assert False
        """
    )
    result = run(pytester)
    result.assert_outcomes(passed=1, failed=2, errors=1)
    shared, own = re.findall(r"-+ kafka -+\n(.*?)\n(?=[_=]{3})", result.stdout.str(), re.DOTALL)
    leader = re.search(r"Failed: leader was (\d)", result.stdout.str())
    assert leader is not None
    assert re.search(rf"^  {leader[1]} broker: stopped$", shared, re.MULTILINE)
    assert re.search(r"^  [123] controller: running(, the active controller)?$", shared, re.MULTILINE)
    assert re.search(
        r"^  test_fails-2-0: leader ([456]|nobody) in epoch \d+, replicas [\d,]{5}, ISR [\d,]+(, HW \d, LEO 1)?$",
        shared,
        re.MULTILINE,
    )
    assert re.search(r"^  audit-0: leader (6|nobody) in epoch \d+, replicas 6, ISR (6|none)", shared, re.MULTILINE)
    assert "  test_before-1-0:" not in shared and "  __consumer_offsets-0:" not in shared
    assert re.search(
        r"^the last 20 records of the metadata log:\n(  \d\d:\d\d:\d\d\.\d{3} controller [123] .+\n?){20}$", shared, re.MULTILINE
    )
    assert re.search(r"^  \S+ controller [123] @\d+ PartitionChange test_fails-2-0 .*(isr|leader)=.+$", shared, re.MULTILINE)
    assert re.search(r"^  own-0: leader 2 in epoch 0, replicas 2, ISR 2, HW 0, LEO 0$", own, re.MULTILINE)


def test_on_an_external_cluster(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        """
        def test_topic(kafka_bootstrap_servers, kafka_topic, kafka_admin):
            assert kafka_topic in kafka_admin.list_topics(timeout=10).topics
            assert kafka_bootstrap_servers == "{}"

        def test_fails(kafka_topic):
            assert False

        def test_chaos(kafka_chaos): assert False

        def test_cluster(kafka_cluster): assert False
        """.replace("{}", "SERVERS")
    )
    with SyncCluster(controllers=1, brokers=2) as c:
        path = next(pytester.path.glob("test_*.py"))
        path.write_text(path.read_text().replace("SERVERS", c.bootstrap_servers))
        result = run(pytester, "-rs", "--kafka-external", c.bootstrap_servers)
        assert list(c.topics()) == ["__consumer_offsets"], "what the tests made is deleted"
    result.assert_outcomes(passed=1, failed=1, skipped=2)
    result.stdout.re_match_lines(
        [
            r"-+ kafka -+",
            r"brokers of .*: 2,3",
            r"  test_fails-[0-9a-f]{8}-2-0: leader [23], replicas [23], ISR [23], HW 0",
            r"SKIPPED .*--kafka-external: the nodes of that cluster are not this test's to break",
            r"SKIPPED .*--kafka-external: there is no cluster in this process",
        ]
    )


def test_each_worker_of_xdist_has_its_own(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        """
        import pytest

        @pytest.mark.parametrize("i", range(2))
        def test_it(kafka_cluster, kafka_topic, kafka_chaos, worker_id, i):
            assert list(kafka_cluster.topics())[0] == "__consumer_offsets"
            assert all(f"-{worker_id}-" in it for it in list(kafka_cluster.topics())[1:])
            print("topic", kafka_topic)
            kafka_chaos.kill(1)
            assert i == 0
        """
    )
    result = run_apart(pytester, "-n", "2", "--kafka-nodes", "1", "-rP")
    result.assert_outcomes(passed=1, failed=1, errors=2)
    names = set(re.findall(r"^topic (\S+)", result.stdout.str(), re.MULTILINE))
    assert len(names) == 2
    assert {it.split("-")[-2] for it in names} == {"gw0", "gw1"}
    result.stdout.re_match_lines([r"-+ kafka -+", r"  1 broker and controller: stopped", r"partitions: no node is running.*"])


def test_nothing_is_imported_before_it_is_used(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        """
        import sys

        def test_light():
            heavy = ("grpc", "confluent_kafka", "kio", "asyncio", "kraftlite.testing.cluster", "kraftlite.raft")
            assert "kraftlite.testing.plugin" in sys.modules
            assert [it for it in heavy if it in sys.modules] == []
        """
    )
    result = run_apart(pytester, "-p", "no:xdist", "-p", "no:anyio")  # anyio's plugin, where it is installed, has asyncio
    result.assert_outcomes(passed=1)
    code = "import sys; import kraftlite.testing as t; t.SyncCluster; sys.exit('pytest' in sys.modules or 'grpc' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
    with pytest.raises(AttributeError, match="no attribute 'Clutser'"):
        _ = kraftlite.testing.Clutser  # type: ignore[attr-defined]


ASYNC_TEST = """
    from kraftlite.testing import Cluster, other_than

    async def test_an_order_survives_the_death_of_its_leader():
        async with Cluster(controllers=1, brokers=3) as c:
            await c.create_topic("orders", partitions=1, replication_factor=3)
            leader = c.leader("orders")
            c.kill(leader)
            await c.wait_for(topic="orders", leader=other_than(leader))

    async def test_that_fails(kafka_topic):
        assert kafka_topic.startswith("x")
"""


@pytest.mark.parametrize("options", [("-p", "no:asyncio"), ("-o", "asyncio_mode=strict"), ("-o", "asyncio_mode=auto")], ids=str)
def test_async_tests_run_whether_or_not_there_is_a_plugin_for_them(pytester: pytest.Pytester, options: tuple[str, str]) -> None:
    pytester.makepyfile(ASYNC_TEST)
    result = run_apart(pytester) if "no:asyncio" in options else run(pytester, *options)
    result.assert_outcomes(passed=1, failed=1)


def test_async_tests_of_others_are_left_to_their_plugins(pytester: pytest.Pytester) -> None:
    pytester.makepyfile("async def test_elsewhere():\n    assert True\n")
    result = run_apart(pytester)
    result.assert_outcomes(failed=1)


PAGES = """
    from kraftlite.testing import other_than

    def test_breaks(kafka_cluster, kafka_topic, kafka_chaos):
        leader = kafka_cluster.leader(kafka_topic)
        with kafka_chaos.killed(leader):
            kafka_cluster.wait_for(topic=kafka_topic, leader=other_than(leader))
            assert kafka_topic is None, "</script>"

    def test_holds(kafka_topic):
        pass

    def test_needs_no_cluster():
        assert False
    """


def test_a_failed_test_leaves_a_page(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(PAGES)
    result = run(pytester, "--kafka-nodes=1", "--kraftlite-ui=on-failure", "--junitxml=out/report.xml")
    result.assert_outcomes(passed=1, failed=2)
    pages = sorted(it.name for it in (pytester.path / "out" / "kraftlite-ui").iterdir())
    assert [it for it in pages if it.endswith(".html")] == [it for it in pages if "test_breaks" in it and it.endswith(".html")]
    assert len(pages) == 2 and pages[1].endswith(".kljsonl")
    text = (pytester.path / "out" / "kraftlite-ui" / pages[0]).read_text()
    assert "leader_changed" in text or "died" in text
    result.stdout.fnmatch_lines(["*kafka page*", f"what happened to the cluster: file://*{pages[0]}"])


def test_pages_are_written_where_they_are_wanted(pytester: pytest.Pytester) -> None:
    pytester.makepyfile("def test_holds(kafka_topic): pass")
    result = run(pytester, "--kafka-nodes=1", "--kraftlite-ui=always", "--kraftlite-ui-dir=pages")
    result.assert_outcomes(passed=1)
    assert len(list((pytester.path / "pages").glob("*test_holds.html"))) == 1
    pytester.makefile(".txt", occupied="")
    result = run(pytester, "--kafka-nodes=1", "--kraftlite-ui=always", "--kraftlite-ui-dir=occupied.txt", "-rA")
    result.assert_outcomes(passed=1)
    result.stdout.fnmatch_lines(["*there is no page: *occupied.txt*"])
