"""The numbers of the APIs that the client names. A broker's are in `wire/apis`, each beside its versions.

Source: Kafka protocol guide, "Api Keys".
"""

from __future__ import annotations

from typing import Final

PRODUCE: Final = 0
FETCH: Final = 1
LIST_OFFSETS: Final = 2
METADATA: Final = 3
OFFSET_COMMIT: Final = 8
OFFSET_FETCH: Final = 9
FIND_COORDINATOR: Final = 10
DESCRIBE_GROUPS: Final = 15
LIST_GROUPS: Final = 16
SASL_HANDSHAKE: Final = 17
API_VERSIONS: Final = 18
INIT_PRODUCER_ID: Final = 22
ADD_PARTITIONS_TO_TXN: Final = 24
END_TXN: Final = 26
WRITE_TXN_MARKERS: Final = 27
DESCRIBE_CONFIGS: Final = 32
SASL_AUTHENTICATE: Final = 36
DELETE_GROUPS: Final = 42
OFFSET_DELETE: Final = 47
DESCRIBE_QUORUM: Final = 55
DESCRIBE_CLUSTER: Final = 60
DESCRIBE_PRODUCERS: Final = 61
UNREGISTER_BROKER: Final = 64
DESCRIBE_TRANSACTIONS: Final = 65
LIST_TRANSACTIONS: Final = 66
CONSUMER_GROUP_DESCRIBE: Final = 69
DESCRIBE_TOPIC_PARTITIONS: Final = 75
ADD_RAFT_VOTER: Final = 80
REMOVE_RAFT_VOTER: Final = 81
