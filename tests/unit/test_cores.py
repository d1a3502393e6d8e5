"""How many processors a program may use that uses all: of its container, not of the machine below."""

import os

import pytest

from worker.cli.options import cores


@pytest.fixture(autouse=True)
def _sixteen(monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(16)))


@pytest.mark.parametrize(
    ("quota", "expected"),
    [
        ("max 100000\n", 16),
        ("200000 100000\n", 2),
        ("150000 100000\n", 2),
        ("10000 100000\n", 1),
        ("6400000 100000\n", 16),
        ("", 16),
    ],
)
def test_a_quota_counts_where_it_is_less(tmp_path, quota, expected):
    (tmp_path / "cpu.max").write_text(quota)
    assert cores(tmp_path) == expected


def test_without_a_quota_those_count_that_it_may_run_on(tmp_path):
    assert cores(tmp_path) == 16
