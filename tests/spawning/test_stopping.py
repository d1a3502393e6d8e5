"""Signals come at any moment, and stop what runs at all of them."""

import signal
import subprocess
import sys
import textwrap

import pytest


def run(code, timeout=60):
    """`code` in a process of its own, which has its signals for itself."""
    head = """
    import logging, os, signal, threading, time
    from worker.stopping import stop_on_signals

    logging.basicConfig(level=logging.INFO, format="%(message)s")
    """
    command = [sys.executable, "-c", textwrap.dedent(head) + textwrap.dedent(code)]
    return subprocess.run(command, capture_output=True, text=True, timeout=timeout)


def test_a_signal_is_heard_while_the_event_is_looked_at():
    """Whoever waits for an event holds its lock again and again, in the thread that signals interrupt."""
    done = run("""
    for _ in range(50):
        with stop_on_signals() as stopping:
            for _ in range(2):
                threading.Timer(0.005, os.kill, (os.getpid(), signal.SIGTERM)).start()
            while not stopping.wait(0):
                pass
            while threading.active_count() > 2:  # both have come
                pass
    """)
    assert (done.returncode, done.stderr) == (0, "SIGTERM: stopping\n" * 50)


@pytest.mark.parametrize(("second", "code"), [("SIGINT", -signal.SIGINT), ("SIGTERM", 0)])
def test_a_second_interrupt_ends_the_process_at_once_and_a_second_request_does_not(second, code):
    done = run(f"""
    with stop_on_signals() as stopping:
        signal.raise_signal(signal.SIGINT)
        assert stopping.wait(10)
        signal.raise_signal(signal.{second})
    """)
    assert done.returncode == code


def test_an_interrupt_behind_a_request_is_the_first():
    """Ctrl-C comes to a consumer from the terminal, and SIGTERM from the supervisor that heard it too."""
    done = run("""
    with stop_on_signals() as stopping:
        signal.raise_signal(signal.SIGTERM)
        signal.raise_signal(signal.SIGINT)
        assert stopping.wait(10)
    """)
    assert done.returncode == 0


@pytest.mark.parametrize("number", ["SIGTERM", "SIGINT"])
def test_a_process_hears_what_it_was_told_before_it_was_ready(number):
    child = """
    import time
    from worker.stopping import stop_on_signals

    time.sleep(0.2)
    with stop_on_signals() as stopping:
        print(stopping.wait(10))
    """
    done = run(f"""
    import subprocess, sys
    from worker.stopping import signals_held

    with signals_held():
        started = subprocess.Popen([sys.executable, "-c", {textwrap.dedent(child)!r}])
    started.send_signal(signal.{number})
    assert started.wait() == 0
    signal.signal(signal.{number}, lambda *_: print("here"))
    signal.raise_signal(signal.{number})
    """)
    assert (done.returncode, done.stderr, done.stdout.split()) == (0, "", ["True", "here"])


def test_handlers_are_as_before_afterwards():
    done = run("""
    before = signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT)
    with stop_on_signals():
        pass
    assert (signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT)) == before
    assert threading.active_count() == 1
    """)
    assert (done.returncode, done.stderr) == (0, "")
