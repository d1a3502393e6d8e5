"""Pages of templates: many that meet and do not match. What one page costs is bounded, and what that leaves out is
known."""

from dataclasses import replace
from functools import partial
from itertools import pairwise
from random import Random

import msgspec
import pytest

from simhash.index import Duplicate, Partition, Retention, Unique
from simhash.index.memory import MemoryIndex
from simhash.index.redis.index import Line
from simhash.index.redis.layout import meta_key
from simhash.index.redis.opening import existing_index, open_index
from simhash.index.redis.operators.check import check
from simhash.index.redis.operators.takedowns import Found, take_down
from simhash.relation.tables import design
from tests.pages import PAGES, VERIFIER_BITS, banded, crowd, entry, relation, same_delivery, summary


@pytest.fixture
def small_places(monkeypatch):
    """A place takes two records."""
    monkeypatch.setattr("simhash.index.interface.LEAST_IN_PLACE", 2)
    monkeypatch.setattr("simhash.index.interface.MOST_COMPARED", 2)


def alike(count, random, first=0, fingerprint=None):
    """Pages under one prefix that do not match each other: what a template makes."""
    return [
        replace(
            entry(first + n, random.getrandbits(40) if fingerprint is None else fingerprint, random.getrandbits(64)),
            digest=f"text:{random.getrandbits(128):032x}",
        )
        for n in range(count)
    ]


@pytest.mark.parametrize("name_of_design", ["3", "4", "6", "2-probed"])
@pytest.mark.parametrize("bands", [0, 3])
@pytest.mark.parametrize("kept", [Retention(), Retention(max_documents=60)])
def test_crowds_are_judged_as_the_model_does_and_the_index_is_whole(
    client, name, name_of_design, bands, kept, monkeypatch
):
    rule = relation(design(name_of_design), 12, bands=bands)
    shares = len(rule.design.tables) + sum(table.radius for table in rule.design.tables) + bands
    monkeypatch.setattr("simhash.index.interface.LEAST_IN_PLACE", 1)
    monkeypatch.setattr("simhash.index.interface.MOST_COMPARED", 2 * shares)
    assert rule.place_limit == 2
    assert {n for n, table in zip(rule.neighbour_limits, rule.design.tables, strict=True) if table.radius} <= {1}
    index = open_index(client, name, {}, rule, 40, kept, lambda: 5)
    model = MemoryIndex(index.spec, kept, lambda: 5)
    random = Random(bands)
    pages = banded(crowd(250, random), bands, random)
    crowded = 0
    for at in range(0, len(pages), 50):
        ours, theirs = (each.check_and_insert(pages[at : at + 50], {}) for each in (index, model))
        assert [a.decision for a in ours] == [a.decision for a in theirs]
        crowded += sum(answer.crowded for answer in ours)
    assert crowded > 0
    assert sorted(map(repr, index.scan())) == sorted(map(repr, model.scan()))
    found = check(index.inside, lambda _: None)
    assert found.violations == []
    assert found.crowded == int(client.hget(meta_key(name), "crowded"))


@pytest.mark.usefixtures("small_places")
@pytest.mark.parametrize(("tables", "documents"), [("4", 40), ("10", 10**9)], ids=["small", "every bit of a band key"])
def test_what_a_full_place_turned_away_is_taken_down_with_all_that_leads_to_it(client, name, tables, documents):
    index = open_index(client, name, {}, relation(design(tables), 12, bands=2), documents)
    index.check_and_insert(banded(alike(60, Random(1)), 2, Random(2)), {})
    assert all(take_down(index.inside, [Found(f, r) for f, r in index.scan()]))
    assert check(index.inside, lambda _: None).violations == []
    assert int(client.hget(meta_key(name), "crowded")) == 0
    left = {key.decode().rpartition(":")[0] for key in client.scan_iter(f"{{{name}}}:*", count=10_000)}
    assert not any(key.startswith((f"{{{name}}}:t", f"{{{name}}}:b", f"{{{name}}}:r", f"{{{name}}}:x")) for key in left)


def test_an_exact_copy_is_found_however_large_the_crowd_is(client, name):
    """Also by the very delivery of a page, when its journal is gone; and when its elder was forgotten, it is unique."""
    index = open_index(client, name, {}, relation(design("4")), 10_000_000)
    pages = alike(700, Random(3), fingerprint=77)
    index.check_and_insert(pages, {})
    late = pages[650]
    copy = replace(late, observation=b"another delivery", position=None)
    (found,) = index.check_and_insert([copy], {})
    assert summary(found.decision) == ("duplicate", 651)
    assert found.crowded
    client.delete(*client.keys(f"{{{name}}}:j:*"))
    (again,) = index.check_and_insert([late], {})
    assert again.decision == Unique(651)
    stored = {record.seq: Found(f, record) for f, record in index.scan()}
    assert take_down(index.inside, [stored[651]]) == [True]
    (new,) = index.check_and_insert([copy], {})
    assert new.decision == Unique(701)


def test_a_page_is_compared_with_a_bounded_number_and_records_are_fields_of_their_own(client, name):
    rule = relation(design("6"), 12, bands=3)
    index = open_index(client, name, {}, rule, 10_000_000)
    pages = alike(1500, Random(4), fingerprint=99)
    answers = index.check_and_insert([replace(p, verifier=p.verifier << 96) for p in pages], {})
    unique = sum(isinstance(answer.decision, Unique) for answer in answers)
    assert unique > 1450  # of strangers' verifiers, one pair in 200,000 is within reach
    assert max(answer.candidates for answer in answers) <= rule.probes * rule.place_limit
    assert int(client.hget(meta_key(name), "most_candidates")) <= rule.probes * rule.place_limit
    keys = list(client.scan_iter(f"{index.inside.layout.records_start}*", count=10_000))
    assert sum(map(client.hlen, keys)) == unique
    assert max(len(value) for key in keys for value in client.hvals(key)) < 300


@pytest.mark.usefixtures("small_places")
def test_what_a_page_meets_by_a_band_alone_is_counted_too(client, name):
    random = Random(6)
    pages = [entry(n, random.getrandbits(64), random.getrandbits(64) << 32 | 7) for n in range(4)]
    answers = open_index(client, name, {}, relation(design("4"), 12, bands=1), 10).check_and_insert(pages, {})
    assert [(a.candidates, a.crowded) for a in answers] == [(0, False), (1, False), (2, True), (2, True)]


@pytest.mark.usefixtures("small_places")
def test_the_oldest_pages_of_a_place_are_those_that_are_compared(client, name):
    """Who is within k of a page that found its place full, and shares nothing else with it, is not told so."""
    rule = relation(design("1c1", bits=64), 12)
    index = open_index(client, name, {}, rule, 10)
    pages = alike(rule.place_limit + 1, Random(5), fingerprint=5)
    index.check_and_insert(pages, {})
    for elder, verdict in ((pages[-2], Duplicate), (pages[-1], Unique)):
        like = replace(elder, observation=b"another delivery", position=None, digest="text:" + "ab" * 16)
        (answer,) = index.check_and_insert([like], {})
        assert isinstance(answer.decision, verdict)


@pytest.mark.parametrize("kept", [Retention(max_age_ms=1000), Retention(max_documents=1)])
@pytest.mark.usefixtures("small_places")
def test_what_is_forgotten_takes_no_room_of_a_place(client, name, kept):
    """Though it is not removed yet: after a long pause, or where the limit is a lower one by now."""
    rule, clock = relation(design("1c1", bits=64), 12), [1_000_000]
    opened = partial(open_index, client, name, {}, rule, 10, clock=lambda: clock[0])
    pages = alike(rule.place_limit + 2, Random(5), fingerprint=5)
    opened().check_and_insert(pages[:-1], {})
    clock[0] += 5000
    index = opened(kept)
    for page in (pages[-1], replace(pages[-1], observation=b"another delivery", digest="text:" + "ab" * 16)):
        (answer,) = index.check_and_insert([replace(page, position=None)], {})
    assert isinstance(answer.decision, Duplicate)
    assert check(index.inside, lambda _: None).violations == []


@pytest.mark.usefixtures("small_places")
def test_a_page_that_is_stored_again_before_its_forgotten_elder_is_removed_leaves_the_index_whole(client, name):
    now = [1_000]
    kept = Retention(max_age_ms=100)
    index = open_index(client, name, {}, relation(design("4"), 12), 40, kept, lambda: now[0])
    pages = alike(12, Random(7), fingerprint=5)
    index.check_and_insert(pages, {})
    now[0] += 1_000
    again = [replace(page, observation=f"{n:08}again...".encode(), position=None) for n, page in enumerate(pages[-3:])]
    assert [answer.decision for answer in index.check_and_insert(again, {})] == [Unique(13), Unique(14), Unique(15)]
    for _ in range(3):  # elders are there, then some of them, then none
        found = check(index.inside, lambda _: None)
        assert found.violations == []
        assert found.crowded == int(client.hget(meta_key(name), "crowded"))
        index.check_and_insert([replace(again[0], observation=b"another delivery")], {})
    assert {record.seq for _, record in index.scan()} == {13, 14, 15}


# Two workers ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("work", [0, 60, 300])
def test_another_workers_call_between_two_cut_ones_changes_no_page_of_ours(client, name, monkeypatch, work):
    """Calls of both are cut short, one within the other's batch; every answer is its own page's."""
    monkeypatch.setattr("simhash.index.redis.index.CALL_WORK", work)
    monkeypatch.setattr("simhash.index.redis.index.CALL_PAGES", 5)
    rule = relation(design("4"), 12)
    ours, theirs = open_index(client, name, {}, rule, 1000), existing_index(client, name)
    others = iter([alike(8, Random(100 + n), 10_000 + 8 * n) for n in range(1000)])
    told, busy, send = [], [], Line.send

    def sent(line, arguments):
        send(line, arguments)
        if not busy:
            busy.append(True)
            batch = next(others)
            told.extend(zip(batch, theirs.check_and_insert(batch, {}), strict=True))
            busy.pop()

    monkeypatch.setattr(Line, "send", sent)
    pages = [*alike(60, Random(1)), *crowd(60, Random(2), first=60)]
    told += zip(pages, ours.check_and_insert(pages, {}), strict=True)
    stored = {record.seq: record for _, record in ours.scan()}
    numbers = [answer.decision.seq for _, answer in told if isinstance(answer.decision, Unique)]
    assert len(numbers) == len(set(numbers)) == len(stored)
    for page, answer in told:
        if isinstance(answer.decision, Unique):
            assert same_delivery(stored[answer.decision.seq], page)
        elif page.fingerprint is not None:
            match = answer.decision.match
            assert stored[match.seq] == match
            (fingerprint,) = {f for f, record in ours.scan() if record.seq == match.seq}
            assert (fingerprint ^ page.fingerprint).bit_count() == answer.decision.distance
    assert check(ours.inside, lambda _: None).violations == []


def test_a_call_ends_once_it_has_done_its_work(client, name, monkeypatch):
    """Which is a page's own, and more for each record that it is compared with, and for each whose record is read."""
    told, receive = [], Line.receive

    def received(line):
        told.append(answers := receive(line))
        return answers

    monkeypatch.setattr(Line, "receive", received)
    index, random = open_index(client, name, {}, relation(design("4")), 1000), Random(8)
    alike = [entry(n, 7, random.getrandbits(VERIFIER_BITS)) for n in range(58)]
    for work, pages in ((0, alike[:50]), (300, alike[50:])):
        monkeypatch.setattr("simhash.index.redis.index.CALL_WORK", work)
        told.clear()
        index.check_and_insert(pages, {})
        assert [len(answers) for answers in told] == [1] * len(pages)


# Journals ------------------------------------------------------------------------------------------------------------


def test_ten_thousand_decisions_of_a_partition_are_forgotten_once_they_are_committed(client, name):
    index = open_index(client, name, {}, relation(design("4")), 100_000)
    other = Partition("pages", 1)
    pages = [entry(n, n << 30, partition=other) for n in range(10_000)]
    index.check_and_insert(pages, {})
    journal = f"{{{name}}}:j:pages:1"
    assert client.hlen(journal) == 10_000
    for n in range(20):
        index.check_and_insert([entry(10_000 + n, 1 << 60 | n << 8)], {other: 10_000})
        assert index.mark(other) == 10_000
    assert client.hgetall(journal) == {b"mark": b"10000"}
    assert check(index.inside, lambda _: None).violations == []


def decisions(client, name):
    """In all journals of the index: the entries of each are its mark, where its trimming stands, and decisions."""
    keys = client.keys(f"{{{name}}}:j:*")
    return sum(len(field) == 6 for key in keys for field in client.hkeys(key))


@pytest.fixture
def named(monkeypatch):
    """How many partitions each call to the index names."""
    counts, send = [], Line.send

    def sent(line, arguments):
        counts.append(len(msgspec.json.decode(arguments[2])["partitions"]))
        send(line, arguments)

    monkeypatch.setattr(Line, "send", sent)
    return counts


def test_a_call_takes_as_long_for_a_topic_of_hundreds_of_partitions_as_for_one_of_ten(client, name, named):
    """It names those of its pages, and eight of the others: with one page at a time each has its turn."""
    index = open_index(client, name, {}, relation(design("4")), 1000)
    topic = [Partition("pages", n) for n in range(300)]
    index.check_and_insert([entry(n, n << 30, partition=p) for n, p in enumerate(topic)], dict.fromkeys(topic, 0))
    assert decisions(client, name) == 300
    committed = {p: n + 1 for n, p in enumerate(topic)}
    for n in range(300 // 8 + 1):
        index.check_and_insert([entry(1000 + n, 1 << 60 | n << 8, partition=topic[0])], committed)
    assert max(named) <= 32 + 8
    assert [index.mark(p) for p in topic] == [*committed.values()]
    assert check(index.inside, lambda _: None).violations == []


def test_a_worker_that_has_no_page_moves_its_marks_by_as_many_calls_as_it_takes(client, name, named):
    """Of a batch of dead letters, and at its end."""
    index = open_index(client, name, {}, relation(design("4")), 1000)
    committed = {Partition("pages", n): n + 1 for n in range(3000)}
    index.check_and_insert([], committed)
    assert max(named) <= 256
    assert index.marks() == committed


def test_a_call_forgets_a_thousand_decisions_at_most_in_however_many_journals(client, name):
    index = open_index(client, name, {}, relation(design("4")), 10_000)
    topic = [Partition("pages", n) for n in range(7)]
    index.check_and_insert([entry(n, n << 30, partition=topic[n // 400]) for n in range(2800)], {})
    committed = {p: 400 * n for n, p in enumerate(topic, 1)}
    left = [decisions(client, name)]
    for n in range(9):
        index.check_and_insert([entry(2800 + n, 1 << 60 | n << 8, partition=topic[-1])], committed)
        left.append(decisions(client, name))
    assert left[0] == 2800
    assert all(before - after <= 1000 for before, after in pairwise(left))
    assert left[-1] == 9
    assert [index.mark(p) for p in topic] == [*committed.values()]


@pytest.mark.parametrize("offset", [0, 999, 1000, 2500])
def test_what_is_left_of_a_journal_is_forgotten_after_a_rewind_too(client, name, offset):
    index = open_index(client, name, {}, relation(design("4")), 100_000)
    index.check_and_insert([entry(n, n << 30) for n in range(3000)], {})
    index.check_and_insert([entry(3000, 1 << 60)], {PAGES: 3000})
    assert client.hget(f"{{{name}}}:j:pages:0", "trimmed") == b"1000"
    index.rewind(PAGES, offset)
    index.check_and_insert([entry(offset, offset << 30)], {PAGES: offset})
    for _ in range(5):
        index.check_and_insert([entry(3001, 1 << 59)], {PAGES: 3001})
    assert set(client.hkeys(f"{{{name}}}:j:pages:0")) == {b"mark", (3001).to_bytes(6)}


@pytest.mark.parametrize("kind", ["redis", "memory"])
@pytest.mark.parametrize(("places", "found"), [(1, True), (2, False)])
def test_of_places_one_bit_away_all_is_compared_or_the_oldest_of_each(client, name, kind, places, found, monkeypatch):
    """Three pages in each; four together are one more than a place takes."""
    rule = relation(design("3"), 12)
    monkeypatch.setattr("simhash.index.interface.LEAST_IN_PLACE", 1)
    monkeypatch.setattr("simhash.index.interface.MOST_COMPARED", 4 * 4)
    assert (rule.place_limit, rule.neighbour_limits[2]) == (4, 1)
    index = open_index(client, name, {}, rule, 40)
    index = MemoryIndex(index.spec, Retention(), lambda: 5) if kind == "memory" else index
    random = Random(8)
    stored = [alike(3, random, first=10 * place, fingerprint=1 << 5 << place) for place in range(places)]
    index.check_and_insert([page for pages in stored for page in pages], {})
    for nth, elder in enumerate(stored[0]):
        like = replace(entry(90 + nth, 1 << 63 | 1 << 40, elder.verifier), digest=f"text:{nth:032x}")
        (answer,) = index.check_and_insert([like], {})
        assert isinstance(answer.decision, Duplicate) == (found or nth == 0)
