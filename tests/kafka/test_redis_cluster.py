"""An index on a Redis Cluster lies in one slot, and is what it is elsewhere: when the slot moves, and when its
primary dies."""

from random import Random

import pytest
import redis
from redis.crc import key_slot

from deploy.local import stores
from simhash.errors import IndexUnreachable
from simhash.index.redis.index import Line
from simhash.index.redis.layout import meta_key
from simhash.index.redis.operators.check import check
from simhash.relation.tables import design
from tests.backends import Backend
from tests.kafka.test_exactly_once import assert_each_answered_once, assert_guarantees
from tests.pages import brute_force, crowd, relation, summary
from tests.servers import running_cluster
from tests.stream import Stream, json_page, texts, until, working
from worker.index.stores import connect
from worker.settings import Settings

RULE = relation(design("4"), 12)


class Slot:
    """The slot of an index, moved from its primary to another one step by step, as an operator's tool does."""

    def __init__(self, nodes, name):
        self.number = key_slot(meta_key(name).encode())
        self.clients = [redis.Redis(port=node.port) for node in nodes]
        self.ids = [client.execute_command("CLUSTER MYID").decode() for client in self.clients]
        self.source = next(n for n, client in enumerate(self.clients) if self._owns(client))
        self.target = (self.source + 1) % len(nodes)
        self.there = nodes[self.target].port

    def _owns(self, client):
        return any(
            first <= self.number <= last and primary[1] == client.connection_pool.connection_kwargs["port"]
            for first, last, primary, *_ in client.execute_command("CLUSTER SLOTS")
        )

    def in_it(self, count=100_000):
        return self.clients[self.source].execute_command("CLUSTER GETKEYSINSLOT", self.number, count)

    def begin(self):
        self._set(self.target, "IMPORTING", self.source)
        self._set(self.source, "MIGRATING", self.target)

    def move(self, keys):
        for key in keys:
            self.clients[self.source].execute_command("MIGRATE", "127.0.0.1", self.there, key, 0, 5000)

    def end(self):
        for node in (self.target, self.source, *range(len(self.clients))):
            self._set(node, "NODE", self.target)

    def _set(self, node, state, other):
        self.clients[node].execute_command("CLUSTER SETSLOT", self.number, state, self.ids[other])


def on_cluster(nodes, name):
    url = "redis+cluster://" + ",".join(node.address for node in nodes)
    return Backend(connect(Settings(redis_url=url, index_name=name, redis_timeout="2s")), url, name)


def judged(index, pages, on_failure=lambda failures: None):
    """All answers, asked for again where the index could not be reached; and how often that was."""
    failures = 0
    while failures < 100:
        try:
            if failures:
                index.present([])
            return [summary(answer.decision) for answer in index.check_and_insert(pages, {})], failures
        except IndexUnreachable:
            failures += 1
            on_failure(failures)
    raise AssertionError("the index is not reached again")


@pytest.mark.parametrize("moved_first", ["meta", "others", "nothing"])
def test_a_slot_that_moves_in_the_middle_of_a_batch_is_waited_for(cluster, name, monkeypatch, moved_first):
    """Its keys lie on two servers for a while: neither may judge a page, whichever of them has the meta."""
    at = on_cluster(cluster, name)
    index, pages = at.open(name, RULE), crowd(300, Random(1))
    answers, _ = judged(index, pages[:100])
    slot, calls, send = Slot(cluster, name), [], Line.send
    meta = meta_key(name).encode()

    def sent(line, arguments):
        calls.append(len(calls))
        if len(calls) == 3:
            slot.begin()
            some = [key for key in slot.in_it() if key != meta]
            slot.move({"meta": [meta], "others": some[: len(some) // 2], "nothing": []}[moved_first])
        send(line, arguments)

    def finish(failures):
        if failures == 3:
            slot.move(slot.in_it())
            slot.end()

    monkeypatch.setattr(Line, "send", sent)
    more, failures = judged(index, pages[100:], finish)
    assert failures >= 3
    assert answers + more == brute_force(pages, RULE)
    assert slot.in_it() == []
    assert check(index.inside, lambda _: None).violations == []


def test_an_index_goes_on_on_the_replica_of_a_primary_that_died(tmp_path, name):
    with running_cluster(tmp_path / "nodes") as nodes:
        slot = Slot(nodes, name)
        replica = stores.RedisServer(
            tmp_path / "replica",
            dies_with_parent=True,
            settings={
                "cluster-enabled": "yes",
                "cluster-port": str(stores.free_port()),
                "cluster-node-timeout": "2000",
                "repl-diskless-sync-delay": "0",
            },
        )
        replica.start()
        try:
            follower = redis.Redis(port=replica.port)
            bus = int(redis.Redis(port=nodes[0].port).config_get("cluster-port")["cluster-port"])
            follower.execute_command("CLUSTER MEET", "127.0.0.1", nodes[0].port, bus)
            until(lambda: _accepted(follower, "CLUSTER REPLICATE", slot.ids[slot.source]), "the replica knows it")
            until(lambda: follower.info("replication").get("master_link_status") == "up", "the replica follows")
            at = on_cluster(nodes, name)
            index, pages = at.open(name, RULE), crowd(300, Random(2))
            answers, _ = judged(index, pages[:150])
            watermark = index.watermark()
            primary = slot.clients[slot.source]
            assert primary.execute_command("WAIT", 1, 10_000) == 1
            until(lambda: _offset(follower) >= int(primary.info("replication")["master_repl_offset"]), "it has it all")
            nodes[slot.source].kill()
            until(lambda: follower.role()[0] == b"master", "the replica is promoted")
            more, _ = judged(index, pages[150:])
            assert answers + more == brute_force(pages, RULE)
            index.present([watermark])
            assert check(index.inside, lambda _: None).violations == []
        finally:
            replica.kill()


def _accepted(client, *command):
    """Whether a command was taken."""
    try:
        client.execute_command(*command)
    except redis.ResponseError:
        return False
    return True


def _offset(follower):
    return int(follower.info("replication").get("slave_repl_offset", 0))


def test_workers_go_on_while_the_slot_of_their_index_is_moved(kafka_server, cluster, name):
    at = on_cluster(cluster, name)
    stream = Stream(name, kafka_server.bootstrap_servers, at.url, partitions=2, settings={"redis_timeout": "2s"})
    stream.create()
    pages = texts(240, Random(4))
    stream.send([json_page(n, text) for n, text in enumerate(pages[:120])])
    one, other = stream.worker(), stream.worker()
    with working(one), working(other):
        stream.wait_for(120)
        slot = Slot(cluster, name)
        slot.begin()
        keys = slot.in_it()
        slot.move(keys[: len(keys) // 2])
        stream.send([json_page(n, text) for n, text in enumerate(pages[120:], 120)])
        slot.move(slot.in_it())
        slot.end()
        stream.wait_for(240)
        assert [worker.stop()[0] for worker in (one, other)] == [0, 0]
    assert_each_answered_once(stream, 240)
    assert_guarantees(stream.verdicts())
    assert check(at.existing(name).inside, lambda _: None).violations == []


def test_a_cluster_that_nobody_answers_for_is_unreachable(name):
    at = "redis+cluster://127.0.0.1:1,127.0.0.1:2"
    with pytest.raises(IndexUnreachable, match="no node of the cluster"):
        Backend(connect(Settings(redis_url=at, index_name=name)), at, name).existing(name)
