"""The loop: records in, verdicts out, exactly once. The commit last.

    poll          records of the partitions this worker owns, a batch at a time
    prepare       in children: decode, every check that can reject, extract, fingerprint
    judge         check and insert in Redis, atomically; the decisions are journalled there
    replicas      as many as are asked for have it too
    begin         a Kafka transaction
    offsets       into it, with the group's metadata and the index's watermark
    last look     whether the index is still on the server that judged
    send          verdicts, dead letters, unique pages; every send confirmed
    commit

The insert comes before the commit. A crash between them replays the batch, and the journal answers each page with its
first decision. On failure the transaction is aborted, the consumer goes back, and all is read again.
While one batch is judged and committed, the next is being prepared: up to `DEPTH` batches are under way.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TypeVar

from simhash.errors import IndexUnreachable, IndexUnreplicated, PageError, SimhashError
from simhash.index import Index, Partition, Position
from simhash.signature.profiles import Profile
from worker.errors import (
    BatchAborted,
    BrokerUnreachable,
    SessionLost,
    SettingsError,
    WorkerError,
)
from worker.judging.fingerprinters import Fingerprinters, Outcome
from worker.judging.heap import give_memory_back
from worker.judging.judge import Judged, Prepared, Rejected, judge, rejected
from worker.records.dead_letter import dead_letter
from worker.records.page import observed
from worker.records.passing import (
    HEADER_OVERHEAD_BYTES,
    Outgoing,
    RawRecord,
    Received,
    Source,
    Unread,
    record_size,
    runs,
)
from worker.records.verdict import encode
from worker.settings import Settings
from worker.stream.backoff import LONGEST_PAUSE_SECONDS, Backoff, patiently
from worker.stream.kafka import Polled, Session
from worker.stream.metrics import Metrics
from worker.stream.partitions import Batch, Item, Partitions, Standstill, counts, first_offsets
from worker.stream.status import Idleness, Progress, Status

log = logging.getLogger(__name__)
T = TypeVar("T")

DEPTH = 3
LADEN = 1.5
"""Batches may have so many times `batch_bytes` together: two full ones, but only one page of the largest."""
IDLE_POLL_SECONDS = 0.5
RESULT_WAIT_SECONDS = 0.1
HUNGRY_WAIT_SECONDS = 0.01
"""The wait for results while fewer than `DEPTH` batches are under way: a poll may bring the next."""
HOUSEKEEPING_SECONDS = 2.0
STAY_SECONDS = 3.0
STANDSTILL_SECONDS = 60.0
"""Twice as long as the client waits for the answer to a fetch."""
DRAIN_SECONDS = 5.0
"""On SIGTERM, batches under way may take this long to be finished; the rest is read again by the next worker."""


class _Stopped(Exception):
    """Asked to stop while waiting for the index."""


@dataclass(frozen=True)
class Parts:
    """What the loop works with.

    Attributes:
        open_session: makes a session; called again when one is lost.
        on_step: called after each step of the loop, by its name (tests kill the process there).
    """

    settings: Settings
    profile: Profile
    index: Index
    fingerprinters: Fingerprinters
    open_session: Callable[[], Session]
    metrics: Metrics
    status: Status
    on_step: Callable[[str], None] = lambda step: None


class Loop:
    """See the module."""

    def __init__(self, parts: Parts, stopping: threading.Event) -> None:
        self._parts = parts
        self._settings = parts.settings
        self._stopping = stopping
        self._session: Session
        self._outbox: Outbox
        self._under_way: deque[Batch] = deque()
        self._partitions = Partitions()
        self._backoff = Backoff(stopping)
        self._next_housekeeping = 0.0
        self._polled_at = 0.0
        self._next_measure = 0.0
        self._progress = Progress(time.monotonic())
        self._idleness = Idleness(parts.settings.session_timeout)
        self._standstill = Standstill(STANDSTILL_SECONDS)
        self._uncommitted: set[Partition] = set()  # those of which pages were judged here since their last commit

    def run(self) -> None:
        """Work until `stopping` is set; a lost session is replaced, a failed batch read again.

        Raises:
            PositionRewound, IndexFault (not unreachable), BrokerError: an operator must act.
            BrokerUnreachable: a broker does not answer at the start, for long (later, the loop waits for the brokers).
        """
        patiently(self._open, self._stopping)
        while True:
            try:
                self._work()
            except _Stopped:
                pass
            except (WorkerError, SimhashError) as error:
                if not error.retriable:
                    raise
                self._backoff.count_fence(error)
                self._back_off(error)
            finally:
                self._forget_all()
                self._parts.status.ready(assigned=False)
                self._session.close()
            if not self._reopened():
                break
        self._parts.metrics.lag({})
        if self._uncommitted:
            log.info(
                "stopped: pages of %s may be judged and are not committed; they are read again, and answered alike",
                _named(self._uncommitted),
            )
        else:
            log.info("stopped: all that was judged is committed")

    def _open(self) -> None:
        self._session = self._parts.open_session()
        self._outbox = Outbox(self._settings, self._session.largest)

    def _reopened(self) -> bool:
        """Whether there is a new session; tried until there is one or it is time to stop."""
        while not self._stopping.is_set():
            try:
                self._open()
            except (BrokerUnreachable, SessionLost) as error:
                self._back_off(error)
            else:
                self._parts.metrics.lag({})
                return True
        return False

    def _work(self) -> None:
        while not self._stopping.is_set():
            self._parts.status.progress()
            try:
                self._housekeeping()
                self._fill()
                self._settle_oldest(RESULT_WAIT_SECONDS if self._full() else HUNGRY_WAIT_SECONDS)
            except BatchAborted as error:
                self._read_again()
                self._back_off(error)
        self._drain()
        self._tell_marks()

    def _tell_marks(self) -> None:
        """The index is to know what was committed last: Kafka forgets the offsets of a group that is gone for long."""
        if self._parts.status.why_not_ready() is None:  # who is told to stop waits for no index that stands still
            with suppress(SimhashError):
                self._parts.index.check_and_insert([], self._partitions.marks())

    def _drain(self) -> None:
        end = time.monotonic() + DRAIN_SECONDS
        while self._under_way and time.monotonic() < end:
            self._parts.status.progress()
            try:
                self._settle_oldest(end - time.monotonic())
            except BatchAborted:
                return

    # Poll --------------------------------------------------------------------------------------------------------

    def _fill(self) -> None:
        """Poll until enough is under way or nothing more is there."""
        if self._full():
            self._stay_in_group()
        while not self._full():
            self._polled_at = time.monotonic()
            timeout = 0.0 if self._under_way else IDLE_POLL_SECONDS
            polled = self._session.poll(timeout, max(1, self._settings.batch_pages >> self._backoff.halvings))
            self._absorb(polled)
            if not polled.received:
                return

    def _full(self) -> bool:
        """Whether enough is under way: `DEPTH` batches, or so many bytes that memory matters more."""
        size = sum(batch.size for batch in self._under_way)
        return len(self._under_way) >= DEPTH or size >= LADEN * self._settings.batch_bytes

    def _stay_in_group(self) -> None:
        """Poll for no records: who does not poll for minutes, while pages hang till their deadline, is thrown out."""
        if time.monotonic() < self._polled_at + STAY_SECONDS:
            return
        self._stay(0.0)

    def _stay(self, seconds: float) -> None:
        """Stay in the group, and see what becomes of it."""
        self._polled_at = time.monotonic()
        self._absorb(self._session.stay(seconds))
        self._standstill.excuse()

    def _absorb(self, polled: Polled) -> None:
        if polled.lost:
            self._drop(polled.lost)
        for gained in polled.gained:
            self._partitions.gained(*gained)
            self._parts.status.ready(assigned=True)
            self._standstill.came(time.monotonic(), [gained.partition])
            self._next_measure = 0.0  # its lag is to be seen at once
            log.info("partition %s[%d] is ours, from offset %d", *gained.partition, gained.position)
        most_bytes = self._settings.batch_bytes >> self._backoff.halvings
        for received in runs(polled.received, lambda each: each.record.size, most_bytes):
            self._parts.on_step("polled")
            pending = self._parts.fingerprinters.submit([each.record for each in received])
            batch = self._partitions.batch(received, pending)
            self._standstill.came(time.monotonic(), batch.tenures)
            self._under_way.append(batch)

    def _drop(self, lost: frozenset[Partition]) -> None:
        """Another worker reads these partitions now, from their committed offset."""
        log.info("partitions lost: %s", _named(lost))
        self._partitions.lost(lost)
        self._parts.metrics.lost(lost)
        self._uncommitted -= lost
        self._parts.status.ready(assigned=bool(self._partitions.ours()))

    # Judge and commit --------------------------------------------------------------------------------------------

    def _settle_oldest(self, timeout: float) -> None:
        """When the oldest batch is prepared: judge it, commit it."""
        if self._partitions.unchecked:  # also where no page comes: what is wrong is to be said at once
            self._with_index(self._check_positions)
        if not self._under_way or not self._under_way[0].pending.ready(timeout):
            return
        batch = self._under_way[0]
        self._parts.on_step("prepared")
        outcomes = zip(batch.received, batch.pending.results(), strict=True)
        items = [Item(received, self._outbox.fitting(received, outcome)) for received, outcome in outcomes]
        judged = self._with_index(lambda: self._judge(items, batch.tenures))
        self._parts.on_step("judged")
        if self._settings.wait_replicas:
            self._await_replicas()
        self._await_group()
        self._commit(self._partitions.owned(items, batch.tenures), judged)
        self._under_way.popleft()
        self._backoff.overcome()

    def _judge(self, items: Sequence[Item], tenures: Mapping[Partition, int]) -> dict[Source, Judged]:
        # Partitions that came while we waited for the index count: what their last worker left in it is ours to end.
        self._check_positions()
        owned = self._partitions.owned(items, tenures)
        if refused := [(each.record, outcome) for each, outcome in owned if isinstance(outcome, Rejected)]:
            self._check_refused(refused)
        pages = [each.outcome for each in owned if isinstance(each.outcome, Prepared)]
        self._uncommitted.update(Partition(*page.source[:2]) for page in pages)
        begun = time.perf_counter()
        judged = judge(pages, self._parts.index, self._parts.profile, self._partitions.marks(), self._settings.previous)
        self._parts.metrics.stages["index"].observe(time.perf_counter() - begun)
        return {page.source: verdict for page, verdict in zip(pages, judged, strict=True)}

    def _await_replicas(self) -> None:
        """A batch that the replicas may not have is read again; the journal makes that harmless."""
        try:
            self._parts.index.replicated()
        except (IndexUnreplicated, IndexUnreachable) as error:
            self._parts.status.ready(index=False)
            raise BatchAborted(str(error)) from error

    def _await_group(self) -> None:
        """While the group is put together anew nothing can be committed; then this batch may be, what is still ours."""
        while not self._session.settled():
            self._wait_in_group(IDLE_POLL_SECONDS)

    def _commit(self, items: Sequence[Item], judged: Mapping[Source, Judged]) -> None:
        outgoing: list[Outgoing] = []
        offsets: dict[Partition, int] = {}
        for received, outcome in items:
            if isinstance(outcome, Rejected):
                outgoing.append(self._outbox.letter(received, outcome))
            else:
                outgoing += self._outbox.verdict(received, judged[outcome.source])
            partition = Partition(*outcome.source[:2])
            offsets[partition] = max(offsets.get(partition, 0), outcome.source.offset + 1)
        if not offsets:
            return
        begun, watermark = time.perf_counter(), self._parts.index.watermark()
        try:
            self._session.send(outgoing, offsets, self._parts.on_step, watermark, self._last_look)
        except BrokerUnreachable:
            self._backoff.took_too_long()
            raise
        self._parts.metrics.stages["commit"].observe(time.perf_counter() - begun)
        self._parts.on_step("committed")
        self._partitions.committed(offsets, watermark)
        self._uncommitted -= offsets.keys()
        self._count([each.outcome for each in items], judged)

    def _last_look(self) -> None:
        """Whether Redis is still the server that judged the batch, while its offsets are in the open transaction.

        Where it is another by now, it may lack these pages, and other workers judge without them. One that begins with
        that server first asks what the group has committed, and that waits for all that is in a transaction. So either
        this worker sees the new server, or the others see this batch: no third is possible.
        """
        try:
            self._parts.index.unchanged()
        except IndexUnreachable as error:
            self._parts.status.ready(index=False)
            raise BatchAborted(str(error)) from error

    def _count(self, outcomes: Sequence[Outcome], judged: Mapping[Source, Judged]) -> None:
        metrics = self._parts.metrics
        metrics.committed(len(outcomes), time.time())
        metrics.judged(judged[o.source] for o in outcomes if isinstance(o, Prepared))
        metrics.prepared(o for o in outcomes if isinstance(o, Prepared))
        metrics.rejected(o for o in outcomes if isinstance(o, Rejected))
        pages = [judged[o.source].verdict for o in outcomes if isinstance(o, Prepared)]
        unique = sum(verdict.match is None for verdict in pages)
        self._progress.add(unique, len(pages) - unique, len(outcomes) - len(pages))

    # Checks ------------------------------------------------------------------------------------------------------

    def _check_refused(self, refused: Sequence[tuple[RawRecord, Rejected]]) -> None:
        """A page that is refused only now, but is in the index from before, must not become a dead letter.

        What came by chance may not come again; with a new session the limits of the topics are read again too.

        Raises:
            SettingsError: it is refused for what it is; so other settings judged it, or another version.
        """
        for record, outcome in refused:
            # What ends this worker may have ended the page's child too.
            if outcome.by_chance and self._stopping.is_set():
                raise BatchAborted(f"{record.source} {outcome.message}, while this worker was ending")
        of_place = {Position(Partition(*r.source[:2]), r.source.offset): (r, outcome) for r, outcome in refused}
        for position in self._parts.index.journalled({at: observed(record) for at, (record, _) in of_place.items()}):
            record, outcome = of_place[position]
            said = f"{record.source} was judged before, but now: {outcome.message}"
            if outcome.by_chance:
                raise SessionLost(f"{said}; it is read again")
            raise SettingsError(
                f"{said}. It is in the index, and others may be its duplicates: let the settings (or the version) that "
                "judged it run on until the group has passed that offset, and change them then"
            )

    def _check_positions(self) -> None:
        """A gained partition must begin at or above the index's mark: below it, verdicts are out already.

        Where the group has no offset of it, at the mark: above it, pages were removed that were never read.
        And the index must have all that it attested when the partition's verdicts were committed.
        """
        while self._partitions.unchecked:
            for partition in sorted(self._partitions.unchecked):
                self._parts.index.present([self._partitions[partition].watermark], self._attested)
                mark, life = self._parts.index.mark(partition) or 0, self._partitions[partition]
                if life.committed < mark or (0 < mark < life.committed and life.is_new):
                    self._begin_again(partition, mark)
                else:
                    self._partitions.passed(partition)

    def _begin_again(self, partition: Partition, mark: int) -> None:
        """Where the group stands by now: this worker may have stood still since it asked, and others read on.

        Raises:
            PositionRewound: it stands below the mark indeed.
        """
        now = self._session.begin_again(partition, mark)
        log.warning("partition %s[%d] was read on by others, up to offset %d", *partition, now.position)
        self._partitions.read_on(*now)

    # Failure -----------------------------------------------------------------------------------------------------

    def _with_index(self, action: Callable[[], T]) -> T:
        """Do something that needs the index, waiting for it as long as it takes, as a quiet member of the group."""
        pause, said, since = 0.1, "", time.monotonic()
        while True:
            try:
                if said:
                    self._present()
                result = action()
            except IndexUnreachable as error:
                if str(error) != said:
                    log.warning("waiting for the index: %s", error)
                said = str(error)
                self._parts.status.ready(index=False)
                self._wait_in_group(pause)
                pause = min(2 * pause, LONGEST_PAUSE_SECONDS)
                continue
            if said:
                log.info("the index serves again, after %.0f s", time.monotonic() - since)
                self._parts.status.ready(index=True)
            return result

    def _present(self) -> None:
        """Hold what the index attested beside our partitions' last commits, whoever made them, against the index.

        Who answers now may be another server, or one that was restored; then what all partitions' commits tell counts.
        """
        self._parts.index.present(self._partitions.watermarks(), self._attested)

    def _attested(self) -> list[str]:
        """What all partitions' commits tell; it is waited for like the index, which cannot be used before."""
        try:
            return self._session.attested()
        except BrokerUnreachable as error:
            raise IndexUnreachable(f"what the group has committed is not known yet: {error}") from error

    def _wait_in_group(self, seconds: float) -> None:
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0:
            if self._stopping.is_set():
                raise _Stopped
            self._parts.status.progress()
            self._measure(asking=True)
            self._stay(min(left, IDLE_POLL_SECONDS))

    def _read_again(self) -> None:
        """Go back to the first record under way in each partition."""
        first = first_offsets(self._under_way, self._partitions)
        self._under_way.clear()
        self._session.seek({p: max(offset, self._partitions[p].committed) for p, offset in first.items()})

    def _forget_all(self) -> None:
        self._under_way.clear()
        self._partitions.lost(self._partitions.ours())

    def _back_off(self, error: Exception) -> None:
        self._parts.status.progress()
        self._backoff.pause(error)

    # Seen from outside -------------------------------------------------------------------------------------------

    def _housekeeping(self) -> None:
        self._measure(asking=not self._under_way)
        if time.monotonic() < self._next_housekeeping:
            return
        self._next_housekeeping = time.monotonic() + HOUSEKEEPING_SECONDS
        if not self._under_way:
            give_memory_back()
        try:
            self._present()
            self._parts.index.look_at_base()
            self._parts.metrics.index_documents.set(self._parts.index.documents())
            self._parts.status.ready(index=True)
        except IndexUnreachable:
            self._parts.status.ready(index=False)
        self._commit_passed()

    def _commit_passed(self) -> None:
        """Commit the offsets of what is no record: the ends of other producers' transactions, and what these aborted.

        Retention removes that too, and where the group stood below the first offset that is left, what is gone would be
        taken for pages that were never read.
        """
        busy = set[Partition]().union(*(batch.tenures for batch in self._under_way))
        marks, passed = self._partitions.marks(), self._session.passed()
        offsets = {p: at for p, at in passed.items() if p not in busy and at > marks.get(p, at)}
        if offsets and self._session.settled():
            watermark = self._parts.index.watermark()
            self._session.send([], offsets, self._parts.on_step, watermark)
            self._partitions.committed(offsets, watermark)

    def _measure(self, asking: bool) -> None:
        """The lag, and what this worker waits for, if it has nothing to do for long.

        Args:
            asking: the brokers are asked for the ends of the partitions: no poll that brings records brings them.

        Raises:
            SessionLost: records are there and do not come.
        """
        now = time.monotonic()
        if now < self._next_measure:
            return
        self._next_measure = now + HOUSEKEEPING_SECONDS
        try:
            behind = self._session.behind(asking)
        except BrokerUnreachable as error:
            self._idleness.look(now, str(error))
            return
        if not self._under_way and (still := self._standstill.look(now, behind)):
            raise SessionLost(f"no record comes of {_named(still)}, though there are some; the session is made anew")
        under_way = counts(self._under_way, self._partitions)
        lags = {partition: count + under_way[partition] for partition, count in behind.items()}
        self._parts.metrics.lag(lags)
        self._progress.tell(now, sum(lags.values()))
        self._idleness.look(now, self._session.waits_for())


def _named(partitions: Iterable[Partition]) -> str:
    return ", ".join(f"{topic}[{number}]" for topic, number in sorted(partitions))


# What goes out --------------------------------------------------------------------------------------------------------


class Outbox:
    """What goes out for each record: its verdict and, if it is unique and wanted, the page; or its dead letter.

    Whether that fits its topics is checked here too, before the index is touched: a page that is in the index must not
    become a dead letter any more, and a batch that cannot be sent would be read again for ever.

    Args:
        largest: each output topic's largest message, in bytes, as of now.
    """

    def __init__(self, settings: Settings, largest: Mapping[str, int]) -> None:
        self._settings = settings
        self._largest = largest

    def fitting(self, received: Received, outcome: Outcome) -> Outcome:
        """The outcome itself, or its rejection when what would be sent for it does not fit."""
        if isinstance(outcome, Rejected):
            return outcome
        if unread := [value.decode() for _, value in received.headers if isinstance(value, Unread)]:
            return _too_large(outcome, f"the headers are too large or too many to be read: {unread[0]}")
        size = sum(len(name.encode()) + len(value) + HEADER_OVERHEAD_BYTES for name, value in received.headers)
        if size > (allowed := self._settings.max_header_bytes):
            return _too_large(outcome, f"the headers take {size:,} bytes, more than max_header_bytes = {allowed:,}")
        topic, (record, headers) = self._settings.unique_topic, received
        if topic and (whole := record_size(record.key, record.value, headers)) > (limit := self._largest[topic]):
            # The topic took more, perhaps, when this page was judged for the first time.
            message = f"the record has {whole:,} bytes; topic {topic} takes {limit:,}"
            return replace(_too_large(outcome, message), by_chance=True)
        return outcome

    def letter(self, received: Received, rejection: Rejected) -> Outgoing:
        """The dead letter of a record."""
        (record, headers), topic = received, self._settings.dead_letter_topic
        return dead_letter(rejection, record.key, record.value, headers, topic, self._largest[topic])

    def verdict(self, received: Received, judged: Judged) -> list[Outgoing]:
        """The verdict on a record, and the record itself where unique pages are wanted."""
        settings, (record, headers) = self._settings, received
        partition = record.source.partition
        found = [Outgoing(settings.verdict_topic, record.key, encode(judged.verdict), headers, partition)]
        if settings.unique_topic and judged.verdict.verdict == "unique":
            found.append(Outgoing(settings.unique_topic, record.key, record.value, headers, partition))
        return found


def _too_large(page: Prepared, message: str) -> Rejected:
    return rejected(page.source, PageError("decode", message))
