"""Principals as text."""

from __future__ import annotations

import pytest

from kraftlite.model.principal import ANONYMOUS, Principal


def test_a_principal_is_read_as_it_is_written() -> None:
    """KAFKA-14962 for the blanks; a name may have colons, as a distinguished name may."""
    assert str(Principal.parse(" User:CN=a:b,O=c ")) == "User:CN=a:b,O=c"
    assert Principal.parse("User:ANONYMOUS") == ANONYMOUS


@pytest.mark.parametrize("text", ["", "alice", "User:", ":alice"])
def test_text_of_another_form_is_refused_with_what_it_says(text: str) -> None:
    with pytest.raises(ValueError, match="is written as User:NAME"):
        Principal.parse(text)
