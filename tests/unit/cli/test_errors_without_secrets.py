"""What a command prints when it fails ends in somebody's log, so no password is in it, misspelt keys included. SE-11."""

from __future__ import annotations

import pytest

from kraftlite.cli.compat.configs import _credential, _without_secrets
from kraftlite.cli.compat.tool import ToolError
from kraftlite.client.properties import settings_from
from kraftlite.model.config_effects import is_sensitive, refusal

SECRET = "hunter2"


@pytest.mark.parametrize(
    "added",
    [
        f"SCRAM-SHA-512=[iterations=99999,password={SECRET}]",
        f"SCRAM-SHA-1=[pasword={SECRET}]",
        f"retention.ms=5,listener.name.ssl.ssl.keystore.password={SECRET}",
        f"ssl.keystore.pasword={SECRET},retention.ms=5",
        f"sasl.jaas.config=PlainLoginModule required user_a={SECRET};",
        f"anything=password: {SECRET}",
    ],
)
def test_se_11_a_command_that_failed_is_repeated_without_secrets(added: str) -> None:
    told = _without_secrets(["--alter", "--entity-name", "alice", "--add-config", added])
    assert SECRET not in told and "--entity-name alice --add-config" in told and "[hidden]" in told
    assert "retention.ms=5" in told or "retention.ms" not in added


def test_what_is_no_secret_is_repeated() -> None:
    assert _without_secrets(["--add-config", "retention.ms=never"]) == "--add-config retention.ms=never"


@pytest.mark.parametrize("text", [f"pasword={SECRET}", SECRET, f"iterations={SECRET},password=x", f"password {SECRET}"])
def test_se_11_a_credential_that_cannot_be_read_is_not_repeated(text: str) -> None:
    with pytest.raises(ToolError) as caught:
        _credential("SCRAM-SHA-512", text)
    assert "SCRAM-SHA-512" in str(caught.value) and SECRET not in str(caught.value)


@pytest.mark.parametrize("key", ["ssl.keystore.pasword", "ssl.key.pwd", "ssl.key.passwd"])
def test_se_11_a_misspelt_key_of_a_node_may_be_a_secret(key: str) -> None:
    assert is_sensitive(key)
    assert SECRET not in (refusal(key, SECRET) or "")


@pytest.mark.parametrize("key", ["sasl.pasword", "sasl.passwd", "ssl.key.pwd", "sasl.credentials"])
def test_se_11_a_misspelt_key_of_a_client_may_be_a_secret(key: str) -> None:
    with pytest.raises(ValueError, match=key) as caught:
        settings_from({"bootstrap.servers": "localhost:9092", key: SECRET})
    assert SECRET not in str(caught.value)


@pytest.mark.parametrize(
    "value",
    [
        f'org.apache.kafka.common.security.scram.ScramLoginModule required username="a" password="{SECRET}";',
        f"OAuthBearerLoginModule required clientSecret = '{SECRET}';",
        f"-----BEGIN PRIVATE KEY----- {SECRET} -----END PRIVATE KEY-----",
    ],
)
def test_se_11_a_login_under_a_key_that_one_bit_has_changed_is_not_shown(value: str) -> None:
    with pytest.raises(ValueError, match=r"sasl\.jaes\.config=… cannot be honoured") as refused:
        settings_from({"bootstrap.servers": "127.0.0.1:1", "sasl.jaes.config": value})
    assert SECRET not in str(refused.value)
