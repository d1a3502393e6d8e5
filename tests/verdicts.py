"""Verdicts as an index gives them, without a worker: what checks from outside are tried on."""

import json
from collections.abc import Sequence
from random import Random
from urllib.parse import urlsplit

from simhash.index import Duplicate, Entry, IndexSpec, Relation, Unique
from simhash.index.memory import MemoryIndex
from simhash.relation.overlap import contained, is_longer
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
    match = better = None
    if isinstance(decision, Duplicate):
        record, host = decision.match, urlsplit(page.url).hostname
        exact = record.has_text_of(page.digest)
        similarity = 1.0 if exact else max(0.0, 1 - 2 * sketched(page, record.verifier, rule) / rule.verifier_bits)
        lengths = (page.features or 0, record.features or 0)
        share = 1.0 if exact else contained(similarity, *lengths)
        if record.features is not None:
            better = not exact and is_longer(*lengths)
        match = {
            "url": record.url,
            "id": record.id,
            "distance": decision.distance,
            "kind": "exact" if exact else "near",
            "same_url": record.url == page.url,
            "fetched_at": record.fetched_at,
            "seq": record.seq,
            "same_host": record.url == page.url or (host is not None and host == urlsplit(record.url).hostname),
            "similarity": round(similarity, 3),
            "containment": None if share is None or record.features is None else round(share, 3),
            "size": record.features,
            "is_canonical": None,
        }
    return {
        "url": page.url,
        "id": page.id,
        "verdict": "duplicate" if match else "unique",
        "match": match,
        "fingerprint": None if page.fingerprint is None else f"{page.fingerprint:0{rule.design.bits // 4}x}",
        "verifier": None if page.verifier is None else f"{page.verifier:0{width // 4}x}",
        "digest": page.digest,
        "features": page.features or 0,
        "profile": "made-up/1",
        "seq": None if match else decision.seq,
        "fetched_at": page.fetched_at,
        "observation": page.observation.hex(),
        "source": {"topic": "pages", "partition": 0, "offset": page.position.offset, "timestamp": None},
        "better": better,
        "canonical": None,
        "language": None,
        "robots": None,
        "previous": None,
    }


def sketched(page: Entry, verifier: int | None, rule: Relation) -> int:
    """How many bits two sketches are apart."""
    return (((page.verifier or 0) ^ (verifier or 0)) >> (32 * rule.bands)).bit_count()


def lines(verdicts: Sequence[dict]) -> bytes:
    """As a file of them."""
    return b"".join(json.dumps(each).encode() + b"\n" for each in verdicts)
