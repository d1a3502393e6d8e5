"""The bytes of a bucket: members of equal size in one string, behind each other, in no order.

    member | member | member ...

A member is what is left of its key behind the bits that name the bucket: of a permuted fingerprint the rest of it, of a
band key the next byte and then the fingerprint. All buckets are fields of one hash: a probe reads its buckets of all
tables and bands by one command and looks for the bits that it shares; a new member is written with the whole bucket, of
all tables and bands by one command too.

Why not sorted sets, whose prefixes can be asked for: that takes a command for each bucket to look and another to store,
and a command that a script calls, and the line that it leaves in the append-only file, take longer than the bytes of a
short bucket.

A bucket that outgrows its string (a template, a crowd) becomes a sorted set of its own; the string is then `OUTGROWN`.
Members are the same, scores their first bits as a number: those behind b that a probe shares.
"""

from __future__ import annotations

OUTGROWN = b"+"
"""Shorter than any member."""
MOST_BYTES = 2048
"""A string that is longer takes up no member more."""


def members_in(value: bytes, size: int) -> list[bytes]:
    """The members of a bucket that is a string.

    Raises:
        ValueError: it is no such string.
    """
    if not value or len(value) % size:
        raise ValueError(f"{len(value)} bytes are no bucket of members of {size} bytes")
    return [value[at : at + size] for at in range(0, len(value), size)]


def times_in(value: bytes, member: bytes) -> int:
    """How often a member stands in a bucket that is a string."""
    at, times = value.find(member), 0
    while at >= 0:
        aligned = at % len(member) == 0
        times += aligned
        at = value.find(member, at + (len(member) if aligned else 1))
    return times
