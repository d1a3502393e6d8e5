"""Versions of URLs in an index: exchanged with the judgement, journalled with it, forgotten, moved and checked."""

import json
from dataclasses import replace
from random import Random

import pytest

from simhash.errors import StaleObservation
from simhash.index import IndexSpec, Partition, Retention
from simhash.index.interface import DAY_MS
from simhash.index.memory import MemoryIndex
from simhash.index.redis.opening import existing_index, open_index
from simhash.index.redis.operators.kept_versions import version_bits
from simhash.index.redis.operators.operations import Operations
from simhash.index.redis.operators.transfer import exported, loaded, opened_for_import
from simhash.index.versions import url_hash
from simhash.relation.tables import design
from tests.backends import FOR_EVER
from tests.pages import crowd, entry, relation
from tests.redis.test_index import Clock, make
from worker.settings import PREFIX

__all__ = ["make"]
RULE = relation(design("4"))
YEAR_2026 = 1_767_225_600_000


@pytest.fixture
def clock():
    made = Clock()
    made.now = YEAR_2026
    return made


def page(number, url=None):
    """An entry, strange to all others, with a version of 15 bytes that begins with its delivery."""
    own = entry(number, Random(number).getrandbits(64))
    return versioned(own, number, url or own.url)


def versioned(own, number, url):
    observation = number.to_bytes(4) + bytes(12)
    return replace(own, url=url, observation=observation, version=observation[:4] + b"." * 11)


def previous(index, *pages, committed=None):
    return [answer.previous for answer in index.check_and_insert(pages, committed or {})]


def test_a_page_gets_the_last_version_of_its_url_whatever_its_verdict(make):
    index = make(RULE)
    first, other, again = page(1, "u"), page(2, "v"), page(3, "u")
    copy = replace(again, fingerprint=first.fingerprint, verifier=first.verifier, digest=first.digest)
    assert previous(index, first, other, copy) == [None, None, first.version]
    assert previous(index, page(4, "u"), page(5, "u"), page(6, "v")) == [copy.version, page(4).version, other.version]


def test_what_asks_for_nothing_gets_and_leaves_nothing(make):
    index = make(RULE)
    assert previous(index, replace(page(1, "u"), version=None)) == [None]
    assert previous(index, page(2, "u")) == [None]
    assert previous(index, replace(page(3, "u"), version=None)) == [None]
    assert previous(index, page(4, "u")) == [page(2).version]


def test_a_page_that_is_read_again_gets_its_first_answer_from_the_journal(make):
    index = make(RULE)
    partition = Partition("pages", 0)
    pages = [page(n, "u") for n in range(1, 6)]
    first = index.check_and_insert(pages[:3], {partition: 0})
    index.check_and_insert(pages[3:], {partition: 0})
    assert index.check_and_insert(pages[:3], {partition: 0}) == first
    assert [answer.previous for answer in first] == [None, pages[0].version, pages[1].version]
    assert previous(index, page(9, "u"), committed={partition: 0}) == [pages[4].version]


def test_without_a_journal_a_page_that_is_read_again_is_no_new_version(make):
    index = make(RULE)
    own = replace(page(1, "u"), position=None)
    assert previous(index, own) == [None]
    assert previous(index, own) == [None]


def test_short_pages_have_versions_too(make):
    index = make(RULE)
    short = replace(page(1, "u"), fingerprint=None, verifier=None)
    assert previous(index, short, replace(page(2, "u"), fingerprint=None, verifier=None)) == [None, short.version]


def test_a_large_batch_is_answered_page_by_page(make):
    index = make(RULE)
    pages = [versioned(each, n, f"u{n % 90}") for n, each in enumerate(crowd(300, Random(1)))]
    last, wanted = {}, []
    for each in pages:
        wanted.append(last.get(each.url))
        last[each.url] = each.version
    assert previous(index, *pages) == wanted


def test_versions_are_forgotten_with_their_age(make, clock):
    index = make(RULE, Retention(max_age_ms=10 * DAY_MS))
    assert previous(index, page(1, "u")) == [None]
    clock.now += 9 * DAY_MS
    assert previous(index, page(2, "v"), page(3, "u")) == [None, page(1).version]
    clock.now += 11 * DAY_MS
    assert previous(index, page(4, "u"), page(5, "v")) == [None, None]


def test_buckets_do_not_grow_with_what_is_past_its_age(client, name, clock):
    index = opened(client, name, clock, Retention(max_age_ms=2 * DAY_MS))
    sizes = []
    for day in range(12):
        clock.now = YEAR_2026 + day * DAY_MS
        for at in range(0, 300, 50):
            index.check_and_insert([page(day * 1000 + at + n) for n in range(50)], {})
        sizes.append(sum(client.hlen(key) for key in client.scan_iter(f"{{{name}}}:v:*", count=10_000)))
    assert max(sizes[4:]) < 2 * 300 * 3
    assert Operations(existing_index(client, name)).check(lambda _: None).violations == []


def test_of_a_bucket_that_is_far_too_large_a_page_looks_at_some(client, name, clock):
    index = opened(client, name, clock, Retention(max_age_ms=2 * DAY_MS))
    bits = version_bits(index.inside)
    places = (index.inside.layout.version(url_hash(page(n).url), bits) for n in range(1000))
    number, key = next((n, key) for n, (key, field) in enumerate(places) if field[3] % 8 == 0)
    client.hset(key, mapping={n.to_bytes(4): bytes(2) + page(n).version for n in range(20_000)})
    index.check_and_insert([page(number)], {})
    assert 20_001 - client.hlen(key) in (499, 500)  # its own may be among those that are looked at


def opened(client, name, clock, retention=FOR_EVER):
    return open_index(client, name, {}, RULE, 1000, retention, clock)


def lying(client, name):
    """All versions, as they lie in Redis."""
    return {key: client.hgetall(key) for key in client.scan_iter(f"{{{name}}}:v:*", count=10_000)}


def kept(client, name):
    """The same by their fields."""
    return {field: value for bucket in lying(client, name).values() for field, value in bucket.items()}


def test_they_agree_with_the_model_in_any_order_of_calls(client, name, clock):
    random = Random(3)
    index = opened(client, name, clock, Retention(max_age_ms=3 * DAY_MS))
    model = MemoryIndex(IndexSpec({}, RULE, 4, 1000), Retention(max_age_ms=3 * DAY_MS), clock)
    for number in range(60):
        clock.now += random.randrange(DAY_MS)
        pages = [page(random.randrange(200) + 1, f"u{random.randrange(20)}") for _ in range(random.randrange(1, 9))]
        pages = [replace(each, position=None) for each in pages]
        assert previous(index, *pages) == previous(model, *pages), number


def test_an_export_takes_them_along_into_other_tables(client, name, clock):
    index = opened(client, name, clock)
    index.check_and_insert([page(n) for n in range(1, 40)], {})
    rows = list(exported(Operations(existing_index(client, name))))
    assert rows[-1].versions == 39
    other = f"{name}-2"
    store = opened_for_import(client, other, rows[0])
    loaded(store, rows[0], rows[1:], lambda _: None)
    store.release(rows[0].generation)
    assert kept(client, other) == kept(client, name)
    found = existing_index(client, other)
    assert previous(found, page(100, page(7).url)) == [page(7).version]


def test_a_migration_leaves_them_where_they_are(backend, name, clock):
    index = backend.open(name, RULE, clock=clock)
    index.check_and_insert([page(n) for n in range(1, 40)], {})
    before = lying(backend.client, name)
    backend.migrate(name, lambda spec: replace(spec, bucket_bits=spec.bucket_bits + 3))
    assert before == lying(backend.client, name)
    assert previous(backend.existing(name), page(100, page(7).url)) == [page(7).version]


def test_statistics_count_them_and_a_check_finds_what_is_none(client, name, clock):
    index = opened(client, name, clock)
    index.check_and_insert([page(n) for n in range(1, 40)], {})
    operations = Operations(existing_index(client, name))
    (kind,) = [kind for kind in operations.statistics(None, Random(1)).kinds if kind.kind == "versions"]
    assert kind.entries == 39
    assert (operations.check(lambda _: None).versions, operations.check(lambda _: None).violations) == (39, [])
    key = next(iter(lying(client, name)))
    client.hset(key, b"abc", b"too short")
    client.hset(f"{{{name}}}:v:fff", b"abcd", b"." * 17)
    kinds = [violation.invariant for violation in operations.check(lambda _: None).violations]
    assert kinds == ["version", "version"]


def test_a_call_that_is_refused_leaves_no_version(client, name, clock):
    index = opened(client, name, clock)
    index.check_and_insert([page(5, "w")], {Partition("pages", 0): 5})
    with pytest.raises(StaleObservation):
        index.check_and_insert([page(6, "u"), page(1, "v")], {})
    assert previous(index, page(7, "u"), page(8, "v")) == [None, None]


@pytest.fixture
def files(say, monkeypatch, redis_server, name, tmp_path):
    """Runs `file --server --previous` over pages, and other commands on its index."""
    for setting, value in {"redis_url": redis_server.url, "index_name": name, "documents": "1000"}.items():
        monkeypatch.setenv(PREFIX + setting.upper(), value)

    def judged(*pages, out="verdicts.jsonl"):
        (tmp_path / f"{out}.pages").write_text("".join(json.dumps(each) + "\n" for each in pages))
        found, _, said = say(
            "file", tmp_path / f"{out}.pages", "--out", tmp_path / out, "--server", "--previous", "true", "--quiet"
        )
        assert found == 0, said
        return [json.loads(line) for line in (tmp_path / out).read_text().splitlines()]

    return judged


WORDS = [f"word{n}" for n in range(200)]


def told(url, words, day=1):
    return {"url": url, "text": " ".join(words), "fetched_at": f"2026-01-0{day}T00:00:00Z"}


def test_a_verdict_says_how_much_a_page_changed(files):
    old, same, changed, other = files(
        told("http://a/", WORDS),
        told("http://a/", WORDS, 2),
        told("http://a/", [*WORDS[:-20], *"abc"], 3),
        told("http://b/", WORDS, 4),
    )
    assert (old["previous"], other["previous"]) == (None, None)
    assert same["previous"] == {"fetched_at": "2026-01-01T00:00:00Z", "distance": 0, "similarity": 1.0}
    assert changed["previous"]["fetched_at"] == "2026-01-02T00:00:00Z"
    assert changed["previous"]["distance"] == changed["match"]["distance"]
    assert changed["previous"]["similarity"] == pytest.approx(changed["match"]["similarity"], abs=0.2)


def test_a_rebuild_keeps_the_same_versions(files, say, client, name, tmp_path):
    files(*(told(f"http://{n % 7}/", WORDS[n:], 1 + n % 9) for n in range(40)))
    rebuild = ("rebuild", "--from", tmp_path / "verdicts.jsonl", "--index-name")
    code, said, _ = say(*rebuild, f"{name}-2", "--previous", "true")
    assert code == 0, said
    without_days = [{field: value[2:] for field, value in kept(client, each).items()} for each in (name, f"{name}-2")]
    assert len(without_days[0]) == 7
    assert without_days[0] == without_days[1]
    assert say(*rebuild, f"{name}-3")[0] == 0
    assert lying(client, f"{name}-3") == {}


def test_a_takedown_forgets_a_urls_version_also_that_of_a_duplicate(files, say, client, name, tmp_path):
    files(told("http://a/", WORDS), told("http://b/", WORDS), told("http://c/", WORDS[:100]))
    taken = tmp_path / "takedowns.jsonl"
    assert say("index", "delete", "http://a/", "http://b/", "--takedowns", taken)[0] == 1, "of b there is no record"
    assert len(kept(client, name)) == 1
    code, _, said = say(
        *("rebuild", "--from", tmp_path / "verdicts.jsonl", "--takedowns", taken, "--index-name", f"{name}-2"),
        *("--previous", "true"),
    )
    assert code == 0, said
    assert len(kept(client, f"{name}-2")) == 2, "a is gone; b's takedown was not published, for there is no record"
