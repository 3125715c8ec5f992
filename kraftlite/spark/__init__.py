"""The data pipeline on Spark: a data source for Kafka topics and for data directories, and the jobs on top of it."""

from kraftlite import require_assertions

require_assertions()
