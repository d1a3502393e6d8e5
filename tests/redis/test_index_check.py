"""`index check` finds each broken invariant, and nothing in an index that workers are writing to."""

import threading
from dataclasses import replace
from random import Random

import pytest
import redis

from simhash.index import IndexSpec, Retention
from simhash.index.redis.layout import Layout
from simhash.index.redis.operators.check import _Checker
from simhash.index.redis.operators.spots import key_name
from simhash.relation.tables import design
from tests.damage import Damage
from tests.pages import PAGES, banded, crowd, entry, relation

BANDS = 2
FOR_EVER = Retention()


def filled(backend, name, count=150, retention=FOR_EVER):
    """An index with near neighbours, equal fingerprints, short pages, bands and a journal."""
    random = Random(count)
    index = backend.open(name, relation(design("10"), 12, bands=BANDS), 400, retention)
    pages = banded(crowd(count, random), BANDS, random)
    index.check_and_insert(pages[: count // 2], {})
    index.check_and_insert(pages[count // 2 :], {PAGES: count // 3})
    return index


def checked(backend, index):
    return backend.operations(index).check(lambda _: None)


def violations(backend, index):
    return checked(backend, index).violations


def test_a_whole_index_has_no_violations_and_all_of_it_is_looked_at(backend, name):
    index = filled(backend, name)
    found = checked(backend, index)
    assert found.violations == []
    assert found.records == index.documents() > 50
    stored = [(f, r) for f, r in index.scan() if f is not None]
    assert found.members == sum(len(Damage(backend.client, index).members(*each)) for each in stored)
    assert found.journalled == 100
    assert found.keys == len(list(backend.client.scan_iter(f"{{{name}}}:*", count=10_000)))
    assert found.long_buckets == 0
    assert found.crowded == 0


def test_keys_are_looked_at_many_at_once(backend, name, monkeypatch):
    """A new index, laid out for many pages, has a key for nearly all that stands in it."""
    random, sent = Random(3), []
    index = backend.open(name, relation(design("10"), 12, bands=BANDS), 10_000_000)
    index.check_and_insert(banded(crowd(300, random), BANDS, random), {})
    before = redis.connection.AbstractConnection.send_packed_command

    def noted(connection, command, **options):
        sent.append(b"".join(command) if isinstance(command, list) else command)
        before(connection, command, **options)

    monkeypatch.setattr(redis.connection.AbstractConnection, "send_packed_command", noted)
    found = checked(backend, index)
    assert found.violations == []
    assert found.keys > 1000
    # Not counted: those that find the keys, for there are other indexes beside this one.
    assert sum(b"$4\r\nSCAN\r\n" not in each for each in sent) < found.keys / 10


def test_of_what_workers_store_meanwhile_records_are_counted_and_not_looked_up(backend, name, monkeypatch):
    """They may store faster than records are looked up, and a check is to come to an end."""
    index, random, looked_up = filled(backend, name), Random(9), []
    there = index.documents()
    before = _Checker._check_records

    def slowly(checker, entries):
        looked_up.extend(entry.seq for entry in entries)
        if entries and index.documents() < 20 * there:
            pages = banded(crowd(500, random), BANDS, random)
            index.check_and_insert([replace(page, position=None) for page in pages], {})
        before(checker, entries)

    monkeypatch.setattr("simhash.index.redis.operators.check._Checker._check_records", slowly)
    monkeypatch.setattr("simhash.index.redis.operators.walking.STRETCH", 20)
    found = checked(backend, index)
    assert found.violations == []
    assert looked_up == list(range(1, there + 1))
    assert found.records == index.documents() > there


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


INVARIANTS = {
    "no_member": {"member"},
    "no_band": {"band"},
    "stray_band": {"orphan"},
    "stray_member": {"orphan"},
    "no_record": {"orphan"},
    "no_short_record": {"orphan"},
    "no_digest": {"member"},
    "half_a_number": {"orphan", "member"},
    "swapped_records": {"member", "orphan"},
    "record_elsewhere": {"record"},
    "unreadable_record": {"record"},
    "wrong_counter": {"documents"},
    "old_journal": {"journal"},
    "strange_journal": {"journal"},
    "strange_key": {"key"},
    "key_of_another_type": {"key"},
    "no_number_in_meta": {"key"},
    "wrong_field": {"member", "orphan"},
    "member_twice": {"orphan"},
    "record_of_another_number": {"record"},
    "crowded_without_record": {"crowded"},
    "gone_but_there": {"tombstone"},
}
"""What each kind of damage is reported as."""
LOST_RECORDS = {"no_record", "no_short_record", "unreadable_record"}


@pytest.mark.parametrize("damage", INVARIANTS)
def test_each_broken_invariant_is_found_by_its_name(backend, name, damage):
    index = filled(backend, name)
    getattr(Damage(backend.client, index), damage)(*some_fingerprint(index))
    lost = {"documents"} if damage in LOST_RECORDS else set()
    assert INVARIANTS[damage] | lost <= {violation.invariant for violation in violations(backend, index)}


def test_workers_and_retention_that_go_on_are_no_violations(backend, name):
    """A writer stores and forgets, with short pages and takedowns by age, as fast as it can while checks run."""
    kept = Retention(max_documents=60)
    index = filled(backend, name, 100, kept)
    stop = threading.Event()

    def write():
        with backend.connected() as own:
            writer = own.open(name, index.spec.relation, 400, kept)
            random, first = Random(1), 1000
            while not stop.is_set():
                writer.check_and_insert(banded(crowd(40, random, first=first), BANDS, random), {PAGES: first})
                first += 40

    thread = threading.Thread(target=write)
    thread.start()
    try:
        begin = int(backend.client.hget(backend.meta(name), "seq"))
        for _ in range(6):
            assert violations(backend, index) == []
        assert int(backend.client.hget(backend.meta(name), "seq")) > begin + 60
    finally:
        stop.set()
        thread.join()
    assert violations(backend, index) == []


def test_a_key_is_taken_apart():
    layout = Layout("n", IndexSpec({}, relation(design("10"), 12, bands=BANDS), 4, 400))
    digits = "0" * layout.digits
    assert key_name(layout, "{n}:meta").kind == "meta"
    assert key_name(layout, f"{{n}}:t9:{digits}").number == 9
    assert key_name(layout, "{n}:j:a.topic:with:colons:3").kind == "j"
    assert [
        key_name(layout, key) for key in (f"{{n}}:t10:{digits}", "{n}:t1:", f"{{n}}:b{BANDS}:{digits}", "{n}:q")
    ] == [None] * 4


def test_an_empty_index_is_whole(backend, name):
    index = backend.open(name, relation(design("4")), 100)
    assert violations(backend, index) == []
    index.check_and_insert([entry(0, 1)], {})
    assert violations(backend, index) == []
