"""Arrays of keys: fingerprints of any width as machine words, permuted, sorted, searched and compared.

A *key* of `width` bits lies left-aligned in W = ceil(width / 64) words of 64 bits, the most significant word first,
so that bit 0 is the most significant bit of word 0 whatever the width, and comparing words from the left compares
keys. An array of n keys has the shape (n, W). Nothing here knows of files.

Worked example (width 8): the fingerprint 0x2e is the one word 0x2e00000000000000.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from simhash import native
from simhash.errors import WidthError
from simhash.relation.tables import Table

WORD = 64
SLICE_KEYS = 1 << 12
Keys = NDArray[np.uint64]
"""Shape (n, W)."""
_ONES = np.uint64(0xFFFFFFFFFFFFFFFF)


def words(width: int) -> int:
    """W: how many words a key of `width` bits has."""
    return -(-width // WORD)


def from_ints(values: Iterable[int], width: int) -> Keys:
    """Fingerprints as keys.

    Raises:
        WidthError: one is wider.
    """
    size, shift = 8 * words(width), WORD * words(width) - width
    try:
        data = b"".join((value << shift).to_bytes(size) for value in values)
    except OverflowError as error:
        raise WidthError(f"a fingerprint is no number of {width} bits") from error
    return np.frombuffer(data, dtype=">u8").astype(np.uint64).reshape(-1, words(width))


def to_ints(keys: Keys, width: int) -> list[int]:
    """The inverse of `from_ints`."""
    shift = WORD * words(width) - width
    if keys.shape[1] == 1:
        return [value >> shift for value in keys[:, 0].tolist()]
    size, data = 8 * keys.shape[1], keys.astype(">u8").tobytes()
    return [int.from_bytes(data[at : at + size]) >> shift for at in range(0, len(data), size)]


def bits_at(keys: Keys, start: int, count: int) -> NDArray[np.uint64]:
    """`count` (1 to 64) bits from bit `start` on, as numbers; shape (n,)."""
    word, offset = divmod(start, WORD)
    found = keys[:, word] << np.uint64(offset)
    if offset + count > WORD:
        found |= keys[:, word + 1] >> np.uint64(WORD - offset)
    found >>= np.uint64(WORD - count)
    return found


def put_bits(keys: Keys, start: int, count: int, values: NDArray[np.uint64]) -> None:
    """Put `count` (1 to 64) bits where there are zeros."""
    word, offset = divmod(start, WORD)
    aligned = values << np.uint64(WORD - count)
    keys[:, word] |= aligned >> np.uint64(offset)
    if offset + count > WORD:
        keys[:, word + 1] |= aligned << np.uint64(WORD - offset)


def permuted(keys: Keys, table: Table) -> Keys:
    """The keys with the table's blocks in front."""
    return _moved(keys, list(_moves(table)))


def restored(keys: Keys, table: Table) -> Keys:
    """The inverse of `permuted`."""
    return _moved(keys, [(target, source, count) for source, target, count in _moves(table)])


def _moved(keys: Keys, moves: Sequence[tuple[int, int, int]]) -> Keys:
    """The keys with runs of bits moved from one place to another, a slice that stays in the cache at a time."""
    found = np.zeros_like(keys)
    for start in range(0, len(keys), SLICE_KEYS):
        before, after = keys[start : start + SLICE_KEYS], found[start : start + SLICE_KEYS]
        for source, target, count in moves:
            put_bits(after, target, count, bits_at(before, source, count))
    return found


def _moves(table: Table) -> Iterator[tuple[int, int, int]]:
    """Runs of at most 64 bits: where they stand in the fingerprint, where in the permuted one, how many."""
    runs: list[list[int]] = []
    target = 0
    for block in table.blocks:
        if runs and runs[-1][0] + runs[-1][2] == block.start:
            runs[-1][2] += block.width
        else:
            runs.append([block.start, target, block.width])
        target += block.width
    for source, put, count in runs:
        for at in range(0, count, WORD):
            yield source + at, put + at, min(WORD, count - at)


def joined(left: NDArray[np.uint64], left_bits: int, right: Keys, right_bits: int) -> Keys:
    """Numbers of `left_bits` bits in front of keys of `right_bits`: keys of both together."""
    found = np.zeros((len(right), words(left_bits + right_bits)), np.uint64)
    put_bits(found, 0, left_bits, left)
    for at in range(0, right_bits, WORD):
        count = min(WORD, right_bits - at)
        put_bits(found, left_bits + at, count, bits_at(right, at, count))
    return found


def without_front(keys: Keys, front: int, width: int) -> Keys:
    """What is left of keys of `width` bits without their first `front` bits."""
    found = np.zeros((len(keys), words(width - front)), np.uint64)
    for at in range(0, width - front, WORD):
        count = min(WORD, width - front - at)
        put_bits(found, at, count, bits_at(keys, front + at, count))
    return found


def front_mask(count: int, size: int) -> NDArray[np.uint64]:
    """One key of `size` words whose first `count` bits are set; shape (size,)."""
    mask = np.zeros(size, np.uint64)
    full, rest = divmod(count, WORD)
    mask[:full] = _ONES
    if rest:
        mask[full] = _ONES << np.uint64(WORD - rest)
    return mask


def in_order(keys: Keys) -> Keys:
    """The keys, ascending."""
    if keys.shape[1] == 1:
        return np.sort(keys[:, 0]).reshape(-1, 1)
    kernel = native.blocks()
    if kernel is not None:
        ordered = kernel.sorted_keys(keys.tobytes(), keys.shape[1])
        return np.frombuffer(ordered, np.uint64).reshape(keys.shape)
    return keys[np.lexsort(keys.T[::-1])]


def less(a: Keys, b: Keys) -> NDArray[np.bool_]:
    """Whether a[i] < b[i]; shape (n,)."""
    found = a[:, -1] < b[:, -1]
    for word in reversed(range(a.shape[1] - 1)):
        found = (a[:, word] < b[:, word]) | ((a[:, word] == b[:, word]) & found)
    return found


def bound(ordered: Keys, targets: Keys, after: bool) -> NDArray[np.int64]:
    """Where each target would go into ascending keys: before its equals, or after them; shape (targets,)."""
    if ordered.shape[1] == 1:
        return np.searchsorted(ordered[:, 0], targets[:, 0], "right" if after else "left").astype(np.int64)
    low = np.zeros(len(targets), np.int64)
    high = np.full(len(targets), len(ordered), np.int64)
    for _ in range(len(ordered).bit_length()):
        open_ = low < high
        middle = np.where(open_, (low + high) // 2, 0)
        found = ordered[middle]
        right = open_ & (~less(targets, found) if after else less(found, targets))
        low = np.where(right, middle + 1, low)
        high = np.where(open_ & ~right, middle, high)
    return low


def distances(a: Keys, b: Keys) -> NDArray[np.int64]:
    """Differing bits of each pair; shape (n,)."""
    counted: NDArray[np.int64] = np.bitwise_count(a ^ b).sum(axis=1, dtype=np.int64)
    return counted


def first_differences(keys: Keys, width: int) -> NDArray[np.int64]:
    """h of each key but the first: the position of the first bit that differs from the key before; shape (n - 1,).

    Equal neighbours have h = `width`.
    """
    found = np.full(max(len(keys) - 1, 0), width, np.int64)
    for word in reversed(range(keys.shape[1])):
        different = keys[1:, word] ^ keys[:-1, word]
        found = np.where(different != 0, WORD * word + WORD - _bit_length(different), found)
    return found


def _bit_length(values: NDArray[np.uint64]) -> NDArray[np.int64]:
    smeared = values.copy()
    for shift in (1, 2, 4, 8, 16, 32):
        smeared |= smeared >> np.uint64(shift)
    return np.bitwise_count(smeared).astype(np.int64)
