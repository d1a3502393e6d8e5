"""What is tried again at the start, and what is not."""

import threading

import pytest

from worker.errors import BrokerError, BrokerUnreachable, NobodyAnswers
from worker.stream import backoff
from worker.stream.backoff import patiently


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
