"""What is tried again at the start, and what is not; and what failures do to the batches behind them."""

import threading

import pytest

from worker.errors import BrokerError, BrokerUnreachable, Fenced, NobodyAnswers
from worker.stream import backoff
from worker.stream.backoff import EASY_COMMITS, Backoff, patiently


@pytest.fixture(autouse=True)
def _at_once(monkeypatch):
    monkeypatch.setattr(backoff, "SHORTEST_PAUSE_SECONDS", 0.0)


def failing(*errors):
    """A step that fails with these, one after the other, and then is done."""
    left = iter(errors)

    def step():
        for error in left:
            raise error
        return "done"

    return step


def test_a_broker_that_does_not_answer_is_given_time():
    assert patiently(failing(BrokerUnreachable("one"), BrokerUnreachable("two")), threading.Event()) == "done"


@pytest.mark.parametrize("error", [NobodyAnswers("at all"), BrokerError("refused")])
def test_what_time_does_not_mend_is_said_at_once(error):
    with pytest.raises(type(error)):
        patiently(failing(error), threading.Event())


def test_patience_ends(monkeypatch):
    monkeypatch.setattr(backoff, "START_SECONDS", -1.0)
    with pytest.raises(BrokerUnreachable):
        patiently(failing(BrokerUnreachable("still")), threading.Event())


def test_who_is_to_stop_waits_no_longer():
    stopping = threading.Event()
    stopping.set()
    with pytest.raises(BrokerUnreachable):
        patiently(failing(BrokerUnreachable("still")), stopping)


def halvings(times, commits):
    """After so many batches in a row that took too long, and commits behind them."""
    made = Backoff(threading.Event())
    for _ in range(times):
        made.took_too_long()
    for _ in range(commits):
        made.overcome()
    return made.halvings


def test_batches_are_halved_each_time_that_one_takes_too_long():
    assert [halvings(times, 0) for times in range(4)] == [0, 1, 2, 3]


def test_batches_grow_again_with_commits_in_a_row():
    assert [halvings(2, commits) for commits in (EASY_COMMITS - 1, EASY_COMMITS, 9 * EASY_COMMITS)] == [2, 1, 0]


def test_one_that_takes_too_long_ends_the_row():
    made = Backoff(threading.Event())
    for _ in range(3):
        made.took_too_long()
        for _ in range(EASY_COMMITS - 1):
            made.overcome()
    assert made.halvings == 3


def test_other_failures_leave_batches_as_large_as_they_are():
    stopping = threading.Event()
    stopping.set()
    made = Backoff(stopping)
    made.pause(Fenced("this worker stood still"))
    assert made.halvings == 0


def test_brokers_that_were_slow_for_a_day_leave_no_small_batches():
    assert halvings(20_000, 14 * EASY_COMMITS) == 0
