"""The Spark source: options, planning, and the readers of batch and streaming queries."""
