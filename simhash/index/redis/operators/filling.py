"""An index that is being filled with records as they were elsewhere: by an import, a rebuild or a migration.

Until it is released it has a name for its generation that no worker knows, so no worker is let in. Each step leaves in
it how far it came.
"""

from __future__ import annotations

import secrets
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from simhash.errors import IndexLost, IndexMigrated, IndexMismatch
from simhash.index.base import ARCHIVED_FIELD
from simhash.index.base import FIELD as BASE_FIELD
from simhash.index.interface import Entry, Partition, Record
from simhash.index.redis.faults import OutOfOrder, translated
from simhash.index.redis.layout import OBSERVATION_BYTES, OFFSET_BYTES, SEQ_BYTES, TIME_BYTES, Layout
from simhash.index.redis.operators.inside import Inside
from simhash.index.redis.operators.kept_versions import BITS_FIELD, Kept
from simhash.index.redis.operators.takedowns import Found, take_down, under
from simhash.index.rows import RecordRow

_SET = """
local generation = redis.call('HGET', KEYS[1], 'generation')
local again = ARGV[2] == 'generation' and generation == ARGV[3]
if generation ~= ARGV[1] and not again then return redis.error_reply('GENERATION ' .. tostring(generation)) end
local server = redis.call('INFO', 'replication')
if not string.find(server, 'master_replid:' .. ARGV[4], 1, true) then return redis.error_reply('EPOCH') end
if ARGV[2] == 'generation' then redis.call('HDEL', KEYS[1], 'loaded') end
return redis.call('HSET', KEYS[2], ARGV[2], ARGV[3])
"""
"""A script: the meta, a key; the generation that the index must have, a field of the key, its value, the replication id
that the server must have."""


@dataclass(frozen=True, slots=True)
class Gap:
    """So many numbers whose records are gone."""

    count: int


Step = RecordRow | Gap
"""The next numbers: a record, or none."""


class Store:
    """See the module.

    Attributes:
        stored: the last number that an earlier run stored; 0: none.

    Raises (all methods): FilledByOthers; IndexFault.
    """

    def __init__(self, inside: Inside) -> None:
        self._inside = inside
        self._client = inside.client
        self.layout = inside.layout
        self._server = _replication_id(inside)  # before anything else: another one may have less than was seen here
        self._setting = inside.client.register_script(_SET)
        stored = self._client.hget(self.layout.meta, "seq")
        if stored is None:
            raise FilledByOthers("another program has finished filling this index, or has given it up")
        self.stored = int(stored)

    def begin(self, seq: int) -> None:
        """Nothing is stored yet: number from here on."""
        self._set("first", seq)
        self._set("seq", seq - 1)

    def store(self, steps: Sequence[Step]) -> None:
        """Store the next numbers, in one step; all of them, or none."""
        with _alone():
            load_steps(self._inside, [*map(self._argument, steps)], self._server)

    def set_mark(self, partition: Partition, offset: int) -> None:
        """What stands before this offset is answered."""
        self._set("mark", offset, self.layout.journal(partition))

    def set_journal(self, partition: Partition, offset: int, value: bytes) -> None:
        """An observation and its answer."""
        self._set(offset.to_bytes(OFFSET_BYTES), value, self.layout.journal(partition))

    def keep_versions(self, bits: int) -> None:
        """Versions of URLs lie in buckets of so many bits."""
        self._set(BITS_FIELD, bits)

    def set_versions(self, versions: Sequence[Kept]) -> None:
        """What is kept of URLs' last pages."""
        meta, generation = self.layout.meta, self._inside.generation
        with _alone(), self._client.pipeline(transaction=False) as pipe:
            for kept in versions:
                keys = [meta, self.layout.versions_start + kept.bucket]
                self._setting(keys=keys, args=[generation, kept.field, kept.value, self._server], client=pipe)
            pipe.execute()

    def give_out(self, seq: int) -> None:
        """Nothing is stored at all: this was the last number given all the same."""
        self._set("first", seq + 1)
        self._set("seq", seq)

    def judge_beside(self, generation: str, archived: int) -> None:
        """The index has an archive of that generation, which holds all records up to this number."""
        self._set(BASE_FIELD, generation)
        self._set(ARCHIVED_FIELD, archived)

    def believe_earlier(self, before_ms: int, seq: int) -> None:
        """Watermarks of epochs that began by then, and that the index does not know, hold up to this number."""
        self._set("earlier", f"{before_ms} {seq}")

    def release(self, generation: str) -> int:
        """Give the index to the workers; how many records it has."""
        self._set("generation", generation)
        with translated():
            return int(self._client.hget(self.layout.meta, "documents"))

    def under(self, fingerprint: int | None, digest: str, urls: Collection[str]) -> list[Found]:
        """See `simhash.index.redis.operators.takedowns.under`."""
        with _alone():
            return under(self._inside, fingerprint, digest, urls)

    def take_down(self, found: Sequence[Found]) -> int:
        """Remove these records with all that leads to them; how many were there."""
        with _alone():
            return sum(take_down(self._inside, found))

    def _set(self, field: str | bytes, value: str | bytes | int, key: str = "") -> None:
        meta = self.layout.meta
        with _alone():
            self._setting(keys=[meta, key or meta], args=[self._inside.generation, field, value, self._server])

    def _argument(self, step: Step) -> bytes:
        if isinstance(step, Gap):
            return b"g" + step.count.to_bytes(SEQ_BYTES)
        number = step.seq.to_bytes(SEQ_BYTES) + step.inserted_ms.to_bytes(TIME_BYTES)
        return b"r" + number + self.layout.page(entry_of(step), 0)


def load_steps(inside: Inside, steps: Sequence[bytes], server: bytes = b"") -> None:
    """Store the next numbers, as the script takes them; once, though a driver whose connection broke asks once more.

    Args:
        server: the replication id that the server must have; empty: any.
    """
    inside.run("load", secrets.token_bytes(8), server, *steps)


def _replication_id(inside: Inside) -> bytes:
    """Of the server that has the index now: after a restart or a failover another."""
    (told,) = inside.at_once([("INFO", "replication")])
    server: bytes = told.partition(b"master_replid:")[2].split()[0]
    return server


class FilledByOthers(IndexMismatch):
    """Another program fills this index now, has finished it, or has given it up."""


@contextmanager
def _alone() -> Iterator[None]:
    try:
        with translated():
            yield
    except (IndexMigrated, IndexLost, OutOfOrder) as error:
        raise FilledByOthers("another program fills this index now, or has finished it") from error


AT_ONCE = 25
"""Records stored by one call: some 2 ms of the server, 6 on a machine at its slowest."""
LONGEST_GAP = 1000
"""Numbers that one gap stands for, so that no call is long."""


class Loader:
    """Stores records and gaps, some at a time, in rising order of their numbers.

    Attributes:
        last: the last number that is stored, or will be with the next call.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self.last = store.stored
        self._waiting: list[Step] = []

    def add(self, row: RecordRow) -> bool:
        """Take a record; True: it is stored now, and all before it."""
        if not self.last:
            self._store.begin(row.seq)  # what was before has been forgotten
            self.last = row.seq - 1
        self.skip_to(row.seq)
        self._waiting.append(row)
        self.last = row.seq
        if len(self._waiting) < AT_ONCE:
            return False
        self.flush()
        return True

    def skip_to(self, seq: int) -> None:
        """Leave gaps up to the number before this one."""
        while (missing := seq - 1 - self.last) > 0:
            count = min(missing, LONGEST_GAP)
            self._waiting.append(Gap(count))
            self.last += count
            self.flush()

    def flush(self) -> None:
        """Store what waits."""
        if self._waiting:
            self._store.store(self._waiting)
        self._waiting = []


def passed_over(inside: Inside, seq: int) -> int:
    """The index gives no number up to this one any more; how many of them it had not given."""
    store = Store(inside)
    if seq <= store.stored:
        return 0
    if store.stored:
        Loader(store).skip_to(seq + 1)
    else:
        store.give_out(seq)
    return seq - store.stored


def record_row(layout: Layout, fingerprint: int | None, record: Record) -> RecordRow:
    """A record as a row."""
    return RecordRow(
        seq=record.seq,
        inserted_ms=record.inserted_ms,
        fingerprint=None if fingerprint is None else layout.key_of(fingerprint).hex(),
        verifier=None if record.verifier is None else record.verifier.to_bytes(layout.verifier_bytes).hex(),
        digest=record.digest,
        observation=record.observation.hex(),
        url=record.url,
        id=record.id,
        fetched_at=record.fetched_at,
        features=record.features,
    )


def entry_of(row: RecordRow) -> Entry:
    """The page whose record a row is; what a record keeps in short is short here too."""
    observation = bytes.fromhex(row.observation).ljust(OBSERVATION_BYTES, b"\0")
    return Entry(
        observation=observation,
        position=None,
        fingerprint=None if row.fingerprint is None else int(row.fingerprint, 16),
        verifier=None if row.verifier is None else int(row.verifier, 16),
        digest=row.digest,
        url=row.url,
        id=row.id,
        fetched_at=row.fetched_at,
        features=row.features,
    )
