"""Random histories of one index on a real Redis, against a model that shares no code with the judging.

Two clients hand in new pages, copies and near-duplicates of earlier ones, crowds of one prefix, and what they handed in
before. Between, marks move, records are taken down, the count is lowered, and the index gets other tables. The model
has its records in a dictionary, and knows of an index what ARCHITECTURE.md says ("Places are bounded").
"""

from dataclasses import dataclass, field, replace
from random import Random

import pytest

from simhash.errors import StaleObservation
from simhash.index import Entry, Partition, Position, Retention, Unique
from simhash.index.interface import Record, Relation
from simhash.index.redis.layout import bucket_bits
from simhash.index.redis.opening import open_index
from simhash.index.redis.operators.migration import Migration
from simhash.index.redis.operators.operations import Operations
from simhash.index.redis.operators.takedowns import Found, take_down
from simhash.relation.tables import design

BITS, BAND_BITS, FIELD_BITS = 64, 32, 7
DESIGNS = ("3", "3-probed", "4", "6", "2-probed", "4c2r1", "7c3")
CAPACITIES = (10, 1000, 100_000)
MOST_COMPARED = 40
"""So few that places of most designs take two to eight."""
FORGOTTEN_PER_PAGE, GAPS_FOR_A_RECORD = 2, 32


@dataclass
class Rule:
    """Which pages match, and what a place takes, in one design."""

    name: str
    capacity: int
    reach: int
    verifier_bits: int
    verifier_reach: int
    bands: int

    def relation(self):
        return Relation(design(self.name), self.reach, self.verifier_reach, self.verifier_bits, self.bands)

    def leads(self):
        """Of each table the bits of its prefix, and whether it is probed at distance 1."""
        told = design(self.name).describe()
        count = len(told["tables"])
        radii = told["radius"] if isinstance(told["radius"], list) else [told["radius"]] * count
        for (prefix, blocks), radius in zip(told["tables"], radii, strict=True):
            bits = [BITS - 1 - bit for start, width in blocks for bit in range(start, start + width)]
            yield sum(1 << bit for bit in bits[:prefix]), radius


@dataclass
class Model:
    """Records by number; which of them stand in which place; the journal."""

    rule: Rule
    rows: dict = field(default_factory=dict)
    first: int = 1
    seq: int = 0
    journal: dict = field(default_factory=dict)

    def __post_init__(self):
        self.move_to(self.rule)

    def move_to(self, rule):
        """Other tables: all that there is is stored once more, the oldest first."""
        self.rule, self.tables = rule, [*rule.leads()]
        self.limit = max(1, MOST_COMPARED // (sum(1 + radius for _, radius in self.tables) + rule.bands))
        self.band_bits = min(BAND_BITS, bucket_bits(rule.capacity, design(rule.name)) + FIELD_BITS)
        self.places, self.crowded = {}, {}
        for seq in sorted(self.rows):
            self.stand(seq)

    def keys(self, page):
        """The band keys, first to last."""
        return [page.verifier >> BAND_BITS * i & (1 << BAND_BITS) - 1 for i in reversed(range(self.rule.bands))]

    def places_of(self, page):
        for number, (lead, _) in enumerate(self.tables):
            yield "table", number, page.fingerprint & lead
        for number, key in enumerate(self.keys(page)):
            if key:
                yield "band", number, key >> BAND_BITS - self.band_bits

    def copy_of(self, page):
        return page.fingerprint, page.digest[:21]

    def stand(self, seq):
        page, _ = self.rows[seq]
        if page.fingerprint is None:
            return
        for place in self.places_of(page):
            standing = self.places.setdefault(place, [])
            if len(standing) < self.limit:
                standing.append(seq)
            else:
                self.crowded[self.copy_of(page)] = seq

    def drop(self, seq):
        page, _ = self.rows.pop(seq)
        for standing in self.places.values():
            if seq in standing:
                standing.remove(seq)
        if page.fingerprint is not None and self.crowded.get(self.copy_of(page)) == seq:
            del self.crowded[self.copy_of(page)]

    def met(self, page):
        """The numbers that a page is compared with."""
        if page.fingerprint is None:
            return {
                seq for seq, (other, _) in self.rows.items() if (other.fingerprint, other.digest) == (None, page.digest)
            }
        found = {self.crowded.get(self.copy_of(page))} - {None}
        for number, (lead, radius) in enumerate(self.tables):
            found.update(self.places.get(("table", number, page.fingerprint & lead), []))
            flips = [1 << bit for bit in range(BITS) if radius and lead >> bit & 1]
            beside = [self.places.get(("table", number, (page.fingerprint ^ flip) & lead), []) for flip in flips]
            few = sum(map(len, beside)) <= self.limit
            for standing in beside:
                found.update(standing if few else standing[: max(1, self.limit // len(flips))])
        for place in self.places_of(page):
            if place[0] == "band":
                found.update(seq for seq in self.places.get(place, []) if self.shares_band(page, self.rows[seq][0]))
        return found

    def shares_band(self, a, b):
        return any(x == y != 0 for x, y in zip(self.keys(a), self.keys(b), strict=True))

    def distance(self, a, b):
        """In bits; None: beyond reach."""
        if a.fingerprint is None:
            return 0
        apart = (a.fingerprint ^ b.fingerprint).bit_count()
        return apart if apart <= self.rule.reach else None

    def verified(self, a, b):
        behind = BAND_BITS * self.rule.bands
        return a.fingerprint is None or ((a.verifier ^ b.verifier) >> behind).bit_count() <= self.rule.verifier_reach

    def live(self, now, kept):
        rows = sorted(self.rows)
        if kept.max_documents is not None:
            rows = rows[max(0, len(rows) - kept.max_documents) :]
        return {seq for seq in rows if kept.max_age_ms is None or self.rows[seq][1] >= now - kept.max_age_ms}

    def judge(self, page, now, kept):
        journal = self.journal.setdefault(page.position.partition, {})
        observation, answer = journal.get(page.position.offset, (None, None))
        left = self.forget(FORGOTTEN_PER_PAGE, now, kept)
        if observation != page.observation:
            answer = self.decide(page, now, kept)
            journal[page.position.offset] = page.observation, answer
        self.forget(left, now, kept)
        return answer

    def decide(self, page, now, kept):
        near = [
            seq
            for seq in sorted(self.met(page) & self.live(now, kept))
            if self.distance(page, self.rows[seq][0]) is not None
        ]
        for seq in near:
            if self.rows[seq][0].observation[:8] == page.observation[:8]:
                return "unique", seq
        for seq in near:
            other = self.rows[seq][0]
            if self.verified(page, other):
                return "duplicate", seq, self.distance(page, other), other.url
        self.make_room(page, now, kept)
        self.seq += 1
        self.rows[self.seq] = page, now
        self.stand(self.seq)
        return "unique", self.seq

    def make_room(self, page, now, kept):
        """Of each full place the oldest goes if it is over."""
        if page.fingerprint is None:
            return
        for standing in [[*self.places.get(place, [])] for place in self.places_of(page)]:
            if len(standing) == self.limit and standing[0] in self.rows and standing[0] not in self.live(now, kept):
                self.drop(standing[0])

    def forget(self, budget, now, kept):
        """What is over goes, oldest first, a few with each page; how much of the budget is left."""
        if kept == Retention():
            return budget
        while budget > 0 and self.first <= self.seq:
            if self.first not in self.rows:
                budget -= 1 / GAPS_FOR_A_RECORD
            else:
                is_old = kept.max_age_ms is not None and self.rows[self.first][1] < now - kept.max_age_ms
                if not is_old and not (kept.max_documents is not None and len(self.rows) > kept.max_documents):
                    return budget
                self.drop(self.first)
                budget -= 1
            self.first += 1
        return budget

    def mark(self, partition, offset):
        journal = self.journal.setdefault(partition, {})
        self.journal[partition] = {at: decided for at, decided in journal.items() if at >= offset}


class Pages:
    """Pages, each unlike, a copy of, or near one before; some of a crowd, which share most places and do not match."""

    def __init__(self, random, rule):
        self.random, self.rule = random, rule
        self.made = []
        self.crowds = [random.getrandbits(BITS) for _ in range(random.choice([1, 3]))]
        self.crowding = random.choice([0.1, 0.6])

    def next(self, partition, offset):
        random, number = self.random, len(self.made)
        page = Entry(
            observation=random.randbytes(16),
            position=Position(partition, offset),
            fingerprint=None,
            verifier=None,
            digest=f"raw:{random.randrange(5):032x}",
            url=f"https://a.example/{number}",
        )
        if random.random() < 0.9:
            page = replace(page, **self.text())
        self.made.append(page)
        return page

    def text(self):
        random, rule = self.random, self.rule
        before = [page for page in self.made[-100:] if page.fingerprint is not None]
        drawn = random.random()
        if before and drawn < 0.15:
            copied = random.choice(before)
            return {"fingerprint": copied.fingerprint, "verifier": copied.verifier, "digest": copied.digest}
        width = rule.verifier_bits + BAND_BITS * rule.bands
        if before and drawn < 0.5:
            near = random.choice(before)
            flips = random.sample(range(BITS), random.choice([0, 1, 2, 4, rule.reach, rule.reach + 1]))
            fingerprint = near.fingerprint ^ sum(1 << bit for bit in flips)
            flips = random.sample(range(width), random.choice([0, 1, rule.verifier_reach, rule.verifier_reach + 2]))
            verifier = near.verifier ^ sum(1 << bit for bit in flips)
        else:
            is_one_of_many = random.random() < self.crowding
            fingerprint = (
                random.choice(self.crowds) ^ random.getrandbits(3) if is_one_of_many else random.getrandbits(BITS)
            )
            verifier = random.getrandbits(width)
        if rule.bands and random.random() < 0.2:
            verifier = verifier >> BAND_BITS << BAND_BITS  # no last key
        return {"fingerprint": fingerprint, "verifier": verifier, "digest": f"text:{random.getrandbits(128):032x}"}


def told(answer):
    decision = answer.decision
    if isinstance(decision, Unique):
        return "unique", decision.seq
    return "duplicate", decision.match.seq, decision.distance, decision.match.url


class History:
    """One index, its model, and what may happen to both."""

    def __init__(self, client, name, seed):
        self.random = random = Random(seed)
        self.client, self.name, self.now = client, name, 1_000_000
        bits = random.choice([64, 128])
        rule = Rule(
            random.choice(DESIGNS),
            random.choice(CAPACITIES),
            random.choice([3, 6, 12]),
            bits,
            bits // 5,
            random.choice([0, 3]),
        )
        self.kept = Retention(random.choice([None, None, 30_000]), random.choice([None, None, 40, 150]))
        self.model, self.pages = Model(rule), Pages(random, rule)
        self.partitions = [Partition("pages", number) for number in range(random.choice([1, 3]))]
        self.sent = {partition: [] for partition in self.partitions}
        self.committed = dict.fromkeys(self.partitions, 0)
        self.marked = dict.fromkeys(self.partitions, 0)
        self.open()

    def open(self):
        rule = self.model.rule
        given = (self.client, self.name, {}, rule.relation(), rule.capacity, self.kept, lambda: self.now)
        self.clients = [open_index(*given) for _ in range(2)]

    def hand_in(self):
        batch = []
        for partition in self.random.sample(self.partitions, self.random.randint(1, len(self.partitions))):
            if self.random.random() < 0.4:  # what is not committed comes again
                batch += self.sent[partition][self.committed[partition] :]
            for _ in range(self.random.choice([0, 1, 20, 50])):
                page = self.pages.next(partition, len(self.sent[partition]))
                self.sent[partition].append(page)
                batch.append(page)
        if self.random.random() < 0.2:
            self.random.shuffle(batch)
        if not batch:
            return
        marks = dict(self.committed)
        for partition, offset in marks.items():
            self.model.mark(partition, offset)
            self.marked[partition] = offset
        answers = self.random.choice(self.clients).check_and_insert(batch, marks)
        assert [*map(told, answers)] == [self.model.judge(page, self.now, self.kept) for page in batch]

    def commit(self):
        for partition, sent in self.sent.items():
            self.committed[partition] = self.random.randint(self.committed[partition], len(sent))

    def hand_in_what_is_committed(self):
        for partition, mark in self.marked.items():
            if mark:
                with pytest.raises(StaleObservation):
                    self.clients[0].check_and_insert([self.sent[partition][mark - 1]], {})

    def take_down(self):
        gone = self.random.sample(sorted(self.model.rows), min(len(self.model.rows), self.random.choice([1, 25])))
        rows = [(seq, self.model.rows[seq][0]) for seq in gone]
        take_down(self.clients[0].inside, [Found(page.fingerprint, Record.of(page, seq, 0)) for seq, page in rows])
        for seq in gone:
            self.model.drop(seq)

    def lower_the_count(self):
        if self.kept.max_documents:
            self.kept = replace(self.kept, max_documents=self.kept.max_documents * self.random.choice([1, 3]) // 4)
            self.open()

    def migrate(self):
        rule = replace(self.model.rule, name=self.random.choice(DESIGNS), capacity=self.random.choice(CAPACITIES))
        bits = bucket_bits(rule.capacity, design(rule.name))
        Migration(self.client, self.name, lambda progress: None).run(
            lambda spec: replace(spec, relation=rule.relation(), bucket_bits=bits, capacity=rule.capacity)
        )
        self.model.move_to(rule)
        self.open()


@pytest.mark.parametrize("seed", range(12))
def test_every_answer_is_the_models_whatever_happened_and_the_index_is_whole(client, name, monkeypatch, seed):
    monkeypatch.setattr("simhash.index.interface.LEAST_IN_PLACE", 1)
    monkeypatch.setattr("simhash.index.interface.MOST_COMPARED", MOST_COMPARED)
    history = History(client, name, seed)
    events = [history.hand_in] * 12 + [history.commit] * 4
    events += [history.hand_in_what_is_committed, history.take_down, history.lower_the_count, history.migrate]
    for _ in range(40):
        history.now += history.random.choice([0, 100, 10_000])
        history.random.choice(events)()
    operations = Operations(history.clients[0])
    assert not operations.check(lambda found: None).violations
    assert {found.record.seq for found in operations.records(history.model.seq)} == set(history.model.rows)
