"""One answer for each record, as the checker from outside counts them."""

from dataclasses import replace

import numpy as np

from worker.verifying.answered import UNKNOWN, Answers, InputRecords, check_input, check_letters, check_twice
from worker.verifying.findings import Findings
from worker.verifying.verdict_columns import UNTOLD, Spots


def answered(*records):
    """Answers to these records, which stand one after the other in the topic `verdicts`."""
    spots = Spots()
    record = np.array([spots.number(*each) for each in records], dtype=np.int64)
    places = np.array([spots.number("verdicts", 0, at) for at in range(len(records))])
    return Answers(spots, record, places, np.zeros(len(records), np.uint64))


def held_against(answers, *records):
    """What is found where the input has these records."""
    findings = Findings()
    numbers = np.array(sorted(answers.spots.number(*each) for each in records), dtype=np.int64)
    nothing = np.zeros(len(numbers), np.uint64)
    check_input(answers, InputRecords(numbers, nothing, np.full(len(numbers), UNTOLD), nothing), findings)
    return findings


def test_a_second_answer_is_told_with_the_place_of_the_first():
    findings = Findings()
    check_twice(answered(("pages", 0, 7), ("pages", 0, 3), ("pages", 0, 5), ("pages", 0, 3)), findings)
    assert findings.first == ["verdicts[0]@3: answered twice: pages[0]@3 has its answer at verdicts[0]@1"]


def test_answers_to_records_that_retention_took_are_no_violations():
    answers = answered(*(("pages", 0, at) for at in range(5)), ("pages", 1, 8))
    findings = held_against(answers, ("pages", 0, 3), ("pages", 0, 4))
    assert findings.counts == {}
    assert findings.notes == ["4 answers are to records that the input topic has no more"]


def test_answers_to_what_was_never_there_are_violations():
    there = ("pages", 0, 3), ("file:ab", 0, 3)
    answers = answered(*there, ("pages", 0, 5), ("others", 0, 1), ("file:ab", 0, 1))
    findings = held_against(answers, *there)
    assert findings.counts == {UNKNOWN: 3}
    assert findings.notes == []


def test_a_dead_letter_of_other_bytes_than_its_record_is_found():
    """One has only a digest of its bytes, one is of a record that is there no more: nothing is held against these."""
    answers = answered(*(("pages", 0, at) for at in range(4)))
    answers = replace(answers, content=np.array([7, 0, 8, 9], np.uint64))
    there = np.array([answers.spots.number("pages", 0, at) for at in range(3)])
    contents = np.array([7, 5, 5], np.uint64)
    findings = Findings()
    check_letters(answers, InputRecords(there, contents, np.full(3, UNTOLD), contents), findings)
    assert findings.first == [
        "verdicts[0]@2: answer to another record: pages[0]@2 has other bytes than its dead letter"
    ]
