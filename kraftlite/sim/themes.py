"""The theme of a run: what it is about beside the producers, consumers, administrator and faults that every run has.

A run has one theme, so that a violation points at it and a run stays short. A theme is settled when hundreds of its seeds hold; a
swarm takes the settled ones unless it is told another.
"""

from __future__ import annotations

from typing import Final

PLAIN: Final = "plain"
GROUPS: Final = "groups"
LOGS: Final = "logs"
ADMIN: Final = "admin"
KNOBS: Final = "knobs"
TROUBLES: Final = "troubles"
TRANSACTIONS: Final = "transactions"
DIRECTORIES: Final = "directories"
MEMBERSHIP: Final = "membership"
SECURITY: Final = "security"
SINK: Final = "sink"

THEMES: Final = {
    PLAIN: "nothing more",
    GROUPS: "consumer groups of both protocols",
    LOGS: "topics that are compacted, cut and configured while they are used",
    ADMIN: "an administrator who uses the whole admin API, and a tenant whose topics come and go",
    KNOBS: "odd values of every period, limit and size that is a configuration",
    TRANSACTIONS: "transactional producers, copiers and readers of what is committed",
    DIRECTORIES: "brokers with several log directories, which fail one at a time, and replicas that are moved between them",
    MEMBERSHIP: "controllers that are added to the voters, removed, replaced and moved, and brokers that are taken out",
    SECURITY: "users whose rights and quotas change while they use them",
    SINK: "queries that write exactly once, whose drivers and tasks die or stand still at any call",
    TROUBLES: "disks, clocks and event loops that fail, and small internal sizes",
}
LEVELS: Final = (PLAIN, TROUBLES)
"""Those in which feature levels move."""
SETTLED: Final = (PLAIN,)


def of_seed(seed: int, themes: tuple[str, ...] = SETTLED) -> str:
    """The theme of a seed of a swarm: they take turns."""
    return themes[seed % len(themes)]
