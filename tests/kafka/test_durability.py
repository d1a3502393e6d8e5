"""The stream with replicas, failovers and old copies of Redis: real ones."""

import shutil
from contextlib import closing
from random import Random

import pytest
import redis

from tests.kafka.test_exactly_once import assert_each_answered_once, assert_guarantees
from tests.servers import KEEPS_ALL, running_redis, running_replica, running_sentinel
from tests.stream import Stream, json_page, texts, until, working
from worker.index.configured import configured_profile
from worker.index.sentinel import sentinel_client
from worker.index.stores import connected_index
from worker.judging.fingerprinters import recipe
from worker.judging.judge import judge, prepare
from worker.records.passing import Outgoing
from worker.records.verdict import encode
from worker.stream.kafka import Session


@pytest.fixture
def primary(tmp_path):
    with running_redis(tmp_path / "primary", KEEPS_ALL) as server:
        yield server


def filled(stream, count, first=0):
    pages = texts(96, Random(4))[first : first + count]
    stream.send([json_page(n, text) for n, text in enumerate(pages, first)])


def streaming(kafka_server, name, url, **settings):
    made = Stream(name, kafka_server.bootstrap_servers, url, settings=settings)
    made.create()
    return made


def numbers(stream):
    """Of the unique pages."""
    return [verdict["seq"] for verdict in stream.verdicts() if verdict["verdict"] == "unique"]


def replicas_in_step(server, count):
    info = redis.Redis.from_url(server.url).info("replication")
    return [info[f"slave{n}"]["state"] for n in range(info["connected_slaves"])] == ["online"] * count


def test_nothing_is_committed_that_the_replica_does_not_have(kafka_server, name, tmp_path, primary):
    """The replica hangs: batches are aborted. It goes on: so does the stream, with the verdicts of any other run."""
    stream = streaming(kafka_server, name, primary.url, wait_replicas="1", wait_timeout="300ms")
    with running_replica(primary, tmp_path / "replica") as replica:
        until(lambda: replicas_in_step(primary, 1), "the replica is in step")
        filled(stream, 32)
        worker = stream.worker()
        with working(worker):
            stream.wait_for(32)
            replica.pause()
            filled(stream, 32, first=32)
            seen = redis.Redis.from_url(primary.url)
            aborted = until(lambda: seen.info("commandstats").get("cmdstat_wait", {}).get("calls", 0) >= 6, "retries")
            assert aborted
            assert len(stream.verdicts()) == 32
            replica.resume()
            stream.wait_for(64)
            code, written = worker.stop()
        assert code == 0
        assert "0 of 1 replicas (wait_replicas) acknowledged" in written
        here, there = (redis.Redis.from_url(s.url).hgetall(f"{{{name}}}:meta") for s in (primary, replica))
        assert here == there
    assert_each_answered_once(stream, 64)
    assert_guarantees(stream.verdicts())


def test_a_failover_in_the_middle_of_the_stream(kafka_server, name, tmp_path, primary):
    """The primary is killed; its Sentinel promotes the replica, which has all that was committed."""
    with running_replica(primary, tmp_path / "replica") as replica:
        until(lambda: replicas_in_step(primary, 1), "the replica is in step")
        with running_sentinel(primary, tmp_path / "sentinel") as sentinel:
            asked = redis.Redis(port=sentinel.port)
            until(lambda: asked.sentinel_master(sentinel.service)["num-slaves"] == 1, "the Sentinel knows the replica")
            stream = streaming(kafka_server, name, sentinel.url, redis_timeout="2s")
            filled(stream, 32)
            worker = stream.worker()
            with working(worker):
                stream.wait_for(32)
                until(lambda: same_meta(primary, replica, name), "the replica has it all")
                primary.kill()
                filled(stream, 64, first=32)
                stream.wait_for(96)
                code, written = worker.stop()
            assert (code, "lacks nothing of it" in written) == (0, True)
            assert_each_answered_once(stream, 96)
            assert_guarantees(stream.verdicts())


def failed_over(sentinel, service):
    try:
        return sentinel.execute_command("SENTINEL FAILOVER", service)
    except redis.ResponseError:
        return False


def test_a_connection_that_is_kept_follows_a_failover(tmp_path, primary):
    """WAIT is asked on the script's own connection, which never goes back to the pool that asks the Sentinels."""
    with running_replica(primary, tmp_path / "replica") as replica:
        until(lambda: replicas_in_step(primary, 1), "the replica is in step")
        with running_sentinel(primary, tmp_path / "sentinel") as sentinel:
            asked = redis.Redis(port=sentinel.port, decode_responses=True)
            until(lambda: asked.sentinel_master(sentinel.service)["num-slaves"] == 1, "the Sentinel knows the replica")
            kept = sentinel_client(sentinel.url, {"socket_timeout": 2}).client()
            assert kept.role()[0] == b"master"
            until(lambda: failed_over(asked, sentinel.service), "the Sentinel knows how good the replica is")
            until(lambda: asked.sentinel_master(sentinel.service)["port"] == replica.port, "the failover")
            kept.connection.disconnect()
            kept.set("after", "1")
            assert (kept.connection.port, kept.role()[0]) == (replica.port, b"master")


def same_meta(one, other, name):
    here, there = (redis.Redis.from_url(s.url).hgetall(f"{{{name}}}:meta") for s in (one, other))
    return here == there


def test_nothing_is_judged_on_an_older_copy_though_only_a_dead_worker_could_tell(kafka_server, name, tmp_path, primary):
    """What is lost was committed with the dead worker's partition, which is nobody's until its session ends."""
    stream = Stream(name, kafka_server.bootstrap_servers, primary.url, 2, settings={"session_timeout": "60s"})
    stream.create()
    filled(stream, 32)
    survivor = stream.worker()
    with working(survivor):
        stream.wait_for(32)
        dead = stream.worker()
        with working(dead):
            dead.says("] is ours")
            theirs = int(f"{stream.input_topic}[1] is ours" in dead.written())
            survivor.says(f"partitions lost: {stream.input_topic}[{theirs}]")
            data = primary.directory / "redis-data"
            shutil.copytree(data, tmp_path / "copy")
            stream.send([json_page(32, "a page that Redis loses")], partition=theirs)
            stream.wait_for(33)
        primary.kill()
        shutil.rmtree(data)
        shutil.copytree(tmp_path / "copy", data)
        stream.send([json_page(33, "a page that Redis loses")], partition=1 - theirs)
        primary.start()
        stream.wait_for(34, unless=lambda: survivor.process.poll() is not None)
        assert "simhash-dedup rebuild" in survivor.refusal(5)
    assert len(stream.verdicts()) == 33


def test_what_another_worker_is_just_committing_is_not_judged_on_an_older_copy(kafka_server, name, tmp_path, primary):
    """It has made sure of its index, Redis is restored, and it commits, and never comes back to tell."""
    stream = Stream(name, kafka_server.bootstrap_servers, primary.url, 2, settings={"transaction_timeout": "60s"})
    stream.create()
    settings, profile = stream.loaded(), configured_profile(stream.loaded())
    index, session = connected_index(settings, profile), Session(settings, f"{name}-other")
    with closing(session):
        until(lambda: session.poll(0.2, 1).gained, "an assignment")
        worker = stream.worker()
        with working(worker):
            (theirs,) = until(lambda: session.poll(0.2, 1).lost, "a partition for each")
            until(lambda: session.poll(0.2, 1) and "] is ours" in worker.written(), "the worker has it")
            copied = shutil.copytree(primary.directory / "redis-data", tmp_path / "copy")
            stream.send([json_page(0, "a page that Redis loses " * 9)], partition=1 - theirs.number)
            (received,) = until(lambda: session.poll(0.2, 1).received, "the page")
            ours = theirs._replace(number=1 - theirs.number)
            (judged,) = judge([prepare(received.record, recipe(settings, profile))], index, profile, {ours: 0})

            def last_look():
                index.unchanged()
                primary.kill()
                shutil.rmtree(primary.directory / "redis-data")
                shutil.copytree(copied, primary.directory / "redis-data")
                stream.send([json_page(1, "a page that Redis loses " * 9)], partition=theirs.number)
                primary.start()
                worker.says("a transaction is open over 1 partitions")

            out = [Outgoing(stream.verdict_topic, b"key", encode(judged.verdict), [], None)]
            session.send(out, {ours: 1}, lambda step: None, index.watermark(), last_look)
            assert "simhash-dedup rebuild" in worker.refusal(5)
    assert [verdict["verdict"] for verdict in stream.verdicts()] == ["unique"]


def test_an_older_copy_of_redis_stops_the_worker_that_runs_and_the_one_that_starts(
    kafka_server, name, tmp_path, primary
):
    stream = streaming(kafka_server, name, primary.url)
    filled(stream, 32)
    worker = stream.worker()
    with working(worker):
        stream.wait_for(32)
        kept = max(numbers(stream))
        data = primary.directory / "redis-data"
        shutil.copytree(data, tmp_path / "copy")
        filled(stream, 32, first=32)
        stream.wait_for(64)
        primary.kill()
        shutil.rmtree(data)
        shutil.copytree(tmp_path / "copy", data)
        filled(stream, 32, first=64)
        primary.start()
        assert "simhash-dedup rebuild" in worker.refusal(5)
    another = stream.worker()
    with working(another):
        assert "simhash-dedup rebuild" in another.refusal(5)
    assert len(stream.verdicts()) == 64
    accepted = stream.command("index", "accept", "--execute")
    assert accepted.returncode == 0, accepted.stderr
    assert f"; {max(numbers(stream)) - kept} numbers were given and are missing" in accepted.stdout
    third = stream.worker()
    with working(third):
        stream.wait_for(96)
        assert third.stop()[0] == 0
    assert len(numbers(stream)) == len(set(numbers(stream))), "none is given twice"
    assert stream.command("index", "check").returncode == 0
