"""Retention in Redis: what is over is found by nothing and leaves nothing behind, and no call pays for all of it."""

from itertools import count
from random import Random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from simhash.index import IndexSpec, Retention
from simhash.index.redis.index import EXPIRE_PER_PAGE
from simhash.index.redis.layout import bucket_bits
from simhash.index.redis.opening import open_index
from simhash.index.redis.operators.check import check
from simhash.index.redis.operators.takedowns import Found, take_down
from simhash.index.redis.operators.transfer import index_row, loaded, opened_for_import
from simhash.index.rows import EndRow
from simhash.relation.tables import design
from tests.pages import PAGES, banded, crowd, entry, relation, summary

BANDS = 2
TRIES = count()
"""So that each example has an index of its own."""
RULE = relation(design("10"), 12, bands=BANDS)


class Clock:
    """Milliseconds that pass when told to."""

    def __init__(self):
        self.now = 1_000_000

    def __call__(self):
        return self.now


class Model:
    """Who matches whom, and what is forgotten: all of it in one list, oldest first."""

    def __init__(self, rule, retention):
        self.rule, self.retention = rule, retention
        self.live, self.seq = [], 0

    def judge(self, page, now):
        age, most = self.retention.max_age_ms, self.retention.max_documents
        if age is not None:
            self.live = [each for each in self.live if each[2] >= now - age]
        for match, seq, _ in self.live:
            if self.rule.matches(page, match):
                return ("duplicate", seq)
        self.seq += 1
        self.live.append((page, self.seq, now))
        if most is not None:
            self.live = self.live[-most:]
        return ("unique", self.seq)

    def take_down(self, seqs):
        self.live = [each for each in self.live if each[1] not in seqs]


def fresh(pages, first):
    """The same pages as if fetched again: other observations, so that none is recognised as its own record."""
    return [entry(first + n, page.fingerprint, page.verifier, digest=page.digest) for n, page in enumerate(pages)]


@pytest.mark.parametrize("given", [2**22, 2**30, 2**32, 2**38])
def test_numbers_of_any_size_lead_to_their_records(client, name, given):
    """As in an index whose first thousands of millions of pages are gone: in a place a number takes 3 to 6 bytes."""
    kept, last, random = Retention(max_documents=40), given - 30, Random(given)
    head = index_row(IndexSpec({}, RULE, bucket_bits(400, RULE.design), 400), "1-ffffffffffff", last, 0)
    store = opened_for_import(client, name, head)
    loaded(store, head, [EndRow(0, 0, 0)], lambda seq: None)
    store.release(head.generation)
    index, model = open_index(client, name, {}, RULE, 400, kept), Model(RULE, kept)
    model.seq = last
    pages = banded(crowd(160, random), BANDS, random)
    for at in range(0, len(pages), 20):
        batch = pages[at : at + 20]
        answers = index.check_and_insert(batch, {PAGES: at})
        assert [summary(a.decision) for a in answers] == [model.judge(page, 0) for page in batch]
        stored = [Found(f, r) for f, r in index.scan() if random.random() < 0.1]
        assert all(take_down(index.inside, stored))
        model.take_down({found.record.seq for found in stored})
    assert model.seq > given + 9
    assert check(index.inside, lambda _: None).violations == []


@settings(max_examples=8, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    seed=st.integers(0, 10**6),
    age=st.sampled_from([None, 300]),
    most=st.sampled_from([None, 25]),
    forgets=st.booleans(),
)
def test_what_is_over_is_found_by_nothing_and_leaves_nothing_behind(backend, seed, age, most, forgets):
    """Both kinds of retention, and pages taken down in between, against a list; the whole index is checked.

    Batches are long beside what is kept: pages are forgotten in the middle of them.
    """
    name, random, clock, kept = f"kept-{next(TRIES)}", Random(seed), Clock(), Retention(age, most)
    index, model = backend.open(name, RULE, 400, kept, None, clock), Model(RULE, kept)
    operations = backend.operations(index)
    pages = banded(crowd(120, random), BANDS, random)
    for at in range(0, len(pages), 20):
        clock.now += random.choice([0, 40, 150, 400])
        batch = pages[at : at + 20]
        answers = index.check_and_insert(batch, {PAGES: at})
        assert [summary(a.decision) for a in answers] == [model.judge(page, clock.now) for page in batch]
        if forgets:
            stored = [Found(f, r) for f, r in index.scan() if random.random() < 0.1]
            assert all(take_down(index.inside, stored))
            model.take_down({found.record.seq for found in stored})
    assert operations.check(lambda _: None).violations == []
    clock.now += 10_000
    for at in range(4):  # whatever was over when these came, they are enough to remove all of it
        batch = [entry(1000 + 100 * at + n, None, digest=f"text:{at * 100 + n:032x}") for n in range(30)]
        index.check_and_insert(batch, {})
        for page in batch:
            model.judge(page, clock.now)
    assert {record.seq for _, record in index.scan()} == {seq for _, seq, _ in model.live}
    assert index.documents() == len(model.live)
    assert operations.check(lambda _: None).violations == []


def test_the_count_is_exact_where_pages_were_taken_down(backend, name):
    """In the middle of a batch too: the numbers between are no measure of how many pages there are."""
    random, kept = Random(8), Retention(max_documents=20)
    pages = [entry(n, random.getrandbits(64), random.getrandbits(128)) for n in range(60)]
    index, model = backend.open(name, RULE, 400, kept), Model(RULE, kept)
    for page in pages[:20]:
        model.judge(page, 0)
    index.check_and_insert(pages[:20], {})
    stored = [Found(f, r) for f, r in index.scan() if r.seq in (2, 4, 6, 8, 9, 10)]
    assert sum(take_down(index.inside, stored)) == 6
    model.take_down({2, 4, 6, 8, 9, 10})
    for first, step in ((20, 1), (40, 5)):
        batch = [*pages[first : first + 12], *fresh(pages[:first:step][::-1], 1000 * step)]
        answers = [summary(answer.decision) for answer in index.check_and_insert(batch, {})]
        assert answers == [model.judge(page, 0) for page in batch]
    assert {kind for kind, _ in answers} == {"unique", "duplicate"}
    assert {record.seq for _, record in index.scan()} == {seq for _, seq, _ in model.live}


@settings(max_examples=8, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(seed=st.integers(0, 10**6))
def test_a_count_that_is_lowered_again_and_again_is_exact_at_once(backend, seed):
    """Though what it leaves out is still there, with pages that were taken down, or whose text came again, between."""
    name, random, clock = f"lowered-{next(TRIES)}", Random(seed), Clock()
    model = Model(RULE, Retention())
    pages = banded(crowd(300, random, short_share=0.4), BANDS, random)
    for at, most in zip(range(0, len(pages), 30), (None, None, None, 60, 45, 30, 20, 12, 5, 3), strict=True):
        clock.now += random.choice([0, 200, 400])
        kept = Retention(500, most)
        index, model.retention = backend.open(name, RULE, 400, kept, None, clock), kept
        if most is not None:
            model.live = [each for each in model.live if each[2] >= clock.now - 500][-most:]
        batch = pages[at : at + 30]
        answers = index.check_and_insert(batch, {PAGES: at})
        assert [summary(a.decision) for a in answers] == [model.judge(page, clock.now) for page in batch]
        stored = [Found(f, r) for f, r in index.scan() if random.random() < 0.2]
        take_down(index.inside, stored)
        model.take_down({found.record.seq for found in stored})
        assert backend.operations(index).check(lambda _: None).violations == []


def removals(client, name):
    """How many records retention has removed so far: numbers given, less those that are there or went otherwise."""
    seq, documents, otherwise = client.hmget(f"{{{name}}}:meta", "seq", "documents", "removed")
    return int(seq) - int(documents) - int(otherwise or 0)


@pytest.fixture(scope="module")
def many():
    """2,000 pages with random fingerprints, practically all unique, and 10,000 short ones, which are quickly stored."""
    random = Random(9)
    long = [entry(n, random.getrandbits(64), random.getrandbits(64)) for n in range(2000)]
    return [*long, *(entry(n, None, digest=f"raw:{n:032x}") for n in range(2000, 12_000))]


def bounded(client, index, name, batch):
    """Judge a batch; no call removes more than its share, also where one batch is several calls."""
    before = removals(client, name)
    answers = index.check_and_insert(batch, {})
    assert removals(client, name) - before <= EXPIRE_PER_PAGE * len(batch)
    return [summary(answer.decision)[0] for answer in answers]


def test_after_a_long_pause_no_call_removes_more_than_its_share(client, name, many):
    clock, rule = Clock(), relation(design("4"))
    index = open_index(client, name, {}, rule, len(many), Retention(max_age_ms=1000), clock)
    for at in range(0, len(many), 500):
        index.check_and_insert(many[at : at + 500], {PAGES: at})
    assert index.documents() == len(many)
    clock.now += 10**6
    copies = fresh(many[:600] + many[-600:], 10**6)
    for at in range(0, len(copies), 100):
        assert set(bounded(client, index, name, copies[at : at + 100])) == {"unique"}
    again = fresh(copies[:100], 2 * 10**6)
    assert set(bounded(client, index, name, again)) == {"duplicate"}
    assert removals(client, name) == EXPIRE_PER_PAGE * (len(copies) + len(again))


def test_a_lowered_count_holds_at_once_and_is_carried_out_little_by_little(client, name, many):
    """Beyond the count nothing is found from the first page on, though most of it is still there."""
    some, rule = many[:4000], relation(design("4"))
    index = open_index(client, name, {}, rule, 4000)
    index.check_and_insert(some, {})
    index = open_index(client, name, {}, rule, 4000, Retention(max_documents=10))
    answers = bounded(client, index, name, fresh([*some[-10:], some[-11], *some[:9]], 10**6))
    assert answers == ["duplicate"] * 10 + ["unique"] * 10
    assert index.documents() > 3900
    short = [entry(2 * 10**6 + n, None, digest=f"text:{n:032x}") for n in range(4000)]
    for at in range(0, len(short), 100):
        bounded(client, index, name, short[at : at + 100])
    assert index.documents() == 10
    assert check(index.inside, lambda _: None).violations == []


def test_a_long_run_of_pages_taken_down_does_not_hold_retention_up(client, name, many):
    """Gaps are passed over many at a time, so the count is kept within a few pages of what it should be."""
    rule = relation(design("4"))
    index = open_index(client, name, {}, rule, 4000, Retention(max_documents=3000))
    index.check_and_insert(many[:3000], {})
    middle = [Found(f, r) for f, r in index.scan() if 2 < r.seq <= 2000]
    assert all(take_down(index.inside, middle))
    assert index.documents() == 1002
    index.check_and_insert(many[3000:5000], {})
    assert 3000 <= index.documents() <= 3002
    index.check_and_insert(many[5000:5200], {})
    assert index.documents() == 3000
