"""kraftlite: Kafka's KRaft architecture in Python."""

__version__ = "0.1.0"
