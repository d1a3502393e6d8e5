"""`index check` finds each broken invariant, and nothing in an index that workers are writing to."""

import threading
from random import Random

import pytest
import redis

from simhash.index import Retention
from simhash.index.checking import check
from simhash.index.layout import Layout
from simhash.index.redis import open_index
from simhash.index.spots import band_spots, key_name, table_spots
from simhash.tables import design
from tests.pages import PAGES, banded, crowd, entry, relation

BANDS = 2
FOR_EVER = Retention()


class Clock:
    def __init__(self):
        self.now = 1_000_000

    def __call__(self):
        return self.now


def filled(client, name, count=150, retention=FOR_EVER):
    """An index with near neighbours, equal fingerprints, short pages, bands and a journal."""
    random = Random(count)
    index = open_index(client, name, {}, relation(design("10"), 12, bands=BANDS), 400, retention)
    pages = banded(crowd(count, random), BANDS, random)
    index.check_and_insert(pages[: count // 2], {})
    index.check_and_insert(pages[count // 2 :], {PAGES: count // 3})
    return index


def violations(index):
    return check(index.inside, lambda found: None).violations


def names(index):
    return {violation.invariant for violation in violations(index)}


def test_a_whole_index_has_no_violations_and_all_of_it_is_looked_at(client, name):
    index = filled(client, name)
    found = check(index.inside, lambda _: None)
    assert found.violations == []
    assert found.records == found.logged == index.documents() > 50
    stored = [(f, r) for f, r in index.scan() if f is not None]
    layout = Layout(name, index.spec)
    spots = {spot for f, r in stored for spot in (*table_spots(layout, f), *band_spots(layout, f, [r]))}
    assert found.members == len(spots)
    assert found.journalled == 100
    assert found.keys == len(list(client.scan_iter(f"{name}:*")))
    assert found.long_buckets == 0


def some_fingerprint(index):
    """A fingerprint with one record that has band keys; the record."""
    by = {}
    for fingerprint, record in index.scan():
        by.setdefault(fingerprint, []).append(record)
    return min(
        (f, records[0])
        for f, records in by.items()
        if f is not None and len(records) == 1 and all(index.spec.relation.band_keys(records[0].verifier))
    )


def no_member(client, index, layout, fingerprint, record):
    spot = table_spots(layout, fingerprint)[3]
    assert client.zrem(spot.key, *spot.forms) == 1


def wrong_score(client, index, layout, fingerprint, record):
    spot = table_spots(layout, fingerprint)[3]
    client.zadd(spot.key, {next(f for f in spot.forms if client.zscore(spot.key, f) == spot.score): spot.score ^ 1})


def member_twice(client, index, layout, fingerprint, record):
    spot = table_spots(layout, fingerprint)[0]
    client.zadd(spot.key, dict.fromkeys(spot.forms, spot.score))


def no_band(client, index, layout, fingerprint, record):
    spot = band_spots(layout, fingerprint, [record])[0]
    assert client.zrem(spot.key, *spot.forms) == 1


def stray_band(client, index, layout, fingerprint, record):
    client.zadd(layout.band(0) + "0" * layout.digits, {layout.key_of(fingerprint): 5})


def stray_member(client, index, layout, fingerprint, record):
    spot = table_spots(layout, fingerprint ^ (1 << 40))[2]
    client.zadd(spot.key, {spot.member: spot.score})


def no_record(client, index, layout, fingerprint, record):
    client.hdel(layout.records(fingerprint), layout.key_of(fingerprint))


def no_short_record(client, index, layout, fingerprint, record):
    key = next(iter(client.scan_iter(f"{layout.digests_start}*")))
    client.hdel(key, client.hkeys(key)[0])


def record_elsewhere(client, index, layout, fingerprint, record):
    other = layout.records(fingerprint ^ (1 << 63))
    client.hset(other, layout.key_of(fingerprint), client.hget(layout.records(fingerprint), layout.key_of(fingerprint)))


def unreadable_record(client, index, layout, fingerprint, record):
    client.hset(layout.records(fingerprint), layout.key_of(fingerprint), b"\xff\x00")


def records_out_of_order(client, index, layout, fingerprint, record):
    value = client.hget(layout.records(fingerprint), layout.key_of(fingerprint))
    pair = b"".join(len(v).to_bytes(2) + v for v in (value, (0).to_bytes(5) + b"\x00" + value[6:]))
    client.hset(layout.records(fingerprint), layout.key_of(fingerprint), b"\xff" + pair)


def swapped_log(client, index, layout, fingerprint, record):
    at = record.seq - 1
    other = client.lindex(layout.log, at + 1)
    client.lset(layout.log, at + 1, client.lindex(layout.log, at))
    client.lset(layout.log, at, other)


def strange_log(client, index, layout, fingerprint, record):
    client.lset(layout.log, 0, "abc")


def wrong_counter(client, index, layout, fingerprint, record):
    client.hincrby(layout.meta, "documents", 1)


def old_journal(client, index, layout, fingerprint, record):
    key = layout.journal(PAGES)
    offset = next(field for field in client.hkeys(key) if field != b"mark")
    client.hset(key, "mark", int.from_bytes(offset) + 1)


def strange_journal(client, index, layout, fingerprint, record):
    client.hset(layout.journal(PAGES), (10**6).to_bytes(6), b"abc")


def strange_key(client, index, layout, fingerprint, record):
    client.set(f"{layout.name}:t99:0", "")


@pytest.mark.parametrize(
    ("breaks", "invariants"),
    [
        (no_member, {"member"}),
        (wrong_score, {"member", "orphan"}),
        (member_twice, {"member"}),
        (no_band, {"band"}),
        (stray_band, {"orphan"}),
        (stray_member, {"orphan"}),
        (no_record, {"orphan", "documents"}),
        (no_short_record, {"documents"}),
        (record_elsewhere, {"record"}),
        (unreadable_record, {"record", "documents"}),
        (records_out_of_order, {"record"}),
        (swapped_log, {"log", "documents"}),
        (strange_log, {"log", "documents"}),
        (wrong_counter, {"documents"}),
        (old_journal, {"journal"}),
        (strange_journal, {"journal"}),
        (strange_key, {"key"}),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_each_broken_invariant_is_found_by_its_name(client, name, breaks, invariants):
    index = filled(client, name)
    breaks(client, index, Layout(name, index.spec), *some_fingerprint(index))
    assert invariants <= names(index)


def test_workers_and_retention_that_go_on_are_no_violations(redis_server, client, name):
    """A writer stores and forgets, with short pages and takedowns by age, as fast as it can while checks run."""
    kept = Retention(max_documents=60)
    index = filled(client, name, 100, kept)
    stop = threading.Event()

    def write():
        with redis.Redis.from_url(redis_server.url) as own:
            writer = open_index(own, name, {}, index.spec.relation, 400, kept)
            random, first = Random(1), 1000
            while not stop.is_set():
                writer.check_and_insert(banded(crowd(40, random, first=first), BANDS, random), {PAGES: first})
                first += 40

    thread = threading.Thread(target=write)
    thread.start()
    try:
        begin = int(client.hget(f"{name}:meta", "seq"))
        for _ in range(6):
            assert violations(index) == []
        assert int(client.hget(f"{name}:meta", "seq")) > begin + 60
    finally:
        stop.set()
        thread.join()
    assert violations(index) == []


def test_a_key_is_taken_apart(client, name):
    layout = Layout("n", filled(client, name).spec)
    digits = "0" * layout.digits
    assert key_name(layout, "n:meta").kind == "meta"
    assert key_name(layout, f"n:t9:{digits}").number == 9
    assert key_name(layout, "n:j:a.topic:with:colons:3").kind == "j"
    assert [key_name(layout, key) for key in (f"n:t10:{digits}", "n:t1:", f"n:b{BANDS}:{digits}", "n:q")] == [None] * 4


def test_an_empty_index_is_whole(client, name):
    assert violations(open_index(client, name, {}, relation(design("4")), 100)) == []
    index = open_index(client, name, {}, relation(design("4")), 100)
    index.check_and_insert([entry(0, 1)], {})
    assert violations(index) == []
