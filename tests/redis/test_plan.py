"""`plan`: what it counts is what brute force finds, and what it computes is what Redis takes."""

import math
import re
from itertools import combinations
from pathlib import Path
from random import Random

import msgspec
import pytest
import redis
from click.testing import CliRunner

from simhash.index import Entry, IndexSpec, Relation
from simhash.index.redis.layout import Layout, bucket_bits
from simhash.index.redis.opening import open_index
from simhash.index.redis.operators.filling import load_steps
from simhash.index.urls import shipped, stored_bytes
from simhash.planning.allocation import listpack_integer, listpack_string, size_class
from simhash.planning.coverage import coverage, with_bands
from simhash.planning.memory_size import memory
from simhash.planning.plans import CHECK_LIMIT_US, PlanRequest, candidates, cheapest_quick, designs_for, plans
from simhash.relation.tables import NAMES, design
from simhash.signature.profiles import profile as find_profile
from tests.servers import running_redis
from worker.cli.main import commands
from worker.errors import SettingsError
from worker.index.configured import configured_design, configured_urls
from worker.settings import load

ROOT = Path(__file__).parents[2]
URL_BYTES = 77


@pytest.mark.parametrize("name", [*NAMES, "2(4c2)", "8c2", "3c1r1", "6c3r1"])
def test_the_share_of_pairs_found_is_that_of_all_placements(name):
    """16 bits are few enough to place up to five differing ones in every way."""
    found, shares = design(name, bits=16), coverage(design(name, bits=16), 5)
    for distance in range(6):
        patterns = [sum(1 << bit for bit in bits) for bits in combinations(range(16), distance)]
        met = sum(found.shares_prefix(0, pattern) for pattern in patterns)
        assert shares[distance] == pytest.approx(met / len(patterns), abs=1e-12)


@pytest.mark.parametrize("name", NAMES)
def test_the_share_of_pairs_found_is_that_of_random_pairs(name):
    random, found = Random(3), design(name)
    shares = coverage(found, 8)
    assert shares[: found.k + 1] == [1.0] * (found.k + 1)
    for distance in (5, 8):
        patterns = [sum(1 << bit for bit in random.sample(range(64), distance)) for _ in range(4000)]
        met = sum(found.shares_prefix(0, pattern) for pattern in patterns) / len(patterns)
        assert met == pytest.approx(shares[distance], abs=0.03)


def test_bands_add_what_tables_miss():
    assert with_bands(0.0, 3, 4, 0.8) == pytest.approx(1 - (1 - 0.8**4) ** 3)
    assert with_bands(0.5, 3, 4, 0.8) == pytest.approx(0.5 + 0.5 * with_bands(0.0, 3, 4, 0.8))
    assert with_bands(0.3, 0, 4, 0.8) == pytest.approx(0.3)


def test_sizes_are_those_of_the_allocator_and_of_listpacks():
    sizes = [size_class(n) for n in (1, 8, 9, 16, 17, 128, 129, 160, 161, 513, 1025, 4097, 8192, 8193)]
    assert sizes == [8, 8, 16, 16, 32, 128, 160, 160, 192, 640, 1280, 5120, 8192, 10240]
    assert [listpack_string(n) for n in (5, 63, 64, 130)] == [7, 65, 67, 134]
    assert [listpack_integer(bits) for bits in (0, 7, 12, 31)] == pytest.approx([2, 2, 2.96875, 5.99], abs=0.01)


def layout_of(documents, name_of_design, bands):
    rule = Relation(design(name_of_design), 12, 28 if bands else 14, 128 if bands else 64, bands)
    return Layout("plan", IndexSpec({}, rule, bucket_bits(documents, rule.design), documents))


def fill(index, count, random):
    """Store random pages as they are, without judging them: what is wanted is the memory."""
    layout = index.inside.layout
    width = 8 * layout.verifier_bytes
    for at in range(0, count, 200):
        rows = [row(layout, n, page(n, width, random)) for n in range(at, min(count, at + 200))]
        load_steps(index.inside, rows)


def page(number, width, random):
    url = f"https://example.com/{number}/"
    url += "".join(random.choices("abcdefghijklmnopqrstuvwxyz", k=URL_BYTES - len(url)))
    digest = f"text:{random.getrandbits(128):032x}"
    fingerprint, verifier = random.getrandbits(64), random.getrandbits(width)
    return Entry(random.randbytes(16), None, fingerprint, verifier, digest, url, None, "2026-01-01T00:00:00Z")


def row(layout, number, entry):
    return b"r" + (number + 1).to_bytes(6) + (1_700_000_000_000).to_bytes(6) + layout.page(entry, 0)


@pytest.fixture(scope="module")
def own_redis(tmp_path_factory):
    """A server whose memory is nobody else's."""
    directory = tmp_path_factory.mktemp("plan")
    with running_redis(directory, {"appendonly": "no"}) as server, redis.Redis.from_url(server.url) as connection:
        yield connection


def used(client):
    return int(client.info("memory")["used_memory"])


@pytest.mark.parametrize(
    ("name_of_design", "bands", "documents"), [("10", 0, 20_000), ("6", 3, 15_000), ("6", 3, 60_000)]
)
def test_memory_is_within_15_percent_of_what_redis_takes(own_redis, name_of_design, bands, documents):
    random, layout = Random(documents), layout_of(documents, name_of_design, bands)
    own_redis.flushall()
    index = open_index(own_redis, "plan", {}, layout.spec.relation, documents)
    fill(index, 200, random)  # the script, and the connection's buffers
    own_redis.delete(*own_redis.scan_iter("{plan}:*", count=10_000))
    empty = used(own_redis)
    index = open_index(own_redis, "plan", {}, layout.spec.relation, documents)
    assert index.spec.bucket_bits == layout.spec.bucket_bits
    fill(index, documents, random)
    stored = stored_bytes(shipped(), [page(n, 8, random).url for n in range(500)])
    assert used(own_redis) - empty == pytest.approx(memory(layout, documents, stored).used, rel=0.15)
    asked = [page(documents + n, 8 * layout.verifier_bytes, random) for n in range(2000)]
    met = sum(answer.candidates for answer in index.check_and_insert(asked, {})) / len(asked)
    assert met == pytest.approx(candidates(layout, documents + 1000), rel=0.15, abs=0.02)


def test_a_page_that_many_tables_bring_is_a_candidate_in_each(client, name):
    """Planned and counted alike: so there may be more candidates than pages."""
    random, rule = Random(1), Relation(design("34c2"), 12, 14, 64, 0)
    index = open_index(client, name, {}, rule, 1000)
    layout = Layout(name, index.spec)
    met = [answer.candidates for answer in index.check_and_insert([page(n, 64, random) for n in range(15)], {})]
    assert sum(met) > 30 * sum(range(15))  # and no crowd, of which all that was read counts
    assert sum(met) == pytest.approx(sum(candidates(layout, n) for n in range(15)), rel=0.15)


def question(documents, k=3, bands=3):
    rule = Relation(design("10"), 12, 28, 128, bands)
    return PlanRequest(documents, rule, k, 4, URL_BYTES, 64 << 30)


@pytest.mark.parametrize("documents", [1, 1000, 10**6, 10**8, 8 * 10**9])
def test_every_design_is_planned_and_the_cheapest_quick_one_found(documents):
    found = plans(question(documents))
    assert {each.k for each in found} == {3}
    assert {"4", "6", "10", "14", "20"} <= {each.design for each in found}
    chosen = cheapest_quick(found)
    cheaper = [each for each in found if each.memory.used < chosen.memory.used]
    assert all(each.check_us > CHECK_LIMIT_US for each in cheaper)
    assert all(each.primaries * (64 << 30) >= each.resident_bytes for each in found)


@pytest.mark.parametrize("k", range(8))
def test_each_k_has_designs_that_reach_it(k):
    found = designs_for(k, 64)
    assert found
    assert all(each.k >= k for each in found)
    assert all(share == 1.0 for each in plans(question(10**6, k)) for share in each.found[: k + 1])


def test_more_documents_take_more_of_everything():
    small, large = ({each.design: each for each in plans(question(n))} for n in (10**6, 10**9))
    for name, each in small.items():
        assert large[name].memory.used > 500 * each.memory.used
        assert large[name].bucket_bits >= each.bucket_bits


def run(*arguments):
    found = CliRunner().invoke(commands, ["plan", *arguments])
    if found.exception and not isinstance(found.exception, SystemExit):
        raise found.exception
    return found.output


def test_the_command_prints_all_as_json_too():
    found = msgspec.json.decode(run("--documents", "5000000", "--json"))
    assert found["recommended"] in [each["design"] for each in found["plans"]]
    assert found["plans"][0]["used_bytes"] == round(sum(found["plans"][0]["memory"].values()))
    assert len(found["plans"][0]["found"]) == found["reach"] + 1
    per_probe = {each["design"]: each["candidates_per_probe"] for each in found["plans"]}
    assert per_probe["14"] == pytest.approx(5e6 / 2**32)
    assert per_probe["2-probed"] == pytest.approx(5e6 / 2**32)
    text = run("--documents", "5000000")
    assert f"recommended: {found['recommended']}, which `design = auto` takes" in text


@pytest.mark.parametrize("documents", [1, 10**6, 3 * 10**7, 3 * 10**7 + 1, 10**8, 3 * 10**8 + 1, 8 * 10**9])
@pytest.mark.parametrize("profile_name", ["default", "loose"])
def test_what_is_recommended_is_what_a_new_index_gets(documents, profile_name):
    found = msgspec.json.decode(run("--documents", str(documents), "--profile", profile_name, "--json"))
    settings = load({"profile": profile_name, "documents": documents})
    assert found["recommended"] == configured_design(settings, find_profile(profile_name)).name
    assert found["recommended"] in [each["design"] for each in found["plans"]]


def test_an_archive_is_planned_in_each_design():
    """A page meets what shares its prefixes; a sorted table takes its entropy and a little more."""
    found = msgspec.json.decode(run("--documents", "1M", "--archived", "1G", "--json"))
    archive = found["archive"]
    assert archive.keys() == {each["design"] for each in found["plans"]}
    assert archive["14"]["met"] == pytest.approx(1e9 * (14 + found["bands"]) / 2**32)
    assert archive["3"]["met"] == pytest.approx(1e9 * (2 / 2**20 + 25 / 2**24 + found["bands"] / 2**32))
    a_table = (archive["14"]["table_bytes"] - archive["11"]["table_bytes"]) * 8 / 3
    assert 64 - math.log2(1e9) + 1.44 < a_table < 40
    assert archive["14"]["segments"] == 21
    assert "1,000,000,000 pages in the archive, in at most 21 segments" in run("-n", "1M", "--archived", "1G")


def test_another_k_and_another_profile_are_planned_for():
    assert msgspec.json.decode(run("--documents", "1000", "--k", "5", "--json"))["plans"][0]["design"] == "2(4c2)"
    found = msgspec.json.decode(run("--documents", "1000", "--profile", "jieba-keywords", "--json"))
    assert (found["reach"], found["bands"]) == (3, 0)


def test_a_k_far_beyond_all_use_is_planned_for_like_any_other():
    """561 tables of pairs of 34 blocks: counted one by one, the ways to hit them would be 2^34."""
    found = msgspec.json.decode(run("--documents", "1000", "--k", "32", "--json"))["plans"]
    assert [(each["design"], each["found"][32]) for each in found] == [("34c2", 1.0)]


@pytest.mark.parametrize(("size", "why"), [("much", "no size"), ("-5GiB", "no size"), ("0", "holds nothing")])
def test_a_size_that_is_none_is_refused(size, why):
    with pytest.raises(SettingsError, match=why):
        run("--documents", "1000", "--primary-memory", size)


@pytest.mark.parametrize("arguments", [("1" + "0" * 20,), ("1000", "--url-bytes", "10000000000")])
def test_a_number_beyond_what_an_index_can_hold_is_refused(arguments):
    assert "is not in the range" in run("--documents", *arguments)


def test_the_columns_of_the_largest_plan_stay_apart():
    rows = run("--documents", str(2**46 - 1)).splitlines()[3:12]
    assert {len(row.split()) for row in rows} == {12}  # ten, of which two have a unit


def test_the_document_says_what_the_command_prints():
    text = (ROOT / "docs" / "planning.md").read_text(encoding="utf-8")
    blocks = re.findall(r"```console\n\$ simhash-dedup plan (.*)\n((?:.*\n)*?)```", text)
    assert len(blocks) >= 3
    for arguments, printed in blocks:
        assert run(*arguments.split()) == printed


def test_urls_of_ones_own_make_a_dictionary_that_a_new_index_takes(tmp_path, say):
    urls, out = tmp_path / "urls.txt", tmp_path / "urls.zdict"
    urls.write_text("".join(f"https://shop.example.org/garden/{n:07}/spade-{n % 7}.html\n" for n in range(2000)))
    code, told, _ = say("plan", "-n", "1M", "--urls", str(urls), "--dictionary-out", str(out))
    assert (code, "URLs of 52 bytes, stored in " in told) == (0, True)
    assert configured_urls(load({"url_dictionary": str(out)})).content == out.read_bytes()
    plain = msgspec.json.decode(say("plan", "-n", "1M", "--url-bytes", "52", "--json")[1])
    own = msgspec.json.decode(say("plan", "-n", "1M", "--urls", str(urls), "--json")[1])
    assert own["plans"][0]["used_bytes"] < plain["plans"][0]["used_bytes"]


@pytest.mark.parametrize(("urls", "why"), [("https://a/\n" * 9, "has 9 URLs, too few"), ("", "has 0 URLs, too few")])
def test_urls_that_teach_nothing_are_refused(tmp_path, say, urls, why):
    path = tmp_path / "urls.txt"
    path.write_text(urls)
    code, _, told = say("plan", "-n", "1M", "--urls", str(path))
    assert (code != 0, why in told) == (True, True)


def test_a_file_that_is_no_dictionary_is_refused_by_name(tmp_path):
    path = tmp_path / "urls.txt"
    path.write_text("https://a/\n" * 500)
    with pytest.raises(SettingsError, match=r"url_dictionary: .*urls\.txt: .*dictionary of zstd"):
        configured_urls(load({"url_dictionary": str(path)}))
