"""The pairs that must not have been missed: found by this file's own sorting, and linear in crowds.

For each verdict the unique pages are wanted that were stored before it was judged and that it must match. Before a
unique page were those of lower numbers; of a duplicate it is enough to know those older than the match that it names.
So one search finds both faults: two unique pages that match, and a match that is not the oldest.

Pages meet in a *place*: those with the same leading bits of a table, in the order of their numbers. Of a place only
the first `place_limit` can be found there (see rules.py), so a page is compared with so many at most, however large
the crowd is: that is why a stream of templates is checked in linear time. Exact copies are found whatever the crowd.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from worker.verifying.findings import Findings
from worker.verifying.forgetting import Forgetting
from worker.verifying.matches import ComparedPages, words_of
from worker.verifying.rules import BAND_BITS
from worker.verifying.table_masks import DesignTables, possible
from worker.verifying.verdict_columns import Flags, Numbers

MISSED, NOT_OLDEST = "two unique pages match", "not the oldest match"
PAIRS_AT_ONCE = 1 << 18
ODD = np.array([0x9E3779B97F4A7C15, 0xC2B2AE3D27D4EB4F, 0xD6E8FEB86659FD93], dtype=np.uint64)
"""Odd numbers to mix the words of a key by; what it brings together is compared in full."""
PROGRESS = Callable[[str], None]


@dataclass(frozen=True)
class Pairs:
    """Rows of unique pages, and beside each the row of a younger page that it was compared with."""

    former: Numbers
    page: Numbers

    def where(self, kept: Flags) -> Pairs:
        """Those of them."""
        return Pairs(self.former[kept], self.page[kept])

    def __len__(self) -> int:
        return len(self.page)


class MissedSearch:
    """The unique pages in the order of their numbers, and how many of them each verdict comes after."""

    def __init__(self, pages: ComparedPages, forgetting: Forgetting, before: Numbers) -> None:
        told = pages.verdicts
        unique = np.flatnonzero(told.unique)
        self.pages, self._forgetting, self._before = pages, forgetting, before
        self.stored = unique[np.argsort(told.seq[unique], kind="stable")]
        # What was taken down is not found, but took a place from those that came before it went.
        self._kept = ~forgetting.taken_down(told.observation[self.stored])
        self._bound = np.searchsorted(told.seq[self.stored], told.seq, "left")

    def forgotten(self, pairs: Pairs) -> Flags:
        """Which of the former pages may have been gone."""
        return self._forgetting.may_have_gone(self.pages.verdicts, pairs.former, pairs.page, self._before)

    def standing(self, place: np.ndarray, present: Flags, limit: int) -> Flags:
        """Which of `stored` came to a place, of those that its row has, with fewer than `limit` pages in it."""
        stands = np.zeros(len(self.stored), dtype=np.bool_)
        inside = np.flatnonzero(present[self.stored])
        stands[inside] = not limit or _ranks(place[self.stored[inside]]) < limit
        return stands & self._kept

    def meeting(
        self, key: np.ndarray, stands: Flags, present: Flags, near: Callable[[Pairs], Flags]
    ) -> Iterator[Pairs]:
        """Pairs of a standing page and a younger one with the same `key`, for which `near` holds.

        Args:
            key: (n,) for each verdict; stands: for each of `stored`; present: verdicts that have a key at all.
        """
        ranks = np.flatnonzero(stands)
        ranks = ranks[np.argsort(key[self.stored[ranks]], kind="stable")]
        held = key[self.stored[ranks]]
        if not len(ranks):
            return
        begins = np.concatenate([[0], np.flatnonzero(held[1:] != held[:-1]) + 1])
        group = np.repeat(np.arange(len(begins)), np.diff(begins, append=len(held)))
        rows = np.flatnonzero(present)
        rows = rows[np.argsort(key[rows])]  # looked up in their order: several times as fast
        where = np.searchsorted(held[begins], key[rows], "left")
        met = np.flatnonzero(held[begins][np.minimum(where, len(begins) - 1)] == key[rows])
        rows, where = rows[met], where[met]
        width = len(self.stored) + 1
        end = np.searchsorted(group * width + ranks, where * width + self._bound[rows], "left")
        yield from self._compared(rows, begins[where], end, self.stored[ranks], near)

    def _compared(
        self, rows: Numbers, begin: Numbers, end: Numbers, held: Numbers, near: Callable[[Pairs], Flags]
    ) -> Iterator[Pairs]:
        """All of held[begin:end] with each row, so many at a time."""
        some = end > begin
        rows, begin, lengths = rows[some], begin[some], (end - begin)[some]
        total = np.cumsum(lengths)
        at = 0
        while at < len(rows):
            done = total[at - 1] if at else 0
            stop = max(at + 1, int(np.searchsorted(total, done + PAIRS_AT_ONCE, "right")))
            part = slice(at, stop)
            offsets = np.arange(lengths[part].sum()) - np.repeat(total[part] - lengths[part] - done, lengths[part])
            former = held[np.repeat(begin[part], lengths[part]) + offsets]
            pairs = Pairs(former, np.repeat(rows[part], lengths[part]))
            yield pairs.where(near(pairs))
            at = stop

    def last_copy(self, key: np.ndarray) -> Pairs:
        """Each verdict with the youngest page before it that has the same `key`."""
        kept = np.flatnonzero(self._kept)
        order = kept[np.lexsort((kept, key[self.stored[kept]]))]
        held = key[self.stored[order]]
        names, group_of = np.unique(held, return_inverse=True)
        where = np.searchsorted(names, key)
        known = np.flatnonzero(names[np.minimum(where, len(names) - 1)] == key) if len(names) else np.zeros(0, np.int64)
        width = len(self.stored) + 1
        at = np.searchsorted(group_of * width + order, where[known] * width + self._bound[known], "left") - 1
        begins = np.searchsorted(held, key[known], "left")
        some = at >= begins
        return Pairs(self.stored[order[at[some]]], known[some])


def _ranks(key: np.ndarray) -> Numbers:
    """For each the number of equal ones before it."""
    order = np.argsort(key, kind="stable")
    ordered = key[order]
    first = np.flatnonzero(np.concatenate([[True], ordered[1:] != ordered[:-1]])) if len(key) else np.zeros(0, np.int64)
    ranks = np.empty(len(key), dtype=np.int64)
    ranks[order] = np.arange(len(key)) - np.repeat(first, np.diff(first, append=len(key)))
    return ranks


def check_missed(
    pages: ComparedPages,
    forgetting: Forgetting,
    before: Numbers,
    findings: Findings,
    tell: PROGRESS,
    beside_base: bool = False,
) -> None:
    """No two unique pages match, and no duplicate has an older match than the one that it names: of those beside a base
    nobody can say it, for that has numbers of its own."""
    search = MissedSearch(pages, forgetting, before)
    certain, excused = _must_be_found(search, tell)
    if beside_base:
        certain, excused = (pairs.where(pages.verdicts.unique[pairs.page]) for pairs in (certain, excused))
    _report(pages, certain.where(~search.forgotten(certain)), findings)
    if count := int((~search.forgotten(excused)).sum()):
        findings.notes.append(
            f"{count:,} pairs that match were missed, as full places of some design would explain (--design, --index)"
        )


def _must_be_found(search: MissedSearch, tell: PROGRESS) -> tuple[Pairs, Pairs]:
    """Pairs that match and were not told of: those that must have been, and those that full places may excuse."""
    rule, told = search.pages.rule, search.pages.verdicts
    if not told.has_fingerprint.any():
        return _copies(search), _joined([])
    designs = [rule.design] if rule.design is not None else possible(rule.k, told.fingerprint_bits)
    least = min(rule.place_limit(each) for each in designs)
    found = [_copies(search)]
    for number in range(rule.bands):
        tell(f"comparing: band {number + 1} of {rule.bands}")
        found += _in_band(search, number, least)
    if rule.design is not None:
        return _joined([*found, *_in_tables(search, rule.design, rule.reach, tell)]), _joined([])
    sharpest = max((each for each in designs if not any(each.radii)), key=lambda each: each.shortest)
    doubtful = _joined([*_in_tables(search, sharpest, rule.k, tell)])
    certain = _found_in_all(search, doubtful, designs)
    return _joined([*found, doubtful.where(certain)]), doubtful.where(~certain)


def _joined(parts: list[Pairs]) -> Pairs:
    """All of them, each pair once."""
    none = [np.zeros(0, np.int64)]
    both = np.stack([np.concatenate(none + [p.former for p in parts]), np.concatenate(none + [p.page for p in parts])])
    former, page = np.unique(both, axis=1)
    return Pairs(former, page)


def _report(pages: ComparedPages, pairs: Pairs, findings: Findings) -> None:
    """One violation for each page, with the oldest of those that it matches."""
    told = pages.verdicts
    order = np.lexsort((told.seq[pairs.former], pairs.page))
    rows, first = np.unique(pairs.page[order], return_index=True)
    oldest = dict(zip(rows.tolist(), pairs.former[order][first].tolist(), strict=True))

    def words(row: int) -> tuple[object, str]:
        former = oldest[row]
        a, b = np.array([row]), np.array([former])
        where = f"number {told.seq[former]:,} at {told.at(former)}, {int(pages.gate(a, b)[0])} bits away"
        if told.unique[row]:
            return told.at(row), f"number {told.seq[row]:,} is unique and matches {where}"
        return told.at(row), f"names number {told.seq[row]:,} and matches {where}"

    findings.add(MISSED, rows[told.unique[rows]], words)
    findings.add(NOT_OLDEST, rows[~told.unique[rows]], words)


def _copies(search: MissedSearch) -> Pairs:
    """Pairs of the same fingerprint and digest, or of the same digest where there is no fingerprint."""
    told = search.pages.verdicts
    key = told.digest[:, 0] ^ (told.digest[:, 1] * ODD[0]) ^ told.is_text ^ (told.has_fingerprint * ODD[1])
    for column in range(told.fingerprint.shape[1]):
        key = (key ^ told.fingerprint[:, column]) * ODD[2]
    pairs = search.last_copy(key)
    same = search.pages.same_digest(pairs.former, pairs.page) & (search.pages.gate(pairs.former, pairs.page) == 0)
    return pairs.where(same & (told.has_fingerprint[pairs.former] == told.has_fingerprint[pairs.page]))


def _in_band(search: MissedSearch, number: int, limit: int) -> Iterator[Pairs]:
    pages = search.pages
    key = pages.bands[:, number]
    present = (key != 0) & pages.verdicts.has_fingerprint
    stands = search.standing(key >> np.uint32(BAND_BITS - pages.rule.place_bits), present, limit)
    yield from search.meeting(key, stands, present, lambda pairs: _near(pages, pairs, pages.rule.reach))


def _in_tables(search: MissedSearch, design: DesignTables, reach: int, tell: PROGRESS) -> Iterator[Pairs]:
    pages, present = search.pages, search.pages.verdicts.has_fingerprint
    for number, (lead, radius) in enumerate(zip(design.leads, design.radii, strict=True)):
        tell(f"comparing: table {number + 1} of {len(design.leads)}")
        own = _key(pages, lead)
        stands = search.standing(own, present, pages.rule.place_limit(design))
        yield from search.meeting(own, stands, present, lambda pairs: _near(pages, pairs, reach))
        if not radius:
            continue
        # Probed at distance 1, two pages meet where one bit of the lead is left out.
        stands = search.standing(own, present, pages.rule.neighbour_limit(design, design.probes[number]))
        for without in (1 << bit for bit in range(lead.bit_length()) if lead >> bit & 1):
            key = _key(pages, lead ^ without)
            yield from search.meeting(key, stands, present, lambda pairs: _near(pages, pairs, reach))


def _near(pages: ComparedPages, pairs: Pairs, reach: int) -> Flags:
    """Within reach, their verifiers agreeing: the second is looked at only where the first holds."""
    near = pages.gate(pairs.former, pairs.page) <= reach
    rest = np.flatnonzero(near)
    near[rest] = pages.verified(pairs.former[rest], pairs.page[rest])
    return near


def _key(pages: ComparedPages, lead: int) -> np.ndarray:
    """The leading bits of each fingerprint as one number, equal for equal ones."""
    fingerprint = pages.verdicts.fingerprint
    masked = fingerprint & words_of(lead, fingerprint.shape[1])
    key: np.ndarray = masked[:, 0]
    for column in range(1, masked.shape[1]):
        _, above = np.unique(key, return_inverse=True)
        _, below = np.unique(masked[:, column], return_inverse=True)
        key = above.astype(np.uint64) << np.uint64(32) | below.astype(np.uint64)
    return key


def _found_in_all(search: MissedSearch, pairs: Pairs, designs: list[DesignTables]) -> Flags:
    """Whether each pair meets, in each of the designs, in a place that was not full."""
    found = np.ones(len(pairs), dtype=np.bool_)
    if not len(pairs):
        return found
    pages = search.pages
    rank_of = np.empty(len(pages.verdicts), dtype=np.int64)
    rank_of[search.stored] = np.arange(len(search.stored))
    different = pages.verdicts.fingerprint[pairs.former] ^ pages.verdicts.fingerprint[pairs.page]
    for design in designs:
        here = np.zeros(len(pairs), dtype=np.bool_)
        for lead, radius, probes in zip(design.leads, design.radii, design.probes, strict=True):
            mask = words_of(lead, different.shape[1])
            apart = np.bitwise_count(different & mask).sum(axis=1)
            own, present, former = _key(pages, lead), pages.verdicts.has_fingerprint, rank_of[pairs.former]
            here |= (apart == 0) & search.standing(own, present, pages.rule.place_limit(design))[former]
            if radius:
                limit = pages.rule.neighbour_limit(design, probes)
                here |= (apart == 1) & search.standing(own, present, limit)[former]
        found &= here
    return found
