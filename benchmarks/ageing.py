"""An index that ages: what the archive on disk adds to a page, takes of the disk, and how fast pages go there.

    python -m benchmarks.ageing --live 100k --whole 100k --bare 100M

Whole records: pages with URLs of 75 to 80 bytes are judged and stored in a Redis of this run; the oldest of them are
retired, ten times, and merged. Bare fingerprints: uniform random ones in the same tables, in segments as the levels
leave them, each asked about each page. Both are asked one page at a time and 100 together, warm.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from random import Random

import numpy as np

from simhash.archive import Batch, Effort, Holding, Plan, TableSet, build
from simhash.index import Entry, Relation, Retention
from simhash.index.redis.opening import open_index
from simhash.index.redis.operators.retiring import Retiring
from simhash.relation.tables import design
from simhash.signature.profiles import DEFAULT
from tests.servers import running_redis
from worker.ageing.segments import Ageing
from worker.counts import count_of
from worker.index.ageing import ArchiveBase
from worker.index.stores import connect, opened_archive
from worker.settings import load

SHARES = (0.6, 0.15, 0.15, 0.04, 0.04, 0.01, 0.01)
"""Of the bare fingerprints, in each segment."""
SLICE = 1 << 20


class RandomKeys:
    """So many random fingerprints, a source of tables."""

    def __init__(self, count: int, seed: int) -> None:
        self.count, self.seed = count, seed

    def batches(self, skip: int) -> Iterator[Batch]:
        """See `Source.batches`."""
        generator = np.random.default_rng(self.seed)
        for at in range(0, self.count, SLICE):
            keys = generator.integers(0, 1 << 64, min(SLICE, self.count - at), np.uint64).reshape(-1, 1)
            if at >= skip:
                yield Batch(len(keys), keys)


def pages(first: int, count: int, relation: Relation, random: Random) -> list[Entry]:
    """Pages that match nothing, with all that a record has."""
    width = relation.verifier_bits + 32 * relation.bands
    found = []
    for number in range(first, first + count):
        name = "".join(random.choices("abcdefghijklmnopqrstuvwxyz-", k=random.randint(16, 40)))
        url = f"https://news-{random.randrange(2000)}.example.org/2026/11/{name}-{number}.html"
        digest = f"text:{random.getrandbits(128):032x}"
        observation = random.getrandbits(128).to_bytes(16)
        found.append(
            Entry(
                observation,
                None,
                random.getrandbits(64),
                random.getrandbits(width),
                digest,
                url,
                None,
                "2026-11-24T00:00:00Z",
            )
        )
    return found


def told(what: str, seconds: Sequence[float], each: int = 1) -> None:
    """Median and 99th percentile of what one page took, in milliseconds."""
    low, high = np.percentile(np.array(seconds) * 1000 / each, [50, 99])
    print(f"{what}: {low:.2f} ms, p99 {high:.2f} ms a page", flush=True)


def timed(action: object, *arguments: object) -> float:
    """Seconds."""
    start = time.perf_counter()
    action(*arguments)  # type: ignore[operator]
    return time.perf_counter() - start


def directory_bytes(directory: Path) -> int:
    """Of all files in it."""
    return sum(path.stat().st_size for path in directory.rglob("*") if path.is_file())


def whole(relation: Relation, live: int, retired: int, directory: Path) -> None:
    """Whole records: retired, merged, asked."""
    random = Random(1)
    with running_redis(directory / "redis") as server:
        client = connect(load({"redis_url": server.url, "index_name": "aged"}))
        index = open_index(client, "aged", DEFAULT.recipe(), relation, live)
        archive = directory / "archive" / "aged"
        index.judge_beside(opened_archive(archive, index))
        start = time.perf_counter()
        for at in range(0, live + retired, 200):
            index.check_and_insert(pages(at, 200, relation, random), {})
        print(f"judged and stored: {(live + retired) / (time.perf_counter() - start):,.0f} pages/s, one client")
        retiring = Retiring(index, archive)
        parts = 10
        spent = 0.0
        for nth in range(1, parts + 1):
            ageing = Ageing(retiring, Retention(max_documents=live + retired - retired * nth // parts), 1)
            spent += timed(ageing.retire)
            merge = 0.0
            while contents := ageing.merge() or None:
                merge += 1
            del contents
        held = retiring.contents()
        print(f"retired: {retired / spent:,.0f} pages/s, in {parts} parts")
        size = sum(directory_bytes(archive / segment.name) for segment in held.segments)
        print(f"on disk: {size / held.pages:.0f} bytes a whole record, {len(held.segments)} segments")
        merged = [archive / segment.name for segment in held.segments]
        print(f"segments: {[len(TableSet(path)) for path in merged]}")
        base = opened_archive(archive, index)
        asked(base, pages(10**8, 4000, relation, random))
        before = [timed(index.check_and_insert, pages(10**9 + n, 1, relation, random), {}) for n in range(1000)]
        told("judged beside it, one at a time", before)


def asked(base: ArchiveBase, some: list[Entry]) -> None:
    """What the archive adds to a page."""
    base.decisions(some[:200])
    told("archive of whole records, one at a time", [timed(base.decisions, [page]) for page in some[:1000]])
    batches = [some[at : at + 100] for at in range(0, len(some), 100)]
    told("archive of whole records, 100 together", [timed(base.decisions, batch) for batch in batches], 100)


def bare(relation: Relation, count: int, directory: Path) -> None:
    """Bare fingerprints: built, asked."""
    holding = Holding(relation.design.bits, False)
    rule = Relation(relation.design, 3, None)
    plan = Plan(None, holding, lambda _: rule, "bare")
    start = time.perf_counter()
    places = []
    for number, share in enumerate(SHARES):
        places.append(directory / f"bare-{number}")
        source = RandomKeys(int(count * share), number)
        build(places[-1], source, plan, Effort(1 << 30, 2), lambda *_: None)
    print(f"bare: {count:,} built in {time.perf_counter() - start:,.0f} s, {len(SHARES)} segments")
    print(f"bare: {sum(map(directory_bytes, places)) / count:.1f} bytes a fingerprint, design {relation.design.name}")
    sets = [TableSet(place) for place in places]
    queries = np.random.default_rng(99).integers(0, 1 << 64, 30_000, np.uint64).reshape(-1, 1)

    def ask(keys: object) -> None:
        for tables in sets:
            tables.near(keys)  # type: ignore[arg-type]

    for at in range(0, 20_000, 1000):  # warm
        ask(queries[at : at + 1000])
    told("bare, one at a time", [timed(ask, queries[at : at + 1]) for at in range(20_000, 21_000)])
    told("bare, 100 together", [timed(ask, queries[at : at + 100]) for at in range(21_000, 30_000, 100)], 100)


def main() -> None:
    """Run it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, default in (("live", "100k"), ("whole", "100k"), ("bare", "10M")):
        parser.add_argument(f"--{name}", type=count_of, default=default, help="how many pages  [%(default)s]")
    parser.add_argument("--design", default="3", help="permutation tables  [%(default)s]")
    given = parser.parse_args()
    profile = DEFAULT
    relation = Relation(
        design(given.design), profile.reach, profile.verifier_reach, profile.verifier_bits, profile.bands
    )
    with tempfile.TemporaryDirectory(prefix="simhash-dedup-ageing-") as place:
        whole(relation, given.live, given.whole, Path(place))
        bare(relation, given.bare, Path(place))


if __name__ == "__main__":
    main()
