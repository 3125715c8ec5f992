"""Spark finds this package by its name, and registers what is called DefaultSource: `spark.read.format("kraftlite")`."""

from kraftlite.spark.source.datasource import KraftliteDataSource as DefaultSource

__all__ = ["DefaultSource"]
