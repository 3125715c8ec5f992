"""What a client is told of a bad value is what Kafka's ConfigDef says: tools and people search for these words.

Source: `ConfigException`, `ConfigDef.Range`, `ValidString`, `ValidList` of Kafka 4.3, and what its tools print.
"""

from __future__ import annotations

import pytest

from kraftlite.model.broker_configs import BROKER_CONFIGS
from kraftlite.model.configdef import BadValue, protocol_message
from kraftlite.model.errors import ApiError, ErrorCode
from kraftlite.model.topic_configs import TOPIC_CONFIGS, validate_topic_configs
from kraftlite.model.topic_name import validate_topic_name


@pytest.mark.parametrize(
    ("name", "value", "told"),
    [
        ("segment.ms", "-1", "Invalid value -1 for configuration segment.ms: Value must be at least 1"),
        ("retention.ms", "abc", "Invalid value abc for configuration retention.ms: Not a number of type LONG"),
        (
            "min.insync.replicas",
            str(2**31),
            f"Invalid value {2**31} for configuration min.insync.replicas: Not a number of type INT",
        ),
        (
            "min.cleanable.dirty.ratio",
            "1.5",
            "Invalid value 1.5 for configuration min.cleanable.dirty.ratio: Value must be no more than 1",
        ),
        (
            "min.cleanable.dirty.ratio",
            "half",
            "Invalid value half for configuration min.cleanable.dirty.ratio: Not a number of type DOUBLE",
        ),
        ("preallocate", "yes", "Invalid value yes for configuration preallocate: Expected value to be either true or false"),
        (
            "cleanup.policy",
            "compact,none",
            "Invalid value none for configuration cleanup.policy: String must be one of: compact, delete",
        ),
        (
            "compression.type",
            "lzo",
            "Invalid value lzo for configuration compression.type: "
            "String must be one of: uncompressed, zstd, lz4, snappy, gzip, producer",
        ),
    ],
)
def test_cm_51_kafkas_words_for_a_bad_topic_config(name: str, value: str, told: str) -> None:
    with pytest.raises(ApiError) as refused:
        validate_topic_configs({name: value})
    assert (refused.value.code, refused.value.message) == (ErrorCode.INVALID_CONFIG, told)


def test_the_text_for_a_file_names_what_is_allowed() -> None:
    with pytest.raises(BadValue, match=r"^segment.ms=-1: allowed is a value of at least 1$"):
        TOPIC_CONFIGS["segment.ms"].parse("-1")


def test_a_secret_stays_one() -> None:
    key = next(key for key in BROKER_CONFIGS.values() if key.sensitive)
    assert "hidden" in protocol_message(key._bad("my secret", "no", "my secret", "no"))


@pytest.mark.parametrize("name", [".", ".."])
def test_cm_15_names_of_directories_are_no_topics(name: str) -> None:
    with pytest.raises(
        ApiError, match=rf"^INVALID_TOPIC_EXCEPTION: Topic name is invalid: '{name.replace('.', '[.]')}' is not allowed$"
    ):
        validate_topic_name(name)
