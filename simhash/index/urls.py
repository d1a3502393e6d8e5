"""URLs in few bytes: zstd with a dictionary that belongs to an index.

A URL of 70 bytes is too short for a compressor that starts from nothing. A dictionary says what URLs have in common
(endings of hosts, paths of content systems, frequent words, and the code tables for what is left). An index is read by
the dictionary that it was written with, so it stores that. One is shipped (`python -m benchmarks.url_dictionary` makes
it); `simhash-dedup plan --urls FILE` trains one on the URLs at hand.

Of a zstd frame only the block's content is kept. All before it is the same for every URL, or follows from the length:

    frame header 2 (no magic, no checksum, no size) | block header 3 (the last block; compressed; its size)
"""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from threading import Lock

import zstandard
from zstandard import FORMAT_ZSTD1_MAGICLESS as MAGICLESS

HEAD = "https://"
SHIPPED_PATH = Path(__file__).with_name("urls.zdict")
LEVEL = 3
"""With its tables computed beforehand a URL takes 8 us, at level 19 58 us and no byte less."""
TRAINING_LEVEL = 19
LEAST_BYTES, MOST_DICTIONARY_BYTES = 1 << 10, 256 << 10
"""Of a dictionary; the index stores it."""
MOST_BYTES = 1 << 16
"""A URL longer than this is kept as it is."""
_FRAME, _BLOCK_BYTES = bytes(2), 3
_TYPICAL_BYTES = 100
_MAGIC = 0xEC30A437.to_bytes(4, "little")
_LAST_COMPRESSED = 1 | 2 << 1


@dataclass(frozen=True)
class UrlDictionary:
    """A dictionary, as zstd trains it.

    Raises:
        ValueError: it is none.
    """

    content: bytes = field(repr=False)

    def __post_init__(self) -> None:
        if not LEAST_BYTES <= len(self.content) <= MOST_DICTIONARY_BYTES:
            sizes = f"{LEAST_BYTES:,} to {MOST_DICTIONARY_BYTES:,}"
            raise ValueError(f"a dictionary for URLs has {sizes} bytes, not {len(self.content):,}")
        if not self.content.startswith(_MAGIC):
            raise ValueError("it does not begin as a dictionary of zstd does")

    @property
    def text(self) -> str:
        """The same as text, for a meta or a row."""
        return b64encode(self.content).decode()

    @staticmethod
    def of_text(text: str) -> UrlDictionary:
        """The inverse.

        Raises:
            ValueError: it is none.
        """
        return UrlDictionary(b64decode(text, validate=True))


class UrlCodec:
    """Compresses and restores by a dictionary. Two threads take turns: the library would crash under both."""

    def __init__(self, dictionary: UrlDictionary) -> None:
        loaded = zstandard.ZstdCompressionDict(dictionary.content, dict_type=zstandard.DICT_TYPE_FULLDICT)
        parameters = zstandard.ZstdCompressionParameters.from_level(
            LEVEL,
            source_size=_TYPICAL_BYTES,
            dict_size=len(dictionary.content),
            format=MAGICLESS,
            write_content_size=0,
            write_checksum=0,
            write_dict_id=0,
        )
        loaded.precompute_compress(compression_params=parameters)
        self._compressor = zstandard.ZstdCompressor(dict_data=loaded, compression_params=parameters)
        self._decompressor = zstandard.ZstdDecompressor(dict_data=loaded, format=MAGICLESS)
        self._turn = Lock()

    def compressed(self, data: bytes) -> bytes | None:
        """In fewer bytes, or None where it does not get shorter."""
        if not data or len(data) > MOST_BYTES:
            return None
        with self._turn:
            frame = self._compressor.compress(data)
        body = frame[len(_FRAME) + _BLOCK_BYTES :]
        is_plain = frame[: -len(body) or None] == _FRAME + _block(len(body))
        return body if is_plain and len(body) < len(data) else None

    def decompressed(self, body: bytes) -> bytes:
        """The inverse of `compressed`.

        Raises:
            ValueError: these are no bytes that it gave.
        """
        try:
            with self._turn:
                return self._decompressor.decompress(_FRAME + _block(len(body)) + body, max_output_size=MOST_BYTES)
        except zstandard.ZstdError as error:
            raise ValueError(f"the bytes of a URL are none of this dictionary's: {error}") from error


def _block(size: int) -> bytes:
    """The header of the last block, a compressed one, of so many bytes."""
    return (_LAST_COMPRESSED | size << 3).to_bytes(_BLOCK_BYTES, "little")


def trained(urls: Sequence[str], size: int) -> UrlDictionary:
    """A dictionary of at most `size` bytes for URLs like these; the same for the same URLs.

    Raises:
        ValueError: they are too few, or too much alike.
    """
    samples: list[bytes | bytearray | memoryview[int]] = [url.removeprefix(HEAD).encode() for url in urls]
    try:
        return UrlDictionary(zstandard.train_dictionary(size, samples, level=TRAINING_LEVEL).as_bytes())
    except zstandard.ZstdError as error:
        raise ValueError(f"{len(samples):,} URLs of {sum(map(len, samples)):,} bytes teach nothing: {error}") from error


def stored_bytes(dictionary: UrlDictionary, urls: Sequence[str]) -> float:
    """The bytes that one of these URLs takes, on average; 0 of none."""
    codec = UrlCodec(dictionary)
    plain = [url.removeprefix(HEAD).encode() for url in urls]
    taken = [min(len(data), len(codec.compressed(data) or data)) for data in plain]
    return sum(taken) / len(taken) if taken else 0.0


@cache
def shipped() -> UrlDictionary:
    """The dictionary that an index takes where nobody names one."""
    return UrlDictionary(SHIPPED_PATH.read_bytes())
