"""`simhash-dedup batch` as its users meet it, and how it is run on a cluster."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import kubernetes_validate
import pytest
from click.testing import CliRunner
from ruamel.yaml import YAML

from tests.processes import descendants, wait_until_gone
from tests.stream import ROOT, json_page, until
from worker.batch.engine import _last_said
from worker.cli.main import commands
from worker.errors import InputError

MANIFEST = ROOT / "deploy" / "kubernetes" / "batch.yaml"
TEXT = "A page about the weather in Köln, which is grey again and will stay so until the evening at least. "


@pytest.fixture
def pages(tmp_path):
    path = tmp_path / "pages.jsonl"
    path.write_bytes(b"\n".join(json_page(n, TEXT)[1] for n in range(3)) + b"\njunk\n")
    return path


def command(*arguments):
    return [sys.executable, "-m", "worker", "batch", *map(str, arguments)]


def run(*arguments, **environment):
    return subprocess.run(
        command(*arguments),
        cwd=ROOT,
        env=os.environ | environment,
        capture_output=True,
        text=True,
        timeout=180,
        check=False,
    )


def test_a_summary_overwrites_no_input(pages, tmp_path):
    """Not one of a directory's either."""
    before, out = pages.read_bytes(), tmp_path / "out"
    for given in (pages, tmp_path):
        done = run(given, "--out", out, "--summary-json", pages)
        assert (done.returncode, "pages.jsonl is an input: writing to it would destroy it" in done.stderr) == (3, True)
        assert pages.read_bytes() == before


def test_a_batch_says_what_it_does_and_nothing_of_spark(pages, tmp_path):
    done = run(pages, "--out", tmp_path / "out", "--master", "local[1]", "--summary-json", tmp_path / "summary")
    assert done.returncode == 0, done.stderr
    for words in ("signing: 1 tasks", "pages", "duplicates of existing", "out/verdicts.jsonl", "out/rejected.jsonl"):
        assert words in done.stderr
    assert "WARN" not in done.stderr
    assert "py4j" not in done.stderr
    figures = json.loads((tmp_path / "summary").read_bytes())
    assert (figures["unique"], figures["duplicates_exact"], figures["rejected"], figures["complete"]) == (1, 2, 1, True)


def test_help_teaches():
    said = CliRunner().invoke(commands, ["batch", "--help"]).output
    for words in ("--against monday/verdicts.parquet", "--k N", "spark-submit", "Java 17", "[default: 1000000]"):
        assert words.replace("--k N", "--k INTEGER") in said


def test_a_size_that_is_none_is_refused(pages, tmp_path):
    done = CliRunner().invoke(commands, ["batch", str(pages), "--out", str(tmp_path / "out"), "--memory", "lots"])
    assert done.exit_code == 2
    assert "'lots' is no size for Java: write 512m or 8g" in done.output


@pytest.mark.parametrize("keep", ["best", "field:", "field"])
def test_what_cannot_be_kept_is_refused(pages, tmp_path, keep):
    done = CliRunner().invoke(commands, ["batch", str(pages), "--out", str(tmp_path / "out"), "--keep", keep])
    assert done.exit_code == 2
    assert f"{keep!r} is none of oldest, longest, newest and field:NAME" in done.output


@pytest.mark.parametrize("missing", ["pyspark", "pyarrow"])
def test_what_is_not_installed_is_named(pages, tmp_path, missing):
    (tmp_path / missing).mkdir()
    (tmp_path / missing / "__init__.py").write_text(f"raise ImportError('no {missing}', name='{missing}')")
    done = run(pages, "--out", tmp_path / "out", PYTHONPATH=f"{tmp_path}:{ROOT}")
    assert done.returncode == 2
    (line,) = done.stderr.splitlines()
    assert line.startswith("simhash-dedup: ")
    assert "pip install 'simhash-dedup[spark]'" in line


def test_a_missing_java_is_named(pages, tmp_path):
    done = run(pages, "--out", tmp_path / "out", PATH=str(Path(sys.executable).parent), JAVA_HOME="")
    assert done.returncode == 2
    assert [line for line in done.stderr.splitlines() if line.startswith("simhash-dedup: ")] == [
        "simhash-dedup: Spark needs Java 17 and there is none on the PATH: apt-get install openjdk-17-jre-headless"
    ]


def test_a_java_that_is_too_old_or_elsewhere_is_named(pages, tmp_path):
    java = tmp_path / "bin" / "java"
    done = run(pages, "--out", tmp_path / "out", JAVA_HOME=str(tmp_path))
    assert (done.returncode, done.stderr) == (
        2,
        f"simhash-dedup: Spark needs Java 17 and {tmp_path}/bin/java is not there, where JAVA_HOME points\n",
    )
    java.parent.mkdir()
    java.write_text("#!/bin/sh\necho java.lang.UnsupportedClassVersionError: class file version 61.0 >&2\nexit 1\n")
    java.chmod(0o755)
    done = run(pages, "--out", tmp_path / "out", JAVA_HOME=str(tmp_path))
    assert done.returncode == 2
    assert done.stderr.startswith("simhash-dedup: Spark needs Java 17 and this one is older")
    assert len(done.stderr.splitlines()) == 1
    assert list((tmp_path / "out").iterdir()) == []


def test_what_an_earlier_batch_has_written_is_not_lost(tmp_path, pages):
    earlier = tmp_path / "earlier"
    earlier.mkdir()
    kept = earlier / "clusters.jsonl"
    kept.touch()

    def told(*arguments):
        done = CliRunner().invoke(commands, ["batch", "--out", str(earlier), "-q", *map(str, arguments)])
        assert list(earlier.iterdir()) == [kept]
        return done.exception

    assert str(told(pages)) == f"{kept} exists: --force overwrites it, another directory keeps it"
    for name in (kept, earlier, tmp_path):
        error = told(pages, "--against", name, "--force")
        assert isinstance(error, InputError)
        assert str(error) == f"{kept} is an input: writing to it would destroy it"


def test_of_what_spark_said_the_last_error_is_told(tmp_path):
    """As it is for `--master nonsense`, and for a master that does not answer."""
    log = tmp_path / "spark.log"
    wrong = 'Exception in thread "main" org.apache.spark.SparkException: Master must either be yarn or start with spark'
    log.write_text(
        f"WARNING: Using incubator modules\n{wrong}\n\tat org.apache.spark.deploy.SparkSubmit.main(S.scala)\n"
    )
    assert _last_said(log) == wrong
    lost = "26/11/22 01:33:45 ERROR StandaloneSchedulerBackend: Application has been killed. Reason: All masters"
    log.write_text(
        f"{lost}\n26/11/22 01:33:46 WARN StandaloneSchedulerBackend: Application ID is not initialized yet.\n"
    )
    assert _last_said(log) == lost
    log.write_text("")
    assert _last_said(log) == ""


def test_a_stopped_batch_leaves_no_process_and_no_file(pages, tmp_path):
    out = tmp_path / "out"
    process = subprocess.Popen(command(pages, "--out", out), cwd=ROOT, stderr=subprocess.PIPE)
    until(lambda: any(out.glob(".batch-*/spark.log")) and descendants(process.pid), "Java under way")
    children = descendants(process.pid)
    process.send_signal(signal.SIGTERM)
    assert process.wait(120) == 130
    wait_until_gone(children)
    assert list(out.iterdir()) == []


def test_the_manifest_follows_the_schema_of_kubernetes():
    documents = list(YAML(typ="safe").load_all(MANIFEST))
    assert [each["kind"] for each in documents][-1] == "Job"
    for document in documents:
        kubernetes_validate.validate(document, kubernetes_validate.latest_version(), strict=True)


def test_the_manifests_command_is_one():
    (*_, job) = YAML(typ="safe").load_all(MANIFEST)
    (driver,) = job["spec"]["template"]["spec"]["containers"]
    assert driver["command"] == ["simhash-dedup", "batch"]
    context = commands.lazy["batch"].imported().make_context("batch", list(driver["args"]))
    assert context.params["against"] == ("/crawl/archive",)
