"""The topic of unique pages against what was told: their records as they came, each once, in order.

A worker writes a unique page into the partition that it came from, in the transaction of its verdict. So what stands in
a partition there is the end of what was called unique in that partition. What is older may have expired, or been judged
before anybody wanted the topic.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from worker.verifying.answered import InputRecords
from worker.verifying.findings import Findings
from worker.verifying.verdict_columns import OFFSET_BITS, Numbers, Spots, Words

WRONG = "wrong in the unique topic"


@dataclass(frozen=True)
class Copies:
    """Of each record of that topic, in the order of its partition, where it stands and the hash of its bytes."""

    place: Numbers
    content: Words


def check_copies(unique: Numbers, inputs: InputRecords, copies: Copies, spots: Spots, findings: Findings) -> None:
    """Hold the topic against the records that were called unique, newest first: at most one violation a partition."""
    is_known = np.isin(unique, inputs.record)
    wanted, older = np.sort(unique[is_known]), 0
    partition_of = np.array([partition for _, partition in spots.names])
    its, theirs = partition_of[wanted >> OFFSET_BITS], partition_of[copies.place >> OFFSET_BITS]
    partitions = np.union1d(its, theirs)
    for of_records, of_copies in zip(_rows(its, partitions), _rows(theirs, partitions), strict=True):
        records, rows = wanted[of_records][::-1], of_copies[::-1]
        told, found = inputs.content[np.searchsorted(inputs.record, records)], copies.content[rows]
        common = min(len(told), len(found))
        older += len(told) - common
        place = copies.place[rows]
        if len(wrong := np.flatnonzero(told[:common] != found[:common])):
            at = int(wrong[0])
            words = f"is not {spots.show(int(records[at]))}: behind them, pages and verdicts agree"
            findings.add_one(WRONG, spots.show(int(place[at])), words)
        elif len(found) > common and is_known.all():
            findings.add_one(WRONG, spots.show(int(place[common])), "no page before those behind it was called unique")
    if older:
        findings.notes.append(f"{older:,} unique pages are older than what the unique topic has of their partitions")


def _rows(partition: Numbers, partitions: Numbers) -> list[Numbers]:
    """For each of the partitions, which rise, its rows in their order."""
    order = np.argsort(partition, kind="stable")
    return np.split(order, np.searchsorted(partition[order], partitions[1:]))
