"""Batches on a real Spark: the verdicts of file mode, whatever the partitions, and however often a task is tried."""

import base64
import csv
import json
import os
import threading
from codecs import BOM_UTF8
from collections import Counter
from functools import partial
from pathlib import Path
from random import Random
from types import SimpleNamespace

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zstandard

from simhash.archive import Portion
from simhash.index import Entry, Record
from tests.batches import differing, file_mode, fingerprints, lines, near_values, run, tables, written
from tests.conftest import SAMPLE
from tests.stream import json_page, texts
from tests.unit.test_warc import http, record
from worker.batch import job
from worker.batch.engine import StageStopped, TaskFailed
from worker.batch.launch import batch_of, relation_for
from worker.batch.request import Request, Watch
from worker.errors import InputError, SettingsError, TooFewJudged
from worker.index.configured import configured_profile
from worker.settings import load

PAGES = [json_page(n, text)[1] for n, text in enumerate(texts(300, Random(1)))]
REJECTED = [b"junk", b'{"url":"","text":"a"}', b'{"url":"http://x/","text":"a' + b"\\u0301" * 600 + b'"}']
CORPORA = os.environ.get("TEST_CORPORA")


def crawled_again(page):
    """The page; a copy of it at another address; and what a later crawl finds there: a paragraph changed."""
    yield page
    yield page | {"id": f"{page['id']}-copy", "url": f"{page['url']}?copy"}
    html = page["html"].replace("</p>", " Seen by nine readers.</p>", 1)
    yield page | {"id": f"{page['id']}-later", "url": f"{page['url']}?later", "html": html}


@pytest.fixture(scope="module")
def corpora(tmp_path_factory):
    """The pages of the directory that TEST_CORPORA names; or else the sample, and what crawls find of it again."""
    if CORPORA:
        return sorted(Path(CORPORA).glob("pages.jsonl*"))
    sample = zstandard.ZstdDecompressor().stream_reader(SAMPLE.open("rb")).read().splitlines()
    pages = [json.dumps(again).encode() for line in sample for again in crawled_again(json.loads(line))]
    Random(3).shuffle(pages)
    return [written(tmp_path_factory.mktemp("corpora") / "pages.jsonl", pages)]


@pytest.fixture(scope="module")
def halves(tmp_path_factory):
    """The sample in two files, one compressed, some pages in both; and the verdicts of file mode on each."""
    directory = tmp_path_factory.mktemp("halves")
    pages = zstandard.ZstdDecompressor().stream_reader(SAMPLE.open("rb")).read().splitlines()
    first = directory / "first.jsonl.zst"
    first.write_bytes(zstandard.compress(b"\n".join(pages[:250]) + b"\n"))
    second = written(directory / "second.jsonl", pages[230:])
    expected = file_mode(directory / "verdicts", first, second).splitlines(keepends=True)
    return first, second, [b"".join(expected[:250]), b"".join(expected[250:])]


@pytest.fixture(scope="module")
def verdicts(halves, tmp_path_factory):
    """The verdicts of file mode on both halves, as files: signed pages, cheap to judge again."""
    directory = tmp_path_factory.mktemp("verdicts")
    paths = [directory / "first.jsonl", directory / "second.jsonl"]
    for path, expected in zip(paths, halves[2], strict=True):
        path.write_bytes(expected)
    return paths


def test_the_sample_gets_the_verdicts_of_file_mode_byte_for_byte(batch, tmp_path, halves):
    first, second, expected = halves
    assert batch(first, second).unique > 100
    assert (tmp_path / "out" / "verdicts.jsonl").read_bytes() == b"".join(expected)


def with_views(schema):
    """As other programs write strings and bytes."""
    views = {pa.string(): pa.string_view(), pa.binary(): pa.binary_view()}
    return pa.schema([field.with_type(views.get(field.type, field.type)) for field in schema])


def test_a_second_batch_against_the_first_continues_it_as_the_stream_would(batch, tmp_path, halves, verdicts):
    expected = halves[2]
    batch(verdicts[0], out="first")
    first = pq.read_table(tmp_path / "first" / "verdicts.parquet")
    pq.write_table(first.cast(with_views(first.schema)), tmp_path / "first" / "views.parquet")
    (tmp_path / "first" / "marked.jsonl").write_bytes(BOM_UTF8 + (tmp_path / "first" / "verdicts.jsonl").read_bytes())
    for name in ("verdicts.parquet", "views.parquet", "verdicts.jsonl", "marked.jsonl"):
        summary = batch(verdicts[1], existing=[tmp_path / "first" / name])
        assert (tmp_path / "out" / "verdicts.jsonl").read_bytes() == expected[1]
        assert summary.duplicates_of_existing > 50
        assert summary.existing == sum(json.loads(line)["verdict"] == "unique" for line in expected[0].splitlines())
    batch(verdicts[0], existing=[tmp_path / "first" / "verdicts.parquet"], out="again")
    assert (tmp_path / "again" / "verdicts.jsonl").read_bytes() == expected[0], "a page read again is itself"


def test_annotated_pages_beside_their_verdicts_are_not_pages_that_were_unique(batch, tmp_path):
    pages = tmp_path / "a.parquet"
    pq.write_table(pa.Table.from_pylist([json.loads(page) for page in PAGES]), pages)
    unique = batch(pages, annotate="parquet", out="first").unique
    assert unique < len(PAGES)
    assert batch(pages, existing=[tmp_path / "first"]).existing == unique


@pytest.mark.parametrize("other", [PAGES[5], PAGES[1]], ids=["no match", "a match"])
def test_numbers_decide_which_match_is_the_oldest_only_where_all_existing_pages_have_one(batch, tmp_path, other):
    """Whatever of the others matches."""
    first, old = json.loads(PAGES[0]), tmp_path / "old"
    old.mkdir()
    for seq, name in ((9, "a"), (2, "b")):
        batch(written(tmp_path / f"{name}.jsonl", [json.dumps({**first, "url": f"http://{name}/"}).encode()]))
        (row,) = lines(tmp_path / "out" / "verdicts.jsonl")
        (old / f"{name}.jsonl").write_text(json.dumps({**row, "seq": seq}))
    batch(written(tmp_path / "new.jsonl", PAGES[:2]), existing=[old])
    assert lines(tmp_path / "out" / "verdicts.jsonl")[0]["match"]["url"] == "http://b/"
    written(old / "c.jsonl", [json.dumps({**json.loads(other), "url": "http://c/"}).encode()])
    batch(tmp_path / "new.jsonl", existing=[old])
    assert lines(tmp_path / "out" / "verdicts.jsonl")[0]["match"]["url"] == "http://a/"


def test_corpora_get_the_verdicts_of_file_mode_byte_for_byte(batch, tmp_path, corpora):
    expected = file_mode(tmp_path / "file", *corpora)
    summary = batch(*corpora)
    assert min(summary.unique, summary.duplicates_exact, summary.duplicates_near) > 100
    assert differing(tmp_path / "out" / "verdicts.jsonl", expected) == []
    verdicts = expected.splitlines()
    middle = len(verdicts) // 2
    first, second = written(tmp_path / "first.jsonl", verdicts[:middle]), tmp_path / "second.jsonl"
    batch(written(second, verdicts[middle:]), existing=[first], out="continued")
    assert differing(tmp_path / "continued" / "verdicts.jsonl", second.read_bytes()) == []


def test_partitions_do_not_show(batch, tmp_path, halves, verdicts, monkeypatch):
    monkeypatch.setattr(job, "MOST_PAIRS", 1)
    monkeypatch.setattr(job, "FEWEST", 1)  # who matches several is asked again
    monkeypatch.setattr(job, "TABLE_ENTRIES", 150)
    monkeypatch.setattr(job, "PAIR_RANGE", 97)
    monkeypatch.setattr("worker.batch.slices.SLICE_BYTES", 60_000)
    batch(*verdicts)
    assert (tmp_path / "out" / "verdicts.jsonl").read_bytes() == b"".join(halves[2])
    batch(verdicts[1], existing=verdicts[:1])
    assert (tmp_path / "out" / "verdicts.jsonl").read_bytes() == halves[2][1]


class Here:
    """Does the tasks in this process, one after the other."""

    cores = 2

    def broadcast(self, value):
        return SimpleNamespace(value=value, unpersist=lambda: None)

    def run(self, function, tasks, stopping, on_progress):
        return [function(task) for task in tasks]


@pytest.mark.parametrize("order", ["as they came", "shuffled"])
def test_the_oldest_match_counts_whichever_block_it_is_in(tmp_path, verdicts, monkeypatch, order):
    monkeypatch.setattr("worker.batch.row_blocks.VERDICT_ROWS", 7)
    unique = [verdict for verdict in lines(verdicts[0]) if verdict["seq"] and verdict["fingerprint"]][:20]
    old = [unique[n % 20] | {"seq": 1 + n, "url": f"http://old/{n}", "observation": f"{n:032x}"} for n in range(100)]
    if order == "shuffled":
        Random(3).shuffle(old)
    existing = written(tmp_path / "old.jsonl", [json.dumps(verdict).encode() for verdict in old])
    new = written(tmp_path / "new.jsonl", [json.dumps(verdict).encode() for verdict in unique])
    run(Here(), tmp_path, [new], existing=[existing])
    assert [v["match"]["seq"] for v in lines(tmp_path / "out" / "verdicts.jsonl")] == [*range(1, 21)]


BEST = {
    "longest": lambda verdict: -verdict["features"],
    "newest": lambda verdict: verdict["fetched_at"] is None or -float(verdict["fetched_at"][17:19]),
    "field:rank": lambda verdict: -verdict["rank"] if verdict["rank"] is not None else 1e9,
}


@pytest.mark.parametrize("keep", BEST)
def test_what_is_to_be_kept_is_judged_first(tmp_path, verdicts, keep):
    told = [verdict for path in verdicts for verdict in lines(path)]
    for number, verdict in enumerate(told):
        seconds = Random(number).choice([None, 1, 2, 3])
        verdict["rank"] = Random(-1 - number).choice([None, 7, -1, 2.5])
        verdict["fetched_at"] = seconds and f"2026-01-01T0{4 - seconds}:00:0{seconds}+0{4 - seconds}:00"
    ordered = sorted(told, key=BEST[keep])
    paths = [tmp_path / "told.jsonl", tmp_path / "ordered.jsonl"]
    for path, rows in zip(paths, (told, ordered), strict=True):
        written(path, [json.dumps(row).encode() for row in rows])
    run(Here(), tmp_path, [paths[0]], out="kept", keep=keep, clusters=True)
    run(Here(), tmp_path, [paths[1]], out="expected", clusters=True)
    expected = {verdict["observation"]: verdict for verdict in lines(tmp_path / "expected" / "verdicts.jsonl")}
    found = lines(tmp_path / "kept" / "verdicts.jsonl")
    assert [verdict["observation"] for verdict in found] == [verdict["observation"] for verdict in told]
    assert found == [expected[verdict["observation"]] for verdict in told]
    assert {verdict["verdict"] for verdict in found} == {"unique", "duplicate"}
    clusters = [
        [{page["url"] for page in row["pages"]} for row in lines(tmp_path / out / "clusters.jsonl")]
        for out in ("kept", "expected")
    ]
    assert sorted(map(sorted, clusters[0])) == sorted(map(sorted, clusters[1]))
    if keep == "longest":
        assert not any(verdict["better"] for verdict in found)


@pytest.mark.parametrize("given", ["lines", "marked lines", "csv", "pages in parquet", "signatures in parquet"])
def test_a_field_to_keep_by_is_read_from_every_input(tmp_path, given):
    ranks = [1, None, (1 << 60) + 1, 2]
    rows = [{"url": f"http://x/{n}", "html": f"<p>{TEXT}</p>", "rank": rank} for n, rank in enumerate(ranks)]
    path = tmp_path / "pages.parquet"
    if given.endswith("lines"):
        if given.startswith("marked"):
            rows = [rows[2], rows[0], rows[1], rows[3]]  # the one that is kept stands behind the mark
        path = written(tmp_path / "pages.jsonl", [json.dumps(row).encode() for row in rows])
        path.write_bytes(BOM_UTF8 * given.startswith("marked") + path.read_bytes())
    elif given == "csv":
        path = tmp_path / "pages.csv"
        with path.open("w", newline="") as file:
            writer = csv.DictWriter(file, rows[0].keys())
            writer.writeheader()
            writer.writerows(rows)
    elif given == "pages in parquet":
        pq.write_table(pa.table({"url": [row["url"] for row in rows], "html": [row["html"].encode() for row in rows],
                                 "rank": ranks}), path)  # fmt: skip
    else:
        fingerprints(path, pa.array([5] * 4, pa.uint64()), url=[row["url"] for row in rows], rank=ranks)
    options = {"k": 3} if given.startswith("sig") else {}
    run(Here(), tmp_path, [path], keep="field:rank", **options)
    found = lines(tmp_path / "out" / "verdicts.jsonl")
    assert {verdict["url"] for verdict in found if verdict["seq"] == 1} == {"http://x/2"}
    assert [verdict["verdict"] for verdict in found].count("duplicate") == 3
    assert {verdict["match"]["url"] for verdict in found if verdict["match"]} == {"http://x/2"}
    with pytest.raises(InputError, match="--keep field:other: no page has a number in that field"):
        run(Here(), tmp_path, [path], out="other", keep="field:other", **options)


TEXT = "A page of some words about the weather, which is grey again and will stay so until the evening at least."


def test_existing_pages_that_were_never_judged_count_as_they_are(batch, tmp_path):
    old = written(tmp_path / "old.jsonl", [*PAGES[:2], REJECTED[0], *PAGES[2:50]])
    new = written(tmp_path / "new.jsonl", PAGES[40:60])
    batch(new, existing=[old])
    found = lines(tmp_path / "out" / "verdicts.jsonl")
    for number, verdict in enumerate(found[:10], 40):
        assert verdict["verdict"] == "duplicate"
        assert verdict["match"]["seq"] <= number + 2, "its place among the existing pages, from 1"
    assert min(v["seq"] for v in found if v["seq"]) == 52


def test_every_record_has_a_verdict_or_a_rejection_as_in_file_mode(batch, tmp_path):
    mixed = written(tmp_path / "a.jsonl", PAGES[:100] + REJECTED + PAGES[100:])
    warc = tmp_path / "b.warc"
    image = record(http(b"GIF89a", {"Content-Type": "image/gif"}))
    warc.write_bytes(record(http("<p>Grüße".encode(), {"Content-Type": "text/html; charset=utf-8"})) + image)
    html = tmp_path / "pages"
    html.mkdir()
    for number in range(3):
        (html / f"{number}.html").write_text(f"<p>{number}")
    summary = batch(mixed, warc, html)
    assert (tmp_path / "out" / "verdicts.jsonl").read_bytes() == file_mode(tmp_path / "file", mixed, warc, html)
    assert (tmp_path / "out" / "rejected.jsonl").read_bytes() == (tmp_path / "file.rejected.jsonl").read_bytes()
    assert (summary.pages, summary.rejected, summary.skipped, summary.complete) == (304, 3, 1, True)
    assert base64.b64decode(lines(tmp_path / "out" / "rejected.jsonl")[0]["value_base64"]) == b"junk\n"


def test_existing_records_that_cannot_be_read_are_counted_reported_and_bounded(batch, tmp_path):
    new = written(tmp_path / "new.jsonl", PAGES[:20])
    old = written(tmp_path / "old.jsonl", [*PAGES[10:30], *REJECTED[:2], b"junk"])
    summary = batch(new, existing=[old], max_rejected=3)
    assert (summary.existing, summary.existing_rejected, summary.rejected) == (20, 3, 0)
    assert summary.duplicates_of_existing >= 10
    told = lines(tmp_path / "out" / "rejected.jsonl")
    assert [(row["input"], row["record"]) for row in told] == [(str(old), 20), (str(old), 21), (str(old), 22)]
    assert summary.reasons()[0].example.startswith(f"existing, {old}: decode: not JSON")
    with pytest.raises(TooFewJudged, match="3 existing records cannot be read, more than 2, mostly: existing, "):
        batch(new, existing=[old], out="strict", max_rejected=2)
    assert os.listdir(tmp_path / "strict") == []


def test_existing_records_of_which_none_can_be_read_are_an_error(batch, tmp_path):
    new = written(tmp_path / "new.jsonl", PAGES[:20])
    old = written(tmp_path / "old.jsonl", [b'{"page":"http://x/"}'] * 5)
    with pytest.raises(
        TooFewJudged, match="5 existing records cannot be read, and there are no others, mostly: existing, "
    ):
        batch(new, existing=[old])


@pytest.mark.parametrize("values", [[], [b'{"url":"http://a/","text":"short"}'] * 3])
def test_without_any_fingerprint_all_are_judged_too(batch, tmp_path, values):
    new = tmp_path / "new.jsonl"
    new.write_bytes(b"".join(value + b"\n" for value in values))
    old = written(tmp_path / "old.jsonl", [b'{"url":"http://b/","text":"another"}'])
    summary = batch(new, existing=[old])
    assert (summary.pages, summary.unique) == (len(values), min(1, len(values)))
    batch(new)
    assert (tmp_path / "out" / "verdicts.jsonl").read_bytes() == file_mode(tmp_path / "file", new)


def test_both_forms_of_the_verdicts_say_the_same(batch, tmp_path):
    batch(written(tmp_path / "a.jsonl", PAGES))
    rows = pq.read_table(tmp_path / "out" / "verdicts.parquet").to_pylist()
    for row, verdict in zip(rows, lines(tmp_path / "out" / "verdicts.jsonl"), strict=True):
        fingerprint = row["fingerprint"]
        row["fingerprint"] = None if fingerprint is None else f"{fingerprint:016x}"
        row |= {name: row[name] and row[name].hex() for name in ("verifier", "observation")}
        assert row == verdict


def test_pages_in_parquet_are_judged_like_their_lines(batch, tmp_path):
    rows = [json.loads(page) for page in PAGES]
    (tmp_path / "parts").mkdir()
    pq.write_table(pa.Table.from_pylist(rows[:200]), tmp_path / "parts" / "0.parquet", row_group_size=70)
    pq.write_table(pa.Table.from_pylist(rows[200:]), tmp_path / "parts" / "1.parquet")
    batch(tmp_path / "parts")
    in_parquet = lines(tmp_path / "out" / "verdicts.jsonl")
    batch(written(tmp_path / "a.jsonl", PAGES))
    in_lines = lines(tmp_path / "out" / "verdicts.jsonl")
    for one, other in zip(in_parquet, in_lines, strict=True):
        assert {**one, "observation": "", "source": ""} == {**other, "observation": "", "source": ""}
    assert [v["source"]["offset"] for v in in_parquet] == [*range(200), *range(100)]


@pytest.mark.parametrize("form", ["jsonl", "parquet", "csv"])
def test_annotated_pages_say_what_they_match_and_how_many_match_them(batch, tmp_path, form):
    rows = [json.loads(page) for page in PAGES]
    path = tmp_path / f"a.{form}"
    if form == "parquet":
        pq.write_table(pa.Table.from_pylist(rows), path, row_group_size=70)
    elif form == "csv":
        with path.open("w", newline="") as file:
            writer = csv.DictWriter(file, rows[0].keys())
            writer.writeheader()
            writer.writerows(rows)
    else:
        written(path, [*PAGES[:50], *REJECTED, *PAGES[50:]])
    batch(path, annotate=form)
    told = lines(tmp_path / "out" / "verdicts.jsonl")
    copies = Counter(v["match"]["url"] for v in told if v["match"])
    found = tmp_path / "out" / f"annotated.{form}"
    read = {"jsonl": lines, "parquet": lambda path: pq.read_table(path).to_pylist()}
    annotated = read[form](found) if form in read else list(csv.DictReader(found.open(newline="")))
    assert [{name: row[name] for name in rows[0]} for row in annotated] == rows
    kept = {v["url"] for v in told if not v["match"]}
    assert sum(int(row["copies"]) for row in annotated) == sum(copies.values()) > 0
    for row, verdict in zip(annotated, told, strict=True):
        match = verdict["match"]
        assert (row["dup_of"] or None, row["similarity"] or None) == (
            (match["url"], str(match["similarity"]) if form == "csv" else match["similarity"])
            if match
            else (None, None)
        )
        assert int(row["copies"]) == (copies[row["url"]] if row["url"] in kept else 0)


def test_nothing_of_an_earlier_batch_lies_beside_the_results(batch, tmp_path):
    batch(written(tmp_path / "a.jsonl", PAGES[:20]), clusters=True, annotate="jsonl")
    batch(tmp_path / "a.jsonl")


def test_verdicts_are_not_annotated(batch, tmp_path, verdicts):
    with pytest.raises(InputError, match="holds no pages but signatures"):
        batch(verdicts[0], annotate="jsonl")


def test_rows_of_parquet_that_are_no_pages_are_rejected_one_by_one(batch, tmp_path):
    """Other programs write bytes without saying that they are UTF-8, numbers as names, times finer than Python's."""
    good = json.loads(PAGES[0])["text"]
    text = pa.array([good.encode(), b"\xff" + good.encode(), None, good.encode(), b"x" * 11_000_000], pa.binary())
    columns = {
        "url": pa.array([b"http://a/", b"http://b/", b"http://c/", None, b"http://d/"], pa.binary()),
        "text": text,
    }
    columns |= {"id": [7, 8, 9, 10, 11], "fetched_at": pa.array([1] * 5, pa.timestamp("ns", "UTC"))}
    pq.write_table(pa.table(columns), tmp_path / "mixed.parquet")
    summary = batch(tmp_path / "mixed.parquet")
    (verdict,) = lines(tmp_path / "out" / "verdicts.jsonl")
    assert (verdict["url"], verdict["id"]) == ("http://a/", "7")
    assert verdict["fetched_at"].startswith("1970-01-01T00:00:00")
    assert (
        verdict["fingerprint"]
        == json.loads(file_mode(tmp_path / "v", written(tmp_path / "a", PAGES[:1])))["fingerprint"]
    )
    said = {row["record"]: row["message"] for row in lines(tmp_path / "out" / "rejected.jsonl")}
    assert summary.rejected == len(said) == 4
    for number, words in (
        (1, "not UTF-8: byte 0"),
        (2, "exactly one of html"),
        (3, "field `url`"),
        (4, "11,000,000"),
    ):
        assert words in said[number]


def test_a_damaged_parquet_file_is_one_line(batch, tmp_path):
    path = fingerprints(tmp_path / "a.parquet", near_values(1))
    content = bytearray(path.read_bytes())
    content[8:40] = b"\xff" * 32
    path.write_bytes(content)
    for options in ({"new": path}, {"new": fingerprints(tmp_path / "b.parquet", near_values(2)), "existing": [path]}):
        with pytest.raises(InputError, match=r"^.*a\.parquet: [^\n]+$"):
            batch(options.pop("new"), k=3, **options)


GIVEN = {
    "fingerprint": pa.array([1, 1, 0xFFFF << 40], pa.uint64()),
    "url": pa.array(["http://x/0", "http://x/1", "http://x/2"]),
}


@pytest.mark.parametrize(
    ("column", "values", "why"),
    [
        ("url", ["http://x/0", None, "http://x/2"], "column url has rows without a value"),
        ("observation", [b"1" * 16, None, b"2" * 16], "column observation has rows without a value"),
        ("features", [1, None, 2], "column features has rows without a value"),
        ("digest", ["text:" + "1" * 32, None, "text:" + "2" * 32], None),
        ("fetched_at", ["2026-01-01T00:00:00Z", None, None], None),
        ("id", [None, "1", "2"], None),
    ],
)
def test_signatures_with_holes_are_read_or_refused_in_one_line(tmp_path, column, values, why):
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table(GIVEN | {column: values}), path)
    if why:
        with pytest.raises(InputError, match=rf"a\.parquet: {why}"):
            run(Here(), tmp_path, [path], k=3)
        return
    run(Here(), tmp_path, [path], k=3)
    found = lines(tmp_path / "out" / "verdicts.jsonl")
    assert [verdict["verdict"] for verdict in found] == ["unique", "duplicate", "unique"]
    assert found[1]["match"]["kind"] == "near"


@pytest.mark.parametrize("content", ["html", "fingerprint"])
def test_a_column_that_is_there_twice_is_refused(tmp_path, content):
    names = ["url", content, content]
    columns = [GIVEN["url"], *([GIVEN["fingerprint"] if content == "fingerprint" else pa.array(["<p>x"] * 3)] * 2)]
    pq.write_table(pa.Table.from_arrays(columns, names=names), tmp_path / "a.parquet")
    with pytest.raises(InputError, match=rf"a\.parquet: has more than one column {content}"):
        run(Here(), tmp_path, [tmp_path / "a.parquet"], k=3)


# Compressed tables ---------------------------------------------------------------------------------------------------


def stored(verdict):
    """The unique page of a verdict as an index keeps it."""
    fingerprint = verdict["fingerprint"] and int(verdict["fingerprint"], 16)
    verifier = verdict["verifier"] and int(verdict["verifier"], 16)
    own, seq = bytes.fromhex(verdict["observation"]), verdict["seq"]
    page = Entry(
        own,
        None,
        fingerprint,
        verifier,
        verdict["digest"],
        *(verdict[n] for n in ("url", "id", "fetched_at", "features")),
    )
    return fingerprint, Record.of(page, seq, 0)


def test_tables_of_an_index_are_existing_pages(batch, tmp_path, halves, verdicts, monkeypatch):
    monkeypatch.setattr("worker.batch.slices.SLICE_BLOCKS", 2)
    rows = [stored(verdict) for verdict in lines(verdicts[0]) if verdict["seq"]]
    profile = configured_profile(load({}))
    relation = relation_for(load({}), profile, None)(0)
    archive = tables(tmp_path / "archive", Portion(len(rows), records=rows), relation, profile.recipe())
    for new, expected in zip(verdicts[::-1], halves[2][::-1], strict=True):
        summary = batch(new, existing=[archive])
        assert (tmp_path / "out" / "verdicts.jsonl").read_bytes() == expected
    assert summary.existing == len(rows)
    with pytest.raises(
        InputError, match=r"archive: holds signatures of profile default/2, and this batch .* segmented/1"
    ):
        batch(written(tmp_path / "a.jsonl", PAGES[:2]), existing=[archive], settings={"profile": "segmented"})


# When something fails ----------------------------------------------------------------------------------------------


def failing(work, marker: Path):
    """`work`, of whose tasks some fail: one before it has done its work, and one or two after."""

    def fails_twice(part):
        if not marker.exists():
            marker.touch()
            raise RuntimeError("injected before")
        done = work(part)
        if not marker.read_bytes():
            marker.write_bytes(b"twice")
            raise RuntimeError("injected after")
        return done

    return fails_twice


def test_a_task_that_fails_is_tried_again_without_doubling(batch, tmp_path, halves, verdicts, monkeypatch):
    markers = {stage: tmp_path / f"failed-{stage}" for stage in ("Sign", "Scan", "Pair", "Link")}
    for stage, marker in markers.items():
        whole = getattr(job, stage)
        failed = partial(lambda whole, marker, *given: failing(whole(*given), marker), whole, marker)
        monkeypatch.setattr(job, stage, failed)
    batch(verdicts[1], existing=verdicts[:1], clusters=True)
    assert {marker.read_bytes() for marker in markers.values()} == {b"twice"}
    assert (tmp_path / "out" / "verdicts.jsonl").read_bytes() == halves[2][1]


def test_a_task_that_always_fails_is_named_by_its_cause(engine):
    def fails(number):
        raise ZeroDivisionError(f"task {number}")

    with pytest.raises(TaskFailed, match="a task failed 4 times: ZeroDivisionError: task 7"):
        engine.run(fails, [7], threading.Event())


def test_an_input_that_breaks_off_is_named_and_nothing_is_written(batch, tmp_path):
    whole = zstandard.compress(b"\n".join(PAGES) + b"\n")
    (tmp_path / "a.jsonl.zst").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(InputError, match=r"a\.jsonl\.zst: .*cut off"):
        batch(tmp_path / "a.jsonl.zst")
    assert os.listdir(tmp_path / "out") == []


def test_an_address_is_refused(tmp_path):
    with pytest.raises(InputError, match="a batch reads paths that all its machines see"):
        batch_of(Request(("s3://pages/a.jsonl",), (), tmp_path, load({}, None, {})))


def test_inputs_that_are_none_are_refused_before_spark_starts(tmp_path):
    def asked(*new, settings=None, **options):
        return batch_of(Request(tuple(map(str, new)), (), tmp_path, load(settings or {}), **options))

    page = written(tmp_path / "a.jsonl", PAGES)
    (tmp_path / "bad.parquet").write_bytes(b"PAR1")
    for names, message in (((tmp_path / "none",), "no such file"), (("-",), "reads files"), ((page, page), "twice")):
        with pytest.raises(InputError, match=message):
            asked(*names)
    bare = written(tmp_path / "b.jsonl", [b'{"fingerprint":"00000000000000ff","url":"http://x/"}'])
    with pytest.raises(InputError, match=r"b\.jsonl: fingerprints as lines of JSON are not read: write"):
        asked(bare)
    (tmp_path / "in").mkdir()
    inside = written(tmp_path / "in" / "c.jsonl", PAGES)
    (tmp_path / "in" / "d.html").write_text("<p>x")
    with pytest.raises(InputError, match="is given twice"):
        asked(tmp_path / "in", inside)
    inside.unlink()
    with pytest.raises(InputError, match="is given twice"):
        asked(tmp_path / "in" / "d.html", tmp_path / "in")
    with pytest.raises(InputError, match="not UTF-8"):
        Request((page,), (), tmp_path / os.fsdecode(b"\xff"), load({}))
    with pytest.raises(SettingsError, match="design: 4 guarantees 3 bits, not --k 5"):
        asked(page, k=5, settings={"design": "4"})


def test_a_run_that_is_stopped_ends_and_leaves_nothing(batch, tmp_path):
    stopping = threading.Event()

    def on_progress(stage, done, total):
        if stage == "pairing":
            stopping.set()

    with pytest.raises(StageStopped):
        batch(written(tmp_path / "a.jsonl", PAGES), watch=Watch(stopping, on_progress))
    assert os.listdir(tmp_path / "out") == []
