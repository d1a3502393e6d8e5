"""What the pages of an index that ages take on disk, and what it costs to ask them there: arithmetic.

A sorted table of n random keys of w bits has an entropy of w - log2(n) + log2(e) bits a key; what the tables take
beyond it was measured (docs/compressed-tables.md). How many segments there are follows from their levels
(`simhash.archive.segments.contents`).
All pages are taken to lie in one: the same in several take a bit or two more a key.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from simhash.archive.format.keys import words
from simhash.archive.format.manifest import parts
from simhash.archive.format.table_file import BLOCK_KEYS
from simhash.archive.segments.contents import FANOUT
from simhash.index.interface import Relation

OVER_ENTROPY_BITS = 2.3
"""Of a key: 41.2 bits where 38.9 are the entropy, at 100 million keys; index and Huffman code."""
RECORD_BYTES = 40
"""A record beside its verifier and URL, compressed: number, time, observation, digest do not compress."""
URL_SHARE = 0.5
"""What zstd leaves of a URL among 64 others: coarse."""
BLOCK_INDEX_BYTES = 12


@dataclass(frozen=True, slots=True)
class ArchivePlan:
    """An archive of so many pages.

    Attributes:
        table_bytes, record_bytes: on disk, of a page: the sorted tables, bands among them; its record.
        segments: at most.
        open_bytes: memory of each process that has it open: the index of each file.
        met: stored pages that one page meets in the tables of all segments, about: each is decoded and compared.
    """

    pages: int
    table_bytes: float
    record_bytes: float
    segments: int
    open_bytes: float
    met: float

    @property
    def bytes(self) -> float:
        """On disk, all of it."""
        return self.pages * (self.table_bytes + self.record_bytes)


def archive_plan(relation: Relation, pages: int, at_once: int, url_bytes: int) -> ArchivePlan:
    """An archive that holds so many pages, which came `at_once` at a time."""
    made = list(parts(relation))
    levels = max(1, math.ceil(math.log(max(1.0, pages / at_once), FANOUT)))
    bits = sum(part.width - math.log2(pages) + math.log2(math.e) + OVER_ENTROPY_BITS for part in made)
    index = sum(8 * words(part.width) + BLOCK_INDEX_BYTES for part in made) / BLOCK_KEYS
    verifier = 0 if relation.verifier_reach is None else (relation.verifier_bits + 32 * relation.bands) / 8
    return ArchivePlan(
        pages=pages,
        table_bytes=bits / 8,
        record_bytes=RECORD_BYTES + verifier + URL_SHARE * url_bytes,
        segments=(FANOUT - 1) * levels,
        open_bytes=pages * index,
        met=sum(part.probes * pages * 2.0**-part.prefix for part in made),
    )
