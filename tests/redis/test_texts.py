"""An index on Redis in the hands of a program: opened by its URL, asked with texts, the same answers as in memory."""

import pytest
import redis

from simhash import Duplicate, MemoryIndex, RedisIndex, Retention, Unique, profile
from simhash.errors import IndexLost, IndexMismatch, IndexUnreachable
from tests.servers import running_redis
from tests.texts import PAGES, added_by_threads, story


def test_an_index_on_redis_answers_texts_as_the_one_in_memory(redis_server, name):
    expected = MemoryIndex().add_many(PAGES)
    assert any(isinstance(answer, Duplicate) for answer in expected)
    assert told(RedisIndex.open(redis_server.url, name).add_many(PAGES)) == told(expected)


def told(answers):
    """What does not depend on when a page was stored."""
    return [a if isinstance(a, Unique) else (a.distance, a.match.url, a.match.seq) for a in answers]


def test_threads_may_share_an_index(redis_server, name):
    texts = [story(seed, 40) for seed in range(150)]
    answers = added_by_threads(index := RedisIndex.open(redis_server.url, name), texts)
    assert all(sum(isinstance(answer, Unique) for answer in each) == 1 for each in answers)
    found = [a.match for each in answers for a in each if isinstance(a, Duplicate)]
    stored = {record.seq: record for _, record in index.scan()}
    assert all(stored[match.seq].url == match.url for match in found)
    assert len(stored) == index.documents() == len(texts)


def test_an_index_is_found_again_under_its_name_and_repeats_its_answers(redis_server, name):
    first = RedisIndex.open(redis_server.url, name).add_many(PAGES)
    again = RedisIndex.open(redis_server.url, name)
    assert again.add_many(PAGES) == first
    assert again.documents() == len({answer.seq for answer in first if isinstance(answer, Unique)})


def test_an_index_of_another_profile_is_refused_and_named(redis_server, name):
    RedisIndex.open(redis_server.url, name, profile("segmented")).add(*PAGES[0])
    with pytest.raises(IndexMismatch, match="segmented"):
        RedisIndex.open(redis_server.url, name)


def test_an_index_goes_on_after_a_restart_of_its_server_which_must_have_all_that_was_told(tmp_path, name):
    with running_redis(tmp_path) as server, redis.Redis.from_url(server.url) as client:
        index = RedisIndex.open(server.url, name)
        first = index.add_many(PAGES)
        server.stop()
        with pytest.raises(IndexUnreachable) as refused:
            index.add(*PAGES[0])
        assert refused.value.retriable
        server.start()
        assert index.add_many(PAGES) == first
        copy = {key: client.dump(key) for key in client.scan_iter()}
        assert isinstance(index.add("later", story(99)), Unique)
        client.flushall()
        for key, value in copy.items():
            client.restore(key, 0, value)
        server.stop()
        server.start()
        with pytest.raises(IndexLost):
            index.add(*PAGES[0])


def test_an_index_takes_one_connection_where_no_more_are_allowed(redis_server, name):
    index = RedisIndex.open(f"{redis_server.url}?max_connections=1", name)
    assert index.add(*PAGES[0]) == Unique(1)
    assert index.documents() == len(list(index.scan())) == 1


def test_an_index_on_redis_forgets_what_it_is_told_to(redis_server, name):
    index = RedisIndex.open(redis_server.url, name, retention=Retention(max_documents=1))
    assert [index.add(url, text) for url, text in [PAGES[0], PAGES[3], ("again", PAGES[0][1])]] == [
        Unique(1),
        Unique(2),
        Unique(3),
    ]


def test_a_server_that_is_not_there_and_a_url_that_is_none_are_said():
    with pytest.raises(IndexUnreachable, match="Redis does not answer"):
        RedisIndex.open("redis://127.0.0.1:1")
    with pytest.raises(ValueError, match="scheme"):
        RedisIndex.open("127.0.0.1:6379")


@pytest.mark.parametrize(
    ("option", "given", "message"),
    [
        ("decode_responses=true", {}, "leave decode_responses out"),
        ("colour=red", {}, "does not know: .*'colour'"),
        ("", {"name": "a b"}, "letters, digits, '.', '_' and '-', not 'a b'"),
        ("", {"name": ""}, "not ''"),
        ("", {"name": None}, "not None"),
        ("", {"documents": 1.5}, "documents is a whole number from 1 .* not 1.5"),
        ("", {"documents": 0}, "not 0"),
        ("", {"documents": 10**30}, "not 1000"),
    ],
)
def test_what_no_index_can_be_made_with_is_said_and_nothing_is_written(redis_server, client, option, given, message):
    keys = client.dbsize()
    with pytest.raises(ValueError, match=message):
        RedisIndex.open(f"{redis_server.url}?{option}", **{"name": "an-index", **given})
    assert client.dbsize() == keys
