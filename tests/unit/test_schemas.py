"""The JSON Schemas in docs/schemas: what they say is what is written and what is taken."""

import json

import msgspec
import pytest
from jsonschema import Draft202012Validator
from jsonschema.exceptions import ValidationError
from referencing import Registry, Resource

from simhash import MemoryIndex
from simhash.errors import PageError
from simhash.signature.profiles import DEFAULT
from tests.documents import ROOT
from tests.texts import PAGES
from worker.files.outputs import rejection_line
from worker.hosts import Host, Hosts
from worker.judging.fingerprinters import recipe
from worker.judging.judge import Rejected, judge, prepare
from worker.records.dead_letter import dead_letter
from worker.records.page import Limits, decode_page
from worker.records.passing import RawRecord, Source
from worker.records.verdict import Match, SourceFields, Verdict, encode
from worker.settings import Settings

FILES = {path.stem: json.loads(path.read_bytes()) for path in (ROOT / "docs" / "schemas").glob("*.json")}
REGISTRY = Registry().with_resources([(each["$id"], Resource.from_contents(each)) for each in FILES.values()])
LIMITS = Limits(1 << 20, 8192, 1024)


def validator(name, part=None):
    schema = FILES[name]
    return Draft202012Validator({"$ref": schema["$id"] + (f"#/$defs/{part}" if part else "")}, registry=REGISTRY)


@pytest.mark.parametrize("name", FILES)
def test_a_schema_is_one_and_says_its_version(name):
    Draft202012Validator.check_schema(FILES[name])
    assert FILES[name]["$id"] == f"urn:simhash-dedup:{':'.join(name.rsplit('-', 1))}"


def records():
    values = [json.dumps({"url": url, "text": text, "id": "7", "more": 1}).encode() for url, text in PAGES]
    values += [
        b'{"url": "https://short.example/", "text": "a few words"}',
        b'{"url": "https://e.example/", "html": ""}',
        b'{"url": "https://e.example/1", "html": "<html lang=en><meta name=robots content=NoIndex>"}',
        b'{"url": "https://e.example/2", "html": "<link rel=canonical href=/>"}',
    ]
    values += [b"no page", b'{"url": "https://a.example/"}']
    return [RawRecord(Source("pages", 0, number, 17), None, value) for number, value in enumerate(values)]


def test_verdicts_and_rejections_are_what_their_schemas_say():
    prepared = [prepare(record, recipe(Settings(), DEFAULT)) for record in records()]
    judged = judge([each for each in prepared if not isinstance(each, Rejected)], MemoryIndex(), DEFAULT)
    verdicts = [json.loads(encode(each.verdict)) for each in judged]
    assert {each["verdict"] for each in verdicts} == {"unique", "duplicate"}
    for verdict in verdicts:
        validator("verdict-1").validate(verdict)
    rejections = [(r, p) for r, p in zip(records(), prepared, strict=True) if isinstance(p, Rejected)]
    assert len(rejections) == 2
    for record, rejection in rejections:
        validator("dead-letter-1").validate(json.loads(rejection_line("pages.jsonl", record, rejection)))


def test_a_verdict_that_contradicts_itself_is_none():
    (judged,) = judge([prepare(records()[0], recipe(Settings(), DEFAULT))], MemoryIndex(), DEFAULT)
    verdict = json.loads(encode(judged.verdict))
    for wrong in ({"verdict": "duplicate"}, {"seq": None}, {"digest": "text:1"}, {"source": None}, {"fingerprint": 7}):
        with pytest.raises(ValidationError):
            validator("verdict-1").validate(verdict | wrong)
    for name in verdict:
        with pytest.raises(ValidationError):
            validator("verdict-1").validate({key: value for key, value in verdict.items() if key != name})


def test_the_schema_of_verdicts_has_their_fields():
    schema = FILES["verdict-1"]
    assert list(schema["properties"]) == schema["required"] == list(Verdict.__struct_fields__)
    assert schema["$defs"]["source"]["required"] == list(SourceFields.__struct_fields__)
    assert schema["$defs"]["match"]["required"] == list(Match.__struct_fields__)


@pytest.mark.parametrize("key", [None, b"a key", b"k" * 5000])
@pytest.mark.parametrize("value", [None, b"no page", b"v" * 5000])
def test_a_dead_letters_headers_are_what_the_schema_says(key, value):
    rejection = Rejected(Source("pages", 3, 14, None), "decode", "PageError", "not JSON")
    letter = dead_letter(rejection, key, value, [("traceparent", b"00")], "pages.dlq", 3000)
    validator("dead-letter-1", "headers").validate({name: content.decode() for name, content in letter.headers})


@pytest.mark.parametrize(
    ("page", "is_one"),
    [
        ({"url": "https://a.example/", "html": "<p>"}, True),
        ({"url": "https://a.example/", "text": "", "html": None, "id": None, "unknown": []}, True),
        ({"url": "https://a.example/", "html_base64": "PHA+", "charset": "utf-8", "content_type": "text/html"}, True),
        ({"url": "https://a.example/"}, False),
        ({"url": "https://a.example/", "html": None}, False),
        ({"url": "https://a.example/", "html": "<p>", "text": "p"}, False),
        ({"url": " ", "text": "p"}, False),
        ({"url": 7, "text": "p"}, False),
        ({"text": "p"}, False),
        ({"url": "https://a.example/", "text": 7}, False),
        ({"url": "https://a.example/", "text": "p", "id": "i" * 1025}, False),
        ({"url": "https://a.example/", "text": "p", "fetched_at": "t" * 65}, False),
        ([], False),
    ],
)
def test_the_schema_of_pages_takes_what_the_worker_takes(page, is_one):
    assert validator("page-1").is_valid(page) == is_one
    assert is_page(json.dumps(page).encode()) == is_one


def is_page(value):
    try:
        decode_page(None, value, "json", LIMITS)
    except PageError:
        return False
    return True


def test_a_host_is_what_its_schema_says():
    match = Match("https://a.example/", None, 0, "exact", False, None, 1)
    (judged,) = judge([prepare(records()[0], recipe(Settings(), DEFAULT))], MemoryIndex(), DEFAULT)
    copies = [msgspec.structs.replace(judged.verdict, url=f"https://a.example/{n}?x", match=match) for n in range(40)]
    hosts = Hosts()
    hosts.add([judged.verdict, *copies])
    for line in map(json.loads, hosts):
        validator("host-1").validate(line)
    assert {"flags": ["soft-404"], "useless": ["/#", "?x"]}.items() <= line.items()
    assert FILES["host-1"]["required"] == list(FILES["host-1"]["properties"]) == list(Host.__struct_fields__)
