"""Ways to break an index in Redis, one invariant each: the same on one primary and on a cluster, by the same names."""

from simhash.index.cluster.placement import LOG_SEGMENT
from simhash.index.spots import band_spots, table_spots
from tests.pages import PAGES, entry


def damage_to(backend, index):
    """What can be done to an index."""
    return (OnCluster if backend.clustered else OnPrimary)(backend.client, index)


class Damage:
    """What is alike. Every method takes a fingerprint that has one record, and that record."""

    def __init__(self, client, index):
        self.client = client
        self.inside = index.inside
        self.layout = index.inside.layout

    def no_member(self, fingerprint, record):
        assert self.remove(self.tables(fingerprint)[3]) == 1

    def no_band(self, fingerprint, record):
        assert self.remove(self.bands(fingerprint, record)[0]) == 1

    def stray_member(self, fingerprint, record):
        self.add(self.tables(fingerprint ^ (1 << 40))[2])

    def no_record(self, fingerprint, record):
        self.client.hdel(self.records(fingerprint), self.layout.key_of(fingerprint))

    def no_short_record(self, fingerprint, record):
        key = next(iter(self.client.scan_iter(self.short)))
        self.client.hdel(key, self.client.hkeys(key)[0])

    def record_elsewhere(self, fingerprint, record):
        value = self.client.hget(self.records(fingerprint), self.layout.key_of(fingerprint))
        self.client.hset(self.records(fingerprint ^ (1 << 63)), self.layout.key_of(fingerprint), value)

    def unreadable_record(self, fingerprint, record):
        self.client.hset(self.records(fingerprint), self.layout.key_of(fingerprint), b"\xff\x00")

    def wrong_counter(self, fingerprint, record):
        self.client.hincrby(self.meta, "documents", 1)

    def old_journal(self, fingerprint, record):
        offset = next(field for field in self.client.hkeys(self.journal) if field != b"mark")
        self.client.hset(self.journal, "mark", int.from_bytes(offset) + 1)

    def strange_journal(self, fingerprint, record):
        self.client.hset(self.journal, (10**6).to_bytes(6), b"abc")


class OnPrimary(Damage):
    def __init__(self, client, index):
        super().__init__(client, index)
        self.meta, self.journal, self.short = (
            self.layout.meta,
            self.layout.journal(PAGES),
            f"{self.layout.digests_start}*",
        )

    def members(self, fingerprint, record):
        return [*self.tables(fingerprint), *self.bands(fingerprint, record)]

    def tables(self, fingerprint):
        return table_spots(self.layout, fingerprint)

    def bands(self, fingerprint, record):
        return band_spots(self.layout, fingerprint, [record])

    def records(self, fingerprint):
        return self.layout.records(fingerprint)

    def remove(self, spot):
        return self.client.zrem(spot.key, *spot.forms)

    def add(self, spot):
        self.client.zadd(spot.key, {spot.member: spot.score})

    def stray_band(self, fingerprint, record):
        self.client.zadd(self.layout.band(0) + "0" * self.layout.digits, {self.layout.key_of(fingerprint): 5})

    def swapped_log(self, fingerprint, record):
        at = record.seq - 1
        other = self.client.lindex(self.layout.log, at + 1)
        self.client.lset(self.layout.log, at + 1, self.client.lindex(self.layout.log, at))
        self.client.lset(self.layout.log, at, other)

    def strange_log(self, fingerprint, record):
        self.client.lset(self.layout.log, 0, "abc")

    def strange_key(self, fingerprint, record):
        self.client.set(f"{self.layout.name}:t99:0", "")

    def wrong_score(self, fingerprint, record):
        spot = table_spots(self.layout, fingerprint)[3]
        own = next(form for form in spot.forms if self.client.zscore(spot.key, form) == spot.score)
        self.client.zadd(spot.key, {own: spot.score ^ 1})

    def member_twice(self, fingerprint, record):
        spot = table_spots(self.layout, fingerprint)[0]
        self.client.zadd(spot.key, dict.fromkeys(spot.forms, spot.score))

    def records_out_of_order(self, fingerprint, record):
        value = self.client.hget(self.records(fingerprint), self.layout.key_of(fingerprint))
        pair = b"".join(len(v).to_bytes(2) + v for v in (value, (0).to_bytes(5) + b"\x00" + value[6:]))
        self.client.hset(self.records(fingerprint), self.layout.key_of(fingerprint), b"\xff" + pair)

    def gone_but_there(self, fingerprint, record):
        self.client.zadd(self.layout.gone, {record.seq: record.seq})


class OnCluster(Damage):
    def __init__(self, client, index):
        super().__init__(client, index)
        self.placement, claims = self.inside.placement, self.inside.claims
        self.meta, self.journal, self.short = claims.meta, claims.journal(PAGES), f"{{{self.inside.name}:*}}:x:*"
        self.slot = self.meta.removesuffix("meta")

    def members(self, fingerprint, record):
        tables, bands = self.placement.members(fingerprint, [record.verifier])
        return tables | bands

    def tables(self, fingerprint):
        return sorted(self.placement.members(fingerprint, [])[0])

    def bands(self, fingerprint, record):
        return sorted(self.placement.members(fingerprint, [record.verifier])[1])

    def records(self, fingerprint):
        return self.placement.records_of(fingerprint).spot.key

    def remove(self, member):
        return self.client.zrem(member.spot.key, member.member)

    def add(self, member):
        self.client.zadd(member.spot.key, {member.member: 0})

    def stray_band(self, fingerprint, record):
        self.add(
            sorted(
                self.placement.members(fingerprint, [record.verifier ^ 1])[1] - set(self.bands(fingerprint, record))
            )[0]
        )

    def log_entry(self, seq):
        return self.placement.logged(seq).spot.key, seq.to_bytes(6)

    def swapped_log(self, fingerprint, record):
        here, there = self.log_entry(record.seq), self.log_entry(record.seq + 1)
        values = self.client.hget(*here), self.client.hget(*there)
        self.client.hset(*here, values[1])
        self.client.hset(*there, values[0])

    def strange_log(self, fingerprint, record):
        self.client.hset(*self.log_entry(1), b"123456abc")

    def strange_key(self, fingerprint, record):
        self.client.set(f"{{{self.placement.tags[0]}}}:t99:0", "")

    def record_twice(self, fingerprint, record):
        value = self.client.hget(self.records(fingerprint), self.layout.key_of(fingerprint))
        self.client.hset(self.records(fingerprint), self.layout.key_of(fingerprint), value * 2)

    def entry_for_nothing(self, fingerprint, record):
        seq = 10 * LOG_SEGMENT
        self.client.hset(*self.log_entry(seq), bytes(6) + self.layout.key_of(fingerprint))

    def lost_claim(self, fingerprint, record):
        self.client.hset(f"{self.slot}meet", b"f" + bytes(8), b"no such claim at")

    def stray_claim(self, fingerprint, record):
        """One whose keys are taken away."""
        self.half_claimed()
        self.client.delete(f"{self.slot}meet")

    def half_claimed(self):
        self.inside.claims.claim([entry(9999, 0xABCD << 40, 0)], {}, "")
