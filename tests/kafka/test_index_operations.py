"""What operators do with an index in Redis: move it, forget pages of it, look at it."""

import itertools
import json
import os
import re
from contextlib import closing
from dataclasses import replace
from random import Random
from unittest.mock import patch

import msgspec
import pytest
import redis
from click.testing import CliRunner
from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer

from simhash.errors import IndexMismatch, IndexServerChanged, IndexUnreachable
from simhash.index import Retention, Unique
from simhash.index.redis.opening import open_index
from simhash.index.redis.operators import filling
from simhash.index.redis.operators import statistics as counting
from simhash.index.redis.operators.migration import Migration
from simhash.index.redis.operators.operations import Operations
from simhash.index.redis.operators.takedowns import Found, take_down
from simhash.index.redis.operators.transfer import exported, loaded, opened_for_import
from simhash.index.rows import EndRow, MarkRow, RecordRow, Takedown, decoded, decoded_takedown, encoded
from simhash.relation.tables import design
from tests.backends import KINDS, losing
from tests.conftest import backend_of
from tests.pages import PAGES, banded, crowd, entry, relation, summary
from tests.servers import KEEPS_ALL, running_redis
from worker.cli.main import commands
from worker.cli.operating import transfer
from worker.errors import BrokerError, InputError, SettingsError
from worker.index.whole import Whole
from worker.rebuilding.verdict_sources import Strays, taken_down
from worker.records.verdict import SourceFields, Verdict, encode
from worker.settings import load
from worker.verifying.sources import Sources

RULE = relation(design("10"), 12, bands=2)


@pytest.mark.parametrize(
    "row",
    [
        RecordRow(3, 5, "00ff", None, "text:" + "ab" * 8, "cd" * 8, "http://a/", None, None),
        MarkRow("pages", 0, 7),
        EndRow(1, 1, 0),
    ],
)
def test_a_row_comes_back_from_its_line(row):
    line = encoded(row)
    assert line.endswith(b"\n")
    assert decoded(line) == row


def test_a_line_that_is_no_row_is_refused():
    for line in (b"{}", b'{"row":"page"}', b'{"row":"mark","topic":"pages"}'):
        with pytest.raises(msgspec.DecodeError):
            decoded(line)


def test_a_takedown_comes_back_from_its_line():
    row = Takedown("http://a/", 1, 2, "cd" * 8)
    assert decoded_takedown(encoded(row)) == row


@pytest.fixture
def filled(backend, name):
    """An index with bands, near neighbours, short pages, gaps in its log, a beginning that was forgotten, a journal."""
    return filled_on(backend, name)


def filled_on(backend, name):
    random = Random(5)
    index = backend.open(name, RULE, 400, Retention(max_documents=80), {"name": "p"}, lambda: 1_000_000)
    pages = banded(crowd(200, random), 2, random)
    index.check_and_insert(pages[:120], {})
    index.check_and_insert(pages[120:], {PAGES: 110})
    some = [Found(fingerprint, record) for fingerprint, record in index.scan() if record.seq % 7 == 0]
    assert all(take_down(index.inside, some))
    return index


def rows_of(backend, index):
    return list(exported(backend.operations(index)))


def run(*arguments):
    found = CliRunner().invoke(commands, ["index", *map(str, arguments)])
    if found.exception and not isinstance(found.exception, SystemExit):
        raise found.exception
    return found


def place(backend, name):
    """The flags that name an index."""
    return "--redis-url", backend.url, "--index-name", name


def whole(backend, index):
    return backend.operations(index).check(lambda _: None).violations == []


# Export and import


@pytest.mark.parametrize("meanwhile", ["a page", "an import"])
def test_an_import_takes_no_index_that_is_filled_while_it_looks_for_journals(client, name, backend, filled, meanwhile):
    """Looking takes as long as the server has keys, of whatever index."""
    rows, copied = rows_of(backend, filled), f"{name}-b"
    head = msgspec.structs.replace(rows[0], seq=0, documents=0) if meanwhile == "a page" else rows[0]
    real, looked = client.scan_iter, []

    def scan(*arguments, **options):
        if not looked:
            looked.append(arguments)
            if meanwhile == "a page":
                index = open_index(client, copied, {"name": "p"}, RULE, 400)
                assert isinstance(index.check_and_insert([entry(1, 5, partition=None)], {})[0].decision, Unique)
            else:
                loaded(opened_for_import(client, copied, head), head, rows[1:], lambda _: None)
        return real(*arguments, **options)

    with patch.object(client, "scan_iter", scan):
        if meanwhile == "a page":
            with pytest.raises(IndexMismatch, match="is not empty"):
                opened_for_import(client, copied, head)
        else:
            store = opened_for_import(client, copied, head)
            assert store.stored == head.seq, "it goes on where the other one is"
    assert looked


def test_an_import_does_not_go_on_upon_another_server_than_it_began_on(name, tmp_path):
    """It may have less of what was stored than the import knows of: after a failover."""
    with running_redis(tmp_path, KEEPS_ALL) as server:
        client = redis.Redis.from_url(server.url)
        index = open_index(client, name, {}, RULE, 400)
        index.check_and_insert([entry(n, Random(n).getrandbits(64)) for n in range(9)], {})
        rows = list(exported(Operations(index)))
        store = opened_for_import(client, f"{name}-b", rows[0])
        store.begin(1)
        server.restart()
        with pytest.raises(IndexServerChanged):
            store.set_mark(PAGES, 3)
        with pytest.raises(IndexServerChanged):
            loaded(store, rows[0], rows[1:], lambda _: None)
        again = opened_for_import(client, f"{name}-b", rows[0])
        assert loaded(again, rows[0], rows[1:], lambda _: None).records == 9


def test_two_exports_do_not_write_to_one_file(backend, filled, name, tmp_path, monkeypatch):
    file, said = tmp_path / "index.jsonl.zst", []
    real = transfer._export

    def export(*arguments):
        monkeypatch.setattr(transfer, "_export", real)
        with pytest.raises(InputError, match="another export writes to it"):
            run("export", file, *place(backend, name))
        said.append(True)
        return real(*arguments)

    monkeypatch.setattr(transfer, "_export", export)
    assert run("export", file, *place(backend, name)).exit_code == 0
    assert said
    assert run("import", file, *place(backend, f"{name}-b")).exit_code == 0
    assert not list(tmp_path.glob("*.partial"))


@pytest.mark.parametrize(
    ("kind", "change", "why"),
    [
        ("record", {"fingerprint": None, "verifier": None, "digest": "text:" + "1" * 16}, "but half of a digest"),
        ("record", {"url": "http://x/" + "é" * 40_000}, "longer than 65,000 bytes"),
        ("mark", {"offset": -5}, "line .* is no row"),
        ("journal", {"answer": ""}, "line .* is no row"),
    ],
)
def test_rows_that_no_index_has_are_refused(backend, filled, name, tmp_path, kind, change, why):
    file = tmp_path / "index.jsonl"
    run("export", file, *place(backend, name))
    rows = [json.loads(line) for line in file.read_text().splitlines()]
    next(row for row in rows if row["row"] == kind).update(change)
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    with pytest.raises((IndexMismatch, InputError), match=why):
        run("import", file, *place(backend, f"{name}-b"))


@pytest.fixture(params=KINDS)
def other(request):
    """Where an index is moved to, in turn."""
    return backend_of(request, request.param)


def test_an_imported_index_is_the_exported_one(backend, other, filled, name, tmp_path):
    """The same rows come out of it, it is whole, and it answers as the first one does; whatever kinds the two are."""
    file, copied = tmp_path / "index.jsonl.zst", f"{name}-b"
    shown = run("export", file, *place(backend, name))
    assert shown.output.startswith(f"{filled.documents():,} records, 1 marks and 90 decisions")
    assert run("import", file, *place(other, copied)).exit_code == 0
    copy = other.existing(copied)
    assert whole(other, copy)
    assert rows_of(other, copy) == rows_of(backend, filled)
    assert copy.spec == filled.spec
    assert copy.documents() == filled.documents()
    assert copy.mark(PAGES) == 110
    random = Random(6)
    again = banded(crowd(200, Random(5)), 2, Random(5))[110:]
    more = [*again, *banded(crowd(100, random, first=200), 2, random)]
    kept = Retention(max_documents=80)
    answers = [
        each.open(named, RULE, 400, kept, {"name": "p"}, lambda: 1_000_000).check_and_insert(more, {})
        for each, named in ((backend, name), (other, copied))
    ]
    assert [a.decision for a in answers[0]] == [a.decision for a in answers[1]]
    assert whole(other, copy)
    assert whole(backend, filled)
    assert sorted(map(repr, copy.scan())) == sorted(map(repr, filled.scan()))


def test_an_export_is_on_the_disk_before_it_takes_the_place_of_the_last_one(
    backend, filled, name, tmp_path, monkeypatch
):
    file, synced = tmp_path / "index.jsonl.zst", []
    file.write_bytes(b"the last one")
    real = os.fsync

    def seen(descriptor):
        synced.append((os.readlink(f"/proc/self/fd/{descriptor}"), file.read_bytes() == b"the last one"))
        real(descriptor)

    monkeypatch.setattr(os, "fsync", seen)
    assert run("export", file, *place(backend, name)).exit_code == 0
    assert synced == [(f"{file}.partial", True), (str(tmp_path), False)]


def test_an_export_has_the_state_of_one_moment(backend, filled):
    """What workers store while the rows are read is not in them, nor is its journal."""
    rows = exported(backend.operations(filled))
    head = next(rows)
    filled.check_and_insert([entry(5000, 1 << 63)], {PAGES: 150})
    rest = list(rows)
    assert max(row.seq for row in rest if isinstance(row, RecordRow)) <= head.seq
    assert [row.offset for row in rest if isinstance(row, MarkRow)] == [110]
    assert rest[-1] == EndRow(len([r for r in rest if isinstance(r, RecordRow)]), 1, 90)


def test_an_import_that_was_ended_goes_on_and_no_worker_is_let_in_meanwhile(backend, filled, name, monkeypatch):
    rows = rows_of(backend, filled)
    monkeypatch.setattr(filling, "AT_ONCE", 10)
    other = f"{name}-b"

    def start(some):
        store = backend.store(other, rows[0])
        return store, loaded(store, rows[0], some, lambda _: None)

    with pytest.raises(IndexMismatch, match="cut off"):
        start(rows[1:40])
    for opened in (lambda: backend.existing(other), lambda: backend.open(other, RULE, 400, profile={"name": "p"})):
        with pytest.raises(IndexMismatch, match="is not complete"):
            opened()
    different = msgspec.structs.replace(rows[0], seq=rows[0].seq + 1)
    with pytest.raises(IndexMismatch, match="of another import or rebuild that was ended"):
        backend.store(other, different)
    store, end = start(rows[1:])
    assert end == rows[-1]
    store.release(rows[0].generation)
    assert rows_of(backend, backend.existing(other)) == rows
    assert whole(backend, backend.existing(other))


def test_an_import_that_wakes_up_behind_another_one_changes_nothing(backend, filled, name):
    """The other one has finished the index, which has another generation since then: its marks and numbers hold."""
    rows, other = rows_of(backend, filled), f"{name}-b"
    slow = backend.store(other, rows[0])
    quick = backend.store(other, rows[0])
    loaded(quick, rows[0], rows[1:], lambda _: None)
    quick.release(rows[0].generation)
    backend.migrate(other, lambda present: replace(present, bucket_bits=present.bucket_bits + 1))
    before = rows_of(backend, backend.existing(other))
    late = (
        lambda: slow.store([rows[1]]),
        lambda: slow.set_mark(PAGES, 3),
        lambda: slow.set_journal(PAGES, 3, b"late"),
        lambda: slow.give_out(5),
        lambda: slow.believe_earlier(5, 5),
        lambda: slow.release(rows[0].generation),
    )
    for step in late:
        with pytest.raises(IndexMismatch, match="another program fills this index now, or has finished it"):
            step()
    assert rows_of(backend, backend.existing(other)) == before


@pytest.mark.parametrize("backend", ["primary"], indirect=True)
def test_an_import_of_which_any_answer_is_lost_stores_everything_once(backend, filled, name, monkeypatch):
    """Numbers without a record, too: twice as many of them would have taken the places of what is behind them."""
    monkeypatch.setattr(filling, "AT_ONCE", 6)  # the seventh of these numbers has no record
    head, *others = rows_of(backend, filled)
    records = [row for row in others if isinstance(row, RecordRow)]
    rows = [head, *records, EndRow(len(records), 0, 0)]
    for answer in itertools.count(1):
        copied = f"{name}-{answer}"
        with backend.of(copied).connected() as there, losing(answer) as lost:
            store = there.store(copied, head)
            loaded(store, head, rows[1:], lambda _: None)
            store.release(head.generation)
        assert rows_of(backend, backend.existing(copied)) == rows
        if not lost:
            break
    assert answer > len(records) / 6


def test_of_two_imports_at_once_one_says_so(backend, filled, name):
    rows, other = rows_of(backend, filled), f"{name}-b"
    records = [row for row in rows if isinstance(row, RecordRow)]
    slow = backend.store(other, rows[0])
    slow.begin(records[0].seq)
    quick = backend.store(other, rows[0])
    quick.store(records[:1])
    with pytest.raises(IndexMismatch, match="another program fills this index now"):
        slow.store(records[:1])


def test_an_import_is_refused_where_it_would_mix_two_indexes(backend, filled, name, tmp_path):
    file = tmp_path / "index.jsonl"
    assert run("export", file, *place(backend, name)).exit_code == 0
    with pytest.raises(IndexMismatch, match="not empty"):
        run("import", file, *place(backend, name))
    backend.open(f"{name}-b", RULE, 400, profile={"name": "other"})
    with pytest.raises(IndexMismatch, match="made for something else"):
        run("import", file, *place(backend, f"{name}-b"))
    whole_file = file.read_bytes()
    file.write_bytes(whole_file * 2)
    with pytest.raises(IndexMismatch, match="rows stand behind the `end` row"):
        run("import", file, *place(backend, f"{name}-e"))
    lines = whole_file.splitlines(keepends=True)
    for number, row in (("f", b'"record"'), ("g", b'"mark"')):
        left_out = next(line for line in lines if line.startswith(b'{"row":' + row))
        file.write_bytes(whole_file.replace(left_out, b""))
        with pytest.raises(IndexMismatch, match="the rows are not all there"):
            run("import", file, *place(backend, f"{name}-{number}"))
    file.write_bytes(whole_file[:-30])
    with pytest.raises(InputError, match="is no row"):
        run("import", file, *place(backend, f"{name}-c"))
    file.write_text('{"row":"end","records":0,"marks":0,"journal":0}\n')
    with pytest.raises(InputError, match="does not begin"):
        run("import", file, *place(backend, f"{name}-d"))


@pytest.mark.parametrize("given", [0, 3])
def test_an_empty_index_is_moved_too(backend, name, tmp_path, given):
    index = backend.open(name, RULE, 400)
    index.check_and_insert([entry(n, None) for n in range(given)], {})
    take_down(index.inside, [Found(*each) for each in index.scan()])
    file = tmp_path / "index.jsonl"
    for command, of in (("export", name), ("import", f"{name}-b")):
        assert run(command, file, *place(backend, of)).exit_code == 0
    copy = backend.existing(f"{name}-b")
    assert whole(backend, copy)
    assert copy.check_and_insert([entry(given, 1)], {})[0].decision.seq == given + 1
    assert whole(backend, copy)


def test_the_last_number_is_not_given_again_though_its_page_was_taken_down(backend, filled, name, tmp_path):
    take_down(filled.inside, [Found(*max(filled.scan(), key=lambda each: each[1].seq))])
    file = tmp_path / "index.jsonl"
    for command, of in (("export", name), ("import", f"{name}-b")):
        assert run(command, file, *place(backend, of)).exit_code == 0
    assert rows_of(backend, backend.existing(f"{name}-b")) == rows_of(backend, filled)


def test_an_index_that_was_opened_and_never_used_takes_an_import(backend, filled, name, tmp_path):
    file = tmp_path / "index.jsonl"
    backend.open(f"{name}-b", RULE, 400, profile={"name": "p"})
    for command, of in (("export", name), ("import", f"{name}-b")):
        assert run(command, file, *place(backend, of)).exit_code == 0
    assert rows_of(backend, backend.existing(f"{name}-b")) == rows_of(backend, filled)


def test_an_index_that_was_migrated_while_it_was_empty_takes_an_import(backend, filled, name, tmp_path):
    """It has the generation of the one that was exported, and its keys lie elsewhere."""
    file, copied = tmp_path / "index.jsonl", f"{name}-b"
    backend.open(copied, RULE, 400, profile={"name": "p"})
    for index in (name, copied):
        backend.migrate(index, lambda spec: replace(spec, relation=replace(spec.relation, design=design("4"))))
    for command, of in (("export", name), ("import", copied)):
        assert run(command, file, *place(backend, of)).exit_code == 0
    copy = backend.existing(copied)
    assert whole(backend, copy)
    assert rows_of(backend, copy) == rows_of(backend, backend.existing(name))


def test_a_url_that_is_no_text_is_refused_before_anything_is_removed(backend, filled, name):
    _, record = next(filled.scan())
    before = rows_of(backend, filled)
    with pytest.raises(InputError, match="is not UTF-8"):
        run("delete", record.url, "http://x/\udcff", *place(backend, name))
    assert rows_of(backend, filled) == before


def test_what_is_not_forgotten_yet_of_a_journal_is_not_exported(backend, name, tmp_path):
    index, file, copied = backend.open(name, RULE, 400), tmp_path / "index.jsonl", f"{name}-b"
    index.check_and_insert([entry(n, n << 30) for n in range(3000)], {})
    index.check_and_insert([entry(3000, 1 << 60)], {PAGES: 3000})
    for command, of in (("export", name), ("import", copied)):
        assert run(command, file, *place(backend, of)).exit_code == 0
    assert whole(backend, backend.existing(copied))


# Takedowns


def test_deleted_pages_leave_nothing_behind_and_are_judged_afresh(backend, name, tmp_path):
    index = backend.open(name, RULE, 400)
    pages = [entry(0, 77, 0), entry(1, 77, (1 << 128) - 1), entry(2, None), entry(3, (1 << 64) - 1, 5)]
    first = index.check_and_insert(pages, {PAGES: 0})
    assert index.documents() == 4
    takedowns = tmp_path / "takedowns.jsonl"
    flags = (*place(backend, name), "--takedowns", takedowns)
    (tmp_path / "urls").write_text(f"{pages[2].url}\n\n")
    shown = run("delete", pages[0].url, "http://nowhere/", "--from", tmp_path / "urls", *flags)
    assert shown.exit_code == 1
    assert "not in the index: http://nowhere/" in shown.output
    assert "2 pages removed, 2 left" in shown.output
    assert {record.seq for _, record in index.scan()} == {2, 4}
    assert whole(backend, index)
    rows = [decoded_takedown(line) for line in takedowns.read_bytes().splitlines()]
    assert {(row.url, row.seq, row.observation) for row in rows} == {
        (pages[n].url, n + 1, pages[n].observation[:8].hex()) for n in (0, 2)
    }
    assert index.check_and_insert(pages, {}) == first, "a page that is not committed yet keeps its verdict"
    again = [entry(10, 77, 0, digest=pages[0].digest), entry(11, None, digest=pages[2].digest), entry(12, 77, 1)]
    decisions = [answer.decision for answer in index.check_and_insert(again, {PAGES: 4})]
    assert [summary(decision) for decision in decisions] == [("unique", 5), ("unique", 6), ("duplicate", 5)]
    assert whole(backend, index)


def test_a_dry_run_removes_nothing(backend, filled, name):
    _, record = next(filled.scan())
    before = rows_of(backend, filled)
    shown = run("delete", record.url, "--dry-run", *place(backend, name))
    assert f"would remove seq {record.seq}" in shown.output
    assert rows_of(backend, filled) == before


def test_a_takedown_that_breaks_off_says_that_pages_may_still_be_there(backend, filled, name, monkeypatch):
    def broken(*_):
        raise IndexUnreachable("nobody answers")

    monkeypatch.setattr(Whole, "take_down", broken)
    _, record = next(filled.scan())
    with pytest.raises(IndexUnreachable, match="nobody answers; pages that were told of as removed may still be there"):
        run("delete", record.url, *place(backend, name))


@pytest.mark.parametrize("backend", ["primary"], indirect=True)
def test_all_that_was_removed_is_counted_though_an_answer_is_lost(backend, name):
    pages = [entry(0, 0), entry(1, None), entry(2, (1 << 64) - 1)]
    for answer in itertools.count(1):
        backend.open(f"{name}-{answer}", RULE, 400).check_and_insert(pages, {})
        with losing(answer) as lost:
            shown = run("delete", pages[0].url, pages[2].url, *place(backend, f"{name}-{answer}"))
        assert "2 pages removed, 1 left" in shown.output
        if not lost:
            break
    assert answer > 5


def test_pages_are_found_by_their_verdicts_without_a_search(backend, filled, name, tmp_path, monkeypatch):
    stored = sorted(filled.scan(), key=lambda each: each[1].seq)
    some = [next(each for each in stored if (each[0] is None) is short) for short in (True, False)]
    lines = [
        Verdict(
            url=record.url, id=None, verdict="unique", match=None,
            fingerprint=None if fingerprint is None else f"{fingerprint:016x}", verifier=None,
            digest=record.digest.ljust(record.digest.index(":") + 33, "0"), features=9, profile="p", seq=record.seq,
            fetched_at=None,
            observation=record.observation.hex() + "0" * 16,
            source=SourceFields("pages", 0, 0, None),
        )
        for fingerprint, record in some
    ]  # fmt: skip
    (tmp_path / "v.jsonl").write_bytes(b"\n".join(map(encode, lines)))
    monkeypatch.setattr(type(filled), "scan", None)
    urls = [record.url for _, record in some]
    flags = (*place(backend, name), "--verdicts", tmp_path / "v.jsonl")
    shown = run("delete", *urls, *flags)
    assert shown.exit_code == 0, shown.output
    assert "2 pages removed" in shown.output
    assert "not published" in shown.output
    monkeypatch.undo()
    assert whole(backend, filled)
    _, there = stored[-1]
    assert there.url not in urls
    unknown = run("delete", there.url, *flags, "--dry-run")
    assert (unknown.exit_code, f"no unique verdict in {flags[-1]}, and not searched for" in unknown.output) == (1, True)


@pytest.mark.parametrize(
    ("changes", "wrong"),
    [
        ({"fingerprint": "ab" * 16}, "its fingerprint has more than the 64 bits of this index"),
        ({"fingerprint": "-1"}, "$.fingerprint"),
        ({"fingerprint": None, "digest": "foo"}, "$.digest"),
        ({"digest": "text:zz"}, "$.digest"),
    ],
)
def test_a_verdict_that_leads_nowhere_is_refused_with_its_line(backend, filled, name, tmp_path, changes, wrong):
    fine = {
        "url": "http://a/", "id": None, "verdict": "unique", "match": None, "fingerprint": "ab" * 8, "verifier": None,
        "digest": "text:" + "ab" * 16, "features": 9, "profile": "p", "seq": 1, "fetched_at": None,
        "observation": "cd" * 16, "source": {"topic": "pages", "partition": 0, "offset": 0, "timestamp": None},
    }  # fmt: skip
    path = tmp_path / "v.jsonl"
    path.write_bytes(b"\n".join(msgspec.json.encode(each) for each in (fine, fine | changes)))
    with pytest.raises(InputError, match=r"v\.jsonl: line 2 is no verdict: ") as refused:
        run("delete", "http://a/", *place(backend, name), "--verdicts", path)
    assert wrong in str(refused.value)


def test_urls_of_a_file_are_taken_as_they_are(backend, name, tmp_path):
    index = backend.open(name, RULE)
    index.check_and_insert([replace(entry(1, 5), url="  http://a/ ")], {})
    (tmp_path / "urls").write_bytes(b"\n  http://a/ \r\n   \n")
    assert run("delete", "--from", tmp_path / "urls", *place(backend, name)).exit_code == 0
    assert index.documents() == 0
    (tmp_path / "urls").write_bytes(b"\n \n")
    with pytest.raises(SettingsError, match="--from names no URL"):
        run("delete", "--from", tmp_path / "urls", *place(backend, name))


@pytest.mark.parametrize("backend", ["primary"], indirect=True)
def test_a_takedown_topic_that_is_not_there_is_named_before_anything_is_removed(backend, kafka_server, filled, name):
    _, record = next(filled.scan())
    kafka = ("--bootstrap-servers", kafka_server.bootstrap_servers, "--takedown-topic", f"{name}.nowhere")
    documents = filled.documents()
    with pytest.raises(BrokerError, match=r"nowhere does not exist: `simhash-dedup topics` creates it"):
        run("delete", record.url, *place(backend, name), *kafka)
    assert filled.documents() == documents


def test_takedowns_are_published(backend, kafka_server, filled, name):
    _, record = next(filled.scan())
    topic = f"{name}.takedowns"
    kafka = ("--bootstrap-servers", kafka_server.bootstrap_servers, "--takedown-topic", topic)
    with KafkaAdminClient(bootstrap_servers=kafka_server.bootstrap_servers) as admin:
        admin.create_topics({topic: {"num_partitions": 1, "replication_factor": 1}}, wait_for_metadata=True)
    shown = run("delete", record.url, *place(backend, name), *kafka)
    assert shown.exit_code == 0, shown.output
    consumer = KafkaConsumer(
        topic,
        bootstrap_servers=kafka_server.bootstrap_servers,
        auto_offset_reset="earliest",
        consumer_timeout_ms=90_000,  # a fetch that is not answered is given up after 30 s
    )
    with closing(consumer):
        message = next(consumer)
    row = decoded_takedown(message.value)
    assert (message.key.decode(), row.url, row.seq) == (record.url, record.url, record.seq)
    producer = KafkaProducer(bootstrap_servers=kafka_server.bootstrap_servers)
    producer.send(topic, b"{}")
    producer.close()
    settings = load({"bootstrap_servers": kafka_server.bootstrap_servers, "takedown_topic": topic})
    with pytest.raises(InputError, match=rf"^{topic}\[0\] offset 1 is no takedown: "):
        taken_down(settings, [], Strays(False))
    with pytest.raises(InputError, match=rf"^{topic}\[0\]@1: "):
        list(Sources(settings).all_takedowns())


# Statistics and the commands


def test_statistics_of_all_buckets_are_exact(backend, filled, name):
    client = backend.client
    found = msgspec.json.decode(run("stats", "--json", "--sample", 10**6, *place(backend, name)).output)
    keys = list(client.scan_iter(f"{{{name}}}:*", count=10_000))
    assert sum(kind["keys"] for kind in found["kinds"].values()) == len(keys)
    held = sum(client.memory_usage(key, samples=0) for key in keys)
    assert sum(kind["bytes"] for kind in found["kinds"].values()) == held
    records = sorted((record for _, record in filled.scan()), key=lambda record: record.seq)
    assert (found["oldest"]["seq"], found["newest"]["seq"]) == (records[0].seq, records[-1].seq)
    assert found["documents"] == len(records)
    assert found["removed"] > 0
    most = found["kinds"]["tables"]["largest"][0]
    tables = [key for key in keys if re.search(rb":t\d+:", key)]
    assert most["entries"] == client.hlen(most["key"]) == max(map(client.hlen, tables))
    assert len(found["servers"]) == 1
    assert found["server_bytes"] == sum(server["used_bytes"] for server in found["servers"])
    assert found["journals"] == [{"topic": "pages", "partition": 0, "mark": 110, "decisions": 90}]
    text = run("stats", *place(backend, name)).output
    assert f"documents             {len(records)} (" in text
    assert "estimated" not in text


def test_statistics_name_a_migration_that_is_not_ended(backend, filled, name, monkeypatch):
    class Killed(Exception):
        pass

    def kill(progress):
        if progress.step == "copying":
            raise Killed

    monkeypatch.setattr("simhash.index.redis.operators.walking.STRETCH", 20)
    migration = Migration(backend.client, name, kill)
    spec, bits = filled.spec, filled.spec.bucket_bits + 1
    with pytest.raises(Killed):
        migration.run(lambda _: replace(spec, bucket_bits=bits))
    found = msgspec.json.decode(run("stats", "--json", *place(backend, name)).output)
    told, numbers = found["migration"], found["numbers"]
    assert (told["design"], told["bucket_bits"]) == (spec.relation.design.name, bits)
    assert 0 < told["copied"] <= numbers
    shown = run("stats", *place(backend, name)).output
    to = f"to design {told['design']}, {bits} bucket bits"
    assert f"migration begun       {to}: {told['copied']} of {numbers:,} numbers copied\n" in shown
    migration.abandon()
    assert "migration" not in run("stats", *place(backend, name)).output


@pytest.mark.parametrize(
    ("documents", "few", "exact"),
    [
        pytest.param(200_000, 200_000, True, id="there can be few"),
        pytest.param(20_000_000, 200_000, True, id="there are few"),
        pytest.param(20_000_000, 500, False, id="there are many"),
    ],
)
def test_statistics_are_exact_where_the_keys_are_few_and_else_of_some_buckets(
    client, redis_server, name, monkeypatch, documents, few, exact
):
    monkeypatch.setattr(counting, "EXACT_KEYS", few)
    random = Random(2)
    index = open_index(client, name, {}, relation(design("4")), documents)
    index.check_and_insert([entry(n, random.getrandbits(64), 0) for n in range(300)], {})
    shown = run("stats", "--json", "--redis-url", redis_server.url, "--index-name", name)
    kinds = msgspec.json.decode(shown.output)["kinds"]
    of = 4 << index.spec.bucket_bits
    assert of > 4 * 2000
    assert (kinds["tables"]["of"], kinds["tables"]["looked_at"]) == (of, of if exact else 4 * 2000)
    assert kinds["meta"]["bytes"] == client.memory_usage(f"{{{name}}}:meta", samples=0)
    if exact:
        keys = list(client.scan_iter(f"{{{name}}}:*", count=10_000))
        assert sum(kind["keys"] for kind in kinds.values()) == len(keys)
        assert kinds["tables"]["entries"] == sum(client.hlen(key) for key in keys if re.search(rb":t\d+:", key))


def test_statistics_of_some_buckets_are_near_those_of_all(client, redis_server, name):
    random = Random(1)
    index = open_index(client, name, {}, relation(design("4")), 20_000)
    index.check_and_insert([entry(n, random.getrandbits(64), 0) for n in range(4000)], {})
    shown = run("stats", "--json", "--sample", 200, "--redis-url", redis_server.url, "--index-name", name)
    tables = msgspec.json.decode(shown.output)["kinds"]["tables"]
    assert tables["looked_at"] == 800 < tables["of"]
    assert tables["entries"] == pytest.approx(16_000, rel=0.1)


def test_the_check_command_says_what_is_wrong_and_fails(backend, filled, name):
    flags = place(backend, name)
    shown = run("check", *flags)
    assert shown.exit_code == 0
    assert "the index is whole" in shown.output
    backend.client.hincrby(backend.meta(name), "documents", -3)
    shown = run("check", *flags)
    assert shown.exit_code == 1
    assert "documents: the counter says" in shown.output
    found = msgspec.json.decode(run("check", "--json", *flags).stdout)
    assert [invariant for invariant, _ in found["violations"]] == ["documents"]
