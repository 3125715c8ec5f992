"""Faults that may be asked for."""

from __future__ import annotations

import pytest

from kraftlite.model.faults import UnknownFault, failing_code


@pytest.mark.parametrize("given", [6, "6", "NOT_LEADER_OR_FOLLOWER", "not_leader_or_follower"])
def test_a_code_is_named_or_numbered(given: int | str) -> None:
    assert failing_code(given) == 6


@pytest.mark.parametrize("given", ["", "NO_SUCH", "7.5", "9999", 9999, "--6", "9" * 5_000, "٣٣٣٣"])
def test_what_is_no_code_is_refused(given: int | str) -> None:
    with pytest.raises(UnknownFault, match="allowed is a code of Kafka's protocol"):
        failing_code(given)


@pytest.mark.parametrize("given", [0, "NONE"])
def test_none_is_no_error(given: int | str) -> None:
    with pytest.raises(UnknownFault, match="that is no error"):
        failing_code(given)


def test_a_server_error_has_a_negative_number() -> None:
    assert failing_code("-1") == failing_code("UNKNOWN_SERVER_ERROR") == -1
