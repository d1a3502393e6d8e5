"""File mode, in process: the same verdicts however it is run, every record accounted for, every page found again."""

import base64
import gzip
import json
import os
import threading
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path
from random import Random

import pytest

from simhash.index.interface import IndexSpec, Relation
from simhash.index.memory import MemoryIndex
from simhash.index.redis.opening import open_index
from simhash.index.redis.operators.check import check
from simhash.index.redis.operators.migration import Migration
from simhash.relation.tables import design
from simhash.signature.profiles import DEFAULT
from tests.stream import json_page, texts
from tests.unit.test_warc import http, record
from worker.errors import InputError
from worker.files.inputs import open_input
from worker.files.judged import Workbench, run_files
from worker.files.outputs import OutputPaths, Outputs
from worker.files.summary import Summary
from worker.judging.fingerprinters import Fingerprinters, PageLimits
from worker.judging.judge import Recipe
from worker.records.page import Limits
from worker.records.verdict import Match, SourceFields, Verdict

LIMITS = Limits(page=1 << 20, url=1 << 10, key=1 << 10)
PAGES = [json_page(n, text)[1] for n, text in enumerate(texts(300, Random(1)))]
REJECTED = [b"junk", b'{"url":"","text":"a"}', b'{"url":"http://x/","text":"a' + b"\\u0301" * 600 + b'"}']


@pytest.fixture(scope="module", params=[1, 2])
def pool(request):
    made = Fingerprinters(Recipe(DEFAULT, "json", LIMITS), request.param, PageLimits(60.0))
    yield made
    made.close()


@pytest.fixture
def bench(pool):
    return bench_of(pool)


def bench_of(pool):
    """An index of its own, in memory."""
    tables = design("4", DEFAULT.bits)
    relation = Relation(tables, DEFAULT.reach, DEFAULT.verifier_reach, DEFAULT.verifier_bits, DEFAULT.bands)
    index = MemoryIndex(IndexSpec(DEFAULT.recipe(), relation, 8, 1000))
    return Workbench(DEFAULT, index, pool, lambda: index)


@pytest.fixture
def places(tmp_path):
    names = ("verdicts", "unique", "rejected", "summary")
    return OutputPaths(**{name: tmp_path / name for name in names})


def run(bench, places, *names, stopping=None, on_progress=lambda summary: None):
    inputs = [open_input(str(name), LIMITS.page, spool=False, keep=True) for name in names]
    with ExitStack() as stack:
        outputs = Outputs(places, inputs)
        stack.callback(outputs.close)
        summary = run_files(inputs, outputs, bench, stopping or threading.Event(), on_progress)
        outputs.finish(summary)
        return summary


def lines(path):
    return [json.loads(line) for line in path.read_bytes().splitlines()]


def written(path, values):
    path.write_bytes(b"\n".join(values) + b"\n")
    return path


def test_every_record_has_a_verdict_or_a_rejection_in_input_order(bench, places, tmp_path):
    mixed = PAGES[:100] + REJECTED + PAGES[100:]
    summary = run(bench, places, written(tmp_path / "a.jsonl", mixed))
    offsets = [v["source"]["offset"] for v in lines(places.verdicts)]
    assert offsets == [*range(100), *range(103, 303)]
    rejected = lines(places.rejected)
    assert [r["record"] for r in rejected] == [100, 101, 102]
    assert [r["stage"] for r in rejected] == ["decode", "decode", "fingerprint"]
    assert base64.b64decode(rejected[0]["value_base64"]) == b"junk\n"
    assert (summary.pages, summary.rejected, summary.complete) == (300, 3, True)
    figures = json.loads(places.summary.read_bytes())
    assert figures["pages"] == figures["unique"] + figures["duplicates_exact"] + figures["duplicates_near"] == 300
    assert (figures["rejected"], figures["complete"]) == (3, True)


def test_each_unique_page_is_found_at_its_offset(bench, places, tmp_path):
    warc = tmp_path / "b.warc"
    warc.write_bytes(record(http("<p>Grüße aus Köln".encode("latin-1"), {"Content-Type": "text/html; charset=latin1"})))
    run(bench, places, written(tmp_path / "a.jsonl", PAGES), warc)
    unique = {v["seq"]: v for v in lines(places.verdicts) if v["verdict"] == "unique"}
    index = lines(places.unique_index)
    assert [entry["seq"] for entry in index] == list(unique)
    content = places.unique.read_bytes()
    for entry in index:
        page = json.loads(content[entry["offset"] : entry["offset"] + entry["length"]])
        assert page["url"] == entry["url"] == unique[entry["seq"]]["url"]
    assert sum(entry["length"] for entry in index) == len(content)
    assert base64.b64decode(page["html_base64"]).decode(page["charset"]) == "<p>Grüße aus Köln"


def test_the_unique_pages_are_input_again_and_all_unique(bench, places, tmp_path):
    first = run(bench, places, written(tmp_path / "a.jsonl", PAGES))
    again = tmp_path / "again.jsonl"
    os.rename(places.unique, again)
    fresh = replace(bench, index=MemoryIndex(bench.index.spec))
    assert run(fresh, places, again).unique == first.unique


def test_the_unique_texts_of_a_wet_are_signed_alike_when_they_are_read_again(bench, places, tmp_path):
    """What looks like markup in them is text."""
    texts = [" ".join(f"if (a{n}<b && c>d) <script> {word}" for n in range(60)) for word in ("one", "grün")]
    (tmp_path / "a.wet").write_bytes(b"".join(record(t.encode(), "conversion", "text/plain") for t in texts))
    run(bench, places, tmp_path / "a.wet")
    first = [(v["fingerprint"], v["digest"]) for v in lines(places.verdicts)]
    again = tmp_path / "again.jsonl"
    os.rename(places.unique, again)
    assert [page["text"] for page in lines(again)] == texts
    run(replace(bench, index=MemoryIndex(bench.index.spec)), places, again)
    assert [(v["fingerprint"], v["digest"]) for v in lines(places.verdicts)] == first


def test_the_same_file_again_gets_the_same_verdicts_and_its_copy_duplicates(bench, places, tmp_path):
    path = written(tmp_path / "a.jsonl", PAGES)
    run(bench, places, path)
    first = places.verdicts.read_bytes()
    run(bench, places, path)
    assert places.verdicts.read_bytes() == first
    run(bench, places, written(tmp_path / "copy.jsonl", PAGES))
    assert {v["verdict"] for v in lines(places.verdicts)} == {"duplicate"}


def test_what_comes_before_a_broken_place_is_judged_and_written(bench, places, tmp_path):
    whole = gzip.compress(b"\n".join(PAGES) + b"\n")
    (tmp_path / "a.jsonl.gz").write_bytes(whole[: len(whole) * 2 // 3])
    with pytest.raises(InputError, match=r"a\.jsonl\.gz: Compressed file ended"):
        run(bench, places, tmp_path / "a.jsonl.gz", written(tmp_path / "b.jsonl", PAGES))
    found = [v["source"]["offset"] for v in lines(places.verdicts)]
    assert found == list(range(len(found)))
    assert len(found) > 100


def test_a_migration_in_the_middle_changes_no_verdict(bench, places, client, name, tmp_path):
    pages = written(tmp_path / "pages.jsonl", PAGES)
    assert run(bench, places, pages).complete
    undisturbed = places.verdicts.read_bytes()
    migrated = []

    def migrate(summary):
        if summary.pages and not migrated:
            Migration(client, name, lambda step: None).run(lambda present: replace(present, bucket_bits=9))
            migrated.append(summary.pages)

    opened = partial(open_index, client, name, DEFAULT.recipe(), bench.index.spec.relation, 1000)
    bench.index, bench.reopen = opened(), opened
    assert run(bench, places, pages, on_progress=migrate).complete
    assert 0 < migrated[0] < len(PAGES)
    assert places.verdicts.read_bytes() == undisturbed
    assert bench.index.spec.bucket_bits == 9
    assert check(bench.index.inside, lambda _: None).violations == []


def test_a_stopped_run_says_that_it_is_not_complete(bench, places, tmp_path):
    stopping = threading.Event()
    summary = run(
        bench,
        places,
        written(tmp_path / "a.jsonl", PAGES * 10),
        stopping=stopping,
        on_progress=lambda now: stopping.set() if now.pages else None,
    )
    assert not summary.complete
    assert len(lines(places.verdicts)) == summary.pages > 0
    assert json.loads(places.summary.read_bytes())["complete"] is False


def test_all_records_that_are_no_pages_are_counted_as_skipped_those_at_the_end_too(bench, places, tmp_path):
    path = tmp_path / "a.warc"
    image = record(http(b"GIF89a", {"Content-Type": "image/gif"}))
    path.write_bytes(image + record(http()) + 300 * image)
    summary = run(bench, places, path)
    assert (summary.pages, summary.skipped, json.loads(places.summary.read_bytes())["skipped"]) == (1, 301, 301)


def test_the_page_format_of_a_topic_is_not_that_of_files(say, tmp_path):
    """One configuration serves the stream, and files."""
    (tmp_path / "dedup.toml").write_text('page_format = "html"\n')
    (tmp_path / "pages.jsonl").write_bytes(json_page(1, "Some words of a page that is read as JSON.")[1])
    code, _, told = say("file", tmp_path / "pages.jsonl", "--out", tmp_path / "v", "--config", tmp_path / "dedup.toml")
    assert (code, [row["verdict"] for row in lines(tmp_path / "v")]) == (0, ["unique"]), told


def test_a_long_rejected_record_is_named_by_its_digest(bench, places, tmp_path):
    run(bench, places, written(tmp_path / "a.jsonl", [b"x" * (2 << 20)]))
    (rejected,) = lines(places.rejected)
    assert rejected["value_digest"].startswith("2097153 bytes, xxh3_128 ")


@pytest.mark.parametrize("name", ["verdicts", "rejected", "summary"])
def test_an_output_that_cannot_be_written_is_said(bench, places, tmp_path, name):
    path = written(tmp_path / "a.jsonl", PAGES + REJECTED)
    with pytest.raises(InputError, match="cannot write /dev/full: No space left on device"):
        run(bench, replace(places, **{name: Path("/dev/full")}), path)
    with pytest.raises(InputError, match=r"cannot write .*/none/x: No such file or directory"):
        Outputs(replace(places, **{name: tmp_path / "none" / "x"}))


@pytest.mark.parametrize(
    ("distances", "kept"),
    [([5], [5]), ([5, 5, 5, 5], [5, 5, 5]), ([5, 5, 5, 2, 4, 1], [5, 2, 4]), ([1, 2, 3, 4], [1, 2, 3])],
)
def test_three_example_pairs_are_kept_of_different_distances_where_there_are_such(distances, kept):
    summary = Summary()
    for distance in distances:
        summary.count(near(distance))
    assert [verdict.match.distance for verdict in summary.examples] == kept


def near(distance):
    match = Match("http://a/", None, distance, "near", False, None, 1)
    source = SourceFields("pages", 0, 0, 0)
    return Verdict("http://b/", None, "duplicate", match, None, None, "", 0, "", None, None, "", source)
