"""The inside of an index in Redis, for what operators do with it: its connection, its layout, and its script."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from importlib import resources
from typing import Any

from simhash.index.redis.layout import Layout

_SOURCE = resources.files("simhash.index.redis").joinpath("lua", "index.lua").read_text(encoding="utf-8")
_AT_ONCE = """
local answers, at = {}, 1
while at <= #ARGV do
  local size = tonumber(ARGV[at])
  answers[#answers + 1] = redis.call(unpack(ARGV, at + 1, at + size))
  at = at + size + 1
end
return answers
"""
"""A script: of each command how many words it has, and these."""


@dataclass(frozen=True)
class Inside:
    """An opened index.

    Attributes:
        client: a connection; answers as bytes.
        generation: must be what the index says of itself when a script is called.
        source: the script `lua/index.lua`, made for this index.
    """

    client: Any
    layout: Layout
    generation: str
    source: str = field(init=False, repr=False)
    _script: Any = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "source", self.layout.for_script(_SOURCE))
        object.__setattr__(self, "_script", self.client.register_script(self.source))

    def run(self, verb: str, *arguments: bytes | str | int, client: Any = None) -> Any:
        """Do what the script does under this verb, as one step; with `client` on that connection or pipeline."""
        return self._script(keys=[self.layout.meta], args=[verb, self.generation, *arguments], client=client)

    def at_once(self, commands: Iterable[tuple[bytes | str | int, ...]]) -> list[Any]:
        """What commands that read answer, all at one moment.

        By a script: a server whose memory is full refuses a transaction, though it only reads.
        """
        words = [word for command in commands for word in (len(command), *command)]
        answers: list[Any] = self.client.eval(_AT_ONCE, 1, self.layout.meta, *words)
        return answers
