"""What {ns}:meta says of an index: its spec, the generation that is the digest of it, and what follows a generation."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

import msgspec

from simhash.errors import DesignError, IndexMismatch
from simhash.index.interface import FORMAT, IndexSpec, Relation
from simhash.index.redis.layout import tag_of
from simhash.index.urls import UrlDictionary
from simhash.relation.tables import described

MADE_WITH = ("design", "bucket_bits", "capacity", "profile")
"""Fields of the meta that a migration can change, or must not."""
STATE = ("seq", "first", "documents")
"""Fields that change with each page."""
REPLACED_FIELD = "retired"
"""Field that says what the keys of tables start with which a migration has replaced, until it has removed them."""
_json = msgspec.json.Encoder(order="sorted")


def fields_of(spec: IndexSpec) -> dict[str, str | int | bytes]:
    """What ns:meta holds of an index that is made with this spec."""
    relation = spec.relation
    fields: dict[str, str | int | bytes] = {
        "format": FORMAT,
        "profile": _json.encode(spec.profile),
        "bits": relation.design.bits,
        "k": relation.design.k,
        "reach": relation.reach,
        "verifier_reach": -1 if relation.verifier_reach is None else relation.verifier_reach,
        "verifier_bits": relation.verifier_bits,
        "bands": relation.bands,
        "design": _json.encode(relation.design.describe()),
        "bucket_bits": spec.bucket_bits,
        "capacity": spec.capacity,
        "urls": spec.urls.text,
    }
    digest = hashlib.blake2b(_json.encode({k: str(v) for k, v in fields.items()}), digest_size=6).hexdigest()
    return fields | {"generation": f"1-{digest}", "seq": 0, "first": 1, "documents": 0}


def flat(fields: Mapping[str, str | int | bytes]) -> list[str | int | bytes]:
    """Field, value, field, value … as a script takes them."""
    return [part for pair in fields.items() for part in pair]


def fields_in(client: Any, key: str) -> dict[str, str]:
    """The fields of a meta; none when it is not there."""
    return {field.decode(): value.decode(errors="backslashreplace") for field, value in client.hgetall(key).items()}


def made_with(spec: IndexSpec) -> dict[str, str]:
    """What tells two specs of one index apart, as the meta has it."""
    fields = fields_of(spec)
    return {name: v.decode() if isinstance(v := fields[name], bytes) else str(v) for name in MADE_WITH}


def next_keys(name: str, keys: str) -> str:
    """What the keys of the generation behind the one with these `keys` start with."""
    tag = tag_of(name)
    return f"{tag}~{2 if keys != f'{tag}~2' else 1}"


def next_generation(generation: str, spec: IndexSpec) -> str:
    """The generation with this spec that follows another: it was never there before, though the spec was."""
    number = int(generation.partition("-")[0]) + 1
    return f"{number}-{str(fields_of(spec)['generation']).partition('-')[2]}"


def spec_of(stored: Mapping[str, str], name: str) -> IndexSpec:
    """The spec in the fields of ns:meta.

    Raises:
        IndexMismatch: it is of another format, or not whole yet.
    """
    if not stored.keys() >= {"generation", "format"}:
        raise _damaged(name, f"it has no {' and no '.join(sorted({'generation', 'format'} - stored.keys()))}")
    if stored["generation"].startswith("importing "):
        raise IndexMismatch(
            f"index {name!r} is not complete: an import or a rebuild of it was begun. Given the same once more, "
            "`simhash-dedup index import`, or `rebuild`, goes on with it; to begin anew, use another --index-name"
        )
    if stored["format"] != str(FORMAT):
        raise IndexMismatch(
            f"index {name!r} has format {stored['format']}, this program reads format {FORMAT}: "
            "rebuild it from the verdict topic, or start a new index under another name"
        )
    return spec_in(stored, name)


def spec_in(stored: Mapping[str, str], name: str) -> IndexSpec:
    """The spec in the fields of ns:meta, of an index of this format, though it be filled just now.

    Raises:
        IndexMismatch: they are damaged.
    """
    try:
        return _parsed(stored)
    except KeyError as error:
        raise _damaged(name, f"it has no {error.args[0]}") from error
    except (ValueError, msgspec.MsgspecError, DesignError) as error:
        raise _damaged(name, str(error)) from error


def whole_number(value: bytes | str, where: str) -> int:
    """The number that a field of an index holds.

    Raises:
        IndexMismatch: it holds something else.
    """
    try:
        return int(value)
    except ValueError:
        raise IndexMismatch(f"{where} is damaged: {value!r:.40} is no number. {_MADE_AGAIN}") from None


_MADE_AGAIN = "Restore Redis, or make the index again from the verdicts: simhash-dedup rebuild"


def _damaged(name: str, what: str) -> IndexMismatch:
    return IndexMismatch(f"the meta of index {name!r} is damaged: {what}. {_MADE_AGAIN}")


def _parsed(stored: Mapping[str, str]) -> IndexSpec:
    verifier_reach = int(stored["verifier_reach"])
    relation = Relation(
        described(msgspec.json.decode(stored["design"])),
        int(stored["reach"]),
        None if verifier_reach < 0 else verifier_reach,
        int(stored["verifier_bits"]),
        int(stored["bands"]),
    )
    profile: dict[str, object] = msgspec.json.decode(stored["profile"])
    urls = UrlDictionary.of_text(stored["urls"])
    return IndexSpec(profile, relation, int(stored["bucket_bits"]), int(stored["capacity"]), urls)


def refuse_differences(name: str, found: IndexSpec, wanted: IndexSpec, adopt_design: bool) -> None:
    """Raise IndexMismatch, which says what differs, unless an index is what is wanted."""
    pairs: dict[str, tuple[object, object]] = {
        "reach": (found.relation.reach, wanted.relation.reach),
        "verifier_reach": (found.relation.verifier_reach, wanted.relation.verifier_reach),
        "bits": (found.relation.design.bits, wanted.relation.design.bits),
        "verifier_bits": (found.relation.verifier_bits, wanted.relation.verifier_bits),
        "bands": (found.relation.bands, wanted.relation.bands),
    }
    if not adopt_design:
        pairs["design"] = (found.relation.design.name, wanted.relation.design.name)
    differing = [f"{what}: index {a}, worker {b}" for what, (a, b) in pairs.items() if a != b]
    recipe = msgspec.json.decode(_json.encode(wanted.profile))
    for field in sorted(found.profile.keys() | recipe.keys()):
        a, b = found.profile.get(field), recipe.get(field)
        if a != b:
            differing.append(f"profile {field}: index {a!r}, worker {b!r}")
    if not differing:
        return
    label, ours = (f"{each.get('name')}/{each.get('version')}" for each in (found.profile, recipe))
    advice = ""
    if label != ours:
        advice = (
            f": it is one of profile {label}, this worker judges by {ours}. --profile {label} goes on with it; "
            f"to judge by {ours}, start a new index under another name"
        )
    raise IndexMismatch(f"index {name!r} was made with other settings{advice} ({'; '.join(differing)})")
