"""An index and its archive as one, for what operators do: all its records, wherever they lie.

Redis is read first and the archive afterwards: a record that goes to disk meanwhile is found in one of them or in both.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from simhash.archive.lookup.opened import TableSet
from simhash.archive.segments.contents import Segment
from simhash.archive.segments.segmented import SegmentedArchive
from simhash.archive.verify import verify
from simhash.errors import IndexMismatch
from simhash.index import Neighbour, Record
from simhash.index.redis.faults import translated
from simhash.index.redis.index import RedisIndex
from simhash.index.redis.operators.check_findings import CheckFindings, Violation
from simhash.index.redis.operators.kept_versions import forget_versions
from simhash.index.redis.operators.operations import Operations
from simhash.index.redis.operators.retiring import Retiring
from simhash.index.redis.operators.takedowns import Found, take_down, under
from simhash.index.redis.operators.transfer import exported
from simhash.index.redis.operators.walking import readable, walk
from simhash.index.rows import AnyRow
from worker.index.stores import archive_of, found_index
from worker.settings import Settings

Stored = tuple[int | None, Record]


class OnDisk(NamedTuple):
    """An archive: records that are found, segments, bytes, up to which number all lie there, and how many of them
    Redis has not forgotten yet."""

    pages: int
    segments: int
    bytes: int
    archived: int
    in_both: int


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
        """How many records there are; those that lie in both are counted once."""
        return self.index.documents() + self.elsewhere()

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

    def forget_versions(self, urls: Collection[str]) -> None:
        """Nothing is kept any more of how pages of these URLs were."""
        with translated():
            forget_versions(self.index.inside, urls)

    def _gone(self, retiring: Retiring, numbers: Sequence[int]) -> set[int]:
        """Have the archive pass over these numbers; those that it had not passed over before."""
        before = set(retiring.contents().gone)
        after = retiring.move(lambda contents: contents.without(numbers))
        return set(after.gone) - before if after else set()

    def exported(self) -> Iterator[AnyRow]:
        """The rows of both (see `simhash.index.rows`), records in rising order of their numbers."""
        return exported(Operations(self.index), self if self.retiring else None)

    def elsewhere(self) -> int:
        """How many records lie in the archive alone."""
        return len(self._archive()) - self.retiring.still_here() if self.retiring else 0

    def records(self, last: int) -> Iterator[Found]:
        """Every record in rising order of its number, up to `last`, each once.

        What the archive has comes first, then what Redis has behind it. When pages went to disk meanwhile, Redis may
        have forgotten them between two readings: then they are read there.
        """
        told = 0
        while True:
            archived = self.index.archived() or 0
            if archived > told:
                yield from (Found(*each) for each in self._archive().by_number(told + 1, min(archived, last)))
                told = archived
            with translated():
                for part in walk(self.index.inside, told + 1, last):
                    if (self.index.archived() or 0) != archived:
                        break
                    for entry in readable(part.entries):
                        if entry.record and told < entry.seq <= last:
                            yield Found(entry.fingerprint, entry.record)
                        told = max(told, entry.seq)
                else:
                    return

    def on_disk(self) -> OnDisk | None:
        """What the archive is like; None: there is none."""
        if self.retiring is None:
            return None
        contents, directory = self.retiring.contents(), self.retiring.directory
        files = [path for each in contents.segments for path in (directory / each.name).iterdir()]
        size = sum(path.stat().st_size for path in files)
        return OnDisk(contents.pages, len(contents.segments), size, contents.archived, self.retiring.still_here())

    def check(self, on_progress: Callable[[CheckFindings], None]) -> CheckFindings:
        """All that is wrong with the index and the files of its archive, and how much was looked at."""
        found = Operations(self.index).check(on_progress)
        if self.retiring:
            for segment in self.retiring.contents().segments:
                self._check_segment(self.retiring.directory, segment, found, on_progress)
        return found

    def _check_segment(
        self, directory: Path, segment: Segment, found: CheckFindings, on_progress: Callable[[CheckFindings], None]
    ) -> None:
        place, before = directory / segment.name, len(found.violations)
        found.violations += [Violation("archive", line) for line in verify(place, lambda *_: on_progress(found))]
        if len(found.violations) > before:
            return
        strange = 0
        for _, record in TableSet(place).scan():
            found.archived += 1
            strange += not segment.first <= record.seq <= segment.last
        if strange:
            numbers = f"{segment.first:,} to {segment.last:,}"
            found.violations.append(
                Violation("archive", f"{place} has {strange:,} records without a number from {numbers}")
            )

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
