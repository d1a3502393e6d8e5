"""What a terminal must not be told raw: characters that steer it, or turn the direction of what stands there.

URLs and messages come from strangers. Standard output and error escape the C1 controls and what overrides the direction
of writing, in whatever is printed; the other controls are left to those who print (colours are made of them), and
escaped by `plain`.
"""

from __future__ import annotations

import io
import sys

_TURNING = (0x061C, 0x200E, 0x200F, *range(0x2028, 0x202F), *range(0x2066, 0x206A))
_UNSAFE = {code: f"\\x{code:02x}" for code in range(0x80, 0xA0)} | {code: f"\\u{code:04x}" for code in _TURNING}
_STEERING = {code: f"\\x{code:02x}" for code in (*range(0x20), 0x7F)} | _UNSAFE


def plain(text: str) -> str:
    """One line of text that nothing in it can leave."""
    return text.translate(_STEERING)


class _Stream(io.TextIOWrapper):
    def write(self, text: str) -> int:
        return super().write(text if text.isascii() else text.translate(_UNSAFE))


def guard_streams() -> None:
    """Have standard output and error escape what is unsafe, and what their encoding lacks (as \\U0001f600).

    JSON goes past this: it is bytes, and UTF-8 everywhere.
    """
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if type(stream) is io.TextIOWrapper:
            encoding, by_line = stream.encoding, stream.line_buffering
            setattr(sys, name, _Stream(stream.detach(), encoding, "backslashreplace", line_buffering=by_line))
