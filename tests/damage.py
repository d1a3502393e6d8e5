"""Ways to break an index in Redis, one invariant each."""

from simhash.index.redis.layout import number
from simhash.index.redis.operators.spots import spots
from tests.pages import PAGES


class Damage:
    """What can be done to an index. Every method takes a fingerprint that has one record, and that record."""

    def __init__(self, client, index):
        self.client = client
        self.index = index
        self.layout = index.inside.layout

    def members(self, fingerprint, record):
        return [spot for spot in spots(self.layout, fingerprint, record) if spot]

    def take(self, spot):
        """What stands in a place leaves it."""
        place = self.client.hget(spot.key, spot.field)
        assert self.client.hdel(spot.key, spot.field) == 1
        return place

    def tables(self, fingerprint, record):
        return self.members(fingerprint, record)[: len(self.layout.spec.relation.design.tables)]

    def no_member(self, fingerprint, record):
        self.take(self.tables(fingerprint, record)[3])

    def no_band(self, fingerprint, record):
        self.take(self.members(fingerprint, record)[-1])

    def stray_member(self, fingerprint, record):
        other = self.layout.spec.relation.design.tables[2]
        bucket, field, rest = self.layout.place(other, fingerprint ^ (1 << 40))
        self.client.hset(self.layout.table(2) + bucket, field, rest + number(record.seq))

    def stray_band(self, fingerprint, record):
        self.client.hset(self.layout.band(0) + "0" * self.layout.digits, 5, number(record.seq))

    def half_a_number(self, fingerprint, record):
        spot = self.tables(fingerprint, record)[1]
        self.client.hset(spot.key, spot.field, self.client.hget(spot.key, spot.field)[:-1])

    def no_record(self, fingerprint, record):
        self.client.hdel(*self.layout.records(record.seq))

    def no_short_record(self, fingerprint, record):
        seq = next(record.seq for other, record in self.index.scan() if other is None)
        self.client.hdel(*self.layout.records(seq))

    def no_digest(self, fingerprint, record):
        key = next(iter(self.client.scan_iter(f"{self.layout.digests_start}*", count=10_000)))
        self.client.hdel(key, self.client.hkeys(key)[0])

    def record_elsewhere(self, fingerprint, record):
        self.client.hset(*self.layout.records(10**6), self.client.hget(*self.layout.records(record.seq)))

    def unreadable_record(self, fingerprint, record):
        self.client.hset(*self.layout.records(record.seq), b"\xff\x00")

    def record_of_another_number(self, fingerprint, record):
        key, _ = self.layout.records(record.seq)
        self.client.hset(key, "07", self.client.hget(*self.layout.records(record.seq)))

    def swapped_records(self, fingerprint, record):
        other = next(r.seq for f, r in self.index.scan() if f not in (None, fingerprint))
        values = [self.client.hget(*self.layout.records(seq)) for seq in (record.seq, other)]
        for seq, value in zip((other, record.seq), values, strict=True):
            self.client.hset(*self.layout.records(seq), value)

    def crowded_without_record(self, fingerprint, record):
        self.client.hset(*self.layout.crowd_field(fingerprint, record.digest), number(10**6))

    def wrong_counter(self, fingerprint, record):
        self.client.hincrby(self.layout.meta, "documents", 1)

    def key_of_another_type(self, fingerprint, record):
        spot = self.tables(fingerprint, record)[1]
        self.client.delete(spot.key)
        self.client.set(spot.key, "")

    def no_number_in_meta(self, fingerprint, record):
        self.client.hset(self.layout.meta, "seq", "many")

    def strange_key(self, fingerprint, record):
        self.client.set(f"{self.layout.tag}:t99:0", "")

    def wrong_field(self, fingerprint, record):
        spot = self.tables(fingerprint, record)[3]
        self.client.hset(spot.key, int(spot.field) ^ 1, self.take(spot))

    def member_twice(self, fingerprint, record):
        spot = self.tables(fingerprint, record)[0]
        self.client.hset(spot.key, spot.field, 2 * self.client.hget(spot.key, spot.field))

    def gone_but_there(self, fingerprint, record):
        self.client.zadd(self.layout.tombstones, {record.seq: record.seq})

    def old_journal(self, fingerprint, record):
        journal = self.layout.journal(PAGES)
        offset = next(field for field in self.client.hkeys(journal) if field != b"mark")
        self.client.hset(journal, "mark", int.from_bytes(offset) + 1)

    def strange_journal(self, fingerprint, record):
        self.client.hset(self.layout.journal(PAGES), (10**6).to_bytes(6), b"abc")
