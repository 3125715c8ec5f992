"""A client that asks which delegation tokens there are, and for tokens of others (theme `security`).

It logs in as the clients of `logins` do, with tokens of its own making. Checker `described_rights` judges what it hears.
"""

from __future__ import annotations

from collections.abc import Coroutine, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

from kraftlite.model.principal import USER
from kraftlite.model.topic_partition import TopicPartition
from kraftlite.sim.history import History
from kraftlite.sim.services.logins import PASSWORDS
from kraftlite.sim.workloads.logins import CREATE, DESCRIBE, LoginClient
from kraftlite.sim.workloads.security_settings import FIRST_USER

if TYPE_CHECKING:
    from kraftlite.sim.cluster import SimCluster

NUMBER: Final = 254


def visit(
    cluster: SimCluster, history: History, _partitions: Sequence[TopicPartition]
) -> Iterator[tuple[LoginClient, Coroutine[None, None, None]]]:
    client = TokensAsked(cluster, NUMBER, "tokens", history, [])
    yield client, client.run()


class TokensAsked(LoginClient):
    """A client of `logins` that mostly asks for tokens."""

    def _request(self) -> tuple[tuple[int, int], dict[str, Any]]:
        rng, what = self.rng, self.rng.randrange(4)
        users = (*PASSWORDS, FIRST_USER)
        if what < 2:
            some = [{"principal_type": USER, "principal_name": it} for it in rng.sample(users, rng.choice((0, 1, 2)))]
            return DESCRIBE, {"owners": rng.choice((None, some))}
        if what == 2:
            owner = {"owner_principal_type": USER, "owner_principal_name": rng.choice(users)}
            return CREATE, {**owner, "renewers": [], "max_lifetime": rng.choice((-1, 6_000))}
        return super()._request()
