"""All checks in their order: read, one answer each, numbers, matches, what was missed, the index."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import numpy as np

from worker.errors import InputError, SettingsError
from worker.verifying import told as codec
from worker.verifying.answered import (
    UNREAD,
    Answers,
    InputRecords,
    check_input,
    check_letters,
    check_numbers,
    check_order,
    check_told_of,
    check_twice,
    note_gaps,
)
from worker.verifying.findings import Findings
from worker.verifying.forgetting import OPEN, Forgetting, numbers_before
from worker.verifying.held import check_index, head_of, held_in
from worker.verifying.matches import ComparedPages, check_matches, check_previous
from worker.verifying.missed import check_missed
from worker.verifying.rules import BAND_BITS, Given, Rule, rule_of
from worker.verifying.sources import Sources
from worker.verifying.table_masks import named
from worker.verifying.unique_pages import Copies, check_copies
from worker.verifying.verdict_columns import UNTOLD, Spots, VerdictColumns, Verdicts, page_hash

NO_VERDICT, OTHER_PROFILE = "not a verdict", "another profile"
PROGRESS = Callable[[str], None]
TELL_EVERY = 5000


@dataclass
class CheckedCounts:
    """How much was looked at."""

    verdicts: int = 0
    unique: int = 0
    dead_letters: int = 0
    records: int | None = None
    held: int | None = None


@dataclass
class Check:
    """One check of everything that it was given.

    Attributes:
        export: the lines of the index's export; None: the index is not looked at. Read after everything else.
        design: name of the index's design, where it is not read from the index.
        any_order: nothing is held against the order in which the pages come.
    """

    sources: Sources
    given: Given
    design: str | None
    export: Iterator[bytes] | None
    tell: PROGRESS
    any_order: bool = False
    findings: Findings = field(default_factory=Findings)
    counts: CheckedCounts = field(default_factory=CheckedCounts)

    def run(self) -> None:
        """Read and check; `findings` and `counts` say what came of it.

        Raises:
            InputError, BrokerError, SettingsError: something cannot be read, or not be checked as it is.
        """
        verdicts = self._verdicts_that_answer()
        check_numbers(verdicts, self.findings)
        if len(verdicts):
            self._compare(verdicts)

    def _verdicts_that_answer(self) -> Verdicts:
        """All verdicts, held against the records that they answer; of these nothing is kept."""
        spots = Spots()
        inputs = self._inputs(spots) if self.sources.has_input else None
        verdicts = self._verdicts(spots)
        answers = self._answers(verdicts, spots)
        check_twice(answers, self.findings)
        if inputs is None:
            note_gaps(answers, self.findings)
        else:
            check_input(answers, inputs, self.findings)
            check_told_of(verdicts, inputs, self.findings)
            check_letters(answers, inputs, self.findings)
            if self.sources.has_copies:
                unique = verdicts.record[verdicts.unique]
                check_copies(unique, inputs, self._copies(spots), spots, self.findings)
        return verdicts

    def _compare(self, verdicts: Verdicts) -> None:
        settings = self.sources.settings
        takedowns = list(self.sources.all_takedowns())
        kept = settings.archive is not None  # what passes them is on disk, and found there
        limits = (None, None) if kept else (settings.max_age, settings.max_documents)
        forgetting = Forgetting.of(*limits, takedowns)
        head = None if self.export is None else head_of(self.export)
        design = None if self.design is None else named(self.design, verdicts.fingerprint_bits or 64)
        rule = rule_of(verdicts.profiles[0], head, self.given, design)
        if head is not None and rule.design is None:
            self.findings.notes.append(
                "the index was migrated, and by which tables a page was judged is not known: only those pairs are "
                "looked for that all designs find (--design: all pages by this one)"
            )
        _check_width(verdicts, rule)
        self._check_profiles(verdicts)
        before = np.full(len(verdicts), OPEN) if self.any_order else numbers_before(verdicts)
        pages = ComparedPages.of(verdicts, rule)
        check_order(verdicts, before, self.findings)
        check_matches(pages, before, self.findings, settings.base is not None)
        check_previous(pages, self.findings)
        check_missed(pages, forgetting, before, self.findings, self.tell, settings.base is not None)
        if self.export is not None:
            held = held_in(self.export, self.tell)
            self.counts.held = len(held.seq)
            check_index(verdicts, held, forgetting, self.findings)

    def _verdicts(self, spots: Spots) -> Verdicts:
        columns = VerdictColumns(spots)
        for read in self.sources.all_verdicts():
            place = spots.number(*read.place)
            try:
                columns.add(codec.verdict(read.data), place, read.written_ms)
            except ValueError as error:
                self.findings.add_one(NO_VERDICT, spots.show(place), str(error))
            if columns.count % TELL_EVERY == 0:
                self.tell(f"reading: {columns.count:,} verdicts")
        verdicts = columns.verdicts()
        self.counts.verdicts, self.counts.unique = len(verdicts), int(verdicts.unique.sum())
        return verdicts

    def _answers(self, verdicts: Verdicts, spots: Spots) -> Answers:
        letters, strange = [], 0
        for letter in self.sources.all_letters():
            if letter.about is None:
                strange += 1
                continue
            content = UNREAD if letter.content is None else letter.content
            letters.append((spots.number(*letter.about), spots.number(*letter.place), content))
        self.counts.dead_letters = len(letters)
        if strange:
            self.findings.notes.append(f"{strange:,} dead letters do not say which record they are: another program's")
        found = np.array(letters, dtype=[("about", np.int64), ("place", np.int64), ("content", np.uint64)])
        return Answers(
            spots,
            np.concatenate([verdicts.record, found["about"]]),
            np.concatenate([verdicts.place, found["place"]]),
            np.concatenate([np.full(len(verdicts), UNREAD, np.uint64), found["content"]]),
        )

    def _inputs(self, spots: Spots) -> InputRecords:
        def rows() -> Iterator[tuple[int, int, int, int]]:
            for count, read in enumerate(self.sources.all_inputs(), 1):
                if count % TELL_EVERY == 0:
                    self.tell(f"reading the input: {count:,} records")
                page = UNTOLD if read.page is None else page_hash(read.page.url, read.page.id, read.page.fetched_at)
                yield spots.number(*read.place), read.observation, page, read.content

        columns = [("record", np.int64), ("observation", np.uint64), ("page", np.int64), ("content", np.uint64)]
        found = np.fromiter(rows(), dtype=columns)
        self.counts.records = len(found)
        record, first = np.unique(found["record"], return_index=True)
        return InputRecords(record, *(found[name][first] for name, _ in columns[1:]))

    def _copies(self, spots: Spots) -> Copies:
        rows = ((spots.number(*copy.place), copy.content) for copy in self.sources.all_copies())
        found = np.fromiter(rows, dtype=[("place", np.int64), ("content", np.uint64)])
        return Copies(found["place"], found["content"])

    def _check_profiles(self, verdicts: Verdicts) -> None:
        names = verdicts.profiles
        others = np.flatnonzero(verdicts.profile)
        self.findings.add(
            OTHER_PROFILE,
            others,
            lambda row: (verdicts.at(row), f"is of {names[verdicts.profile[row]]}, the first of {names[0]}"),
        )


def _check_width(verdicts: Verdicts, rule: Rule) -> None:
    """The verifiers are as wide as the rule says; a rule that is not theirs would compare one thing with another."""
    wanted = rule.verifier_bits + BAND_BITS * rule.bands
    if rule.verifier_reach is not None and verdicts.verifier_bits not in (0, wanted):
        found = f"verifiers of {verdicts.verifier_bits} bits"
        raise SettingsError(f"{found}: {rule.verifier_bits} and {rule.bands} bands of {BAND_BITS} would be {wanted}")
    if rule.verifier_reach is not None and not verdicts.verifier_bits and verdicts.has_fingerprint.any():
        raise SettingsError("the verdicts have no verifiers, though their profile has: give --verifier-reach -1")
    if verdicts.fingerprint_bits > 64 * verdicts.fingerprint.shape[1]:
        raise InputError("fingerprints of several widths")
