"""WARC: every record is a page, skipped, refused with the reason, or the file is said to be broken; never silence."""

import gzip
import io
import zlib

import brotli
import pytest
import zstandard

from simhash.errors import PageError
from tests.growth import is_linear
from worker.errors import InputError
from worker.files.warc import DECODERS, page_of, warc_records
from worker.records.passing import Page

LARGEST = 10_000
HTML = b"<p>" + b"some words " * 50
PAGE = {"Content-Type": "text/html; charset=gbk"}


def http(body=HTML, headers=PAGE, status="200 OK"):
    fields = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    return f"HTTP/1.1 {status}\r\n{fields}\r\n".encode() + body


def record(block, kind="response", content_type="application/http; msgtype=response", uri="http://x/", **more):
    headers = {"WARC-Type": kind, "WARC-Record-ID": "<urn:1>", "WARC-Date": "2026-01-01T00:00:00Z"}
    headers |= {"WARC-Target-URI": uri, "Content-Type": content_type, "Content-Length": len(block)} | more
    fields = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    return b"WARC/1.0\r\n" + fields.encode() + b"\r\n" + block + b"\r\n\r\n"


def records(data):
    return list(warc_records(io.BytesIO(data), LARGEST))


def page(data):
    (found,) = records(data)
    return page_of(found, LARGEST)


def test_a_response_is_a_page():
    assert page(record(http())) == Page("http://x/", HTML, True, "gbk", "<urn:1>", "2026-01-01T00:00:00Z")


def test_records_follow_each_other_and_header_names_have_any_case():
    data = record(http()).replace(b"Content-Length", b"CONTENT-length") + b"\r\n" + record(http(b"second"))
    assert [page_of(r, LARGEST).content for r in records(data)] == [HTML, b"second"]


def test_a_resource_is_a_page_without_http():
    assert page(record(HTML, "resource", "text/html")).content == HTML


def test_plain_text_is_not_html():
    assert not page(record(http(headers={"Content-Type": "text/plain"}))).is_html


def test_a_folded_header_and_an_url_in_angles_and_in_utf8_are_read():
    data = record(http(), uri="<http://x/é>").replace(b"WARC-Date: ", b"WARC-Date:\r\n ")
    assert (page(data).url, page(data).fetched_at) == ("http://x/é", "2026-01-01T00:00:00Z")


@pytest.mark.parametrize(
    "data",
    [
        record(b"software: x", "warcinfo", "application/warc-fields"),
        record(b"GET / HTTP/1.1\r\n\r\n", "request", "application/http; msgtype=request"),
        record(http(b""), "revisit"),
        record(http(), "metadata"),
        record(http(status="404 Not Found")),
        record(http(status="301 Moved")),
        record(http(headers={"Content-Type": "image/png"})),
        record(http(headers={})),
        record(b"\x89PNG", "resource", "image/png"),
        record(b""),
        record(b"\0\1no http at all"),
    ],
)
def test_what_holds_no_page_is_skipped(data):
    assert page(data) is None


def chunked(body):
    return (
        b"%x\r\n" % len(body[:100]) + body[:100] + b"\r\n%X;ext=1\r\n" % len(body[100:]) + body[100:] + b"\r\n0\r\n\r\n"
    )


def raw_deflate(body):
    packer = zlib.compressobj(wbits=-15)
    return packer.compress(body) + packer.flush()


@pytest.mark.parametrize(
    ("body", "headers"),
    [
        (gzip.compress(HTML, mtime=0), {"Content-Encoding": "gzip"}),
        (gzip.compress(HTML, mtime=0), {"content-encoding": "X-GZIP"}),
        (brotli.compress(HTML), {"content-encoding": "br"}),
        (HTML, {"content-encoding": "br"}),
        (zlib.compress(HTML), {"Content-Encoding": "deflate"}),
        (raw_deflate(HTML), {"Content-Encoding": "deflate"}),
        (zstandard.ZstdCompressor().compress(HTML), {"Content-Encoding": "zstd"}),
        (gzip.compress(gzip.compress(HTML, mtime=0), mtime=0), {"Content-Encoding": "gzip, gzip"}),
        (HTML, {"Content-Encoding": "gzip"}),
        (HTML, {"Content-Encoding": "identity"}),
        (chunked(HTML), {"Transfer-Encoding": "chunked"}),
        (chunked(gzip.compress(HTML, mtime=0)), {"Transfer-Encoding": "chunked", "Content-Encoding": "gzip"}),
        (HTML, {"Transfer-Encoding": "chunked"}),
        (chunked(HTML)[:-7], {"Transfer-Encoding": "chunked"}),
    ],
)
def test_encodings_are_undone_and_not_where_the_crawler_did_it(body, headers):
    assert page(record(http(body, PAGE | headers))).content == HTML


@pytest.mark.parametrize(
    ("body", "encoding", "message"),
    [
        (HTML, "compress", "content-encoding 'compress' is none of gzip"),
        (brotli.compress(HTML)[:-3], "br", " bytes: it ends before its stream does"),
        (b"\xff" * 30, "br", "content-encoding br of 30 bytes: "),
        (
            gzip.compress(HTML, mtime=0)[:-12],
            "gzip",
            "content-encoding gzip of 27 bytes: it ends before its stream does",
        ),
        (gzip.compress(bytes(1 << 20), mtime=0), "gzip", "hold a page of more than max_page_bytes = 10,000"),
    ],
)
def test_an_encoding_that_cannot_be_undone_refuses_the_page(body, encoding, message):
    with pytest.raises(PageError) as caught:
        page(record(http(body, PAGE | {"Content-Encoding": encoding})))
    assert caught.value.stage == "decode"
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("encoding", "pack"), [("gzip", gzip.compress), ("zstd", zstandard.compress), ("x-gzip", gzip.compress)]
)
def test_all_members_and_frames_of_a_body_are_read_and_none_may_be_cut_off(encoding, pack):
    headers, (first, second) = PAGE | {"Content-Encoding": encoding}, (b"<p>one ", b"two " * 400)
    assert page(record(http(pack(first) + pack(second), headers))).content == first + second
    with pytest.raises(PageError, match="ends"):
        page(record(http(pack(first) + pack(second)[:-9], headers)))


def test_what_follows_a_body_in_gzip_is_not_looked_at_and_a_wrong_checksum_refuses_it():
    headers, packed = PAGE | {"Content-Encoding": "gzip"}, gzip.compress(HTML)
    assert page(record(http(packed + b"\r\nmore", headers))).content == HTML
    with pytest.raises(PageError, match="CRC"):
        page(record(http(packed[:-8] + bytes([packed[-8] ^ 1]) + packed[-7:], headers)))


def test_a_body_of_many_members_takes_time_in_proportion_to_them():
    member = gzip.compress(b"")
    assert is_linear(lambda body: DECODERS["gzip"](body, LARGEST), lambda count: member * count)


def test_chunks_that_are_damaged_refuse_the_page():
    headers = PAGE | {"Transfer-Encoding": "chunked"}
    assert page(record(http(b"5\r\n<p>ab\r\n0\r\n\r\n", headers))).content == b"<p>ab"
    with pytest.raises(PageError, match="at byte 10 of 23 no chunk begins"):
        page(record(http(b"5\r\n<p>ab\r\nnone\r\n<p>cd\r\n", headers)))


@pytest.mark.parametrize("empty", ["\r\n\r\n", "\n\n", "\n\r\n", "\r\n\n"])
def test_an_http_head_ends_with_an_empty_line_however_its_lines_end(empty):
    body = b"<p>one\n\ntwo\r\n\r\nthree"
    found = page(record(f"HTTP/1.1 200 OK\nContent-Type: text/html{empty}".encode() + body))
    assert found.content == body


def test_a_page_beyond_the_limit_is_refused_and_a_huge_video_skipped_without_being_kept():
    film = record(http(b"x" * 50_000, {"Content-Type": "video/mp4"}))
    found = records(film + record(http(b"x" * 50_000)) + record(http()))
    assert len(found[0].block) == LARGEST
    assert page_of(found[0], LARGEST) is None
    with pytest.raises(PageError, match="the record has 50,057 bytes, more than 10,000"):
        page_of(found[1], LARGEST)
    assert page_of(found[2], LARGEST).content == HTML


WHOLE = record(http())


@pytest.mark.parametrize(
    ("tail", "message"),
    [
        (WHOLE[:50], "the file ends within the head of record 1"),
        (WHOLE[:-100], "the file ends 96 bytes before the end of record 1"),
        (b"garbage\r\n" + WHOLE, "record 1 is none of a WARC: it begins with b'garbage"),
        (WHOLE.replace(b"Content-Length: ", b"Content-Length: x"), "record 1 has no Content-Length but 'x"),
        (WHOLE.replace(b"Content-Length: ", b"Content-Length: -"), "record 1 has no Content-Length but '-"),
        (b"WARC/1.0\r\nA: " + b"a" * (2 << 20), "record 1 has a head of more than 1,048,576 bytes"),
    ],
)
def test_a_broken_file_is_an_error_after_the_records_before(tail, message):
    found = warc_records(io.BytesIO(WHOLE + tail), LARGEST)
    assert page_of(next(found), LARGEST).content == HTML
    with pytest.raises(InputError) as caught:
        next(found)
    assert message in str(caught.value)


def test_the_empty_lines_at_the_end_may_be_missing():
    assert len(records(WHOLE + WHOLE[:-4])) == 2


def test_a_text_of_a_wet_is_a_page_that_is_no_html():
    found = page(record(b"the text", "conversion", "text/plain"))
    assert (found.url, found.content, found.is_html) == ("http://x/", b"the text", False)


def test_a_line_that_continues_no_field_is_passed_over():
    more = b"WARC/1.0\r\n continues nothing\r\nX: 1\r\nX: 2\r\n\tcontinues one that was there\r\n"
    assert page(record(http()).replace(b"WARC/1.0\r\n", more)).content == HTML


def test_a_length_of_thousands_of_digits_is_none():
    data = record(http()).replace(b"Content-Length: ", b"Content-Length: " + b"9" * 5_000)
    with pytest.raises(InputError, match="record 0 has no Content-Length but '9999"):
        records(data)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("coding", "pack"),
    [("gzip", gzip.compress), ("deflate", zlib.compress), ("zstd", zstandard.compress), ("br", brotli.compress)],
)
def test_a_body_that_holds_far_more_than_a_page_is_refused_before_it_is_unpacked(coding, pack):
    packed = pack(b"x" * 5_000_000)
    with pytest.raises(PageError, match="hold a page of more than max_page_bytes = 10,000"):
        page(record(http(packed, PAGE | {"content-encoding": coding})))
    assert len(DECODERS[coding](packed, 10_000)) < 100_000


@pytest.mark.slow
@pytest.mark.parametrize("head", ["HTTP's", "the record's"])
def test_a_field_of_many_lines_is_put_together_once(head):
    def made(size):
        lines = b"X: 1\r\n" + b" " + b"\r\n ".join([b"word"] * (size // 8)) + b"\r\n"
        if head == "HTTP's":
            return record(b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\n" + lines + b"\r\n" + HTML)
        return record(http()).replace(b"WARC-Date", lines + b"WARC-Date", 1)

    def read(data):
        (found,) = warc_records(io.BytesIO(data), 1 << 24)
        assert page_of(found, 1 << 24).content == HTML

    assert is_linear(read, made, (50_000, 200_000, 800_000))
