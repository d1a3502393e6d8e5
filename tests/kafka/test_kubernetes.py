"""deploy/kubernetes/worker.yaml, as far as that goes without a cluster: its schema, and its containers' commands and
settings on servers of their own.
"""

import json
import signal
import urllib.request

import kubernetes_validate
from ruamel.yaml import YAML

from benchmarks.samples import read_pages
from deploy.local.ports import HOST, free_port
from tests.docker import METRICS, started
from tests.stream import ROOT, Stream, until
from worker.settings import PREFIX

FILE = ROOT / "deploy" / "kubernetes" / "worker.yaml"
DOCUMENTS = {document["kind"]: document for document in YAML(typ="safe").load_all(FILE)}
SETTINGS = DOCUMENTS["ConfigMap"]["data"]
HERE = {f"{PREFIX}KAFKA_SECURITY_PROTOCOL": "PLAINTEXT", f"{PREFIX}METRICS_ADDRESS": METRICS}
"""What is otherwise on servers without a login, and what the image sets."""
OWN = ("REDIS_URL", "INPUT_TOPIC", "VERDICT_TOPIC", "DEAD_LETTER_TOPIC", "GROUP_ID", "INDEX_NAME")


def container(kind):
    (found,) = DOCUMENTS[kind]["spec"]["template"]["spec"]["containers"]
    return found


def service(kind, stream):
    """As tests/docker.py takes one; the broker and the Redis are others' too."""
    own = {name: value for name, value in stream.environment().items() if name.removeprefix(PREFIX) in OWN}
    return {"command": container(kind)["args"], "environment": SETTINGS | HERE | own}


def test_it_follows_the_schema_of_kubernetes():
    assert list(DOCUMENTS) == ["ConfigMap", "Job", "Service", "StatefulSet"]
    for document in DOCUMENTS.values():
        kubernetes_validate.validate(document, kubernetes_validate.latest_version(), strict=True)


def test_both_containers_have_the_settings_and_a_place_for_temporary_files():
    for kind in ("Job", "StatefulSet"):
        assert [next(iter(each.values()))["name"] for each in container(kind)["envFrom"]] == ["simhash-dedup"] * 2
        assert container(kind)["securityContext"]["readOnlyRootFilesystem"]
        assert container(kind)["volumeMounts"] == [{"name": "temporary", "mountPath": "/tmp"}]


def test_the_topics_are_made_and_the_workers_judge(kafka_server, redis_server, name):
    places = {SETTINGS[f"{PREFIX}BOOTSTRAP_SERVERS"]: kafka_server.bootstrap_servers, METRICS: f"{HOST}:{free_port()}"}
    stream = Stream(name, kafka_server.bootstrap_servers, redis_server.url, partitions=24)
    assert started(service("Job", stream), places).wait() == 0
    pages = read_pages()[:60]
    stream.send([(page["url"].encode(), json.dumps(page).encode()) for page in pages])
    worker = started(service("StatefulSet", stream), places)
    try:
        until(lambda: len(stream.committed()) == len(pages), "a verdict for each page")
        for probe in ("startupProbe", "livenessProbe"):
            path = container("StatefulSet")[probe]["httpGet"]["path"]
            assert urllib.request.urlopen(f"http://{places[METRICS]}{path}", timeout=10).status == 200
    finally:
        worker.send_signal(signal.SIGTERM)
    assert worker.wait(60) == 0
