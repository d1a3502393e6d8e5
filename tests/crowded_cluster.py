"""Workers on a cluster that crash, stall and meet: a small stand-in for Kafka, faults at every call, what must hold.

Deliveries come as from a consumer group: a partition is one worker's at a time and is read from its committed offset; a
worker that stalls loses its partitions but does not know it. What a call answers counts only when it is committed, yet
also what a stalled worker is told late must be the committed verdict.
"""

import threading
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any

import redis

from simhash.errors import IndexBusy, IndexMigrated, IndexMismatch, IndexUnreachable, StaleObservation
from simhash.index import Answer, Duplicate, Entry, IndexSpec, Partition, Position, Relation, Retention, Unique
from simhash.index.cluster import ClusterIndex, ClusterMigration, existing_cluster_index
from simhash.index.cluster.checking import check
from simhash.index.cluster.migration import Steps
from simhash.index.cluster.nodes import Nodes
from tests.stream import until

SECONDS = 120.0
FOR_EVER = Retention()
MOVES = 4
"""Slots that are moved during a run."""


class Crashed(Exception):
    """The worker ends here; it comes back with nothing in its memory."""


class FaultyNodes(Nodes):
    """Calls that end a worker, or hold it up, before, between or after the parts that go to each group."""

    def __init__(self, client, random, share, stall):
        super().__init__(client)
        self._random = random
        self._share = share
        self._stall = stall

    def _each(self, calls):
        if self._random.random() >= self._share:
            return super()._each(calls)
        calls = list(calls)
        done = self._random.randint(0, len(calls))
        found = super()._each(calls[:done]) if done else []
        if self._random.random() < 0.5:
            raise Crashed
        self._stall()
        return found + (super()._each(calls[done:]) if done < len(calls) else [])


class HalfWriting(Nodes):
    """Calls of which the n-th that writes reaches half of what it should, and ends the worker."""

    def __init__(self, client, calls):
        super().__init__(client)
        self._left = calls

    def write(self, placement, operations, *others):
        self._left -= 1
        if self._left < 0:
            super().write(placement, operations[: len(operations) // 2], *others)
            raise Crashed
        return super().write(placement, operations, *others)


@dataclass
class Group:
    """Partitions, who reads them, what is committed: one lock."""

    pages: dict[Partition, list[Entry]]
    lock: threading.Condition = field(default_factory=threading.Condition)
    committed: dict[Partition, int] = field(default_factory=lambda: defaultdict(int))
    owners: dict[Partition, object] = field(default_factory=dict)
    verdicts: dict[bytes, Answer] = field(default_factory=dict)
    wrong: list[str] = field(default_factory=list)

    def ended(self) -> bool:
        return all(self.committed[p] == len(pages) for p, pages in self.pages.items())

    def assigned(self, worker: object, random: Random) -> list[Partition]:
        """Give the worker what nobody reads; at least one partition is left for others to take."""
        with self.lock:
            free = [p for p in self.pages if p not in self.owners]
            for partition in random.sample(free, min(len(free), random.randint(1, 2))):
                self.owners[partition] = worker
            return [p for p, owner in self.owners.items() if owner is worker]

    def leave(self, worker: object) -> None:
        """Its partitions are free for others."""
        with self.lock:
            self.owners = {p: owner for p, owner in self.owners.items() if owner is not worker}
            self.lock.notify_all()

    def stall(self, worker: object) -> None:
        """Lose the partitions, and wake up when others have gone on."""
        self.leave(worker)
        with self.lock:
            aim = sum(self.committed.values()) + 12
            self.lock.wait_for(lambda: self.ended() or sum(self.committed.values()) >= aim, timeout=1.0)

    def told(self, entries: Sequence[Entry], answers: Sequence[Answer], worker: object) -> None:
        """Commit what is still this worker's; compare everything with what was committed before."""
        with self.lock:
            for entry, answer in zip(entries, answers, strict=True):
                partition, offset = entry.position.partition, entry.position.offset
                before = self.verdicts.get(entry.observation)
                if before is not None and before.decision != answer.decision:
                    self.wrong.append(f"{entry.url} flips from {before.decision} to {answer.decision}")
                if self.owners.get(partition) is worker and offset == self.committed[partition]:
                    self.verdicts[entry.observation] = answer
                    self.committed[partition] += 1
            self.lock.notify_all()


@dataclass
class Crowd:
    """A run: workers on one index until every page is committed."""

    client: redis.RedisCluster
    index: ClusterIndex
    name: str
    random: Random
    group: Group
    retention: Retention = field(default_factory=Retention)
    share: float = 0.05
    migrations: int = 0
    migrations_wanted: int = 0

    def run(self, workers: int, *others) -> None:
        """Run until all is committed; `others` are called in threads of their own, with this, until then."""
        threads = [
            threading.Thread(target=self._work, args=(Random(self.random.random()),), daemon=True)
            for _ in range(workers)
        ]
        threads += [threading.Thread(target=other, args=(self,), daemon=True) for other in others]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(SECONDS)
        assert not any(thread.is_alive() for thread in threads), "workers wait for each other"
        assert self.group.ended()

    def opened(self, random: Random, worker: object) -> ClusterIndex:
        nodes = FaultyNodes(self.client, random, self.share, lambda: self.group.stall(worker))
        return over(nodes, self.name, self.retention)

    def _may_go_on(self) -> bool:
        """Whether enough was migrated for what is committed: judging is quicker."""
        pages = sum(map(len, self.group.pages.values()))
        return self.migrations * pages >= self.migrations_wanted * (sum(self.group.committed.values()) - pages // 4)

    def _work(self, random: Random) -> None:
        try:
            while not self.group.ended():
                self._live(random)
        except BaseException as error:
            self.group.wrong.append(repr(error))
            raise

    def _live(self, random: Random) -> None:
        """One life of a worker, to its crash."""
        worker = object()
        with suppress(Crashed, IndexMigrated):
            index = self.opened(random, worker)
            while not self.group.ended():
                until(self._may_go_on, "a migration", SECONDS, 0.005)
                partitions = self.group.assigned(worker, random)
                marks = {p: self.group.committed[p] for p in partitions}
                batch = [
                    page for p in partitions for page in self.group.pages[p][marks[p] : marks[p] + random.randint(1, 8)]
                ]
                try:
                    self.group.told(batch, index.check_and_insert(batch, marks), worker)
                except (IndexBusy, StaleObservation):
                    pass
                except IndexUnreachable:
                    with suppress(IndexUnreachable):
                        index.present([index.receipt()])
                if random.random() < 0.2:
                    self.group.leave(worker)
        self.group.leave(worker)


def forgetting(crowd: Crowd) -> None:
    """An operator who takes pages down, and who sometimes dies over it."""
    random, nobody = Random(crowd.random.random()), object()
    while not crowd.group.ended():
        with suppress(Crashed, IndexUnreachable, IndexMigrated):
            crowd.opened(random, nobody).forget(random.sample(range(1, 60), 2))


def over(nodes: Nodes, name: str, retention: Retention = FOR_EVER) -> ClusterIndex:
    """The index as it is now, over these nodes."""
    found = existing_cluster_index(nodes.client, name)
    return ClusterIndex(nodes, name, found.spec, found.generation, retention, keys=found.inside.placement.name)


class FaultyMigration(ClusterMigration):
    """A migration over these nodes."""

    def __init__(self, nodes, name):
        super().__init__(nodes.client, name, lambda progress: None)
        self._faulty = nodes

    def _steps(self):
        steps = Steps(over(self._faulty, self._name), self._name)
        steps.clean_up()
        return steps


def migrating(wanted: Sequence[Callable[[IndexSpec], IndexSpec]]) -> Callable[[Crowd], None]:
    """An operator who has the index migrated again and again, sometimes gives it up, and sometimes dies over it."""

    def migrate(crowd: Crowd) -> None:
        random, nobody = Random(crowd.random.random()), object()
        while not crowd.group.ended():
            nodes = FaultyNodes(crowd.client, random, crowd.share, lambda: crowd.group.stall(nobody))
            with suppress(Crashed, IndexUnreachable, IndexMigrated, IndexMismatch):
                migration = FaultyMigration(nodes, crowd.name)
                if random.random() < 0.1:
                    migration.abandon()
                else:
                    migration.run(random.choice(wanted))
                    crowd.migrations += 1

    return migrate


def moving(slots: Sequence[int]) -> Callable[[Crowd], None]:
    """Move slots from primary to primary, key by key, as a resharding does."""

    def move(crowd: Crowd) -> None:
        random = Random(crowd.random.random())
        for _ in range(MOVES):
            if crowd.group.ended():
                return
            move_slot(crowd.client, random.choice(slots), random)

    return move


def move_slot(client: redis.RedisCluster, slot: int, random: Random) -> None:
    """Move a slot to another primary."""
    nodes = {node.name: redis.Redis(host=node.host, port=node.port) for node in client.get_primaries()}
    ids = {name: node.execute_command("CLUSTER MYID").decode() for name, node in nodes.items()}
    source = next(name for name, node in nodes.items() if slot in owned(node))
    target = random.choice([name for name in nodes if name != source])
    nodes[target].execute_command("CLUSTER SETSLOT", slot, "IMPORTING", ids[source])
    nodes[source].execute_command("CLUSTER SETSLOT", slot, "MIGRATING", ids[target])
    host, _, port = target.rpartition(":")
    while keys := nodes[source].execute_command("CLUSTER GETKEYSINSLOT", slot, 2):
        nodes[source].execute_command("MIGRATE", host, port, "", 0, 5000, "KEYS", *keys)
    for name in (target, source, *nodes):
        nodes[name].execute_command("CLUSTER SETSLOT", slot, "NODE", ids[target])
    until(lambda: agreed(nodes.values(), slot, ids[target]), f"the cluster to know slot {slot}")


def agreed(nodes: Iterable[redis.Redis], slot: int, owner: str) -> bool:
    """Whether all primaries know whose a slot is, and which epoch each of them has, all different.

    A move takes a new epoch without asking, unless its target believes to have the newest. While one does not know
    another's, a late word of an earlier move can give a slot back to whom it was taken from: what was migrated is out
    of sight, or each of two says for ever that the other has it.
    """
    views = [node.execute_command("CLUSTER NODES").values() for node in nodes]
    epochs = [{row["node_id"]: row["epoch"] for row in view} for view in views]
    known = all(slot in slots_of(row) for view in views for row in view if row["node_id"] == owner)
    return known and all(each == epochs[0] for each in epochs) and len(set(epochs[0].values())) == len(epochs[0])


def owned(node: redis.Redis) -> set[int]:
    """The slots that a primary has."""
    (own,) = [row for row in node.execute_command("CLUSTER NODES").values() if "myself" in row["flags"]]
    return slots_of(own)


def slots_of(row: Mapping[str, Any]) -> set[int]:
    """The slots in a row of CLUSTER NODES; those that are moving stand there in another form."""
    return {slot for ends in row["slots"] if ends[0].isdecimal() for slot in range(int(ends[0]), int(ends[-1]) + 1)}


def partitioned(pages: Sequence[Entry], count: int) -> dict[Partition, list[Entry]]:
    """The pages, dealt to partitions in turn."""
    found: dict[Partition, list[Entry]] = {Partition("pages", n): [] for n in range(count)}
    for number, page in enumerate(pages):
        partition = Partition("pages", number % count)
        found[partition].append(replace(page, position=Position(partition, len(found[partition]))))
    return found


def assert_guarantees(group: Group, rule: Relation) -> None:
    """G1 by brute force, where nothing was forgotten; and G2."""
    by_observation = {page.observation: page for pages in group.pages.values() for page in pages}
    unique = {
        answer.decision.seq: by_observation[o]
        for o, answer in group.verdicts.items()
        if isinstance(answer.decision, Unique)
    }
    assert_apart(list(unique.values()), rule)
    assert_named(group, rule)


def assert_apart(representatives: Sequence[Entry], rule: Relation) -> None:
    """No two of these match."""
    for n, one in enumerate(representatives):
        assert not any(rule.matches(one, other) for other in representatives[:n])


def assert_named(group: Group, rule: Relation) -> None:
    """G2: every duplicate names a page that was itself called unique, at its true distance."""
    by_observation = {page.observation: page for pages in group.pages.values() for page in pages}
    unique = {
        answer.decision.seq: by_observation[o]
        for o, answer in group.verdicts.items()
        if isinstance(answer.decision, Unique)
    }
    for observation, answer in group.verdicts.items():
        if isinstance(answer.decision, Duplicate):
            page, named = by_observation[observation], unique[answer.decision.match.seq]
            assert named.url == answer.decision.match.url
            assert rule.matches(page, named)
            if page.fingerprint is not None and named.fingerprint is not None:
                assert answer.decision.distance == (page.fingerprint ^ named.fingerprint).bit_count()


def assert_whole(index: ClusterIndex) -> None:
    """Every record is in all its tables, bands and the log, nothing else is anywhere, and nobody holds a claim."""
    found = check(index.inside, lambda _: None)
    assert found.violations == []
    assert found.held == []
    assert found.records == len(list(index.scan()))
