"""Values of configs as Kafka's parser takes them: with blanks, a sign and zeros in front. Who applies them reads all of them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kraftlite.coordinator.config import GroupConfig
from kraftlite.coordinator.modern.cluster import GROUP_RESOURCE, Cluster
from kraftlite.log.config import LogConfig
from kraftlite.metadata.image import ConfigurationsImage, MetadataImage
from kraftlite.metadata.pmap import PMap
from kraftlite.model.errors import ApiError, ErrorCode
from kraftlite.model.group_configs import HEARTBEAT_INTERVAL, validate_group_configs
from kraftlite.model.topic_configs import TOPIC_CONFIGS, validate_topic_configs

ZEROS = tuple("0" * count + "7" for count in (2, 390, 4_299, 5_000))
ODD = (*ZEROS, "+7", " 7", "\t7\n", "\u20037", "7.", ".5", "5e-1", "-0", "1_000", "\u0667")


@pytest.mark.parametrize("text", ODD, ids=[f"{len(it)} {ascii(it)[-12:]}" for it in ODD])
@pytest.mark.parametrize("name", TOPIC_CONFIGS)
def test_what_a_topic_takes_its_brokers_can_read(name: str, text: str) -> None:
    try:
        validate_topic_configs({name: text})
    except ApiError as refused:
        assert refused.code is ErrorCode.INVALID_CONFIG
    else:
        LogConfig.from_map({name: text})


@pytest.mark.parametrize("text", ["7000", " 7000", "+7000", "007000"])
def test_what_a_group_takes_has_its_effect(text: str) -> None:
    validate_group_configs({HEARTBEAT_INTERVAL: text}, {})
    configs = ConfigurationsImage(resources=PMap({(GROUP_RESOURCE, "g"): PMap({HEARTBEAT_INTERVAL: text})}))
    cluster = Cluster(GroupConfig.from_values({}), replace(MetadataImage.EMPTY, configs=configs))
    assert cluster.heartbeat_interval_ms("g") == 7_000
