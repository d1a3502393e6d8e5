"""Directories of compressed tables: built, asked, merged and verified, held against brute force over what went in."""

import os
import shutil
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import cycle
from pathlib import Path
from random import Random

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from simhash import native
from simhash.compressed import Batch, Effort, Holding, Plan, TableSet, build
from simhash.compressed import keys as arrays
from simhash.compressed import manifest as manifests
from simhash.compressed.merging import Merged, holding
from simhash.compressed.reading import ARRAYS_FROM, verifier_bytes
from simhash.compressed.verifying import verify
from simhash.errors import TableCorrupt, TableFault, TableMismatch
from simhash.index import IndexSpec, Record
from simhash.index.memory import MemoryIndex
from simhash.tables import NAMES, design
from tests.pages import banded, crowd, entry, flipped, relation

PROFILE = {"name": "made-up", "version": 1}
SMALL = Effort(memory=8192, threads=2, block_keys=8)
"""So little that everything takes several chunks and runs."""


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
                yield Batch(len(some), arrays.from_ints(some, self.bits))
            else:
                found = [(page.fingerprint, record(page, at + i)) for i, page in enumerate(some, self.first)]
                yield Batch(len(some), records=found)


def record(page, seq):
    return Record.of(page, seq, 1000 * seq)


def nothing(*_):
    pass


def built(out, items, rule, effort=SMALL, on_progress=nothing, first=1):
    has_records = bool(items) and not isinstance(items[0], int)
    held = Holding(rule.design.bits, has_records, verifier_bytes(rule), rule.bands)
    plan = Plan(PROFILE if has_records else None, held, lambda _: rule, "job")
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


@pytest.fixture(params=["kernel", "numpy"])
def path_taken(request, monkeypatch):
    """Both ways to pack and unpack; what is missing is told in test_compressed.py."""
    if request.param == "numpy":
        monkeypatch.setattr(native, "blocks", lambda: None)


# Bare sets ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", NAMES)
def test_every_design_finds_what_brute_force_finds(path_taken, tmp_path, name):
    random = Random(name)
    stored = fingerprints(150, random)
    rule = relation(design(name), 3, None)
    tables = built(tmp_path / "set", stored, rule, Effort(block_keys=16))
    queries = [flipped(random.choice(stored), 64, random.randrange(7), random) for _ in range(ARRAYS_FROM + 5)]
    for reach in (3, 6):
        expected = expected_pairs(queries, stored, rule.design, reach)
        assert len(expected) >= 10
        assert sorted(pairs(tables.near(arrays.from_ints(queries, 64), reach))) == expected
        for number, query in enumerate(queries[:4]):
            single = [(number, *pair[1:]) for pair in pairs(tables.near(arrays.from_ints([query], 64), reach))]
            assert sorted(single) == [pair for pair in expected if pair[0] == number]


@pytest.mark.parametrize("bits", [8, 31, 128, 256])
def test_other_widths_are_found_alike(path_taken, tmp_path, bits):
    random = Random(bits)
    stored = fingerprints(120, random, bits)
    rule = relation(design("4", bits), 3, None)
    tables = built(tmp_path / "set", stored, rule)
    queries = [flipped(random.choice(stored), bits, random.randrange(6), random) for _ in range(ARRAYS_FROM)]
    expected = expected_pairs(queries, stored, rule.design, 3)
    assert sorted(pairs(tables.near(arrays.from_ints(queries, bits)), bits)) == expected
    single = pairs(tables.near(arrays.from_ints(queries[:1], bits)), bits)
    assert sorted(single) == [pair for pair in expected if pair[0] == 0]


@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    seed=st.integers(0, 2**32),
    count=st.integers(0, 60),
    name=st.sampled_from(["4", "6", "2-probed", "1c1"]),
    asked=st.integers(1, 2 * ARRAYS_FROM),
    memory=st.sampled_from([1, 500, 1 << 20]),
)
def test_any_crowd_is_found_as_brute_force_finds_it(tmp_path_factory, seed, count, name, asked, memory):
    random = Random(seed)
    stored = fingerprints(count, random)
    rule = relation(design(name), 5, None)
    tables = built(tmp_path_factory.mktemp("any") / "set", stored, rule, Effort(memory, 1, random.randint(1, 9)))
    queries = [flipped(random.choice([*stored, 0]), 64, random.randrange(7), random) for _ in range(asked)]
    found = tables.near(arrays.from_ints(queries, 64))
    assert sorted(pairs(found)) == expected_pairs(queries, stored, rule.design, 5)
    assert list(verify(tables.directory)) == []


@settings(max_examples=15, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    seed=st.integers(0, 2**32),
    bits=st.sampled_from([64, 96]),
    name=st.sampled_from(["4", "10", "2-probed"]),
    block_keys=st.sampled_from([1, 3, 8, 64]),
    spread=st.sampled_from([4, 30, 64]),
    clones=st.sampled_from([1, 40]),
)
def test_many_at_once_find_what_brute_force_finds_with_and_without_the_kernel(
    tmp_path_factory, seed, bits, name, block_keys, spread, clones
):
    """Blocks in step, ranges over several blocks, many in one block, prefixes and fingerprints that many share."""
    random = np.random.default_rng(seed)
    some = random.integers(0, 1 << spread, 90, np.uint64).tolist()
    stored = [value << (bits - 64) for value in some] + some[:1] * clones
    rule = relation(design(name, bits), 3, None)
    tables = built(tmp_path_factory.mktemp("many") / "set", stored, rule, Effort(block_keys=block_keys))
    flips = (1 << int(random.integers(bits)) | 1 << int(random.integers(bits)) for _ in stored)
    queries = [value ^ flip for value, flip in zip(stored, flips, strict=True)] + stored[:1] * clones
    expected = expected_pairs(queries, stored, rule.design, 3)
    assert len(expected) >= len(queries)
    for kernel in (native.blocks, lambda: None):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(native, "blocks", kernel)
            found = TableSet(tables.directory).near(arrays.from_ints(queries, bits))
        assert sorted(pairs(found, bits)) == expected


@pytest.mark.parametrize("place", [0.3, 0.7])
def test_many_at_once_are_told_of_the_damaged_block(path_taken, tmp_path, place):
    stored = fingerprints(200, Random(1))
    rule = relation(design("4"), 3, None)
    directory = built(tmp_path / "set", stored, rule).directory
    path = directory / "table-01.sdt"
    whole = path.read_bytes()
    start = TableSet(directory)._parts[1][1].file.header.blocks_start
    at = start + int(place * (len(whole) - start))
    path.write_bytes(whole[:at] + bytes([whole[at] ^ 4]) + whole[at + 1 :])
    with pytest.raises(TableCorrupt, match=r"table-01\.sdt: block \d+ of 25 .*is damaged: its check is"):
        TableSet(directory).near(arrays.from_ints(stored, 64))


@pytest.mark.parametrize("asked", [1, 200])
@pytest.mark.parametrize("left", [0, -10])
def test_a_file_that_was_cut_off_meanwhile_is_told(path_taken, tmp_path, asked, left):
    """A mapped page that is gone would kill the process."""
    stored = fingerprints(200, Random(2))
    tables = built(tmp_path / "set", stored, relation(design("4"), 3, None))
    path = tables.directory / "table-02.sdt"
    os.truncate(path, left % path.stat().st_size)
    with pytest.raises(TableCorrupt, match=r"table-02\.sdt: cut off"):
        tables.near(arrays.from_ints(stored[:asked], 64))


def test_a_prefix_that_all_share_is_searched_in_portions(tmp_path, monkeypatch):
    monkeypatch.setattr("simhash.compressed.probing.PAIRS_AT_ONCE", 50)
    monkeypatch.setattr("simhash.compressed.probing.BLOCKS_AT_ONCE", 2)
    stored = list(range(200))
    rule = relation(design("4"), 3, None)
    tables = built(tmp_path / "set", stored, rule)
    queries = list(range(0, 200, 9))
    found = pairs(tables.near(arrays.from_ints(queries, 64)))
    assert sorted(found) == expected_pairs(queries, stored, rule.design, 3)


def test_equal_fingerprints_are_all_kept_and_found_once(tmp_path):
    tables = built(tmp_path / "set", [7] * 50 + [6], relation(design("4"), 3, None))
    assert len(tables) == 51
    assert pairs(tables.near(arrays.from_ints([7], 64))) == [(0, 7, 0), (0, 6, 1)]
    assert sum(map(len, tables.fingerprints())) == 51


def test_a_bare_set_knows_no_records(tmp_path):
    tables = built(tmp_path / "set", [7], relation(design("4"), 3, None))
    with pytest.raises(TableMismatch, match="holds fingerprints alone"):
        tables.neighbours(7)
    with pytest.raises(TableMismatch, match="holds fingerprints alone"):
        tables.matches([entry(1, 7)])


# Records -----------------------------------------------------------------------------------------------------------


def brute_matches(rule, page, stored):
    """Each stored page that matches: distance and seq, lowest seq first."""
    found = []
    for seq, other in enumerate(stored, 1):
        if rule.matches(page, other):
            near = page.fingerprint is not None
            found.append(((page.fingerprint ^ other.fingerprint).bit_count() if near else 0, seq))
    return found


@pytest.mark.parametrize(("name", "bands"), [("6", 3), ("20", 1), ("4", 0), ("2-probed", 2)])
def test_pages_match_as_the_relation_says(path_taken, tmp_path, name, bands):
    rule = replace(relation(design(name), reach=12), bands=bands)
    random = Random(bands)
    pages = banded(crowd(200, random), bands, random)
    stored, asked = pages[:150], pages[120:]
    tables = built(tmp_path / "set", stored, rule, Effort(block_keys=16))
    expected = [brute_matches(rule, page, stored) for page in asked]
    assert sum(map(len, expected)) > 50
    together = [[(distance, found.seq) for distance, found in matches] for matches in tables.matches(asked)]
    assert together == expected
    singly = [[(d, r.seq) for d, r in tables.matches([page])[0]] for page in asked[:12]]
    assert singly == expected[:12]
    if bands:
        without = replace(rule, bands=0, verifier_bits=64 + 32 * bands)
        assert expected != [brute_matches(without, page, stored) for page in asked]


def test_records_come_back_whole(tmp_path):
    rule = replace(relation(design("6"), reach=12), bands=3)
    pages = banded(crowd(200, Random(2)), 3, Random(3))
    tables = built(tmp_path / "set", pages, rule)
    expected = {(page.fingerprint, record(page, seq)) for seq, page in enumerate(pages, 1)}
    assert set(tables.scan()) == expected
    assert tables.has_records
    assert tables.profile == PROFILE
    assert list(verify(tables.directory)) == []


def test_neighbours_are_those_of_an_index(tmp_path):
    rule = relation(design("10"))
    pages = crowd(300, Random(4), short_share=0)
    index = MemoryIndex(IndexSpec({}, relation(design("10"), verifier_reach=0), 4, 1000))
    index.check_and_insert(pages, {})
    kept = [page for page in pages if any(r.is_of(page) for _, r in index.scan())]
    tables = built(tmp_path / "set", kept, rule)
    for page in pages[:50]:
        found = [(n.distance, n.record.seq, n.fingerprint) for n in tables.neighbours(page.fingerprint)]
        assert found == [(n.distance, n.record.seq, n.fingerprint) for n in index.neighbours(page.fingerprint)]


def test_an_empty_set_answers(tmp_path):
    rule = relation(design("4"))
    plan = Plan(PROFILE, Holding(64, True, verifier_bytes(rule)), lambda _: rule, "job")
    build(tmp_path / "set", Listed([]), plan, SMALL, nothing)
    tables = TableSet(tmp_path / "set")
    assert len(tables) == 0
    pages = [entry(n, n) for n in range(20)] + [entry(99, None)]
    assert tables.matches(pages) == [[] for _ in pages]
    assert list(tables.scan()) == []
    assert list(verify(tables.directory)) == []


# Building ----------------------------------------------------------------------------------------------------------


def content(directory):
    return {path.name: path.read_bytes() for path in directory.iterdir()}


def test_kernel_and_numpy_write_the_same_bytes_whatever_the_memory(tmp_path, monkeypatch):
    rule = replace(relation(design("6"), reach=12), bands=2)
    pages = banded(crowd(120, Random(6)), 2, Random(7))
    first = content(built(tmp_path / "a", pages, rule, Effort(block_keys=8)).directory)
    monkeypatch.setattr(native, "blocks", lambda: None)
    second = content(built(tmp_path / "b", pages, rule, SMALL).directory)
    assert first == second


class KilledError(Exception):
    pass


class Dying:
    """Progress that ends the build at a step; None: counts them."""

    def __init__(self, limit):
        self.limit, self.taken = limit, 0

    def __call__(self, *_):
        self.taken += 1
        if self.taken == self.limit:
            raise KilledError


@pytest.mark.parametrize("has_records", [True, False])
def test_a_build_killed_anywhere_goes_on_where_it_was(tmp_path, has_records):
    rule = replace(relation(design("4"), reach=12), bands=1)
    pages = banded(crowd(120, Random(8)), 1, Random(9))
    items = pages if has_records else [page.fingerprint or 0 for page in pages]
    rule = rule if has_records else relation(design("4"), 3, None)
    whole = content(built(tmp_path / "whole", items, rule).directory)
    held = Holding(64, has_records, verifier_bytes(rule), rule.bands)
    plan = Plan(PROFILE if has_records else None, held, lambda _: rule, "job")
    steps = Dying(None)
    build(tmp_path / "counted", Listed(items), plan, replace(SMALL, threads=1, memory=2048), steps)
    skips = set()
    for limit in (12, *range(1, steps.taken, steps.taken // 7)):
        source, out = Listed(items), tmp_path / f"killed{limit}"
        with pytest.raises(KilledError):
            build(out, source, plan, replace(SMALL, threads=1, memory=2048), Dying(limit))
        with pytest.raises(TableMismatch, match=r"has no manifest\.json"):
            TableSet(out)
        build(out, source, plan, replace(SMALL, memory=2048), nothing)
        skips.add(source.skipped)
        assert content(out) == whole
    assert max(skips) >= 60


@pytest.mark.parametrize("job", ["job", "another job"])
def test_a_build_killed_while_it_clears_up_is_done(tmp_path, job, monkeypatch):
    rule = relation(design("4"), 3, None)

    def killed(*_, **__):
        raise KilledError

    monkeypatch.setattr("shutil.rmtree", killed)
    with pytest.raises(KilledError):
        built(tmp_path / "out", [1, 2, 3], rule)
    monkeypatch.undo()
    (tmp_path / "out" / "building" / "band0-0000").touch()
    plan = Plan(None, Holding(64, False), lambda _: rule, job)
    if job == "job":
        assert build(tmp_path / "out", Listed([1, 2, 3]), plan, SMALL, nothing).fingerprints == 3
    else:
        with pytest.raises(TableMismatch, match="holds a set of tables already"):
            build(tmp_path / "out", Listed([1, 2, 3]), plan, SMALL, nothing)
    assert list(verify(tmp_path / "out")) == []


def test_a_build_goes_on_only_for_the_same_job(tmp_path):
    rule = relation(design("4"), 3, None)

    with pytest.raises(KilledError):
        built(tmp_path / "out", [1, 2, 3], rule, on_progress=Dying(2))
    plan = Plan(None, Holding(64, False), lambda _: rule, "another job")
    with pytest.raises(TableMismatch, match="unfinished build of something else"):
        build(tmp_path / "out", Listed([1]), plan, SMALL, nothing)


def test_nothing_is_built_over_anything(tmp_path):
    rule = relation(design("4"), 3, None)
    built(tmp_path / "out", [1], rule)
    with pytest.raises(TableMismatch, match="holds a set of tables already"):
        built(tmp_path / "out", [1], rule)
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "file").touch()
    with pytest.raises(TableMismatch, match="is not empty"):
        built(tmp_path / "mine", [1], rule)


def test_the_generation_names_the_content(tmp_path):
    rule = relation(design("4"), 3, None)
    first = built(tmp_path / "a", [1, 2], rule).generation
    assert built(tmp_path / "b", [2, 1], rule).generation == first
    assert built(tmp_path / "c", [1, 3], rule).generation != first
    assert built(tmp_path / "d", [1, 2], replace(rule, reach=4)).generation != first


# Merging -----------------------------------------------------------------------------------------------------------


def merged(out, sets, keep=lambda _: True, parts=None, effort=SMALL):
    rule = sets[0].relation if parts is None else replace(sets[0].relation, design=parts)
    plan = Plan(sets[0].profile, holding(sets), lambda _: rule, "merge")
    build(out, Merged(sets, keep), plan, effort, nothing)
    return TableSet(out)


def test_merged_sets_are_the_set_of_all(tmp_path):
    rule = replace(relation(design("6"), reach=12), bands=2)
    pages = banded(crowd(300, Random(10)), 2, Random(11))
    a, b = built(tmp_path / "a", pages[:180], rule), built(tmp_path / "b", pages[180:], rule, first=181)
    whole = built(tmp_path / "whole", pages, rule)
    assert content(merged(tmp_path / "m", [a, b]).directory) == content(whole.directory)
    bare = [[page.fingerprint or 0 for page in some] for some in (pages, pages[:180], pages[180:])]
    plain = relation(design("6"), 3, None)
    sets = [built(tmp_path / f"bare{i}", some, plain) for i, some in enumerate(bare)]
    assert content(merged(tmp_path / "n", sets[1:]).directory) == content(sets[0].directory)


def test_what_is_expired_or_taken_down_is_nowhere_in_a_merge(tmp_path):
    rule = replace(relation(design("6"), reach=12), bands=2)
    pages = banded(crowd(300, Random(12)), 2, Random(13))
    tables = built(tmp_path / "a", pages, rule)
    kept = merged(tmp_path / "m", [tables], lambda r: r.inserted_ms > 100_000 and r.url != pages[200].url)
    expected = [page for seq, page in enumerate(pages, 1) if seq > 100 and seq != 201]
    assert {found.url for _, found in kept.scan()} == {page.url for page in expected}
    assert sorted(key for keys in kept.fingerprints() for key in arrays.to_ints(keys, 64)) == sorted(
        page.fingerprint for page in expected if page.fingerprint is not None
    )
    assert list(verify(kept.directory)) == []


def test_a_record_that_is_in_both_is_once_in_the_merge(tmp_path):
    rule = relation(design("6"))
    pages = crowd(100, Random(14))
    a, b = built(tmp_path / "a", pages[:60], rule), built(tmp_path / "b", pages[40:], rule, first=41)
    assert content(merged(tmp_path / "m", [a, b]).directory) == content(built(tmp_path / "w", pages, rule).directory)


def test_a_merge_may_have_another_design(tmp_path):
    pages = crowd(100, Random(15))
    tables = built(tmp_path / "a", pages, relation(design("6")))
    other = built(tmp_path / "b", pages, relation(design("10")))
    assert content(merged(tmp_path / "m", [tables], parts=design("10")).directory) == content(other.directory)


def test_a_merge_that_was_killed_goes_on(tmp_path):
    pages = crowd(200, Random(16))
    tables = [
        built(tmp_path / "a", pages[:90], relation(design("4"))),
        built(tmp_path / "b", pages[90:], relation(design("4")), first=91),
    ]
    for skip in (0, 50, 150, 200):
        batches = list(Merged(tables, lambda _: True).batches(skip))
        assert sum(batch.items for batch in batches) == 200 - skip
        every = [entry for batch in Merged(tables, lambda _: True).batches(0) for entry in batch.records]
        assert [entry for batch in batches for entry in batch.records] == every[skip:]


@pytest.mark.parametrize(
    ("rule", "what"),
    [
        (relation(design("4", 128)), "widths"),
        (relation(design("4"), bands=1), "verifiers"),
        (relation(design("4"), reach=7), "reaches"),
        (relation(design("4"), 3, None), "profiles"),
    ],
)
def test_sets_that_do_not_go_together_are_not_merged(tmp_path, rule, what):
    a = built(tmp_path / "a", crowd(5, Random(1)), relation(design("4")))
    b = built(tmp_path / "b", [1, 2] if what == "profiles" else crowd(5, Random(1)), rule)
    with pytest.raises(TableMismatch, match=f"their {what} differ"):
        holding([a, b])


# Damage ------------------------------------------------------------------------------------------------------------


@pytest.fixture
def damaged(tmp_path):
    """A set with records, to be damaged."""
    rule = replace(relation(design("4"), reach=12), bands=1)
    pages = banded(crowd(60, Random(20), short_share=0.3), 1, Random(21))
    return built(tmp_path / "set", pages, rule), pages


def test_every_flipped_byte_of_the_manifest_is_an_error(damaged):
    path = damaged[0].directory / manifests.NAME
    whole = path.read_bytes()
    for at, flip in zip(range(len(whole)), cycle((1, 0x20, 0xFF))):
        path.write_bytes(whole[:at] + bytes([whole[at] ^ flip]) + whole[at + 1 :])
        with pytest.raises(TableFault):
            TableSet(path.parent)
    for size in range(0, len(whole), 3):
        path.write_bytes(whole[:size])
        with pytest.raises(TableCorrupt):
            TableSet(path.parent)


@pytest.mark.parametrize("name", ["records.zst", "digests.zst", "band-00.sdt", "table-02.sdt"])
def test_a_flipped_byte_anywhere_is_found_and_never_answered_wrongly(damaged, name):
    tables, pages = damaged
    expected = tables.matches(pages)
    path = tables.directory / name
    whole = path.read_bytes()
    random = Random(name)
    for at in sorted(random.sample(range(len(whole)), 60)):
        path.write_bytes(whole[:at] + bytes([whole[at] ^ (1 << random.randrange(8))]) + whole[at + 1 :])
        found = list(verify(tables.directory))
        assert found
        assert all(str(path) in line for line in found)
        assert asked(tables.directory, pages) in (expected, name)
    for size in random.sample(range(len(whole)), 20):
        path.write_bytes(whole[:size])
        with pytest.raises(TableFault, match=name):
            TableSet(tables.directory)


def asked(directory, pages):
    """The answers of a damaged set; or which of its files is said to be damaged."""
    try:
        return TableSet(directory).matches(pages)
    except TableFault as error:
        return next(file.name for file in manifests.read(directory).files if file.name in str(error))


def test_files_of_another_set_are_found(damaged, tmp_path):
    tables, pages = damaged
    other = built(tmp_path / "other", pages[:-1], tables.relation).directory
    for name in ("table-01.sdt", "band-00.sdt", "records.zst"):
        shutil.copytree(tables.directory, tmp_path / "mixed")
        shutil.copy(other / name, tmp_path / "mixed" / name)
        assert any(name in line for line in verify(tmp_path / "mixed"))
        with pytest.raises(TableMismatch, match=name):
            TableSet(tmp_path / "mixed")
        shutil.rmtree(tmp_path / "mixed")


def relisted(directory: Path):
    """The manifest made anew for the files as they are: what only `verify` can find."""
    manifest = manifests.read(directory)
    files = [replace_entry(file, directory / file.name) for file in manifest.files if (directory / file.name).exists()]
    manifests.write(directory, replace(manifest, files=tuple(files)))


def replace_entry(file, path):
    return manifests.FileEntry(file.name, path.stat().st_size, file.items, manifests.checksum(path))


@pytest.mark.parametrize("name", ["table-01.sdt", "band-00.sdt", "records.zst"])
def test_a_table_that_holds_something_else_is_found_though_it_is_whole(damaged, tmp_path, name):
    """As many entries, one of them another: no checksum can tell."""
    tables, pages = damaged
    at = next(i for i, page in enumerate(pages) if page.fingerprint is not None and page.verifier & 0xFFFFFFFF)
    changed = [*pages]
    changed[at] = replace(pages[at], fingerprint=pages[at].fingerprint ^ 1)
    other = built(tmp_path / "other", changed, tables.relation).directory
    shutil.copy(other / name, tables.directory / name)
    relisted(tables.directory)
    found = list(verify(tables.directory))
    assert found
    assert all("than the records or the tables before it" in line for line in found)


def test_a_missing_or_strange_file_is_found(damaged):
    directory = damaged[0].directory
    (directory / "strange").touch()
    assert list(verify(directory)) == [f"{directory / 'strange'} is not listed in manifest.json"]
    (directory / "strange").unlink()
    (directory / "table-03.sdt").unlink()
    assert f"{directory / 'table-03.sdt'} is missing" in list(verify(directory))
    assert list(verify(directory / "none")) == [
        f"{directory / 'none'} holds no compressed tables: it has no manifest.json"
    ]


def test_queries_of_many_threads_are_answered_alike(tmp_path):
    pages = crowd(300, Random(30))
    tables = built(tmp_path / "set", pages, relation(design("6")))
    with ThreadPoolExecutor(4) as threads:
        found = list(threads.map(lambda at: tables.matches(pages[at : at + 40]), range(0, 300, 40)))
    assert [match for some in found for match in some] == tables.matches(pages)
    assert np.array_equal(next(tables.fingerprints()), next(tables.fingerprints()))
