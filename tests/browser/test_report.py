"""The report in a real Chromium: what it shows, searches and does at a key's press; and that it runs nothing else.

The browser runs the report with a few lines of script behind it, which press keys as a person would and write down what
they see; then it prints the document.
"""

import json
import re
import subprocess
import sys
from html import unescape

import pytest

from tests.texts import PAGES
from tests.unit.test_reporting import lines, told_of
from worker.records.verdict import encode

BROWSER = (
    *("chromium", "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"),
    "--virtual-time-budget=20000",
)
PROBE = """<script>
const errors = []; addEventListener("error", event => errors.push(String(event.message)));
addEventListener("securitypolicyviolation", event => errors.push(event.violatedDirective));
const wait = async ready => { while (!ready()) await new Promise(go => setTimeout(go, 10)); };
const pressing = key => new KeyboardEvent("keydown", {key, bubbles: true, cancelable: true});
const press = (key, where = document.body) => where.dispatchEvent(pressing(key));
const count = selector => document.querySelectorAll(selector).length;
const type = words => { $("search").value = words; $("search").dispatchEvent(new Event("input")); };
const chosen = () => document.querySelector(".row.on")?.children[1].textContent ?? null;
wait(() => $("main").getAttribute("aria-busy") === "false").then(async () => {
  const seen = {};
  try { await (async () => { SCRIPT })(); } catch (error) { errors.push(String(error)); }
  document.body.append(make("pre", {id: "seen"}, JSON.stringify({...seen, errors})));
});
</script>"""


@pytest.fixture(scope="module")
def report(tmp_path_factory):
    """A report with pairs, over pages one of which tries to run a script."""
    folder = tmp_path_factory.mktemp("report")
    pages = [*PAGES, ("https://e.example/<img src=x onerror=alert(1)>", PAGES[0][1] + " <script>alert(1)</script>")]
    (folder / "pages.jsonl").write_bytes(b"\n".join(lines(pages)))
    (folder / "verdicts.jsonl").write_bytes(b"".join(encode(each) + b"\n" for each in told_of(pages)))
    write("verdicts.jsonl", "--pages", "pages.jsonl", "--pairs", "100", folder=folder)
    return folder / "report.html"


def write(*arguments, folder):
    """Make a report, as a user does."""
    command = [sys.executable, "-m", "worker", "report", *arguments]
    subprocess.run(command, cwd=folder, check=True, timeout=120, capture_output=True)


def seen(report, script, fragment=""):
    """What the script saw in the browser."""
    probed = report.with_name("probed.html")
    content = report.read_text(encoding="utf-8").replace("</html>", PROBE.replace("SCRIPT", script) + "</html>")
    probed.write_text(content, encoding="utf-8")
    told = subprocess.run(
        [*BROWSER, f"--user-data-dir={report.parent / 'profile'}", "--dump-dom", f"{probed.as_uri()}{fragment}"],
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    found = re.search(r'<pre id="seen">(.*?)</pre>', told.stdout, re.S)
    assert found, told.stdout[-2000:] + told.stderr[-2000:]
    result = json.loads(unescape(found[1]))
    assert result.pop("errors") == []
    return result


def test_a_report_shows_searches_and_answers_to_keys(report):
    told = seen(
        report,
        """
        seen.tiles = [...document.querySelectorAll(".tile")].map(each => each.textContent);
        seen.first = chosen();
        press("j"); press("ArrowDown"); seen.third = chosen();
        press("k"); seen.second = chosen();
        press("End"); seen.last = chosen(); press("j"); seen.stays = chosen() === seen.last;
        press("Home"); seen.home = chosen();
        press("/"); seen.searching = document.activeElement.id;
        type("b.example 7"); seen.found = count(".row"); seen.only = chosen();
        press("Enter", $("search")); seen.back = document.activeElement.id;
        type("nothing like this"); seen.none = [$("said").textContent, chosen(), $("pair").textContent];
        type("e.example"); seen.evil = [chosen(), document.images.length, count("#pair script")];
        seen.inserted = [...document.querySelectorAll("#pair ins")].map(each => each.textContent);
        """,
    )
    urls = [url for number, (url, _) in enumerate(PAGES) if number % 3]
    evil = "https://e.example/<img src=x onerror=alert(1)>"
    assert told["tiles"][:4] == ["37pages", "12unique", "12exact copies", "13near-duplicates"]
    assert [told[name] for name in ("first", "second", "third", "last", "home")] == [*urls[:3], evil, urls[0]]
    assert told["stays"]
    assert (told["searching"], told["back"]) == ("search", "list")
    assert (told["found"], told["only"]) == (1, "https://b.example/7")
    assert told["none"] == ["0", None, ""]
    assert told["evil"] == [evil, 0, 0]
    assert told["inserted"] == ["<script>alert(1)</script>"]


def test_a_pair_stands_side_by_side_with_features_and_bits(report):
    told = seen(
        report,
        """
        seen.url = chosen();
        seen.texts = [...document.querySelectorAll("#pair .text")].map(each => each.textContent.trim());
        seen.gone = count("#pair del"); seen.come = count("#pair ins");
        seen.features = count("#features tbody tr");
        seen.bits = count(".bits span"); seen.differ = count(".bits .x");
        seen.said = $("pair").querySelector("p:nth-of-type(2)").textContent;
        """,
        "#verdict=1",
    )
    assert told["url"] == PAGES[1][0]
    assert [text.split() for text in told["texts"]] == [PAGES[0][1].split(), PAGES[1][1].split()]
    assert told["gone"] == told["come"] == 2
    assert told["features"] > 10
    assert told["bits"] == 128
    (bits,) = re.findall(r"differ in (\d+) of at most", told["said"].split(";")[0])
    assert told["differ"] == 2 * int(bits)


def test_a_link_to_a_page_that_is_no_duplicate_says_so(report):
    assert seen(report, 'seen.pair = $("pair").textContent;', "#verdict=0") == {
        "pair": "Verdict 0 is none of these duplicates."
    }


def test_a_report_is_light_and_dark(report):
    paper = "getComputedStyle(document.body).backgroundColor"
    told = seen(report, f"seen.light = {paper}; press('t'); seen.dark = {paper}; press('t'); seen.again = {paper};")
    assert told == {"light": "rgb(255, 255, 255)", "dark": "rgb(20, 23, 27)", "again": "rgb(255, 255, 255)"}


def test_a_hundred_thousand_verdicts_are_searched_in_one_file(tmp_path):
    verdicts = told_of(PAGES)[:2]
    with (tmp_path / "verdicts.jsonl").open("wb") as file:
        for number in range(50_000):
            file.writelines(encode(each).replace(b".example/", b".example/%d/" % number) + b"\n" for each in verdicts)
    write("verdicts.jsonl", folder=tmp_path)
    told = seen(
        tmp_path / "report.html",
        """
        seen.total = document.querySelector(".tile b").textContent; seen.said = $("said").textContent;
        seen.drawn = count(".row");
        type("/49999/"); seen.found = [$("said").textContent, chosen()];
        """,
    )
    assert told["total"] == "100,000"
    assert told["said"] == "50,000"
    assert told["drawn"] < 40
    assert told["found"] == ["1", "https://b.example/49999/0"]
