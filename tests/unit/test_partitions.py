"""A partition's life, every event in every state; and what becomes of records in flight, over random lives."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from simhash.index import Partition
from worker.records.passing import RawRecord, Received, Source
from worker.stream.partitions import (
    TABLE,
    Event,
    ImpossibleEvent,
    Life,
    Partitions,
    State,
    counts,
    first_offsets,
)

PAGES = Partition("pages", 0)


@pytest.mark.parametrize(("state", "event"), list(itertools.product(State, Event)))
def test_what_follows_is_in_the_table_and_nothing_else_can_happen(state, event):
    life = Life(state, 3, 10, "a watermark")
    if (state, event) in TABLE:
        assert life.after(event).state is TABLE[state, event]
    else:
        with pytest.raises(ImpossibleEvent, match=f"{event.name} of a partition that is {state.name}"):
            life.after(event)


def test_every_state_can_be_reached_and_left():
    assert {following for _, following in TABLE.items()} == set(State)
    assert {state for state, _ in TABLE} == set(State)
    assert {event for _, event in TABLE} == set(Event)


def test_what_is_ours_can_always_be_lost_and_what_is_not_never():
    assert {state for state, event in TABLE if event is Event.LOST} == set(State) - {State.FOREIGN}
    assert {following for (_, event), following in TABLE.items() if event is Event.LOST} == {State.FOREIGN}


def test_nothing_is_committed_or_told_to_the_index_that_was_not_checked():
    assert [state for state, event in TABLE if event is Event.COMMITTED] == [State.ACTIVE]
    partitions = Partitions()
    partitions.gained(PAGES, 7, "a watermark")
    assert (partitions.unchecked, partitions.marks(), partitions.watermarks()) == ({PAGES}, {}, [])
    with pytest.raises(ImpossibleEvent):
        partitions.committed({PAGES: 9}, "another")
    partitions.passed(PAGES)
    assert (partitions.unchecked, partitions.marks(), partitions.watermarks()) == (set(), {PAGES: 7}, ["a watermark"])
    partitions.committed({PAGES: 9}, "another")
    assert (partitions.marks(), partitions.watermarks()) == ({PAGES: 9}, ["another"])
    partitions.lost([PAGES])
    assert (partitions.ours(), partitions.marks(), partitions.watermarks()) == ([], {}, [])


def test_what_was_polled_before_a_partition_was_lost_is_not_gone_back_to():
    """It came back, further on: what others have answered meanwhile would be read, and answered, once more."""
    partitions = Partitions()
    partitions.gained(PAGES, 80, "")
    before = in_flight(partitions, 80, 90)
    assert first_offsets([before], partitions) == {PAGES: 80}
    partitions.lost([PAGES])
    partitions.gained(PAGES, 100, "")
    assert first_offsets([before], partitions) == {}
    after = in_flight(partitions, 100, 110)
    assert first_offsets([before, after], partitions) == {PAGES: 100}
    assert counts([before, after], partitions) == {PAGES: 10}


def in_flight(partitions, begin, end):
    """A batch of records that were polled now."""
    records = [Received(RawRecord(Source(*PAGES, offset, None), b"", b""), []) for offset in range(begin, end)]
    return partitions.batch(records, None)


@given(events=st.lists(st.sampled_from(Event), max_size=30))
def test_a_record_is_ours_exactly_as_long_as_nothing_came_between(events):
    """A record polled now is answered only if its partition was neither lost nor read on by others since."""
    partitions, polled, position = Partitions(), [], 0
    for event in events:
        if (partitions[PAGES].state, event) not in TABLE:
            continue
        position += 1
        match event:
            case Event.GAINED:
                partitions.gained(PAGES, position, "")
            case Event.PASSED:
                partitions.passed(PAGES)
            case Event.READ_ON:
                partitions.read_on(PAGES, position, "")
            case Event.COMMITTED:
                partitions.committed({PAGES: position}, "")
            case Event.LOST:
                partitions.lost([PAGES])
        assert partitions.unchecked == ({PAGES} if partitions[PAGES].state is State.UNCHECKED else set())
        if event in (Event.GAINED, Event.READ_ON, Event.LOST):
            assert not any(partitions.held({PAGES: tenure}) for tenure in polled)
        if partitions[PAGES].state is not State.FOREIGN:
            polled.append(partitions[PAGES].tenure)
            assert partitions.held({PAGES: polled[-1]}) == {PAGES}
