"""kraftlite: Kafka's KRaft architecture in Python."""

__version__ = "0.1.0"


def require_assertions() -> None:
    """Raise ImportError under `python -O`, which drops assertions: a failed one is a fault that must end the node that it is in
    (docs/ARCHITECTURE.md, "Three kinds of error")."""
    if not __debug__:
        raise ImportError(
            "kraftlite does not run under python -O (or PYTHONOPTIMIZE): it removes the assertions that stop a faulty node "
            "before it damages data; start Python without it"
        )
