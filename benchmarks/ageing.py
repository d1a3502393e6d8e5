"""An index that ages: what the archive on disk adds to a page, takes of the disk, and how fast pages go there.

    python -m benchmarks.ageing --live 300k --whole 100k --bare 100M

Whole records: pages with URLs of 75 to 80 bytes are judged and stored in a Redis of this run; the oldest of them are
retired, ten times, and merged. Bare fingerprints: uniform random ones in the same tables, in segments as the levels
leave them. Then pages are judged by the same index with the archive and without in turns, one at a time and 100
together, warm; and once more while another process retires and merges.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import count
from multiprocessing import get_context
from pathlib import Path
from random import Random

import numpy as np

from simhash.archive import BuildPlan, Effort, Holding, Portion, TableSet, build
from simhash.archive.format.manifest import NAME
from simhash.archive.lookup.opened import matches
from simhash.index import Duplicate, Entry, Relation, Retention, Unique
from simhash.index.redis.index import RedisIndex
from simhash.index.redis.opening import open_index
from simhash.index.redis.operators.retiring import Retiring
from simhash.relation.tables import design
from simhash.signature.profiles import DEFAULT
from tests.servers import running_redis
from worker.ageing.segments import BLOCK_KEYS, Ageing
from worker.index.ageing import ArchiveBase
from worker.index.stores import connect, opened_archive
from worker.settings import count_of, load
from worker.stream.supervisor import AGEING_NICENESS

SHARES = (0.6, 0.15, 0.15, 0.04, 0.04, 0.01, 0.01)
"""Of the bare fingerprints, in each segment."""
SLICE = 1 << 20
PARTS, PART = 10, 10_000
"""Of the whole records; records of each part that goes while pages are judged."""
SMALL = 10_000
"""Of an index with fewer documents little is to be learned: it is judged to show that all of this runs."""
BOTH = (("without the archive", False), ("with it", True))


class RandomKeys:
    """So many random fingerprints, a source of tables."""

    def __init__(self, count: int, seed: int) -> None:
        self.count, self.seed = count, seed

    def batches(self, skip: int) -> Iterator[Portion]:
        """See `EntrySource.batches`."""
        generator = np.random.default_rng(self.seed)
        for at in range(0, self.count, SLICE):
            keys = generator.integers(0, 1 << 64, min(SLICE, self.count - at), np.uint64).reshape(-1, 1)
            if at >= skip:
                yield Portion(len(keys), keys)


def pages(first: int, wanted: int, relation: Relation, random: Random) -> list[Entry]:
    """Pages that match nothing, with all that a record has."""
    width = relation.verifier_bits + 32 * relation.bands
    found = []
    for number in range(first, first + wanted):
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


def told(what: str, seconds: Sequence[float], each: int = 1) -> float:
    """Median and 99th percentile of what one page took, in milliseconds; returns the latter."""
    low, high = np.percentile(np.array(seconds) * 1000 / each, [50, 99])
    print(f"{what}: {low:.2f} ms, p99 {high:.2f} ms a page", flush=True)
    return float(high)


@dataclass
class Switched:
    """An archive, bare segments beside it, and a switch: while it is off neither is asked, and nothing else differs."""

    archive: ArchiveBase
    bare: list[TableSet]
    asks: bool = False

    place = property(lambda self: self.archive.place)
    generation = property(lambda self: self.archive.generation)
    archived = property(lambda self: self.archive.archived)

    def decisions(self, entries: Sequence[Entry]) -> list[Unique | Duplicate | None]:
        """See `Base.decisions`."""
        if not self.asks:
            return [None] * len(entries)
        matches(self.bare, entries)
        return self.archive.decisions(entries)

    def renewed(self) -> None:
        """See `Base.renewed`."""

    def at(self, generation: str) -> Switched:
        """See `Base.at`."""
        self.archive = self.archive.at(generation)
        return self


def timed(action: object, *arguments: object) -> float:
    """Seconds."""
    start = time.perf_counter()
    action(*arguments)  # type: ignore[operator]
    return time.perf_counter() - start


def directory_bytes(directory: Path) -> int:
    """Of all files in it."""
    return sum(path.stat().st_size for path in directory.rglob("*") if path.is_file())


def whole(relation: Relation, live: int, retired: int, bare: list[TableSet], directory: Path) -> None:
    """Whole records: retired, merged, asked."""
    random = Random(1)
    with running_redis(directory / "redis") as server:
        client = connect(load({"redis_url": server.url, "index_name": "aged"}))
        index = open_index(client, "aged", DEFAULT.recipe(), relation, live)
        archive = directory / "archive" / "aged"
        switched = Switched(opened_archive(archive, index), bare)
        index.judge_beside(switched)
        start = time.perf_counter()
        for at in range(0, live + retired, 200):
            index.check_and_insert(pages(at, 200, relation, random), {})
        print(f"judged and stored: {(live + retired) / (time.perf_counter() - start):,.0f} pages/s, one client")
        retiring = Retiring(index, archive)
        spent = sum(retire(retiring, live + retired - retired * nth // PARTS) for nth in range(1, PARTS + 1))
        held = retiring.contents()
        print(f"retired: {retired / spent:,.0f} pages/s, in {PARTS} parts")
        size = sum(directory_bytes(archive / segment.name) for segment in held.segments)
        print(f"on disk: {size / held.pages:.0f} bytes a whole record, {[each.pages for each in held.segments]}")
        asked(index, switched, relation, random, "")
        ageing = get_context("fork").Process(target=retire_all, args=(server.url, archive, relation, live))
        ageing.start()
        asked(index, switched, relation, random, ", while another process retires and merges")
        print("it still did" if ageing.is_alive() else "it had come to its end")
        ageing.join()


def retire(retiring: Retiring, most: int) -> float:
    """Seconds of retiring what is over so many, merges aside."""
    ageing = Ageing(retiring, Retention(max_documents=most), 1)
    seconds = timed(ageing.retire)
    while ageing.merge():
        pass
    return seconds


def retire_all(url: str, archive: Path, relation: Relation, live: int) -> None:
    """Most of what is there, in small parts, as the process beside the workers does it."""
    os.nice(AGEING_NICENESS)
    client = connect(load({"redis_url": url, "index_name": "aged"}))
    index = open_index(client, "aged", DEFAULT.recipe(), relation, live)
    for most in range(live, live // 4, -PART):
        retire(Retiring(index, archive), most)


def asked(index: RedisIndex, switched: Switched, relation: Relation, random: Random, when: str) -> None:
    """What the archive adds to a page: new pages, judged with it and without in turns; of a small index few."""
    numbers = count(10**9 + random.getrandbits(40))
    few = index.documents() < SMALL
    for together, rounds in ((1, 100 if few else 1500), (100, 10 if few else 100)):
        took: dict[bool, list[float]] = {False: [], True: []}
        for nth in range(2 * rounds):
            switched.asks = nth % 2 == 1
            batch = pages(next(numbers) * together, together, relation, random)
            took[switched.asks].append(timed(index.check_and_insert, batch, {}))
        name = "one at a time" if together == 1 else f"{together} together"
        without, beside = (told(f"{what}, {name}{when}", took[on], together) for what, on in BOTH)
        print(f"the archive adds {beside - without:.2f} ms at p99, {name}{when}", flush=True)


def bare(relation: Relation, total: int, directory: Path) -> list[TableSet]:
    """Bare fingerprints, built where they are not yet."""
    rule = Relation(relation.design, 3, None)
    plan = BuildPlan(None, Holding(relation.design.bits, False), lambda _: rule, "bare")
    places = [directory / f"bare-{number}" for number in range(len(SHARES))]
    start = time.perf_counter()
    for number, (place, share) in enumerate(zip(places, SHARES, strict=True)):
        if not (place / NAME).exists():
            source = RandomKeys(int(total * share), number)
            build(place, source, plan, Effort(1 << 30, 2, BLOCK_KEYS), lambda *_: None)
    print(f"bare: {total:,} built in {time.perf_counter() - start:,.0f} s, {len(SHARES)} segments")
    print(f"bare: {sum(map(directory_bytes, places)) / total:.1f} bytes a fingerprint, design {relation.design.name}")
    sets = [TableSet(place) for place in places]
    queries = np.random.default_rng(99).integers(0, 1 << 64, 20_000, np.uint64).reshape(-1, 1)
    for tables in sets:
        tables.near(queries)  # warm
    return sets


def main() -> None:
    """Run it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, default in (("live", "300k"), ("whole", "100k"), ("bare", "10M")):
        parser.add_argument(f"--{name}", type=count_of, default=default, help="how many pages  [%(default)s]")
    parser.add_argument("--design", default="3", help="permutation tables  [%(default)s]")
    parser.add_argument("--tables", type=Path, help="where the bare tables lie, or are to be kept")
    given = parser.parse_args()
    profile = DEFAULT
    relation = Relation(
        design(given.design), profile.reach, profile.verifier_reach, profile.verifier_bits, profile.bands
    )
    with tempfile.TemporaryDirectory(prefix="simhash-dedup-ageing-") as place:
        tables = bare(relation, given.bare, given.tables or Path(place))
        whole(relation, given.live, given.whole, tables, Path(place))


if __name__ == "__main__":
    main()
