"""Building and merging compressed tables: in bounded memory, killed anywhere, the same bytes whatever the way."""

import json
import os
from collections import Counter
from dataclasses import replace
from itertools import pairwise
from random import Random

import numpy as np
import pytest
import xxhash

from simhash import native
from simhash.archive import BuildPlan, Effort, Holding, TableSet, build
from simhash.archive.building.merging import Merged, holding
from simhash.archive.format import keys as arrays
from simhash.archive.format.blocks import code_lengths
from simhash.archive.format.manifest import parts
from simhash.archive.format.table_file import TableFile
from simhash.archive.lookup.opened import verifier_bytes
from simhash.archive.verify import verify
from simhash.errors import TableCorrupt, TableMismatch
from simhash.relation.tables import design
from tests.pages import banded, crowd, relation
from tests.tables import PROFILE, SMALL, Listed, built, content, first_difference, nothing

# Building ----------------------------------------------------------------------------------------------------------


def test_kernel_and_numpy_write_the_same_bytes_whatever_the_memory(tmp_path, monkeypatch):
    rule = replace(relation(design("6"), reach=12), bands=2)
    pages = banded(crowd(120, Random(6)), 2, Random(7))
    first = content(built(tmp_path / "a", pages, rule, Effort(block_keys=8)).directory)
    monkeypatch.setattr(native, "blocks", lambda: None)
    second = content(built(tmp_path / "b", pages, rule, SMALL).directory)
    assert first == second


@pytest.mark.slow
def test_the_code_of_each_table_is_huffmans_for_its_own_neighbours(tmp_path):
    rule = replace(relation(design("6"), reach=12), bands=2)
    tables = built(tmp_path / "set", banded(crowd(300, Random(6)), 2, Random(7)), rule)
    codes = []
    for part in parts(rule):
        table = TableFile(tables.directory / part.name)
        keys = arrays.to_ints(np.concatenate(list(table.chunks())), part.width)
        differences = [first_difference(a, b, part.width) for a, b in pairwise(keys)]
        counts = Counter(part.width if h is None else h for h in differences)
        codes.append(table.file.header.extra)
        assert codes[-1] == bytes(code_lengths([counts[h] for h in range(part.width + 1)]))
    assert len(set(codes)) > len(codes) // 2


def test_the_manifest_says_what_the_set_is(tmp_path):
    rule = replace(relation(design("4"), reach=12), bands=1)
    pages = banded(crowd(120, Random(8)), 1, Random(9))
    directory = built(tmp_path / "set", pages, rule).directory
    said = json.loads((directory / "manifest.json").read_bytes())
    short = sum(page.fingerprint is None for page in pages)
    assert (said["fingerprints"], said["records"], said["digests"]) == (120 - short, 120 - short, short)
    assert (said["format"], said["profile"]) == (1, PROFILE)
    wanted = {"reach": 12, "verifier_reach": 14, "verifier_bits": 64, "bands": 1}
    assert said["relation"] == wanted | {"design": rule.design.describe()}
    for file in said["files"]:
        content = (directory / file["name"]).read_bytes()
        assert (file["bytes"], file["checksum"]) == (len(content), xxhash.xxh3_128_hexdigest(content))
    assert {file["name"] for file in said["files"]} | {"manifest.json"} == set(os.listdir(directory))


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


@pytest.mark.slow
@pytest.mark.parametrize("has_records", [True, False])
def test_a_build_killed_anywhere_goes_on_where_it_was(tmp_path, has_records):
    rule = replace(relation(design("4"), reach=12), bands=1)
    pages = banded(crowd(120, Random(8)), 1, Random(9))
    items = pages if has_records else [page.fingerprint or 0 for page in pages]
    rule = rule if has_records else relation(design("4"), 3, None)
    whole = content(built(tmp_path / "whole", items, rule).directory)
    held = Holding(64, has_records, verifier_bytes(rule), rule.bands)
    plan = BuildPlan(PROFILE if has_records else None, held, lambda _: rule, "job")
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
    plan = BuildPlan(None, Holding(64, False), lambda _: rule, job)
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
    plan = BuildPlan(None, Holding(64, False), lambda _: rule, "another job")
    with pytest.raises(TableMismatch, match="unfinished build of something else"):
        build(tmp_path / "out", Listed([1]), plan, SMALL, nothing)
    (tmp_path / "out" / "building" / "state.json").write_bytes(b'{"job":"\xff')
    with pytest.raises(TableCorrupt, match=r"state\.json is damaged: .*Remove .*building, and build again"):
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
    plan = BuildPlan(sets[0].profile, holding(sets), lambda _: rule, "merge")
    build(out, Merged(sets, keep), plan, effort, nothing)
    return TableSet(out)


@pytest.mark.slow
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


@pytest.mark.slow
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
