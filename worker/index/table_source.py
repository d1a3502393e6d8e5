"""What a set of compressed tables is built from: a file of bare fingerprints, of verdicts, or an export of an index.

Which it is shows in its first line. Each is a `simhash.archive.EntrySource` that also says what a set made of it holds.
"""

from __future__ import annotations

import io
import os
import re
from codecs import BOM_UTF8
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from itertools import islice
from pathlib import Path
from typing import IO, Any

import msgspec
import numpy as np

from simhash.archive import Holding, Portion
from simhash.archive.format import keys as arrays
from simhash.archive.format.keys import Keys
from simhash.archive.lookup.opened import verifier_bytes
from simhash.errors import DesignError, ProfileError
from simhash.index import Entry, Record, Relation
from simhash.index.rows import EndRow, IndexRow, RecordRow, decoded
from simhash.relation.tables import Design, automatic_design, described
from simhash.relation.tables import design as find_design
from simhash.signature.profiles import Profile
from simhash.signature.profiles import profile as find_profile
from worker import compression
from worker.compression import decompressed
from worker.errors import InputError
from worker.files.locations import in_utf8
from worker.lines import next_line, numbered
from worker.records import verdict

BARE_DESIGNS = ("4", "6", "10", "16", "20")
BARE_CANDIDATES = 256
"""A probe of a table on disk reads a block of 512 keys at the least, so a prefix that leaves half as many candidates is
long enough; a longer one would take more tables for nothing."""
READ_BYTES = 1 << 18
BATCH_LINES = 4096
HEXADECIMAL = re.compile(rb"(?:0[xX])?([0-9a-fA-F]+)")
BARE_BITS, MOST_BITS = 64, 256

Stored = tuple[int | None, Record]


@dataclass
class LineFile:
    """A file of lines, plain or compressed, that is read from anywhere and knows how far it is."""

    path: Path
    size: int = field(init=False)
    _raw: io.FileIO | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        try:
            self.size = self.path.stat().st_size
        except OSError as error:
            raise InputError(f"{self.path}: {error.strerror}") from error
        if not self.path.is_file():
            raise InputError(f"{self.path} is no regular file: a build must be able to read it again")

    def done(self) -> int:
        """Bytes of the file read so far."""
        return self._raw.tell() if self._raw and not self._raw.closed else 0

    def open(self) -> IO[bytes]:
        """Its content from the beginning.

        Raises:
            InputError: it cannot be read.
        """
        try:
            self._raw = io.FileIO(self.path)
            return decompressed(self._raw)
        except compression.ERRORS as error:
            raise self.broken(error) from error

    def broken(self, error: BaseException) -> InputError:
        """What to raise when reading fails."""
        return InputError(f"{self.path}: {getattr(error, 'strerror', None) or error}")

    def lines(self, skip: int) -> Iterator[tuple[int, bytes]]:
        """Its lines behind the first `skip`, with their numbers, from 1."""
        try:
            with self.open() as content:
                yield from islice(numbered(content), skip, None)
        except compression.ERRORS as error:
            raise self.broken(error) from error

    def identity(self) -> tuple[str, int, int]:
        """Tells this file from another, or from itself when it was changed."""
        return in_utf8(os.path.abspath(self.path)), self.size, self.path.stat().st_mtime_ns


# Bare fingerprints -------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class FingerprintFile:
    """One fingerprint a line, hex, most significant digit first, 0x before it or not; empty lines are passed over."""

    file: LineFile
    bits: int

    profile: Mapping[str, Any] | None = field(default=None, init=False)

    @property
    def holding(self) -> Holding:
        """What a set of it holds."""
        return Holding(self.bits, records=False)

    def relation(self, design: Design | None, count: int) -> Relation:
        """The relation of a set of so many."""
        found = design or bare_design(count, self.bits)
        return Relation(found, min(found.k, self.bits - 1), None)

    def batches(self, skip: int) -> Iterator[Portion]:
        """See `EntrySource.batches`; an item is a line.

        Raises:
            InputError: a line holds no fingerprint of this width.
        """
        number = 0
        try:
            with self.file.open() as content:
                while data := content.read(READ_BYTES):
                    whole = (data if number else data.removeprefix(BOM_UTF8)) + next_line(content)
                    yield from self._batch(whole, number, skip)
                    number += whole.count(b"\n")
        except compression.ERRORS as error:
            raise self.file.broken(error) from error

    def _batch(self, data: bytes, before: int, skip: int) -> Iterator[Portion]:
        """The lines in `data`, which come behind `before` others, without those below `skip`."""
        data = data if data.endswith(b"\n") else data + b"\n"
        lines = data.count(b"\n")
        if before + lines <= skip:
            return
        keys = _same_length(data, self.bits)
        if keys is not None and len(keys) == lines:
            passed = max(0, skip - before)
            yield Portion(lines - passed, keys[passed:])
            return
        wanted = list(enumerate(data.split(b"\n")[:-1], before + 1))[max(0, skip - before) :]
        values = [self._value(number, line) for number, line in wanted if line.strip()]
        yield Portion(len(wanted), arrays.from_ints(values, self.bits))

    def _value(self, number: int, line: bytes) -> int:
        value = fingerprint_in(line, self.bits)
        if value is None:
            expected = f"{-(-self.bits // 4)} hexadecimal digits, {self.bits} bits"
            raise InputError(f"{self.file.path}, line {number}: {_shown(line)} is no fingerprint of {expected}")
        return value


def fingerprint_in(text: bytes, bits: int) -> int | None:
    """The fingerprint of that width that a line holds, white space aside; None where it holds none."""
    found = HEXADECIMAL.fullmatch(text.strip())
    if not found or len(found[1]) != -(-bits // 4):
        return None
    value = int(found[1], 16)
    return None if value >> bits else value


def _shown(line: bytes) -> str:
    return repr(line.strip()[:80])


def bare_design(count: int, bits: int) -> Design:
    """The fewest tables whose prefixes leave few enough candidates of so many fingerprints."""
    found = [find_design(name, bits) for name in BARE_DESIGNS if bits >= 16] or [find_design("4", bits)]
    fitting = (each for each in found if count <= BARE_CANDIDATES << each.shortest_prefix)
    return next(fitting, found[-1])


def _same_length(data: bytes, bits: int) -> Keys | None:
    """Lines of just the digits of a fingerprint as keys; None where it is not that."""
    digits = bits // 4
    if bits % 8 or len(data) % (digits + 1) or data[digits :: digits + 1].strip(b"\n"):
        return None
    try:
        raw = bytes.fromhex(data.decode("ascii"))  # passes over white space
    except ValueError:
        return None
    lines, size = len(data) // (digits + 1), bits // 8
    if len(raw) != lines * size:
        return None
    padded = np.zeros((lines, 8 * arrays.words(bits)), np.uint8)
    padded[:, :size] = np.frombuffer(raw, np.uint8).reshape(-1, size)
    return padded.view(">u8").astype(np.uint64)


# Records -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class VerdictFile:
    """Verdicts, one a line; the unique ones are what a set holds."""

    file: LineFile
    recipe: Profile

    @property
    def profile(self) -> Mapping[str, Any] | None:
        """The recipe of the fingerprints."""
        return self.recipe.recipe()

    @property
    def holding(self) -> Holding:
        """What a set of it holds."""
        relation = self.relation(None, 0)
        return Holding(self.recipe.bits, True, verifier_bytes(relation), relation.bands)

    def relation(self, design: Design | None, count: int) -> Relation:
        """The relation of a set of so many: that of an index of this profile."""
        recipe = self.recipe
        found = design or automatic_design(recipe.k, recipe.bits, count)
        if found.k < recipe.k:
            raise InputError(f"design {found.name} guarantees {found.k} bits, profile {recipe.name} needs {recipe.k}")
        return Relation(found, recipe.reach, recipe.verifier_reach, recipe.verifier_bits, recipe.bands)

    def batches(self, skip: int) -> Iterator[Portion]:
        """See `EntrySource.batches`; an item is a line.

        Raises:
            InputError: a line is no verdict, or one of another profile.
        """
        label = self.recipe.label
        lines = self.file.lines(skip)
        while some := list(islice(lines, BATCH_LINES)):
            found = (self._entry(number, line, label) for number, line in some if line.strip())
            yield Portion(len(some), records=[entry for entry in found if entry is not None])

    def _entry(self, number: int, line: bytes, label: str) -> Stored | None:
        try:
            page = verdict.decode_told(line)
            if page.profile != label:
                raise ValueError(f"a verdict of profile {page.profile}, not {label}")
            return _entry_of(page)
        except ValueError as error:
            raise InputError(f"{self.file.path}, line {number}: {error}") from error


def _entry_of(page: verdict.Verdict) -> Stored | None:
    """What an index would hold of a page with this verdict; None for a duplicate."""
    if page.verdict != "unique":
        return None
    if page.seq is None:
        raise ValueError("a unique page has a seq")
    fetched = page.source.timestamp if page.source.timestamp is not None else _milliseconds(page.fetched_at)
    fingerprint, verifier = _number(page.fingerprint), _number(page.verifier)
    observation = bytes.fromhex(page.observation)
    of_page = (page.url, page.id, page.fetched_at, page.features)
    entry = Entry(observation, None, fingerprint, verifier, page.digest, *of_page)
    return fingerprint, Record.of(entry, page.seq, fetched)


def _number(digits: str | None) -> int | None:
    return None if digits is None else int(digits, 16)


def _milliseconds(time: str | None) -> int:
    """Since the epoch; 0 where nothing is said."""
    try:
        return 0 if time is None else max(0, int(datetime.fromisoformat(time).timestamp() * 1000))
    except ValueError:
        return 0


@dataclass(frozen=True)
class ExportFile:
    """An export of an index: its first row says what it is of, its last that it is whole."""

    file: LineFile
    index: IndexRow

    @property
    def profile(self) -> Mapping[str, Any] | None:
        """The recipe of the fingerprints."""
        return self.index.profile

    @property
    def holding(self) -> Holding:
        """What a set of it holds."""
        relation = self.relation(None, 0)
        return Holding(relation.design.bits, True, verifier_bytes(relation), relation.bands)

    def relation(self, design: Design | None, _: int) -> Relation:
        """The index's own relation, unless another design is asked for."""
        row = self.index
        found = design or described(row.design)
        return Relation(found, row.reach, row.verifier_reach, row.verifier_bits, row.bands)

    def batches(self, skip: int) -> Iterator[Portion]:
        """See `EntrySource.batches`; an item is a line.

        Raises:
            InputError: a line is no row of an export, or the end is missing.
        """
        lines = self.file.lines(skip)
        some = list(islice(lines, BATCH_LINES))
        while some:
            rows = [self._row(number, line) for number, line in some]
            behind = list(islice(lines, BATCH_LINES))
            if not behind and not isinstance(rows[-1], EndRow):
                raise InputError(f"{self.file.path} was cut off: its last row is not the end of an export")
            yield Portion(len(some), records=[_entry_of_row(row) for row in rows if isinstance(row, RecordRow)])
            some = behind

    def _row(self, number: int, line: bytes) -> object:
        try:
            return decoded(line)
        except msgspec.DecodeError as error:
            raise InputError(f"{self.file.path}, line {number}: {error}") from error


def _entry_of_row(row: RecordRow) -> Stored:
    observation, verifier = bytes.fromhex(row.observation), _number(row.verifier)
    of_page = (row.url, row.id, row.fetched_at, row.features)
    record = Record(row.seq, row.inserted_ms, observation, verifier, row.digest, *of_page)
    return _number(row.fingerprint), record


TableInput = FingerprintFile | VerdictFile | ExportFile


def open_source(path: Path, bits: int | None, recipe: Profile | None) -> TableInput:
    """The input in a file, by its first line that is not empty.

    Args:
        bits: of bare fingerprints; None: four a digit, of a file without any BARE_BITS.
        recipe: of verdicts; None: the shipped profile that they name.

    Raises:
        InputError: it cannot be read, is of none of these kinds, or names a profile that is not known.
    """
    file = LineFile(path)
    number, line = next(((number, line.strip()) for number, line in file.lines(0) if line.strip()), (0, b""))
    if not line.startswith(b"{"):
        return FingerprintFile(file, bits or _width(file, number, line))
    if bits is not None:
        raise InputError(f"{path} holds records, whose profile says how wide fingerprints are: leave --bits out")
    try:
        if b'"row"' not in line:
            return VerdictFile(file, recipe or shipped(verdict.decode(line).profile))
        first = decoded(line)
        if isinstance(first, IndexRow):
            described(first.design)
            return ExportFile(file, first)
        raise InputError(f"{path}: its first row is not that of an index, so it is no whole export")
    except (msgspec.DecodeError, ProfileError, DesignError) as error:
        raise InputError(f"{path}, first line: neither a fingerprint, a verdict nor an export: {error}") from error


def _width(file: LineFile, number: int, line: bytes) -> int:
    """The width of bare fingerprints, of which this is the first; b"": there are none."""
    found = HEXADECIMAL.fullmatch(line)
    if found and 8 <= 4 * len(found[1]) <= MOST_BITS:
        return 4 * len(found[1])
    if not line:
        return BARE_BITS
    raise InputError(
        f"{file.path}, line {number}: {_shown(line)} is no fingerprint: 2 to {MOST_BITS // 4} hexadecimal digits alone"
        " on a line are expected (or verdicts, or an export)"
    )


def shipped(label: str) -> Profile:
    """The profile that verdicts name as "name/version".

    Raises:
        ProfileError: none of that name and version is shipped.
    """
    found = find_profile(label)
    if found.label != label:
        raise ProfileError(f"verdicts name a profile with its version, not {label!r}")
    return found
