"""Reading ahead of the judgement, in order and within bounds."""

import threading

import pytest

from worker.errors import InputError
from worker.files.inputs import Input
from worker.files.judged import MAX_BYTES, MAX_RECORDS, Reader
from worker.records.passing import RawRecord, Source


def made(name, records):
    return Input(name, None, lambda: iter(records), lambda: 0)


def numbered(count, value=b"x"):
    return [RawRecord(Source("t", 0, n, None), None, value) for n in range(count)]


def reading(*inputs, most=100, largest=1 << 20):
    return Reader(inputs, most, largest)


def taken_all(reader):
    batches = []
    while not reader.ended():
        batches.append(reader.take(timeout=10))
    return batches


def test_records_of_all_inputs_come_in_order_with_their_names():
    reader = reading(made("a", numbered(150)), made("b", numbered(150)))
    found = [(item.name, item.record.source.offset) for batch in taken_all(reader) for item in batch]
    assert found == [("a", n) for n in range(150)] + [("b", n) for n in range(150)]


def test_batches_have_bounds_in_records_and_in_bytes():
    assert {len(batch) for batch in taken_all(reading(made("a", numbered(200))))} == {100}
    batches = taken_all(reading(made("a", numbered(10, b"x" * 1000)), largest=2500))
    assert [len(batch) for batch in batches] == [3, 3, 3, 1]


def test_what_has_come_is_given_without_waiting_for_more():
    gate = threading.Event()

    def records():
        yield from numbered(2)
        gate.wait(30)

    reader = reading(Input("a", None, records, lambda: 0))
    assert len(reader.take(timeout=10)) == 2
    assert reader.take(timeout=0) == []
    assert not reader.ended()
    gate.set()
    assert reader.take(timeout=10) == []
    assert reader.ended()


def test_a_failure_comes_after_the_records_before_it():
    def records():
        yield from numbered(3)
        raise InputError("broken")

    reader = reading(Input("a", None, records, lambda: 0), made("b", numbered(5)))
    assert len(reader.take(timeout=10)) == 3
    assert reader.take(timeout=10) == []
    with pytest.raises(InputError, match="broken"):
        reader.ended()


@pytest.mark.parametrize(("value", "most"), [(b"x", MAX_RECORDS), (b"x" * (1 << 20), MAX_BYTES >> 20)])
def test_it_reads_no_further_ahead_than_its_bounds(value, most):
    read = []
    going_on = threading.Event()

    def records():
        for record in numbered(3 * most, value):
            read.append(record)
            if len(read) == most + 1:
                going_on.set()
            yield record

    reader = reading(Input("a", None, records, lambda: 0))
    assert going_on.wait(30)
    assert len(read) == most + 1
    assert sum(map(len, taken_all(reader))) == 3 * most
