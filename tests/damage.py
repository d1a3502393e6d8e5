"""Ways to break an index in Redis, one invariant each."""

from simhash.index.redis.operators.spots import spots
from tests.pages import PAGES


class Damage:
    """What can be done to an index. Every method takes a fingerprint that has one record, and that record."""

    def __init__(self, client, index):
        self.client = client
        self.layout = index.inside.layout

    def members(self, fingerprint, record):
        return [spot for spot in spots(self.layout, self.name_of(fingerprint, record), record) if spot]

    def name_of(self, fingerprint, record):
        """The record's name: its fingerprint, or that and its number."""
        own = self.layout.key_of(fingerprint)
        value = self.client.hget(self.layout.records(fingerprint), own)
        return own if value and self.layout.record(value) == record else own + record.seq.to_bytes(6)

    def tables(self, fingerprint, record):
        return self.members(fingerprint, record)[: len(self.layout.spec.relation.design.tables)]

    def no_member(self, fingerprint, record):
        spot = self.tables(fingerprint, record)[3]
        assert self.client.zrem(spot.key, spot.member) == 1

    def no_band(self, fingerprint, record):
        spot = self.members(fingerprint, record)[-1]
        assert self.client.zrem(spot.key, spot.member) == 1

    def stray_member(self, fingerprint, record):
        other = self.layout.spec.relation.design.tables[2]
        bucket, score, member = self.layout.place(other, fingerprint ^ (1 << 40))
        self.client.zadd(self.layout.table(2) + bucket, {member: score})

    def stray_band(self, fingerprint, record):
        self.client.zadd(self.layout.band(0) + "0" * self.layout.digits, {self.layout.key_of(fingerprint): 5})

    def no_record(self, fingerprint, record):
        self.client.hdel(self.layout.records(fingerprint), self.layout.key_of(fingerprint))

    def no_short_record(self, fingerprint, record):
        key = next(iter(self.client.scan_iter(f"{self.layout.digests_start}*")))
        self.client.hdel(key, self.client.hkeys(key)[0])

    def record_elsewhere(self, fingerprint, record):
        value = self.client.hget(self.layout.records(fingerprint), self.layout.key_of(fingerprint))
        self.client.hset(self.layout.records(fingerprint ^ (1 << 63)), self.layout.key_of(fingerprint), value)

    def unreadable_record(self, fingerprint, record):
        self.client.hset(self.layout.records(fingerprint), self.layout.key_of(fingerprint), b"\xff\x00")

    def record_of_another_number(self, fingerprint, record):
        key, own = self.layout.records(fingerprint), self.layout.key_of(fingerprint)
        self.client.hset(key, own + (record.seq + 1).to_bytes(6), self.client.hget(key, own))

    def crowded_without_record(self, fingerprint, record):
        key, field = self.layout.crowd_field(self.layout.key_of(fingerprint), record)
        self.client.hset(key, field, (10**6).to_bytes(6) + b"1" * 12)

    def wrong_counter(self, fingerprint, record):
        self.client.hincrby(self.layout.meta, "documents", 1)

    def swapped_log(self, fingerprint, record):
        at = record.seq - 1
        other = self.client.lindex(self.layout.log, at + 1)
        self.client.lset(self.layout.log, at + 1, self.client.lindex(self.layout.log, at))
        self.client.lset(self.layout.log, at, other)

    def strange_log(self, fingerprint, record):
        self.client.lset(self.layout.log, 0, "abc")

    def strange_key(self, fingerprint, record):
        self.client.set(f"{self.layout.tag}:t99:0", "")

    def wrong_score(self, fingerprint, record):
        spot = self.tables(fingerprint, record)[3]
        self.client.zadd(spot.key, {spot.member: spot.score ^ 1})

    def member_twice(self, fingerprint, record):
        spot = self.tables(fingerprint, record)[0]
        self.client.zadd(spot.key, {spot.member + record.seq.to_bytes(6): spot.score})

    def gone_but_there(self, fingerprint, record):
        self.client.zadd(self.layout.tombstones, {record.seq: record.seq})

    def old_journal(self, fingerprint, record):
        journal = self.layout.journal(PAGES)
        offset = next(field for field in self.client.hkeys(journal) if field != b"mark")
        self.client.hset(journal, "mark", int.from_bytes(offset) + 1)

    def strange_journal(self, fingerprint, record):
        self.client.hset(self.layout.journal(PAGES), (10**6).to_bytes(6), b"abc")
