"""The contract of every index: memory, Redis, Valkey and Redis Cluster, each design, held against brute force."""

from dataclasses import replace
from random import Random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from simhash.errors import StaleObservation
from simhash.index import Duplicate, IndexSpec, Partition, Position, Retention, Unique
from simhash.index.memory import MemoryIndex
from simhash.index.redis.layout import numbers_in
from simhash.index.redis.opening import existing_index, open_index
from simhash.index.redis.operators.spots import key_name
from simhash.relation.tables import NAMES, design, design_for
from tests.conftest import backend_of
from tests.pages import PAGES, banded, brute_force, crowd, entry, flipped, relation, same_page, summary

OTHER = Partition("pages", 1)


class Clock:
    """Milliseconds that pass when told to."""

    def __init__(self):
        self.now = 1_000_000

    def __call__(self):
        return self.now


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture(params=["memory", "redis", "valkey", "cluster"])
def make(request, name, clock):
    """Make an index: `make(relation, retention, capacity)`; Redis only where it is asked for."""
    made = []

    def of(rule, retention=None, capacity=1000):
        kept = retention or Retention()
        if request.param == "memory":
            return MemoryIndex(IndexSpec({}, rule, 4, capacity), kept, clock)
        made.append(rule)
        if request.param == "cluster":
            at = backend_of(request, "cluster").of(f"{name}-{len(made)}")
            return open_index(at.client, at.name, {}, rule, capacity, kept, clock)
        client = request.getfixturevalue("valkey_client" if request.param == "valkey" else "client")
        return open_index(client, f"{name}-{len(made)}", {}, rule, capacity, kept, clock)

    return of


# What has hundreds of cases.
of_one_server = pytest.mark.parametrize("make", ["memory", "redis"], indirect=True)


@of_one_server
@pytest.mark.parametrize("name_of_design", [*NAMES, "6c3", "8c3r1", "1c1", "16r1+24+24r1"])
@pytest.mark.parametrize("capacity", [10, 1_000_000, 4_000_000_000])
def test_the_index_agrees_with_brute_force(make, name_of_design, capacity):
    rule = relation(design(name_of_design))
    pages = crowd(300, Random(capacity))
    answers = make(rule, capacity=capacity).check_and_insert(pages, {})
    assert [summary(answer.decision) for answer in answers] == brute_force(pages, rule)


@of_one_server
@pytest.mark.parametrize("k", range(8))
def test_every_k_and_reach_agrees_with_brute_force_in_the_tables_that_auto_takes(make, k):
    tables = design_for(k, 64)
    assert tables.k >= k
    for reach in range(k, 13):
        rule = relation(tables, reach, None)
        pages = crowd(100, Random(reach))
        answers = make(rule).check_and_insert(pages, {})
        assert [summary(answer.decision) for answer in answers] == brute_force(pages, rule), reach


def test_128_bit_fingerprints_are_judged_alike(make):
    rule = relation(design("10", bits=128), reach=12)
    pages = crowd(200, Random(1), bits=128)
    answers = make(rule).check_and_insert(pages, {})
    assert [summary(answer.decision) for answer in answers] == brute_force(pages, rule)


@of_one_server
@pytest.mark.parametrize("bands", [1, 3])
@pytest.mark.parametrize("capacity", [10, 1_000_000, 10**13])
def test_pages_that_meet_in_a_band_only_are_found(make, bands, capacity):
    rule = relation(design("20"), reach=12, bands=bands)
    pages = banded(crowd(300, Random(bands)), bands, Random(7))
    answers = make(rule, capacity=capacity).check_and_insert(pages, {})
    expected = brute_force(pages, rule)
    assert [summary(answer.decision) for answer in answers] == expected
    without = brute_force(pages, replace(rule, design=rule.design, bands=0, verifier_bits=64 + 32 * bands))
    assert expected != without


@of_one_server
@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(seed=st.integers(0, 10**6), parts=st.sampled_from(["4", "10", "16", "20", "2-probed"]), step=st.integers(1, 60))
def test_batches_of_any_size_give_the_same_answers(make, seed, parts, step):
    rule = relation(design(parts))
    pages = crowd(120, Random(seed))
    index = make(rule)
    answers = [a for at in range(0, len(pages), step) for a in index.check_and_insert(pages[at : at + step], {})]
    assert [summary(answer.decision) for answer in answers] == brute_force(pages, rule)


@pytest.mark.parametrize("work", [0, 100, 250])
def test_calls_that_are_cut_short_judge_every_page_in_its_turn(client, name, monkeypatch, work):
    monkeypatch.setattr("simhash.index.redis.index.CALL_WORK", work)
    rule = relation(design("4"), reach=6)
    pages = crowd(300, Random(work))
    index = open_index(client, name, {}, rule, 1000)
    assert [summary(answer.decision) for answer in index.check_and_insert(pages, {})] == brute_force(pages, rule)
    assert int(client.hget(f"{{{name}}}:meta", "most_candidates")) > 1


def test_calls_behind_a_refused_one_store_nothing(client, name, monkeypatch):
    monkeypatch.setattr("simhash.index.redis.index.FIRST_PAGES", 2)
    index = open_index(client, name, {}, relation(design("4")), 1000)
    with pytest.raises(StaleObservation):
        index.check_and_insert([entry(n, 1 << (5 * n)) for n in range(10)], {PAGES: 1})
    assert index.documents() == 0


def test_a_script_that_the_server_has_lost_is_given_again(client, name):
    index = open_index(client, name, {}, relation(design("4")), 1000)
    index.check_and_insert([entry(0, 1)], {})
    client.script_flush()
    (answer,) = index.check_and_insert([entry(1, 0xFF << 40)], {})
    assert answer.decision == Unique(2)


def test_the_oldest_match_wins_not_the_nearest(make):
    """A and B do not match each other; C is nearer to B, but A was first."""
    rule = relation(design("4"), reach=6)
    a, b = 0, 0b1111111
    index = make(rule)
    first, second, third = index.check_and_insert([entry(0, a), entry(1, b), entry(2, 0b0011111)], {})
    assert isinstance(first.decision, Unique)
    assert isinstance(second.decision, Unique)
    assert isinstance(third.decision, Duplicate)
    assert third.decision.match.seq == 1
    assert third.decision.distance == 5


@pytest.mark.parametrize(("distance", "verdict"), [(3, Duplicate), (4, Unique)])
def test_reach_is_inclusive(make, distance, verdict):
    index = make(relation(design("4"), reach=3))
    *_, last = index.check_and_insert([entry(0, 0), entry(1, (1 << distance) - 1)], {})
    assert isinstance(last.decision, verdict)


@pytest.mark.parametrize(("distance", "verdict"), [(14, Duplicate), (15, Unique)])
def test_the_verifiers_reach_is_inclusive(make, distance, verdict):
    index = make(relation(design("4"), verifier_reach=14))
    *_, last = index.check_and_insert([entry(0, 5, 0), entry(1, 5, (1 << distance) - 1)], {})
    assert isinstance(last.decision, verdict)


def test_two_pages_under_one_fingerprint_are_kept_apart_by_the_verifier(make):
    index = make(relation(design("10")))
    far = (1 << 64) - 1
    pages = [entry(0, 77, 0), entry(1, 77, far), entry(2, 77, 1), entry(3, 77, far ^ 1)]
    answers = [summary(a.decision) for a in index.check_and_insert(pages, {})]
    assert answers == [("unique", 1), ("unique", 2), ("duplicate", 1), ("duplicate", 2)]
    assert index.documents() == 2


def test_a_duplicate_carries_the_whole_record_of_its_match(make):
    index = make(relation(design("10")))
    first = entry(0, 1 << 60)
    _, answer = index.check_and_insert([first, entry(1, 0)], {})
    assert isinstance(answer.decision, Duplicate)
    assert same_page(answer.decision.match, first)
    assert answer.decision.distance == 1


def test_pages_without_a_fingerprint_match_on_their_digest_alone(make):
    index = make(relation(design("4")))
    digests = ["text:" + "a" * 32, "raw:" + "a" * 32, "text:" + "a" * 32]
    pages = [entry(n, None, digest=digest) for n, digest in enumerate(digests)]
    answers = [summary(a.decision) for a in index.check_and_insert(pages, {})]
    assert answers == [("unique", 1), ("unique", 2), ("duplicate", 1)]


def test_a_replayed_batch_gets_its_first_answers(make):
    pages = crowd(100, Random(3))
    index = make(relation(design("10")))
    first = index.check_and_insert(pages, {})
    assert index.check_and_insert(pages, {}) == first
    assert index.check_and_insert(list(reversed(pages)), {}) == list(reversed(first))


def test_a_unique_page_is_unique_again_without_a_journal(make):
    """Its own record answers for it, in files and after an announced rewind."""
    index = make(relation(design("10")))
    page, short = entry(0, 42, partition=None), entry(1, None, partition=None)
    first = index.check_and_insert([page, short], {})
    assert [a.decision for a in index.check_and_insert([page, short], {})] == [a.decision for a in first]


def test_a_page_below_the_mark_is_refused_and_nothing_is_stored(make):
    index = make(relation(design("4")))
    index.check_and_insert([entry(0, 1)], {})
    with pytest.raises(StaleObservation):
        index.check_and_insert([entry(7, 1 << 40), entry(0, 1)], {PAGES: 1})
    assert index.documents() == 1
    assert index.mark(PAGES) == 1


def test_marks_are_moved_without_pages_however_many(make):
    """More partitions than a call with pages names beside its own."""
    index = make(relation(design("4")))
    marks = {Partition("pages", number): number + 1 for number in range(300)}
    assert index.check_and_insert([], {}) == index.check_and_insert([], marks) == []
    assert {partition: index.mark(partition) for partition in marks} == marks
    index.check_and_insert([], {PAGES: 0})
    assert index.mark(PAGES) == marks[PAGES]


def test_the_mark_only_rises_unless_a_rewind_is_announced(make):
    index = make(relation(design("4")))
    assert index.mark(PAGES) is None
    index.check_and_insert([entry(20, 1)], {PAGES: 10})
    index.check_and_insert([entry(21, 1)], {PAGES: 4})
    assert index.mark(PAGES) == 10
    index.rewind(PAGES, 2)
    assert index.mark(PAGES) == 2
    assert index.mark(OTHER) is None


def test_the_journal_is_forgotten_below_the_mark_only(make):
    index = make(relation(design("4")))
    index.check_and_insert([entry(n, 1 << (n * 8)) for n in range(5)], {})
    index.check_and_insert([entry(5, 1 << 60)], {PAGES: 3})
    assert index.journalled({Position(PAGES, n): None for n in range(7)}) == [Position(PAGES, n) for n in (3, 4, 5)]


def test_the_journal_knows_a_page_by_its_observation(make):
    index = make(relation(design("4")))
    pages = [entry(n, 1 << (n * 8)) for n in range(3)]
    index.check_and_insert(pages, {})
    asked = {page.position: page.observation for page in pages}
    assert index.journalled({**asked, Position(PAGES, 1): pages[0].observation}) == [Position(PAGES, n) for n in (0, 2)]
    assert index.journalled({}) == []


def test_partitions_have_journals_of_their_own(make):
    index = make(relation(design("4")))
    index.check_and_insert([entry(0, 1, partition=PAGES)], {})
    assert index.journalled({Position(OTHER, 0): None}) == []


def test_a_page_at_a_reused_offset_is_not_mistaken_for_its_predecessor(make):
    """A topic made again has the same offsets; the observation tells its pages from the old ones."""
    index = make(relation(design("4")))
    old = entry(0, 1)
    index.check_and_insert([old], {})
    other = replace(entry(0, (1 << 64) - 1), observation=b"another delivery")
    (answer,) = index.check_and_insert([other], {})
    assert answer.decision == Unique(2)


def test_a_replay_after_retention_took_the_elder_keeps_its_verdict(make, clock):
    index = make(relation(design("10")), Retention(max_age_ms=1000))
    elder, page = entry(0, 9), entry(1, 8)
    index.check_and_insert([elder], {})
    (first,) = index.check_and_insert([page], {})
    assert isinstance(first.decision, Duplicate)
    clock.now += 2000
    index.check_and_insert([entry(2, 1 << 63)], {})
    assert index.check_and_insert([page], {}) == [first]


def test_of_two_deliveries_in_one_batch_the_second_has_the_firsts_verdict(make):
    """Also when what the first one matched was forgotten between them."""
    index = make(relation(design("10")), Retention(max_documents=1))
    index.check_and_insert([entry(0, 9)], {})
    page, other = entry(1, 8), entry(2, 0xFFF << 12)
    first, newer, second = index.check_and_insert([page, other, page], {})
    assert summary(first.decision) == ("duplicate", 1)
    assert newer.decision == Unique(2)
    assert second == first
    assert index.check_and_insert([page], {}) == [first]


def test_an_expired_page_is_found_by_nothing(make, clock):
    index = make(relation(design("10")), Retention(max_age_ms=1000))
    index.check_and_insert([entry(0, 9), entry(1, None, digest="text:" + "0" * 32)], {})
    clock.now += 1001
    answers = index.check_and_insert([entry(2, 9), entry(3, None, digest="text:" + "0" * 32)], {})
    assert [summary(a.decision) for a in answers] == [("unique", 3), ("unique", 4)]
    assert index.documents() == 2


def test_at_its_age_a_page_is_still_found(make, clock):
    index = make(relation(design("10")), Retention(max_age_ms=1000))
    index.check_and_insert([entry(0, 9)], {})
    clock.now += 1000
    (answer,) = index.check_and_insert([entry(1, 9)], {})
    assert isinstance(answer.decision, Duplicate)


def test_only_the_newest_documents_are_kept(make):
    index = make(relation(design("10")), Retention(max_documents=3))
    index.check_and_insert([entry(n, 0xFFF << 12 * n) for n in range(5)], {})
    assert index.documents() == 3
    assert sorted(record.seq for _, record in index.scan()) == [3, 4, 5]


def members(client, name):
    """How many entries all tables and bands hold."""
    layout = existing_index(client, name).inside.layout
    tables = layout.spec.relation.design.tables
    rests = [layout.shape(table).rest_bytes for table in tables]
    total = 0
    for key in client.scan_iter(f"{{{name}}}:[tb][0-9]*", count=10_000):
        kind = key_name(layout, key.decode())
        rest = rests[kind.number] if kind.kind == "t" else 0
        total += sum(len(numbers_in(place, rest)) for place in client.hvals(key))
    return total


def expected_members(model):
    """One a table for each record, one for each of its band keys."""
    rule = model.spec.relation
    stored = [record for fingerprint, record in model.scan() if fingerprint is not None]
    return len(stored) * len(rule.design.tables) + sum(bool(k) for r in stored for k in rule.band_keys(r.verifier))


@settings(max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(seed=st.integers(0, 10**6))
def test_backends_agree_under_retention_replays_and_moving_marks(client, monkeypatch, seed):
    """The Redis index against the memory one, which is small enough to be read, and removes all that is over at
    once."""
    monkeypatch.setattr("simhash.index.redis.index.EXPIRE_PER_PAGE", 100)
    random, clock = Random(seed), Clock()
    bands = random.choice([0, 2])
    rule = relation(design(random.choice([*NAMES])), random.choice([3, 6, 12]), bands=bands)
    kept = Retention(random.choice([None, 500]), random.choice([None, 40]))
    ours = open_index(client, f"agree-{seed}", {}, rule, random.choice([50, 10**6]), kept, clock)
    model = MemoryIndex(ours.spec, kept, clock)
    pages = banded(crowd(240, random), bands, random)
    committed = 0
    for at in range(0, len(pages), 30):
        clock.now += random.choice([0, 50, 200])
        again = random.randrange(committed, at + 1)
        batch = pages[again : at + 30]
        batch += random.sample(batch, random.choice([0, 3]))
        marks = {PAGES: committed}
        assert [a.decision for a in ours.check_and_insert(batch, marks)] == [
            a.decision for a in model.check_and_insert(batch, marks)
        ]
        assert ours.documents() == model.documents()
        committed = random.choice([committed, again])
    assert sorted(map(repr, ours.scan())) == sorted(map(repr, model.scan()))
    assert members(client, f"agree-{seed}") == expected_members(model)
    client.delete(*client.scan_iter(f"{{agree-{seed}}}:*", count=10_000))


def test_neighbours_are_all_within_reach_nearest_first(make):
    index = make(relation(design("4"), reach=3))
    pages = [entry(0, 0, 0), entry(1, 0b1111, 1 << 40), entry(2, 0b1, (1 << 64) - 1), entry(3, (1 << 64) - 1)]
    index.check_and_insert(pages, {})
    assert [(n.distance, n.record.seq) for n in index.neighbours(0)] == [(0, 1), (1, 3)]


def test_an_index_is_found_again_as_it_was(client, name):
    rule = relation(design("16"), reach=5)
    made = open_index(client, name, {"name": "p"}, rule, 5000)
    made.check_and_insert(crowd(50, Random(0)), {})
    again = existing_index(client, name)
    assert again.spec == made.spec
    assert again.documents() == made.documents()


def test_flips_reach_their_distance():
    assert (flipped(0, 64, 5, Random(0))).bit_count() == 5
