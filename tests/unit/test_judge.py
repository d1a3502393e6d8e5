"""The decision: what can be refused is refused before the index; verdicts say what the index found."""

import json
from dataclasses import replace
from types import SimpleNamespace

import pytest

from simhash.index.interface import Duplicate, IndexSpec, Partition, Record, Relation
from simhash.index.memory import MemoryIndex
from simhash.relation.tables import design
from simhash.signature.profiles import DEFAULT, DEFAULT_1, profile
from worker.judging.judge import Prepared, Recipe, Rejected, entry_of, judge, match_of, prepare
from worker.records.hints import NO_HINTS
from worker.records.page import Limits
from worker.records.passing import Page, RawRecord, Source

RECIPE = Recipe(DEFAULT, "json", Limits(page=1 << 20, url=1 << 10, key=1 << 10))
WORDS = [f"word{n}" for n in range(200)]


@pytest.fixture
def index():
    tables = design("4", DEFAULT.bits)
    relation = Relation(tables, DEFAULT.reach, DEFAULT.verifier_reach, DEFAULT.verifier_bits, DEFAULT.bands)
    return MemoryIndex(IndexSpec(DEFAULT.recipe(), relation, bucket_bits=8, capacity=1000))


def prepared(number, recipe=RECIPE, **fields):
    value = json.dumps({"url": f"http://x/{number}"} | fields).encode()
    return prepare(RawRecord(Source("pages", 0, number, 5), b"k", value), recipe)


def verdicts(index, *pages):
    return [judged.verdict for judged in judge(pages, index, DEFAULT)]


def test_a_copy_is_exact_and_an_edited_page_is_near(index):
    edited = [*WORDS[:-1], "changed"]
    first, copy, near = verdicts(
        index,
        prepared(1, text=" ".join(WORDS), id="a", fetched_at="2026-01-01"),
        prepared(2, text="  ".join(WORDS)),
        prepared(3, text=" ".join(edited)),
    )
    assert (first.verdict, first.seq, first.match, first.features) == ("unique", 1, None, 200)
    assert (copy.match.kind, copy.match.distance, copy.match.url, copy.match.id) == ("exact", 0, "http://x/1", "a")
    assert (copy.seq, copy.match.seq, copy.match.fetched_at) == (None, 1, "2026-01-01")
    assert (near.verdict, near.match.kind, near.match.same_url) == ("duplicate", "near", False)


def test_the_same_url_again_is_said(index):
    pages = [prepared(1, text=" ".join(WORDS)), prepared(2, url="http://x/1", text=" ".join(WORDS))]
    assert verdicts(index, *pages)[1].match.same_url


def test_pages_without_text_match_on_their_raw_bytes_only(index):
    found = verdicts(
        index,
        prepared(1, html=""),
        prepared(2, text=""),
        prepared(3, html="<html></html>"),
        prepared(4, html="<body></body>"),
        prepared(5, html="<html></html>"),
    )
    assert [v.verdict for v in found] == ["unique", "duplicate", "unique", "unique", "duplicate"]
    assert found[4].match.url == "http://x/3"
    for verdict in found:
        assert verdict.digest.startswith("raw:")
        assert (verdict.fingerprint, verdict.verifier, verdict.features) == (None, None, 0)


LONG = "a page of some words, " * 9


@pytest.mark.parametrize("name", ["html", "text"])
def test_some_nul_is_dropped_and_the_page_is_judged_as_without(index, name):
    nuls = len(LONG) // 20
    found = verdicts(index, prepared(1, **{name: LONG}), prepared(2, **{name: LONG.replace(" ", "\0 ", nuls)}))
    assert (found[1].verdict, found[1].match.kind, found[1].digest) == ("duplicate", "exact", found[0].digest)


@pytest.mark.parametrize("name", ["html", "text"])
def test_a_page_with_many_nul_is_refused_naming_how_many(name):
    found = prepared(1, **{name: LONG[:94] + "\0" * 6})
    said = "6 of 100 characters are NUL, U+0000, more than 5%: the page is no text"
    assert (found.stage, found.message) == ("decode", said)


@pytest.mark.parametrize("charset", ["utf-8", "shift_jis", "windows-1252"])
def test_some_nul_in_the_bytes_of_a_page_is_dropped_whatever_its_charset(charset):
    text = {"shift_jis": "日本語のページです。" * 9, "utf-8": LONG + "é", "windows-1252": LONG + "déjà vu à Göttingen"}[
        charset
    ]
    raw = text.encode(charset)
    cut = len(text) // 2
    nuls = b"\0" * (len(text) // 25)
    broken = text[:cut].encode(charset) + nuls + text[cut:].encode(charset)
    pages = [Page("http://x/", content, True, charset) for content in (raw, broken)]
    found = [prepare(RawRecord(Source("p", 0, 1, None), None, b"", page), RECIPE) for page in pages]
    assert found[0].signature == found[1].signature


def test_many_nul_in_the_bytes_of_a_page_are_refused_too():
    raw = Page("http://x/", b"<p>a text" + b"\0" * 7, is_html=True)
    assert prepare(RawRecord(Source("p", 0, 1, None), None, b"", raw), RECIPE).stage == "decode"


def test_a_charset_that_lies_does_not_change_the_text(index):
    text = "日本語のページです。これは長い文章です。"
    lying = RawRecord(Source("p", 0, 1, None), None, b"", Page("http://x/l", text.encode("shift_jis"), True, "utf-8"))
    honest, read = verdicts(index, prepared(2, text=text), prepare(lying, RECIPE))
    assert read.match.url == honest.url


NESTED = "<div>" * 100_000
ATTRIBUTES = "<p " + " ".join(f"a{n}=1" for n in range(100_000)) + ">"


@pytest.mark.parametrize(
    ("html", "message"),
    [(NESTED, "markup limit depth = 2000"), (ATTRIBUTES, "markup limit attribute_pairs")],
    ids=["nested elements", "attributes"],
)
def test_markup_that_no_parser_gets_through_is_refused_by_counting(html, message):
    found = prepared(1, RECIPE._replace(profile=DEFAULT_1), html=html)
    assert isinstance(found, Rejected)
    assert (found.stage, found.error, found.by_chance) == ("extract", "PageError", False)
    assert message in found.message


@pytest.mark.parametrize("html", [NESTED, ATTRIBUTES], ids=["nested elements", "attributes"])
def test_the_default_reads_what_no_parser_gets_through(html):
    sentence = f"<p>{' '.join(WORDS)}</p>"
    assert prepared(1, html=html + sentence).signature.digest == prepared(2, html=sentence).signature.digest


def test_binary_as_html_is_refused():
    binary = Page("http://x/", bytes(range(256)) * 20, is_html=True)
    found = prepare(RawRecord(Source("p", 0, 1, None), None, b"", binary), RECIPE)
    assert isinstance(found, Rejected)
    assert found.stage == "decode"


def test_a_rejection_that_quotes_a_page_can_be_written():
    found = prepare(RawRecord(Source("p", 0, 1, None), None, b'{"url":"http://x/","\\ud800":"\\ud800"}'), RECIPE)
    found.message.encode()


def test_the_same_record_is_prepared_the_same_but_for_the_seconds():
    one, two = prepared(1, text="a b c"), prepared(1, text="a b c")
    assert isinstance(one, Prepared)
    assert (one.observation, one.signature, one.url) == (two.observation, two.signature, two.url)


def test_a_replayed_page_keeps_its_verdict_byte_for_byte(index):
    pages = [prepared(n, text=" ".join(WORDS[: 100 + n])) for n in range(5)]
    committed = {Partition("pages", 0): 0}
    first = [j.verdict for j in judge(pages, index, DEFAULT, committed)]
    assert [j.verdict for j in judge(pages, index, DEFAULT, committed)] == first


def test_a_near_verdict_tells_how_alike_both_are_and_how_much_of_the_page_its_match_has(index):
    first, near = verdicts(
        index,
        prepared(1, text=" ".join(WORDS)),
        prepared(2, url="http://x:8/", text=" ".join([*WORDS, *"abcdefghijklmno"])),
    )
    match = near.match
    assert (match.kind, match.same_host, match.size) == ("near", True, 203)
    assert match.similarity == pytest.approx(196 / 211, abs=0.06)
    assert match.containment == pytest.approx(196 / 211, abs=0.06)
    assert match.similarity == round(DEFAULT.similarity(int(first.verifier, 16), int(near.verifier, 16)), 3)
    assert (first.better, near.better) == (None, True)


def test_of_an_exact_copy_all_is_in_its_match(index):
    copy = verdicts(index, prepared(1, text=" ".join(WORDS)), prepared(2, url="http://y/", text=" ".join(WORDS)))[1]
    match = copy.match
    assert (match.same_host, match.similarity, match.containment, copy.better) == (False, 1.0, 1.0, False)
    short = verdicts(index, prepared(3, text="a b"), prepared(4, text="a b!"))[1]
    assert (short.match.similarity, short.match.containment, short.match.size, short.better) == (1, 1, 2, False)


def test_a_shorter_page_loses_nothing_and_is_not_better(index):
    near = verdicts(index, prepared(1, text=" ".join(WORDS)), prepared(2, text=" ".join(WORDS[:-20])))[1]
    assert (near.verdict, near.better) == ("duplicate", False)
    assert near.match.containment > 0.9 > near.match.similarity


def test_of_a_match_whose_length_nobody_knows_it_is_not_told(index):
    page = prepared(1, text=" ".join(WORDS))
    index.check_and_insert([replace(entry_of(page, journalled=False), features=None)], {})
    near = verdicts(index, prepared(2, text=" ".join(WORDS[:-20])))[0]
    assert near.match.similarity > 0.7
    assert (near.match.size, near.match.containment, near.better) == (None, None, None)


def says(number, head, text=WORDS):
    return prepared(number, html=f"<html lang=en-GB><head>{head}</head><body><p>{' '.join(text)}")


def test_a_page_says_its_canonical_url_and_its_verdict_whether_the_match_has_it(index):
    link = "<link rel=canonical href=/1>"
    first, same, other, silent = verdicts(
        index, says(1, link), says(2, link), says(3, "<link rel=canonical href=//y/1>"), says(4, "")
    )
    assert (first.canonical, first.match, first.language, first.robots) == ("http://x/1", None, "en-GB", None)
    assert (same.canonical, same.match.is_canonical) == ("http://x/1", True)
    assert (other.canonical, other.match.is_canonical) == ("http://y/1", False)
    assert (silent.canonical, silent.match.is_canonical) == (None, None)


def test_a_text_says_nothing_of_itself_whatever_stands_in_it(index):
    (found,) = verdicts(index, prepared(1, text='<html lang=en><link rel="canonical" href="/1">'))
    assert (found.canonical, found.language, found.robots) == (None, None, None)


def test_a_profile_without_a_sketch_tells_no_similarity(index):
    signature = SimpleNamespace(features=9, digest="text:1", verifier=1)
    record = Record(1, 0, b"", 1, "text:0", "http://x/", None, None, 9)
    match = match_of(
        SimpleNamespace(url="no host", signature=signature, hints=NO_HINTS), Duplicate(3, record), profile("segmented")
    )
    assert (match.similarity, match.containment, match.same_host) == (None, None, False)
