"""The simulated administrator: what it draws, which seeds have it, and what becomes of a broker that it takes out too late."""

from __future__ import annotations

import random
from collections.abc import Callable

from kraftlite.model.broker_configs import BROKER_CONFIGS
from kraftlite.model.errors import ApiError
from kraftlite.model.ids import NodeId
from kraftlite.model.messages.controller import UnregisterBrokerRequest
from kraftlite.model.messages.methods import UNREGISTER_BROKER
from kraftlite.model.topic_configs import validate_topic_configs
from kraftlite.sim.cluster import SimCluster
from kraftlite.sim.history import History
from kraftlite.sim.injection.catalog import HANDLERS
from kraftlite.sim.injector import Injector
from kraftlite.sim.loop import VirtualLoop
from kraftlite.sim.shape import NAMED, Shape, of_release
from kraftlite.sim.themes import ADMIN, PLAIN
from kraftlite.sim.workloads.admin_configs import CONFIG_DRAWS
from kraftlite.sim.workloads.admin_topics import TOPIC_DRAWS, Drawn, Sight
from kraftlite.sim.workloads.admin_values import OF_BROKERS, OF_TOPICS
from kraftlite.sim.workloads.visits import visitors
from tests.harness.watched_cluster import watched

SIGHT = Sight(brokers=[NodeId(1), NodeId(2), NodeId(3)], shape=NAMED["3c"].topics, counts={"z1": 2, "orders": 2})


def draws(seed: int) -> list[Drawn]:
    rng = random.Random(seed)
    return [rng.choice((*TOPIC_DRAWS, *CONFIG_DRAWS))(rng, SIGHT) for _ in range(400)]


def test_every_kind_of_request_is_drawn_and_the_same_ones_of_the_same_seed() -> None:
    found = draws(1)
    assert {kind for kind, _ in found} == {
        *("create_topics", "delete_topics", "create_partitions", "alter_reassignments", "list_reassignments", "elect_leaders"),
        *("alter_configs", "update_features", "alter_quotas", "alter_scram"),
    }
    assert found == draws(1) != draws(2)


def test_topics_of_others_are_neither_deleted_nor_robbed_of_their_configs() -> None:
    for kind, request in draws(3):
        if kind == "delete_topics":
            assert all(it.name != "orders" for it in request.topics)
        if kind == "alter_configs" and hasattr(request.resources[0], "configs"):
            assert all(it.resource_name != "orders" for it in request.resources)


def test_a_run_of_this_theme_has_administrators_and_a_tenant() -> None:
    loop = VirtualLoop(1)
    for theme, expected in (
        (ADMIN, ["stranger", "operator", "tenant", "agreements"]),
        (PLAIN, ["stranger"]),
    ):  # a seed with a stranger
        found = visitors(SimCluster(loop, NAMED["3c"], 1, theme), History(), [])
        assert [(client.name, run.close())[0] for client, run in found] == expected
    loop.close()


def test_a_third_of_the_seeds_begin_with_an_older_metadata_version() -> None:
    plain = NAMED["3+3"]
    older = [shape for seed in range(400) if (shape := of_release(plain, seed)) != plain]
    assert 90 < len(older) < 180
    assert {type(shape) for shape in older} == {Shape}
    assert {shape.release for shape in older} == {"3.6-IV2", "3.9-IV0", "4.0-IV3", "4.2-IV1"}


def test_a_broker_that_was_unregistered_while_it_ran_is_started_anew() -> None:
    with watched() as start:
        cluster = start()
        deaths: list[tuple[int, str]] = []
        injector = Injector(
            cluster.cluster,
            HANDLERS,
            on_death=lambda node, how: deaths.append((node.node_id, how)),
            power_losses={},
            wiped=set(),
            damaged=set(),
            forgetful=set(),
        )
        cluster.call(cluster.leader_id(), UNREGISTER_BROKER, UnregisterBrokerRequest(broker_id=NodeId(4), timeout_ms=1_000))

        async def revive() -> None:
            injector.revive()

        cluster.do(revive())
        assert deaths == [(4, "killed")]
        cluster.until(lambda: NodeId(4) in cluster.controller().state.cluster.brokers and cluster.node(4).started)
        cluster.do(revive())
        assert len(deaths) == 1

        cluster.kill(4)
        deaths.clear()

        async def boot() -> None:
            cluster.node(4).boot()

        def registered() -> bool:
            node = cluster.node(4).node
            return node is not None and node.broker is not None and node.broker.lifecycle.broker_epoch is not None

        cluster.do(boot())
        cluster.until(registered)
        assert not cluster.node(4).started
        cluster.call(cluster.leader_id(), UNREGISTER_BROKER, UnregisterBrokerRequest(broker_id=NodeId(4), timeout_ms=1_000))
        cluster.do(revive())
        assert deaths == [(4, "killed")], "it had registered, and was not ready yet"


def _taken(check: Callable[[], object]) -> bool:
    try:
        check()
    except (ApiError, ValueError):
        return False
    return True


def test_the_definitions_of_configs_take_good_values_and_no_bad_ones() -> None:
    for key, known in OF_TOPICS.items():
        taken = [value for value in (*known.good, *known.bad) if _taken(lambda: validate_topic_configs({key: value}))]  # noqa: B023
        assert taken == list(known.good), key
    for key, known in OF_BROKERS.items():
        taken = [value for value in (*known.good, *known.bad) if _taken(lambda: BROKER_CONFIGS[key].parse(value))]  # noqa: B023
        assert taken == list(known.good), key
