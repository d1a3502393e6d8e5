"""Children that are killed, idle or at work, again and again: pages get each its result, once and in order."""

import os
import random
import signal

import pytest

from tests.processes import command_line, descendants, runs, wait_until_gone
from tests.spawning.test_fingerprinters import DEADLINE_SECONDS, RECIPE, good, outcomes, prepare, record
from tests.stream import until
from worker.errors import ChildrenFail
from worker.judging import children
from worker.judging.fingerprinters import CHUNK_PAGES, Fingerprinters, PageLimits
from worker.judging.judge import Prepared


@pytest.fixture(scope="module", autouse=True)
def quick_children():
    """None: real ones are what is tested."""


def fingerprinting():
    """The children of pools that run in this process, and no server that tests have started beside them."""
    of_pools = {pid for pid in descendants(os.getpid()) if b"worker.judging.children" in command_line(pid)}
    return {pid for pid in of_pools if runs(pid)}


def kill_children():
    killed = fingerprinting()
    for pid in killed:
        os.kill(pid, signal.SIGKILL)
    wait_until_gone(killed)


@pytest.fixture
def own_pool():
    """Of one child, which this test may kill."""
    made = Fingerprinters(RECIPE, processes=1, limits=PageLimits(DEADLINE_SECONDS), prepare=prepare)
    yield made
    made.close()
    assert not fingerprinting()


def test_a_child_that_is_killed_while_it_has_nothing_to_do_costs_no_page(own_pool):
    for _ in range(3):
        assert all(isinstance(o, Prepared) for o in outcomes(own_pool, [good(n) for n in range(40)]))
        kill_children()
        (found,) = outcomes(own_pool, [good(0)])
        assert isinstance(found, Prepared)
    kill_children()


def test_a_child_that_is_killed_as_it_starts_costs_no_page():
    pool = Fingerprinters(RECIPE, processes=2, limits=PageLimits(DEADLINE_SECONDS), prepare=prepare)
    pending = pool.submit([good(n) for n in range(100)])
    for _ in range(3):
        until(fingerprinting, "a child starts")
        kill_children()
    until(lambda: pending.ready(1.0), "the pages are read")
    assert [o.source.offset for o in pending.results() if isinstance(o, Prepared)] == list(range(100))
    pool.close()


def test_children_that_are_killed_at_work_leave_each_result_once_and_in_order(own_pool):
    chance = random.Random(5)
    for _ in range(5):
        pending = own_pool.submit([good(n) for n in range(10 * CHUNK_PAGES)])
        pending.ready(chance.uniform(0, 0.1))
        kill_children()
        until(lambda pending=pending: pending.ready(1.0), "the pages are read")
        assert [o.source.offset for o in pending.results()] == list(range(10 * CHUNK_PAGES))
        assert all(isinstance(o, Prepared) for o in pending.results())


def test_a_child_that_stands_still_while_it_has_nothing_to_do_is_replaced(own_pool):
    outcomes(own_pool, [good(0)])
    for pid in fingerprinting():
        os.kill(pid, signal.SIGSTOP)
    assert isinstance(outcomes(own_pool, [good(0)])[0], Prepared)


def test_pages_that_were_lost_with_a_closed_pool_keep_nobody_waiting(tmp_path):
    pool = Fingerprinters(RECIPE, processes=2, limits=PageLimits(600.0), prepare=prepare)
    pool.submit([record(0, b"die"), *(good(n) for n in range(1, 1_000))])
    pool.close()
    pool.close()
    assert not fingerprinting()


def test_what_one_child_does_is_left_to_one():
    """To load what pages need takes a child longer than a few pages take."""
    pool = Fingerprinters(RECIPE, processes=8, limits=PageLimits(DEADLINE_SECONDS), prepare=prepare)
    for _ in range(3):
        outcomes(pool, [good(n) for n in range(CHUNK_PAGES)])
        assert len(fingerprinting()) == 1
    pool.close()


def meet(place):
    """To come to a place, and wait there for two others."""
    (place / str(os.getpid())).touch()
    until(lambda: len([*place.iterdir()]) == 3, "three have come")
    return os.getpid()


def make_meet():
    return meet


def test_a_task_that_no_child_is_free_for_has_one_started(tmp_path):
    made = children.Children(3, make_meet, seconds=60.0, tasks_each=10)
    for name in "ab":
        place = tmp_path / name
        place.mkdir()
        tasks = [made.schedule(place) for _ in range(3)]
        assert len({task.result(timeout=150) for task in tasks}) == 3
    made.close()


def fail_to_start():
    raise ZeroDivisionError


def test_children_that_never_start_are_an_error_and_no_endless_wait(monkeypatch, capfd):
    monkeypatch.setattr(children, "START_TRIES", 2)
    monkeypatch.setattr(children, "END_SECONDS", 60.0)  # a child that ends by itself is told by its own exit code
    made = children.Children(2, fail_to_start, seconds=60.0, tasks_each=10)
    with pytest.raises(ChildrenFail, match="do not start: ended before it was ready: exit code 1"):
        made.schedule(None).result(timeout=150)
    with pytest.raises(ChildrenFail):
        made.schedule(None).result(timeout=150)
    made.close()
    assert "ZeroDivisionError" in capfd.readouterr().err
