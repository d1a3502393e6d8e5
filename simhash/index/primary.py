"""What operators do with an index on one primary: see `simhash.index.operations`."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from random import Random
from typing import Any

from simhash.errors import IndexFault, IndexMigrated, IndexMismatch
from simhash.index.checking import check
from simhash.index.faults import OutOfOrder, translated
from simhash.index.findings import Findings
from simhash.index.generations import fields_in
from simhash.index.inside import Inside
from simhash.index.interface import Partition
from simhash.index.layout import OFFSET_BYTES, SEQ_BYTES, TIME_BYTES, Layout, literal
from simhash.index.operations import Gap, Moment, Step
from simhash.index.redis import RedisIndex
from simhash.index.rows import IndexRow
from simhash.index.server import check_server
from simhash.index.specs import fields_of
from simhash.index.statistics import Statistics, statistics
from simhash.index.takedowns import Found, take_down, under
from simhash.index.transfer import SET_WHILE_FILLING, entry_of, name_of_import, refuse_journals, resumes, spec_in
from simhash.index.walking import walk

_LOADING = ("judging", "loading")


class _OnPrimary:
    """See `simhash.index.operations.Holding`."""

    def __init__(self, inside: Inside) -> None:
        self._inside = inside
        self._client = inside.client
        self.layout: Layout = inside.layout

    def under(self, fingerprint: int | None, digest: str, urls: Collection[str]) -> list[Found]:
        """See `Holding.under`."""
        with translated():
            return under(self._inside, fingerprint, digest, urls)

    def take_down(self, found: Sequence[Found]) -> int:
        """See `Holding.take_down`."""
        with translated():
            return sum(take_down(self._inside, found))


class PrimaryOperations(_OnPrimary):
    """See `simhash.index.operations.Operations`."""

    def __init__(self, index: RedisIndex) -> None:
        super().__init__(index.inside)
        self._index = index
        self.generation = index.inside.generation

    def moment(self) -> Moment:
        """See `Operations.moment`."""
        partitions = list(self._index.partitions())
        with translated(), self._client.pipeline(transaction=True) as pipe:
            pipe.hmget(self.layout.meta, "seq", "documents")
            for partition in partitions:
                pipe.hgetall(self.layout.journal(partition))
            (seq, documents), *journals = pipe.execute()
        return Moment(int(seq), int(documents), dict(zip(partitions, journals, strict=True)))

    def records(self, last: int) -> Iterator[Found]:
        """See `Operations.records`."""
        with translated():
            for part in walk(self._inside, last=last):
                for entry in part.entries:
                    if entry.damaged:
                        raise IndexFault(
                            f"record {entry.seq} cannot be read: `simhash-dedup index check` says what is damaged"
                        )
                    if entry.record and entry.seq <= last:
                        yield Found(entry.fingerprint, entry.record)

    def check(self, on_progress: Callable[[Findings], None]) -> Findings:
        """See `Operations.check`."""
        with translated():
            return check(self._inside, on_progress)

    def statistics(self, sample: int, random: Random) -> Statistics:
        """See `Operations.statistics`."""
        with translated():
            return statistics(self._inside, list(self._index.partitions()), sample, random)


class PrimaryStore(_OnPrimary):
    """See `simhash.index.operations.Store`. Made by `opened_for_import`.

    Raises (all methods): IndexMismatch: another program fills this index, or has finished it.
    """

    def __init__(self, inside: Inside) -> None:
        super().__init__(inside)
        self._set_while_filling = inside.client.register_script(SET_WHILE_FILLING)
        self.stored = int(self._client.hget(self.layout.meta, "seq"))

    def begin(self, seq: int) -> None:
        """See `Store.begin`."""
        self._set("seq", seq - 1)

    def store(self, steps: Sequence[Step]) -> None:
        """See `Store.store`: one script call."""
        with _alone():
            self._inside.run(_LOADING, *map(self._argument, steps))

    def set_mark(self, partition: Partition, offset: int) -> None:
        """See `Store.set_mark`."""
        self._set("mark", offset, self.layout.journal(partition))

    def set_journal(self, partition: Partition, offset: int, value: bytes) -> None:
        """See `Store.set_journal`."""
        self._set(offset.to_bytes(OFFSET_BYTES), value, self.layout.journal(partition))

    def give_out(self, seq: int) -> None:
        """See `Store.give_out`."""
        self._set("seq", seq)

    def believe_earlier(self, before_ms: int, seq: int) -> None:
        """See `Store.believe_earlier`, and script/history.lua."""
        self._set("earlier", f"{before_ms} {seq}")

    def release(self, generation: str) -> int:
        """See `Store.release`."""
        self._set("generation", generation)
        with translated():
            return int(self._client.hget(self.layout.meta, "documents"))

    def _set(self, field: str | bytes, value: str | bytes | int, key: str = "") -> None:
        meta = self.layout.meta
        with _alone():
            self._set_while_filling(keys=[meta, key or meta], args=[self._inside.generation, field, value])

    def _argument(self, step: Step) -> bytes:
        if isinstance(step, Gap):
            return b"g" + step.count.to_bytes(SEQ_BYTES)
        number = step.seq.to_bytes(SEQ_BYTES) + step.inserted_ms.to_bytes(TIME_BYTES)
        return b"r" + number + self.layout.page(entry_of(step), 0)


@contextmanager
def _alone() -> Iterator[None]:
    try:
        with translated():
            yield
    except (IndexMigrated, OutOfOrder) as error:
        raise IndexMismatch("another program fills this index now, or has finished it") from error


def opened_for_import(client: Any, name: str, head: IndexRow) -> PrimaryStore:
    """The index called `name`, empty or half imported, under the generation that it has meanwhile.

    Args:
        client: a connection; answers as bytes.

    Raises:
        IndexMismatch: it holds something else.
        IndexMisconfigured: the server would drop keys, or is a cluster.
    """
    layout, importing = Layout(name, spec_in(head)), name_of_import(head)
    with translated():
        check_server(client)
        if not resumes(name, fields_in(client, layout.meta), head):
            refuse_journals(name, client.scan_iter(f"{literal(name)}:j:*", count=1000))
            client.hset(layout.meta, mapping={**fields_of(layout.spec), "generation": importing})
        return PrimaryStore(Inside(client, layout, importing))
