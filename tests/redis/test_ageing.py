"""An index whose oldest pages go to disk: one answer over both, whatever happens between any two steps."""

import os
import signal
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from itertools import count, islice
from multiprocessing import get_context
from random import Random

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry

from simhash.archive.segments import contents as moments
from simhash.archive.segments import segmented
from simhash.archive.segments.contents import Contents
from simhash.errors import (
    IndexMigrated,
    IndexMisconfigured,
    IndexMismatch,
    IndexUnreachable,
    TableCorrupt,
    TableMismatch,
)
from simhash.index import IndexSpec, Retention, Unique
from simhash.index.redis.operators.migration import Migration
from simhash.index.redis.operators.retiring import Retiring
from simhash.index.redis.operators.takedowns import Found
from simhash.index.redis.operators.transfer import loaded, opened_for_import
from simhash.index.rows import RecordRow, Takedown
from simhash.relation.tables import design
from tests.kafka.test_rebuild import PROFILE as VERDICTS_OF
from tests.kafka.test_rebuild import TAKEN_DOWN_MS, told
from tests.pages import PAGES, banded, crowd, entry, relation, summary
from tests.redis.test_retention import Model, fresh
from tests.stream import until
from worker.ageing import keeper, segments
from worker.ageing.segments import Ageing
from worker.index import stores
from worker.index.configured import configured_profile
from worker.index.stores import connected_index
from worker.index.whole import Whole
from worker.rebuilding.build import Target, archived_up_to, build
from worker.rebuilding.collected import CollectedVerdicts
from worker.rebuilding.order import Sorted
from worker.settings import Settings

BANDS = 2
TRIES = count()
RULE = relation(design("6"), 12, bands=BANDS)
PROFILE = {"name": "made-up"}
ALL = Retention(max_documents=1)
HOUR_MS = 3_600_000


class Aged:
    """An index and its archive, opened as a worker, an operator and the program that retires open them."""

    def __init__(self, backend, name, directory):
        self.backend, self.name, self.directory = backend, name, directory
        self.worker = self.opened()

    def opened(self):
        index = self.backend.open(self.name, RULE, 400, profile=PROFILE)
        stores._judge_beside_archive(self.directory, index)
        return index

    def retiring(self):
        return Retiring(self.backend.open(self.name, RULE, 400, profile=PROFILE), self.directory)

    def ageing(self, most=10, on_step=lambda step: None, least=1):
        return Ageing(self.retiring(), Retention(max_documents=most), least, on_step)

    def whole(self):
        retiring = self.retiring()
        return Whole(retiring.index, retiring)

    def contents(self):
        return self.retiring().contents()

    def judge(self, batch, committed=0):
        return [summary(a.decision) for a in self.worker.check_and_insert(batch, {PAGES: committed})]

    def meta(self, *fields):
        return self.backend.of(self.name).client.hmget(self.backend.meta(self.name), *fields)


@pytest.fixture
def aged(backend, name, tmp_path):
    return Aged(backend, name, tmp_path / "archive")


@pytest.fixture
def pages():
    random = Random(3)
    return banded(crowd(200, random), BANDS, random)


@pytest.fixture
def filled(aged, pages):
    """120 pages are judged; what follows is held against the model."""
    model = Model(RULE, Retention())
    assert aged.judge(pages[:120]) == [model.judge(page, 0) for page in pages[:120]]
    return model


def four_segments(aged):
    """The oldest pages, ten at a time: due to be merged."""
    uniques = aged.worker.documents()
    assert uniques > 55
    for nth in range(1, 5):
        assert aged.ageing(uniques - 10 * nth).retire()


def goes_on(aged, model, pages):
    """The rest of the pages, and those from before as if fetched again, get the answers of one list."""
    again = fresh(pages[:120], 10_000)
    for batch in (pages[120:160], again, pages[160:]):
        assert aged.judge(batch) == [model.judge(page, 0) for page in batch]
    assert {record.seq for _, record in aged.whole().scan()} == {seq for _, seq, _ in model.live}
    assert aged.backend.operations(aged.worker).check(lambda _: None).violations == []


@settings(max_examples=6, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(seed=st.integers(0, 10**6))
def test_whatever_goes_to_disk_meanwhile_the_answers_are_those_of_one_list(backend, tmp_path_factory, seed):
    """Retiring, merging, takedowns and further workers, in any order between batches."""
    random = Random(seed)
    aged = Aged(backend, f"aged-{next(TRIES)}", tmp_path_factory.mktemp("archive"))
    model = Model(RULE, Retention())
    pages = banded(crowd(160, random), BANDS, random)
    for at in range(0, len(pages), 20):
        batch = [*pages[at : at + 20], *fresh(random.sample(pages[: at + 20], 5), 1000 * (at + 1))]
        assert aged.judge(batch, at) == [model.judge(page, 0) for page in batch]
        if random.random() < 0.7:
            aged.ageing(random.choice([0, 5, 30])).retire()
        if random.random() < 0.3:
            aged.ageing().merge()
        if random.random() < 0.3:
            aged.worker = aged.opened()
        if random.random() < 0.5:
            found = [Found(f, r) for f, r in aged.whole().scan() if random.random() < 0.1]
            assert aged.whole().take_down(found) == len(found)
            model.take_down({each.record.seq for each in found})
    assert {record.seq for _, record in aged.whole().scan()} == {seq for _, seq, _ in model.live}
    assert aged.contents().segments
    assert aged.contents().pages == len([*aged.whole().archived()])
    assert aged.backend.operations(aged.worker).check(lambda _: None).violations == []


# Kills ---------------------------------------------------------------------------------------------------------------

POINTS = {
    "before the build": (segments, "build", "before"),
    "when the segment is whole": (segments, "build", "after"),
    "when it has its name": (segments, "move_whole", "after"),
    "before the next moment is written": (moments, "write", "before"),
    "when it is written": (moments, "write", "after"),
    "before the move": (moments, "touch", "after"),
    "after the move": (Retiring, "_moved", "after"),
}


def killed_at(step, where, aged):
    """Take a step in a process of its own, which is killed there."""
    owner, name, side = POINTS[where]

    def run():
        real = getattr(owner, name)

        def killing(*arguments, **options):
            if side == "before":
                os.kill(os.getpid(), signal.SIGKILL)
            real(*arguments, **options)
            os.kill(os.getpid(), signal.SIGKILL)

        setattr(owner, name, killing)
        getattr(aged.ageing(5), step)()

    process = get_context("fork").Process(target=run)
    process.start()
    process.join()
    assert process.exitcode == -signal.SIGKILL


@pytest.mark.parametrize("where", POINTS)
def test_a_kill_between_any_two_steps_of_retiring_loses_nothing(aged, pages, filled, where):
    aged.ageing(40).retire()
    killed_at("retire", where, aged)
    goes_on(aged, filled, pages)
    aged.ageing(5).retire()
    assert aged.contents().archived > 40
    goes_on(aged, filled, fresh(pages, 50_000))


@pytest.mark.parametrize("where", POINTS)
def test_a_kill_between_any_two_steps_of_merging_loses_nothing(aged, pages, filled, where):
    four_segments(aged)
    killed_at("merge", where, aged)
    goes_on(aged, filled, pages)
    aged.ageing().merge()
    assert len(aged.contents().segments) == 1
    goes_on(aged, filled, fresh(pages, 50_000))


def test_a_redis_that_lost_its_last_seconds_names_an_earlier_moment_and_loses_nothing(aged, pages, filled):
    """It lost the move, and so has lost no forgetting: that comes after."""
    aged.ageing(40).retire()
    before = aged.meta("base", "archived")
    aged.ageing(5).retire()
    aged.ageing().sweep()
    meta = aged.backend.meta(aged.name)
    aged.backend.of(aged.name).client.hset(meta, mapping=dict(zip(("base", "archived"), before, strict=True)))
    goes_on(aged, filled, pages)
    aged.ageing(5).retire()
    goes_on(aged, filled, fresh(pages, 50_000))


# Two at a time -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("when", ["built", "looked"])
def test_of_two_who_retire_at_the_same_time_one_moves_the_index(aged, pages, filled, when):
    def other(step):
        if step == when:
            assert aged.ageing(20).retire()

    assert aged.ageing(5, other).retire() is None
    assert len(aged.contents().segments) == 1
    goes_on(aged, filled, pages)


def test_pages_go_to_disk_while_segments_are_merged(aged, pages, filled):
    four_segments(aged)

    def other(step):
        if step == "merged":
            assert aged.ageing(5).retire()

    assert aged.ageing(on_step=other).merge()
    assert len(aged.contents().segments) == 2
    goes_on(aged, filled, pages)


@pytest.mark.parametrize("when", ["built", "looked"])
def test_a_page_that_is_taken_down_on_its_way_to_disk_does_not_come_back(aged, pages, filled, when):
    done = []

    def takes_down(step):
        if step == when and not done:
            done.extend(Found(f, r) for f, r in aged.whole().scan() if r.seq in (3, 7))
            assert aged.whole().take_down(done) == 2

    aged.ageing(5, takes_down).retire()
    filled.take_down({3, 7})
    assert {3, 7} <= set(aged.contents().gone)
    goes_on(aged, filled, pages)


def test_a_page_that_is_taken_down_on_its_way_does_not_come_back_by_a_migration(aged, pages, filled):
    """The tombstones of before are gone with the tables of before."""
    wanted = IndexSpec(PROFILE, replace(RULE, design=design("4")), 5, 400)

    def takes_down_and_migrates(step):
        if step == "built":
            found = [Found(f, r) for f, r in aged.whole().scan() if r.seq in (3, 7)]
            assert aged.whole().take_down(found) == 2
            aged.backend.migrate(aged.name, lambda _: wanted)

    with pytest.raises(IndexMigrated):
        aged.ageing(5, takes_down_and_migrates).retire()
    assert aged.contents().archived == 0
    assert aged.ageing(5).retire()
    aged.worker = aged.opened()
    assert {3, 7}.isdisjoint(record.seq for _, record in aged.whole().scan())
    assert aged.backend.operations(aged.worker).check(lambda _: None).violations == []


def test_an_export_of_an_index_and_its_archive_that_is_migrated_meanwhile_says_so(aged, filled):
    aged.ageing(20).retire()
    rows = aged.whole().exported()
    next(rows)
    aged.backend.migrate(aged.name, lambda _: IndexSpec(PROFILE, replace(RULE, design=design("4")), 5, 400))
    with pytest.raises(IndexMigrated):
        list(rows)


def test_pages_that_were_taken_down_before_are_none_of_the_archives(aged, pages, filled):
    """They were counted off those that came: of more than came there were fewer than none, and no worker lived on."""
    first = {*range(2, 12)}
    assert aged.whole().take_down([Found(f, r) for f, r in aged.whole().scan() if r.seq in first]) == len(first)
    filled.take_down(first)
    aged.ageing(aged.worker.documents() - 4).retire()
    held = aged.contents()
    assert (held.archived, held.pages, held.gone) == (14, 4, ())
    assert {record.seq for _, record in aged.whole().archived()} == {1, 12, 13, 14}
    goes_on(aged, filled, pages)


def test_what_was_taken_down_is_left_out_by_the_next_merge(aged, pages, filled):
    four_segments(aged)
    found = [Found(f, r) for f, r in aged.whole().scan() if r.seq in (1, 2)]
    assert aged.whole().take_down(found) == 2
    assert aged.whole().take_down(found) == 0, "once"
    filled.take_down({1, 2})
    held = aged.contents()
    assert held.gone == (1, 2)
    merged = aged.ageing().merge()
    assert merged.gone == ()
    assert merged.pages == held.pages
    goes_on(aged, filled, pages)


def test_what_lies_on_disk_is_found_by_its_url_to_be_taken_down(aged, pages, filled):
    four_segments(aged)
    stored = [Found(f, r) for f, r in aged.whole().scan()]
    on_disk = [each for each in stored if each.record.seq <= 40]
    assert {each.fingerprint is None for each in on_disk} == {False, True}, "digests alone among them"
    for each in stored:
        under = {"fingerprint": each.fingerprint, "digest": each.record.digest}
        found = aged.whole().under(**under, urls={each.record.url, "https://elsewhere.example/"})
        assert each.record.seq in {one.record.seq for one in found}
        assert {one.record.url for one in found} == {each.record.url}
        assert aged.whole().under(**under, urls={"https://elsewhere.example/"}) == []
    assert aged.whole().take_down(on_disk[:3]) == 3
    gone = on_disk[0]
    left = aged.whole().under(gone.fingerprint, gone.record.digest, {gone.record.url})
    assert gone.record.seq not in {one.record.seq for one in left}


# Beside which archive ------------------------------------------------------------------------------------------------


def test_redis_forgets_what_is_on_disk_little_by_little_and_nothing_else(aged, pages, filled):
    uniques = aged.worker.documents()
    archived = aged.ageing(20).retire().archived
    assert aged.worker.documents() == uniques, "not at once"
    for at in range(0, 200, 50):
        aged.judge(fresh(pages[:50], 1_000 * (at + 1)))
    assert {r.seq for _, r in aged.worker.scan()} == set(range(archived + 1, uniques + 1))
    assert aged.whole().documents() == uniques


def test_a_page_that_lies_in_both_is_counted_once(aged, filled):
    uniques = aged.worker.documents()
    archived = aged.ageing(20).retire().archived
    assert aged.whole().documents() == uniques
    gone = {2, archived, archived + 1, uniques}
    assert aged.whole().take_down([Found(f, r) for f, r in aged.whole().scan() if r.seq in gone]) == 4
    assert aged.whole().documents() == uniques - 4 == len([*aged.whole().scan()])


def test_by_age_go_the_pages_that_are_old_enough_when_they_are_enough(aged, filled):
    retiring = aged.retiring()
    old = Ageing(retiring, Retention(max_age_ms=0), least=10)
    assert Ageing(retiring, Retention(max_age_ms=HOUR_MS), least=1).retire() is None
    assert Ageing(retiring, Retention(max_age_ms=0), least=1000).retire() is None
    assert old.retire().archived == filled.seq
    assert old.retire() is None


def test_a_page_that_looks_younger_than_those_behind_it_goes_with_them(aged, pages, backend):
    """A server's clock was set back, or a rebuild stored one partition's pages behind another's."""
    hours = iter([6, 0, 6, 0, 6, 0])
    aged.worker = backend.open(aged.name, RULE, 400, profile=PROFILE, clock=lambda: next(hours) * HOUR_MS)
    stores._judge_beside_archive(aged.directory, aged.worker)
    for at in range(0, 60, 20):
        aged.judge(pages[at : at + 20])
    retiring = aged.retiring()
    looked = retiring.now_ms() - 3 * HOUR_MS  # older than that: the pages of every second batch
    some = Ageing(retiring, Retention(max_age_ms=looked), least=25)
    moved = [after.archived for after in iter(some.retire, None)]
    assert moved == sorted(set(moved)), "each moves the index on"
    assert moved[0] >= 25
    assert all(segment.pages for segment in aged.contents().segments)


def test_a_merge_that_was_stopped_is_begun_anew_after_a_migration(aged, pages, filled, backend):
    """Its working files were sorted for the tables from before."""

    class Stopped(Exception):
        pass

    def stop(stage, done, total):
        if stage == "sorting" and done > total // 2:
            raise Stopped

    four_segments(aged)
    with pytest.raises(Stopped):
        replace(aged.ageing(), on_progress=stop).merge()
    assert [*aged.directory.glob("building-*")]
    backend.migrate(aged.name, in_design("10"))
    assert len(aged.ageing(1000).merge().segments) == 1
    assert aged.backend.operations(aged.retiring().index).check(lambda _: None).violations == []
    aged.worker = aged.opened()
    copies = fresh([page for page, _, _ in filled.live], 70_000)
    assert {answer[0] for answer in aged.judge(copies)} == {"duplicate"}


def test_a_merge_whose_working_files_are_torn_begins_anew(aged, pages, filled):
    four_segments(aged)
    killed_at("merge", "before the build", aged)

    def stop(stage, done, total):
        if stage == "sorting" and done:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        replace(aged.ageing(5), on_progress=stop).merge()
    (building,) = aged.directory.glob("building-*-*")
    for file in building.glob("building/*-[0-9]*"):
        os.truncate(file, 0)
    with pytest.raises(TableCorrupt, match="building-"):
        aged.ageing(5).merge()
    assert len(aged.ageing(5).merge().segments) == 1
    goes_on(aged, filled, pages)


def test_a_worker_that_could_not_read_the_archive_for_long_goes_on_with_the_present_one(
    aged, pages, filled, monkeypatch
):
    """Meanwhile others moved on, and what it had was swept."""
    four_segments(aged)
    aged.worker = aged.opened()
    with monkeypatch.context() as patched:
        patched.setattr(segmented, "matches", broken_read)
        with pytest.raises(IndexUnreachable, match="cannot be read: the disk is away"):
            aged.judge(pages[120:130])
        aged.ageing(5).merge()
        monkeypatch.setattr(segments, "KEEP_SECONDS", -60.0)
        assert aged.ageing(5).sweep()
        with pytest.raises(IndexUnreachable):
            aged.judge(pages[120:130])
    goes_on(aged, filled, pages)


def broken_read(*_):
    raise OSError("the disk is away")


def test_a_worker_without_the_archive_is_refused(aged, filled, backend, name):
    plain = backend.open(name, RULE, 400, profile=PROFILE)
    with pytest.raises(IndexMismatch, match="`base`"):
        plain.check_and_insert(fresh([filled.live[0][0]], 9_000), {})


def in_design(name):
    """What a migration makes of a spec: the same in these tables."""
    other = design(name)
    return lambda spec: replace(spec, relation=replace(spec.relation, design=other), bucket_bits=4)


@pytest.mark.parametrize("of_as_many_bits", ["3", "10"])
def test_beside_an_archive_an_index_takes_tables_that_find_no_more(aged, pages, filled, backend, of_as_many_bits):
    aged.ageing(40).retire()
    with pytest.raises(IndexMismatch, match=r"beside tables on disk.*within 3 bits.*design 15, for 4 bits"):
        backend.migrate(aged.name, in_design("15"))
    goes_on(aged, filled, pages)
    backend.migrate(aged.name, in_design(of_as_many_bits))
    aged.worker = backend.open(aged.name, RULE, 400, profile=PROFILE)
    stores._judge_beside_archive(aged.directory, aged.worker)
    seen = {seq for _, seq, _ in filled.live}
    assert {answer[1] for answer in aged.judge(fresh(pages, 70_000))} <= seen


def test_segments_of_other_tables_are_asked_beside_those_from_before(aged, pages, filled, backend):
    uniques = aged.worker.documents()
    for nth, name in enumerate(("4", "3", "10", "3"), start=1):
        backend.migrate(aged.name, in_design(name))
        aged.ageing(uniques - 10 * nth).retire()
    aged.worker = backend.open(aged.name, RULE, 400, profile=PROFILE)
    stores._judge_beside_archive(aged.directory, aged.worker)
    seen = {seq for _, seq, _ in filled.live}
    assert {answer[1] for answer in aged.judge(fresh(pages[:120], 70_000))} <= seen
    answers = [answer for answer in aged.judge(pages[120:]) if answer[0] == "unique"]
    assert len(aged.ageing(1000).merge().segments) == 1
    assert {answer[1] for answer in aged.judge(fresh(pages, 80_000))} <= seen | {seq for _, seq in answers}


def test_an_index_that_gets_an_archive_while_it_is_migrated_is_not_switched_to_tables_that_find_more(
    backend, name, tmp_path, pages
):
    index = backend.open(name, RULE, 400, profile=PROFILE)
    index.check_and_insert(pages[:120], {})
    migrating = Migration(backend.of(name).client, name, lambda progress: Aged(backend, name, tmp_path / "archive"))
    with pytest.raises(IndexMismatch, match="beside tables on disk"):
        migrating.run(in_design("15"))
    assert Aged(backend, name, tmp_path / "archive").worker.documents() == index.documents()


def test_an_index_that_was_emptied_does_not_begin_an_archive_anew(aged, pages, filled, backend, name):
    aged.ageing(5).retire()
    client = backend.of(name).client
    client.delete(*client.keys(f"{{{name}}}*"))
    with pytest.raises(IndexMismatch, match="knows nothing of it"):
        aged.opened()
    held = moments.newest(aged.directory)
    index = backend.open(name, RULE, 400, profile=PROFILE)
    index.announce_base(held.generation, held.archived)
    aged.worker = aged.opened()
    answers = aged.judge(fresh([page for page, _, _ in filled.live[: held.archived]], 9_000))
    assert answers == [("duplicate", seq) for seq in range(1, held.archived + 1)]
    assert aged.judge(fresh([filled.live[-1][0]], 9_500)) == [("unique", held.archived + 1)], "numbers go on"


def test_an_index_with_fewer_numbers_than_an_archive_cannot_take_it(aged, filled, backend):
    held = aged.ageing(5).retire()
    other = backend.open(f"{aged.name}-other", RULE, 400, profile=PROFILE)
    other.check_and_insert(fresh([filled.live[0][0]], 9_000), {})
    with pytest.raises(IndexMismatch, match="has given 1 numbers"):
        other.announce_base(held.generation, held.archived)


def test_beside_an_archive_that_cannot_be_read_nothing_is_judged(aged, pages, filled):
    segment = aged.ageing(5).retire().segments[0]
    aged.worker = aged.opened()
    file = aged.directory / segment.name / "table-01.sdt"
    whole = file.read_bytes()
    os.truncate(file, len(whole) - 9)
    for _ in range(2):
        with pytest.raises(IndexUnreachable, match=r"archive .* cannot be read: .*table-01\.sdt"):
            aged.judge(pages[120:])
    file.write_bytes(whole)
    goes_on(aged, filled, pages)


def test_files_of_past_moments_stay_for_a_while_and_then_go(aged, filled, monkeypatch):
    four_segments(aged)
    aged.ageing().merge()
    assert aged.ageing().sweep() == []
    monkeypatch.setattr(segments, "KEEP_SECONDS", -60.0)
    assert len(aged.ageing().sweep()) == 9, "five moments, four segments"
    assert len(aged.contents().segments) == 1
    assert aged.opened()
    assert moments.newest(aged.directory) != Contents()


def test_a_past_moment_that_is_damaged_is_in_nobodys_way(aged, filled, monkeypatch):
    past = aged.contents()
    aged.ageing(5).retire()
    (damaged,) = aged.directory.glob(f"contents-{past.generation}.json")
    damaged.write_bytes(b"{")
    assert not moments.is_shared(aged.directory, aged.contents())
    monkeypatch.setattr(segments, "KEEP_SECONDS", -60.0)
    assert aged.ageing().sweep() == [damaged.name]
    assert aged.opened()


def test_two_indexes_in_one_directory_leave_each_other_what_they_need(aged, pages, filled, backend, name, monkeypatch):
    """As of one name, on two servers, that were begun in the same directory before either had retired a page."""
    other = Aged(backend, f"{name}-other", aged.directory)
    assert not moments.is_shared(aged.directory, aged.contents())
    other.judge(pages[:60])
    four_segments(aged)
    other.ageing(5).retire()
    monkeypatch.setattr(segments, "KEEP_SECONDS", -60.0)
    for one in (aged, other, aged):
        one.ageing().sweep()
    assert moments.is_shared(aged.directory, aged.contents())
    other.worker = other.opened()
    assert [kind for kind, _ in other.judge(fresh(pages[:60], 20_000))] == ["duplicate"] * 60
    goes_on(aged, filled, pages)
    with pytest.raises(TableMismatch, match="holds the archives of 2 indexes"):
        moments.newest(aged.directory)


# From the verdicts ---------------------------------------------------------------------------------------------------


def rebuilt(aged, told, takedowns=()):
    """The index called otherwise, made from verdicts and the archive."""
    spec = aged.worker.spec
    with Sorted() as unique:
        collected = CollectedVerdicts(VERDICTS_OF, takedowns, unique)
        collected.archived = archived_up_to(aged.directory, aged.worker.spec)
        for _ in collected.add_all(told):
            pass
        name = f"{aged.name}-again"
        build(
            Target(partial(aged.backend.store, name), spec, Retention(), "", aged.directory),
            collected,
            lambda seq, last: None,
        )
    again = Aged(aged.backend, name, aged.directory)
    assert again.contents().archived == aged.contents().archived
    return again


def test_a_rebuild_leaves_on_disk_what_is_there_and_takes_down_there_too(aged, pages):
    model = Model(RULE, Retention())
    told_of = [
        told(page, answer.decision) for page, answer in zip(pages, aged.worker.check_and_insert(pages, {}), strict=True)
    ]
    for page in pages:
        model.judge(page, 0)
    archived = aged.ageing(20).retire().archived
    oldest = next(each.verdict for each in told_of if each.verdict.seq == 1)
    takedown = Takedown(oldest.url, TAKEN_DOWN_MS, 1, oldest.observation[:16])
    again = rebuilt(aged, told_of, [takedown])
    model.take_down({1})
    assert {r.seq for _, r in again.worker.scan()} == set(range(archived + 1, model.seq + 1))
    assert again.judge(fresh(pages, 10_000)) == [model.judge(page, 0) for page in pages]


def test_a_rebuild_beside_an_archive_that_finds_less_is_refused_before_it_begins(aged, filled):
    aged.ageing(20).retire()
    with pytest.raises(IndexMismatch, match="its k is smaller"):
        archived_up_to(aged.directory, in_design("15")(aged.worker.spec))


def test_a_number_that_was_given_twice_is_kept_for_neither_page(aged, pages):
    """Nobody knows which of the two the archive has: both are stored behind the others."""
    told_of = [
        told(page, answer.decision) for page, answer in zip(pages, aged.worker.check_and_insert(pages, {}), strict=True)
    ]
    aged.ageing(20).retire()
    random = Random(1)
    lost = entry(777, random.getrandbits(64), random.getrandbits(128))
    again = rebuilt(aged, [*told_of, told(lost, Unique(2), written_ms=0)])
    assert again.judge(fresh([lost], 20_000))[0][0] == "duplicate"


@pytest.mark.parametrize("harm", [False, True])
def test_what_was_told_is_held_against_index_and_archive_together(aged, pages, harm):
    answers = aged.worker.check_and_insert(pages, {})
    aged.ageing(20).retire()
    uniques = {answer.decision.seq for answer in answers if isinstance(answer.decision, Unique)}
    if harm:
        aged.whole().take_down([Found(f, r) for f, r in aged.whole().scan() if r.seq == 2])
    rows = list(aged.whole().exported())
    assert {row.seq for row in rows if isinstance(row, RecordRow)} == uniques - ({2} if harm else set())
    assert rows[-1].records == len(uniques) - harm


# What operators see --------------------------------------------------------------------------------------------------


def numbers_in(rows):
    return [row.seq for row in rows if isinstance(row, RecordRow)]


@pytest.mark.parametrize("after", [0, 5, 30])
def test_an_export_has_every_record_once_in_order_though_pages_go_to_disk_meanwhile(aged, pages, filled, after):
    four_segments(aged)
    rows = aged.whole().exported()
    head, *some = list(islice(rows, after + 1))
    aged.ageing(5).retire()
    aged.ageing().merge()
    aged.judge(pages[120:])  # and Redis forgets them
    rest = list(rows)
    expected = [seq for _, seq, _ in filled.live]
    assert numbers_in([*some, *rest]) == sorted(expected)
    assert head.documents == rest[-1].records == len(expected)


def test_many_records_are_put_in_order_by_files(aged, filled, monkeypatch):
    monkeypatch.setattr(segmented, "RUN_RECORDS", 7)
    aged.ageing(5).retire()
    assert numbers_in(aged.whole().exported()) == sorted(seq for _, seq, _ in filled.live)


def test_an_imported_index_answers_as_the_one_with_an_archive_did(aged, pages, filled, backend, name, tmp_path):
    aged.ageing(20).retire()
    head, *rows = aged.whole().exported()
    store = opened_for_import(backend.of(f"{name}-b").client, f"{name}-b", head)
    loaded(store, head, rows, lambda _: None)
    store.release(head.generation)
    copy = backend.open(f"{name}-b", RULE, 400, profile=PROFILE)
    again = fresh(pages, 10_000)
    assert [summary(a.decision) for a in copy.check_and_insert(again, {})] == [filled.judge(p, 0) for p in again]


@pytest.fixture
def told_of_aged(backend, name, tmp_path, pages, say):
    """An index with an archive, and what an `index` command says of it: exit code and output."""
    aged = Aged(backend, name, tmp_path / name)
    aged.judge(pages[:120])
    aged.ageing(20).retire()

    def run(*command, archive=True):
        place = ("--redis-url", backend.url, "--index-name", name, *(("--archive", str(tmp_path)) if archive else ()))
        return say("index", *command, *place)[:2]

    return aged, run


def test_statistics_tell_what_lies_on_disk(told_of_aged):
    aged, run = told_of_aged
    code, out = run("stats", "--json")
    found = msgspec.json.decode(out)["archive"]
    stored = aged.contents().segments[0]
    assert (code, found["pages"], found["segments"]) == (0, stored.pages, 1)
    assert found["archived"] == stored.last
    assert found["bytes"] > 100 * stored.pages
    assert f"{stored.pages:,} (1 segments, " in run("stats")[1]
    aged.judge(fresh([entry(900 + n, n << 40, 0) for n in range(20)], 1))
    later = msgspec.json.decode(run("stats", "--json")[1])
    assert later["archive"]["in_both"] < found["in_both"] == stored.pages
    held = later["documents"] + later["archive"]["pages"] - later["archive"]["in_both"]
    assert held == len(list(aged.whole().scan()))


def test_a_check_reads_the_files_of_the_archive(told_of_aged):
    aged, run = told_of_aged
    segment = aged.contents().segments[0]
    code, out = run("check")
    assert (code, f"{segment.pages} archived records: the index is whole" in out) == (0, True)
    path = aged.directory / segment.name / "records.zst"
    data = path.read_bytes()
    path.write_bytes(data[:-5] + bytes([data[-5] ^ 1]) + data[-4:])
    code, out = run("check")
    assert (code, out.startswith("archive: "), str(path) in out) == (1, True, True)


@pytest.mark.parametrize("command", [["stats"], ["check"], ["export", "/dev/null"]])
def test_a_command_that_is_not_told_where_the_archive_lies_says_so(told_of_aged, command):
    assert told_of_aged[1](*command, archive=False)[0] == 5


# The processes that let it age --------------------------------------------------------------------------------------


@pytest.fixture
def kept(backend, name, tmp_path, monkeypatch):
    """What fills an archive, in a thread: its settings, its metrics, and what becomes of it."""
    wanted = Settings(redis_url=backend.url, index_name=name, archive=tmp_path, max_documents=10, archive_pages=5)
    stopping, registry = threading.Event(), CollectorRegistry()
    monkeypatch.setattr(keeper, "stop_on_signals", lambda: nullcontext(stopping))
    monkeypatch.setattr(keeper, "PAUSE_SECONDS", 0.02)
    with ThreadPoolExecutor() as other:
        fills = other.submit(keeper.keep, wanted, "retire", registry)
        yield wanted, registry.get_sample_value, fills
        stopping.set()
        fills.result()


def test_an_archive_that_is_gone_for_a_while_is_waited_for(kept):
    wanted, metric, fills = kept
    place, away = wanted.archive / wanted.index_name, wanted.archive / "away"
    until(lambda: fills.done() or (place / ".retire.lock").exists(), "an archive that was begun")
    place.rename(away)
    until(lambda: fills.done() or metric("simhash_dedup_ageing_failures_total") > 3, "failures")
    away.rename(place)
    index = connected_index(wanted, configured_profile(wanted))
    index.check_and_insert([entry(n, None, digest=f"text:{n:032x}") for n in range(30)], {PAGES: 0})
    # Ten pages stay, and fewer than five may wait: those behind the first ones that were seen.
    until(lambda: fills.done() or metric("simhash_dedup_archive_pages") > 15, "pages on disk")
    assert not fills.done()


def test_an_archive_that_cannot_be_had_at_the_beginning_is_not(backend, name, tmp_path):
    wanted = Settings(redis_url=backend.url, index_name=name, archive=tmp_path, max_documents=10)
    (tmp_path / name).touch()
    with pytest.raises(IndexMisconfigured, match="File exists"):
        keeper.keep(wanted, "retire", CollectorRegistry())
