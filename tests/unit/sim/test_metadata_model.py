"""The checkers' own replay of the metadata log knows every record, and says what an image says."""

from __future__ import annotations

import random
import re
import typing

import pytest

from kraftlite.metadata import records as r
from kraftlite.metadata.image import MetadataImage
from kraftlite.model.messages.security import QuotaEntityPart
from kraftlite.sim.checkers.compare import image_difference
from kraftlite.sim.checkers.model import HANDLERS, MetadataHistory, Misfit
from tests.harness.metadata_support import image_of

BRACKETS = {r.BeginTransactionRecord, r.EndTransactionRecord, r.AbortTransactionRecord}
USER = (QuotaEntityPart(type="user", name="u"),)
BOTH = (QuotaEntityPart(type="client-id", name=None), QuotaEntityPart(type="user", name="u"))


def quota(value: str | None, key: str = "producer_byte_rate", entity: tuple[QuotaEntityPart, ...] = USER) -> r.ClientQuotaRecord:
    return r.ClientQuotaRecord(entity=entity, key=key, value=value)


def credential(name: str = "u", mechanism: int = 1, salt: bytes = b"s") -> r.UserScramCredentialRecord:
    return r.UserScramCredentialRecord(
        name=name, mechanism=mechanism, salt=salt, stored_key=b"k", server_key=b"v", iterations=4096
    )


def drawn(seed: int) -> list[r.MetadataRecord]:
    """Quotas and credentials that are set, changed and removed."""
    rng = random.Random(seed)
    there: set[tuple[str, int]] = set()
    found: list[r.MetadataRecord] = []
    for _ in range(60):
        name, mechanism = rng.choice("uvw"), rng.choice([1, 2])
        if rng.random() < 0.5:
            found.append(quota(rng.choice([None, "1.0", "2.5"]), rng.choice("xy"), rng.choice([USER, BOTH])))
        elif (name, mechanism) in there and rng.random() < 0.5:
            there.remove((name, mechanism))
            found.append(r.RemoveUserScramCredentialRecord(name=name, mechanism=mechanism))
        else:
            there.add((name, mechanism))
            found.append(credential(name, mechanism, bytes([rng.randrange(256)])))
    return found


def replayed(records: list[r.MetadataRecord]) -> MetadataHistory:
    history = MetadataHistory()
    for offset, record in enumerate(records):
        history.replay(record, offset)
    return history


def test_every_record_has_a_meaning() -> None:
    assert set(HANDLERS) == set(typing.get_args(r.MetadataRecord)) - BRACKETS


@pytest.mark.parametrize("seed", range(20))
def test_quotas_and_credentials_are_what_an_image_has(seed: int) -> None:
    records = drawn(seed)
    for end in (1, 10, 30, 60):
        assert image_difference(image_of(records[:end]), replayed(records[:end]).latest) is None


@pytest.mark.parametrize(
    ("records", "image", "words"),
    [
        ([quota("1.0")], [], "quotas of .* is missing"),
        ([], [quota("1.0")], "quotas of .* should not be there"),
        ([quota("1.0")], [quota("2.0")], "quotas of .* instead of"),
        ([quota("1.0"), quota(None)], [quota("1.0")], "quotas of .* should not be there"),
        ([credential()], [], "credential of .* is missing"),
        ([credential()], [credential(salt=b"x")], "credential of .* instead of"),
        ([credential()], [credential(mechanism=2)], "credential of .* is missing"),
    ],
)
def test_an_image_with_other_quotas_or_credentials_is_told(
    records: list[r.MetadataRecord], image: list[r.MetadataRecord], words: str
) -> None:
    found = image_difference(image_of(image), replayed(records).latest)
    assert found is not None
    assert re.search(words, found), found


def test_what_is_the_same_object_as_before_needs_no_second_look() -> None:
    first, known = image_of([quota("1.0"), credential()]), replayed([quota("1.0"), credential()])
    state = known.latest
    assert image_difference(first, state, first, state) is None
    later = image_of([quota("3.0")], first)
    assert image_difference(later, state, first, state) is not None


def test_a_credential_that_is_not_there_is_not_removed() -> None:
    with pytest.raises(Misfit, match="u has no SCRAM credential of mechanism 1"):
        replayed([r.RemoveUserScramCredentialRecord(name="u", mechanism=1)])


def test_an_empty_log_is_an_empty_image() -> None:
    assert image_difference(MetadataImage.EMPTY, MetadataHistory().latest) is None
