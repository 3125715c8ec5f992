"""The settings of brokers, which are asked one by one while some of them die."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from kraftlite.client.cluster import ClusterClient
from kraftlite.client.errors import ClientError
from kraftlite.client.settings import ClientSettings
from kraftlite.exactly_once.state_topic import VERIFICATION, told_by_brokers
from kraftlite.model.errors import ErrorCode


class Brokers(ClusterClient):
    """Brokers 1 to 3, of which some are silent. `live`: those that the cluster takes for live, each time it is asked."""

    def __init__(self, *live: tuple[int, ...], silent: tuple[int, ...] = (), refusing: tuple[int, ...] = ()) -> None:
        super().__init__(ClientSettings(bootstrap=("127.0.0.1:1",), retry_backoff_ms=1, retry_timeout_ms=50))
        self.live, self.silent, self.refusing = list(live), silent, refusing
        self.asked: list[int] = []

    def look_again(self) -> None:
        if len(self.live) > 1:
            del self.live[0]

    def brokers(self) -> dict[int, Any]:
        return dict.fromkeys(self.live[0])

    def call(
        self, api_key: int, version: int, values: Any, *, broker: int | None = None, timeout_ms: int | None = None
    ) -> Any:  # fmt: skip
        assert broker is not None and timeout_ms is not None, "a broker is asked for its own, and not for ever"
        self.asked.append(broker)
        if broker in self.silent:
            raise ClientError("no broker answered")
        code = ErrorCode.CLUSTER_AUTHORIZATION_FAILED if broker in self.refusing else ErrorCode.NONE
        configs = [SimpleNamespace(name=VERIFICATION, value="true"), SimpleNamespace(name="another", value="1")]
        return SimpleNamespace(results=[SimpleNamespace(error_code=code, error_message=None, configs=configs)])


def test_sx_02_a_broker_that_dies_is_asked_until_the_cluster_takes_it_for_dead() -> None:
    cluster = Brokers((1, 2, 3), (1, 2, 3), (1, 3), silent=(2,))
    assert dict(told_by_brokers(cluster, VERIFICATION)) == {1: "true", 3: "true"}
    assert cluster.asked == [1, 2, 3, 2]


def test_sx_02_a_broker_that_is_live_and_silent_for_good_is_an_error() -> None:
    with pytest.raises(ClientError, match="broker 2 does not answer"):
        dict(told_by_brokers(Brokers((1, 2, 3), silent=(2,)), VERIFICATION))


def test_sx_02_a_broker_that_does_not_tell_this_user_is_believed() -> None:
    assert dict(told_by_brokers(Brokers((1, 2), refusing=(1,)), VERIFICATION)) == {1: None, 2: "true"}
