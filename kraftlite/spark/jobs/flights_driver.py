"""The two queries of the demonstration, and a driver of them that is there to be killed.

`python -m kraftlite.spark.jobs.flights_driver BOOTSTRAP TOPIC RESULTS DIR` runs both with a Spark of its own, and prints a line
of JSON for each sign of progress, until it is killed or its standard input ends.
"""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from kraftlite.spark.jobs.aggregate import aggregate
from kraftlite.spark.jobs.flights import FORM, WINDOWS
from kraftlite.spark.jobs.ingest import ingest
from kraftlite.spark.jobs.running import OnProgress, Source
from kraftlite.spark.offsets import from_json

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

INGEST: Final = "ingest"
AGGREGATE: Final = "aggregate"
NAMES: Final = (INGEST, AGGREGATE)
TRIGGER: Final = "5s"
BATCH: Final = 40_000
"""Offsets of one batch: there are several, however late a driver comes."""
STARTS: Final = 5
NOT_CONNECTED: Final = "failed to connect back"
"""Spark gives a Python process ten seconds to connect, which a busy machine may not keep: such a query is started again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Queries:
    """The place where the two queries read and write. `topic` has the flights, `results` gets the aggregates."""

    bootstrap: str
    topic: str
    results: str
    directory: Path

    @property
    def lake(self) -> str:
        return str(self.directory / "lake")

    @property
    def delays(self) -> str:
        return str(self.directory / "delays")

    def checkpoint(self, name: str) -> Path:
        return self.directory / "checkpoints" / name

    def run(
        self,
        spark: SparkSession,
        name: str,
        *,
        trigger: str,
        stop: Callable[[], bool] | None = None,
        on_progress: OnProgress | None = None,
    ) -> None:
        """Run a query from where its checkpoint is, again when Spark lost patience with a Python process. Raises what the job
        raises."""
        from pyspark.errors import StreamingQueryException

        for attempt in range(1, STARTS + 1):
            try:
                self._run(spark, name, trigger=trigger, stop=stop, on_progress=on_progress)
                return
            except StreamingQueryException as error:
                if attempt == STARTS or NOT_CONNECTED not in str(error):
                    raise

    def _run(self, spark: SparkSession, name: str, **how: Any) -> None:
        source = Source(bootstrap=self.bootstrap, topics=self.topic)
        how |= {"max_offsets": BATCH, "form": FORM}
        checkpoint = str(self.checkpoint(name))
        if name == INGEST:
            ingest(spark, source, out=self.lake, checkpoint=checkpoint, **how)
        else:
            aggregate(
                spark,
                source,
                out=self.delays,
                result_topic=self.results,
                exactly_once=True,
                checkpoint=checkpoint,
                windows=WINDOWS,
                **how,
            )

    def query_id(self, name: str) -> str | None:
        """Spark's id of a query; None before it has begun."""
        try:
            return str(json.loads((self.checkpoint(name) / "metadata").read_text())["id"])
        except (OSError, ValueError):
            return None

    def planned(self, name: str) -> int:
        """The newest batch that a query has begun; -1 before the first."""
        return _newest(self.checkpoint(name) / "offsets")

    def committed_rows(self, name: str) -> int:
        """The rows of the batches that a query has done, by its checkpoint."""
        folder = self.checkpoint(name)
        done = _newest(folder / "commits")
        if done < 0:
            return 0
        ends = (folder / "offsets" / str(done)).read_text().splitlines()
        return sum(from_json(ends[-1]).values())


def _newest(log: Path) -> int:
    return max((int(it.name) for it in log.glob("[0-9]*") if it.name.isdecimal()), default=-1)


def main(bootstrap: str, topic: str, results: str, directory: str) -> None:
    """Run both queries until standard input ends: then whoever has started this is gone."""
    from kraftlite.spark.session import session

    queries = Queries(bootstrap=bootstrap, topic=topic, results=results, directory=Path(directory))
    spark = session("job", master="local[2]", app="the first driver of kraftlite pipeline demo", log_level="OFF")
    ended = threading.Event()
    printing = threading.Lock()

    def work(name: str) -> None:
        def tell(found: Any) -> None:
            with printing:
                sys.stdout.write(json.dumps({"job": name, "batches": found.batches, "rows": found.rows}) + "\n")
                sys.stdout.flush()

        try:
            queries.run(spark, name, trigger=TRIGGER, stop=ended.is_set, on_progress=tell)
        finally:
            ended.set()

    jobs = [threading.Thread(target=work, args=(name,), name=name, daemon=True) for name in NAMES]
    for job in jobs:
        job.start()
    threading.Thread(target=_until_alone, args=(ended,), name="stdin", daemon=True).start()
    ended.wait()
    for job in jobs:
        job.join()
    spark.stop()


def _until_alone(ended: threading.Event) -> None:
    sys.stdin.read()
    ended.set()


if __name__ == "__main__":
    main(*sys.argv[1:])
