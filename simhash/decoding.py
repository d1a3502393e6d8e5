"""JSON of strangers into structs: what is nested too deeply is an error of its reader's kind, not of this program's."""

from __future__ import annotations

from typing import Generic, TypeVar

import msgspec

T = TypeVar("T")


class Decoder(Generic[T]):
    """As `msgspec.json.Decoder`, which raises RecursionError for it.

    Args:
        kind: what is decoded.
    """

    def __init__(self, kind: type[T]) -> None:
        self._decoder: msgspec.json.Decoder[T] = msgspec.json.Decoder(kind)

    def decode(self, data: bytes) -> T:
        """What `data` holds.

        Raises:
            msgspec.DecodeError: it is no JSON, of another kind, or nested too deeply.
        """
        try:
            return self._decoder.decode(data)
        except RecursionError as error:
            raise msgspec.DecodeError("JSON nested too deeply") from error
