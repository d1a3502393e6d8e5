"""A base of earlier crawls before the index: one relation over both, one base for all workers, replays unchanged."""

import json
import os
import signal
from random import Random

import pytest
from prometheus_client import CollectorRegistry

from simhash.archive import BuildPlan, Effort, Holding, Portion, TableSet, build
from simhash.archive.lookup.opened import verifier_bytes
from simhash.errors import BaseDiffers, IndexMismatch, IndexUnreachable, TableMismatch
from simhash.index import Duplicate, Partition, Position, Record, Relation, Unique
from simhash.relation.tables import design
from simhash.signature.profiles import DEFAULT
from tests.pages import crowd
from tests.stream import Stream, json_page, texts, until, working
from worker.index import archive as bases
from worker.index.archive import TableBase
from worker.index.stores import connected_index
from worker.settings import load
from worker.stream import consumer
from worker.stream.consumer import run_consumer
from worker.stream.status import Status

PROFILE = {"name": "made-up", "version": 1}
RULE = Relation(design("4"), 6, 14, bands=2)


class Stored:
    """Pages as records, numbered from 1: a source of tables."""

    def __init__(self, pages):
        self.pages = pages

    def batches(self, skip):
        found = [(page.fingerprint, Record.of(page, n, n)) for n, page in enumerate(self.pages, 1)]
        yield Portion(len(found) - skip, records=found[skip:])


def built(directory, pages, rule=RULE, profile=PROFILE):
    plan = BuildPlan(profile, Holding(rule.design.bits, True, verifier_bytes(rule), rule.bands), lambda _: rule, "job")
    build(directory, Stored(pages), plan, Effort(), lambda *_: None)
    return directory


def placed(tmp_path, pages, name="first"):
    """Tables of `pages`, and the name under which workers know them."""
    link = tmp_path / "base"
    link.unlink(missing_ok=True)
    link.symlink_to(built(tmp_path / name, pages))
    return link


def index_of(backend, name, rule=RULE):
    return backend.open(name, rule, profile=PROFILE)


@pytest.fixture
def eager(monkeypatch):
    """Look for newer tables at every call."""
    monkeypatch.setattr(bases, "LOOK_SECONDS", 0.0)


@pytest.fixture
def pages():
    found = crowd(240, Random(6), 64)
    return [
        type(page)(
            page.observation, Position(Partition("pages", 0), n), page.fingerprint, page.verifier, page.digest, page.url
        )
        for n, page in enumerate(found)
    ]


def expected(old, new, rule=RULE):
    """By brute force: the oldest page of the base that matches, else the oldest that was unique since."""
    unique, answers = [], []
    for page in new:
        match = next((other for other in [*old, *unique] if rule.matches(page, other)), None)
        answers.append(match.url if match else None)
        if match is None:
            unique.append(page)
    return answers


def named(answers):
    return [a.decision.match.url if isinstance(a.decision, Duplicate) else None for a in answers]


def test_pages_are_judged_by_base_and_index_as_by_one(backend, name, tmp_path, pages):
    old, new = pages[:120], pages[120:]
    index = index_of(backend, name)
    index.judge_beside(TableBase(placed(tmp_path, old), PROFILE, RULE))
    wanted = expected(old, new)
    assert sum(url in {p.url for p in old} for url in wanted) >= 20, "matches in the base"
    assert sum(url in {p.url for p in new} for url in wanted) >= 5, "matches since"
    found = index.check_and_insert(new, {})
    assert named(found) == wanted
    by_url = {page.url: page for page in pages}
    for page, answer in zip(new, found, strict=True):
        if isinstance(answer.decision, Duplicate) and page.fingerprint is not None:
            other = by_url[answer.decision.match.url]
            assert answer.decision.distance == (page.fingerprint ^ other.fingerprint).bit_count()
    assert index.documents() == sum(url is None for url in wanted), "only what is new lies in the index"


def test_a_page_of_the_base_that_comes_again_keeps_its_verdict(backend, name, tmp_path, pages):
    """After an announced rewind: itself is no duplicate of itself."""
    index = index_of(backend, name)
    unique = [page for page, url in zip(pages, expected([], pages), strict=True) if url is None]
    index.judge_beside(TableBase(placed(tmp_path, unique), PROFILE, RULE))
    answers = index.check_and_insert(unique, {})
    assert [answer.decision for answer in answers] == [Unique(seq) for seq in range(1, len(unique) + 1)]
    assert index.documents() == 0


def test_a_replay_gets_its_first_decision_though_the_base_has_moved_on(backend, name, tmp_path, pages, eager):
    old, new = pages[:120], pages[120:]
    index = index_of(backend, name)
    index.judge_beside(TableBase(placed(tmp_path, old[:60]), PROFILE, RULE))
    first = index.check_and_insert(new, {})
    placed(tmp_path, old, "second")
    assert named(index.check_and_insert(new, {})) == named(first)
    assert index.base() == TableBase(tmp_path / "base", PROFILE, RULE).generation, "moved"
    assert named(first) != expected(old, new), "the new base would answer otherwise"


def test_a_page_that_was_unique_before_its_match_came_stays_unique(backend, name, tmp_path, pages, eager):
    """Also when its journal is gone: its own record says so."""
    old, new = pages[:120], pages[120:]
    index = index_of(backend, name)
    index.judge_beside(TableBase(placed(tmp_path, old[:1]), PROFILE, RULE))
    first = index.check_and_insert(new, {})
    index.check_and_insert([], {Partition("pages", 0): 240})
    index.rewind(Partition("pages", 0), 0)
    journal = backend.meta(name).replace("meta", "j:pages:0")
    backend.client.hdel(journal, *[p.position.offset.to_bytes(6) for p in new])
    placed(tmp_path, old, "second")
    again = index.check_and_insert(new, {})
    kept = [a.decision for a in first if isinstance(a.decision, Unique)]
    assert [a.decision for a, b in zip(again, first, strict=True) if isinstance(b.decision, Unique)] == kept


def test_all_workers_judge_beside_one_base(backend, name, tmp_path, pages, eager):
    ours, theirs = index_of(backend, name), index_of(backend, name)
    here, there = tmp_path / "here", tmp_path / "there"
    here.mkdir()
    there.mkdir()
    ours.judge_beside(TableBase(placed(here, pages[:50]), PROFILE, RULE))
    theirs.judge_beside(TableBase(placed(there, pages[:50]), PROFILE, RULE))
    placed(here, pages[:80], "second")
    ours.check_and_insert(pages[100:110], {})
    with pytest.raises(IndexUnreachable, match="waiting for it"):
        theirs.check_and_insert(pages[110:120], {})
    placed(there, pages[:80], "second")
    wanted = expected(pages[:80], pages[100:120])
    assert named(theirs.check_and_insert(pages[110:120], {})) == wanted[10:]


def test_a_worker_with_another_base_or_without_one_is_refused(backend, name, tmp_path, pages):
    index_of(backend, name).judge_beside(TableBase(placed(tmp_path, pages[:50]), PROFILE, RULE))
    other = TableBase(built(tmp_path / "other", pages[:40]), PROFILE, RULE)
    with pytest.raises(IndexMismatch, match="index base"):
        index_of(backend, name).judge_beside(other)
    with pytest.raises(IndexMismatch, match="`base`"):
        index_of(backend, name).check_and_insert(pages[60:70], {})
    index = index_of(backend, name)
    index.announce_base(other.generation)
    index.judge_beside(other)
    assert named(index.check_and_insert(pages[60:70], {})) == expected(pages[:40], pages[60:70])


def test_a_base_of_another_recipe_or_of_bare_fingerprints_is_refused(tmp_path, pages):
    tables = built(tmp_path / "set", pages[:20])
    with pytest.raises(IndexMismatch, match="profile"):
        TableBase(tables, {"name": "another"}, RULE)
    with pytest.raises(IndexMismatch, match="reach"):
        TableBase(tables, PROFILE, Relation(design("4"), 5, 14, bands=2))
    with pytest.raises(IndexMismatch, match="design"):
        TableBase(tables, PROFILE, Relation(design("15"), 6, 14, bands=2))


@pytest.mark.parametrize("harm", ["cut off", "emptied", "damaged"])
def test_beside_tables_that_cannot_be_read_nothing_is_judged(backend, name, tmp_path, pages, eager, harm):
    old, new = pages[:120], pages[120:]
    index = index_of(backend, name)
    link = placed(tmp_path, old)
    index.judge_beside(TableBase(link, PROFILE, RULE))
    file = link / "table-01.sdt"
    whole = file.read_bytes()
    with file.open("r+b") as content:  # in its place, so that who has it open sees it
        if harm == "damaged":
            content.seek(-len(whole) // 2, os.SEEK_END)
            content.write(bytes(len(whole) // 2))
        else:
            content.truncate(0 if harm == "emptied" else len(whole) - 9)
    for _ in range(2):
        with pytest.raises(IndexUnreachable, match=r"base .* cannot be read: .*table-01\.sdt"):
            index.check_and_insert(new, {})
    assert index.documents() == 0
    file.write_bytes(whole)
    assert named(index.check_and_insert(new, {})) == expected(old, new)


def test_after_tables_that_cannot_be_read_others_may_come(backend, name, tmp_path, pages, eager):
    old, new = pages[:120], pages[120:]
    index = index_of(backend, name)
    link = placed(tmp_path, old[:60])
    index.judge_beside(TableBase(link, PROFILE, RULE))
    os.truncate(link / "records.zst", 100)
    with pytest.raises(IndexUnreachable, match=r"records\.zst"):
        index.check_and_insert(new, {})
    placed(tmp_path, old, "second")
    assert named(index.check_and_insert(new, {})) == expected(old, new)


@pytest.mark.parametrize("instead", ["nothing", "a file", "an empty directory"])
def test_tables_that_are_gone_stay_in_use(backend, name, tmp_path, pages, eager, caplog, instead):
    old, new = pages[:120], pages[120:]
    index = index_of(backend, name)
    directory = built(tmp_path / "set", old)
    index.judge_beside(TableBase(directory, PROFILE, RULE))
    directory.rename(tmp_path / "aside")
    if instead == "a file":
        directory.write_bytes(b"")
    if instead == "an empty directory":
        directory.mkdir()
    found = [index.check_and_insert(new[at : at + 40], {}) for at in (0, 40, 80)]
    assert [url for some in found for url in named(some)] == expected(old, new)
    assert sum("there are no tables" in message for message in caplog.messages) == 1
    with pytest.raises(TableMismatch, match="no compressed tables"):
        TableBase(directory, PROFILE, RULE)


def test_a_worker_names_pages_of_its_base(kafka_server, redis_server, name, tmp_path):
    """The whole way: a first crawl's verdicts become tables, a second crawl on a new index is judged beside them."""
    found = texts(120, Random(11))
    first = Stream(f"{name}-first", kafka_server.bootstrap_servers, redis_server.url)
    first.create()
    first.send([json_page(n, text) for n, text in enumerate(found[:60])])
    with_worker(first, 60)
    verdicts = tmp_path / "verdicts.jsonl"
    verdicts.write_text("".join(json.dumps(v) + "\n" for v in first.verdicts()))
    archive = tmp_path / "archive"
    done = first.command("tables", "build", str(verdicts), "--out", str(archive), "--design", "4")
    assert done.returncode == 0, done.stderr
    second = Stream(name, kafka_server.bootstrap_servers, redis_server.url, settings={"base": str(archive)})
    second.create()
    second.send([json_page(100 + n, text) for n, text in enumerate(found[30:])])
    with_worker(second, 90)
    again = second.verdicts()[:30]
    assert {v["verdict"] for v in again} == {"duplicate"}
    unique = {v["url"] for v in first.verdicts() if v["verdict"] == "unique"}
    assert all(v["match"]["url"] in unique for v in again)
    assert DEFAULT.name in again[0]["profile"]
    second.check()


def pointed(link, directory):
    """Let a name point at another directory from one moment to the next."""
    aside = link.with_name("aside")
    aside.symlink_to(directory)
    aside.replace(link)


def archived(stream, tmp_path, old):
    """Tables of pages, made as an operator makes them."""
    pages, verdicts, tables = (tmp_path / f"{len(old)}{end}" for end in (".jsonl", "-verdicts.jsonl", "-tables"))
    pages.write_bytes(b"".join(json_page(n, text)[1] + b"\n" for n, text in enumerate(old)))
    plain = Stream(f"{stream.name}-plain", stream.bootstrap_servers, stream.redis_url)
    for command in (
        ("file", pages, "--out", verdicts),
        ("tables", "build", verdicts, "--design", "6", "--out", tables),
    ):
        done = plain.command(*map(str, (*command, "-q")))
        assert done.returncode == 0, done.stderr
    return tables


def until_moved(stream, tables):
    """Wait until the index is judged beside these."""
    generation = TableSet(tables).generation
    until(lambda: stream.command("index", "base").stdout.strip() == generation, f"a move to {tables}")


def test_newer_tables_are_moved_to_while_pages_flow_and_workers_die(kafka_server, redis_server, name, tmp_path):
    """Two moves, a worker killed in the middle of a batch beside the second tables, another one in its place."""
    link, old, new = tmp_path / "base", texts(150, Random(12)), texts(270, Random(13))
    settings = {"base": str(link), "session_timeout": "6s"}
    stream = Stream(name, kafka_server.bootstrap_servers, redis_server.url, partitions=4, settings=settings)
    stream.create()
    archives = [archived(stream, tmp_path, old[:count]) for count in (50, 100, 150)]
    pointed(link, archives[0])
    workers = [stream.worker(), stream.worker(stop_at="judged:3")]
    with working(*workers):
        stream.wait_for_members(2)  # or the first may have answered all before the other has a batch
        for part, archive in enumerate([*archives[1:], archives[-1]]):
            # A third are pages of what will be the base by then, a third are new, a third are new and soon in a base.
            some = [old[50 * part + n] if n % 3 == 0 else new[90 * part + n] for n in range(50)] + old[50 * part :][:40]
            stream.send([json_page(1000 * (part + 1) + n, text) for n, text in enumerate(some)])
            stream.wait_for(90 * part + 30)
            pointed(link, archive)
            if part == 0:  # one that is to move on later must know the base that the other moves to
                workers[0].says("a new base lies in")
            if part == 1:
                assert workers[1].wait()[0] == -signal.SIGKILL
                workers.append(stream.worker())  # it may see the last tables before the other worker moves to them
        stream.wait_for(270)
        until_moved(stream, archives[-1])
        stream.send([json_page(9000 + n, text) for n, text in enumerate(old[100:140])])
        stream.wait_for(310)
        assert [workers[n].stop()[0] for n in (0, 2)] == [0, 0]
    stream.check()
    assert len(stream.answers()) == 310
    verdicts = stream.verdicts()
    unique = {v["url"] for v in verdicts if v["verdict"] == "unique"}
    known = {record.url for _, record in TableSet(archives[-1]).scan()}
    assert {v["match"]["url"] for v in verdicts if v["match"]} <= unique | known
    last = [v for v in verdicts if int(v["id"]) >= 9000]
    assert {v["match"] and v["match"]["url"] in known for v in last} == {True}, "judged beside the last tables"


def test_a_worker_that_starts_beside_newer_tables_waits_for_the_others(kafka_server, redis_server, name, tmp_path):
    """The others have nothing to judge: they move none the less."""
    link, found = tmp_path / "base", texts(120, Random(14))
    settings = {"base": str(link), "session_timeout": "6s"}
    stream = Stream(name, kafka_server.bootstrap_servers, redis_server.url, partitions=2, settings=settings)
    stream.create()
    first, second = (archived(stream, tmp_path, found[:count]) for count in (40, 80))
    pointed(link, first)
    there = stream.worker()
    with working(there):
        stream.send([json_page(1000 + n, text) for n, text in enumerate(found[80:100])])
        stream.wait_for(20)
        there.process.send_signal(signal.SIGSTOP)
        pointed(link, second)
        starting, ended = stream.worker(), stream.worker()
        with working(starting, ended):
            for worker in (starting, ended):
                worker.says("waiting 60 s")
            assert ended.stop()[0] == 0
            there.process.send_signal(signal.SIGCONT)
            until_moved(stream, second)
            stream.send([json_page(2000 + n, text) for n, text in enumerate(found[40:80] + found[100:])])
            stream.wait_for(80)
            assert [worker.stop()[0] for worker in (there, starting)] == [0, 0]
    stream.check()
    verdicts = [v["verdict"] for v in stream.verdicts() if int(v["id"]) in range(2000, 2040)]
    assert verdicts == 40 * ["duplicate"], "judged beside the second tables"


def test_a_worker_that_starts_beside_other_tables_is_refused_when_nobody_moves(
    redis_server, name, tmp_path, monkeypatch
):
    monkeypatch.setattr(consumer, "MOVE_SECONDS", 0.1)
    monkeypatch.setattr(consumer, "MOVE_PAUSE_SECONDS", 0.01)
    common = {"redis_url": redis_server.url, "index_name": name, "metrics_address": ""}
    index = connected_index(load(common), DEFAULT)
    tables = built(tmp_path / "set", [], index.spec.relation, DEFAULT.recipe())
    index.announce_base("others")
    with pytest.raises(BaseDiffers, match=r"beside base others; .*announce it: simhash-dedup index base"):
        run_consumer(load({**common, "base": str(tables)}), CollectorRegistry(), Status())


def with_worker(stream, count):
    worker = stream.worker()
    try:
        stream.wait_for(count)
        assert worker.stop()[0] == 0
    finally:
        worker.process.kill()
        worker.process.wait()
