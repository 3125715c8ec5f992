"""Unpacking what strangers packed: whole or refused, in steps, whatever the bytes are."""

from __future__ import annotations

import random

import pytest

from kraftlite.log import codecs
from kraftlite.log.codecs import CHUNK_BYTES, SNAPPY, packer, unpacked
from kraftlite.model.errors import ApiError
from tests.harness.poison import COMPRESSED

SEEDS = (b"", bytes(100), b"abc" * 50, random.Random(1).randbytes(300), b"x" * 200_000, b"hello world " * 9000)


@pytest.mark.parametrize("codec", COMPRESSED)
def test_changed_bytes_are_whole_or_refused(codec: int) -> None:
    rng = random.Random(codec)
    outcomes = set()
    for _ in range(1500):
        packed = bytearray(codecs.compress(codec, rng.choice(SEEDS)))
        for _ in range(rng.randrange(4)):
            at = rng.randrange(min(len(packed), 40) or 1)
            match rng.randrange(4):
                case 0:
                    packed[at : at + 1] = bytes([rng.choice((0, 1, 127, 128, 255, rng.randrange(256)))])
                case 1:
                    del packed[at : at + rng.randrange(1, 9)]
                case 2:
                    packed[at:at] = rng.randbytes(rng.randrange(1, 9))
                case _:
                    del packed[rng.randrange(len(packed) + 1) :]
        try:
            for chunk in unpacked(codec, packed, 1_000_000):
                assert len(chunk) <= CHUNK_BYTES or codec == SNAPPY
            outcomes.add("whole")
        except ApiError:
            outcomes.add("refused")
    assert outcomes == {"whole", "refused"}


@pytest.mark.parametrize("codec", [codecs.NONE, *COMPRESSED])
@pytest.mark.parametrize("data", SEEDS, ids=len)
def test_a_stream_of_chunks_is_one_that_unpacks(codec: int, data: bytes) -> None:
    stream = packer(codec)
    packed = b"".join(stream.compress(data[at : at + 7000]) for at in range(0, len(data), 7000)) + stream.flush()
    assert bytes(codecs.decompress(codec, packed)) == data


def test_many_members_take_time_in_proportion_to_their_number() -> None:
    """By steps, not by the clock: each member is a step or two."""
    member = codecs.compress(codecs.GZIP, b"x")
    steps = [sum(1 for _ in unpacked(codecs.GZIP, member * count)) for count in (100, 1000)]
    assert steps[1] <= 11 * steps[0]
    with pytest.raises(ApiError, match="more than 100000 parts"):
        list(unpacked(codecs.GZIP, member * (codecs.MAX_PARTS + 1)))


def test_a_zstd_window_beyond_the_bound_is_refused() -> None:
    """A frame of 24 bytes that asks for 2 GiB."""
    frame = bytes.fromhex("28b52ffd") + bytes([0x00, 0xA8]) + bytes.fromhex("0b0000") + b"abc"[:1]
    with pytest.raises(ApiError, match="zstd"):
        list(unpacked(codecs.ZSTD, frame))
