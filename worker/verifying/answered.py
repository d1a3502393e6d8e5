"""One answer for each record, and each number given once, in order."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

import numpy as np

from worker.verifying.findings import Findings
from worker.verifying.verdict_columns import OFFSET_BITS, UNTOLD, Numbers, Spots, Verdicts, Words

TWICE, LOST, UNKNOWN = "answered twice", "lost", "answer to no record"
OTHER, OTHER_PAGE = "answer to another record", "answer about another page"
NUMBER_TWICE, OUT_OF_ORDER = "number given twice", "number out of order"
UNREAD = 0
FILE = "file:"
"""What the digest of a file begins with, where it stands in place of a topic."""


@dataclass(frozen=True)
class InputRecords:
    """What there was to answer: records in rising order, each with what names its delivery, and the hashes of its page
    (url, id, fetched_at; UNTOLD: it is none, or too long to be looked at) and of its bytes."""

    record: Numbers
    observation: Words
    page: Numbers
    content: Words


@dataclass(frozen=True)
class Answers:
    """Every verdict and every dead letter: the record that it answers, and where it stands; verdicts first.

    Attributes:
        content: of a dead letter the hash of its bytes; UNREAD: of a verdict, or they are not all there.
    """

    spots: Spots
    record: Numbers
    place: Numbers
    content: Words

    def at(self, row: int) -> str:
        """Where an answer stands."""
        return self.spots.show(int(self.place[row]))

    def of(self, row: int) -> str:
        """What it answers."""
        return self.spots.show(int(self.record[row]))


def check_twice(answers: Answers, findings: Findings) -> None:
    """No record has two answers."""
    order = np.argsort(answers.record, kind="stable")
    again = np.flatnonzero(np.diff(answers.record[order]) == 0)
    former = dict(zip(order[again + 1].tolist(), order[again].tolist(), strict=True))

    def tell(row: int) -> tuple[object, str]:
        return answers.at(row), f"{answers.of(row)} has its answer at {answers.at(former[row])}"

    findings.add(TWICE, sorted(former), tell)


def check_input(answers: Answers, inputs: InputRecords, findings: Findings) -> None:
    """Each record of the input has an answer, and each answer a record."""
    spots, records = answers.spots, inputs.record
    lost = records[~np.isin(records, answers.record)]
    findings.add(LOST, lost, lambda number: (spots.show(number), "has neither a verdict nor a dead letter"))
    unknown = np.flatnonzero(~np.isin(answers.record, records))
    gone = _expired(answers.record[unknown], records, spots)
    findings.add(UNKNOWN, unknown[~gone], lambda row: (answers.at(row), f"there is no {answers.of(row)} in the input"))
    if gone.any():
        findings.notes.append(f"{gone.sum():,} answers are to records that the input topic has no more")


def check_told_of(verdicts: Verdicts, inputs: InputRecords, findings: Findings) -> None:
    """Each verdict is about the record that stands there now: not about one that stood there before the topic was made
    again, nor about another page."""
    known = np.flatnonzero(np.isin(verdicts.record, inputs.record))
    at = np.searchsorted(inputs.record, verdicts.record[known])

    def tell(what: str) -> Callable[[int], tuple[object, str]]:
        return lambda row: (verdicts.at(row), f"{verdicts.spots.show(int(verdicts.record[row]))} has {what}")

    is_it = inputs.observation[at] == verdicts.observation[known]
    findings.add(OTHER, known[~is_it], tell("other bytes, or another time, than the record that was judged"))
    page = inputs.page[at]
    is_other = (page != UNTOLD) & (page != verdicts.page[known])
    findings.add(OTHER_PAGE, known[is_it & is_other], tell("another url, id or fetched_at than the answer"))


def check_letters(answers: Answers, inputs: InputRecords, findings: Findings) -> None:
    """Each dead letter has the bytes of its record."""
    letters = np.flatnonzero((answers.content != UNREAD) & np.isin(answers.record, inputs.record))
    content = inputs.content[np.searchsorted(inputs.record, answers.record[letters])]
    other = letters[content != answers.content[letters]]
    findings.add(OTHER, other, lambda row: (answers.at(row), f"{answers.of(row)} has other bytes than its dead letter"))


def _expired(numbers: Numbers, records: Numbers, spots: Spots) -> np.ndarray:
    """Which of these, that the input does not have, stand before what is left of their partition."""
    first: dict[int, int] = {}
    ids = records >> OFFSET_BITS
    for id_, at in zip(*np.unique(ids, return_index=True), strict=True):
        first[int(id_)] = int(records[at])
    topics = {spots.names[id_][0] for id_ in first}
    return np.array([_is_expired(number, first, topics, spots) for number in numbers.tolist()], dtype=np.bool_)


def _is_expired(number: int, first: Mapping[int, int], topics: set[str], spots: Spots) -> bool:
    topic = spots.names[number >> OFFSET_BITS][0]
    if topic.startswith(FILE):
        return False
    begin = first.get(number >> OFFSET_BITS)
    return topic in topics if begin is None else number < begin


def note_gaps(answers: Answers, findings: Findings) -> None:
    """Where nobody knows the input: offsets without an answer between others that have one."""
    records = np.unique(answers.record)
    ids = records >> OFFSET_BITS
    for at, count in zip(*np.unique(ids, return_index=True, return_counts=True)[1:], strict=True):
        first, last = (answers.spots.record(int(records[i])) for i in (at, at + count - 1))
        if missing := last.offset - first.offset + 1 - int(count):
            topic = f"{first.topic}[{first.partition}]"
            span = f"between {first.offset:,} and {last.offset:,}"
            findings.notes.append(
                f"{topic}: {missing:,} offsets {span} have no answer (lost, or no records: give the input)"
            )


def check_numbers(verdicts: Verdicts, findings: Findings) -> None:
    """No number is that of two pages."""
    unique = np.flatnonzero(verdicts.unique)
    order = unique[np.argsort(verdicts.seq[unique], kind="stable")]
    again = np.flatnonzero(np.diff(verdicts.seq[order]) == 0)
    former = dict(zip(order[again + 1].tolist(), order[again].tolist(), strict=True))

    def tell(row: int) -> tuple[object, str]:
        return verdicts.at(row), f"{verdicts.seq[row]:,} is the number of the page at {verdicts.at(former[row])} too"

    findings.add(NUMBER_TWICE, sorted(former), tell)
    alike = {topic for pair in former.items() if len(topics := _topics(verdicts, pair)) > 1 for topic in topics}
    if alike:
        findings.notes.append(
            f"pages of {' and '.join(sorted(alike))} have been given the same numbers, as by two indexes that write to "
            "one verdict topic: give each its own (verdict_topic, dead_letter_topic)"
        )
    if len(order):
        numbers = np.unique(verdicts.seq[order])
        if missing := int(numbers[-1] - numbers[0]) + 1 - len(numbers):
            findings.notes.append(
                f"{missing:,} numbers between {numbers[0]:,} and {numbers[-1]:,} are of no page in these verdicts"
            )


def check_order(verdicts: Verdicts, before: Numbers, findings: Findings) -> None:
    """The unique pages of a partition have rising numbers, but for those that a duplicate named before.

    Args:
        before: of each verdict the least such number in its partition from there on (`forgetting.numbers_before`).
    """

    def tell(row: int) -> tuple[object, str]:
        own, later = verdicts.seq[row], before[row]
        return verdicts.at(row), f"has number {own:,}, and a page behind it in its partition {later:,}"

    findings.add(OUT_OF_ORDER, np.flatnonzero(verdicts.unique & (before < verdicts.seq)), tell)


def _topics(verdicts: Verdicts, rows: Iterable[int]) -> set[str]:
    """The input topics of these pages, those of files aside."""
    topics = {verdicts.spots.names[verdicts.record[row] >> OFFSET_BITS][0] for row in rows}
    return {topic for topic in topics if not topic.startswith(FILE)}
