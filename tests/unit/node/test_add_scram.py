"""`--add-scram`: users with whom a cluster begins. SE-13."""

from __future__ import annotations

import base64

import pytest

from kraftlite.node.add_scram import scram_records
from kraftlite.security.scram import credential_from, salted_password

SALT = b"0123456789abcdef"
SALT64 = base64.b64encode(SALT).decode()


def records(*arguments: str) -> list[tuple[str, int, int, bytes]]:
    return [(it.name, it.mechanism, it.iterations, it.stored_key) for it in scram_records(arguments, lambda size: SALT[:size])]


def keys(mechanism: str, password: str, iterations: int) -> bytes:
    return credential_from(mechanism, salted_password(mechanism, password, SALT, iterations), SALT, iterations).stored_key


def test_every_form() -> None:
    one, two = "SCRAM-SHA-256", "SCRAM-SHA-512"
    salted = base64.b64encode(salted_password(two, "secret", SALT, 8192)).decode()
    found = records(
        f"{one}=[name=alice,password=secret]",
        f' {one}=[name="alice",iterations=8192,salt="{SALT64}",password="secret=x"] ',
        f"{two}=[name=bob,salt={SALT64},saltedpassword={salted},iterations=8192]",
    )
    assert found == [
        ("alice", 1, 4096, keys(one, "secret", 4096)),
        ("alice", 1, 8192, keys(one, "secret=x", 8192)),
        ("bob", 2, 8192, keys(two, "secret", 8192)),
    ]


@pytest.mark.parametrize(
    ("argument", "words"),
    [
        ("SCRAM-SHA-256", "Failed to find equals sign in SCRAM argument"),
        ("SCRAM-SHA-1=[name=a,password=hunter2]", "The add-scram mechanism SCRAM-SHA-1 is not supported."),
        ("SCRAM-SHA-256=name=a,password=hunter2]", "Expected configuration string to start with ["),
        ("SCRAM-SHA-256=[name=a,password=hunter2", "Expected configuration string to end with ]"),
        ("SCRAM-SHA-256=[password=hunter2]", "You must supply 'name' to add-scram"),
        ("SCRAM-SHA-256=[name=,password=hunter2]", "must not be empty"),
        ("SCRAM-SHA-256=[]", "No equals sign found in SCRAM component"),
        ("SCRAM-SHA-256=[name=a,hunter2]", "No equals sign found in SCRAM component"),
        ("SCRAM-SHA-256=[name=a]", "You must supply one of 'password' or 'saltedpassword' to add-scram"),
        ("SCRAM-SHA-256=[name=a,saltedpassword=aaaa]", "You must supply 'salt' with 'saltedpassword' to add-scram"),
        ("SCRAM-SHA-256=[name=a,salt=hunter2!,password=x]", "Failed to decode given salt"),
        ("SCRAM-SHA-256=[name=a,salt=aaaa,saltedpassword=hunter2!]", "Failed to decode given saltedPassword"),
        ("SCRAM-SHA-256=[name=a,password=hunter2,iterations=x]", "Failed to parse iterations count: x"),
        ("SCRAM-SHA-256=[name=a,password=hunter2,iterations=4095]", "must be >= 4096 for add-scram using SCRAM_SHA_256"),
        ("SCRAM-SHA-512=[name=a,password=hunter2,iterations=16385]", "must be <= 16384 for add-scram using SCRAM_SHA_512"),
        ("SCRAM-SHA-256=[name=a,password=hunter2,other=x]", "Unknown SCRAM configurations: other"),
        ("SCRAM-SHA-256=[name=a,password=hunter2,saltedpassword=aaaa]", "Unknown SCRAM configurations: saltedpassword"),
    ],
)
def test_every_bad_form_has_its_message_which_repeats_no_password(argument: str, words: str) -> None:
    with pytest.raises(ValueError, match=r"add-scram|SCRAM|Expected|Failed|You must|The ") as caught:
        records(argument)
    assert words in str(caught.value) and "hunter2" not in str(caught.value)
