"""Pages that only a duplicate knows of: they were under way when their worker was killed, and Redis lost them.

A worker may match a page that another one has judged and not committed yet. When that one is killed, the page is read
again, and the journal gives it the number that it had. Where Redis has lost the journal too, what is left of the page
is its record in the input, behind all that is answered there. There it is looked for, so that it gets the number by
which it was named.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import closing
from itertools import islice

from simhash.index import Partition, Unique
from simhash.signature.profiles import Profile
from worker.judging.fingerprinters import Fingerprinters, page_limits, recipe
from worker.judging.judge import Prepared, verdict_of
from worker.rebuilding.verdict_sources import CommittedVerdict
from worker.records.passing import runs
from worker.records.verdict import Verdict
from worker.settings import Settings
from worker.stream.kafka.connect import admin_client
from worker.stream.kafka.replay import replayed
from worker.stream.kafka.topics import existing

POLL_SECONDS = 1.0
MOST_RECORDS = 200_000
"""So many of a topic are looked through: what some hundred workers may have under way."""


def found_again(
    settings: Settings, profile: Profile, named: Mapping[int, CommittedVerdict], marks: Mapping[Partition, int]
) -> Iterator[tuple[int, CommittedVerdict]]:
    """Their numbers, and the unique verdicts that they would have got; without pages that the input has no more.

    Args:
        named: by the number of its match, a duplicate.
        marks: up to where each partition is answered.

    Raises:
        BrokerError, BrokerUnreachable: the input cannot be read.
    """
    missing = dict(named)
    for page in _behind_marks(settings, profile, marks):
        seq = next((seq for seq, told in missing.items() if _is_match(page, told.verdict)), None)
        if seq is not None:
            yield seq, CommittedVerdict(verdict_of(page, Unique(seq), profile), missing.pop(seq).written_ms)
        if not missing:
            return


def _behind_marks(settings: Settings, profile: Profile, marks: Mapping[Partition, int]) -> Iterator[Prepared]:
    """The first pages of each input topic that are not answered."""
    with admin_client(settings) as admin:
        topics = existing(admin, sorted({settings.input_topic, *(partition.topic for partition in marks)}))
    wanted, limits = recipe(settings, profile), page_limits(settings)
    with closing(Fingerprinters(wanted, processes=1, limits=limits)) as fingerprinters:
        for topic in topics:
            begins = {partition.number: mark for partition, mark in marks.items() if partition.topic == topic}
            records = (each.record for each in islice(replayed(settings, topic, begins=begins), MOST_RECORDS))
            for some in runs(records, lambda record: record.size, settings.batch_bytes):
                pending = fingerprinters.submit(some)
                while not pending.ready(POLL_SECONDS):
                    pass
                yield from (page for page in pending.results() if isinstance(page, Prepared))


def _is_match(page: Prepared, duplicate: Verdict) -> bool:
    match = duplicate.match
    if match is None or (match.url, match.id, match.fetched_at) != (page.url, page.id, page.fetched_at):
        return False
    if duplicate.fingerprint is None or page.signature.fingerprint is None:
        return duplicate.digest == page.signature.digest
    return (int(duplicate.fingerprint, 16) ^ page.signature.fingerprint).bit_count() == match.distance
