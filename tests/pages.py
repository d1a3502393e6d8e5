"""Entries, pages and brute force for the tests: small, random, full of near neighbours."""

from collections.abc import Sequence
from dataclasses import replace
from random import Random

from simhash.index import Duplicate, Entry, Partition, Position, Record, Relation, Unique
from simhash.index.interface import STORED_BYTES
from simhash.relation.tables import Design

PAGES = Partition("pages", 0)
VERIFIER_BITS = 64
FETCHED_AT = ("2026-01-01T00:00:00Z", None, "2026-01-01T00:00:00.123+02:00", "some day")


def relation(design: Design, reach: int = 6, verifier_reach: int | None = 14, bands: int = 0) -> Relation:
    """A relation over a design."""
    return Relation(design, reach, verifier_reach, VERIFIER_BITS, bands)


def flipped(value: int, bits: int, count: int, random: Random) -> int:
    """`value` with `count` of its `bits` bits flipped."""
    for bit in random.sample(range(bits), count):
        value ^= 1 << bit
    return value


def address(number: int) -> str:
    """A URL like no other's: of any length, with any beginning."""
    random = Random(number)
    start = random.choice(["http://", "https://", "http://www.", "https://www.", "ftp://", "", "\N{SNOWMAN}"])
    name = "".join(random.choices("abcdefghijklmnopqrstuvwxyz0123456789é漢-", k=random.choice([1, 4, 9, 30])))
    return f"{start}{name}.example/{number}"


def entry(
    number: int,
    fingerprint: int | None,
    verifier: int | None = 0,
    partition: Partition | None = PAGES,
    digest: str | None = None,
) -> Entry:
    """A page of that fingerprint; its number is its offset."""
    return Entry(
        observation=number.to_bytes(8) + bytes(8),
        position=None if partition is None else Position(partition, number),
        fingerprint=fingerprint,
        verifier=None if fingerprint is None else verifier,
        digest=digest or f"text:{number:016x}{0:016x}",
        url=address(number),
        id=None if number % 2 else f"id-{number}",
        fetched_at=FETCHED_AT[number % len(FETCHED_AT)],
        features=number * number % 5000,
    )


def crowd(count: int, random: Random, bits: int = 64, first: int = 0, short_share: float = 0.1) -> list[Entry]:
    """Pages of which many are near others: neighbours of neighbours, equal fingerprints, short pages."""
    entries: list[Entry] = []
    seeds: list[tuple[int, int]] = []
    for number in range(first, first + count):
        if random.random() < short_share:
            entries.append(entry(number, None, digest=f"{random.choice(['text', 'raw'])}:{random.randrange(4):032x}"))
            continue
        if seeds and random.random() < 0.7:
            fingerprint, verifier = random.choice(seeds)
            fingerprint = flipped(fingerprint, bits, random.choice([0, 1, 2, 3, 4, 5, 6, 7]), random)
            verifier = flipped(verifier, VERIFIER_BITS, random.choice([0, 3, 7, 14, 15, 30]), random)
        else:
            fingerprint, verifier = random.getrandbits(bits), random.getrandbits(VERIFIER_BITS)
        seeds.append((fingerprint, verifier))
        entries.append(entry(number, fingerprint, verifier))
    return entries


def banded(entries: Sequence[Entry], bands: int, random: Random) -> list[Entry]:
    """The same pages with band keys, of which many are shared and some are none."""
    keys = [0, *(random.getrandbits(32) for _ in range(6))]

    def sketch(page: Entry) -> int | None:
        value = page.verifier
        for _ in range(bands if value is not None else 0):
            value = value << 32 | random.choice(keys)
        return value

    return [replace(page, verifier=sketch(page)) for page in entries]


def brute_force(entries: Sequence[Entry], rule: Relation) -> list[tuple[str, int]]:
    """For each entry ("unique", its number) or ("duplicate", the number of the oldest match), greedily."""
    representatives: list[Entry] = []
    answers: list[tuple[str, int]] = []
    for page in entries:
        match = next((n for n, other in enumerate(representatives, 1) if rule.matches(page, other)), None)
        if match is None:
            representatives.append(page)
            answers.append(("unique", len(representatives)))
        else:
            answers.append(("duplicate", match))
    return answers


def summary(decision: Unique | Duplicate) -> tuple[str, int]:
    """A decision as `brute_force` writes it."""
    if isinstance(decision, Unique):
        return ("unique", decision.seq)
    return ("duplicate", decision.match.seq)


def same_page(record: Record, page: Entry) -> bool:
    """Whether a record is of that page."""
    told = (record.url, record.id, record.fetched_at) == (page.url, page.id, page.fetched_at)
    return told and same_delivery(record, page) and record.has_text_of(page.digest)


def same_delivery(record: Record, page: Entry) -> bool:
    """Whether a record is of this very delivery of a page."""
    return record.observation == page.observation[:STORED_BYTES]
