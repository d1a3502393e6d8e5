"""What Redis has lost is noticed, and what it has not lost is not made a fuss of: restarts, old copies, flushes."""

import shutil
from dataclasses import replace
from random import Random

import pytest
import redis

from simhash.errors import IndexLost, IndexServerChanged, IndexUnreachable, IndexUnreplicated
from simhash.index import Unique
from simhash.index.redis import epochs
from simhash.index.redis.epochs import Durability, Watermark, watermark_in
from simhash.index.redis.index import Calls, Line
from simhash.index.redis.opening import open_index
from simhash.index.redis.operators.filling import Store
from simhash.index.redis.operators.operations import Operations
from simhash.relation.tables import design
from tests.pages import crowd, entry, relation
from tests.servers import KEEPS_ALL, running_redis, running_replica
from tests.stream import until
from worker.index.stores import connect
from worker.settings import load

RULE = relation(design("4"))


@pytest.fixture
def server(tmp_path):
    with running_redis(tmp_path / "redis", KEEPS_ALL) as started:
        yield started


def opened(server, name="i", **durability):
    client = redis.Redis.from_url(server.url)
    return open_index(client, name, {}, RULE, 1000, durability=Durability(**durability))


@pytest.mark.parametrize("single", [False, True])
def test_the_answer_of_a_call_that_was_broken_off_is_not_read_as_anothers(redis_server, single, monkeypatch):
    """Neither on a client's one connection nor on one of its pool, which looks for what is left once it came."""
    client = redis.Redis.from_url(redis_server.url, single_connection_client=single)
    monkeypatch.setattr(redis.connection.AbstractConnection, "can_read", lambda *_, **__: False)
    calls = Calls(client, "key", "return ARGV[1]")
    with calls.line() as line:
        line.send(["first"])
        assert line.receive() == b"first"

    def break_off(why):
        with calls.line() as line:
            line.send(["left"])
            raise why

    for why in (KeyboardInterrupt, IndexUnreachable):
        with pytest.raises(why):
            break_off(why)
        with calls.line() as line:
            line.send(["next"])
            assert line.receive() == b"next"


def judged(index, first, count=20):
    """Decisions on pages of which some are new."""
    return [a.decision for a in index.check_and_insert(crowd(count, Random(first), first=first), {})]


def copied(server, to):
    """A copy of what the server has on disk, as a backup would be."""
    shutil.copytree(server.directory / "redis-data", to)


def restored(server, copy):
    server.kill()
    shutil.rmtree(server.directory / "redis-data")
    shutil.copytree(copy, server.directory / "redis-data")
    server.start()


def test_a_watermark_comes_back_from_a_commit():
    watermark = Watermark("01a1fff760da.60b0bd4d", 17)
    assert watermark_in(str(watermark)) == watermark
    assert watermark_in("") is None
    assert watermark_in("what another tool wrote 17") is None


def test_a_watermark_names_the_largest_number_told(server):
    index = opened(server)
    assert index.watermark() == ""
    decisions = judged(index, 0)
    largest = max(d.seq for d in decisions if isinstance(d, Unique))
    assert watermark_in(index.watermark()).seq == largest
    judged(index, 0)
    assert watermark_in(index.watermark()).seq == largest


def test_what_was_judged_in_a_call_that_failed_was_not_told(server, monkeypatch):
    """Nobody has these numbers: an index that lost them has lost nothing."""
    index = opened(server)
    judged(index, 0)
    before, receive, received = index.watermark(), Line.receive, []

    def failing(line):
        received.append(receive(line))
        if len(received) == 2:
            raise redis.ConnectionError("gone")
        return received[-1]

    monkeypatch.setattr(Line, "receive", failing)
    with pytest.raises(IndexUnreachable):
        index.check_and_insert(crowd(600, Random(8), first=1000), {})
    assert index.documents() > watermark_in(before).seq
    assert index.watermark() == before


def test_a_number_is_told_by_those_that_match_it_too(server):
    """Else the page that a copy is a copy of could be lost, and the worker that said so would go on."""
    first, second = opened(server), opened(server)
    judged(first, 0)
    page = entry(500, 0xFF << 40)
    (stored,) = first.check_and_insert([page], {})
    (copy,) = second.check_and_insert([replace(page, observation=(501).to_bytes(16))], {})
    assert copy.decision.match.seq == stored.decision.seq > 1
    assert watermark_in(second.watermark()).seq == stored.decision.seq


def test_a_restart_that_lost_nothing_is_looked_at_and_goes_on(server, monkeypatch):
    index = opened(server)
    before = judged(index, 0)
    watermark = index.watermark()
    server.restart()
    with pytest.raises(IndexServerChanged):
        judged(index, 100)
    assert index.documents() == len([d for d in before if isinstance(d, Unique)])
    told: list[str] = []
    monkeypatch.setattr("simhash.index.redis.epochs.log.warning", lambda text, *of: told.append(text % of))
    index.present([watermark])
    assert "replication id" in told[0]
    assert "simhash-dedup rebuild" in told[0]
    assert judged(index, 0) == before
    opened(server).present([watermark, index.watermark()])


def test_a_change_of_the_server_is_told_by_all_that_used_it_before_and_by_the_first_that_comes(server, monkeypatch):
    first, second = opened(server), opened(server)
    for index in (first, second):
        judged(index, 0)
        index.present([index.watermark()])
    before = watermark_in(first.watermark()).epoch[13:]
    server.restart()
    now = redis.Redis.from_url(server.url).info("replication")["master_replid"]
    told: list[str] = []
    monkeypatch.setattr(epochs.log, "warning", lambda text, *of: told.append(text % of))
    for index in (first, second):
        index.present([index.watermark()])
        assert f"(replication id {before}, now {now})" in told.pop()
    opened(server).present([first.watermark()])
    assert told == []
    server.restart()
    opened(server).present([first.watermark()])
    assert len(told) == 1


@pytest.mark.parametrize("presented", [True, False])
def test_only_who_held_something_against_the_index_says_that_it_lacks_nothing(server, monkeypatch, presented):
    """Who has no partition yet cannot know: pages may be missing that the next watermark tells of."""
    first = opened(server)
    judged(first, 0)
    server.restart()
    told: list[str] = []
    monkeypatch.setattr(epochs.log, "warning", lambda text, *of: told.append(text % of))
    opened(server).present([first.watermark()] if presented else [])
    assert ("lacks nothing of it" in told[0]) == presented
    assert ("before its pages are judged" in told[0]) != presented


def test_an_older_copy_is_noticed(server, tmp_path):
    index = opened(server)
    judged(index, 0)
    copied(server, tmp_path / "yesterday")
    judged(index, 100)
    watermark = index.watermark()
    restored(server, tmp_path / "yesterday")
    with pytest.raises(IndexServerChanged):
        judged(index, 200)
    for again in (index, opened(server)):
        with pytest.raises(IndexLost, match="simhash-dedup rebuild"):
            again.present([watermark])


def test_an_older_copy_is_noticed_even_when_its_numbers_have_caught_up(server, tmp_path):
    """The epoch of today is one that yesterday's copy has never heard of."""
    index = opened(server)
    judged(index, 0)
    copied(server, tmp_path / "yesterday")
    server.restart()
    today = opened(server)
    judged(today, 100)
    watermark = today.watermark()
    restored(server, tmp_path / "yesterday")
    heedless = opened(server)
    for first in range(200, 500, 50):
        judged(heedless, first)
    assert watermark_in(heedless.watermark()).seq > watermark_in(watermark).seq
    with pytest.raises(IndexLost, match="rebuild"):
        heedless.present([watermark])


def test_numbers_that_one_worker_was_told_and_the_index_lost_stop_all_others_too(server, tmp_path):
    """The one that comes first after the loss cannot know; the one that knows tells all."""
    knowing, unknowing = opened(server), opened(server)
    judged(unknowing, 0)
    copied(server, tmp_path / "copy")
    judged(knowing, 100)
    watermark = knowing.watermark()
    restored(server, tmp_path / "copy")
    with pytest.raises(IndexServerChanged):
        judged(unknowing, 200)
    unknowing.present([unknowing.watermark()])
    judged(unknowing, 200, 60)
    with pytest.raises(IndexLost, match="rebuild"):
        knowing.present([watermark])
    with pytest.raises(IndexServerChanged):
        judged(unknowing, 300)
    with pytest.raises(IndexLost, match="rebuild"):
        unknowing.present([])
    opened(server).accept()
    unknowing.present([watermark])
    judged(unknowing, 300)


def test_what_only_others_were_told_is_asked_of_them_before_an_index_on_another_server_is_used(server, tmp_path):
    knowing, unknowing = opened(server), opened(server)
    judged(unknowing, 0)
    copied(server, tmp_path / "copy")
    judged(knowing, 100)
    asked: list[str] = []

    def others():
        asked.append("")
        return [unknowing.watermark(), knowing.watermark()]

    unknowing.present([unknowing.watermark()], others)
    assert asked == []
    restored(server, tmp_path / "copy")
    with pytest.raises(IndexLost, match="rebuild"):
        unknowing.present([unknowing.watermark()], others)
    with pytest.raises(IndexLost, match="rebuild"):
        opened(server).present([], others)


def test_who_begins_asks_what_others_were_told_also_where_somebody_else_has_begun_to_use_the_server(server, tmp_path):
    index = opened(server)
    judged(index, 0)
    copied(server, tmp_path / "copy")
    judged(index, 100)
    restored(server, tmp_path / "copy")
    judged(opened(server), 200)
    for beginning in (index, opened(server)):
        with pytest.raises(IndexLost, match="rebuild"):
            beginning.present([], lambda: [index.watermark()])


def test_nobody_says_who_has_a_batch_when_the_connection_that_it_went_by_is_lost(server, tmp_path):
    """WAIT speaks of what was written through its own connection. A worker's client makes a new one, and asks there."""
    with running_replica(server, tmp_path / "replica"), redis.Redis.from_url(server.url) as client:
        until(lambda: client.info("replication").get("slave0", {}).get("state") == "online", "the replica is in step")
        workers = connect(load({"redis_url": server.url}))
        index = open_index(workers, "i", {}, RULE, 1000, durability=Durability(replicas=1, wait_ms=4_000))
        index.present([])
        judged(index, 0)
        index.replicated()
        judged(index, 100)
        client.client_kill_filter(_type="normal", skipme=True)
        with pytest.raises(IndexUnreplicated, match="connection to Redis was lost"):
            index.replicated()
        judged(index, 200)
        index.replicated()


def test_a_flushed_index_is_noticed_by_who_runs_and_by_who_starts(server):
    index = opened(server)
    judged(index, 0)
    watermark = index.watermark()
    redis.Redis.from_url(server.url).flushall()
    with pytest.raises(IndexLost, match="gone"):
        judged(index, 100)
    made_again = opened(server)
    with pytest.raises(IndexLost, match="rebuild"):
        made_again.present([watermark])
    with pytest.raises(IndexServerChanged):
        judged(index, 100)
    with pytest.raises(IndexLost, match="rebuild"):
        index.present([watermark])
    made_again.accept()
    made_again.present([watermark])


@pytest.mark.parametrize("kept", [0, 20])
def test_an_index_that_is_accepted_without_what_it_lost_gives_no_number_again(server, tmp_path, kept):
    """Whether it lost its end or everything: of two pages under one number nobody could say which one is meant."""
    index = opened(server)
    judged(index, 0, kept)
    copied(server, tmp_path / "copy")
    told = judged(index, 100)
    last = max(each.seq for each in told if isinstance(each, Unique))
    restored(server, tmp_path / "copy")
    operations = Operations(opened(server))
    had = operations.moment().seq
    assert (had > 0) == (kept > 0)
    assert operations.accept([index.watermark(), "what another tool wrote"]) == last - had
    assert operations.accept([index.watermark()]) == 0
    again = opened(server)
    again.present([index.watermark()])
    assert min(each.seq for each in judged(again, 200) if isinstance(each, Unique)) == last + 1
    assert operations.check(lambda _: None).violations == []


def test_an_index_whose_lost_numbers_could_not_be_passed_over_is_not_accepted(server, tmp_path, monkeypatch):
    index = opened(server)
    judged(index, 0)
    copied(server, tmp_path / "copy")
    judged(index, 100)
    restored(server, tmp_path / "copy")

    def is_cut_off(*_):
        raise IndexUnreachable("cut off")

    with monkeypatch.context() as patch:
        patch.setattr(Store, "store", is_cut_off)
        with pytest.raises(IndexUnreachable, match="cut off"):
            Operations(opened(server)).accept([index.watermark()])
    with pytest.raises(IndexLost, match="rebuild"):
        opened(server).present([index.watermark()])
    assert Operations(opened(server)).accept([index.watermark()]) > 0
    opened(server).present([index.watermark()])


def test_a_watermark_says_too_what_was_told_before_its_server_came(server):
    """Or nobody could tell from the last commits which numbers are out."""
    index = opened(server)
    judged(index, 0)
    told = watermark_in(index.watermark()).seq
    server.restart()
    for other in (index, opened(server)):
        other.present([index.watermark()])
        assert watermark_in(other.watermark()).seq == told


def test_a_watermark_of_another_index_stops_only_who_presents_it(server):
    """A worker that was given the wrong index's name must not stop those that were not."""
    right, wrong = opened(server, "right"), opened(server, "wrong")
    judged(right, 0)
    server.restart()
    other = opened(server, "wrong")
    judged(other, 0)
    with pytest.raises(IndexLost):
        other.present(["simhash-dedup 000000000000.0123456789abcdef0123456789abcdef01234567 1"])
    judged(other, 100)
    assert wrong.documents() == other.documents()
