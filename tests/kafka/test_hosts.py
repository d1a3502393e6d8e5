"""The hosts topic: each verdict counted once, however often `hosts` ends, is killed or begun again."""

import itertools

import pytest
from kafka import KafkaProducer

from tests.stream import Stream, closing_admin, until
from tests.unit.test_hosts import verdict
from worker.errors import Fenced
from worker.hosts import Hosts, decoded
from worker.records.verdict import encode
from worker.settings import PREFIX, Settings
from worker.stream.kafka import hosts_topic as subject
from worker.stream.kafka.hosts_topic import PLACE_KEY, keeping


@pytest.fixture
def stream(name, kafka_server, redis_server):
    made = Stream(name, kafka_server.bootstrap_servers, redis_server.url, 3)
    made.create()
    return made


@pytest.fixture
def settings(stream, say, monkeypatch):
    """Those of the stream, in the environment too; its hosts topic is made by `topics`."""
    own = {"hosts_topic": f"{stream.name}.hosts"}
    for name, value in (stream.environment() | {PREFIX + n.upper(): v for n, v in own.items()}).items():
        if name.startswith(PREFIX):
            monkeypatch.setenv(name, value)
    assert f"created: {own['hosts_topic']} (hosts), 1 partitions" in say("topics")[1]
    assert f"fine: {own['hosts_topic']} (hosts)" in say("topics")[1]
    return Settings()


def told(count, first=0):
    """Verdicts on pages of seven hosts, two in three of them copies."""
    return [
        verdict(f"http://{n % 7}.example/?id={n}", f"http://{n % 7}.example/" if n % 3 else None)
        for n in range(first, first + count)
    ]


def send(stream, verdicts):
    """As a worker writes them, to the partitions in turn."""
    producer = KafkaProducer(bootstrap_servers=stream.bootstrap_servers, transactional_id=f"{stream.name}-test")
    producer.init_transactions()
    for some in (verdicts[at : at + 50] for at in range(0, len(verdicts), 50)):
        producer.begin_transaction()
        for number, each in enumerate(some):
            producer.send(stream.verdict_topic, encode(each), partition=number % 3)
        producer.commit_transaction()
    producer.close()


def kept(stream, settings):
    """The hosts as a consumer has them that reads the topic to its end."""
    last = {row.key: row.value for row in stream.committed(settings.hosts_topic)}
    return {key.decode(): decoded(value) for key, value in last.items() if key != PLACE_KEY and value}


def of_files(verdicts):
    """The pages, unique and exact of each host, counted without a topic."""
    hosts = Hosts()
    hosts.add(verdicts)
    return figures({decoded(line).host: decoded(line) for line in hosts})


def figures(hosts):
    return {name: (each.pages, each.unique, each.exact, sorted(each.traits)) for name, each in hosts.items()}


def test_verdicts_that_come_are_counted_once_whenever_it_is_begun_again(stream, settings, say, tmp_path):
    first, second = told(200), told(100, first=200)
    send(stream, first)
    for more in ("200 verdicts more: 7 hosts with 200 pages", "0 verdicts more: 7 hosts with 200 pages"):
        code, _, said = say("hosts", "--out", tmp_path / "hosts.jsonl")
        assert (code, more in said) == (0, True), said
        assert figures(kept(stream, settings)) == of_files(first)
    send(stream, second)
    assert "100 verdicts more: 7 hosts with 300 pages" in say("hosts", "--out", tmp_path / "hosts.jsonl")[2]
    assert figures(kept(stream, settings)) == of_files(first + second)
    written = map(decoded, (tmp_path / "hosts.jsonl").read_bytes().splitlines())
    assert {each.host: each for each in written} == kept(stream, settings)


class Killed(BaseException):
    """In the place of a signal that nobody hears."""


def count_until_killed(settings, step):
    """Count in parts; the second one's transaction ends at this step, and with it everything."""
    with keeping(settings, settings.hosts_topic) as hosts:
        commit, calls = hosts._transactions.commit, itertools.count()

        def killed(now):
            if now == step:
                raise Killed

        def dying(outgoing, offsets, membership, on_step):
            if next(calls) == 0:
                return commit(outgoing, offsets, membership, on_step)
            commit(outgoing, offsets, membership, killed)
            raise Killed

        hosts._transactions.commit = dying
        hosts.catch_up(lambda: False)


@pytest.mark.parametrize(("step", "left"), [("begun", 90), ("sent", 90), ("committed", 60)])
def test_one_that_is_killed_within_a_transaction_counts_nothing_twice(stream, settings, monkeypatch, step, left):
    send(stream, verdicts := told(120))
    monkeypatch.setattr(subject, "VERDICTS_AT_ONCE", 30)
    with pytest.raises(Killed):
        count_until_killed(settings, step)
    with keeping(settings, settings.hosts_topic) as hosts:
        assert hosts.catch_up(lambda: False) == left
    assert figures(kept(stream, settings)) == of_files(verdicts)


def test_a_second_one_ends_the_first(stream, settings):
    send(stream, verdicts := told(60))
    with keeping(settings, settings.hosts_topic) as first:
        with keeping(settings, settings.hosts_topic) as second:
            assert second.catch_up(lambda: False) == 60
        with pytest.raises(Fenced):
            first.catch_up(lambda: False)
    assert figures(kept(stream, settings)) == of_files(verdicts)


@pytest.mark.parametrize(
    ("topic", "key", "value", "expected"),
    [
        ("hosts_topic", PLACE_KEY, b'"\xff"', " holds what is no host: "),
        ("hosts_topic", b"a.example", b"[" * 5000, " holds what is no host: "),
    ],
)
def test_what_strangers_wrote_is_named(stream, settings, say, topic, key, value, expected):
    producer = KafkaProducer(bootstrap_servers=stream.bootstrap_servers)
    producer.send(getattr(settings, topic), value, key, partition=0)
    producer.close()
    code, _, said = say("hosts")
    assert (code, f"{getattr(settings, topic)}{expected}" in said) == (4, True), said


def test_a_verdict_topic_that_was_made_again_is_noticed_and_counted_afresh(stream, settings, say):
    send(stream, told(60))
    assert say("hosts")[0] == 0
    with closing_admin(stream.bootstrap_servers) as admin:
        admin.delete_topics([stream.verdict_topic])
    stream.create()
    send(stream, verdicts := told(9, first=1000))
    code, _, said = say("hosts")
    assert (code, "--afresh begins anew" in said) == (4, True), said
    assert say("hosts", "--afresh")[0] == 0
    assert figures(kept(stream, settings)) == of_files(verdicts)


def test_topics_that_are_not_there_are_refused(stream, settings, say):
    code, _, said = say("hosts", "--hosts-topic", f"{stream.name}.none")
    assert (code, f"topic {stream.name}.none does not exist" in said) == (4, True)


def test_what_strangers_wrote_among_verdicts_is_told_and_does_not_stand_in_the_way(stream, settings, say):
    producer = KafkaProducer(bootstrap_servers=stream.bootstrap_servers)
    for value in (b"no verdict", b"\xff", None):
        producer.send(stream.verdict_topic, value, b"any", partition=1)
    producer.close()
    send(stream, verdicts := told(60))
    code, _, said = say("hosts")
    assert (code, "60 verdicts more: 7 hosts with 60 pages" in said) == (0, True), said
    assert f"3 of 63 records are no verdicts and not counted, the first {stream.verdict_topic}[1] offset 0: " in said
    assert figures(kept(stream, settings)) == of_files(verdicts)
    assert "no verdicts" not in say("hosts")[2]


def test_hosts_are_compacted_and_topics_says_when_they_are_not(stream, settings, say):
    with closing_admin(stream.bootstrap_servers) as admin:
        admin.delete_topics([settings.hosts_topic])
        admin.create_topics({settings.hosts_topic: {"num_partitions": 1, "configs": {}}}, wait_for_metadata=True)
    # What a broker knows of the new topic may come a moment after what it still knew of the old one.
    until(lambda: "cleanup.policy is delete, which drops hosts; set it to compact" in say("topics")[1], "it is said")
