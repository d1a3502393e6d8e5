"""The users of deploy/kafka/acls.sh and deploy/redis/users.conf do all that their commands do, on servers with TLS,
SCRAM and an authorizer; others are refused, before anything is written, by a line that says so.
"""

import hashlib
import os
import re
import subprocess
import sys
from dataclasses import dataclass, field
from random import Random

import pytest
import redis

from deploy.local.ports import HOST, free_port
from tests.secure import MECHANISM, Certificates, SecureKafka, certificates
from tests.servers import running_redis
from tests.stream import ROOT, Stream, closing_admin, json_page, texts, working

WORKER, OPERATOR, STRANGER = "simhash-dedup", "simhash-dedup-operator", "stranger"
PASSWORDS = {WORKER: "worker-secret", OPERATOR: "operator-secret", STRANGER: "stranger-secret"}
KAFKA_ACLS = f"#!/bin/sh\ncd '{ROOT}' && exec '{sys.executable}' -m tests.kafka_acls \"$@\"\n"


@dataclass
class Secured(Stream):
    """A stream of which each command is run as one of the users, over TLS."""

    kafka: SecureKafka = field(kw_only=True)
    redis_port: int = field(kw_only=True)
    made: Certificates = field(kw_only=True)

    def of(self, user, **changes):
        """The settings by which a user comes in."""
        password = PASSWORDS[user]
        options = f"ssl_ca_certs={self.made.authority}"
        values = {
            "bootstrap_servers": self.kafka.secure_servers,
            "kafka_security_protocol": "SASL_SSL",
            "kafka_sasl_mechanism": MECHANISM,
            "kafka_username": user,
            "kafka_password": password,
            "kafka_ca_file": str(self.made.authority),
            "redis_url": f"rediss://{user}:{password}@{HOST}:{self.redis_port}/0?{options}",
        }
        return Stream(
            self.name, values["bootstrap_servers"], values["redis_url"], settings=self.settings | values | changes
        )


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    return certificates(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="module")
def secure_kafka(tmp_path_factory, made):
    server = SecureKafka(tmp_path_factory.mktemp("kafka"), made)
    server.start()
    server.add_users(PASSWORDS)
    yield server
    server.kill()


@pytest.fixture(scope="module")
def secure_redis(tmp_path_factory, made):
    """A Redis that speaks TLS; its administrator comes in by the other port."""
    tls = {
        "tls-port": str(free_port()),
        "tls-cert-file": str(made.certificate),
        "tls-key-file": str(made.key),
        "tls-ca-cert-file": str(made.authority),
        "tls-auth-clients": "no",
    }
    with running_redis(tmp_path_factory.mktemp("redis"), tls) as server:
        yield server, int(tls["tls-port"])


@pytest.fixture
def secured(name, secure_kafka, secure_redis, made, tmp_path):
    server, port = secure_redis
    own = {"takedown_topic": f"{name}.takedowns", "unique_topic": f"{name}.unique"}
    stream = Secured(
        name,
        secure_kafka.bootstrap_servers,
        server.url,
        settings=own,
        kafka=secure_kafka,
        redis_port=port,
        made=made,
    )
    allow_on_kafka(stream, tmp_path)
    with redis.Redis.from_url(server.url) as client:
        for user, rights in users_of_redis(name):
            client.execute_command("ACL", "SETUSER", user, *rights)
        client.execute_command("ACL", "SETUSER", STRANGER, "on", f">{PASSWORDS[STRANGER]}", "+@all", "~other*")
    return stream


def allow_on_kafka(stream, directory):
    """deploy/kafka/acls.sh, with the names of this stream."""
    program = directory / "kafka-acls.sh"
    program.write_text(KAFKA_ACLS)
    program.chmod(0o755)
    names = {
        "INPUT_TOPIC": stream.input_topic,
        "VERDICT_TOPIC": stream.verdict_topic,
        "DEAD_LETTER_TOPIC": stream.dead_letter_topic,
        "UNIQUE_TOPIC": stream.settings["unique_topic"],
        "TAKEDOWN_TOPIC": stream.settings["takedown_topic"],
        "GROUP_ID": stream.name,
        "KAFKA_ACLS": str(program),
    }
    script = [str(ROOT / "deploy" / "kafka" / "acls.sh"), "--bootstrap-server", stream.kafka.bootstrap_servers]
    done = subprocess.run(script, env=os.environ | names, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def users_of_redis(name):
    """The users of deploy/redis/users.conf with their passwords, and an index of this name in the place of dedup."""
    for line in (ROOT / "deploy" / "redis" / "users.conf").read_text().splitlines():
        if found := re.fullmatch(r"user (simhash-dedup\S*) (.*)", line):
            user, rights = found[1], found[2].replace("{dedup", f"{{{name}").split()
            password = "#" + hashlib.sha256(PASSWORDS[user].encode()).hexdigest()
            yield user, [password if right == "resetpass" else right for right in rights]


def done(stream, *arguments, code=0):
    """A command run to its end; what it said."""
    found = stream.command(*map(str, arguments))
    assert found.returncode == code, (arguments, found.stdout, found.stderr)
    assert "Traceback" not in found.stderr
    return found.stdout + found.stderr


def test_each_command_is_done_by_its_user_with_the_rights_that_are_shipped(secured, tmp_path):
    worker, operator = secured.of(WORKER), secured.of(OPERATOR)
    assert done(operator, "topics", "--partitions", 1).count("created") == 5
    secured.send([*[json_page(n, text) for n, text in enumerate(texts(60, Random(3)))], (b"x", b"no page")])
    for retention in ({}, {"max_documents": "12"}):  # the second forgets most of what the first has stored
        running = secured.of(WORKER, **retention).worker()
        with working(running):
            secured.wait_for(61)
            secured.send([json_page(100 + len(retention), "a page of its own " * 40)]) if retention else None
            secured.wait_for(62 if retention else 61)
            code, written = running.stop()
            assert (code, "refuse" in written) == (0, False), written
    pages = tmp_path / "pages.jsonl"
    pages.write_bytes(b"".join(value + b"\n" for _, value in [json_page(200, "words of a file " * 30)]))
    done(worker, "file", pages, "--out", tmp_path / "file.jsonl", "--server")
    done(operator, "verify")
    done(operator, "index", "check")
    assert "1 sent back" in done(operator, "dlq", "replay", "--execute")
    done(operator, "index", "stats")
    url = re.search(r"newest .*seq \d+  (\S+)", done(operator, "index", "stats"))[1]
    done(operator, "inspect", url)
    done(operator, "index", "migrate", "--design", "10")
    done(operator, "index", "export", tmp_path / "export.jsonl")
    done(operator, "index", "import", tmp_path / "export.jsonl", "--index-name", f"{secured.name}3")
    done(operator, "index", "delete", url)
    with closing_admin(secured.bootstrap_servers) as admin:  # who may do all
        admin.delete_groups([secured.name])
    done(operator, "index", "resume", secured.input_topic, "--execute")
    done(operator, "index", "rewind", secured.input_topic, "--execute")
    done(operator, "index", "accept", "--execute")
    done(operator, "index", "base")
    done(operator, "rebuild", "--index-name", f"{secured.name}2")


def test_a_wrong_login_at_kafka_ends_the_command_and_names_the_setting(secured):
    """The client itself would try it again for ten seconds, and say that nobody answers."""
    password = {"kafka_password": "no-secret"}, "invalid credentials"
    mechanism = {"kafka_sasl_mechanism": "PLAIN"}, "(?i)sasl.?mechanism"
    cases = [
        (password, ("run",)),
        (password, ("run", "--processes", "2")),
        (password, ("topics", "--dry-run")),
        (mechanism, ("run",)),
    ]
    for (wrong, reason), command in cases:
        said = done(secured.of(WORKER, **wrong), *command, code=4)
        (line,) = [line for line in said.splitlines() if line.startswith("simhash-dedup: ")]
        assert f"refuses the login of {WORKER} (kafka_username, kafka_password, kafka_sasl_mechanism)" in line
        assert re.search(reason, line)
        assert "secret" not in said


def test_users_without_rights_are_refused_by_one_line_before_anything_is_written(secured):
    done(secured.of(OPERATOR), "topics")
    keys = redis.Redis.from_url(secured.redis_url).dbsize()
    cases = [
        (secured.of(WORKER, redis_url=secured.of(WORKER).redis_url.replace("secret", "no")), ("run",), 5, "the login"),
        (secured.of(STRANGER, redis_url=secured.of(WORKER).redis_url), ("run",), 4, "refuses this user the topic"),
        (secured.of(STRANGER), ("verify",), 4, "refuses this user the topic"),
        (secured.of(STRANGER), ("rebuild",), 5, "Redis refuses"),
        (secured.of(STRANGER), ("index", "stats"), 5, "Redis refuses"),
        (secured.of(OPERATOR, redis_url=secured.of(WORKER).redis_url), ("run",), 4, "may not WRITE to topic"),
    ]
    for stream, arguments, code, message in cases:
        said = done(stream, *arguments, code=code)
        lines = [line for line in said.splitlines() if line.startswith("simhash-dedup: ")]
        assert len(lines) == 1, said
        assert re.search(message, lines[0]), said
        assert not any(word in said for word in PASSWORDS.values())
    assert redis.Redis.from_url(secured.redis_url).dbsize() <= keys + 1  # an index that was made, and nothing in it
