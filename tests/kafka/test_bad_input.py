"""Everything that can be wrong with a record, on a real broker: each ends in one dead letter that says why, as it came,
or in a verdict where it is a page after all; the pages between them get theirs; and a second reading says the same.
"""

import base64
import gzip
import json
import subprocess
import sys
from contextlib import suppress
from dataclasses import dataclass, field
from random import Random

import pytest
from kafka import KafkaProducer, TopicPartition
from kafka.errors import RetriableError
from kafka.record.default_records import DefaultRecordBatchBuilder

from tests.stream import ROOT, Stream, closing_admin, json_page, texts, until, working
from worker.stream.kafka.unpacking import MOST_HEADERS

PREFIX = "__connect.errors."
MIB = 1 << 20
KEY = b"key"
NULL = b"stands for null"
"""The worker's client cannot send a header without value, so it comes out as an empty one."""
HEADERS = [("traceparent", b"00-abc"), ("x", b""), ("x", b"again")]


def page(**fields):
    return json.dumps({"url": "http://bad.example/"} | fields).encode()


def html(content, **fields):
    return page(html_base64=base64.b64encode(content).decode(), **fields)


@dataclass(frozen=True)
class Case:
    """A record and what must come of it: words of the dead letter's message, or none for a verdict."""

    name: str
    value: bytes | None
    words: str | None
    stage: str = "decode"
    key: bytes | None = KEY
    headers: list[tuple[str, bytes]] = field(default_factory=lambda: HEADERS)


CASES = [
    Case("not JSON", b"hello", "not JSON: Expecting value at character 0"),
    Case("an empty value", b"", "not JSON: the value is empty"),
    Case("a JSON array", b'[{"url":"http://x/"}]', "Expected `object`, got `array`"),
    Case("a JSON number", b"42", "Expected `object`, got `int`"),
    Case("no URL", b'{"text":"a"}', "missing required field `url`"),
    Case("an empty URL", page(url="", text="a"), "url is empty"),
    Case("a long URL", page(url="http://x/" + "a" * 8192, text="a"), "8,201 bytes, more than max_url_bytes = 8,192"),
    Case("NUL in the URL", page(url="http://x/\0", text="a"), "U+0000, at character 9"),
    Case("neither html nor text", page(), "exactly one of html, text and html_base64; this one has none of them"),
    Case("both html and text", page(html="a", text="a"), "this one has html and text"),
    Case("wrong types", page(html=["a"]), "got `array` - at `$.html`"),
    Case("lone surrogate in the URL", b'{"url":"http://x/\\ud800","text":"a"}', "'url' has a lone surrogate, U+D800"),
    Case("lone surrogate in html", b'{"url":"http://x/","html":"\\udfff"}', "'html' has a lone surrogate, U+DFFF"),
    Case(
        "lone surrogate in a name", b'{"url":"http://x/","\\ud800":1,"text":"a"}', "a name or a nested value has a lone"
    ),
    Case("lone surrogate, nested", b'{"url":"http://x/","z":["\\udc00"],"text":"a"}', "lone surrogate, U+DC00"),
    Case("a surrogate's bytes", b'{"url":"http://x/","text":"\xed\xa0\x80"}', "not UTF-8: byte 27 of 32 is 0xed"),
    Case("invalid UTF-8", b'{"url":"http://x/","text":"\xff"}', "not UTF-8: byte 27 of 30 is 0xff"),
    Case("not base64", page(html_base64="@@"), "html_base64 is not base64"),
    Case("NaN", b'{"url":"http://x/","text":"a","n":NaN}', "NaN is no number in JSON"),
    Case("JSON nested deeply", b'{"a":' * 100_000, "JSON nested too deeply"),
    Case(
        "a page over the limit", page(text="x" * (11 * MIB)), "11,534,336 bytes, more than max_page_bytes = 10,485,760"
    ),
    Case("combining marks", page(text="a" + "\u0301\u0323" * 100_000), "combining marks in a row", stage="fingerprint"),
    Case("binary as html", html(Random(1).randbytes(50_000)), "text in no charset"),
    Case("gzip as value", gzip.compress(page(text="a")), "not UTF-8: byte 1"),
    Case("a tombstone", None, "the record has no value (a tombstone)"),
    Case("a tombstone without key", None, "a tombstone", key=None, headers=[("a", b"b")]),
    Case("a huge key", page(text="a"), "the key has 17,408 bytes, more than max_key_bytes = 16,384", key=b"k" * 17_408),
    Case("huge headers", page(text="a"), "more than max_header_bytes = 65,536", headers=[("h", b"h" * 70_000)]),
    Case("many empty headers", page(text="a"), "more than max_header_bytes = 65,536", headers=[("", b"")] * 20_000),
    Case("headers without number", page(text="a"), "too large or too many", headers=[("", b"")] * 600_000),
    Case("not JSON, header without value", b"junk", "not JSON", headers=[("h", NULL)]),
    Case("a missing key", page(text="no key"), None, key=None),
    Case("a header without value", page(text="null header"), None, headers=[("h", NULL)]),
    Case("keys twice", b'{"url":"http://x/1","url":"http://x/2","text":"twice"}', None),
    Case("a byte order mark", b"\xef\xbb\xbf" + page(text="marked"), None),
    Case("NUL in html", page(html="<p>a\0b"), "1 of 6 characters are NUL"),
    Case("NUL in text", page(text="\0"), "1 of 1 characters are NUL"),
    Case("NUL in base64", html(b"<p>a text\0" * 20), "20 control characters among 200"),
    Case("some NUL in base64", html(b"<p>a text\n" * 20 + b"\0"), None),
    Case(
        "a charset that lies",
        html("日本語です。".encode("cp932") * 9, charset="utf-8"),
        None,
    ),
    Case("an empty page", page(html=""), None),
    Case("nested elements", page(html="<div>" * 100_000), None),
    Case("nested option groups", page(html="<optgroup>x" * 100_000), None),
    Case("attributes", page(html="<p " + " a" * 100_000 + ">"), None),
    Case("a million brackets", page(html="<xxxxxxxx" * 1_000_000), None),
]
GOOD = [json_page(n, text) for n, text in enumerate(texts(len(CASES), Random(5)))]


def send(stream):
    """The bad records, each followed by a good one."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(DefaultRecordBatchBuilder, "append", append_with_nulls)
        producer = KafkaProducer(bootstrap_servers=stream.bootstrap_servers, max_request_size=64 * MIB)
        for case, (good_key, good_value) in zip(CASES, GOOD, strict=True):
            value = NULL if case.value is None else case.value
            producer.send(stream.input_topic, key=case.key, value=value, headers=case.headers, partition=0)
            future = producer.send(stream.input_topic, key=good_key, value=good_value, partition=0)
        producer.flush()
        future.get(timeout=60)
        producer.close()


def append_with_nulls(self, offset, timestamp, key, value, headers, append=DefaultRecordBatchBuilder.append):
    """Encode `NULL` as null: the client itself refuses headers without value, and records without key and value."""
    nulled = [(name, None if content == NULL else content) for name, content in headers]
    return append(self, offset, timestamp, key, None if value == NULL else value, nulled)


def read_to_its_end(stream):
    """Let a worker read all of the input; what it has committed is seen in the group's offset."""
    partition, count = TopicPartition(stream.input_topic, 0), 2 * len(CASES)
    worker = stream.worker()
    with working(worker), closing_admin(stream.bootstrap_servers) as admin:

        def position():
            with suppress(RetriableError):  # of a broker that has just begun
                offsets = admin.list_group_offsets([stream.name])[stream.name]
                return partition in offsets and offsets[partition].offset >= count
            return False

        until(position, "the group stands at the end")
        code, written = worker.stop()
    assert code == 0, written
    assert "Traceback" not in written


@pytest.fixture(scope="module")
def stream(kafka_server, redis_server):
    made = Stream("bad-input", kafka_server.bootstrap_servers, redis_server.url)
    assert made.command("topics", "--partitions", "1").returncode == 0
    send(made)
    read_to_its_end(made)
    return made


@pytest.fixture(scope="module")
def letters(stream):
    """The dead letters by the offset of their record."""
    rows = stream.committed(stream.dead_letter_topic)
    found = {int(dict(row.headers)[PREFIX + "offset"]): row for row in rows}
    assert len(found) == len(rows)
    return found


@pytest.fixture(scope="module")
def verdicts(stream):
    """The verdicts' rows by the offset of their page."""
    rows = stream.committed()
    found = {json.loads(row.value)["source"]["offset"]: row for row in rows}
    assert len(found) == len(rows)
    return found


def test_every_record_has_one_answer_and_the_good_ones_a_verdict(verdicts, letters):
    count = 2 * len(CASES)
    assert sorted([*verdicts, *letters]) == list(range(count))
    assert set(range(1, count, 2)) <= set(verdicts)
    assert [verdicts[2 * n + 1].key for n in range(len(GOOD))] == [key for key, _ in GOOD]


@pytest.mark.parametrize("number", range(len(CASES)), ids=[case.name for case in CASES])
def test_a_bad_record_is_a_dead_letter_as_it_came_with_the_reason(stream, letters, verdicts, number):
    case, offset = CASES[number], 2 * number
    sent = [(name, b"" if value == NULL else value) for name, value in case.headers]
    if case.words is None:
        assert verdicts[offset].key == case.key
        assert verdicts[offset].headers == sent
        return
    letter = letters[offset]
    dropped = len(case.headers) > MOST_HEADERS
    if dropped:
        sent = []
    assert letter.key == case.key
    assert letter.value == (b"" if case.key is None else case.value)
    assert letter.headers[: len(sent)] == sent
    reasons = {name.removeprefix(PREFIX): value.decode() for name, value in letter.headers[len(sent) :]}
    message = reasons.pop("exception.message")
    assert case.words in message
    if dropped:
        assert reasons.pop("headers") == "dropped"
    if case.key is None:
        assert reasons.pop("value") == "null"
    assert reasons == {
        "topic": stream.input_topic,
        "partition": "0",
        "offset": str(offset),
        "stage": case.stage,
        "exception.class.name": "PageError",
    }


def test_an_empty_page_is_matched_on_its_raw_bytes(verdicts):
    offset = 2 * [case.name for case in CASES].index("an empty page")
    verdict = json.loads(verdicts[offset].value)
    assert verdict["digest"].startswith("raw:")
    assert (verdict["fingerprint"], verdict["features"]) == (None, 0)


def test_a_second_reading_gives_the_same_bytes(stream, letters, verdicts):
    again = stream.beside("bad-input-again")
    read_to_its_end(again)
    assert [row.value for row in again.committed()] == [row.value for _, row in sorted(verdicts.items())]
    second = again.committed(again.dead_letter_topic)
    first = [row for _, row in sorted(letters.items())]
    assert [(r.key, r.value, r.headers) for r in second] == [(r.key, r.value, r.headers) for r in first]


def test_raw_pages_need_their_url_as_key(kafka_server, redis_server, name):
    settings = {"page_format": "html", "unique_topic": f"{name}.unique", "page_deadline": "30s"}
    made = Stream(name, kafka_server.bootstrap_servers, redis_server.url, settings=settings)
    made.create()
    text = "<p>" + "words of a page " * 30
    made.send(
        [(b"http://x/1", text.encode()), (None, b"<p>no key"), (b"\xff", b"<p>b"), (b"http://x/2", text.encode())]
    )
    worker = made.worker()
    with working(worker):
        made.wait_for(4)
        worker.stop()
    assert [(v["url"], v["verdict"]) for v in made.verdicts()] == [
        ("http://x/1", "unique"),
        ("http://x/2", "duplicate"),
    ]
    messages = [dict(row.headers)[PREFIX + "exception.message"] for row in made.committed(made.dead_letter_topic)]
    assert b"in page format html the key is the URL" in messages[0]
    assert b"is not UTF-8" in messages[1]
    assert [(row.key, row.value) for row in made.committed(f"{name}.unique")] == [(b"http://x/1", text.encode())]


HANGING_WORKER = """
from functools import partial
from tests import faulty_worker
from tests.spawning import test_fingerprinters
from worker.stream import consumer
consumer.Fingerprinters = partial(consumer.Fingerprinters, prepare=test_fingerprinters.prepare)
faulty_worker.main()
"""


def test_a_page_that_hangs_or_kills_its_child_is_a_dead_letter_and_the_others_are_not(kafka_server, redis_server, name):
    made = Stream(name, kafka_server.bootstrap_servers, redis_server.url, settings={"page_deadline": "2s"})
    made.create()
    made.send([GOOD[0], (KEY, b"hang"), GOOD[1], (KEY, b"die"), GOOD[2]], headers=HEADERS)
    command = [sys.executable, "-c", HANGING_WORKER, "", "9"]
    with subprocess.Popen(command, env=made.environment(), cwd=ROOT, stderr=subprocess.DEVNULL) as process:
        try:
            made.wait_for(5)
            process.terminate()
            assert process.wait(60) == 0
        finally:
            process.kill()
    assert [v["source"]["offset"] for v in made.verdicts()] == [0, 2, 4]
    hanging, dying = made.committed(made.dead_letter_topic)
    assert (hanging.key, hanging.value, hanging.headers[:3]) == (KEY, b"hang", HEADERS)
    assert reason(hanging) == ("extract", "TimeoutError", "took longer than page_deadline = 2 s, twice")
    assert reason(dying)[:2] == ("extract", "ChildLost")


def reason(row):
    headers = {key: value.decode() for key, value in row.headers}
    return tuple(headers[PREFIX + name] for name in ("stage", "exception.class.name", "exception.message"))
