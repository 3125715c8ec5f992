"""The classes of Kafka's exceptions, as its tools print them. Source: Kafka's Errors."""

from __future__ import annotations

import pytest

from kraftlite.cli.compat.tool import java_class
from kraftlite.model.errors import ErrorCode

E = ErrorCode


@pytest.mark.parametrize(
    ("code", "name"),
    [
        (E.NOT_LEADER_OR_FOLLOWER, "errors.NotLeaderOrFollowerException"),
        (E.CLUSTER_AUTHORIZATION_FAILED, "errors.ClusterAuthorizationException"),
        (E.TOPIC_AUTHORIZATION_FAILED, "errors.TopicAuthorizationException"),
        (E.GROUP_AUTHORIZATION_FAILED, "errors.GroupAuthorizationException"),
        (E.KAFKA_STORAGE_ERROR, "errors.KafkaStorageException"),
        (E.OFFSET_METADATA_TOO_LARGE, "errors.OffsetMetadataTooLarge"),
        (E.INVALID_PRODUCER_ID_MAPPING, "errors.InvalidPidMappingException"),
        (E.INVALID_RECORD, "InvalidRecordException"),
    ],
)
def test_a_class_has_the_name_that_kafka_gave_it(code: ErrorCode, name: str) -> None:
    assert java_class(code) == f"org.apache.kafka.common.{name}"


def test_no_class_is_called_after_a_failure() -> None:
    """The codes end so, and but for one no class does."""
    found = [code for code in E if java_class(code).endswith(("FailedException", "ErrorException"))]
    assert found == [E.FEATURE_UPDATE_FAILED]
