"""The native kernel: the one place that imports it, says whether it is in use and why not, and asks it.

The extension `simhash._native` (Rust, `native/`) does in one pass what `profiles` does in NumPy, bit for bit, for
recipes of `TokenPairs` with a `MinHashSketch`. It reads HTML as `simhash.reading.main_text` does. It packs and unpacks
the blocks of `simhash.archive`, and keeps the pages of an index in memory. It is optional: where it was not built, or
was built for another version, Python and NumPy do the work.

What the kernel knows of characters comes from here: the kinds of `segment.kinds_table`, and from `normalisation` the
forms, under the recipe's normalisation, of characters that fold the same wherever they stand. A part of a text with any
other character (a combining mark, say) is normalised by Python.
"""

from __future__ import annotations

import importlib
import re
from collections.abc import Callable, Iterator
from functools import cache, partial
from typing import NamedTuple, Protocol

from simhash.features import segment
from simhash.features.normalisation import KNOWN, Normalisation, changed, contextual, normalise, parts

INTERFACE = 11
"""The extension's number for what is passed to and fro: one left over from another version is not used."""

_MODULE = "simhash._native"
_SPACE = 128

_Answer = tuple[int | None, bytes | None, str | None, int]


class _Kernel(Protocol):
    def read(self, parts: Iterator[str], normalise: Callable[[str], str], expected: int, limit: int) -> _Answer: ...


class BlockKernel(Protocol):
    """The code of one compressed table; see `simhash.archive.format.blocks`. Keys are the bytes of their array."""

    def encode(self, keys: bytes) -> tuple[bytes, bytes, bytes]:
        """Blocks of ascending keys: their bytes, sizes and checks; ValueError where they descend."""

    def decode(self, data: bytes, sizes: bytes, checks: bytes, count: int) -> bytes:
        """The keys of blocks; ValueError with a block's number and what is wrong with it."""


_TableCode = BlockKernel


class BlockFile(Protocol):
    """A table that the kernel has open."""


Question = tuple[BlockFile, bytes, int, int]
"""A table; queries, as its keys are; how many of their first bits a key must share, but for how many of these."""


class BlockFunctions(Protocol):
    """What the extension has for compressed tables."""

    def BlockKernel(self, width: int, block_keys: int, lengths: list[int]) -> BlockKernel:  # noqa: N802
        """The kernel of one table's code."""

    def BlockFile(  # noqa: N802
        self, path: str, kernel: _TableCode, lasts: bytes, ends: bytes, checks: bytes, start: int, items: int
    ) -> BlockFile:
        """A table, opened; OSError where it cannot be.

        Args:
            lasts, ends, checks: of each block the last key, the end (u64, counted from `start`), the check (u32).
        """

    def near_in(self, asked: list[Question], reach: int, threads: int) -> list[tuple[bytes, bytes, bytes]]:
        """For each question the numbers of queries (u32), keys within `reach` bits of them, the distances (u32).

        ValueError with the question's number, the block's and what is wrong with it.
        """

    def gap_counts(self, keys: bytes, width: int) -> list[int]:
        """How often each first differing bit occurs among ascending keys; ValueError where they descend."""

    def sorted_keys(self, keys: bytes, words: int) -> bytes:
        """Keys of so many words, ascending."""


class PageReader(Protocol):
    """`simhash.reading.main_text.read` in the kernel."""

    def read(self, html: bytes) -> tuple[str, str, str, str, str]:
        """The fields of an `Extracted` of a page in UTF-8."""

    def metadata(self, html: bytes) -> tuple[str, str, str]:
        """Its language, canonical URL and robots, as there."""

    def scores(self, html: str) -> list[int]:
        """Of each block what the decision says, for tests."""


class StoredPages(Protocol):
    """The stored pages of an index in memory; see `simhash.index.memory`."""

    def matches(self, fingerprint: int, verifier: bytes, copy: int | None) -> tuple[list[tuple[int, int]], int]:
        """Number and distance of all that match a page, ascending; and how many it was compared with.

        Args:
            verifier: with its band keys; empty where the relation has none.
            copy: a page that is met wherever it stands.
        """

    def met(self, fingerprint: int) -> list[int]:
        """The numbers of all that share a prefix with a fingerprint, as the tables are probed; ascending."""

    def record(self, number: int) -> bytes:
        """The record of this number, from 1."""

    def add(self, record: bytes, stands: bool) -> bool:
        """Store a record under the next number; whether one of its places was full.

        Args:
            stands: it has a fingerprint.
        """

    def forget(self, number: int, stands: bool) -> None:
        """Forget a record: the oldest."""


class _Extension(BlockFunctions, Protocol):
    INTERFACE: int

    def is_utf8(self, data: bytes) -> bool: ...

    def count_controls(self, utf8: bytes) -> int: ...

    def Stored(self, **told: object) -> StoredPages: ...  # noqa: N802

    def MainText(self, **told: object) -> PageReader: ...  # noqa: N802

    def Characters(  # noqa: N802
        self, kinds: bytes, known: int, changed: list[tuple[int, str]], contextual: list[int]
    ) -> object: ...

    def Kernel(self, characters: object, **recipe: int | None) -> _Kernel: ...  # noqa: N802


class Reading(NamedTuple):
    """What the kernel found: as in `profiles.Signature`, but for the digest, 32 hexadecimal digits or None."""

    fingerprint: int | None
    verifier: int | None
    digest: str | None
    features: int


class KernelRecipe(NamedTuple):
    """A recipe that the kernel implements: the normalisation, and plain numbers; the last five are the sketch's."""

    normalisation: Normalisation
    bits: int
    zero_sum: bool
    cap: int | None
    min_features: int
    n: int
    bins: int
    bands: int
    rows: int
    fold: int


def absence() -> str | None:
    """Why the kernel is not in use, None if it is."""
    found = _load()
    return found if isinstance(found, str) else None


def describe() -> str:
    """One line for people: which implementation computes signatures."""
    reason = absence()
    return "native kernel" if reason is None else f"NumPy ({reason})"


def read(recipe: KernelRecipe, text: str) -> Reading | None:
    """The signature of a text, any string, by the kernel; None if it is not in use."""
    kernel = _kernel(recipe)
    if kernel is None:
        return None
    fold = partial(normalise, how=recipe.normalisation)
    gate, verifier, digest, features = kernel.read(parts(text), fold, len(text), segment.PIECE_CHARACTERS)
    return Reading(gate, None if verifier is None else int.from_bytes(verifier), digest, features)


def blocks() -> BlockFunctions | None:
    """What the kernel does for compressed tables; None if it is not in use."""
    found = _load()
    return None if isinstance(found, str) else found


def page_reader(**told: object) -> PageReader | None:
    """What the kernel does for HTML, told all that it has to know of names, words and weights; None if not in use."""
    found = _load()
    return None if isinstance(found, str) else found.MainText(**told)


def stored(**told: object) -> StoredPages | None:
    """The pages of an index in memory, told the numbers of its relation; None if not in use."""
    found = _load()
    return None if isinstance(found, str) else found.Stored(**told)


def is_utf8(data: bytes) -> bool | None:
    """Whether these bytes are; None if the kernel is not in use."""
    found = _load()
    return None if isinstance(found, str) else found.is_utf8(data)


def count_controls(utf8: bytes) -> int | None:
    """`simhash.reading.charset.count_controls` in the kernel; None if it is not in use."""
    found = _load()
    return None if isinstance(found, str) else found.count_controls(utf8)


@cache
def _load() -> _Extension | str:
    """The extension, or the reason why there is none."""
    try:
        extension: _Extension = importlib.import_module(_MODULE)
    except ImportError as error:
        return f"{_MODULE} cannot be imported: {error}"
    if extension.INTERFACE != INTERFACE:
        return f"{_MODULE} has interface {extension.INTERFACE}, {INTERFACE} is needed: build it again"
    return extension


@cache
def _kernel(recipe: KernelRecipe) -> _Kernel | None:
    extension = _load()
    if isinstance(extension, str):
        return None
    numbers = recipe._asdict()
    return extension.Kernel(_characters(numbers.pop("normalisation")), **numbers)


@cache
def _characters(how: Normalisation) -> object:
    """The tables of characters under a normalisation: 0.07 s once a process, 2 MB."""
    extension = _load()
    assert not isinstance(extension, str)
    return extension.Characters(_kinds_and_spaces(), KNOWN, changed(how), list(contextual(how)))


def _kinds_and_spaces() -> bytes:
    table = segment.kinds_table().copy()
    spaces = re.findall(r"\s", segment.code_points(KNOWN))
    table[[*map(ord, spaces)]] |= _SPACE
    return table.tobytes()
