"""The bytes of the stored layout: what is packed comes back, in as few bytes as promised."""

import struct
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from simhash.errors import DesignError, IndexDamaged, IndexMismatch
from simhash.index import Entry, IndexSpec, Partition, Position, Record, Relation, Unique
from simhash.index.redis.layout import MOST_DOCUMENTS, Layout, bucket_bits, number, numbers_in, packed, unpacked
from simhash.index.redis.opening import existing_index, open_index
from simhash.index.redis.operators.operations import Operations
from simhash.index.redis.operators.transfer import exported, loaded, opened_for_import, spec_in
from simhash.index.urls import HEAD, UrlCodec, shipped, trained
from simhash.relation.overlap import rounded
from simhash.relation.tables import NAMES, design
from tests.pages import relation

text = st.text(st.characters(codec="utf-8"), max_size=40)
times = st.datetimes().map(lambda t: t.strftime("%Y-%m-%dT%H:%M:%SZ")) | text
URLS = UrlCodec(shipped())
urls = st.builds(str.__add__, st.sampled_from(["", HEAD, "http://"]), text)


@given(urls, st.none() | text, st.none() | times, st.none() | st.integers(0, 1 << 25))
def test_what_a_tail_tells_comes_back(url, id_, fetched_at, features):
    kept = None if features is None else rounded(features)
    assert unpacked(URLS, *packed(URLS, url, id_, fetched_at, features)) == (url, id_, fetched_at, kept)


def test_a_length_takes_a_byte_and_a_record_from_before_has_none():
    flags, data = packed(URLS, "http://a/", "i", "2026-01-01T00:00:00Z", 1000)
    before, old = packed(URLS, "http://a/", "i", "2026-01-01T00:00:00Z")
    assert (len(data) - len(old), flags ^ before) == (1, 4)
    assert unpacked(URLS, before, old).features is None


@given(st.binary(max_size=120))
def test_what_is_no_record_is_refused_as_damaged(data):
    with suppress(IndexDamaged):
        layout_of("4").record(1, data)


@given(st.integers(0, MOST_DOCUMENTS))
def test_a_number_comes_back_from_a_place(seq):
    data = number(seq)
    assert len(data) == max(3, -(-(seq.bit_length() + 2) // 8))
    assert numbers_in(b"ab" + data + b"cd" + number(1), 2) == [(b"ab", seq), (b"cd", 1)]


@given(st.integers(0, MOST_DOCUMENTS))
def test_a_record_lies_where_its_number_says(seq):
    layout = layout_of("4")
    assert layout.seq_at(*layout.records(seq)) == seq
    assert layout.seq_at(layout.records_start + "0", b"64") is None
    assert layout.seq_at(layout.records_start + "0", b"07") is None


@pytest.mark.parametrize(
    ("fetched_at", "size"),
    [
        (None, 0),
        ("2026-01-01T00:00:00Z", 4),
        ("1970-01-01T00:00:00Z", 4),
        ("2106-02-07T06:28:15Z", 4),
        ("2106-02-07T06:28:16Z", 22),
        ("1969-12-31T23:59:59Z", 22),
        ("2026-01-01T00:00:00+00:00", 27),
        ("2026-01-01T00:00:00.5Z", 24),
        ("2026-01-01 00:00:00Z", 22),
        ("yesterday", 11),
    ],
)
def test_a_fetch_time_is_four_bytes_or_as_it_came(fetched_at, size):
    flags, data = packed(URLS, "x", None, fetched_at)
    assert len(data) == size + 1
    assert unpacked(URLS, flags, data).fetched_at == fetched_at


def test_the_beginning_of_a_url_takes_no_bytes():
    assert packed(URLS, "https://QX/", None, None)[1] == b"QX/"


@pytest.mark.parametrize("url", ["", "^|~", "例え.jp/頁", "x\x00y", "https://例え.jp/頁"])
def test_a_url_that_would_not_get_shorter_is_kept_as_it_is(url):
    flags, data = packed(URLS, url, None, None)
    assert data.decode() == url.removeprefix("https://")
    assert unpacked(URLS, flags, data).url == url


def layout_of(name_of_design, bands=0, bucket=4, bits=64):
    rule = Relation(design(name_of_design, bits), 6, 14, 64, bands)
    return Layout("n%d", IndexSpec({}, rule, bucket, 1000))


@given(st.integers(0, 2**64 - 1), st.sampled_from(NAMES))
def test_a_fingerprint_comes_back_from_its_place_in_each_table(fingerprint, name_of_design):
    layout = layout_of(name_of_design)
    for table in layout.spec.relation.design.tables:
        bucket, field, rest = layout.place(table, fingerprint)
        assert layout.fingerprint_at(table, bucket, field, rest) == fingerprint


def unpacked_places(layout, packed_places):
    """What the script's struct.unpack makes of them, in Python's words."""
    sizes = [int(size) for size in layout.places.struct.split("c")[1:]]
    return struct.unpack("".join(f"{size}s" for size in sizes), packed_places)


@given(st.integers(0, 2**64 - 1), st.sampled_from([*NAMES, "1c1"]), st.sampled_from([11, 16]))
def test_all_places_at_once_are_those_of_each_table(fingerprint, name_of_design, bucket):
    layout = layout_of(name_of_design, bucket=bucket)
    tables = layout.spec.relation.design.tables
    places = unpacked_places(layout, layout.places.packed(layout.key_of(fingerprint)))
    heads, rests = places[: 2 * len(tables)], places[2 * len(tables) :]
    for i, table in enumerate(tables):
        name, field, rest = layout.place(table, fingerprint)
        assert (heads[2 * i].decode(), int(heads[2 * i + 1]), rests[i]) == (layout.table(i) + name, field, rest)


@given(st.binary(min_size=16, max_size=16), st.booleans(), st.integers(0, 2**160 - 1))
def test_a_record_holds_what_is_stored_of_its_page(observation, raw, verifier):
    layout = layout_of("10", bands=3)
    digest = f"{'raw' if raw else 'text'}:{observation[::-1].hex()}"
    entry = Entry(observation, Position(Partition("p", 0), 1), 5, verifier, digest, "http://a/", "i", "2026", 2260)
    assert layout.record(7, (8).to_bytes(6) + layout.body(entry)) == (5, Record.of(entry, 7, 8))
    short = Entry(observation, None, None, None, digest, "http://a/", "i", "2026")
    assert layout.record(7, (8).to_bytes(6) + layout.body(short)) == (None, Record.of(short, 7, 8))


def test_a_record_knows_its_text():
    digest = "text:" + "ab" * 16
    entry = Entry(bytes(range(16)), None, 5, 1, digest, "http://a/")
    record = Record.of(entry, 1, 0)
    assert record.has_text_of(digest)
    assert not record.has_text_of("raw:" + "ab" * 16)
    assert not record.has_text_of("text:" + "ac" * 16)


@pytest.mark.parametrize("capacity", [0, 1, 32, 1_000_000, 10**12])
@pytest.mark.parametrize("name_of_design", [*NAMES, "1c1"])
def test_what_is_behind_the_bucket_fits_into_a_field(capacity, name_of_design):
    rule = design(name_of_design)
    b = bucket_bits(capacity, rule)
    assert 1 <= b <= min(32, rule.shortest_prefix)
    assert max(table.prefix for table in rule.tables) - b <= 53


def test_a_design_whose_prefixes_do_not_fit_is_refused():
    with pytest.raises(DesignError, match="prefixes of 128 bits"):
        bucket_bits(1000, design("1c1", bits=128))


def test_an_index_of_another_format_is_refused_with_what_to_do(client, name):
    rule = relation(design("4"))
    open_index(client, name, {}, rule, 1000)
    client.hset(f"{{{name}}}:meta", "format", 1)
    for opened in (lambda: existing_index(client, name), lambda: open_index(client, name, {}, rule, 1000)):
        with pytest.raises(IndexMismatch, match="has format 1, this program reads format 5: rebuild it"):
            opened()


def shop_urls(count):
    return [f"https://shop.example.org/en/garden/tools/{number:08}/spade-{number % 7}.html" for number in range(count)]


def test_an_index_keeps_the_dictionary_that_it_was_made_with(client, name):
    """Whoever opens it afterwards, and wherever it is moved."""
    rule, own = relation(design("4")), trained(shop_urls(2000), 4 << 10)
    index = open_index(client, name, {}, rule, 1000, urls=own)
    pages = [
        Entry(bytes([n]) * 16, None, n * 0x9E3779B97F4A7C15 % 2**64, 0, f"text:{n:032x}", url)
        for n, url in enumerate(shop_urls(9), 1)
    ]
    index.check_and_insert(pages, {})
    for opened in (open_index(client, name, {}, rule, 1000), existing_index(client, name)):
        assert opened.spec.urls == own
        assert sorted(record.url for _, record in opened.scan()) == shop_urls(9)
        assert len(client.hget(f"{{{name}}}:r:0", "1")) < len(Layout(name, layout_of("4").spec).body(pages[0]))
        assert opened.check_and_insert(pages, {})[0].decision == Unique(1)
    head, *rows = exported(Operations(index))
    assert spec_in(head).urls == own
    store = opened_for_import(client, f"{name}-b", head)
    loaded(store, head, rows, lambda _: None)
    store.release(head.generation)
    assert sorted(record.url for _, record in existing_index(client, f"{name}-b").scan()) == shop_urls(9)


@pytest.mark.parametrize("damage", [b"", b"AAAA", b"not base64"])
def test_an_index_whose_dictionary_is_damaged_is_refused(client, name, damage):
    open_index(client, name, {}, relation(design("4")), 1000)
    client.hset(f"{{{name}}}:meta", "urls", damage)
    with pytest.raises(IndexMismatch, match="is damaged"):
        existing_index(client, name)
