"""Batches of bare fingerprints and of tables that hold nothing else, against brute force; and clusters."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from simhash.archive import Portion
from simhash.archive.format import keys as arrays
from simhash.index import Relation
from simhash.relation.tables import design
from tests.batches import FINGERPRINTS, fingerprints, greedily, lines, near_values, tables, written
from tests.stream import json_page
from worker.errors import InputError


@pytest.mark.parametrize("k", [3, 5])
def test_bare_fingerprints_are_compared_within_k_bits(batch, tmp_path, k):
    old = near_values(1)
    new = near_values(2, of=old)
    new[-500:] = near_values(3, of=new)[-500:]
    # Other programs have no unsigned words, or write hexadecimal.
    existing = fingerprints(tmp_path / "old.parquet", old.view(np.int64))
    given = fingerprints(tmp_path / "new.parquet", [f"{value:016x}" for value in new.tolist()])
    batch(given, existing=[existing], k=k)
    found = lines(tmp_path / "out" / "verdicts.jsonl")
    names = {"old": [f"fingerprint:{v:016x}" for v in old.tolist()], "new": [v["url"] for v in found]}
    expected = [None if answer is None else names[answer[0]][answer[1]] for answer in greedily(new, old, k)]
    assert [v["match"] and v["match"]["url"] for v in found] == expected
    assert {v["match"]["kind"] for v in found if v["match"]} == {"near"}, "no text is known to be the same"
    assert next(v["seq"] for v in found if v["seq"]) == FINGERPRINTS + 1


def test_a_fifth_of_equal_existing_fingerprints_kills_nothing(batch, tmp_path):
    old = near_values(4)
    old[: FINGERPRINTS // 5] = old[0]
    new = near_values(5, of=old)
    new[: FINGERPRINTS // 5] = old[0] ^ np.uint64(1)
    existing = fingerprints(tmp_path / "old.parquet", old, url=[f"http://old/{n}" for n in range(FINGERPRINTS)])
    batch(fingerprints(tmp_path / "new.parquet", new), existing=[existing], k=3)
    found = lines(tmp_path / "out" / "verdicts.jsonl")
    assert {v["match"]["url"] for v in found[: FINGERPRINTS // 5]} == {"http://old/0"}
    expected = greedily(new, old, 3)
    assert [v["match"] is not None for v in found] == [answer is not None for answer in expected]


def test_rows_without_a_fingerprint_are_rejected(batch, tmp_path):
    values = ["0f", None, "zz", "1" * 17, "f" * 16, "0e"]
    summary = batch(fingerprints(tmp_path / "new.parquet", pa.array(values, pa.large_string())), k=3)
    assert [v["fingerprint"] for v in lines(tmp_path / "out" / "verdicts.jsonl")] == [
        f"{15:016x}",
        "f" * 16,
        f"{14:016x}",
    ]
    said = {row["record"]: row["message"] for row in lines(tmp_path / "out" / "rejected.jsonl")}
    assert summary.rejected == len(said) == 3
    assert "neither a fingerprint nor a digest" in said[1]
    assert all("not of hexadecimal digits" in said[record] for record in (2, 3))
    batch(fingerprints(tmp_path / "one.parquet", pa.array([15], pa.uint64())), existing=[tmp_path / "new.parquet"], k=3)
    assert lines(tmp_path / "out" / "verdicts.jsonl")[0]["match"]["seq"] == 1
    pq.write_table(pa.table({"fingerprint": pa.array([], pa.uint64())}), tmp_path / "none.parquet")
    assert batch(tmp_path / "none.parquet", k=3).pages == 0


def test_observations_that_are_too_short_are_named(batch, tmp_path):
    old = fingerprints(tmp_path / "old.parquet", [1, 2], observation=[b"a", b"b"])
    with pytest.raises(InputError, match=r"old\.parquet has observations of less than 8 bytes"):
        batch(fingerprints(tmp_path / "new.parquet", [1]), existing=[old], k=3)


def test_fingerprints_without_verifiers_need_k(batch, tmp_path):
    bare = fingerprints(tmp_path / "bare.parquet", near_values(1))
    page = written(tmp_path / "a.jsonl", [json_page(n, "Some words.")[1] for n in range(3)])
    for new, existing in ((bare, []), (page, [bare])):
        with pytest.raises(InputError, match=r"bare\.parquet has fingerprints without a verifier of 67 bytes.*--k N"):
            batch(new, existing=existing)


def test_bare_tables_are_existing_fingerprints(batch, tmp_path):
    old = near_values(1)
    new = near_values(2, of=old)
    values = arrays.from_ints(old.tolist(), 64)
    archive = tables(tmp_path / "archive", Portion(len(old), values), Relation(design("10"), 3, None))
    summary = batch(fingerprints(tmp_path / "new.parquet", new), existing=[archive], k=3)
    found = lines(tmp_path / "out" / "verdicts.jsonl")
    near = [answer is not None and answer[0] == "old" for answer in greedily(new, old, 3)]
    assert [v["match"] is not None and v["match"]["seq"] <= FINGERPRINTS for v in found] == near
    assert summary.duplicates_of_existing == sum(near)
    assert summary.existing == FINGERPRINTS


# Clusters ----------------------------------------------------------------------------------------------------------


def test_clusters_are_components_and_decide_nothing(batch, tmp_path):
    a, b, c, other = 0, 0b000111, 0b111111, (1 << 64) - 1
    new = fingerprints(tmp_path / "new.parquet", pa.array([a, b, c, 0xFF << 40, other, c], pa.uint64()), id=[*"ABCDEF"])
    old = fingerprints(tmp_path / "old.parquet", pa.array([other - 1], pa.uint64()), id=["old"])
    batch(new, existing=[old], k=3, clusters=True)
    verdicts = {v["id"]: v["verdict"] for v in lines(tmp_path / "out" / "verdicts.jsonl")}
    assert [name for name, verdict in verdicts.items() if verdict == "unique"] == ["A", "C", "D"]
    clusters = lines(tmp_path / "out" / "clusters.jsonl")
    assert [[page["id"] for page in found["pages"]] for found in clusters] == [["A", "B", "C", "F"], ["E"]]
    assert [[page["id"] for page in found["existing"]] for found in clusters] == [[], ["old"]]
