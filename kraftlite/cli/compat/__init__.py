"""Kafka's own commands with Kafka's own options, output and exit statuses: `kraftlite compat kafka-topics --list …`.

`TOOLS` has the module of each; a module has `run(arguments) -> exit status`. What a tool prints is what Kafka 4's prints, so that
scripts and copied commands go on working; kraftlite's own commands are the pleasant ones.
"""

from __future__ import annotations

from typing import Final

TOOLS: Final = {
    "kafka-topics": "topics",
    "kafka-acls": "acls",
    "kafka-configs": "configs",
    "kafka-consumer-groups": "consumer_groups",
    "kafka-groups": "groups",
    "kafka-transactions": "transactions",
    "kafka-console-producer": "console_producer",
    "kafka-console-consumer": "console_consumer",
    "kafka-get-offsets": "get_offsets",
    "kafka-leader-election": "leader_election",
    "kafka-reassign-partitions": "reassign_partitions",
    "kafka-metadata-quorum": "metadata_quorum",
    "kafka-features": "features",
    "kafka-log-dirs": "log_dirs",
    "kafka-delete-records": "delete_records",
    "kafka-dump-log": "dump_log",
    "kafka-metadata-shell": "metadata_shell",
    "kafka-storage": "storage",
    "kafka-cluster": "cluster",
    "kafka-broker-api-versions": "broker_api_versions",
    "kafka-client-metrics": "client_metrics",
    "kafka-delegation-tokens": "delegation_tokens",
    "kafka-producer-perf-test": "producer_perf",
    "kafka-consumer-perf-test": "consumer_perf",
    "kafka-verifiable-producer": "verifiable_producer",
    "kafka-verifiable-consumer": "verifiable_consumer",
    "kafka-server-start": "server_start",
}
