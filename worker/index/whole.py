"""An index and its archive as one, for what operators do: all its records, wherever they lie.

Redis is read first and the archive afterwards: a record that goes to disk meanwhile is found in one of them or in both.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass

from simhash.archive.segments.segmented import SegmentedArchive
from simhash.errors import IndexMismatch
from simhash.index import Neighbour, Record
from simhash.index.redis.faults import translated
from simhash.index.redis.index import RedisIndex
from simhash.index.redis.operators.retiring import Retiring
from simhash.index.redis.operators.takedowns import Found, take_down, under
from worker.index.stores import archive_of, found_index
from worker.settings import Settings

Stored = tuple[int | None, Record]


@dataclass(frozen=True)
class Whole:
    """See the module.

    Attributes:
        index: what lies in Redis.
        retiring: the way to the archive; None: the index has none.

    Raises (all methods): IndexFault, TableFault.
    """

    index: RedisIndex
    retiring: Retiring | None

    def documents(self) -> int:
        """About how many records there are; some lie in both."""
        return self.index.documents() + (len(self._archive()) if self.retiring else 0)

    def scan(self) -> Iterator[Stored]:
        """Every record with its fingerprint (None: digest only), in no order; slow on large indexes."""
        yield from _each_once(self.index.scan(), self.archived)

    def archived(self) -> Iterator[Stored]:
        """Every record of the archive."""
        return self._archive().scan() if self.retiring else iter(())

    def under(self, fingerprint: int | None, digest: str, urls: Collection[str]) -> list[Found]:
        """The records under a fingerprint, or under a digest where there is none, that have one of these URLs."""
        with translated():
            found = under(self.index.inside, fingerprint, digest, urls)
        if self.retiring:
            found += [Found(fingerprint, record) for record in self._archive().under(fingerprint, digest, urls)]
        return list({each.record.seq: each for each in found}.values())

    def neighbours(self, fingerprint: int) -> list[Neighbour]:
        """See `Index.neighbours`."""
        found = self.index.neighbours(fingerprint) + (self._archive().neighbours(fingerprint) if self.retiring else [])
        return sorted({near.record.seq: near for near in found}.values(), key=lambda n: (n.distance, n.record.seq))

    def take_down(self, found: Sequence[Found]) -> int:
        """Remove these records with all that leads to them; how many were there.

        From Redis first: what is on its way to the archive then does not come there (see `retiring`), and what has come
        there meanwhile is in the moment that is looked at afterwards.
        """
        with translated():
            there = take_down(self.index.inside, found)
        done = {each.record.seq for each, was_there in zip(found, there, strict=True) if was_there}
        if self.retiring:
            done |= self._gone(self.retiring, [each.record.seq for each in found])
        return len(done)

    def _gone(self, retiring: Retiring, numbers: Sequence[int]) -> set[int]:
        """Have the archive pass over these numbers; those that it had not passed over before."""
        before = set(retiring.contents().gone)
        after = retiring.move(lambda contents: contents.without(numbers))
        return set(after.gone) - before if after else set()

    def _archive(self) -> SegmentedArchive:
        assert self.retiring is not None
        return SegmentedArchive(self.retiring.directory, self.retiring.contents())


def _each_once(first: Iterable[Stored], then: Callable[[], Iterable[Stored]]) -> Iterator[Stored]:
    seen: set[int] = set()
    for each in first:
        seen.add(each[1].seq)
        yield each
    yield from (each for each in then() if each[1].seq not in seen)


def found_whole(settings: Settings, writes: bool = False) -> Whole:
    """The index that the settings name, as it is, with its archive.

    Args:
        writes: pages will be removed.

    Raises:
        SettingsError, IndexFault: see `worker.index.stores.found_index`.
        IndexMismatch: the index has an archive, and the settings do not say where.
    """
    index = found_index(settings, writes)
    if index.archived() is None:
        return Whole(index, None)
    if settings.archive is None:
        raise IndexMismatch(f"index {settings.index_name} has an archive on disk: name its directory by `archive`")
    return Whole(index, Retiring(index, archive_of(settings)))
