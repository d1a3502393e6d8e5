"""The index in Redis: one script call judges a batch, atomically.

`layout` says what lies where; `lua/index.lua` is the judgement; this file translates between entries and the script's
bytes. `opening` opens an index; `epochs` knows whether Redis still has what it got.

There is one call under way at a time. A call answers its first pages, as many as the server can judge in a few
milliseconds; the rest comes with the next one, and while the server works its pages are packed. Each answer names the
observation of its page, and whoever receives it looks: an answer cannot come to another page.
"""

from __future__ import annotations

import hashlib
import re
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from typing import Any, NamedTuple

import msgspec
import redis

from simhash.errors import IndexMismatch, IndexUnreachable
from simhash.index.base import ARCHIVED_FIELD, Base, Beside, announced
from simhash.index.base import FIELD as BASE_FIELD
from simhash.index.base import NONE as NO_BASE
from simhash.index.interface import (
    Answer,
    Duplicate,
    Entry,
    IndexSpec,
    Neighbour,
    Partition,
    Position,
    Record,
    Retention,
    Unique,
)
from simhash.index.redis.epochs import Durability, Safekeeping, Watermark, watermark_in
from simhash.index.redis.faults import BaseMoved, translated
from simhash.index.redis.layout import MOST_DOCUMENTS, NAME, OBSERVATION_BYTES, OFFSET_BYTES, Layout, literal
from simhash.index.redis.operators.inside import Inside
from simhash.index.redis.operators.kept_versions import version_bits
from simhash.index.redis.operators.spots import near
from simhash.index.redis.operators.walking import readable, walk
from simhash.index.redis.server import check_server
from simhash.index.redis.spec import whole_number
from simhash.index.texts import DOCUMENTS, TextIndex, spec_for
from simhash.index.versions import url_hash
from simhash.signature.profiles import DEFAULT, Profile

CALL_PAGES = 32
"""Pages that go out with a call: 2 ms of the server at 60 us a page, where nobody is served meanwhile."""
FIRST_PAGES = 8
"""Of a batch's first call, where more follow: while it is packed the server has nothing to do."""
CALL_WORK = 1600
"""Work after which the script leaves the rest of a call to the next one, about 2 ms, 6 on a machine at its slowest: a
page is 50, a candidate 1 to 4."""
MARKS_PER_CALL = 8
"""Partitions whose marks a call moves, and whose journals it trims, besides those of its pages: all of them in turn."""
MARKS_ALONE = 256
"""Where a call has no pages: 2 ms of the server."""
EXPIRE_PER_PAGE = 2
"""Expired records removed for each page judged: more than one, so that removal overtakes insertion."""


class Known(NamedTuple):
    """What a base answers, before the index is asked: its generation, and for each page an answer's bytes or None."""

    generation: str
    answers: Sequence[bytes | None]


@dataclass(frozen=True, slots=True)
class _Packed:
    """A page on its way: as the script takes it, and what its base says of it."""

    entry: Entry
    argument: bytes
    known: bytes | None
    version: bytes | None


class RedisIndex(TextIndex):
    """See `simhash.index.interface.Index`, and `TextIndex` for asking it with texts. Made by
    `simhash.index.redis.opening.open_index`, or, for texts of one's own, by `RedisIndex.open`.

    Args:
        client: a connection; answers as bytes.
        name: ns, what all keys start with, in braces.
        spec: what the index was made with.
        generation: must be what the index says of itself at each call.
        retention: what to forget, when.
        clock: milliseconds since the epoch; None: the server's own clock.
        durability: what must hold of the server before a verdict counts.
        keys: what its tables' keys start with; None: its tag (see `Layout`).
    """

    def __init__(
        self,
        client: redis.Redis,
        name: str,
        spec: IndexSpec,
        generation: str,
        retention: Retention = Retention(),
        clock: Callable[[], int] | None = None,
        durability: Durability = Durability(),
        keys: str | None = None,
    ) -> None:
        self._layout = Layout(name, spec, keys)
        self._safekeeping = Safekeeping(client, self._layout.meta, durability)
        self._client: Any = self._safekeeping.client  # its types say "bytes or str" of every answer; ours are all bytes
        self._inside = Inside(self._client, self._layout, generation)
        self._calls = Calls(self._client, self._layout.meta, self._inside.source)
        self._retention = retention
        self._clock = clock
        self._generation = generation
        self._beside: Beside | None = None
        self._turn = 0

    @classmethod
    def open(
        cls,
        url: str,
        name: str = "dedup",
        profile: Profile = DEFAULT,
        documents: int = DOCUMENTS,
        retention: Retention = Retention(),
    ) -> RedisIndex:
        """Open the index called `name` on a Redis, for texts; it is made where there is none.

        Args:
            url: `redis://`, `rediss://` or `unix://`; the server must not evict keys.
            name: of at most 100 letters, digits, dots, underscores and hyphens.
            documents: about how many unique pages it will hold (no limit); only a new index takes it.

        Raises:
            ValueError: the URL, the name or the number of documents is none.
            IndexFault: see `simhash.index.redis.opening.open_index`.
        """
        from simhash.index.redis.opening import open_index, text_client  # which make one of these

        if not isinstance(name, str) or not re.fullmatch(NAME, name):
            raise ValueError(f"an index has a name of at most 100 letters, digits, '.', '_' and '-', not {name!r:.120}")
        if not isinstance(documents, int) or not 1 <= documents <= MOST_DOCUMENTS:
            raise ValueError(f"documents is a whole number from 1 to {MOST_DOCUMENTS:,}, not {documents!r:.40}")
        relation = spec_for(profile, documents).relation
        index = open_index(text_client(url), name, profile.recipe(), relation, documents, retention)
        index.profile = profile
        return index

    @property
    def spec(self) -> IndexSpec:
        """What the index was made with."""
        return self._layout.spec

    @property
    def inside(self) -> Inside:
        """For what operators do with an index: see the modules that take it."""
        return self._inside

    def check_and_insert(self, entries: Sequence[Entry], committed: Mapping[Partition, int]) -> list[Answer]:
        """See `Index.check_and_insert`; several calls when the batch is large, each atomic."""
        answers: list[Answer] = []
        self._safekeeping.begin()
        known = self._known(entries)
        while entries or committed:
            try:
                with translated():
                    if entries:
                        self._judge(entries, committed, known, answers)
                    else:
                        self._move_marks(committed, known.generation)
            except BaseMoved as error:
                self._follow(error)
                known = self._known(entries)
            else:
                break
        self._tell(answers, known)
        return answers

    def judge_beside(self, base: Base) -> None:
        """Ask a base before the index, from now on; an index that has none yet takes it.

        Raises:
            BaseDiffers: the index is judged beside another.
        """
        with translated():
            beside = Beside(self._client, self._layout.meta, base)
            beside.begin()
        self._beside = beside

    def look_at_base(self) -> None:
        """See `Index.look_at_base`."""
        if self._beside is not None:
            with translated():
                self._beside.current()

    def base(self) -> str:
        """The generation of the base that the index is judged beside; "": none."""
        with translated():
            stored: bytes | None = self._client.hget(self._layout.meta, BASE_FIELD)
        return (stored or b"").decode()

    def archived(self) -> int | None:
        """All records up to this number lie in the archive; None: the index has none."""
        with translated():
            stored: bytes | None = self._client.hget(self._layout.meta, ARCHIVED_FIELD)
        return None if stored is None else int(stored)

    def announce_base(self, generation: str, archived: int | None = None) -> None:
        """Say beside which base the index is judged from now on ("": none). No worker may be running.

        Args:
            archived: it is the index's archive, which holds all records up to this number; None: it is none.

        Raises:
            IndexMismatch: the index has given fewer numbers than the archive has, so it would give some once more.
        """
        with translated():
            behind = announced(self._client, self._layout.meta, generation, archived)
        if behind is not None:
            raise IndexMismatch(
                f"the index has given {behind:,} numbers, the archive has {archived:,}: Redis lost pages, or "
                "the archive is another index's. Make the index again from the verdicts: simhash-dedup rebuild"
            )

    def mark(self, partition: Partition) -> int | None:
        """See `Index.mark`."""
        with translated():
            mark = self._client.hget(self._layout.journal(partition), "mark")
        return None if mark is None else whole_number(mark, f"the mark of {partition.topic}[{partition.number}]")

    def partitions(self) -> Iterator[Partition]:
        """Every partition that the index has a journal of; slow on large indexes."""
        start = self._layout.journals_start
        with translated():
            keys = [key.decode() for key in self._client.scan_iter(f"{literal(start)}*", count=1000)]
        for topic, _, number in (key.removeprefix(start).rpartition(":") for key in sorted(set(keys))):
            yield Partition(topic, int(number))

    def marks(self) -> dict[Partition, int]:
        """The committed mark of every partition that the index has seen."""
        found = {partition: self.mark(partition) for partition in self.partitions()}
        return {partition: mark for partition, mark in found.items() if mark is not None}

    def rewind(self, partition: Partition, offset: int) -> None:
        """See `Index.rewind`."""
        key = self._layout.journal(partition)
        with translated(), self._client.pipeline(transaction=True) as pipe:
            trimmed = self._client.hget(key, "trimmed")
            pipe.hset(key, "mark", str(offset))
            if trimmed is None or whole_number(trimmed, f"`trimmed` of {key}") >= offset:
                pipe.hdel(key, "trimmed")
            pipe.execute()

    def journalled(self, observations: Mapping[Position, bytes | None]) -> list[Position]:
        """See `Index.journalled`."""
        with translated(), self._client.pipeline(transaction=False) as pipe:
            for at in observations:
                pipe.hget(self._layout.journal(at.partition), at.offset.to_bytes(OFFSET_BYTES))
            decided = zip(observations.items(), pipe.execute(), strict=True)
        return [at for (at, observed), found in decided if found and found.startswith(observed or b"")]

    def documents(self) -> int:
        """See `Index.documents`."""
        with translated():
            found = self._client.hget(self._layout.meta, "documents") or b"0"
        return whole_number(found, f"documents in the meta of index {self._layout.name!r}")

    def neighbours(self, fingerprint: int) -> list[Neighbour]:
        """See `Index.neighbours`."""
        with translated():
            found = [
                Neighbour(other, (other ^ fingerprint).bit_count(), record)
                for other, record in near(self._inside, fingerprint)
                if other is not None
            ]
        return sorted(found, key=lambda n: (n.distance, n.record.seq))

    def scan(self) -> Iterator[tuple[int | None, Record]]:
        """See `Index.scan`."""
        with translated():
            for part in walk(self._inside):
                yield from ((each.fingerprint, each.record) for each in readable(part.entries) if each.record)

    def present(self, watermarks: Iterable[str], others: Callable[[], Iterable[str]] = tuple) -> None:
        """See `Index.present`; also that the server, which may be another one now, would not lose keys."""
        with translated():
            check_server(self._client)
            self._safekeeping.present(_of_commits(watermarks), lambda: _of_commits(others()))

    def accept(self) -> None:
        """The operator announces that the index is right as it is, whatever watermarks say of it."""
        with translated():
            self._safekeeping.accept()

    def watermark(self) -> str:
        """See `Index.watermark`."""
        return str(self._safekeeping.watermark or "")

    def unchanged(self) -> None:
        """See `Index.unchanged`."""
        with translated():
            self._safekeeping.unchanged()

    def replicated(self) -> None:
        """See `Index.replicated`."""
        with translated():
            self._safekeeping.replicated()

    # Judging -------------------------------------------------------------------------------------------------------

    def _judge(
        self, entries: Sequence[Entry], committed: Mapping[Partition, int], known: Known, answers: list[Answer]
    ) -> None:
        """Add the answers for the entries behind those that have one, call by call."""
        of_call = self._call(entries, known.generation)
        numbers, ours = _numbered(committed, entries), list(committed)
        coming = iter(range(len(answers), len(entries)))
        waiting: deque[_Packed] = deque()

        def pack(pages: int) -> None:
            for at in islice(coming, max(0, pages - len(waiting))):
                entry = entries[at]
                number = numbers[entry.position.partition] if entry.position else 0
                version = self._version(entry) if of_call["versions"] else None
                waiting.append(_Packed(entry, self._layout.page(entry, number), known.answers[at], version))

        left = len(entries) - len(answers)
        pack(CALL_PAGES if left <= CALL_PAGES else FIRST_PAGES)
        told: list[bytes] = []
        asked: list[_Packed] = []
        with self._calls.line() as line:
            while waiting:
                sent = list(islice(waiting, CALL_PAGES))
                of_pages = (each.entry.position.partition for each in sent if each.entry.position)
                named = dict.fromkeys([*of_pages, *self._in_turn(ours)])
                rows = [(numbers[p], self._layout.journal(p), committed.get(p, -1)) for p in named]
                line.send(self._arguments({**of_call, "partitions": rows}, sent))
                # While the server works at this call: what the last one told, and the pages of the next.
                answers += map(self._told, told, asked)
                pack(len(sent) + CALL_PAGES)
                told = line.receive()
                asked = [waiting.popleft() for _, _ in zip(told, sent, strict=False)]
            answers += map(self._told, told, asked)

    def _move_marks(self, committed: Mapping[Partition, int], base: str) -> None:
        marks = ((self._layout.journal(partition), offset) for partition, offset in committed.items())
        with self._calls.line() as line:
            while some := list(islice(marks, MARKS_ALONE)):
                rows = [(number, *mark) for number, mark in enumerate(some, start=1)]
                line.send(self._arguments({**self._call((), base), "partitions": rows}, ()))
                line.receive()

    def _told(self, data: bytes, page: _Packed) -> Answer:
        """The answer for a page.

        Raises:
            IndexUnreachable: it is another page's: what is read is not what was asked for.
        """
        if data[:OBSERVATION_BYTES] != page.entry.observation:
            raise IndexUnreachable(
                "Redis: an answer came to another page than the one that asked; it is asked for again"
            )
        return self._layout.answer(data[OBSERVATION_BYTES:])

    def _call(self, entries: Sequence[Entry], base: str) -> dict[str, object]:
        """What is alike in all calls of a batch."""
        age, most = self._retention.max_age_ms, self._retention.max_documents
        return {
            "work": CALL_WORK,
            "epoch": self._safekeeping.expected(),
            "now_ms": self._clock() if self._clock else -1,
            "max_age_ms": -1 if age is None else age,
            "max_documents": -1 if most is None else most,
            "expire_per_page": EXPIRE_PER_PAGE,
            "base": base,
            "versions": all(entry.version is not None for entry in entries),
        }

    def _arguments(self, of_call: Mapping[str, object], pages: Sequence[_Packed]) -> list[object]:
        decided = {number: page.known for number, page in enumerate(pages, start=1) if page.known}
        call = msgspec.json.encode({**of_call, "decided": list(decided)})
        versions = [page.version for page in pages if page.version is not None]
        return ["judge", self._generation, call, *(page.argument for page in pages), *decided.values(), *versions]

    def _in_turn(self, partitions: Sequence[Partition]) -> Sequence[Partition]:
        """Some of these, others with each call: what a call takes does not grow with the partitions of a topic."""
        starts = range(0, len(partitions), MARKS_PER_CALL)
        if not starts:
            return ()
        self._turn = (self._turn + 1) % len(starts)
        start = starts[self._turn]
        return partitions[start : start + MARKS_PER_CALL]

    def _version(self, entry: Entry) -> bytes:
        """The version of a page, and where it goes, as the script takes it."""
        key, field = self._layout.version(url_hash(entry.url), self._version_bits)
        return b"%c%b%b%b" % (len(key.encode()), key.encode(), field, entry.version or b"")

    @cached_property
    def _version_bits(self) -> int:
        """Of the buckets of versions: set with the first of them, and no migration moves them."""
        return version_bits(self._inside)

    def _tell(self, answers: Sequence[Answer], known: Known) -> None:
        """Note the numbers that the caller is told now. A match's may be the base's, from the journal."""
        decisions = [answer.decision for answer, of_base in zip(answers, known.answers, strict=False) if not of_base]
        told = [decision.seq for decision in decisions if isinstance(decision, Unique)]
        if self._beside is None:
            told += [decision.match.seq for decision in decisions if isinstance(decision, Duplicate)]
        if told:
            self._safekeeping.told(max(told))

    def _known(self, entries: Sequence[Entry]) -> Known:
        """What the base answers."""
        if self._beside is None:
            return Known(NO_BASE, [None] * len(entries))
        with translated():
            base = self._beside.current()
        try:
            found = zip(entries, base.decisions(entries), strict=True)
        except IndexUnreachable:
            # For the next try: others may have moved on, and what this one reads be gone.
            with suppress(IndexUnreachable), translated():
                self._beside.follow()
            raise
        return Known(base.generation, [self._layout.answered(d, entry) if d else None for entry, d in found])

    def _follow(self, error: BaseMoved) -> None:
        """Another worker judges beside another base: do the same."""
        if self._beside is None:
            raise IndexMismatch(f"the index is judged beside base {error}: name it by the setting `base`") from error
        with translated():
            self._beside.follow()


def _of_commits(texts: Iterable[str]) -> Iterator[Watermark]:
    return filter(None, map(watermark_in, texts))


def _numbered(committed: Iterable[Partition], entries: Iterable[Entry]) -> dict[Partition, int]:
    """By which number the pages of a batch name their partition; 0 is none."""
    all_of_batch = dict.fromkeys([*committed, *(entry.position.partition for entry in entries if entry.position)])
    return {partition: number for number, partition in enumerate(all_of_batch, start=1)}


# Calls ----------------------------------------------------------------------------------------------------------------


class Line:
    """A connection, with one call under way at most."""

    def __init__(self, connection: Any, key: str, source: str, sha: str) -> None:
        self._connection = connection
        self._key = key
        self._source = source
        self._sha = sha
        self._arguments: Sequence[object] = ()

    def send(self, arguments: Sequence[object]) -> None:
        """Send a call."""
        self._arguments = arguments
        self._connection.send_command("EVALSHA", self._sha, 1, self._key, *arguments)

    def receive(self) -> list[bytes]:
        """The answer to the call under way. A server that lacks the script (a new one, or one that gave it up) gets
        it."""
        try:
            answer: list[bytes] = self._connection.read_response()
        except redis.exceptions.NoScriptError:
            self._connection.send_command("SCRIPT", "LOAD", self._source)
            self._connection.read_response()
            self.send(self._arguments)
            answer = self._connection.read_response()
        return answer


class Calls:
    """A script on the server of a client; its first key is always the same.

    A call is sent, and its answer read later, so that the client can work meanwhile.
    """

    def __init__(self, client: Any, key: str, source: str) -> None:
        self._client = client
        self._key = key
        self._source = source
        self._sha = hashlib.sha1(source.encode(), usedforsecurity=False).hexdigest()

    @contextmanager
    def line(self) -> Iterator[Line]:
        """A connection for calls; closed when one fails: what is left on it is not to be read as another's answer."""
        own = self._client.connection  # a client of a single connection has it here
        connection = own or self._client.connection_pool.get_connection()
        try:
            yield Line(connection, self._key, self._source, self._sha)
        except BaseException:
            connection.disconnect()
            raise
        finally:
            if not own:
                self._client.connection_pool.release(connection)
