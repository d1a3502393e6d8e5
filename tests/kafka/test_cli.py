"""The command as its users meet it: processes, exit codes, one clear line for what is wrong, nothing left."""

import io
import json
import os
import re
import shlex
import signal
import subprocess
import sys
import tomllib
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random

import pytest
import redis
from rich.console import Console

import worker.cli.file as file_command
from simhash.index.redis.layout import meta_key
from simhash.index.redis.opening import open_index
from simhash.index.redis.operators.operations import Operations
from simhash.index.redis.operators.transfer import exported
from simhash.index.rows import encoded
from simhash.relation.tables import design
from tests import copies
from tests.pages import entry, relation
from tests.processes import descendants, wait_until_gone
from tests.servers import running_redis
from tests.stream import ROOT, Stream, json_page, texts, until
from worker.files.embedded import embedded_redis
from worker.files.inputs import Input
from worker.files.summary import Summary

PAGES = [json_page(n, text)[1] for n, text in enumerate(texts(400, Random(3)))]
SECRET = "sesame"


def command(*arguments):
    return [sys.executable, "-m", "worker", *map(str, arguments)]


def run(*arguments, env=None):
    """Run the command to its end; what it writes is text."""
    if env is None:
        return copies.run("worker.__main__", [*map(str, arguments)], os.environ, 120)
    return subprocess.run(
        command(*arguments), cwd=ROOT, env=os.environ | env, capture_output=True, text=True, timeout=120, check=False
    )


def started(*arguments, **options):
    return subprocess.Popen(command(*arguments), cwd=ROOT, **options)


def assert_refused(done, code, message):
    """One line, no traceback, no secret."""
    assert done.returncode == code, done.stderr
    (line,) = [line for line in done.stderr.splitlines() if line]
    assert line.startswith("simhash-dedup: ")
    assert message in line
    assert SECRET not in done.stderr


@pytest.fixture(autouse=True)
def interrupts_are_heard():
    """Who starts the tests may have them ignored (a shell does, in the background), and processes inherit that."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.fixture
def pages(tmp_path):
    path = tmp_path / "pages.jsonl"
    path.write_bytes(b"\n".join(PAGES) + b"\n")
    return path


def verdicts(path):
    return [json.loads(line) for line in Path(path).read_bytes().splitlines()]


# Help and settings -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], ["simhash-dedup file pages.jsonl --out", "Exit codes", "SIMHASH_DEDUP_", "run", "topics", "inspect"]),
        (["run"], ["10MiB", "[default: 10s]", "json|html", "DURATION is 30s", "--print-config", "curl localhost"]),
        (["file"], ["--state ./seen", '{"url": …', "[default: all cores]", "[default: 1000000]", "OUT.rejected.jsonl"]),
        (["topics"], ["--dry-run", "--partitions 24"]),
        (["inspect"], ["57a843f31c06a026", "--json"]),
        (["tables", "build"], ["--memory 2GiB", "stopped or killed goes on", "default: 512"]),
        (["index", "rewind"], ["rewind pages --partition 3 --to 1200", "Stop all workers"]),
    ],
)
def test_help_teaches(arguments, words):
    done = run(*arguments, "--help")
    assert done.returncode == 0
    assert f"Usage: simhash-dedup {' '.join(arguments)}".strip() in done.stdout
    for word in words:
        assert word in done.stdout


def test_the_version_is_said():
    said = run("--version").stdout
    assert said.startswith("simhash-dedup ")
    assert "fingerprints by native kernel" in said or "fingerprints by NumPy (" in said


def test_print_config_is_a_configuration_file_without_secrets(tmp_path):
    flags = ["--redis-url", f"redis://:{SECRET}@h:1/0", "--max-age", "90d", "--batch-bytes", "1MB"]
    first = run("run", "--print-config", *flags, env={"SIMHASH_DEDUP_KAFKA_PASSWORD": SECRET})
    assert SECRET not in first.stdout + first.stderr
    assert tomllib.loads(first.stdout)["max_age"] == "7776000s"
    (tmp_path / "dedup.toml").write_text(first.stdout)
    assert run("run", "--print-config", "--config", tmp_path / "dedup.toml").stdout == first.stdout


@pytest.mark.parametrize(("written", "why"), [("x = [", "{profile}: Invalid value"), (None, "no profile is named")])
def test_print_config_says_that_a_profile_is_broken_or_missing(tmp_path, written, why):
    profile = "none" if written is None else tmp_path / "profile.toml"
    if written is not None:
        profile.write_text(written)
    done = run("run", "--print-config", "--profile", profile)
    assert done.returncode == 2
    assert f"simhash-dedup: profile: {why.format(profile=profile)}" in done.stderr


def test_what_a_terminal_cannot_show_is_written_otherwise_and_json_stays_json(redis_server, client, name):
    url = "https://example.com/\N{GRINNING FACE}"
    open_index(client, name, {}, relation(design("4")), 1000).check_and_insert([replace(entry(0, 7), url=url)], {})
    flags, latin = ("--redis-url", redis_server.url, "--index-name", name), {"PYTHONIOENCODING": "latin-1"}
    for asked in (["index", "stats"], ["inspect", url], ["index", "delete", "--dry-run", url]):
        done = run(*asked, *flags, env=latin)
        assert (done.returncode, done.stderr) == (0, "")
        assert r"https://example.com/\U0001f600" in done.stdout
    assert json.loads(run("index", "stats", "--json", *flags, env=latin).stdout)["newest"]["url"] == url
    assert json.loads(run("inspect", url, "--json", *flags, env=latin).stdout)["url"] == url


def test_an_interrupt_while_the_program_is_loaded_ends_it_without_a_word(tmp_path):
    (tmp_path / "click.py").write_text("import signal\nsignal.raise_signal(signal.SIGINT)\n")
    done = run("--version", env={"PYTHONPATH": str(tmp_path)})
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "")


def test_an_unknown_flag_or_a_missing_argument_is_a_usage_error():
    for arguments in (
        ["run", "--nonsense", "1"],
        ["file"],
        ["file", "x"],
        ["nonsense"],
        ["topics", "--partitions", "0"],
    ):
        done = run(*arguments)
        assert done.returncode == 2
        assert "Error: " in done.stderr


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        (["verfy"], "'verify'"),
        (["stats"], "'index stats'"),
        (["replay"], "'dlq replay'"),
        (["index", "chek"], "'check'"),
    ],
)
def test_a_command_that_does_not_exist_is_told_beside_the_one_that_was_meant(typed, meant):
    done = run(*typed)
    assert done.returncode == 2
    assert f"No such command {typed[-1]!r}" in done.stderr
    assert meant in done.stderr


# File mode ---------------------------------------------------------------------------------------------------------


def test_any_number_of_processes_gives_the_same_bytes(pages, tmp_path):
    found = []
    for processes in (1, 2, 4):
        out = tmp_path / str(processes)
        assert run("file", pages, "--out", out, "--processes", processes).returncode == 0
        found.append(out.read_bytes())
    assert found[0].count(b"\n") == len(PAGES)
    assert set(found) == {found[0]}


def test_the_summary_is_shown_and_quiet_shows_nothing(pages, tmp_path):
    done = run("file", pages, "--out", tmp_path / "out", "--unique-out", tmp_path / "unique")
    for word in ("unique", "duplicates, near", "bits apart", "seconds", "verdicts:", "unique pages:"):
        assert word in done.stderr
    assert run("file", pages, "--out", tmp_path / "out", "--quiet", "--force").stderr == ""


def test_progress_is_told_line_by_line_where_there_is_no_terminal(monkeypatch):
    monkeypatch.setattr(file_command, "LINE_SECONDS", 0.0)
    console = Console(file=io.StringIO())
    with file_command._progress([], console) as update:
        update(Summary(pages=1200, seconds=2.0))
    assert console.file.getvalue() == "judging: 1,200 pages, 600/s\n"


@pytest.mark.parametrize(("seconds", "left"), [(10.0, "30 s"), (60.0, "3 min"), (3600.0, "3 h")])
def test_progress_says_roughly_how_long_it_will_still_take(monkeypatch, seconds, left):
    monkeypatch.setattr(file_command, "LINE_SECONDS", 0.0)
    console = Console(file=io.StringIO())
    with file_command._progress([Input("p", 100, list, lambda: 25)], console) as update:
        update(Summary(pages=1200, seconds=seconds))
    assert console.file.getvalue().startswith("judging: 25%, 1,200 pages, ")
    assert console.file.getvalue().endswith(f", about {left} left\n")


def test_verdicts_appear_while_the_input_is_still_open():
    process = started("file", "-", "--out", "-", "-q", stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    for page in PAGES[:3]:
        process.stdin.write(page + b"\n")
        process.stdin.flush()
        assert json.loads(process.stdout.readline())["url"] == json.loads(page)["url"]
    process.stdin.close()
    assert process.stdout.read() == b""
    assert process.wait(30) == 0


def test_a_run_whose_children_are_killed_idle_and_at_work_judges_every_page_once(tmp_path):
    process = started(
        "file", "-", "--out", "-", "-q", "--processes", "2", stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    told = []
    for begin in range(0, len(PAGES), 100):
        process.stdin.write(b"\n".join(PAGES[begin : begin + 100]) + b"\n")
        process.stdin.flush()
        if begin % 200:  # at work; else idle, for all of the last hundred are judged
            kill_children(process.pid)
        told += [json.loads(process.stdout.readline())["url"] for _ in range(100)]
        kill_children(process.pid)
    process.stdin.close()
    assert process.wait(30) == 0
    assert told == [json.loads(page)["url"] for page in PAGES]


def kill_children(pid):
    """Those that fingerprint."""
    for child in descendants(pid):
        with suppress(FileNotFoundError, ProcessLookupError):
            if b"worker.judging.children" in Path(f"/proc/{child}/cmdline").read_bytes():
                os.kill(child, signal.SIGKILL)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_run_that_waits_for_input_can_be_stopped(number):
    pipes = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
    process = started("file", "-", "--out", "-", "--processes", "2", **pipes)
    process.stdin.write(b"\n".join(PAGES[:100]) + b"\n")
    process.stdin.flush()
    for _ in range(100):
        process.stdout.readline()
    children = descendants(process.pid)
    process.send_signal(number)
    assert process.wait(30) == 130
    assert b"Traceback" not in process.communicate()[1]
    assert len(children) >= 2
    wait_until_gone(children)


def test_a_broken_pipe_ends_the_run_quietly(pages):
    process = started("file", pages, "--out", "-", stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    process.stdout.readline()
    process.stdout.close()
    written = process.stderr.read()
    assert process.wait(30) == 128 + signal.SIGPIPE
    assert b"rror" not in written


@pytest.mark.parametrize(
    ("arguments", "streams", "code", "message"),
    [
        ("file - --quiet --out {out}", "<&-", 3, "standard input: Bad file descriptor"),
        ("file {pages} --quiet --out -", ">&-", 3, "cannot write standard output: Bad file descriptor"),
        ("file {pages} --quiet --out {out}", "<&- >&- 2>&-", 0, ""),
        ("run --print-config", "> /dev/full", 3, "cannot write: No space left on device"),
    ],
)
def test_a_standard_stream_that_is_closed_or_full_is_said(pages, tmp_path, arguments, streams, code, message):
    program, page_file, out = (shlex.quote(str(path)) for path in (sys.executable, pages, tmp_path / "out"))
    line = arguments.format(pages=page_file, out=out)
    done = subprocess.run(
        ["sh", "-c", f"exec {program} -m worker {line} {streams}"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == code
    assert done.stderr == (f"simhash-dedup: {message}\n" if message else "")


def test_a_kept_index_remembers_and_a_run_again_says_the_same(pages, tmp_path):
    def judged(source, out):
        done = run("file", source, "--out", tmp_path / out, "--state", tmp_path / "state", "--quiet")
        assert (done.returncode, done.stderr) == (0, "")
        return (tmp_path / out).read_bytes()

    first = judged(pages, "first")
    assert judged(pages, "again") == first
    copy = tmp_path / "copy.jsonl"
    copy.write_bytes(pages.read_bytes())
    assert b'"verdict":"unique"' not in judged(copy, "copy")


def test_a_killed_run_with_a_kept_index_can_be_repeated(tmp_path):
    source = tmp_path / "pages.jsonl"
    source.write_bytes(b"\n".join(json_page(n, t)[1] for n, t in enumerate(texts(1500, Random(4), words=120))) + b"\n")
    assert run("file", source, "--out", tmp_path / "undisturbed", "--state", tmp_path / "other").returncode == 0
    process = started(
        "file", source, "--out", tmp_path / "out", "--state", tmp_path / "state", "-q", start_new_session=True
    )
    until(lambda: (tmp_path / "out").exists() and (tmp_path / "out").stat().st_size, "the first verdicts")
    children = descendants(process.pid)
    process.kill()
    process.wait()
    wait_until_gone(children)
    cut_off = (tmp_path / "out").read_bytes()
    again = ["file", source, "--out", tmp_path / "out", "--state", tmp_path / "state"]
    assert_refused(run(*again), 3, f"{tmp_path}/out exists: --force overwrites it")
    assert run(*again, "--force").returncode == 0
    whole = (tmp_path / "out").read_bytes()
    assert len(cut_off) < len(whole)
    assert whole.startswith(cut_off[: cut_off.rfind(b"\n") + 1])
    assert whole == (tmp_path / "undisturbed").read_bytes()


def test_a_state_in_use_is_refused_and_nothing_destroyed(pages, tmp_path):
    out = tmp_path / "out"
    out.write_text("yesterday's verdicts")
    with embedded_redis(tmp_path / "state"):
        done = run("file", pages, "--out", out, "--force", "--state", tmp_path / "state")
    assert_refused(done, 2, f"--state: {tmp_path}/state is in use by another run")
    assert out.read_text() == "yesterday's verdicts"


def test_an_index_on_a_server_can_be_used_and_looked_into(pages, tmp_path, redis_server, name):
    where = ["--redis", redis_server.url, "--index-name", name]
    assert run("file", pages, "--out", tmp_path / "out", *where).returncode == 0
    first = next(v for v in verdicts(tmp_path / "out") if v["fingerprint"])
    where = ["--redis-url", redis_server.url, "--index-name", name]
    by_url = run("inspect", first["url"], *where)
    assert by_url.stdout.splitlines()[0].split() == ["0", first["fingerprint"], "seq", "1", first["url"]]
    (found, *_) = map(json.loads, run("inspect", first["fingerprint"], "--json", *where).stdout.splitlines())
    assert (found["url"], found["verifier"]) == (first["url"], first["verifier"])
    assert found["digest"] == first["digest"][: len("text:") + 16]
    nothing = run("inspect", "http://nowhere/", *where)
    assert nothing.returncode == 1
    assert nothing.stderr.startswith(
        "nothing within reach of http://nowhere/: only pages that were called unique are stored"
    )
    assert_refused(run("inspect", "x", *where[:2], "--index-name", name + "x"), 5, "there is no index")


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["{pages}", "--out", "{pages}"], 3, "is an input: writing to it would destroy it"),
        (["{pages}", "--out", "o", "--unique-out", "{pages}"], 3, "is an input"),
        (["{pages}", "--out", "{dir}/o", "--unique-out", "{dir}/x", "--rejected-out", "{dir}/x"], 3, "written twice"),
        (["{pages}", "--out", "{dir}/o", "--server", "--redis", "redis://h"], 2, "give one of them"),
        (["{pages}", "--out", "{dir}/none/o"], 3, "/none/o: No such file or directory"),
        (["{pages}", "--out", "/dev/full"], 3, "cannot write /dev/full: No space left on device"),
        (["{dir}/none.jsonl", "--out", "{dir}/o"], 3, "none.jsonl: no such file or directory"),
        (["{pages}", "--out", "{dir}/o", "--state", "s", "--redis", "redis://h"], 2, "give one of them"),
        (["{pages}", "--out", "{dir}/o", "--profile", "none"], 2, "profile: no profile is named 'none'"),
        (["{pages}", "--out", "{dir}/o", "--processes", "0"], 2, "processes (flag --processes)"),
        (["{pages}", "--out", "{dir}/o", "--redis", f"redis://:{SECRET}@127.0.0.1:1/0"], 7, "Redis does not answer"),
    ],
)
def test_what_is_wrong_with_a_file_run_is_one_line(pages, tmp_path, arguments, code, message):
    filled = [argument.format(pages=pages, dir=tmp_path) for argument in arguments]
    assert_refused(run("file", "-q", *filled), code, message)
    assert pages.read_bytes().count(b"\n") == len(PAGES)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["tables", "verify", "{dir}/loop"], "cannot read or write {dir}/loop/manifest.json: Too many levels"),
        (["index", "delete", "--from", "/proc/self/mem"], "--from: Input/output error"),
    ],
)
def test_an_error_of_a_file_that_no_command_foresaw_is_one_line(tmp_path, arguments, message):
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    assert_refused(run(*(each.format(dir=tmp_path) for each in arguments)), 3, message.format(dir=tmp_path))


def test_a_disk_that_fails_is_said_in_a_line():
    fails = "import worker.cli.plan as plan; plan.plans = lambda _: open('/proc/self/mem', 'rb').read(1)"
    program = f"{fails}; from worker.cli.main import main; main()"
    words = [sys.executable, "-c", program, "plan", "--documents", "10"]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert_refused(done, 3, "cannot read or write: Input/output error")


def test_where_no_temporary_file_can_be_the_variable_is_named_by_which_it_could(pages, tmp_path):
    """As in a container whose file system may only be read."""
    nowhere = "import tempfile; tempfile._candidate_tempdir_list = lambda: ['/nowhere']"
    program = f"{nowhere}; from worker.cli.main import main; main()"
    words = ("file", "-q", str(pages), "--state", str(tmp_path / "state"), "--out", str(tmp_path / "out"))
    done = subprocess.run(
        [sys.executable, "-c", program, *words], cwd=ROOT, capture_output=True, text=True, timeout=120
    )
    assert_refused(done, 3, "No usable temporary directory found in ['/nowhere']; TMPDIR may name one")


def test_what_an_earlier_run_has_written_is_overwritten_only_when_it_is_told_so(pages, tmp_path):
    out = tmp_path / "out"
    out.write_text("of an earlier run")
    assert_refused(run("file", "-q", pages, "--out", out), 3, f"{out} exists: --force overwrites it")
    assert out.read_text() == "of an earlier run"
    assert run("file", "-q", pages, "--out", out, "--force").returncode == 0
    assert len(verdicts(out)) == len(PAGES)


def test_a_password_need_not_stand_on_the_command_line(pages, tmp_path):
    """The URL of `file --server` comes from the environment or a file, and so does not show in `ps`."""
    url = f"redis://:{SECRET}@127.0.0.1:1/0"
    (tmp_path / "dedup.toml").write_text(f'redis_url = "{url}"\n')
    command = ("file", "-q", pages, "--out", tmp_path / "out", "--server")
    for how in (
        {"env": {"SIMHASH_DEDUP_REDIS_URL": url}},
        {"env": {"SIMHASH_DEDUP_CONFIG": str(tmp_path / "dedup.toml")}},
    ):
        assert_refused(run(*command, **how), 7, "Redis does not answer")


def test_a_file_that_is_given_twice_is_judged_once(tmp_path):
    """Directly, in a directory, by a link; two files of one content stay two pages."""
    (tmp_path / "in").mkdir()
    for name, text in (("a", "one"), ("b", "one"), ("c", "two")):
        (tmp_path / "in" / f"{name}.html").write_text(f"<p>{text} " + "word " * 9)
    (tmp_path / "link.html").symlink_to(tmp_path / "in" / "c.html")
    lines = tmp_path / "pages.jsonl"
    lines.write_bytes(PAGES[0] + b"\n")
    inputs = [tmp_path / "in", tmp_path / "in" / "a.html", lines, tmp_path / "link.html", lines, tmp_path / "in"]
    done = run("file", *inputs, "--out", tmp_path / "out", "--summary-json", tmp_path / "figures")
    assert done.returncode == 0, done.stderr
    told = verdicts(tmp_path / "out")
    assert [Path(v["url"]).name for v in told[:3]] == ["a.html", "b.html", "c.html"]
    assert [v["verdict"] for v in told] == ["unique", "duplicate", "unique", "unique"]
    assert [v["seq"] for v in told] == [1, None, 2, 3]
    assert json.loads((tmp_path / "figures").read_text())["again"] == 6
    assert re.search(r"given again, read once +6 ", done.stderr)


@pytest.fixture
def junk(tmp_path):
    path = tmp_path / "junk.jsonl"
    path.write_bytes(b"junk\n" * 3 + b'{"url":"","text":"a"}\n{"url":"http://x/","text":"\\u001b[31m\\ud800"}\n')
    return path


def test_a_run_that_judges_nothing_says_so_even_when_it_is_to_be_quiet(junk, tmp_path):
    refused = run("file", junk, "--out", tmp_path / "out", "-q")
    assert_refused(
        refused, 1, "no page was judged: 5 records were rejected and 0 are no pages, mostly: decode: not JSON"
    )
    assert len(verdicts(f"{tmp_path}/out.rejected.jsonl")) == 5
    (tmp_path / "none.jsonl").write_bytes(b"\n")
    assert_refused(
        run("file", tmp_path / "none.jsonl", "--out", tmp_path / "o", "-q"), 1, "no page was judged: there is none"
    )


def test_the_summary_says_why_records_were_rejected_the_most_frequent_first(pages, junk, tmp_path):
    more = ["--max-rejected", "4", "--summary-json", tmp_path / "figures"]
    done = run("file", pages, junk, "--out", tmp_path / "out", *more)
    assert (done.returncode, done.stdout) == (1, "")
    assert "simhash-dedup: 5 records were rejected, more than 4, mostly: decode: not JSON" in done.stderr
    first, *others = [line for line in done.stderr.splitlines() if " rejected: " in line]
    assert first.startswith("  3 rejected: decode: not JSON: Expecting value at character 0")
    assert (len(others), "\x1b" in done.stderr) == (2, False)
    reasons = json.loads((tmp_path / "figures").read_text())["rejected_because"]
    assert [reason["count"] for reason in reasons] == [3, 1, 1]
    assert run("file", pages, junk, "--out", tmp_path / "out", "--force", "-q", "--max-rejected", "5").returncode == 0


def test_rejected_records_of_a_run_to_standard_output_are_kept_in_a_new_file(pages, junk, tmp_path):
    flags = ["-m", "worker", "file", pages, junk, "--out", "-"]
    env = os.environ | {"PYTHONPATH": str(ROOT)}
    for name in ("simhash-dedup.rejected.jsonl", "simhash-dedup.rejected-2.jsonl"):
        done = subprocess.run(
            [sys.executable, *flags], cwd=tmp_path, env=env, capture_output=True, text=True, check=True
        )
        assert len(done.stdout.splitlines()) == len(PAGES)
        assert f"rejected: {name}\n" in done.stderr
        assert len(verdicts(tmp_path / name)) == 5


def test_what_steers_a_terminal_in_a_url_is_escaped(redis_server, client, name):
    url = "http://x/\x9b31m\u202egnp"
    open_index(client, name, {}, relation(design("4")), 1000).check_and_insert([replace(entry(0, 7), url=url)], {})
    flags = ("--redis-url", redis_server.url, "--index-name", name)
    assert r"http://x/\x9b31m\u202egnp" in run("index", "stats", *flags).stdout
    assert json.loads(run("index", "stats", "--json", *flags).stdout)["newest"]["url"] == url


def test_a_count_may_be_written_as_people_do(tmp_path):
    assert "10,000,000" in run("plan", "-n", "10M").stdout
    assert "documents = 1500000\n" in run("run", "--print-config", "--documents", "1.5M").stdout
    done = run("plan", "-n", "10X")
    assert (done.returncode, "'10X' is no count: write 2000, 10k, 1.5M or 2G" in done.stderr) == (2, True)


# Start of the worker -----------------------------------------------------------------------------------------------


@dataclass
class Refusals:
    """A stream on which workers are started that must not begin."""

    stream: Stream

    def run(self, *arguments, **env):
        return self.stream.command("run", "--metrics-address", "off", *arguments, env=env)

    def start(self, *arguments):
        env = self.stream.environment() | {"SIMHASH_DEDUP_KAFKA_PASSWORD": SECRET}
        options = {"env": env, "stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
        return started("run", "--metrics-address", "off", *arguments, **options)


@pytest.fixture(scope="module")
def refusals(kafka_server, redis_server, tmp_path_factory):
    made = Stream(f"r{os.getpid()}", kafka_server.bootstrap_servers, redis_server.url)
    assert made.command("topics", "--partitions", "1").returncode == 0
    made.send([json_page(1, "some text")])
    return Refusals(made)


def test_an_unreachable_redis_is_said(refusals):
    address = ["--redis-url", f"redis://:{SECRET}@127.0.0.1:1/0"]
    assert_refused(refusals.run(*address), 7, "Redis does not answer: Error 111 connecting to 127.0.0.1:1")


def test_an_unreachable_kafka_is_said_within_seconds_and_no_password(refusals):
    flags = ["--kafka-security-protocol", "SASL_PLAINTEXT", "--kafka-sasl-mechanism", "PLAIN", "--kafka-username", "u"]
    flags += ["--bootstrap-servers", "127.0.0.1:1"]
    chatty = refusals.start(*flags, "--log-level", "debug")
    assert_refused(
        refusals.run(*flags, SIMHASH_DEDUP_KAFKA_PASSWORD=SECRET), 7, "no Kafka broker answers at 127.0.0.1:1"
    )
    written = chatty.communicate(timeout=60)[0]
    assert "kafka" in written
    assert SECRET not in written


def test_a_missing_topic_is_said(refusals):
    assert_refused(
        refusals.run("--input-topic", "none.such"), 4, "topic none.such does not exist: `simhash-dedup topics`"
    )


def test_a_redis_that_drops_keys_or_refuses_the_login_is_said(refusals, tmp_path):
    with running_redis(tmp_path, {"maxmemory-policy": "allkeys-lru"}) as server:
        assert_refused(refusals.run("--redis-url", server.url), 5, "maxmemory-policy allkeys-lru")
        with redis.Redis.from_url(server.url) as client:
            client.config_set("maxmemory-policy", "noeviction")
            client.config_set("requirepass", "open" + SECRET)
        wrong = server.url.replace("://", f"://:{SECRET}@")
        assert_refused(refusals.run("--redis-url", wrong), 5, "Redis refuses the login")
        unnamed = "Redis refuses the login: it asks for a password, and its URL has none"
        assert_refused(refusals.run("--redis-url", server.url), 5, unnamed)


def test_an_index_of_another_profile_is_said(refusals, tmp_path, name):
    pages = tmp_path / "page.jsonl"
    pages.write_bytes(PAGES[0])
    flags = ["--index-name", name, "--redis", refusals.stream.redis_url]
    assert run("file", pages, "--out", tmp_path / "o", "--profile", "jieba-keywords", *flags).returncode == 0
    assert_refused(refusals.run("--index-name", name), 5, "profile")


@pytest.mark.parametrize("processes", ["1", "2"])
def test_a_port_in_use_is_said(refusals, processes):
    address = refusals.stream.bootstrap_servers
    done = refusals.stream.command("run", "--metrics-address", address, "--processes", processes)
    assert_refused(done, 2, f"metrics_address: cannot listen on {address}: [Errno 98] Address already in use")


def test_refused_workers_have_consumed_nothing(refusals):
    assert refusals.stream.answers() == {}


def test_topics_are_created_judged_and_left_alone(kafka_server, redis_server, name):
    made = Stream(name, kafka_server.bootstrap_servers, redis_server.url)
    dry = made.command("topics", "--dry-run")
    assert (dry.returncode, dry.stdout.count("missing: ")) == (1, 3)
    created = made.command("topics", "--partitions", "3")
    assert (created.returncode, created.stdout.count("created: ")) == (0, 3)
    assert f"created: {name}.pages (crawled pages), 3 partitions" in created.stdout
    again = made.command("topics")
    assert (again.returncode, again.stdout.count("fine: ")) == (0, 3)
    larger = made.command("topics", "--max-page-bytes", "20MiB")
    assert larger.returncode == 1
    assert f"wrong: {name}.pages: max.message.bytes is 16,777,216; set it to 32,505,856 or more" in larger.stdout


def test_a_file_run_says_that_it_does_not_use_the_index_of_streams(pages, tmp_path):
    """Where the environment, or a file of settings, names it: it would be judged on an empty index unseen."""
    env = {"SIMHASH_DEDUP_REDIS_URL": "redis://127.0.0.1:1/0"}
    done = run("file", pages, "--out", tmp_path / "v.jsonl", env=env)
    assert (done.returncode, "--server judges on that server's" in done.stderr) == (0, True)
    assert "--server" not in run("file", pages, "--out", tmp_path / "v.jsonl", "--force").stderr
    refused = run("file", pages, "--out", tmp_path / "v.jsonl", "--force", "--server", env=env)
    assert_refused(refused, 7, "Redis does not answer")


def test_an_import_that_is_interrupted_says_how_it_goes_on(client, redis_server, name, tmp_path):
    index = open_index(client, name, {}, relation(design("4")), 1000)
    lines = [encoded(row) for row in exported(Operations(index))]
    pipe = tmp_path / "rows"
    os.mkfifo(pipe)
    process = started(
        *("index", "import", pipe, "--index-name", f"{name}-b", "--redis-url", redis_server.url), stderr=subprocess.PIPE
    )
    with pipe.open("wb") as rows:
        rows.write(lines[0])
        rows.flush()
        until(lambda: client.exists(meta_key(f"{name}-b")), "the begin of the import")
        process.send_signal(signal.SIGINT)
        assert process.wait(30) == 130
    assert process.communicate()[1].decode().startswith("interrupted: the same command goes on where it was")
    done = started("index", "import", pipe, "--index-name", f"{name}-b", "--redis-url", redis_server.url)
    pipe.write_bytes(b"".join(lines))
    assert done.wait(30) == 0
