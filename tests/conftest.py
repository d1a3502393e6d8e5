"""What the tests share: servers for a session, Spark for a file, a fresh index name or topic for a test; settings."""

import gc
import os
import shutil
import sys
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import redis
from hypothesis import settings as hypothesis_settings

from simhash import native
from tests import batches, copies
from tests.backends import KINDS, Backend
from tests.servers import (
    RedisServer,
    SharedKafka,
    running_cluster,
    running_redis,
    running_valkey,
    shared_kafka,
)
from tests.tables import lines_of, page
from worker.__main__ import ONE_THREAD
from worker.batch.engine import Engine, EngineSettings
from worker.batch.job import BatchSummary
from worker.cli.main import main
from worker.index.stores import connect
from worker.judging import children
from worker.settings import Settings

SAMPLE = Path(__file__).parent.parent / "samples" / "pages.jsonl.zst"

# The same examples on every run: a red run must be red for the next person too.
hypothesis_settings.register_profile("repeatable", derandomize=True, deadline=None)
hypothesis_settings.load_profile("repeatable")


def pytest_collection_finish() -> None:
    """What thousands of tests are made of stays to the end: no use to look through it each time."""
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session", autouse=True)
def _no_settings_from_outside() -> None:
    """The developer's own environment must not change what is tested."""
    for name in [name for name in os.environ if name.startswith("SIMHASH_DEDUP_")]:
        del os.environ[name]
    os.environ.setdefault(ONE_THREAD, "1")  # as the command itself does it
    # Spark's processes live for seconds here.
    os.environ["SPARK_SUBMIT_OPTS"] = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"


@pytest.fixture(scope="module", autouse=True)
def quick_children() -> Iterator[None]:
    """Most tests need no fingerprinting children that load everything anew; a file that does overrides this."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(children, "subprocess", copies.FOR_CHILDREN)
        yield


_stores: list[str] = []
"""The addresses of the session's Redis and Valkey servers."""


@pytest.fixture(scope="module", autouse=True)
def _emptied_after_a_file() -> Iterator[None]:
    """Else whatever looks at all keys of a server would take longer with each file."""
    yield
    for url in _stores:
        with redis.Redis.from_url(url) as connection:
            connection.flushall()


@pytest.fixture(scope="session")
def redis_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisServer]:
    """A real Redis for the whole session."""
    with running_redis(tmp_path_factory.mktemp("redis")) as server:
        _stores.append(server.url)
        yield server


@pytest.fixture(scope="session")
def kafka_server(tmp_path_factory: pytest.TempPathFactory, worker_id: str) -> Iterator[SharedKafka]:
    """A real Kafka broker for all processes of the run: a test's topics and groups have names of their own."""
    of_run = tmp_path_factory.getbasetemp() if worker_id == "master" else tmp_path_factory.getbasetemp().parent
    with shared_kafka(of_run / "kafka") as server:
        yield server


@pytest.fixture
def client(redis_server: RedisServer) -> Iterator[redis.Redis]:
    """A connection to the session's Redis."""
    with redis.Redis.from_url(redis_server.url) as connection:
        yield connection


@pytest.fixture(scope="session")
def valkey_client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[redis.Redis]:
    """A connection to a real Valkey for the whole session."""
    with (
        running_valkey(tmp_path_factory.mktemp("valkey")) as server,
        redis.Redis.from_url(server.url) as connection,
    ):
        _stores.append(server.url)
        yield connection


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[RedisServer]]:
    """A real Redis Cluster of three primaries for the whole session."""
    with running_cluster(tmp_path_factory.mktemp("cluster")) as nodes:
        _stores.extend(node.url for node in nodes)
        yield nodes


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    """A real Spark for the tests of a file: a process can have but one at a time."""
    made = Engine(EngineSettings("local[2]", "1g", tmp_path_factory.mktemp("spark")))
    yield made
    made.close()


@pytest.fixture
def batch(engine: Engine, tmp_path: Path) -> Callable[..., BatchSummary]:
    """Runs a batch of the inputs that it is given; its results are in `tmp_path / "out"`."""
    return lambda *new, **options: batches.run(engine, tmp_path, new, **options)


@pytest.fixture(params=["kernel", "numpy"])
def path_taken(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both ways to pack and unpack the blocks of compressed tables; without Rust there is but one."""
    if request.param == "numpy":
        monkeypatch.setattr(native, "blocks", lambda: None)
    elif reason := native.absence():
        if shutil.which("cargo"):
            pytest.fail(f"cargo is here, but the kernel is not: {reason}; install again (pip install --editable .)")
        pytest.skip(f"no native kernel and no cargo to build it: {reason}")


@pytest.fixture
def say(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str, str]]:
    """Run a command in this process: exit code, standard output, standard error."""

    def run_here(*arguments: object) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["simhash-dedup", *map(str, arguments)])
        try:
            main()
            code = 0
        except SystemExit as end:
            code = int(end.code or 0)
        return code, *capsys.readouterr()

    return run_here


@pytest.fixture
def verdicts(tmp_path: Path) -> Path:
    """A file of 60 verdicts, every fifth a duplicate."""
    path = tmp_path / "verdicts.jsonl"
    path.write_bytes(lines_of(page(number, unique=number % 5 != 0) for number in range(1, 61)))
    return path


@pytest.fixture
def archive(say: Callable[..., tuple[int, str, str]], verdicts: Path, tmp_path: Path) -> Path:
    """Compressed tables of these verdicts."""
    assert say("tables", "build", verdicts, "--out", tmp_path / "archive", "-q")[0] == 0
    return tmp_path / "archive"


@pytest.fixture
def name() -> str:
    """A name that no other test uses: for an index, a topic, a group."""
    return f"t{uuid.uuid4().hex[:12]}"


@pytest.fixture(params=KINDS)
def backend(request: pytest.FixtureRequest) -> Backend:
    """One primary, and a cluster: what a test of both kinds of index is run on."""
    return backend_of(request, request.param)


def backend_of(request: pytest.FixtureRequest, kind: str) -> Backend:
    """The session's server of a kind, connected to the index of this test."""
    name = request.getfixturevalue("name")
    if kind == "cluster":
        url = "redis+cluster://" + ",".join(node.address for node in request.getfixturevalue("cluster"))
        return Backend(connect(Settings(redis_url=url, index_name=name)), url, name)
    return Backend(request.getfixturevalue("client"), request.getfixturevalue("redis_server").url, name)
