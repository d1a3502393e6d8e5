"""Tables that were damaged or cut off, before they are opened or while they are read: an error that names the place."""

import errno
import os
import shutil
from dataclasses import replace
from itertools import cycle
from pathlib import Path
from random import Random

import pytest

from simhash import native
from simhash.archive import TableSet
from simhash.archive.format import keys as arrays
from simhash.archive.format import manifest as manifests
from simhash.archive.format.container import Container
from simhash.archive.format.table_file import TableFile
from simhash.archive.lookup.ranges import Question, probe
from simhash.archive.verify import verify
from simhash.errors import TableCorrupt, TableFault, TableMismatch
from simhash.relation.tables import design
from tests.pages import banded, crowd, relation
from tests.tables import IDENTITY, built, fingerprints, write_table

# A file ------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    """A file of a few blocks."""
    random = Random(5)
    values = sorted([random.getrandbits(64) for _ in range(18)] + [7, 7])
    return write_table(tmp_path_factory.mktemp("small") / "small.sdt", 64, values, 4).read_bytes()


def opened_and_read(path):
    for _ in (table := TableFile(path, IDENTITY)).chunks():
        pass
    in_range(table, 0, 0)


def in_range(table, key, prefix):
    """The keys that begin as this one does."""
    question = Question(table, arrays.from_ints([key], 64), prefix, 0)
    return arrays.to_ints(probe([question], 64, 1)[0].keys, 64)


@pytest.mark.slow
def test_every_flipped_byte_is_an_error_that_names_the_place(path_taken, small, tmp_path):
    path = tmp_path / "flipped.sdt"
    path.write_bytes(small)
    whole = Container(path, 1, IDENTITY)
    places = [whole.place(block) for block in range(whole.header.blocks)]
    for at in range(len(small)):
        for flip in (1, 0x80, 0xFF):
            path.write_bytes(small[:at] + bytes([small[at] ^ flip]) + small[at + 1 :])
            with pytest.raises(TableFault) as caught:
                opened_and_read(path)
            assert str(path) in str(caught.value)
            for block, (begin, end) in enumerate(places):
                if begin <= at < end:
                    assert f"block {block} of {len(places)} (bytes {begin} to {end})" in str(caught.value)


def test_every_truncation_is_an_error_that_names_the_place(small, tmp_path):
    path = tmp_path / "cut.sdt"
    path.write_bytes(small)
    whole = Container(path, 1, IDENTITY)
    places = [whole.place(block) for block in range(whole.header.blocks)]
    for size in range(len(small)):
        path.write_bytes(small[:size])
        with pytest.raises(TableCorrupt) as caught:
            opened_and_read(path)
        assert str(path) in str(caught.value)
        for block, (begin, end) in enumerate(places):
            if begin <= size < end:
                assert f"cut off within block {block} of {len(places)}" in str(caught.value)
    path.write_bytes(small + b"\0")
    with pytest.raises(TableCorrupt, match="1 bytes too many"):
        opened_and_read(path)


def test_a_file_of_another_table_is_refused(small, tmp_path):
    path = tmp_path / "t.sdt"
    path.write_bytes(small)
    with pytest.raises(TableMismatch, match="another was put there"):
        TableFile(path, b"another identity")


def test_a_damaged_block_does_not_keep_others_from_being_read(small, tmp_path):
    path = tmp_path / "t.sdt"
    path.write_bytes(small)
    begin, _ = Container(path, 1).place(3)
    path.write_bytes(small[:begin] + bytes([small[begin] ^ 4]) + small[begin + 1 :])
    table = TableFile(path)
    assert set(in_range(table, 7, 64)) == {7}
    with pytest.raises(TableCorrupt, match="block 3 of 5"):
        list(table.chunks())


# A set -------------------------------------------------------------------------------------------------------------


@pytest.fixture
def damaged(tmp_path):
    """A set with records, to be damaged."""
    rule = replace(relation(design("4"), reach=12), bands=1)
    pages = banded(crowd(60, Random(20), short_share=0.3), 1, Random(21))
    return built(tmp_path / "set", pages, rule), pages


@pytest.mark.slow
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


@pytest.mark.slow
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


# While it is read --------------------------------------------------------------------------------------------------


def cut_after_the_look(monkeypatch, path, left):
    """Cut a file off behind the look at its length: what a lookup reads then is not there any more."""
    look = Container.check_length

    def look_and_cut(file):
        look(file)
        if file.path == path:
            os.truncate(path, left)

    monkeypatch.setattr(Container, "check_length", look_and_cut)


@pytest.mark.parametrize("asked", [1, 200])
@pytest.mark.parametrize("share", [0, 0.5])
def test_a_file_that_is_cut_off_within_a_lookup_is_told_with_the_block(path_taken, tmp_path, monkeypatch, asked, share):
    """Who touched a mapped page that is gone would be killed."""
    stored = sorted(fingerprints(200, Random(2)), reverse=True)
    tables = built(tmp_path / "set", stored, relation(design("4"), 3, None))
    path = tables.directory / "table-00.sdt"
    cut_after_the_look(monkeypatch, path, int(share * path.stat().st_size))
    with pytest.raises(TableCorrupt, match=r"table-00\.sdt: (block \d+ of 25 .* cut off|cut off within)"):
        tables.near(arrays.from_ints(stored[:asked], 64))


@pytest.mark.parametrize("name", ["records.zst", "digests.zst", "band-00.sdt"])
def test_any_file_that_is_cut_off_within_a_lookup_is_told(damaged, monkeypatch, name):
    tables, pages = damaged
    path = tables.directory / name
    cut_after_the_look(monkeypatch, path, 0)
    with pytest.raises(TableCorrupt, match=rf"{name}: (block \d+ of \d+ .* cut off|cut off within)"):
        tables.matches(pages)


@pytest.mark.parametrize("name", ["table-00.sdt", "records.zst"])
def test_a_file_that_is_cut_off_while_all_of_it_is_read_is_told(damaged, monkeypatch, name):
    """As a merge, a batch and `verify` read it."""
    monkeypatch.setattr("simhash.archive.format.table_file._AT_ONCE", 1)
    tables, _ = damaged
    path = tables.directory / name
    going = tables.scan()
    if name == "table-00.sdt":
        next(going := tables.fingerprints())
    os.truncate(path, path.stat().st_size - 9)
    with pytest.raises(TableCorrupt, match=rf"{name}: block \d+ of \d+ .* cut off there while it was open"):
        list(going)


@pytest.mark.parametrize("asked", [1, 200])
def test_a_disk_that_fails_is_told_with_the_block(tmp_path, monkeypatch, asked):
    def fails(*_):
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    stored = fingerprints(200, Random(2))
    tables = built(tmp_path / "set", stored, relation(design("4"), 3, None))
    monkeypatch.setattr(native, "blocks", lambda: None)  # the kernel reads by itself
    monkeypatch.setattr(os, "pread", fails)
    with pytest.raises(TableCorrupt, match=r"table-0\d\.sdt: block \d+ of 25 .*Input/output error"):
        tables.near(arrays.from_ints(stored[:asked], 64))
