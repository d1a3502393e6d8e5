"""Plain data as a Lua expression: what a script must know is written into it, and not read anew at each call."""

from __future__ import annotations

from collections.abc import Mapping, Sequence


def expression(value: object) -> str:
    """A string, a whole number, a list, or a table whose keys are names; of these.

    Raises:
        TypeError: it is something else.
    """
    if isinstance(value, str):
        return '"' + "".join(map(_escaped, value.encode())) + '"'
    if isinstance(value, int):
        return str(int(value))
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{name} = {expression(each)}" for name, each in value.items()) + "}"
    if isinstance(value, Sequence):
        return "{" + ", ".join(map(expression, value)) + "}"
    raise TypeError(f"no Lua for {value!r}")


def _escaped(byte: int) -> str:
    char = chr(byte)
    return char if 32 <= byte < 127 and char not in '"\\' else f"\\{byte:03d}"
