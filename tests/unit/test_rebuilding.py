"""What a rebuild reads and which pages it chooses, before any of it is stored."""

import gzip
import json

import msgspec
import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from simhash.index import Unique
from simhash.index.rows import RecordRow, Takedown, encoded
from tests.kafka.test_rebuild import PROFILE, told
from tests.pages import entry
from worker.errors import InputError
from worker.rebuilding.collected import CollectedVerdicts, forgotten
from worker.rebuilding.order import Sorted
from worker.rebuilding.verdict_sources import Settled, Strays, in_file
from worker.rebuilding.verdict_sources import taken_down as read_takedowns
from worker.settings import load
from worker.stream.kafka.replay import FOR_EVER_MS


@given(st.lists(st.integers(0, 30), max_size=40), st.integers(1, 6))
def test_what_was_forgotten_before_a_takedown_stays_forgotten(steps, most):
    """Against an index in a few lines: two numbers of three store a page, the third takes down one.

    Each is told twice, as by a delete that was ended before it removed, and another index's page had the number too.
    """
    rows, takedowns, there = [], [], []
    for at, step in enumerate(steps):
        if step % 3 or not there:
            rows.append(row_of(len(rows) + 1, 10 * at))
            there = [*there, rows[-1].seq][-most:]
        else:
            seq = there.pop(step % len(there))
            takedowns += [
                Takedown("", 10 * at + 5, seq, observed) for observed in (f"{seq:016x}", "f" * 16, f"{seq:016x}")
            ]
    with Sorted() as unique:
        collected = CollectedVerdicts(PROFILE, takedowns, unique)
        for row in rows:
            unique.add(row)
        first = forgotten(collected.numbered(), takedowns, most)
        assert [row.seq for row in collected.kept(first, 0)] == there


def row_of(seq, inserted_ms):
    return RecordRow(seq, inserted_ms, "0" * 16, None, "text:" + "0" * 16, f"{seq:016x}", "http://a/", None, None)


@pytest.mark.parametrize(
    ("seqs", "skipped", "oldest_ms", "from_first", "missing"),
    [
        ([1, 2, 3], 0, 0, False, []),
        ([1, 2, 5, 9], 0, 0, False, [(3, 4), (6, 8)]),
        ([4, 5], 0, 0, False, [(1, 3)]),
        ([4, 5], 0, 0, True, []),
        ([4, 5, 7], 0, 0, True, [(6, 6)]),
        ([4, 5, 9, 10], 2, 0, False, []),  # beside what max_documents forgets
        ([4, 5, 9, 12], 2, 0, False, [(10, 11)]),
        ([4, 7, 9, 12], 0, 8, False, [(10, 11)]),  # beside what max_age forgets
    ],
)
def test_numbers_that_no_verdict_has_are_missing_but_not_beside_what_is_forgotten(
    seqs, skipped, oldest_ms, from_first, missing
):
    with Sorted() as unique:
        for seq in reversed(seqs):
            unique.add(row_of(seq, inserted_ms=seq))
        found = list(CollectedVerdicts(PROFILE, [], unique).missing(skipped, oldest_ms, from_first, FOR_EVER_MS))
    assert [(each[0], each[-1]) for each in found] == missing


def test_what_the_archive_has_is_neither_missing_nor_stored_again():
    with Sorted() as unique:
        collected = CollectedVerdicts(PROFILE, [], unique, archived=5)
        for seq in (2, 5, 8):
            unique.add(row_of(seq, inserted_ms=seq))
        assert [row.seq for row in collected.kept(0, 0)] == [8]
        for from_first, missing in ((False, [range(6, 8)]), (True, [])):
            assert list(collected.missing(0, 0, from_first, FOR_EVER_MS)) == missing


@pytest.mark.parametrize(
    ("seq", "written_ms", "is_gone"),
    [
        (5, 50, True),
        (5, 150, True),  # its verdict was committed after the takedown
        (9, 50, True),  # a higher number than the index had by then: it had lost some
        (9, 150, False),  # told unique again since then
    ],
)
def test_a_page_stays_taken_down_until_it_is_told_again(seq, written_ms, is_gone):
    row = row_of(seq, written_ms)
    with Sorted() as unique:
        collected = CollectedVerdicts(PROFILE, [Takedown("", 100, 5, row.observation)], unique)
        unique.add(row)
        assert [gone for _, gone in collected.numbered()] == [is_gone]


@pytest.mark.parametrize(
    ("archived", "kept"),
    [(4, [(5, "a"), (6, "c"), (7, "b")]), (5, [(6, "c"), (7, "a"), (8, "b")])],  # who knows which one the archive has
)
def test_a_number_that_was_given_twice_is_the_earlier_page_s_unless_it_is_archived(archived, kept):
    with Sorted() as unique:
        collected = CollectedVerdicts(PROFILE, [], unique, last_seq=6, archived=archived)
        for seq, name in ((5, "a"), (5, "b"), (6, "c")):
            unique.add(msgspec.structs.replace(row_of(seq, inserted_ms=ord(name)), observation=name * 16))
        assert [(row.seq, row.observation[0]) for row in collected.kept(0, 0)] == kept


@pytest.mark.parametrize(
    ("whole_from_ms", "first_offsets", "missing"),
    [
        (0, [0, 0], []),  # nothing was ever deleted: they were never told
        (0, [0, 7], [(1, 3)]),  # the topic was made anew, or workers began later: who knows
        (6, [0, 0], [(1, 3), (6, 8)]),  # of what was written before 6, some is deleted
        (5, [0, 0], [(1, 3)]),
        (FOR_EVER_MS, [0, 0], [(1, 3), (6, 8)]),
    ],
)
def test_numbers_that_were_never_told_are_not_missing(whole_from_ms, first_offsets, missing):
    with Sorted() as unique:
        collected = CollectedVerdicts(PROFILE, [], unique)
        list(collected.add_all(Settled("pages", n, offset) for n, offset in enumerate(first_offsets)))
        for seq in (4, 5, 9):
            unique.add(row_of(seq, inserted_ms=seq))
        found = list(collected.missing(0, 0, False, whole_from_ms))
    assert [(each[0], each[-1]) for each in found] == missing


DAMAGED = [
    ({"fingerprint": "-1"}, "$.fingerprint"),
    ({"digest": "text:zz"}, "$.digest"),
    ({"seq": 1 << 48}, "$.seq"),
    ({"verdict": "duplicate"}, "a duplicate has no number"),
    ({"url": "http://a/" + "x" * 100_000}, "url is longer than"),
    ({"id": "x" * 70_000}, "id is longer than"),
    ({"fetched_at": "x" * 70_000}, "fetched_at is longer than"),
    ({"source": {"topic": "pa:g es", "partition": 0, "offset": 1, "timestamp": None}}, "$.source.topic"),
    ({"source": {"topic": "", "partition": 0, "offset": 1, "timestamp": None}}, "$.source.topic"),
]


@pytest.mark.parametrize(("changes", "wrong"), DAMAGED)
def test_a_verdict_that_cannot_be_stored_is_named(tmp_path, changes, wrong):
    fine = msgspec.to_builtins(told(entry(1, 5), Unique(1)).verdict)
    path = tmp_path / "verdicts.jsonl"
    path.write_text("".join(json.dumps(each) + "\n" for each in (fine, fine | changes)))
    with pytest.raises(InputError, match=r"verdicts\.jsonl: line 2 is no verdict: ") as refused:
        list(in_file(path, Strays(False)))
    assert wrong in str(refused.value)


@pytest.mark.parametrize("stamped", [-1, 1 << 48, 1 << 60])
def test_a_time_that_cannot_be_is_that_of_the_file(tmp_path, stamped):
    """A producer may stamp what it likes: microseconds, say."""
    verdict = msgspec.to_builtins(told(entry(1, 5), Unique(1)).verdict)
    path = tmp_path / "verdicts.jsonl"
    path.write_text(json.dumps(verdict | {"source": verdict["source"] | {"timestamp": stamped}}) + "\n")
    assert [each.written_ms for each in in_file(path, Strays(False))] == [int(path.stat().st_mtime * 1000)]


@pytest.mark.parametrize("packed", [bytes, gzip.compress, zstandard.compress])
def test_takedowns_are_read_from_files_of_every_kind_that_verdicts_are(tmp_path, packed):
    rows = [encoded(Takedown(f"http://a/{n}", 1, n, f"{n:016x}")) for n in range(3)]
    path = tmp_path / "takedowns.jsonl.gz"
    path.write_bytes(packed(b"\n".join(rows)))
    assert [each.seq for each in read_takedowns(load({}), [path], Strays(False))] == [0, 1, 2]
    path.write_bytes(packed(b"".join(rows) + b"{}"))
    with pytest.raises(InputError, match=r"takedowns\.jsonl\.gz: line 4 is no takedown"):
        read_takedowns(load({}), [path], Strays(False))
    strays = Strays(True)
    assert [each.seq for each in read_takedowns(load({}), [path], strays)] == [0, 1, 2]
    assert (strays.count, ": line 4 is no takedown: " in strays.first) == (1, True)
    path.write_bytes(gzip.compress(b"".join(rows))[:-9])
    for unreadable in (path, tmp_path, tmp_path / "none.jsonl"):
        with pytest.raises(InputError, match=f"^{unreadable}: "):
            read_takedowns(load({}), [unreadable], Strays(True))
