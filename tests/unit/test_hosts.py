"""Hosts: what verdicts say of each, bounded whatever a host has, and a crawler's middleware that acts on it."""

import json
import os
import runpy
from itertools import count
from random import Random
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.documents import ROOT
from worker.hosts import LEAST_URLS, MOST_COPIED, MOST_TRAITS, SAMPLE, Hosts, Seen, decoded, traits_of, without
from worker.records.verdict import Match, SourceFields, Verdict, encode

NUMBERS = count()
SITE = "http://site.example"


def verdict(url, match=None, kind="exact"):
    """One, of a page that is unique or a copy of `match`."""
    seen = match and Match(match, None, 0, kind, match == url, None, 1)
    told = "duplicate" if match else "unique"
    of_page = (None, None, "text:" + "0" * 32, 9, "default/2", None if match else 1, None, "a" * 32)
    source = SourceFields("pages", 0, next(NUMBERS), None)
    return Verdict(url, None, told, seen, *of_page, source)


def host_of(*verdicts):
    """The host of all of these."""
    hosts = Hosts()
    hosts.add(verdicts)
    (line,) = hosts
    return decoded(line)


@pytest.mark.parametrize(
    ("url", "traits"),
    [
        ("http://x/", []),
        ("http://x/a?sid=f00", ["?sid"]),
        ("http://x/a?action=diff&rev1=7&rev2=8", ["?action", "?action=diff", "?rev#"]),
        ("http://x/a;jsessionid=1F;v=2?x", [";jsessionid", ";v", "?x"]),
        ("http://x/calendar/2031/05/", ["/calendar/#/#/"]),
        ("http://x/show/9f86d081884c7d65-9a2/deadbeef", ["/show/#/deadbeef"]),
        ("http://x/a?&&=", ["?"]),
        ("http://x/?" + "&".join(f"{chr(97 + n)}=" for n in range(20)), [f"?{chr(97 + n)}" for n in range(16)]),
        ("http://x/" + "1/" * 200, []),
        ("http://[", []),
        ("doc-17", ["doc-#"]),
    ],
)
def test_a_url_has_its_parameters_and_the_shape_of_its_path(url, traits):
    assert traits_of(url) == traits


@pytest.mark.parametrize(
    ("url", "traits", "left"),
    [
        ("http://x/a?sid=1&q=2#top", {"?sid"}, "http://x/a?q=2#top"),
        ("http://x/a?action=diff&rev=2", {"?action=diff", "?rev"}, "http://x/a"),
        ("http://x/a?action=show", {"?action=diff"}, "http://x/a?action=show"),
        ("http://x/a;jsessionid=1;v=2/b", {";jsessionid"}, "http://x/a;v=2/b"),
        ("http://x/a?b=%26&&c", {"/a/#"}, "http://x/a?b=%26&&c"),
    ],
)
def test_useless_parameters_are_taken_out_and_nothing_else_is_touched(url, traits, left):
    assert without(url, traits) == left


def test_pages_are_counted_by_what_is_said_of_them():
    copies = [
        verdict(f"{SITE}/b", f"{SITE}/a"),
        verdict(f"{SITE}/c", f"{SITE}/a", "near"),
        verdict(f"{SITE}/a", f"{SITE}/a"),
    ]
    host = host_of(verdict(f"{SITE}/a"), *copies)
    assert (host.host, host.pages, host.unique, host.near, host.exact) == ("site.example", 4, 1, 1, 2)
    assert (host.most_copied.url, host.most_copied.pages, host.most_copied.share) == (f"{SITE}/a", 2, 0.5)
    assert (host.flags, host.repeated, host.useless) == ([], [], [])


def test_pages_go_to_their_own_hosts_and_those_without_are_counted():
    hosts = Hosts()
    changed = hosts.add(
        [verdict("http://a/1"), verdict("http://b/1", "http://a/1"), verdict("http://a/2"), verdict("x")]
    )
    assert {name: decoded(line).pages for name, line in changed.items()} == {"a": 2, "b": 1}
    assert (len(hosts), hosts.nowhere, [decoded(line).host for line in hosts]) == (2, 1, ["a", "b"])


def test_one_page_under_many_paths_is_a_soft_404():
    pages = [verdict(f"{SITE}/lost"), *(verdict(f"{SITE}/{chr(97 + n)}/x", f"{SITE}/lost") for n in range(LEAST_URLS))]
    (repeated,) = host_of(*pages).repeated
    assert (repeated.url, repeated.urls, repeated.kind) == (f"{SITE}/lost", LEAST_URLS, "soft-404")
    assert host_of(*pages[:-1]).flags == [], "one too few"


def test_one_page_under_ever_new_queries_is_a_trap():
    pages = [verdict(f"{SITE}/list"), *(verdict(f"{SITE}/list?sid={n}", f"{SITE}/list") for n in range(3000))]
    host = host_of(*pages)
    assert host.flags == ["trap"]
    assert host.repeated[0].urls == pytest.approx(3000, rel=0.5)
    assert host.useless == ["?sid"]


def test_a_trait_is_useless_only_if_hardly_any_of_its_urls_has_content_of_its_own():
    copies = [verdict(f"{SITE}/p/{n}", f"{SITE}/p/0") for n in range(1, LEAST_URLS)]
    own = [verdict(f"{SITE}/p/{n}") for n in range(1000, 1010)]
    assert host_of(verdict(f"{SITE}/p/0"), *copies).useless == ["/p/#"]
    assert host_of(*copies).useless == [], "too few"
    assert host_of(*own, *copies).useless == []


def test_a_page_that_is_crawled_again_and_again_is_no_evidence():
    once = [verdict(f"{SITE}/?id={n}") for n in range(30)]
    again = [verdict(f"{SITE}/?id={n}", f"{SITE}/?id={n}") for n in range(30)] * 40
    copy = [verdict(f"{SITE}/?id=99", f"{SITE}/?id=1")] * 100
    host = host_of(*once, *again, *copy)
    assert (host.flags, host.useless) == ([], [])
    assert host.most_copied.pages == 100


def test_a_host_is_bounded_and_what_is_frequent_stays():
    random = Random(1)
    pages = [verdict(f"{SITE}/{n}?p{chr(97 + n % 26)}{chr(97 + n // 26 % 26)}=1", f"{SITE}/r{n}") for n in range(4000)]
    pages += [verdict(f"{SITE}/x?often={n}", f"{SITE}/first") for n in range(800)]
    random.shuffle(pages)
    host = host_of(*pages)
    assert (len(host.copied), len(host.traits)) == (MOST_COPIED, MOST_TRAITS)
    assert all(len(seen.sample) <= SAMPLE for seen in (*host.copied.values(), *host.traits.values()))
    assert 600 < host.copied[f"{SITE}/first"].pages <= 800
    assert host.most_copied.url == f"{SITE}/first"
    assert "?often" in host.useless


@given(st.lists(st.integers(0, 200)), st.randoms())
def test_a_sample_does_not_depend_on_the_order_in_which_urls_come(numbers, random):
    one, other = Seen(0), Seen(0)
    for number in numbers:
        one.note(str(number), number % 2)
    random.shuffle(numbers)
    for number in numbers:
        other.note(str(number), number % 2)
    assert one.sample == other.sample
    assert len(one.sample) == min(SAMPLE, len(set(numbers)))


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 5), st.booleans()), max_size=60), st.integers(1, 20))
def test_verdicts_counted_in_parts_are_counted_as_in_one(told, size):
    pages = [verdict(f"http://{h}.example/p?n={n}", f"http://{h}.example/" if copy else None) for h, n, copy in told]
    whole, parts = Hosts(), Hosts()
    whole.add(pages)
    for at in range(0, len(pages), size):
        parts.add(pages[at : at + size])
    assert list(parts) == list(whole)


def test_files_of_verdicts_become_a_line_a_host(say, tmp_path):
    pages = [verdict("http://b/1"), verdict("http://a/1"), verdict("http://a/2", "http://a/1")]
    (tmp_path / "v.jsonl").write_bytes(b"\n".join(map(encode, pages)) + b"\n\n")
    code, out, _ = say("hosts", tmp_path / "v.jsonl")
    assert code == 0
    assert [(host["host"], host["pages"]) for host in map(json.loads, out.splitlines())] == [("a", 2), ("b", 1)]
    code, _, told = say("hosts", tmp_path / "v.jsonl", "--out", tmp_path / "hosts.jsonl")
    assert (code, (tmp_path / "hosts.jsonl").read_text()) == (0, out)
    assert "2 hosts with 3 pages, 2 unique; 0 flagged" in told
    (tmp_path / "link.jsonl").symlink_to(tmp_path / "aside.jsonl")
    assert say("hosts", tmp_path / "v.jsonl", "--out", tmp_path / "link.jsonl")[0] == 0
    assert (tmp_path / "link.jsonl").is_symlink()
    assert (tmp_path / "aside.jsonl").read_text() == out
    os.mkfifo(tmp_path / "pipe")
    reader = os.open(tmp_path / "pipe", os.O_RDONLY | os.O_NONBLOCK)
    assert say("hosts", tmp_path / "v.jsonl", "--out", tmp_path / "pipe")[0] == 0
    assert os.read(reader, 1 << 20).decode() == out
    os.close(reader)


@pytest.mark.parametrize(
    ("arguments", "code", "why"),
    [
        (["none.jsonl"], 2, "none.jsonl"),
        ([str(ROOT / "README.md")], 3, "README.md, line 1: not a verdict"),
        ([str(ROOT / "README.md"), "--follow"], 2, "--follow and --afresh are for the topic"),
        ([], 2, "hosts_topic: name the topic"),
    ],
)
def test_what_is_wrong_is_said(say, arguments, code, why):
    found, _, told = say("hosts", *arguments)
    assert (found, why in told) == (code, True), told


@pytest.fixture
def middleware(tmp_path):
    """The example, with a host in whose file ?sid, ?do=diff and /calendar/#/# are useless."""
    example = runpy.run_path(str(ROOT / "docs" / "examples" / "scrapy_hosts.py"))
    pages = [verdict(f"{SITE}/"), *(verdict(f"{SITE}/a?sid={n}", f"{SITE}/") for n in range(40))]
    pages += [verdict(f"{SITE}/b{chr(97 + n)}?do=diff&of={n}", f"{SITE}/") for n in range(26)]
    pages += [verdict(f"{SITE}/calendar/{n}/{n}", f"{SITE}/") for n in range(40)]
    pages += [verdict(f"{SITE}/c?do=show&of={n}") for n in range(40)]
    hosts = Hosts()
    path = tmp_path / "hosts.jsonl"
    crawler = SimpleNamespace(settings={"HOSTS_FILE": str(path)})
    made = example["Hosts"].from_crawler(crawler)
    assert made.process_request(Request(f"{SITE}/a?sid=7")) is None, "nothing is known yet"
    hosts.add(pages)
    path.write_bytes(b"\n".join(hosts))
    made.dropped = example["IgnoreRequest"]
    return made


class Request:
    """As much of Scrapy's as the middleware uses."""

    def __init__(self, url):
        self.url = url

    def replace(self, url):
        return Request(url)


def test_scrapys_requests_lose_useless_parameters_and_useless_paths_are_dropped(middleware):
    assert middleware.process_request(Request(f"{SITE}/b?sid=x&q=1")).url == f"{SITE}/b?q=1"
    assert middleware.process_request(Request(f"{SITE}/b?do=diff&of=3")).url == f"{SITE}/b?of=3"
    with pytest.raises(middleware.dropped, match="/calendar/#/#"):
        middleware.process_request(Request(f"{SITE}/calendar/2031/5"))
    for url in (f"{SITE}/c?do=show&of=3", f"{SITE}/calendar", "http://other.example/a?sid=1", "data:,x"):
        assert middleware.process_request(Request(url)) is None


def test_some_are_fetched_all_the_same(middleware):
    fetched = [middleware.process_request(Request(f"{SITE}/z?sid={n}")) is None for n in range(1000)]
    assert 5 < sum(fetched) < 50
