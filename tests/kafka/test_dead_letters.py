"""`dlq`: dead letters of a real stream are counted, shown and sent back, each once, as they came."""

import json

import pytest
from kafka import KafkaProducer

from tests.stream import Stream, json_page, working
from worker.errors import Fenced
from worker.judging.judge import Rejected
from worker.records.dead_letter import Place, dead_letter
from worker.records.passing import Source
from worker.settings import PREFIX, Settings
from worker.stream.kafka.letters import all_letters, sending, sent_back

STEERING = b'\x1b[2J{"url": \\x1b \xff\x9b \xe2\x80\xae'
LONG = json_page(1, "words that are many " * 60)
HEADERS = [("traceparent", b"00-ab"), ("empty", b""), ("simhash-dedup.replayed", b"0/0")]


@pytest.fixture
def dlq(stream, say, monkeypatch):
    """Runs `dlq` with the stream's settings to its end; gives its standard output."""
    for name, value in stream.environment().items():
        if name.startswith(PREFIX):
            monkeypatch.setenv(name, value)

    def done(*arguments, code=0):
        found, said, wrong = say("dlq", *arguments)
        assert found == code, (arguments, said, wrong)
        return said + wrong

    return done


def judged(stream, count, **settings):
    """Let a worker answer so many records, marks aside."""
    changed = Stream(stream.name, stream.bootstrap_servers, stream.redis_url, 2, settings=settings)
    worker = changed.worker()
    with working(worker):
        changed.wait_for(count)
        assert worker.stop()[0] == 0


def records(stream):
    """What is in the input: partition, key, value, headers."""
    return [(row.partition, row.key, row.value, list(row.headers)) for row in stream.committed(stream.input_topic)]


def write_letters(stream, count):
    """Letters as a worker writes them."""
    producer = KafkaProducer(bootstrap_servers=stream.bootstrap_servers)
    for number in range(count):
        rejection = Rejected(Source(stream.input_topic, 0, number, None), "decode", "PageError", "not JSON")
        letter = dead_letter(rejection, b"k", b"v%d" % number, [], stream.dead_letter_topic, 1 << 20)
        producer.send(letter.topic, letter.value, letter.key, letter.headers, letter.partition)
    producer.close()


@pytest.fixture
def stream(name, kafka_server, redis_server):
    """Topics of two partitions."""
    made = Stream(name, kafka_server.bootstrap_servers, redis_server.url, 2)
    made.create()
    return made


def settings_of(stream):
    return Settings(
        bootstrap_servers=stream.bootstrap_servers,
        input_topic=stream.input_topic,
        dead_letter_topic=stream.dead_letter_topic,
        group_id=stream.name,
    )


def test_letters_are_listed_shown_and_sent_back_once_as_they_came(stream, dlq):
    stream.send([json_page(0, "a page that is well " * 9)], partition=0)
    stream.send([LONG], HEADERS, partition=1)
    stream.send([(b"k\x9b", STEERING)], partition=0)
    judged(stream, 3, max_page_bytes="1000")

    lines = [json.loads(line) for line in dlq("list", "--json").splitlines()]
    place = {line["partition"]: line["place"] for line in lines}
    assert {(line["partition"], line["offset"], line["replayed"]) for line in lines} == {(1, 0, False), (0, 1, False)}
    listed = dlq("list")
    assert f"1  decode: PageError: the page has 1,200 bytes, more than max_page_bytes = 1,000  ({place[1]})" in listed
    assert f"2 dead letters in {stream.dead_letter_topic}, and 0 that were sent back" in listed
    assert "1 dead letters" in dlq("list", "--partition", 1, "--since", "1h")
    assert "1 dead letters" in dlq("list", "--partition", 1, "--since", "99999999d")  # before any calendar
    assert "0 dead letters" in dlq("list", "--until", "2020-01-01T00:00:00")

    shown = dlq("show", place[0])
    assert r'\x1b[2J{"url": \\x1b \xff\x9b \u202e' in shown
    assert r"key      k\x9b" in shown
    assert not set(shown) & {"\x1b", "\x9b", "\u202e"}
    assert dlq("show", place[1], "--raw").encode() == LONG[1]
    assert "has no dead letter at 1/999" in dlq("show", "1/999", code=3)

    before = records(stream)
    assert "1 would be sent back" in dlq("replay", "--error", "max_page_bytes")
    assert records(stream) == before
    assert "1 sent back" in dlq("replay", "--error", "max_page_bytes", "--execute")
    assert "0 sent back" in dlq("replay", "--error", "max_page_bytes", "--execute")
    (back,) = [record for record in records(stream) if record not in before]
    assert back == (1, *LONG, [*HEADERS, ("simhash-dedup.replays", b"1")])
    assert "1 dead letters in" in dlq("list")

    assert "1 sent back" in dlq("replay", place[0], "--execute")
    judged(stream, 5)
    assert [v["verdict"] for v in stream.verdicts() if v["url"] == json.loads(LONG[1])["url"]] == ["unique"]
    stream.check()

    refused = dlq("replay", "--execute", code=1)  # it is no page today either: it would go round and round
    assert "0 sent back" in refused
    assert "1  was sent back before and failed again" in refused
    assert "1 sent back" in dlq("replay", "--execute", "--again")
    assert (0, b"k\x9b", STEERING, [("simhash-dedup.replays", b"2")]) in records(stream)


def test_of_two_replays_the_later_one_ends_the_other_and_nothing_is_sent_twice(stream):
    settings = settings_of(stream)
    write_letters(stream, 2)
    letters = list(all_letters(settings))
    with sending(settings) as first:
        with sending(settings) as second:
            second(letters[:1])
        assert sent_back(settings) == {letters[0].place}
        with pytest.raises(Fenced):
            first(letters)
    assert sent_back(settings) == {letters[0].place}
    assert len(records(stream)) == 1


def test_letters_of_another_topic_and_places_without_one_are_refused(stream, dlq):
    write_letters(stream, 2)
    said = dlq("replay", "--input-topic", f"{stream.name}.other", code=1)
    assert "2  came from topic" in said
    assert dlq("replay", Place(1, 77), code=1).startswith("0 would be sent back")
