"""What goes out for each record: its verdict and, if it is unique and wanted, the page; or its dead letter.

Whether the outputs fit their topics is checked here too, before the index is touched: a page that is in the index must
not become a dead letter any more, and a batch that cannot be sent would be read again for ever.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from simhash.errors import PageError
from worker.judging.fingerprinters import Outcome
from worker.judging.judge import Judged, Prepared, Rejected, rejected
from worker.records.dead_letter import dead_letter, record_size
from worker.records.passing import Outgoing, Received, size_of
from worker.records.verdict import encode
from worker.settings import Settings


class Outbox:
    """Makes outgoing records; `largest` has each output topic's largest message, in bytes, as of now."""

    def __init__(self, settings: Settings, largest: Mapping[str, int]) -> None:
        self._settings = settings
        self._largest = largest

    def fitting(self, received: Received, outcome: Outcome) -> Outcome:
        """The outcome itself, or its rejection when what would be sent for it does not fit."""
        if isinstance(outcome, Rejected):
            return outcome
        size = sum(len(name.encode()) + size_of(value) for name, value in received.headers)
        if size > (allowed := self._settings.max_header_bytes):
            return _too_large(outcome, f"the headers have {size:,} bytes, more than max_header_bytes = {allowed:,}")
        topic = self._settings.unique_topic
        whole = record_size(received.record.key, received.record.value, received.headers)
        if topic and whole > (limit := self._largest[topic]):
            # The topic took more, perhaps, when this page was judged for the first time.
            message = f"the record has {whole:,} bytes; topic {topic} takes {limit:,}"
            return replace(_too_large(outcome, message), by_chance=True)
        return outcome

    def letter(self, received: Received, rejection: Rejected) -> Outgoing:
        """The dead letter of a record."""
        (record, headers), topic = received, self._settings.dead_letter_topic
        return dead_letter(rejection, record.key, record.value, headers, topic, self._largest[topic])

    def verdict(self, received: Received, judged: Judged) -> Iterator[Outgoing]:
        """The verdict on a record, and the record itself where unique pages are wanted."""
        settings, (record, headers) = self._settings, received
        partition = record.source.partition
        yield Outgoing(settings.verdict_topic, record.key, encode(judged.verdict), headers, partition)
        if settings.unique_topic and judged.verdict.verdict == "unique":
            yield Outgoing(settings.unique_topic, record.key, record.value, headers, partition)


def _too_large(page: Prepared, message: str) -> Rejected:
    return rejected(page.source, PageError("decode", message))
