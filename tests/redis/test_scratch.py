"""What a run makes beside its outputs is removed: at its end, and what a killed run has left at the next start."""

import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from tests.processes import descendants, runs, wait_until_gone
from tests.stream import ROOT, until
from worker.scratch import opened_lock, scratch_directory

PREFIX = "simhash-dedup-test-"
PAGE = b'{"url":"http://x/%d","text":"some text"}\n'


@pytest.fixture
def temporary(monkeypatch):
    """A directory for temporary files, of this test alone; its path is short enough for a socket in it."""
    with tempfile.TemporaryDirectory() as name:
        monkeypatch.setenv("TMPDIR", name)
        monkeypatch.setattr(tempfile, "tempdir", None)
        yield Path(name)


def test_a_directory_is_gone_with_its_run(temporary):
    with scratch_directory(PREFIX) as (directory, _), scratch_directory(PREFIX) as (other, _):
        (directory / "file").touch()
        assert directory != other
        assert directory.exists()
    assert list(temporary.iterdir()) == []


def test_what_a_killed_run_has_left_is_removed_and_nothing_else(temporary):
    for name in ("abandoned", "without-lock", "of-others"):
        (temporary / f"{PREFIX}{name}").mkdir()
    os.close(opened_lock(temporary / f"{PREFIX}abandoned" / "held"))
    (temporary / f"{PREFIX}of-others" / "held").symlink_to(temporary / "elsewhere")
    (temporary / "another").mkdir()
    with scratch_directory(PREFIX) as (directory, _):
        left = {path.name for path in temporary.iterdir()}
    assert left == {directory.name, f"{PREFIX}without-lock", f"{PREFIX}of-others", "another"}
    assert not (temporary / "elsewhere").exists()


def test_a_lock_file_is_not_opened_through_a_link(tmp_path):
    (tmp_path / "lock").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(OSError, match="symbolic links"):
        opened_lock(tmp_path / "lock")
    assert not (tmp_path / "elsewhere").exists()


def file_run(tmp_path, *options, **how):
    command = [sys.executable, "-m", "worker", "file", *options]
    command += ["--out", str(tmp_path / "out.jsonl"), "--processes", "2"]
    return subprocess.Popen(command, cwd=ROOT, stderr=subprocess.PIPE, text=True, **how)


def test_a_file_run_ends_after_its_helper_processes_and_leaves_nothing(temporary, tmp_path):
    with file_run(tmp_path, "-", stdin=subprocess.PIPE) as run:
        run.stdin.write(b"".join(PAGE % n for n in range(100)).decode())
        run.stdin.flush()
        helpers = until(lambda: len(found := descendants(run.pid)) > 1 and found, "its helpers run")
        run.stdin.close()
        helpers |= descendants(run.pid)
        assert run.wait() == 0, run.stderr.read()
    assert not any(map(runs, helpers))
    assert list(temporary.iterdir()) == []


def test_a_killed_file_run_leaves_no_process_and_the_next_removes_its_files(temporary, tmp_path):
    """A run with a server of its own: it has a socket in a directory for temporary files."""
    pages, state = tmp_path / "pages.jsonl", ["--state", str(tmp_path / "state")]
    pages.write_bytes(b"".join(PAGE % n for n in range(100_000)))
    with file_run(tmp_path, str(pages), *state) as run:
        helpers = until(lambda: len(found := descendants(run.pid)) > 2 and found, "its helpers run")
        run.send_signal(signal.SIGKILL)
    wait_until_gone(helpers)
    assert len(list(temporary.iterdir())) == 1
    pages.write_bytes(PAGE % 1)
    with file_run(tmp_path, str(pages), *state, "--force") as run:
        assert run.wait() == 0, run.stderr.read()
    assert list(temporary.iterdir()) == []
