"""JSON of strangers into structs: whatever is wrong with it is one error."""

from __future__ import annotations

from typing import Generic, TypeVar

import msgspec

T = TypeVar("T")


class Decoder(Generic[T]):
    """As `msgspec.json.Decoder`, which has errors of three kinds for what is none.

    Args:
        kind: what is decoded.
    """

    def __init__(self, kind: type[T]) -> None:
        self._decoder: msgspec.json.Decoder[T] = msgspec.json.Decoder(kind)

    def decode(self, data: bytes) -> T:
        """What `data` holds.

        Raises:
            msgspec.DecodeError: it is no JSON, not UTF-8, of another kind, or nested too deeply.
        """
        try:
            return self._decoder.decode(data)
        except RecursionError as error:
            raise msgspec.DecodeError("JSON nested too deeply") from error
        except UnicodeDecodeError as error:
            raise msgspec.DecodeError(str(error)) from error
