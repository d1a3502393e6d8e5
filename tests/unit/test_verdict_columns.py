"""Verdicts as columns: what went in comes out, row by row, in so many bytes a verdict."""

from random import Random

import msgspec
import numpy as np
import pytest

from worker.errors import InputError
from worker.verifying import verdict_columns
from worker.verifying.told import MOST_OFFSET, Told, ToldMatch, ToldSource
from worker.verifying.verdict_columns import Spots, VerdictColumns, Verdicts

MOST_BYTES = 210
"""Of a verdict of the default profile: what docs/verifying.md says."""


def of_page(number: int, random: Random, *, short: bool) -> Told:
    digits = None if short else f"{random.getrandbits(64):016x}"
    return Told(
        url=f"https://a.example/{number}",
        id=None,
        verdict="unique",
        match=None,
        fingerprint=digits,
        verifier=None if short else f"{random.getrandbits(536):0134x}",
        digest=f"text:{random.getrandbits(128):032x}",
        profile="default/2",
        seq=number + 1,
        fetched_at=None,
        observation=f"{random.getrandbits(128):032x}",
        source=ToldSource("pages", number % 3, number),
        features=random.getrandbits(30),
    )


def read(told: list[Told]) -> Verdicts:
    columns = VerdictColumns(Spots())
    for number, verdict in enumerate(told):
        columns.add(verdict, number, 1_000 + number)
    return columns.verdicts()


@pytest.mark.parametrize("count", [0, 1, 6, 7, 8, 300])
@pytest.mark.parametrize("begin", [0, 1, 10])
def test_what_went_in_comes_out(count, begin, monkeypatch):
    monkeypatch.setattr(verdict_columns, "CHUNK_ROWS", 7)
    random = Random(count)
    told = [of_page(number, random, short=number < begin or random.random() < 0.3) for number in range(count)]
    found = read(told)
    assert len(found) == len(found.fingerprint) == len(found.verifier) == count
    for row, verdict in enumerate(told):
        assert found.seq[row] == row + 1
        assert found.written_ms[row] == 1_000 + row
        assert found.features[row] == verdict.features
        assert found.has_fingerprint[row] == (verdict.fingerprint is not None)
        assert found.fingerprint[row].tolist() == [int(verdict.fingerprint or "0", 16)]
        assert int(found.verifier[row].astype(">u4").tobytes().hex() or "0", 16) == int(verdict.verifier or "0", 16)
        assert f"text:{found.digest[row].astype('>u8').tobytes().hex()}" == verdict.digest
        assert f"{found.observation[row]:016x}" == verdict.observation[:16]
        assert found.spots.show(found.record[row]) == f"pages[{row % 3}]@{row}"


def test_each_of_very_many_files_is_a_place_of_its_own(monkeypatch):
    """A directory of HTML is a file for each page."""
    monkeypatch.setattr(verdict_columns, "MOST_PARTITIONS", 100_000)
    spots = Spots()
    numbers = [spots.number(f"file:{n}", 0, MOST_OFFSET - 1) for n in range(100_000)]
    assert len(np.unique(np.array(numbers, np.int64))) == len(numbers)
    assert spots.record(numbers[-1]) == ("file:99999", 0, MOST_OFFSET - 1)
    assert spots.number("file:99999", 0, 3) == numbers[-1] - MOST_OFFSET + 4
    with pytest.raises(InputError, match="more than 100,000 partitions and files"):
        spots.number("file:100000", 0, 0)
    assert len(spots.names) == 100_000


def test_a_verdict_takes_so_many_bytes():
    random = Random(1)
    found = read([of_page(number, random, short=False) for number in range(1_000)])
    columns = [getattr(found, name) for name in found.__dataclass_fields__]
    assert sum(column.nbytes for column in columns if isinstance(column, np.ndarray)) <= MOST_BYTES * len(found)


@pytest.mark.parametrize(("field", "most"), [("distance", 4096), ("size", (1 << 30) - 1), ("similarity", 1.0)])
def test_a_number_that_its_column_could_not_hold_is_in_no_verdict(field, most):
    def match(value: float) -> bytes:
        of_page = {"url": "https://a.example/", "id": None, "fetched_at": None, "seq": 1}
        return msgspec.json.encode(of_page | {"distance": 0, "kind": "near", "same_url": False} | {field: value})

    assert getattr(msgspec.json.decode(match(most), type=ToldMatch), field) == most
    with pytest.raises(ValueError, match=field):
        msgspec.json.decode(match(most + 1), type=ToldMatch)
