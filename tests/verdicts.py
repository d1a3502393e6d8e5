"""Verdicts as an index gives them, without a worker: what checks from outside are tried on."""

import json
from collections.abc import Sequence
from random import Random

from simhash.index import Duplicate, Entry, IndexSpec, Relation, Unique
from simhash.index.memory import MemoryIndex
from simhash.relation.tables import design
from tests.pages import VERIFIER_BITS, banded, crowd, entry

BANDS = 3


def relation(name: str = "6", reach: int = 8, bits: int = 64) -> Relation:
    """A relation with everything: tables, a verifier, bands."""
    return Relation(design(name, bits), reach, 14, VERIFIER_BITS, BANDS)


def flags(rule: Relation, *more: object) -> list[object]:
    """The relation as flags of `simhash-dedup verify`, but for its design."""
    words = {"k": rule.design.k, "reach": rule.reach, "verifier-reach": rule.verifier_reach}
    words |= {"verifier-bits": rule.verifier_bits, "bands": rule.bands}
    return [word for name, value in words.items() for word in (f"--{name}", value)] + list(more)


def pages(count: int, seed: int, bits: int = 64) -> list[Entry]:
    """A crowd of near neighbours with band keys."""
    random = Random(seed)
    return banded(crowd(count, random, bits), BANDS, random)


def of_fingerprints(*values: int) -> list[Entry]:
    """Pages of these fingerprints, whose verifiers agree; without band keys."""
    return [entry(number, value, 0) for number, value in enumerate(values)]


def judged(entries: Sequence[Entry], rule: Relation) -> list[dict]:
    """The verdicts on these pages, in their order, as the worker writes them."""
    index = MemoryIndex(IndexSpec({}, rule, 8, 1000))
    answers = index.check_and_insert(entries, {})
    return [verdict(page, answer.decision, rule) for page, answer in zip(entries, answers, strict=True)]


def verdict(page: Entry, decision: Unique | Duplicate, rule: Relation) -> dict:
    """One of them."""
    width = rule.verifier_bits + 32 * rule.bands
    match = None
    if isinstance(decision, Duplicate):
        record = decision.match
        match = {
            "url": record.url,
            "id": record.id,
            "distance": decision.distance,
            "kind": "exact" if record.has_text_of(page.digest) else "near",
            "same_url": record.url == page.url,
            "fetched_at": record.fetched_at,
            "seq": record.seq,
        }
    return {
        "url": page.url,
        "id": page.id,
        "verdict": "duplicate" if match else "unique",
        "match": match,
        "fingerprint": None if page.fingerprint is None else f"{page.fingerprint:0{rule.design.bits // 4}x}",
        "verifier": None if page.verifier is None else f"{page.verifier:0{width // 4}x}",
        "digest": page.digest,
        "features": 100,
        "profile": "made-up/1",
        "seq": None if match else decision.seq,
        "fetched_at": page.fetched_at,
        "observation": page.observation.hex(),
        "source": {"topic": "pages", "partition": 0, "offset": page.position.offset, "timestamp": None},
    }


def lines(verdicts: Sequence[dict]) -> bytes:
    """As a file of them."""
    return b"".join(json.dumps(each).encode() + b"\n" for each in verdicts)
