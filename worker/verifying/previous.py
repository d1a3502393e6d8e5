"""What verdicts say of the last version of their URL: a page of that URL, fetched then, was so far away.

Verdicts do not say in which order pages of one URL were judged where these come from several partitions. So a statement
is wrong when none of the pages that can have been the last version explains it. In a URL of very many pages the
`LOOKED_AT` on either side are looked at, and what none of these explains is let pass.
"""

from __future__ import annotations

import numpy as np

from worker.verifying.distances import distances
from worker.verifying.findings import Findings
from worker.verifying.matches import ComparedPages
from worker.verifying.verdict_columns import OFFSET_BITS, UNTOLD, Flags, Halves, Numbers

WRONG = "wrong previous"
LOOKED_AT = 64
SKETCH_BITS = 128
"""Of a verifier the first so many are kept with a version."""
HALF_BITS = 32
DIGEST_BITS = 56
"""Of the digest of a page without a fingerprint."""


def check_previous(pages: ComparedPages, findings: Findings) -> None:
    """Hold what is said of last versions against the other pages of these URLs."""
    told = pages.verdicts
    order = np.lexsort((told.record, told.url))
    place = np.empty(len(order), dtype=np.int64)
    place[order] = np.arange(len(order))
    rows = np.flatnonzero(told.previous_fetched != UNTOLD)
    rows = rows[~_is_large(told.url[order], place[rows])]
    for step in (step for distance in range(1, LOOKED_AT + 1) for step in (-distance, distance)):
        if not len(rows):
            return
        other = order[np.clip(place[rows] + step, 0, len(order) - 1)]
        rows = rows[~(_can_precede(pages, rows, other) & _explains(pages, rows, other))]
    findings.add(WRONG, rows, lambda row: (told.at(row), "no page of its url was so far away, and fetched then"))


def _is_large(urls: Numbers, at: Numbers) -> Flags:
    """Whether more rows than are looked at have the URL of the row in this place; `urls` in order."""
    begin, end = np.searchsorted(urls, urls[at], "left"), np.searchsorted(urls, urls[at], "right")
    found: Flags = (at - begin > LOOKED_AT) | (end - at - 1 > LOOKED_AT)
    return found


def _can_precede(pages: ComparedPages, rows: Numbers, other: Numbers) -> Flags:
    """Whether the others may have been judged before: pages of the same URL, of a partition the earlier one."""
    told = pages.verdicts
    elsewhere = told.record[rows] >> OFFSET_BITS != told.record[other] >> OFFSET_BITS
    before = elsewhere | (told.record[other] < told.record[rows])
    found: Flags = (rows != other) & (told.url[rows] == told.url[other]) & before
    return found


def _explains(pages: ComparedPages, rows: Numbers, other: Numbers) -> Flags:
    """Whether the others are what is said of the last version."""
    told = pages.verdicts
    both = told.has_fingerprint[rows] & told.has_fingerprint[other]
    kept = np.uint64(64 - DIGEST_BITS)
    same = told.digest[rows, 0] >> kept == told.digest[other, 0] >> kept
    equal = ~told.has_fingerprint[rows] & ~told.has_fingerprint[other] & same
    distance = np.where(both, pages.gate(rows, other), np.where(equal, 0, UNTOLD))
    similarity = np.where(both, _similarity(pages, rows, other), np.where(equal, 1000, UNTOLD))
    found: Flags = (
        (told.previous_fetched[rows] == told.fetched[other])
        & (told.previous_distance[rows] == distance)
        & (np.abs(told.previous_similarity[rows] - similarity) <= 1)
    )
    return found


def _similarity(pages: ComparedPages, rows: Numbers, other: Numbers) -> Numbers:
    """Estimated from the sketches, in thousandths; what is said where there is none but another verifier, or none."""
    told, bits = pages.verdicts, min(SKETCH_BITS, pages.rule.verifier_bits)
    if not pages.rule.bands:
        return told.previous_similarity[rows]
    ahead = -pages.rule.verifier_bits % HALF_BITS
    a, b = (_first_bits(told.verifier[either], ahead, bits) for either in (rows, other))
    return pages.rule.similarity(distances(a, b), bits)


def _first_bits(halves: Halves, ahead: int, bits: int) -> Halves:
    """So many bits of each row, behind the first `ahead`; zeros fill the last half."""
    count = -(-bits // HALF_BITS)
    words = halves[:, : count + 1].astype(np.uint64)
    both = words[:, :-1] << np.uint64(HALF_BITS) | words[:, 1:]
    cut = (both >> np.uint64(HALF_BITS - ahead)).astype(np.uint32)
    cut[:, -1] &= np.uint32((1 << HALF_BITS) - (1 << -bits % HALF_BITS))
    return cut
