"""Keys, files and sets of compressed tables, made for the tests; and what brute force finds in them."""

import json
from random import Random

from hypothesis import strategies as st

from simhash.archive import BuildPlan, Effort, Holding, Portion, TableSet, build
from simhash.archive.format import keys as arrays
from simhash.archive.format.blocks import gap_counts
from simhash.archive.format.table_file import TableWriter
from simhash.archive.lookup.opened import verifier_bytes
from simhash.index import Record
from tests.pages import crowd

WIDTHS = (8, 31, 64, 65, 96, 128, 256, 288)
IDENTITY = b"sixteen bytes id"
PROFILE = {"name": "made-up", "version": 1}
SMALL = Effort(memory=8192, threads=2, block_keys=8)
"""So little that everything takes several chunks and runs."""


def first_difference(a: int, b: int, width: int) -> int | None:
    """Position, from 0 at the left, of the first bit that differs; None if the two are equal."""
    return None if a == b else width - (a ^ b).bit_length()


@st.composite
def crowds(draw, of=WIDTHS):
    """A width, and ascending fingerprints of it: some equal, some near, some far."""
    width = draw(st.sampled_from(of))
    random = Random(draw(st.integers(0, 2**32)))
    values = [0, (1 << width) - 1][: draw(st.integers(0, 2))]
    for _ in range(draw(st.integers(0, 60))):
        if values and random.random() < 0.5:
            values.append(random.choice(values) ^ random.choice([0, 1, 1 << random.randrange(width)]))
        else:
            values.append(random.getrandbits(width))
    return width, sorted(values)


def write_table(path, width, values, block_keys=4):
    keys = arrays.from_ints(values, width)
    writer = TableWriter(path, IDENTITY, width, len(keys), gap_counts(keys, width).tolist(), block_keys)
    writer.add(keys[: len(keys) // 3])
    writer.add(keys[len(keys) // 3 :])
    writer.close()
    return path


class Listed:
    """A source of a list: bare fingerprints, or entries numbered from 1 as records."""

    def __init__(self, items, bits=64, step=7, first=1):
        self.items, self.bits, self.step, self.first = items, bits, step, first
        self.skipped = None

    def batches(self, skip):
        self.skipped = skip
        for at in range(skip, len(self.items), self.step):
            some = self.items[at : at + self.step]
            if isinstance(some[0], int):
                yield Portion(len(some), arrays.from_ints(some, self.bits))
            else:
                found = [(page.fingerprint, record(page, at + i)) for i, page in enumerate(some, self.first)]
                yield Portion(len(some), records=found)


def record(page, seq):
    return Record.of(page, seq, 1000 * seq)


def nothing(*_):
    pass


def built(out, items, rule, effort=SMALL, on_progress=nothing, first=1):
    has_records = bool(items) and not isinstance(items[0], int)
    held = Holding(rule.design.bits, has_records, verifier_bytes(rule), rule.bands)
    plan = BuildPlan(PROFILE if has_records else None, held, lambda _: rule, "job")
    build(out, Listed(items, rule.design.bits, first=first), plan, effort, on_progress)
    return TableSet(out)


def fingerprints(count, random, bits=64):
    return [page.fingerprint for page in crowd(count, random, bits, short_share=0)]


def pairs(found, bits=64):
    values = arrays.to_ints(found.keys, bits)
    return list(zip(found.query.tolist(), values, found.distances.tolist(), strict=True))


def expected_pairs(queries, stored, parts, reach):
    return sorted(
        (number, other, (query ^ other).bit_count())
        for number, query in enumerate(queries)
        for other in set(stored)
        if (query ^ other).bit_count() <= reach and parts.shares_prefix(query, other)
    )


def content(directory):
    return {path.name: path.read_bytes() for path in directory.iterdir()}


# What tables are built from by the command -----------------------------------------------------------------------


def hex_lines(values, digits=16):
    return "".join(f"{value:0{digits}x}\n" for value in values).encode()


def page(number, unique=True, **fields):
    random = Random(number)
    empty = number % 7 == 0
    made = {
        "url": f"http://example.com/{number}",
        "id": None,
        "verdict": "unique" if unique else "duplicate",
        "match": None,
        "fingerprint": None if empty else f"{random.getrandbits(64):016x}",
        "verifier": None if empty else f"{random.getrandbits(224):056x}",
        "digest": f"text:{number:032x}",
        "features": 100,
        "profile": "default/1",
        "seq": number if unique else None,
        "fetched_at": "2026-06-01T00:00:00Z",
        "observation": f"{random.getrandbits(128):032x}",
        "source": {"topic": "pages", "partition": 0, "offset": number, "timestamp": 1_000_000 * number},
    }
    return made | fields


def lines_of(pages):
    return b"".join(json.dumps(one).encode() + b"\n" for one in pages)


def all_of(directory):
    tables = TableSet(directory)
    return sorted(key for keys in tables.fingerprints() for key in arrays.to_ints(keys, tables.relation.design.bits))
