"""A partition's life with this worker: which state follows which on what event, and what becomes of records in flight.

All of it is here, without I/O; the loop tells what happened and asks. Nothing else can happen to a partition than what
stands in `TABLE`. Records in flight, polled and not yet committed, are in batches.

    FOREIGN    another worker's, or nobody's: nothing that was polled of it may be committed
    UNCHECKED  ours, from an offset that was not yet held against the index's mark: nothing of it may be judged
    ACTIVE     ours, checked: it is judged and committed

Each time a partition becomes ours a new *tenure* of it begins, and so it does when it turns out that others have read
on meanwhile. A record belongs to the tenure in which it was polled, and to no other one of the same partition: what was
polled before a partition was lost is read again by whoever has it next, be it this worker.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum, auto
from types import MappingProxyType
from typing import NamedTuple

from simhash.index import Partition
from worker.judging.fingerprinters import Outcome, Pending
from worker.records.passing import Received


class State(Enum):
    """See the module."""

    FOREIGN = auto()
    UNCHECKED = auto()
    ACTIVE = auto()


class Event(Enum):
    """What can happen to a partition.

    GAINED: the group gave it to this worker. PASSED: its offset is not below the index's mark. READ_ON: it is, but
    others have read on since. COMMITTED: records of it were. LOST: the group gave it away, or put this worker out.
    """

    GAINED = auto()
    PASSED = auto()
    READ_ON = auto()
    COMMITTED = auto()
    LOST = auto()


TABLE: Mapping[tuple[State, Event], State] = MappingProxyType(
    {
        (State.FOREIGN, Event.GAINED): State.UNCHECKED,
        (State.UNCHECKED, Event.PASSED): State.ACTIVE,
        (State.UNCHECKED, Event.READ_ON): State.UNCHECKED,
        (State.UNCHECKED, Event.LOST): State.FOREIGN,
        (State.ACTIVE, Event.COMMITTED): State.ACTIVE,
        (State.ACTIVE, Event.LOST): State.FOREIGN,
    }
)


class ImpossibleEvent(Exception):
    """The loop told something that cannot happen to a partition in its state: a mistake in this program."""


@dataclass(frozen=True, slots=True)
class Life:
    """A partition as it stands.

    Attributes:
        tenure: counts up with each that begins; 0: it was never ours.
        committed: the offset below which all is answered; of a FOREIGN one it means nothing.
        watermark: what the index attested beside that commit, whoever made it.
        is_new: there is no such commit; the group has no offset of it.
    """

    state: State = State.FOREIGN
    tenure: int = 0
    committed: int = 0
    watermark: str = ""
    is_new: bool = False

    def after(
        self, event: Event, committed: int | None = None, watermark: str | None = None, is_new: bool | None = None
    ) -> Life:
        """The next state.

        Raises:
            ImpossibleEvent: there is none.
        """
        following = TABLE.get((self.state, event))
        if following is None:
            raise ImpossibleEvent(f"{event.name} of a partition that is {self.state.name}")
        return Life(
            following,
            self.tenure + (event in (Event.GAINED, Event.READ_ON)),
            self.committed if committed is None else committed,
            self.watermark if watermark is None else watermark,
            self.is_new if is_new is None else is_new,
        )


class Partitions:
    """All partitions that this worker ever had.

    Attributes:
        unchecked: those whose offset is to be held against the index.
    """

    def __init__(self) -> None:
        self._lives: dict[Partition, Life] = {}
        self.unchecked: set[Partition] = set()

    def __getitem__(self, partition: Partition) -> Life:
        return self._lives.get(partition, Life())

    def gained(self, partition: Partition, position: int, watermark: str, is_new: bool = False) -> None:
        """It is ours from `position`."""
        self._happened(partition, Event.GAINED, position, watermark, is_new)

    def passed(self, partition: Partition) -> None:
        """Where it begins is right."""
        self._happened(partition, Event.PASSED)

    def read_on(self, partition: Partition, position: int, watermark: str, is_new: bool = False) -> None:
        """It begins at `position` by now; what was polled of it is others' work."""
        self._happened(partition, Event.READ_ON, position, watermark, is_new)

    def committed(self, offsets: Mapping[Partition, int], watermark: str) -> None:
        """All below these offsets is answered."""
        for partition, offset in offsets.items():
            self._happened(partition, Event.COMMITTED, offset, watermark, False)

    def lost(self, partitions: Iterable[Partition]) -> None:
        """They are others' now."""
        for partition in partitions:
            self._happened(partition, Event.LOST)

    def ours(self) -> list[Partition]:
        """Those that are not foreign, in the order in which they first came."""
        return [partition for partition, life in self._lives.items() if life.state is not State.FOREIGN]

    def marks(self) -> dict[Partition, int]:
        """The committed offsets of the active ones, for the index."""
        return {p: life.committed for p, life in self._lives.items() if life.state is State.ACTIVE}

    def watermarks(self) -> list[str]:
        """What the index attested for the active ones, each once."""
        return list(dict.fromkeys(life.watermark for life in self._lives.values() if life.state is State.ACTIVE))

    def batch(self, received: Sequence[Received], pending: Pending) -> Batch:
        """A batch of records that were polled now."""
        polled = {Partition(*each.record.source[:2]) for each in received}
        tenures = {partition: self[partition].tenure for partition in polled}
        return Batch(received, pending, tenures, sum(each.record.size for each in received))

    def held(self, tenures: Mapping[Partition, int]) -> set[Partition]:
        """Those whose records, of these tenures, are still ours to answer."""
        lives = ((partition, self._lives.get(partition), tenure) for partition, tenure in tenures.items())
        return {p for p, life, tenure in lives if life and life.state is not State.FOREIGN and life.tenure == tenure}

    def owned(self, items: Iterable[Item], tenures: Mapping[Partition, int]) -> list[Item]:
        """What belongs to partitions that have stayed ours since these records were polled."""
        held = self.held(tenures)
        return [each for each in items if each.outcome.source[:2] in held]

    def _happened(
        self,
        partition: Partition,
        event: Event,
        committed: int | None = None,
        watermark: str | None = None,
        is_new: bool | None = None,
    ) -> None:
        life = self._lives[partition] = self[partition].after(event, committed, watermark, is_new)
        if life.state is State.UNCHECKED:
            self.unchecked.add(partition)
        else:
            self.unchecked.discard(partition)


class Item(NamedTuple):
    """A record, and what preparing it came to."""

    received: Received
    outcome: Outcome


@dataclass(frozen=True)
class Batch:
    """Records of one poll, being prepared in order.

    Attributes:
        tenures: in which tenure of its partition each record was polled.
        size: bytes of its records' values.
    """

    received: Sequence[Received]
    pending: Pending
    tenures: Mapping[Partition, int]
    size: int


def first_offsets(batches: Iterable[Batch], partitions: Partitions) -> dict[Partition, int]:
    """The first offset in flight of each partition, among the records that are still ours."""
    first: dict[Partition, int] = {}
    for batch in batches:
        held = partitions.held(batch.tenures)
        for each in batch.received:
            if (partition := Partition(*each.record.source[:2])) in held:
                first.setdefault(partition, each.record.source.offset)
    return first


def counts(batches: Iterable[Batch], partitions: Partitions) -> Counter[Partition]:
    """The records in flight of each partition, among those that are still ours."""
    found: Counter[Partition] = Counter()
    for batch in batches:
        held = partitions.held(batch.tenures)
        found.update(p for each in batch.received if (p := Partition(*each.record.source[:2])) in held)
    return found


@dataclass
class Standstill:
    """Partitions of which no record comes, though there are some and nothing else is to do.

    The client's fetches are trusted no further than this: in it a partition has been forgotten before.
    """

    patience: float
    _since: dict[Partition, float] = field(default_factory=dict)

    def came(self, now: float, partitions: Iterable[Partition]) -> None:
        """Records of these came, or these themselves."""
        self._since.update(dict.fromkeys(partitions, now))

    def excuse(self) -> None:
        """None was asked for."""
        self._since.clear()

    def look(self, now: float, behind: Mapping[Partition, int]) -> list[Partition]:
        """The partitions that stand still for `patience` seconds by now; `behind`: how many offsets each has to go."""
        self._since = {
            partition: self._since.get(partition, now) if count else now for partition, count in behind.items()
        }
        return [partition for partition, since in self._since.items() if now - since >= self.patience]
