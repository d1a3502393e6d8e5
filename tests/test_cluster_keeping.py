"""What a primary of a cluster has lost is noticed, whichever it is; what was merely moved or restarted is not."""

import shutil
from contextlib import ExitStack, contextmanager, suppress
from random import Random

import pytest
import redis

from deploy.local.ports import free_port
from simhash.errors import IndexLost, IndexServerChanged, IndexUnreachable, IndexUnreplicated
from simhash.index import Unique
from simhash.index.cluster import ClusterIndex, open_cluster_index
from simhash.index.cluster.checking import check
from simhash.index.cluster.groups import Operation, group_tags
from simhash.index.cluster.nodes import Nodes, Unsettled
from simhash.index.cluster.placement import LOG_SEGMENT
from simhash.index.safekeeping import Durability
from simhash.tables import design
from tests.crowded_cluster import move_slot, owned
from tests.pages import crowd, relation
from tests.servers import running_cluster, running_replica, start_redis
from tests.stream import until

RULE = relation(design("4"))


@pytest.fixture(scope="module")
def nodes(tmp_path_factory):
    """A cluster of its own: its primaries are restarted and flushed."""
    with running_cluster(tmp_path_factory.mktemp("cluster")) as started:
        yield started


@pytest.fixture
def client(nodes):
    with redis.RedisCluster.from_url(nodes[0].url, socket_timeout=5) as connection:
        yield connection


def opened(client, name, **durability):
    return open_cluster_index(client, name, {}, RULE, 1000, durability=Durability(**durability))


def judged(index, first, count=30):
    """Decisions on pages of which some are new."""
    return [answer.decision for answer in index.check_and_insert(crowd(count, Random(first), first=first), {})]


def role_of(nodes, client, name, role):
    """The primary of the claim slot, or another one."""
    port = client.get_node_from_key(f"{{{name}:claim}}").port
    return next(node for node in nodes if (node.port == port) is (role == "claims"))


def whole_again(nodes):
    until(lambda: all(state(node) == "ok" for node in nodes), "a whole cluster")


def state(node):
    with redis.Redis.from_url(node.url) as client:
        return client.execute_command("CLUSTER INFO")["cluster_state"]


def looked_after(index, receipt, action):
    """What the worker's loop does: hold the receipt against the index, and try again."""
    refusals = []

    def attempt():
        try:
            index.present([receipt])
            return [action()]
        except IndexUnreachable as error:
            refusals.append(error)
            return []

    try:
        return until(attempt, "an answer")[0]
    except AssertionError as error:
        raise error from refusals[-1]


@pytest.mark.parametrize("role", ["claims", "data"])
def test_a_restart_that_lost_nothing_goes_on(nodes, client, name, role):
    index = opened(client, name)
    before = judged(index, 0)
    receipt = index.receipt()
    role_of(nodes, client, name, role).restart()
    whole_again(nodes)
    if role == "claims":
        until(lambda: another_server_is_refused(index), "an answer of the new server")
    assert looked_after(index, receipt, lambda: judged(index, 0)) == before
    assert judged(index, 100)
    assert "restarted or failed over" in index.server_change()
    later = opened(client, name)
    later.present([receipt, index.receipt()])
    assert later.server_change() == ""
    assert check(index.inside, lambda _: None).violations == []


def test_a_change_that_another_worker_met_is_told_too(nodes, client, name):
    """It is settled in the claim slot by then: nothing refuses this worker's calls."""
    first, second = opened(client, name), opened(client, name)
    judged(first, 0)
    judged(second, 100)
    role_of(nodes, client, name, "data").restart()
    whole_again(nodes)
    looked_after(first, first.receipt(), lambda: judged(first, 0))
    assert judged(second, 200)
    assert "restarted or failed over" in second.server_change()
    assert opened(client, name).server_change() == ""


def another_server_is_refused(index):
    """Whether the claim slot answers nobody before receipts were held against it."""
    try:
        judged(index, 0)
    except IndexServerChanged:
        return True
    except IndexUnreachable:
        return False
    raise AssertionError("another server was believed unseen")


@pytest.mark.parametrize("role", ["claims", "data"])
@pytest.mark.parametrize("loss", ["flushed", "older"])
def test_a_primary_that_lost_something_stops_everyone(nodes, client, name, role, loss, tmp_path):
    """Also who only reads there, and whoever comes later."""
    index = opened(client, name)
    judged(index, 0)
    node = role_of(nodes, client, name, role)
    data = node.directory / "redis-data"
    shutil.copytree(data, tmp_path / "older")
    judged(index, 100)
    receipt = index.receipt()
    if loss == "older":
        node.kill()
        shutil.rmtree(data)
        shutil.copytree(tmp_path / "older", data)
        node.start()
        whole_again(nodes)
    else:
        redis.Redis.from_url(node.url).flushall()
    if role == "data":
        until(lambda: reading_is_refused(index), "a server that says what is missing")
    with pytest.raises(IndexLost, match="simhash-dedup rebuild"):
        looked_after(index, receipt, lambda: judged(index, 200))
    if loss == "older" or role == "data":
        with pytest.raises(IndexLost, match="simhash-dedup rebuild"):
            looked_after(opened(client, name), receipt, lambda: judged(index, 300))
        index.accept()
        assert looked_after(index, receipt, lambda: judged(index, 300))


def reading_is_refused(index):
    """Whether the lost part is missed by who only looks for a page: it would be unique a second time."""
    far_and_wide = [number.to_bytes(8) for number in range(0, 1 << 64, 1 << 58)]
    index.inside.claims.groups()  # heard with every claim
    try:
        index.inside.reader.stored_under(far_and_wide)
    except Unsettled as error:
        return "calls that wrote here are missing" in str(error)
    except IndexUnreachable:
        return False
    raise AssertionError("a primary answers as if nothing were missing")


def test_a_loss_that_others_write_over_is_noticed(nodes, client, name, tmp_path):
    """A worker that began before the loss is refused by the restored server: it can not make its count look whole."""
    slow, fast = opened(client, name), opened(client, name)
    judged(slow, 0)
    node = role_of(nodes, client, name, "data")
    data = node.directory / "redis-data"
    shutil.copytree(data, tmp_path / "older")
    known = slow.inside.claims.groups()
    judged(fast, 100)
    node.kill()
    shutil.rmtree(data)
    shutil.copytree(tmp_path / "older", data)
    node.start()
    whole_again(nodes)
    placement = slow.inside.placement
    group = next(g for g in range(64) if client.get_node_from_key(placement.written(g)).port == node.port)
    slow.inside.nodes.ledger.learn(b"".join(kept.packed for kept in known))
    with pytest.raises(IndexUnreachable, match="another server has this group now"):
        slow.inside.nodes.write(placement, [operation_in(placement, group)], 10**6, [])
    with pytest.raises(IndexLost, match="lacks parts of pages"):
        judged(slow, 200)


def operation_in(placement, group):
    """Something to write in a group."""
    spots = (placement.logged(number * LOG_SEGMENT).spot for number in range(10_000))
    return Operation(next(spot for spot in spots if spot.group == group), b"u123456")


def test_work_whose_primary_was_exchanged_before_its_end_is_written_once_more(nodes, client, name):
    """Its writes are not finished by the claim slot, which has another server for their groups by then."""

    class Restarting(Nodes):
        written = 0

        def write(self, *arguments):
            super().write(*arguments)
            self.written += 1
            if self.written == 1:
                role_of(nodes, client, name, "data").restart()
                whole_again(nodes)
                opened(redis.RedisCluster.from_url(nodes[0].url), name).present([])

    made = opened(client, name)
    restarting = Restarting(client)
    index = ClusterIndex(restarting, name, made.spec, made.generation)
    assert isinstance(judged(index, 0)[0], Unique)
    assert restarting.written == 2
    assert check(made.inside, lambda _: None).violations == []
    assert made.claims() == []


@pytest.mark.parametrize("verify_changes", [True, False])
def test_a_slot_that_was_moved_raises_no_alarm(nodes, client, name, verify_changes):
    """Neither the claim slot's nor a group's, not even where no change of a server is trusted."""
    index = opened(client, name, verify_changes=verify_changes)
    before = judged(index, 0)
    receipt = index.receipt()
    for tag in (f"{name}:claim", *group_tags(name)[::20]):
        move_slot(client, client.keyslot(f"{{{tag}}}"), Random(tag))
    assert looked_after(index, receipt, lambda: judged(index, 0)) == before
    assert judged(index, 100)
    assert index.server_change() == ""
    opened(client, name, verify_changes=verify_changes).present([receipt, index.receipt()])
    assert check(index.inside, lambda _: None).violations == []


def test_a_slot_that_each_primary_says_another_has_is_reported(nodes, client, name):
    """As it stays behind when a resharding is cut off, or two of them take the same epoch."""
    slot = client.keyslot(f"{{{name}:claim}}")
    own, other = (
        redis.Redis.from_url(node.url) for node in sorted(nodes, key=lambda node: slot not in slots_in(node))[:2]
    )
    ids = [node.execute_command("CLUSTER MYID").decode() for node in (own, other)]
    own.execute_command("CLUSTER SETSLOT", slot, "NODE", ids[1])
    with pytest.raises(IndexUnreachable, match=r"send a key to one another.*redis-cli --cluster check"):
        opened(client, name)
    own.execute_command("CLUSTER SETSLOT", slot, "NODE", ids[0])
    assert judged(opened(client, name), 0)


def slots_in(node):
    with redis.Redis.from_url(node.url) as client:
        return owned(client)


def test_a_restart_stops_where_no_change_is_trusted(nodes, client, name):
    index = opened(client, name, verify_changes=False)
    judged(index, 0)
    role_of(nodes, client, name, "data").restart()
    whole_again(nodes)
    with pytest.raises(IndexLost, match="on_server_change is stop"):
        looked_after(index, index.receipt(), lambda: judged(index, 100))
    index.accept()
    assert looked_after(index, index.receipt(), lambda: judged(index, 100))


@pytest.fixture
def replicas(nodes, tmp_path):
    """A replica of each primary, in step."""
    with ExitStack() as stack:
        started = [stack.enter_context(running_replica(node, tmp_path / f"of-{node.port}")) for node in nodes]
        until(lambda: all(replicas_in_step(node) for node in nodes), "replicas in step")
        yield dict(zip((node.port for node in nodes), started, strict=True))


def replicas_in_step(node):
    with redis.Redis.from_url(node.url) as client:
        info = client.info("replication")
    return info["connected_slaves"] == 1 and info["slave0"]["state"] == "online"


@pytest.mark.parametrize("role", ["claims", "data"])
def test_a_batch_counts_when_a_replica_of_each_primary_has_it(nodes, client, name, replicas, role):
    """Also one whose pages were all answered before: its writes may be those that are not acknowledged yet."""
    index = opened(client, name, replicas=1, wait_ms=200)
    before = judged(index, 0)
    until(lambda: acknowledged(index), "all replicas")
    hanging = replicas[role_of(nodes, client, name, role).port]
    hanging.pause()
    try:
        judged(index, 100)
        for first in (100, 0):
            with pytest.raises(IndexUnreplicated, match=r"0 of 1 replicas \(wait_replicas\) of a primary"):
                index.replicated()
            judged(index, first)
    finally:
        hanging.resume()
    assert judged(index, 0) == before
    until(lambda: acknowledged(index), "the replica that hung")


def acknowledged(index):
    with suppress(IndexUnreplicated):
        index.replicated()
        return True
    return False


def test_a_primary_that_was_exchanged_since_the_batch_acknowledges_nothing(nodes, client, name):
    index = opened(client, name, replicas=1, wait_ms=50)
    judged(index, 0)
    role_of(nodes, client, name, "data").restart()
    whole_again(nodes)
    with pytest.raises(IndexUnreplicated, match="nobody can say"):
        until(lambda: answered(index.replicated), "an answer of the new server")


def answered(action):
    try:
        action()
    except IndexUnreplicated:
        raise
    except IndexUnreachable:
        return False
    return True


@pytest.mark.parametrize("behind", [True, False])
def test_a_replica_that_takes_over_is_believed_if_it_was_not_behind(name, tmp_path, behind):
    with running_cluster(tmp_path) as nodes, redis.RedisCluster.from_url(nodes[0].url) as client:
        index = opened(client, name)
        before = judged(index, 0)
        primary = role_of(nodes, client, name, "data")
        with following(primary, tmp_path / "replica") as replica:
            asked, original = redis.Redis.from_url(replica.url), redis.Redis.from_url(primary.url)
            if behind:
                replica.pause()
                original.client_kill_filter(_type="replica")  # so that nothing waits for it in a socket
            later = judged(index, 100)
            receipt = index.receipt()
            until(lambda: behind or original.wait(1, 1000) == 1, "the replica has it all")
            primary.kill()
            replica.resume()
            until(lambda: asked.info("replication")["master_link_status"] == "down", "a replica alone")
            asked.execute_command("CLUSTER FAILOVER", "TAKEOVER")
            survivors = [replica, *(node for node in nodes if node is not primary)]
            until(lambda: all(state(node) == "ok" for node in survivors), "a whole cluster")
            if behind:
                with pytest.raises(IndexLost, match="a replica that was behind"):
                    looked_after(index, receipt, lambda: judged(index, 200))
            else:
                assert looked_after(index, receipt, lambda: judged(index, 0)) == before
                assert judged(index, 100) == later
                assert check(index.inside, lambda _: None).violations == []


@contextmanager
def following(primary, directory):
    """A replica of a primary, within its cluster, in step."""
    settings = {"cluster-enabled": "yes", "cluster-port": str(free_port()), "repl-diskless-sync-delay": "0"}
    replica = start_redis(directory, settings)
    try:
        own, other = redis.Redis.from_url(replica.url), redis.Redis.from_url(primary.url)
        bus = other.config_get("cluster-port")["cluster-port"]
        own.execute_command("CLUSTER MEET", "127.0.0.1", primary.port, bus)
        id_ = other.execute_command("CLUSTER MYID").decode()
        until(lambda: id_ in {row["node_id"] for row in own.execute_command("CLUSTER NODES").values()}, "the meeting")
        until(lambda: following_is_taken_up(own, id_), "a replica")
        until(lambda: replicas_in_step(primary), "a replica in step")
        yield replica
    finally:
        replica.kill()


def following_is_taken_up(own, primary_id):
    try:
        return own.execute_command("CLUSTER REPLICATE", primary_id)
    except redis.ResponseError:
        return False  # not known as a primary yet
