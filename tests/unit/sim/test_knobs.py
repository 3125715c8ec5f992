"""What a run may give to a node's keys: everything that is a number, within what the configuration accepts, and repeatable."""

from __future__ import annotations

import random

import pytest

from kraftlite.config.server import load
from kraftlite.model.broker_configs import BROKER_CONFIGS
from kraftlite.model.config_effects import EFFECTS, Effect
from kraftlite.model.configdef import ConfigType
from kraftlite.sim import knobs
from kraftlite.sim.cluster import SIM_DEFAULTS
from kraftlite.sim.run import RunPlan
from kraftlite.sim.shape import NAMED, Shape
from kraftlite.sim.shape import draw as draw_shape
from kraftlite.sim.themes import KNOBS

NUMBERS = (ConfigType.INT, ConfigType.LONG, ConfigType.SHORT, ConfigType.DOUBLE)
APPLIED = (Effect.APPLIED, Effect.IN_PART)


def shaped() -> set[str]:
    return {key for seed in range(50) for key in draw_shape(random.Random(f"shape/{seed}")).config}


def node_of(shape: Shape) -> dict[str, str]:
    return {
        "process.roles": "broker,controller",
        "node.id": "1",
        "controller.quorum.voters": "1@n1:9093",
        "controller.listener.names": "CONTROLLER",
        "listeners": "PLAINTEXT://n1:9092,REPLICATION://n1:9192,CONTROLLER://n1:9093",
        "inter.broker.listener.name": "REPLICATION",
        **SIM_DEFAULTS,
        **shape.config,
    }


def test_every_key_that_is_a_number_and_has_an_effect_is_drawn_or_has_a_reason() -> None:
    known = {key for key, it in EFFECTS.items() if key in BROKER_CONFIGS and it.rule.effect in APPLIED}
    numbers = {key for key in known if BROKER_CONFIGS[key].type in NUMBERS}
    drawn = set(knobs.keys())
    without = sorted(numbers - drawn - set(knobs.NOT_DRAWN) - shaped())
    assert not without, f"{without}: add values to KNOBS of kraftlite/sim/knobs.py, or a reason to NOT_DRAWN"
    assert not sorted((drawn | set(knobs.NOT_DRAWN)) - numbers), "no such key has an effect, or it is no number"
    assert not sorted(drawn & set(knobs.NOT_DRAWN)), "drawn, and said not to be"


@pytest.mark.parametrize("row", knobs.KNOBS, ids=lambda it: next(iter(it[0])))
def test_the_configuration_accepts_every_value(row: tuple[dict[str, str], ...]) -> None:
    assert len(row) > 1, "one value alone is no choice"
    for value in row:
        config = load(None, {}, node_of(Shape(controllers=0, brokers=0, combined=1, config=value)), check=False)
        assert not config.problems
        for key, text in value.items():
            assert config.values[key] == text


def test_the_configuration_accepts_what_a_seed_draws() -> None:
    for seed in range(300):
        shape, _ = RunPlan(seed=seed, theme=KNOBS).drawn()
        assert not load(None, {}, node_of(shape), check=False).problems, seed


def test_two_of_three_seeds_draw_some_keys_and_all_rows_are_drawn() -> None:
    drawn = [knobs.draw(seed) for seed in range(300)]
    assert 150 < sum(map(bool, drawn)) < 250
    assert len({len(it) for it in drawn}) > 10
    for key, values in knobs.keys().items():
        assert {it[key] for it in drawn if key in it} == set(values), key
    assert drawn == [knobs.draw(seed) for seed in range(300)]


def test_a_key_that_the_shape_gives_keeps_its_value_and_takes_its_row_with_it() -> None:
    key = "group.consumer.session.timeout.ms"
    assert any(key in knobs.draw(seed) for seed in range(100))
    for seed in range(100):
        assert not any(it.startswith("group.consumer.m") for it in knobs.draw(seed, [key]))


def test_one_batch_in_an_answer_is_drawn_only_where_links_are_quick() -> None:
    key = "replica.fetch.response.max.bytes"
    seed = next(it for it in range(1_000) if knobs.draw(it).get(key) == "0")
    assert knobs.draw(seed, max_delay_us=2_000) == knobs.draw(seed)
    assert knobs.draw(seed, max_delay_us=10_000) == {name: value for name, value in knobs.draw(seed).items() if name != key}


def test_a_named_shape_is_what_it_is_unless_knobs_are_asked_for() -> None:
    shape, _ = RunPlan(seed=5, shape=NAMED["3+3"]).drawn()
    assert shape == NAMED["3+3"]
    turned, _ = RunPlan(seed=5, shape=NAMED["3+3"], knobs={"log.roll.ms": "200"}).drawn()
    assert turned.config == {**NAMED["3+3"].config, "log.roll.ms": "200"}
    assert str(turned) == f"{NAMED['3+3']}; log.roll.ms=200"


def test_a_shape_tells_in_one_line_what_was_drawn() -> None:
    many = {f"log.cleaner.{name}": "700" for name in ("backoff.ms", "min.compaction.lag.ms", "delete.retention.ms")}
    shape = knobs.turned(NAMED["1+1"], {**many, "log.roll.ms": "9", "log.roll.jitter.ms": "8", "num.partitions": "1"})
    assert str(shape).endswith("log.cleaner.delete.retention.ms=700 log.roll.ms=9 and 1 more keys")


def test_each_part_of_a_run_may_have_a_seed_of_its_own() -> None:
    shape, faults = RunPlan(seed=5, theme=KNOBS).drawn()
    assert RunPlan(seed=77, theme=KNOBS, shape_seed=5, knobs_seed=5, faults_seed=5).drawn() == (shape, faults)
    other, _ = RunPlan(seed=5, knobs_seed=9).drawn()
    assert (other.topics, other.config) != (shape.topics, shape.config)
    assert other.topics == shape.topics
