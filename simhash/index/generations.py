"""The generations of an index: what one is made with, what the next one is called, and how it lies while it is filled.

ns:meta names the generation. While an index is migrated, its `next` is what the next one's keys start with, and under
these keys there is a meta as well, with the next one's spec.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import msgspec

from simhash.errors import IndexMismatch
from simhash.index.interface import IndexSpec
from simhash.index.layout import Layout
from simhash.index.specs import decoded, fields_of, spec_of
from simhash.tables import described

_MADE_WITH = ("design", "bucket_bits", "capacity", "profile")


class Begun(NamedTuple):
    """A migration that was begun and is not ended.

    Attributes:
        design: the name of the next generation's.
        copied: the last number whose record is in the next generation, of all from before; of how many: `last`.
    """

    design: str
    bucket_bits: int
    copied: int
    last: int


def begun(fields: Mapping[str, str]) -> Begun:
    """The migration to a generation whose meta has these fields."""
    return Begun(_design_name(fields), int(fields["bucket_bits"]), int(fields["carried"]), int(fields["last"]))


def made_with(spec: IndexSpec) -> dict[str, str]:
    """What tells two specs of one index apart, as ns:meta has it."""
    fields = fields_of(spec)
    return {name: v.decode() if isinstance(v := fields[name], bytes) else str(v) for name in _MADE_WITH}


def next_keys(name: str, keys: str) -> str:
    """What the keys of the generation behind the one with these `keys` start with."""
    return f"{name}~{2 if keys != f'{name}~2' else 1}"


def next_generation(generation: str, spec: IndexSpec) -> str:
    """The generation with this spec that follows another: it was never there before, though the spec was."""
    number = int(generation.partition("-")[0]) + 1
    return f"{number}-{str(fields_of(spec)['generation']).partition('-')[2]}"


def switched_fields(generation: str, spec: IndexSpec) -> dict[str, str | int | bytes]:
    """What an index's meta takes over of the spec that follows this generation; its counters go on."""
    fields = {name: value for name, value in fields_of(spec).items() if name not in ("seq", "documents")}
    return fields | {"generation": next_generation(generation, spec)}


def next_layout(client: Any, name: str) -> Layout | None:
    """The layout of the generation that lies beside the index called `name` on one primary; None: there is none."""
    keys = client.hget(f"{name}:meta", "next")
    stored = fields_in(client, f"{keys.decode()}:meta") if keys else None
    return Layout(name, spec_of(stored, name), keys.decode()) if stored else None


def fields_in(client: Any, key: str) -> dict[str, str]:
    """The fields of a meta; none when it is not there."""
    return decoded(client.hgetall(key))


def refuse_begun_otherwise(name: str, fields: Mapping[str, str], wanted: IndexSpec) -> None:
    """Raise IndexMismatch when a migration was begun, as the next generation's meta says, and this is not wanted."""
    if {field: fields[field] for field in _MADE_WITH} != made_with(wanted):
        raise begun_otherwise(name, fields)


def begun_otherwise(name: str, fields: Mapping[str, str]) -> IndexMismatch:
    """The error where a migration was begun, to what the next generation's meta says, and something else is wanted."""
    return IndexMismatch(
        f"a migration of {name!r} was begun, to design {_design_name(fields)} with {fields['bucket_bits']} bucket bits "
        f"for {int(fields['capacity']):,} pages: finish it as it was begun, or give it up: "
        "simhash-dedup index migrate --abandon"
    )


def _design_name(fields: Mapping[str, str]) -> str:
    return described(msgspec.json.decode(fields["design"])).name
