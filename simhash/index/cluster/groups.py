"""The groups of an index on a cluster: hash tags over which its keys are dealt out, and what is done at a key.

A group is one hash tag, so one slot, so one script call for all that a batch reads or writes there; the tags are chosen
such that the groups lie evenly over the slots. The claim slot has a tag of its own.
"""

from __future__ import annotations

import binascii
from collections.abc import Iterable
from typing import NamedTuple

GROUPS = 64
"""More groups are more, smaller script calls for a batch; fewer cannot be spread over many primaries."""
SLOTS = 16_384


class Spot(NamedTuple):
    """A key, and the group that it lies in."""

    group: int
    key: str


class Operation(NamedTuple):
    """What group.lua does at a key."""

    spot: Spot
    argument: bytes


def claim_tag(name: str) -> str:
    """What the keys of the claim slot start with."""
    return f"{{{name}:claim}}"


def group_tags(name: str) -> list[str]:
    """One hash tag for each group, evenly over the slots: the first of ns:0, ns:1 … in each range of slots."""
    found: dict[int, str] = {}
    number = 0
    while len(found) < GROUPS:
        tag = f"{name}:{number:x}"
        found.setdefault(binascii.crc_hqx(tag.encode(), 0) % SLOTS * GROUPS // SLOTS, tag)
        number += 1
    return [found[group] for group in range(GROUPS)]


def behind(operations: Iterable[Operation]) -> list[Operation]:
    """The same operations of the next generation, whose groups are numbered behind those of this one."""
    return [Operation(Spot(GROUPS + spot.group, spot.key), argument) for spot, argument in operations]
