"""What lies near a page in an index in Redis, read outside the script, in steps that hold up the server but shortly.

For `neighbours`, and for a page that meets more others than one call of the script may compare: a crowd, as templates
make them. The script must not look at all of them in one call, nor can a client look at all of them at one moment. So
the client reads what lies near the page, notes up to which number of the index that holds, and names the matches to
the script, which looks at those records again and at the few that were stored since.

Nothing is lost by that: a record up to the noted number that is still there when the script judges was there all the
time, and SCAN returns what is there from its beginning to its end.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from simhash.index.inside import Inside
from simhash.index.interface import Entry, Record
from simhash.index.walking import stretch
from simhash.tables import Table

CROWD = 1000
"""Candidates of one page that are a crowd; in a single primary's script it is judged in a call of its own."""
STEP = 500
"""Members, and records, that are read at once."""
MOST_MATCHES = 100
"""Matches that are named to the script, the oldest ones: one is enough unless it is forgotten meanwhile."""
FEW_NEWER = 100
"""So many records that were stored meanwhile are left to the script."""


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What a page that meets a crowd has to do with the pages stored up to number `since`.

    Attributes:
        matches: fingerprints of the records that it matches, each with whether they met in a band only; those of the
            oldest first.
        last: the number of the last of them when there were more, or -1.
        compared: how many stored fingerprints were looked at.
    """

    since: int
    matches: tuple[tuple[int, bool], ...]
    last: int
    compared: int

    def for_script(self, fingerprint_bytes: int) -> dict[str, object]:
        """As the script wants it, JSON-able."""
        named = [(near.to_bytes(fingerprint_bytes).hex(), banded) for near, banded in self.matches]
        return {"since": self.since, "matches": named, "last": self.last, "compared": self.compared}


class Reading:
    """Looks around in an index.

    Attributes:
        compared: how many stored fingerprints were looked at so far.
    """

    def __init__(self, inside: Inside) -> None:
        self._inside = inside
        self._client: Any = inside.client
        self._layout = inside.layout
        self._relation = inside.layout.spec.relation
        self.compared = 0

    def surroundings(self, entry: Entry) -> Surroundings:
        """All that a page with a fingerprint has to do with the index."""
        if entry.fingerprint is None:
            raise ValueError("a page without a fingerprint meets no crowd")
        since = stretch(self._inside, 0, 1).seq
        met = set(self.near(entry.fingerprint))
        banded = set(self._near_by_band(entry.fingerprint, entry.verifier)) - met
        since = self._catch_up(entry.fingerprint, since, met, banded)
        found = sorted(
            (record.seq, near, near in banded)
            for near, record in self.records([*met, *banded])
            if self._matches(entry, record, near in banded)
        )
        last = found[MOST_MATCHES - 1][0] if len(found) > MOST_MATCHES else -1
        matches = dict.fromkeys((near, of_band) for _, near, of_band in found[:MOST_MATCHES])
        return Surroundings(since, tuple(matches), last, self.compared)

    def near(self, fingerprint: int) -> Iterator[int]:
        """Stored fingerprints within reach that share, within the design's radius, a table's prefix with this one."""
        for number, table in enumerate(self._relation.design.tables):
            yield from self._near_in(number, table, fingerprint)

    def records(self, fingerprints: Sequence[int]) -> Iterator[tuple[int, Record]]:
        """The records of fingerprints."""
        for at in range(0, len(fingerprints), STEP):
            some = fingerprints[at : at + STEP]
            with self._client.pipeline(transaction=False) as pipe:
                for fingerprint in some:
                    pipe.hget(self._layout.records(fingerprint), self._layout.key_of(fingerprint))
                fields = pipe.execute()
            for fingerprint, field in zip(some, fields, strict=True):
                for record in self._layout.records_in(field or b""):
                    yield fingerprint, record

    def _matches(self, entry: Entry, record: Record, banded: bool) -> bool:
        relation = self._relation
        meet = not banded or relation.shares_band(entry.verifier, record.verifier)
        return meet and relation.verified(entry.verifier, record.verifier)

    def _catch_up(self, own: int, since: int, met: set[int], banded: set[int]) -> int:
        """Add what was stored after number `since`, until few are left; the number up to which they are added."""
        while True:
            newer = stretch(self._inside, since + 1, STEP)
            if newer.seq - since <= FEW_NEWER:
                return since
            for logged in newer.entries:
                near = logged.fingerprint if logged.name else None
                if near is None or (near ^ own).bit_count() > self._relation.reach:
                    continue
                (met if self._relation.design.shares_prefix(near, own) else banded).add(near)
            since = newer.begin + len(newer.entries) - 1
            banded -= met

    def _near_in(self, number: int, table: Table, fingerprint: int) -> Iterator[int]:
        layout, shape, radius = self._layout, self._layout.shape(table), self._relation.design.radius
        bucket, score, member = layout.place(table, fingerprint)
        own = int(bucket, 16)
        flips = [1 << bit for bit in range(shape.bucket)] if radius else []
        for other in (own, *(own ^ flip for flip in flips)):
            name = f"{other:0{layout.digits}x}"
            left = radius - (other ^ own).bit_count()
            for members, scores in self._steps(layout.table(number) + name):
                there = np.bitwise_count(scores ^ np.int64(score)) <= left
                for n in np.flatnonzero(there & (_distances(members, member) <= self._relation.reach)):
                    near = layout.fingerprint_at(table, name, int(scores[n]), members[n])
                    if (near ^ fingerprint).bit_count() <= self._relation.reach:
                        yield near

    def _near_by_band(self, fingerprint: int, verifier: int | None) -> Iterator[int]:
        """Stored fingerprints within reach that share a band's place: of their records, some may share the band."""
        layout = self._layout
        own = layout.key_of(fingerprint)
        for number, key in enumerate(self._relation.band_keys(verifier)):
            place = layout.band_place(key)
            if place is None:
                continue
            for members, scores in self._steps(layout.band(number) + place[0]):
                there = (scores == place[1]) & (_distances(members, own) <= self._relation.reach)
                yield from (int.from_bytes(members[n][: len(own)]) for n in np.flatnonzero(there))

    def _steps(self, key: str) -> Iterator[tuple[list[bytes], np.ndarray]]:
        """The members of a bucket and their scores, some at a time; some may come twice."""
        cursor = None
        while cursor != 0:
            cursor, found = self._client.zscan(key, cursor or 0, count=STEP)
            if found:
                self.compared += len(found)
                members, scores = zip(*found, strict=True)
                yield list(members), np.array(scores).astype(np.int64)


def _distances(members: list[bytes], own: bytes) -> np.ndarray:
    """Of each member how many bits of it differ from one's own; what is behind its own bytes (its score) is cut off."""
    size = len(own)
    joined = np.frombuffer(b"".join(member[:size] for member in members), np.uint8).reshape(-1, size)
    distances: np.ndarray = np.bitwise_count(joined ^ np.frombuffer(own, np.uint8)).sum(axis=1)
    return distances
