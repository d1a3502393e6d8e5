"""Hash functions of features, by name: a text in, an integer of a known width out.

Only the hashing of single features lives here. A simhash takes the *low* f bits of a feature's hash; a hash
narrower than the fingerprint would leave bits that no feature ever sets, and is refused (`ProfileError`).

Hashes over bytes see UTF-8; a lone surrogate, which UTF-8 cannot hold, is encoded as three bytes all the
same ("surrogatepass"), so that no text raises. The multiplicative string hash sees code points, as its
publications do.
"""

from __future__ import annotations

import hashlib
import zlib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial

import numpy as np
import xxhash
from numpy.typing import NDArray

from simhash.errors import ProfileError

MIN_BITS = 8
MAX_BITS = 256
WORD_BITS = 64
_MASK_32 = (1 << 32) - 1
_MASK_64 = (1 << 64) - 1


@dataclass(frozen=True, slots=True)
class Hash:
    """A hash of features: its name, its width in bits, and the function to an integer below 2 ** bits.

    The function takes UTF-8 (`of_bytes`) or the text itself (`of_text`).
    """

    name: str
    bits: int
    of_bytes: Callable[[bytes], int] = hash
    of_text: Callable[[str], int] | None = None

    def __call__(self, feature: str) -> int:
        """Return the hash of one feature."""
        return next(self._values((feature,), encode=utf8))

    def words(self, features: Collection[str]) -> NDArray[np.uint64]:
        """Hash many features.

        Returns:
            Shape (n,) for hashes of up to 64 bits, else (n, words): 64-bit words, most significant first.
        """
        try:
            return as_words(self._values(features), self.bits)
        except UnicodeEncodeError:
            return as_words(self._values(features, encode=utf8), self.bits)

    def _values(self, features: Iterable[str], encode: Callable[[str], bytes] = str.encode) -> Iterator[int]:
        # Both maps run in C with str.encode; `utf8` in Python costs as much as hashing itself.
        if self.of_text is not None:
            return map(self.of_text, features)
        return map(self.of_bytes, map(encode, features))


def as_words(values: Iterable[int], bits: int) -> NDArray[np.uint64]:
    """Lay integers out for NumPy: shape (n,), or (n, words) above 64 bits, most significant word first.

    >>> as_words([1, (7 << 64) + 5], 128).tolist()
    [[0, 1], [7, 5]]
    """
    if bits <= WORD_BITS:
        return np.fromiter(values, dtype=np.uint64)
    width = -(-bits // WORD_BITS)
    packed = b"".join(value.to_bytes(8 * width, "big") for value in values)
    return np.frombuffer(packed, dtype=">u8").astype(np.uint64).reshape(-1, width)


def fnv1a_64(data: bytes) -> int:
    """FNV-1a, 64 bits (Fowler, Noll, Vo; offset basis and prime of the authors' page)."""
    value = 0xCBF29CE484222325
    for byte in data:
        value = ((value ^ byte) * 0x100000001B3) & _MASK_64
    return value


def jenkins_64(data: bytes, seed: int = 0) -> int:
    """Bob Jenkins' lookup3 `hashlittle2` (public domain, May 2006) as one 64-bit number.

    The C++ simhash of the cppjieba family seeds the primary word with the high half of `seed`, the secondary
    with the low half, and puts the primary result into the high half. Jenkins' own suggestion is the other
    way round.
    """
    primary, secondary = seed >> 32, seed & _MASK_32
    a = b = (0xDEADBEEF + len(data) + primary) & _MASK_32
    c = (a + secondary) & _MASK_32
    if not data:
        return (c << 32) | b
    # All blocks of 12 bytes but the last are mixed; the last, zero padded, gets the final scramble instead.
    last = (len(data) - 1) // 12 * 12
    for start in range(0, last, 12):
        a, b, c = _jenkins_mix(*_jenkins_add(a, b, c, data[start : start + 12]))
    b, c = _jenkins_final(*_jenkins_add(a, b, c, data[last:]))
    return (c << 32) | b


def _rotate(value: int, by: int) -> int:
    return ((value << by) | (value >> (32 - by))) & _MASK_32


def _jenkins_add(a: int, b: int, c: int, block: bytes) -> tuple[int, int, int]:
    x, y, z = (int.from_bytes(block[i : i + 4], "little") for i in (0, 4, 8))
    return (a + x) & _MASK_32, (b + y) & _MASK_32, (c + z) & _MASK_32


def _jenkins_mix(a: int, b: int, c: int) -> tuple[int, int, int]:
    """Mix three words: six rounds, the roles of the words turning round by round."""
    for by in (4, 6, 8, 16, 19, 4):
        a = ((a - c) & _MASK_32) ^ _rotate(c, by)
        c = (c + b) & _MASK_32
        a, b, c = b, c, a
    return a, b, c


def _jenkins_final(a: int, b: int, c: int) -> tuple[int, int]:
    """Scramble the last block in seven rounds, the roles of the words turning; returns (b, c)."""
    for by in (14, 11, 25, 16, 4, 14, 24):
        c = ((c ^ b) - _rotate(b, by)) & _MASK_32
        a, b, c = b, c, a
    return a, b


def string_hash(text: str, bits: int) -> int:
    """Multiplicative string hash with 1000003 over code points (CPython's before 3.4).

    Kept as the published Python simhash has it, down to an empty text giving 0; CPython had a machine word of
    bits.
    """
    if not text:
        return 0
    mask = (1 << bits) - 1
    value = ord(text[0]) << 7
    for character in text:
        value = ((value * 1000003) ^ ord(character)) & mask
    return value ^ (len(text) & mask)


def utf8(text: str) -> bytes:
    """Encode any Python string, lone surrogates included."""
    return text.encode("utf-8", "surrogatepass")


def _digest(name: str, data: bytes) -> int:
    return int.from_bytes(hashlib.new(name, data, usedforsecurity=False).digest(), "big")


_FIXED: Mapping[str, Hash] = {
    name: Hash(name, bits, of_bytes=function)
    for name, bits, function in (
        ("xxh3_64", 64, xxhash.xxh3_64_intdigest),
        ("xxh3_128", 128, xxhash.xxh3_128_intdigest),
        ("fnv1a_64", 64, fnv1a_64),
        ("jenkins_64", 64, jenkins_64),
        ("crc32", 32, zlib.crc32),
        ("md5", 128, partial(_digest, "md5")),
        ("sha1", 160, partial(_digest, "sha1")),
    )
}
STRING_HASH = "string_"
NAMES = (*_FIXED, f"{STRING_HASH}<bits>")


def named(name: str) -> Hash:
    """Return the hash of that name; "string_<bits>" is the multiplicative string hash at that width.

    Raises:
        ProfileError: no hash has this name.
    """
    if name in _FIXED:
        return _FIXED[name]
    width = name.removeprefix(STRING_HASH)
    if name.startswith(STRING_HASH) and width.isdecimal() and MIN_BITS <= int(width) <= MAX_BITS:
        return Hash(name, int(width), of_text=partial(string_hash, bits=int(width)))
    raise ProfileError(f"no hash is named {name!r}; there are {', '.join(NAMES)} ({MIN_BITS} to {MAX_BITS} bits)")


def of_callable(function: Callable[[str], int], bits: int, name: str | None = None) -> Hash:
    """Wrap any callable from a text to an integer; bits above `bits` are cut off."""
    mask = (1 << bits) - 1
    label = name or f"callable_{getattr(function, '__qualname__', 'unnamed')}"
    return Hash(label, bits, of_text=lambda feature: function(feature) & mask)


def wide_enough(hash_: str | Hash, bits: int) -> Hash:
    """Resolve a hash for a fingerprint of `bits` bits.

    Raises:
        ProfileError: `bits` is not in 8..256, or the hash is unknown or narrower than the fingerprint.
    """
    if not MIN_BITS <= bits <= MAX_BITS:
        raise ProfileError(f"a fingerprint has {MIN_BITS} to {MAX_BITS} bits, not {bits}")
    resolved = named(hash_) if isinstance(hash_, str) else hash_
    if resolved.bits < bits:
        raise ProfileError(f"hash {resolved.name} has {resolved.bits} bits, the fingerprint wants {bits}")
    return resolved
