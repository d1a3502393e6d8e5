"""WARC to WARC: unique pages as they came, revisits for exact copies; read back by warcio, which shares no code."""

import base64
import gzip
import hashlib
import itertools
import zlib
from argparse import Namespace

import pytest
import zstandard
from warcio.archiveiterator import ArchiveIterator
from warcio.checker import Checker

from simhash.signature.profiles import DEFAULT
from tests.redis.test_files import LIMITS, bench_of, lines, run
from tests.unit.test_warc import http, record
from worker.errors import InputError
from worker.files.inputs import open_input
from worker.files.outputs import OutputPaths, Outputs
from worker.judging.fingerprinters import Fingerprinters, PageLimits
from worker.judging.judge import Recipe


@pytest.fixture(scope="module")
def pool():
    made = Fingerprinters(Recipe(DEFAULT, "json", LIMITS), 1, PageLimits(60.0))
    yield made
    made.close()


def html(number):
    """Three pages: one, another, and one like the first but longer."""
    words = [f"word{n}" for n in range(300)]
    text = " ".join({1: words, 2: words[::-1], 3: [*words, "more", "words"]}[number])
    return f"<html><title>page</title><p>{text}</p></html>".encode()


INFO = record(b"software: crawler\r\n", "warcinfo", "application/warc-fields", **{"WARC-Record-ID": "<urn:info>"})


def capture(name, body, headers=None, order="request response metadata", **more):
    """What a crawler writes of a page; in the order of Common Crawl by default."""
    uri = f"http://x/{name}"
    ids = {kind: f"<urn:{name}:{kind}>" for kind in ("request", "response", "metadata")}
    http_headers = {"Content-Type": "text/html"} | (headers or {})
    made = {
        "request": record(
            b"GET / HTTP/1.1\r\n\r\n",
            "request",
            "application/http; msgtype=request",
            uri,
            **{"WARC-Record-ID": ids["request"], "WARC-Concurrent-To": ids["response"]},
        ),
        "response": record(http(body, http_headers), uri=uri, **{"WARC-Record-ID": ids["response"]} | more),
        "metadata": record(
            b"fetchTimeMs: 1\r\n",
            "metadata",
            "application/warc-fields",
            uri,
            **{"WARC-Record-ID": ids["metadata"], "WARC-Concurrent-To": ids["response"]},
        ),
    }
    return [made[kind] for kind in order.split()]


def written(path, *records):
    path.write_bytes(b"".join(gzip.compress(each) if path.suffix == ".gz" else each for each in records))
    return path


def records_in(path):
    """By warcio: type, ID, what it refers to, and the payload."""
    with path.open("rb") as file:
        if path.suffix == ".zst":  # which warcio does not know
            file = zstandard.ZstdDecompressor().stream_reader(file, read_across_frames=True)
        return [(each, each.content_stream().read()) for each in ArchiveIterator(file, check_digests=True)]


def deduplicated(pool, tmp_path, *records, name="unique.warc.gz"):
    places = OutputPaths(tmp_path / "verdicts", tmp_path / name)
    run(bench_of(pool), places, written(tmp_path / "in.warc.gz", *records))
    return places.unique


@pytest.mark.parametrize("order", ["request response metadata", "response request metadata"])
def test_a_unique_page_is_written_with_the_records_that_name_it_byte_for_byte(pool, tmp_path, order):
    image = capture("image", b"GIF89a", {"Content-Type": "image/gif"})
    stranger = record(b"about: nothing\r\n", "metadata", "application/warc-fields", **{"WARC-Record-ID": "<urn:s>"})
    kept = [INFO, *capture("a", html(1), order=order), *capture("b", html(2), order=order)]
    dropped = [*image, *capture("near", html(3), order=order), stranger]
    out = deduplicated(pool, tmp_path, *kept[:4], *dropped, *kept[4:])
    assert gzip.decompress(out.read_bytes()) == b"".join(kept)


def test_of_two_pages_that_name_each_other_each_is_judged_by_itself(pool, tmp_path):
    near = capture("near", html(3), order="response", **{"WARC-Concurrent-To": "<urn:a:response>"})
    kept = [INFO, *capture("a", html(1), order="request response")]
    out = deduplicated(pool, tmp_path, *kept, *near, *capture("b", html(2), order="response"))
    assert gzip.decompress(out.read_bytes()) == b"".join([*kept, *capture("b", html(2), order="response")])


def test_each_record_is_a_gzip_member_of_its_own(pool, tmp_path):
    data = deduplicated(pool, tmp_path, INFO, *capture("a", html(1))).read_bytes()
    members = []
    while data:
        member = zlib.decompressobj(zlib.MAX_WBITS | 16)
        members.append(member.decompress(data))
        data = member.unused_data
    assert [each.startswith(b"WARC/1.0") and each.count(b"WARC-Record-ID") == 1 for each in members] == [True] * 4


@pytest.mark.parametrize("name", ["unique.warc.gz", "unique.warc.zst", "unique.warc"])
def test_an_exact_copy_becomes_a_revisit_of_its_original_and_keeps_its_request_and_metadata(pool, tmp_path, name):
    copy = capture(
        "copy", html(1), {"X-Cache": "hit"}, **{"WARC-Date": "2026-03-01T00:00:00Z", "WARC-IP-Address": "10.0.0.1"}
    )
    out = deduplicated(pool, tmp_path, INFO, *capture("a", html(1)), *copy, name=name)
    found = records_in(out)
    assert [each.rec_type for each, _ in found] == [
        *("warcinfo", "request", "response", "metadata"),
        *("request", "revisit", "metadata"),
    ]
    (original, payload), (revisit, nothing) = found[2], found[5]
    said = dict(revisit.rec_headers.headers)
    assert said["WARC-Profile"] == "http://netpreserve.org/warc/1.0/revisit/identical-payload-digest"
    assert said["WARC-Refers-To"] == original.rec_headers["WARC-Record-ID"] == "<urn:a:response>"
    assert said["WARC-Refers-To-Target-URI"] == "http://x/a"
    assert said["WARC-Refers-To-Date"] == original.rec_headers["WARC-Date"]
    assert (said["WARC-Target-URI"], said["WARC-Date"]) == ("http://x/copy", "2026-03-01T00:00:00Z")
    assert (said["WARC-Record-ID"], said["WARC-IP-Address"]) == ("<urn:copy:response>", "10.0.0.1")
    assert said["WARC-Payload-Digest"] == "sha1:" + base64.b32encode(hashlib.sha1(payload).digest()).decode()
    assert revisit.http_headers.get_header("X-Cache") == "hit"
    assert (payload, nothing) == (html(1), b"")


def test_warcio_finds_the_digests_of_what_was_written_right(pool, tmp_path):
    copies = [capture(f"copy{n}", html(1)) for n in range(3)]
    out = deduplicated(pool, tmp_path, INFO, *capture("a", html(1)), *itertools.chain(*copies))
    assert Checker(Namespace(inputs=[str(out)], verbose=False)).process_all() == 0


def test_a_revisit_has_the_digest_that_its_original_has_in_its_head(pool, tmp_path):
    """A replay looks for a record of this digest."""
    told = "md5:" + hashlib.md5(html(1)).hexdigest()
    first = capture("a", html(1), **{"WARC-Payload-Digest": told})
    (*_, revisit, _), _ = zip(*records_in(deduplicated(pool, tmp_path, *first, *capture("b", html(1)))), strict=True)
    assert revisit.rec_headers["WARC-Payload-Digest"] == told


def test_a_copy_of_other_bytes_and_one_of_a_page_of_another_run_are_left_out(pool, tmp_path):
    bench = bench_of(pool)
    others = [
        *capture("b", html(1).upper().replace(b"WORD", b"word").replace(b"PAGE", b"page")),
        *capture("c", html(1)),
    ]
    first, second = (OutputPaths(tmp_path / f"{n}.verdicts", tmp_path / f"{n}.warc.gz") for n in (1, 2))
    run(bench, first, written(tmp_path / "a.warc.gz", INFO, *capture("a", html(1)), *others[:3]))
    run(bench, second, written(tmp_path / "b.warc.gz", INFO, *others[3:]))
    assert [v["match"]["kind"] for path in (first, second) for v in lines(path.verdicts) if v["match"]] == ["exact"] * 2
    assert [each.rec_type for each, _ in records_in(first.unique)] == ["warcinfo", "request", "response", "metadata"]
    assert second.unique.read_bytes() == b""


def test_of_a_file_that_is_cut_off_the_last_whole_page_is_written(pool, tmp_path):
    source = written(tmp_path / "in.warc", INFO, *capture("a", html(1)), *capture("b", html(2)))
    source.write_bytes(source.read_bytes()[:-200])
    places = OutputPaths(tmp_path / "verdicts", tmp_path / "unique.warc.gz")
    with pytest.raises(InputError, match="ends"):
        run(bench_of(pool), places, source)
    assert [each.rec_headers["WARC-Target-URI"] for each, _ in records_in(places.unique)[1:]] == [
        *["http://x/a"] * 3,
        *["http://x/b"] * 2,
    ]


def test_the_texts_of_a_wet_are_written_as_they_came(pool, tmp_path):
    texts = [record(html(n), "conversion", "text/plain", f"http://x/{n}") for n in (1, 2)]
    out = deduplicated(pool, tmp_path, INFO, texts[0], texts[0], texts[1], name="unique.warc.wet.gz")
    assert gzip.decompress(out.read_bytes()) == b"".join([INFO, *texts])


def test_a_warc_is_written_of_warcs_alone_and_not_annotated(tmp_path):
    (tmp_path / "a.jsonl").write_bytes(b"")
    for places, name, message in [
        (OutputPaths(tmp_path / "v", tmp_path / "u.warc.gz"), "a.jsonl", "WARC is written of WARC"),
        (OutputPaths(tmp_path / "v", annotated=tmp_path / "u.warc"), "in.warc", "not annotated"),
    ]:
        inputs = [
            open_input(str(path), 1000, spool=False, keep=True)
            for path in (written(tmp_path / "in.warc"), tmp_path / name)
        ]
        with pytest.raises(InputError, match=message):
            Outputs(places, inputs)
