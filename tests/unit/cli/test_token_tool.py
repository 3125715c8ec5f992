"""kafka-delegation-tokens, kafka-client-metrics and kafka-metadata-quorum: what they take and how they refuse (TO-20, TO-38)."""

from __future__ import annotations

import base64
from types import SimpleNamespace as Of
from typing import Any

import pytest

from kraftlite.cli.compat import client_metrics, delegation_tokens, metadata_quorum
from kraftlite.cli.compat.delegation_tokens import _code
from kraftlite.cli.compat.tool import ToolError, UsageError
from kraftlite.client.tokens import create_token, expire_token, renew_token
from kraftlite.model.errors import ErrorCode

SERVER = ["--bootstrap-server", "127.0.0.1:1"]


class Cluster:
    """Answers everything, and keeps what it was asked."""

    def __init__(self) -> None:
        self.asked: list[dict[str, Any]] = []

    def call(self, _key: int, _version: int, values: dict[str, Any], **_more: Any) -> Any:
        self.asked.append(values)
        token = {f"{kind}principal_{name}": "User" for kind in ("", "token_requester_") for name in ("type", "name")}
        times = dict.fromkeys(("issue_timestamp", "expiry_timestamp", "max_timestamp"), 1)
        none = {"error_code": ErrorCode.NONE, "error_message": None}
        return Of(token_id="t", hmac=b"h", responses=[Of(**none)], **none, **token, **times)


@pytest.mark.parametrize("sign", [1, -1])
def test_a_period_of_ages_is_sent_as_one_of_thirty_thousand_years(sign: int) -> None:
    """It was an error of the codec: a period of 2^63 - 1 ms is more than a Python timedelta has."""
    cluster: Any = Cluster()
    longest = sign * ((1 << 63) - 1)
    create_token(cluster, None, [], longest)
    renew_token(cluster, b"", longest)
    expire_token(cluster, b"", longest)
    sent = [value for values in cluster.asked for name, value in values.items() if name not in ("hmac", "renewers")]
    assert [value for value in sent if value is not None] == [sign * 10**15] * 3
    assert create_token(cluster, None, [], -1) and cluster.asked[-1]["max_lifetime"] == -1


@pytest.mark.parametrize("code", [b"a", b"ab", b"abc", b""])
def test_a_code_may_lack_its_padding(code: bytes) -> None:
    text = base64.b64encode(code).decode()
    assert _code(text) == _code(text.rstrip("=")) == code


@pytest.mark.parametrize("text", ["nope!", "YQ=", "YWFhY"])
def test_what_is_no_base64_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="--hmac is not base64"):
        _code(text)


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("--create", 'Missing required argument "[max-life-time-period]"'),
        ("--renew --hmac YQ==", 'Missing required argument "[renew-time-period]"'),
        ("--create --max-life-time-period -1 --hmac YQ==", 'Option "[create]" can\'t be used with option "[hmac]"'),
        ("--create --max-life-time-period 1_0", "--max-life-time-period: invalid int value: '1_0'"),
    ],
)
def test_wrong_options_of_tokens_are_named_as_kafkas_tool_names_them(line: str, told: str) -> None:
    with pytest.raises(UsageError) as refused:
        delegation_tokens.run([*SERVER, *line.split()])
    assert told in str(refused.value)


def test_an_alteration_of_nothing_is_no_error(capsys: pytest.CaptureFixture[str]) -> None:
    """Its exit status was 1; Kafka's tool asks for no change, and ends well."""
    cluster: Any = Cluster()
    given = Of(name="a", generate_name=False, interval=None, metrics=None, match=None)
    client_metrics._alter(cluster, given)  # type: ignore[arg-type]
    assert capsys.readouterr().out == "Altered client metrics config for a.\n"
    assert cluster.asked[0]["resources"][0]["configs"] == []


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("describe --human-readable", "One of --status or --replication must be specified with describe sub-command"),
        ("describe --status --human-readable", "The option --human-readable is only supported along with --replication"),
    ],
)
def test_what_a_quorum_is_not_described_as(line: str, told: str) -> None:
    with pytest.raises(ToolError, match=told):
        metadata_quorum.run([*SERVER, *line.split()])
