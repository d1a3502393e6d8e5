"""What each duplicate says of its match, a page called unique under that number, at that distance, so much alike; and
what each verdict says of the last version of its URL.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from worker.verifying.findings import Findings
from worker.verifying.rules import Rule
from worker.verifying.verdict_columns import (
    OFFSET_BITS,
    UNTOLD,
    Flags,
    Halves,
    Numbers,
    Verdicts,
    distances,
)

NO_PAGE, OTHER_PAGE = "match without a verdict", "match is another page"
STRANGERS, DISTANCE, KIND, SAME_URL = "match does not match", "wrong distance", "wrong kind", "wrong same_url"
CANONICAL, SAME_HOST = "wrong is_canonical", "wrong same_host"
YOUNGER = "match is younger"
SIMILARITY, SIZE, CONTAINMENT, BETTER = "wrong similarity", "wrong size", "wrong containment", "wrong better"
SIZE_SHARE = 0.04
"""How far a stored size may be off: a byte holds it to within 3.5 %."""
MOST_UNDER_ONE_NUMBER = 16
"""Where a number was given to several pages, so many are looked at for the one that a match names."""


@dataclass(frozen=True)
class ComparedPages:
    """Verdicts and the relation, ready for comparisons."""

    verdicts: Verdicts
    rule: Rule
    verifier: np.ndarray
    bands: np.ndarray

    @classmethod
    def of(cls, verdicts: Verdicts, rule: Rule) -> ComparedPages:
        """Cut the verifiers into the verifier proper and its band keys."""
        width = verdicts.verifier.shape[1] - rule.bands
        return cls(verdicts, rule, verdicts.verifier[:, :width], verdicts.verifier[:, width:])

    def gate(self, a: Numbers, b: Numbers) -> Numbers:
        """Distances of the fingerprints of rows `a` and `b`."""
        fingerprint = self.verdicts.fingerprint
        return distances(fingerprint[a], fingerprint[b])

    def verified(self, a: Numbers, b: Numbers) -> Flags:
        """Whether the verifiers of rows `a` and `b` agree."""
        if self.rule.verifier_reach is None:
            return np.ones(len(a), dtype=np.bool_)
        return distances(self.verifier[a], self.verifier[b]) <= self.rule.verifier_reach

    def same_digest(self, a: Numbers, b: Numbers) -> Flags:
        """Whether rows `a` and `b` have the same text (or the same bytes)."""
        told = self.verdicts
        same: Flags = (told.digest[a] == told.digest[b]).all(axis=1) & (told.is_text[a] == told.is_text[b])
        return same

    def share_band(self, a: Numbers, b: Numbers) -> Flags:
        """Whether rows `a` and `b` have a band key in common."""
        found: Flags = ((self.bands[a] == self.bands[b]) & (self.bands[a] != 0)).any(axis=1)
        return found

    def meet(self, a: Numbers, b: Numbers) -> Flags:
        """Whether rows `a` and `b` can have been compared; where the tables are not known, they can."""
        design = self.rule.design
        if design is None:
            return np.ones(len(a), dtype=np.bool_)
        found = self.share_band(a, b)
        different = self.verdicts.fingerprint[a] ^ self.verdicts.fingerprint[b]
        for lead, radius in zip(design.leads, design.radii, strict=True):
            mask = words_of(lead, different.shape[1])
            found |= np.bitwise_count(different & mask).sum(axis=1) <= radius
        return found

    def matches(self, a: Numbers, b: Numbers) -> Flags:
        """The relation of rows `a` and `b`, as far as it can be told."""
        short_a, short_b = ~self.verdicts.has_fingerprint[a], ~self.verdicts.has_fingerprint[b]
        near = (self.gate(a, b) <= self.rule.reach) & self.verified(a, b) & self.meet(a, b)
        return np.where(short_a | short_b, short_a & short_b & self.same_digest(a, b), near)


def words_of(mask: int, count: int) -> np.ndarray:
    """A number as `count` words of 64 bits, most significant first."""
    return np.frombuffer(mask.to_bytes(8 * count, "big"), ">u8").astype(np.uint64)


@dataclass(frozen=True)
class _Named:
    """Rows of duplicates, beside each the row of the page that it names, and where what is wrong goes."""

    pages: ComparedPages
    rows: Numbers
    named: Numbers
    findings: Findings

    def tell(self, kind: str, wrong: Flags, words: Callable[[int, int], str]) -> None:
        """Those that are `wrong`; `words` of a row and the row of its match."""
        match_of = dict(zip(self.rows[wrong].tolist(), self.named[wrong].tolist(), strict=True))
        self.findings.add(kind, match_of, lambda row: (self.pages.verdicts.at(row), words(row, match_of[row])))


def check_matches(pages: ComparedPages, before: Numbers, findings: Findings, beside_base: bool = False) -> None:
    """Hold what duplicates say against the pages that they name; those of a base are not known."""
    told = pages.verdicts
    duplicates = np.flatnonzero(~told.unique)
    found, named = _named(told, duplicates)
    if beside_base:
        found &= told.page[named] == told.match_page[duplicates]
        findings.notes.append(f"{(~found).sum():,} duplicates name pages of the base, which is not read")
    else:
        missing = duplicates[~found]
        nobody = "nobody was called unique as number"
        findings.add(NO_PAGE, missing, lambda row: (told.at(row), f"{nobody} {told.seq[row]:,}"))
    each = _Named(pages, duplicates[found], named[found], findings)
    _check_names(each)
    _check_comparison(each)
    _check_overlap(each)
    each.tell(
        YOUNGER,
        told.seq[each.rows] >= before[each.rows],
        lambda row, _: f"number {told.seq[row]:,} was given after it: the next of its partition is {before[row]:,}",
    )


def _named(told: Verdicts, rows: Numbers) -> tuple[Flags, Numbers]:
    """For each duplicate whether there is a page of its match's number, and which: the one it describes, if any."""
    unique = np.flatnonzero(told.unique)
    order = unique[np.argsort(told.seq[unique], kind="stable")]
    numbers, wanted = told.seq[order], told.seq[rows]
    if not len(order):
        return np.zeros(len(rows), dtype=np.bool_), rows
    begin, end = np.searchsorted(numbers, wanted, "left"), np.searchsorted(numbers, wanted, "right")
    chosen = order[np.minimum(begin, len(order) - 1)]
    for step in range(1, min(int((end - begin).max(initial=0)), MOST_UNDER_ONE_NUMBER)):
        other = order[np.minimum(begin + step, len(order) - 1)]
        better = (begin + step < end) & (told.page[other] == told.match_page[rows])
        chosen = np.where(better & (told.page[chosen] != told.match_page[rows]), other, chosen)
    return end > begin, chosen


def _check_names(each: _Named) -> None:
    told, rows = each.pages.verdicts, each.rows
    each.tell(
        OTHER_PAGE,
        told.page[each.named] != told.match_page[rows],
        lambda row, match: f"the url, id or fetched_at of number {told.seq[row]:,} is another at {told.at(match)}",
    )
    each.tell(
        SAME_URL,
        told.same_url[rows] != (told.url[rows] == told.match_url[rows]),
        lambda row, _: f"says {str(bool(told.same_url[row])).lower()} of its url and its match's",
    )
    each.tell(
        CANONICAL,
        told.miscalled[rows],
        lambda *_: "says of its match and its canonical url what they are not",
    )
    each.tell(SAME_HOST, told.misplaced[rows], lambda *_: "says of its host and its match's what they are not")


def _check_comparison(each: _Named) -> None:
    pages, rows, named = each.pages, each.rows, each.named
    told = pages.verdicts
    each.tell(STRANGERS, ~pages.matches(rows, named), lambda row, match: _apart(pages, row, match))
    distance = pages.gate(rows, named)

    def stated(row: int, match: int) -> str:
        true = pages.gate(np.array([row]), np.array([match]))[0]
        return f"says {told.distance[row]}, number {told.seq[row]:,} at {told.at(match)} is {true} away"

    each.tell(DISTANCE, distance != told.distance[rows], stated)
    each.tell(
        KIND,
        pages.same_digest(rows, named) != told.exact[rows],
        lambda row, match: (
            f"says exact of another digest than that at {told.at(match)}"
            if told.exact[row]
            else f"says near of the same digest as that at {told.at(match)}"
        ),
    )


def _check_overlap(each: _Named) -> None:
    """What a verdict says of how much both have in common, where it says it."""
    told, rows, exact = each.pages.verdicts, each.rows, each.pages.verdicts.exact[each.rows]
    own, true, said = told.features[rows], told.features[each.named], told.match_size[rows]
    similarity, containment, better = told.similarity[rows], told.containment[rows], told.better[rows]
    sketched = distances(each.pages.verifier[rows], each.pages.verifier[each.named])
    expected = np.where(exact, 1000, each.pages.rule.similarity(sketched, each.pages.rule.verifier_bits))
    each.tell(
        SIMILARITY,
        (similarity != UNTOLD) & (abs(similarity - expected) > 1),
        lambda row, _: f"says {told.similarity[row] / 1000} of sketches that are another number of bits apart",
    )
    each.tell(
        SIZE,
        (said != UNTOLD) & (abs(said - true) > SIZE_SHARE * true),
        lambda row, match: f"says that its match has {told.match_size[row]:,} features, not {told.features[match]:,}",
    )
    shared = similarity / (1000 + similarity) * (own + said)
    share = np.minimum(np.minimum(own, said), shared) / np.maximum(own, 1)
    each.tell(
        CONTAINMENT,
        (containment != UNTOLD) & (abs(containment - np.where(exact, 1000, 1000 * share)) > 2),
        lambda row, _: f"says {told.containment[row] / 1000}, which its similarity and both sizes do not give",
    )
    each.tell(
        BETTER,
        (better == 1) & (exact | (own <= true)) | (better == 0) & ~exact & (own > 2 * SIZE_SHARE * said + said + 1),
        lambda row, match: f"has {told.features[row]:,} features, its match {told.features[match]:,}",
    )


def _apart(pages: ComparedPages, row: int, match: int) -> str:
    told, rule = pages.verdicts, pages.rule
    who = f"number {told.seq[row]:,} at {told.at(match)}"
    if not (told.has_fingerprint[row] and told.has_fingerprint[match]):
        return f"{who} has another digest, and they have not both a fingerprint"
    a, b = np.array([row]), np.array([match])
    bits, sketch = pages.gate(a, b)[0], distances(pages.verifier[a], pages.verifier[b])[0]
    met = "" if pages.meet(a, b)[0] else ", and they share no prefix of a table and no band key"
    return f"{who} is {bits} bits away and its verifier {sketch}; at most {rule.reach} and {rule.verifier_reach}{met}"


# Last versions --------------------------------------------------------------------------------------------------------
#
# What verdicts say of the last version of their URL: a page of that URL, fetched then, was so far away. Verdicts do not
# say in which order pages of one URL were judged where these come from several partitions. So a statement is wrong when
# none of the pages that can have been the last version explains it. In a URL of very many pages the `LOOKED_AT` on
# either side are looked at, and what none of these explains is let pass.

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
