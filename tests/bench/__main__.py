"""`make bench`: every measurement, or those named: `python -m tests.bench cold_start replicated [--json FILE]`."""

from __future__ import annotations

import argparse
import json
import platform
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from kraftlite.host.memory import tune_malloc
from tests.bench import (
    bench_controller,
    bench_records,
    bench_spark,
    broker_failure,
    controller_scale,
    controller_turns,
    failover,
    greedy,
    long_requests,
    page,
    partitions,
    peers,
    quotas,
    sim_speed,
    throughput,
    tls,
    transactions,
)

BENCHES: dict[str, Callable[[], dict[str, Any]]] = {
    "cold_start": failover.cold_start,
    "failovers": failover.failovers,
    "big_topic": failover.big_topic,
    "controller": bench_controller.controller,
    "controller_scale": controller_scale.controller_scale,
    "broker_failure": broker_failure.broker_failure,
    "controller_turns": controller_turns.controller_turns,
    "records": bench_records.records,
    "single_broker": throughput.single_broker,
    "replicated": throughput.replicated,
    "partitions": partitions.partitions,
    "peers": peers.peers,
    "tls": tls.tls,
    "quotas": quotas.quotas,
    "page": page.page,
    "transactions": transactions.transactions,
    "greedy": greedy.greedy_connections,
    "long_requests": long_requests.long_requests,
    "spark": bench_spark.spark,
    "sink_modes": bench_spark.sink_modes,
    "sim_speed": sim_speed.sim_speed,
}


def main() -> int:
    parser = argparse.ArgumentParser(prog="tests.bench", description=__doc__)
    parser.add_argument("names", nargs="*", help=f"any of {', '.join(BENCHES)}; all when none is given")
    parser.add_argument("--json", type=Path, help="write the figures here too")
    options = parser.parse_args()
    unknown = [name for name in options.names if name not in BENCHES]
    if unknown:
        parser.error(f"unknown: {', '.join(unknown)}; there are {', '.join(BENCHES)}")
    tune_malloc()  # the client is part of what is measured, and maps and unmaps its batches otherwise
    figures: dict[str, Any] = {}
    for name in options.names or BENCHES:
        print(f"… {name}", file=sys.stderr, flush=True)
        for fact, value in BENCHES[name]().items():
            figures[fact] = value
            print(f"{fact:<60} {value:>12}", flush=True)
    report = {"python": platform.python_version(), "machine": platform.machine(), "figures": figures}
    if options.json:
        options.json.write_text(json.dumps(report, indent=2) + "\n")
    print(json.dumps(report))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
