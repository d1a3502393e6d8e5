"""Where verdicts, dead letters, takedowns and the input come from: topics up to their ends as of now, or files."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import IO, NamedTuple

import xxhash

from worker.errors import InputError
from worker.lines import lines_in, opened
from worker.settings import Settings
from worker.stream.kafka.replay import replayed
from worker.verifying import told
from worker.verifying.told import IN_FILE, Coordinates, PageName, ToldTakedown

CHUNK_BYTES = 1 << 20
MOST_LINE_BYTES = 64 << 20
"""Of a longer line nothing is read but its bytes' hash."""
LINES = (".jsonl", ".ndjson", ".json")


class ToldBytes(NamedTuple):
    """Bytes that should be a verdict, where they stand, and when they were written (0: nobody knows)."""

    place: Coordinates
    data: bytes
    written_ms: int


class ToldLetter(NamedTuple):
    """A dead letter: where it stands, the record that it is about (None: another program's), and the hash of its bytes
    (None: it has not all)."""

    place: Coordinates
    about: Coordinates | None
    content: int | None = None


class ToldCopy(NamedTuple):
    """A record of the topic of unique pages: where it stands, and the hash of its bytes."""

    place: Coordinates
    content: int


class InputRecord(NamedTuple):
    """A record that there was to answer: where it stands, what names its delivery, the page in it, if any, and the hash
    of its bytes."""

    place: Coordinates
    observation: int
    page: PageName | None
    content: int


@dataclass(frozen=True)
class Sources:
    """What is to be read.

    Attributes:
        settings: name the topics and how to reach them.
        verdicts: files of verdicts; none: the verdict topic, with the dead-letter topic and the takedown topic.
        letters: files of `file --rejected-out`.
        inputs: files of JSONL that were judged; with_input: the input topic was.
        takedowns: files of `index delete --takedowns`.
    """

    settings: Settings
    verdicts: tuple[Path, ...] = ()
    letters: tuple[Path, ...] = ()
    inputs: tuple[Path, ...] = ()
    with_input: bool = False
    takedowns: tuple[Path, ...] = ()

    @property
    def has_copies(self) -> bool:
        """Whether there is a topic of unique pages, to be held against the input."""
        return self.with_input and self.settings.unique_topic is not None

    @property
    def has_input(self) -> bool:
        """Whether it is known what there was to answer."""
        return bool(self.inputs) or self.with_input

    def all_verdicts(self) -> Iterator[ToldBytes]:
        """Whatever stands where verdicts should."""
        for path in self.verdicts:
            for place, line in _lines(path):
                yield ToldBytes(place, line, 0)
        if not self.verdicts:
            for received in replayed(self.settings, self.settings.verdict_topic):
                source = received.record.source
                yield ToldBytes(Coordinates(*source[:3]), received.record.value or b"", max(0, source.timestamp or 0))

    def all_letters(self) -> Iterator[ToldLetter]:
        """All dead letters."""
        for path in self.letters:
            for place, line in _lines(path):
                with _said_of(place):
                    yield ToldLetter(place, told.rejected(line))
        if not self.verdicts:
            for received in replayed(self.settings, self.settings.dead_letter_topic):
                (source, key, value), headers = received.record[:3], dict(received.headers)
                letter = told.letter(headers)
                if letter or told.REPLAYED not in headers:  # what says that one was sent back is none itself
                    content = told.content_of(key, value).intdigest() >> 64 if told.is_whole(headers) else None
                    yield ToldLetter(Coordinates(*source[:3]), letter, content)

    def all_copies(self) -> Iterator[ToldCopy]:
        """All records of the topic of unique pages."""
        if topic := self.settings.unique_topic:
            for received in replayed(self.settings, topic):
                source, key, value = received.record[:3]
                yield ToldCopy(Coordinates(*source[:3]), told.content_of(key, value).intdigest() >> 64)

    def all_takedowns(self) -> Iterator[ToldTakedown]:
        """All pages that were taken down."""
        for path in self.takedowns:
            for place, line in _lines(path):
                with _said_of(place):
                    yield told.takedown(line)
        if not self.verdicts and (topic := self.settings.takedown_topic):
            for received in replayed(self.settings, topic):
                with _said_of(Coordinates(*received.record.source[:3])):
                    yield told.takedown(received.record.value or b"")

    def all_inputs(self) -> Iterator[InputRecord]:
        """Every record that there was to answer."""
        for path in self.inputs:
            yield from _records_in(path)
        if self.with_input:
            for received in replayed(self.settings, self.settings.input_topic):
                source, key, value = received.record[:3]
                page = told.page_in(value or b"") if self.settings.page_format == "json" else told.page_under(key)
                yield _input_record(Coordinates(*source[:3]), source.timestamp, told.content_of(key, value), page)


@contextmanager
def _said_of(place: Coordinates) -> Iterator[None]:
    try:
        yield
    except ValueError as error:
        raise InputError(f"{place}: {error}") from error


def _lines(path: Path) -> Iterator[tuple[Coordinates, bytes]]:
    for number, line in lines_in(path):
        yield Coordinates(str(path), IN_FILE, number), line


def _records_in(path: Path) -> Iterator[InputRecord]:
    """The records of a file of JSONL: its path and bytes name it, its lines count from 0, blank ones are none."""
    bare = path.with_suffix("") if path.suffix in (".gz", ".zst") else path
    if path.is_dir() or bare.suffix.lower() not in LINES:
        raise InputError(
            f"{path}: only the records of JSONL ({', '.join(LINES)}, .gz, .zst) can be counted from outside"
        )
    name = xxhash.xxh3_128(os.path.abspath(path).encode("utf-8", "surrogateescape") + b"\0" + _digest(path))
    with opened(path) as stream:
        for number, content, line in _contents(stream):
            place = Coordinates(f"file:{name.hexdigest()}", 0, number)
            content.update(told.NO_KEY)
            yield _input_record(place, None, content, told.page_in(line))


def _input_record(
    place: Coordinates, timestamp: int | None, content: xxhash.xxh3_128, page: PageName | None
) -> InputRecord:
    return InputRecord(place, told.observation_of(place, timestamp, content), page, content.intdigest() >> 64)


def _contents(stream: IO[bytes]) -> Iterator[tuple[int, xxhash.xxh3_128, bytes]]:
    """Of each line that is not blank its number, from 0, the hash of its bytes, and these (none, if it is too long)."""
    for number in count():
        content, is_blank, size, kept = xxhash.xxh3_128(), True, 0, []
        for piece in _pieces(stream):
            content.update(piece)
            is_blank, size = is_blank and piece.isspace(), size + len(piece)
            if size <= MOST_LINE_BYTES:
                kept.append(piece)
            else:
                kept.clear()
        if not size:
            return
        if not is_blank:
            yield number, content, b"".join(kept)


def _pieces(stream: IO[bytes]) -> Iterator[bytes]:
    """Of a line, which may be longer than any page."""
    while piece := stream.readline(CHUNK_BYTES):
        yield piece
        if piece.endswith(b"\n"):
            return


def _digest(path: Path) -> bytes:
    digest = xxhash.xxh3_128()
    with opened_raw(path) as file:
        while chunk := file.read(CHUNK_BYTES):
            digest.update(chunk)
    return digest.digest()


@contextmanager
def opened_raw(path: Path) -> Iterator[IO[bytes]]:
    """The bytes of a file as they are; InputError: it cannot be read."""
    try:
        with path.open("rb") as file:
            yield file
    except OSError as error:
        raise InputError(f"{path}: {error.strerror}") from error
