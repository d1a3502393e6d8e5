"""The inside of an index in Redis, for what operators do with it: its connection, its layout, and its scripts.

Each script is one atomic step. It is made of files of `script`: first those that know how an index lies, then the one
that does the work, which tells its arguments.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cache
from importlib import resources
from typing import Any

import msgspec

from simhash.index.layout import Layout

_FOLDER = resources.files("simhash.index").joinpath("script")
_COMMON = ("call", "bits", "records", "beside", "retention", "writing")
_NOTHING_ASKED = msgspec.json.encode(
    {"now_ms": 0, "max_age_ms": -1, "max_documents": -1, "expire_per_page": 0, "partitions": []}
)


@cache
def source(*parts: str) -> str:
    """The Lua of a script, from its parts; an index's `Layout.for_script` goes before it."""
    return "\n".join(_FOLDER.joinpath(f"{part}.lua").read_text(encoding="utf-8") for part in parts)


@dataclass(frozen=True)
class Inside:
    """An opened index.

    Attributes:
        client: a connection; answers as bytes.
        generation: must be what the index says of itself when a script is called.
    """

    client: Any
    layout: Layout
    generation: str
    _scripts: dict[tuple[str, ...], Any] = field(default_factory=dict, compare=False, repr=False)

    def run(self, parts: tuple[str, ...], *arguments: bytes | str | int, client: Any = None) -> Any:
        """Call the script of the common parts and these; with `client` on that connection or pipeline."""
        if parts not in self._scripts:
            text = self.layout.for_script() + source(*_COMMON, *parts)
            self._scripts[parts] = self.client.register_script(text)
        fixed = [self.generation, _NOTHING_ASKED]
        return self._scripts[parts](keys=[self.layout.meta], args=[*fixed, *arguments], client=client)
