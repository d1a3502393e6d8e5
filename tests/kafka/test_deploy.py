"""What deploy/ and docker-compose.yml promise, as far as it can be held without a container engine.

The compose file is checked against its published schema; its Kafka and Redis are set up here as in their
images (Kafka's by the very program that the image runs) and compared with the local servers; every query of
the dashboard and the alerts is put to a real Prometheus.
"""

import json
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from math import isnan
from pathlib import Path
from typing import Any

import pytest
import redis
from ruamel.yaml import YAML

from deploy.local import brokers, installing
from deploy.local.brokers import KafkaServer
from deploy.local.stores import RedisServer
from tests.exposition import METRICS, PrometheusServer, sample_blocks
from tests.servers import running_redis

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
COMPOSE_FILE = ROOT / "docker-compose.yml"
BATCH_DOCKERFILE = DEPLOY / "kubernetes" / "batch.Dockerfile"
SPARKS_LOCKS = ("requirements-spark.lock", "requirements-dev.lock")
DASHBOARD_FILE = DEPLOY / "grafana" / "dashboards" / "simhash-dedup.json"

# What depends on the place where Kafka or Redis runs; everything else is in the shared files.
KAFKA_PLACE = {"listeners", "advertised.listeners", "controller.quorum.voters", "log.dirs"}
REDIS_PLACE = {"bind", "port", "dir", "protected-mode"}


def read_yaml(path: Path) -> Any:
    return YAML(typ="safe").load(path)


@pytest.fixture(scope="module")
def services() -> dict[str, Any]:
    loaded: dict[str, Any] = read_yaml(COMPOSE_FILE)["services"]
    return loaded


def run(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)
    assert done.returncode == 0, done.stdout + done.stderr


# --- the compose file


def test_the_compose_file_follows_its_schema() -> None:
    run(sys.executable, "-m", "check_jsonschema", "--builtin-schema", "vendor.compose-spec", str(COMPOSE_FILE))


def test_every_variable_of_the_compose_file_has_a_default() -> None:
    variables = re.findall(r"\$\{[^}]*\}", COMPOSE_FILE.read_text())
    assert variables
    assert all(":-" in variable for variable in variables)


def test_every_port_is_bound_to_this_machine(services: dict[str, Any]) -> None:
    ports = [port for service in services.values() for port in service.get("ports", [])]
    assert len(ports) >= 4
    assert all(port.startswith("127.0.0.1:") for port in ports)


def test_every_image_is_pinned_to_a_version(services: dict[str, Any]) -> None:
    images = {service["image"] for service in services.values() if service.get("pull_policy") != "never"}
    assert len(images) == 4
    assert all(re.search(r":v?\d+\.\d+\.\d+(-\w+)?$", image) for image in images)


def test_docker_compose_up_builds_the_workers_image_once_and_fetches_it_from_nowhere(services: dict[str, Any]) -> None:
    """Two services that build one image do so in parallel, and the second one's export fails."""
    of_ours = {name: service for name, service in services.items() if service["image"].endswith(":local")}
    assert of_ours.keys() == {"topics", "worker"}
    assert [name for name, service in of_ours.items() if "build" in service] == ["topics"]
    assert {service["pull_policy"] for service in of_ours.values()} == {"never"}
    assert "topics" in services["worker"]["depends_on"]


def test_the_compose_file_asks_for_nothing_that_debians_docker_engine_has_not() -> None:
    assert "start_interval" not in COMPOSE_FILE.read_text()  # Engine 25; Debian 12 has 20.10


def test_kafka_has_the_same_version_in_the_container_and_here(services: dict[str, Any]) -> None:
    version = services["kafka"]["image"].split(":")[1]
    assert f"kafka_2.13-{version}.jar" in installing.expected_sums()


def test_nothing_in_the_compose_file_looks_like_a_password() -> None:
    assert not re.search(r"password|secret|token", re.sub(r"#.*", "", COMPOSE_FILE.read_text()), re.IGNORECASE)


def test_every_mounted_file_exists(services: dict[str, Any]) -> None:
    mounts = [mount for service in services.values() for mount in service.get("volumes", [])]
    sources = [mount.split(":")[0] for mount in mounts if mount.startswith("./")]
    assert len(sources) >= 5
    assert all((ROOT / source).exists() for source in sources)


def test_the_worker_waits_for_what_it_needs(services: dict[str, Any]) -> None:
    assert {name: need["condition"] for name, need in services["worker"]["depends_on"].items()} == {
        "kafka": "service_healthy",
        "redis": "service_healthy",
        "topics": "service_completed_successfully",
    }


def test_every_service_waited_for_can_become_healthy(services: dict[str, Any]) -> None:
    for service in services.values():
        for name, need in service.get("depends_on", {}).items():
            assert need["condition"] != "service_healthy" or "test" in services[name]["healthcheck"]


# --- the same settings as the local servers


def properties(text: str) -> dict[str, str]:
    """Java's properties as Kafka reads them: the last of two lines with one key counts."""
    lines = (line.strip() for line in text.splitlines())
    pairs = (line.split("=", 1) for line in lines if line and not line.startswith("#"))
    return {key.strip(): value.strip() for key, value in pairs}


def without(settings: dict[str, str], place: set[str]) -> dict[str, str]:
    return {key: value for key, value in settings.items() if key not in place}


def test_the_images_own_setup_makes_of_the_compose_file_the_local_kafkas_settings(
    services: dict[str, Any], tmp_path: Path
) -> None:
    """The image's entry point is in Kafka's jar: it merges mounted file and environment, and formats."""
    environment = {
        **services["kafka"]["environment"],
        "KAFKA_ADVERTISED_LISTENERS": "PLAINTEXT://kafka:9092,HOST://127.0.0.1:19092",
        "KAFKA_LOG_DIRS": str(tmp_path / "data"),
    }
    run_kafka_setup(tmp_path, environment)
    local = KafkaServer(tmp_path / "local")
    assert (tmp_path / "data" / "meta.properties").exists()
    assert without(properties((tmp_path / "final" / "server.properties").read_text()), KAFKA_PLACE) == without(
        properties(brokers.SETTINGS.read_text()) | local.place_settings(), KAFKA_PLACE
    )
    assert local.place_settings().keys() == KAFKA_PLACE


def run_kafka_setup(directory: Path, environment: dict[str, str]) -> None:
    defaults, final = directory / "defaults", directory / "final"
    logging = "Configuration:\n  Loggers:\n    Root: {level: INFO, AppenderRef: []}\n    Logger: []\n"
    for each in (defaults, final):
        each.mkdir()
        (each / "server.properties").touch()
        (each / "log4j2.yaml").write_text(logging)
        (each / "tools-log4j2.yaml").write_text(logging)
    installing.require_jars(installing.CACHE)
    command = [brokers.java(), "-cp", f"{installing.CACHE}/*", "kafka.docker.KafkaDockerWrapper", "setup"]
    places = ["--default-configs-dir", str(defaults), "--final-configs-dir", str(final)]
    mounted = ["--mounted-configs-dir", str(brokers.SETTINGS.parent)]
    done = subprocess.run([*command, *places, *mounted], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


class ContainersRedis(RedisServer):
    """Redis started by the compose file's command line, its mounts put at their places on this machine."""

    def __init__(self, directory: Path, command: list[str]) -> None:
        super().__init__(directory, dies_with_parent=True)
        self._containers_command = command

    def command(self) -> list[str]:
        data = self.directory / "redis-data"
        at = {"/etc/redis/redis.conf": str(DEPLOY / "redis" / "redis.conf"), "/data": str(data)}
        command = [at.get(argument, argument) for argument in self._containers_command]
        # The container has a network of its own; here the server stays on the loopback address.
        return [*command, "--bind", "127.0.0.1", "--port", str(self.port)]


def test_the_compose_files_redis_runs_with_the_local_ones_settings(services: dict[str, Any], tmp_path: Path) -> None:
    container = ContainersRedis(tmp_path / "container", services["redis"]["command"])
    container.start()
    try:
        with running_redis(tmp_path / "local") as local:
            assert all_settings(container) == all_settings(local)
    finally:
        container.kill()


def all_settings(server: RedisServer) -> dict[str, str]:
    with redis.Redis.from_url(server.url, decode_responses=True) as client:
        settings: dict[str, str] = client.config_get("*")
    return without(settings, REDIS_PLACE)


def test_redis_keeps_what_it_is_told_and_buckets_stay_listpacks(tmp_path: Path) -> None:
    with running_redis(tmp_path) as server:
        settings = all_settings(server)
    assert {key: settings[key] for key in ("maxmemory-policy", "appendonly", "appendfsync", "save")} == {
        "maxmemory-policy": "noeviction",
        "appendonly": "yes",
        "appendfsync": "everysec",
        "save": "",
    }
    assert int(settings["hash-max-listpack-entries"]) >= 256
    assert int(settings["hash-max-listpack-value"]) >= 4096


def test_a_page_at_the_size_limit_fits_into_a_message_as_base64() -> None:
    ten_mebibytes = 10 * 2**20
    largest = int(properties(brokers.SETTINGS.read_text())["message.max.bytes"])
    assert largest > ten_mebibytes * 4 / 3 + 2**20


# --- the image


def dockerfile_lines(path: Path = DEPLOY / "Dockerfile") -> list[str]:
    text = path.read_text().replace("\\\n", " ")
    return [line for line in text.splitlines() if line and not line.startswith("#")]


def instructions(name: str, path: Path = DEPLOY / "Dockerfile") -> list[str]:
    return [line.removeprefix(name).strip() for line in dockerfile_lines(path) if line.startswith(f"{name} ")]


def stages() -> list[list[str]]:
    """The Dockerfile's lines, stage by stage."""
    lines = dockerfile_lines()
    starts = [number for number, line in enumerate(lines) if line.startswith("FROM ")]
    return [lines[start:end] for start, end in zip(starts, [*starts[1:], len(lines)], strict=True)]


def test_what_the_image_is_built_with_stays_behind_and_it_has_no_root() -> None:
    *building, final = stages()
    assert [line.partition(" AS ")[2] for line, *_ in building] == ["kernel", "build"]
    assert not any(word in line for line in final for word in ("pip", "cargo", "rust"))
    assert [line for line in final if line.startswith("COPY ")] == [
        "COPY --from=build /opt/simhash-dedup /opt/simhash-dedup"
    ]
    assert [user.split(":")[0] for user in instructions("USER")] == ["10001"]
    assert any(line.startswith("USER ") for line in final)


def test_the_kernel_is_built_put_where_python_looks_and_asked_for() -> None:
    kernel, build, _ = stages()
    assert kernel[0].startswith("FROM rust:")
    crate = tomllib.loads((ROOT / "native" / "Cargo.toml").read_text())
    built = f"/native/target/release/lib{crate['lib']['name']}.so"
    (copied,) = [line.split()[2:] for line in build if line.startswith("COPY --from=kernel ")]
    python = re.search(r"python:(3\.\d+)-slim", build[0])
    assert python
    place = f"/opt/simhash-dedup/lib/python{python[1]}/site-packages/simhash/_native.abi3.so"
    assert copied == [built, place]
    assert any("--version" in line and "native kernel" in line for line in build)


def test_the_image_installs_only_what_the_lock_file_names() -> None:
    installs = [line for line in instructions("RUN") if "pip install" in line]
    assert len(installs) == 2
    assert "--require-hashes" in installs[0]
    assert "requirements.lock" in installs[0]
    assert "--no-deps" in installs[1]


def test_the_image_has_a_health_check_and_writable_space_for_jieba() -> None:
    assert "/healthz" in instructions("HEALTHCHECK")[0]
    assert instructions("VOLUME") == ["/tmp"]


def test_what_the_image_copies_is_let_through_by_dockerignore() -> None:
    images = [DEPLOY / "Dockerfile", BATCH_DOCKERFILE]
    let_through = {line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")}
    copies = [line for image in images for line in instructions("COPY", image) if not line.startswith("--from")]
    copied = {source for line in copies for source in line.split()[:-1]}
    assert copied == let_through


def test_the_kernel_is_built_of_the_crates_that_are_locked() -> None:
    """A crate that is not in the lock file would end the image's build, and be a newer one tomorrow on a desk."""
    assert "cargo build --release --locked" in instructions("RUN")[0]
    crate = tomllib.loads((ROOT / "native" / "Cargo.toml").read_text())
    locked = tomllib.loads((ROOT / "native" / "Cargo.lock").read_text())["package"]
    versions = {package["name"]: package["version"] for package in locked}
    wanted = {name: want if isinstance(want, str) else want["version"] for name, want in crate["dependencies"].items()}
    assert {name: f"={versions.get(name)}" for name in wanted} == wanted


def test_the_batchs_image_is_the_workers_with_a_spark_that_is_locked() -> None:
    assert instructions("FROM", BATCH_DOCKERFILE)[-1] == "simhash-dedup:local"
    (install,) = [line for line in instructions("RUN", BATCH_DOCKERFILE) if "pip install" in line]
    assert "--require-hashes --requirement requirements-spark.lock" in install
    versions = [dict(re.findall(r"^([\w-]+)==(\S+)", (ROOT / name).read_text(), re.M)) for name in SPARKS_LOCKS]
    assert {"pyspark", "pyarrow"} <= versions[0].keys()
    assert versions[0].items() <= versions[1].items()
    image = instructions("FROM", BATCH_DOCKERFILE)[0]
    assert image == f"apache/spark:{versions[0]['pyspark']}-python3 AS spark"


# --- Prometheus and Grafana


def test_promtool_accepts_the_prometheus_configuration() -> None:
    run("promtool", "check", "config", str(DEPLOY / "prometheus" / "prometheus.yml"))


def test_the_alerts_fire_when_they_should_and_only_then() -> None:
    run("promtool", "test", "rules", str(DEPLOY / "prometheus" / "alerts_test.yml"))


def alerts() -> list[dict[str, Any]]:
    groups = read_yaml(DEPLOY / "prometheus" / "alerts.yml")["groups"]
    return [rule for group in groups for rule in group["rules"]]


def test_every_alert_says_what_it_means_and_is_tested() -> None:
    tests = (DEPLOY / "prometheus" / "alerts_test.yml").read_text()
    for alert in alerts():
        assert alert["annotations"].keys() == {"summary", "description"}
        assert f'alertname="{alert["alert"]}", alertstate="firing"' in tests


@pytest.fixture(scope="module")
def dashboard() -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads(DASHBOARD_FILE.read_text())
    return loaded


def panels(dashboard: dict[str, Any]) -> list[dict[str, Any]]:
    return [panel for panel in dashboard["panels"] if panel["type"] != "row"]


def queries(dashboard: dict[str, Any]) -> list[tuple[str, str]]:
    """Every query with its legend, its variables filled in as Grafana would for a 15 s scrape interval."""
    fill = {"$__rate_interval": "1m", "$__range": "1h", "$job": ".*", "$instance": ".*"}
    targets = [target for panel in panels(dashboard) for target in panel["targets"]]
    return [
        (re.sub(r"\$\w+", lambda name: fill[name[0]], target["expr"]), target["legendFormat"]) for target in targets
    ]


def expressions(dashboard: dict[str, Any]) -> str:
    return "\n".join(query for query, _ in queries(dashboard))


@pytest.fixture(scope="module")
def prometheus(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PrometheusServer]:
    """A Prometheus that has seen an hour of two workers and an idle third."""
    directory = tmp_path_factory.mktemp("prometheus")
    server = PrometheusServer(directory, dies_with_parent=True)
    sample_blocks(directory)
    server.start()
    try:
        yield server
    finally:
        server.kill()


def test_every_query_of_the_dashboard_has_an_answer(prometheus: PrometheusServer, dashboard: dict[str, Any]) -> None:
    answers = {query: prometheus.query(query) for query, _ in queries(dashboard)}
    assert len(answers) >= 20
    unanswered = [query for query, samples in answers.items() if not samples]
    undefined = [query for query, samples in answers.items() if any(isnan(s.value) for s in samples)]
    assert (unanswered, undefined) == ([], [])


def test_every_legend_names_labels_that_its_query_has(prometheus: PrometheusServer, dashboard: dict[str, Any]) -> None:
    for query, legend in queries(dashboard):
        labels = set(re.findall(r"{{(\w+)}}", legend))
        # `kind` of a unique page is empty, and Prometheus drops empty labels.
        found = {label for sample in prometheus.query(query) for label in sample.labels}
        assert labels == found, query


def test_every_alert_can_be_evaluated(prometheus: PrometheusServer) -> None:
    assert [prometheus.query(alert["expr"]) for alert in alerts() if alert["alert"] != "SimhashDedupNoWorker"]


def metrics_in(text: str) -> set[str]:
    names = set(re.findall(r"\bsimhash_dedup_\w+", text))
    return {re.sub(r"_(bucket|sum|count)$", "", name) for name in names}


def test_dashboard_and_alerts_use_the_workers_metrics_and_no_others(dashboard: dict[str, Any]) -> None:
    of_alerts = "\n".join(alert["expr"] for alert in alerts())
    assert metrics_in(expressions(dashboard)) == METRICS.keys()
    assert metrics_in(of_alerts) < METRICS.keys()
    others = re.findall(r"\b(?!simhash_dedup_)(\w+)\{", of_alerts + expressions(dashboard))
    assert set(others) == {"up"}


def test_every_panel_says_what_it_shows_and_in_which_unit(dashboard: dict[str, Any]) -> None:
    for panel in panels(dashboard):
        assert len(panel["description"]) > 20
        assert panel["fieldConfig"]["defaults"]["unit"]


def test_no_two_panels_lie_upon_each_other(dashboard: dict[str, Any]) -> None:
    cells = [
        (panel["gridPos"]["x"] + x, panel["gridPos"]["y"] + y)
        for panel in dashboard["panels"]
        for x in range(panel["gridPos"]["w"])
        for y in range(panel["gridPos"]["h"])
    ]
    assert len(cells) == len(set(cells))
    assert max(x for x, _ in cells) < 24
    assert len({panel["id"] for panel in dashboard["panels"]}) == len(dashboard["panels"])


def test_grafana_finds_the_dashboard_and_prometheus_where_compose_puts_them(
    services: dict[str, Any], dashboard: dict[str, Any]
) -> None:
    provisioning = DEPLOY / "grafana" / "provisioning"
    source = read_yaml(provisioning / "datasources" / "prometheus.yml")["datasources"][0]
    provider = read_yaml(provisioning / "dashboards" / "simhash-dedup.yml")["providers"][0]
    mounts = services["grafana"]["volumes"]
    assert f"./deploy/grafana/dashboards:{provider['options']['path']}:ro" in mounts
    assert source["url"] == "http://prometheus:9090"
    assert "prometheus" in services
    variables = {variable["name"]: variable for variable in dashboard["templating"]["list"]}
    assert variables["datasource"]["current"]["value"] == source["uid"]


def test_prometheus_scrapes_the_workers_as_the_alerts_name_them(services: dict[str, Any]) -> None:
    (job,) = read_yaml(DEPLOY / "prometheus" / "prometheus.yml")["scrape_configs"]
    (target,) = job["dns_sd_configs"]
    address = services["worker"]["environment"]["SIMHASH_DEDUP_METRICS_ADDRESS"]
    assert target["names"] == ["worker"]
    assert address == f"0.0.0.0:{target['port']}"
    assert job["job_name"] == "simhash-dedup"
