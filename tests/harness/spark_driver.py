"""A driver to be killed: Spark's own Parquet sink or the ingest job, or both, over the same topic, until all of it is read.

python -m tests.harness.spark_driver BOOTSTRAP TOPIC DIR sink|lake|both
"""

from __future__ import annotations

import sys
from pathlib import Path

MAX_OFFSETS = 120


def main(bootstrap: str, topic: str, at: Path, which: str) -> None:
    from kraftlite.spark.jobs.ingest import ingest
    from kraftlite.spark.jobs.running import Source
    from kraftlite.spark.session import session

    spark = session("test", master="local[2]")
    source = Source(bootstrap=bootstrap, topics=topic)
    if which in ("sink", "both"):
        writer = source.stream(spark, MAX_OFFSETS).writeStream.format("parquet").trigger(availableNow=True)
        query = writer.option("path", str(at / "sink")).option("checkpointLocation", str(at / "sink-checkpoint")).start()
        query.awaitTermination()
    if which in ("lake", "both"):
        ingest(spark, source, out=str(at / "lake"), checkpoint=str(at / "lake-checkpoint"), max_offsets=MAX_OFFSETS)
    spark.stop()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], Path(sys.argv[3]), sys.argv[4])
