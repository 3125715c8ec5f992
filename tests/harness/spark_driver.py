"""A driver to be killed: Spark's own Parquet sink or the ingest job over a topic, until all of it is read.

python -m tests.harness.spark_driver BOOTSTRAP TOPIC DIR sink|lake
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

MAX_OFFSETS = 120


def run(spark: Any, bootstrap: str, topic: str, at: Path, query: str) -> None:
    """The query goes on where its checkpoint says, and ends."""
    from kraftlite.spark.jobs.ingest import ingest
    from kraftlite.spark.jobs.running import Source

    source = Source(bootstrap=bootstrap, topics=topic)
    if query == "sink":
        writer = source.stream(spark, MAX_OFFSETS).writeStream.format("parquet").trigger(availableNow=True)
        writer = writer.option("path", str(at / "sink")).option("checkpointLocation", str(at / "sink-checkpoint"))
        writer.start().awaitTermination()
    else:
        ingest(spark, source, out=str(at / "lake"), checkpoint=str(at / "lake-checkpoint"), max_offsets=MAX_OFFSETS)


def main(bootstrap: str, topic: str, at: Path, query: str) -> None:
    from kraftlite.spark.session import session

    spark = session("test", master="local[2]")
    run(spark, bootstrap, topic, at, query)
    spark.stop()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], Path(sys.argv[3]), sys.argv[4])
