"""The documents as a site: as `make site` builds it, with no warning, and every link in it leads somewhere."""

import os
import subprocess
from html.parser import HTMLParser
from urllib.parse import unquote, urlsplit

import pytest

import simhash
from deploy.docs.pictures import IMAGES, PICTURES
from tests.documents import NOTHING_INSTALLED, copied_tree


class Page(HTMLParser):
    """What a page of HTML leads to, and what can be led to within it."""

    def __init__(self, path):
        super().__init__()
        self.links, self.anchors = [], {""}
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag, attrs):
        given = dict(attrs)
        self.links += [given[name] for name in ("href", "src") if given.get(name) and tag != "base"]
        self.anchors |= {given[name] for name in ("id", "name") if given.get(name)}


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    tree = copied_tree(tmp_path_factory.mktemp("site"))
    command, own = ["make", "site"], os.environ | NOTHING_INSTALLED
    done = subprocess.run(command, cwd=tree, env=own, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return tree / "out" / "site"


def test_every_link_of_the_site_leads_to_a_place_in_it(site):
    pages = {path: Page(path) for path in site.rglob("*.html") if path.name != "404.html"}
    assert len(pages) > 25
    for path, page in pages.items():
        for link in page.links:
            parts = urlsplit(link)
            if not parts.scheme and not parts.netloc:
                leads_somewhere(path, parts, pages)


def leads_somewhere(path, parts, pages):
    """Whether a link of the page at `path` does; what lies outside of docs/ must be named in deploy/docs/site.py."""
    target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
    assert target.exists(), f"{path.name}: {parts.geturl()}"
    if parts.fragment and target in pages:
        assert unquote(parts.fragment) in pages[target].anchors, f"{path.name}: {parts.geturl()}"


def test_nothing_is_fetched_from_elsewhere(site):
    for path in site.rglob("*.html"):
        html = path.read_text(encoding="utf-8")
        assert 'src="http' not in html, path.name
        assert 'stylesheet" href="http' not in html, path.name


@pytest.mark.parametrize("name", simhash.__all__)
def test_every_public_name_of_the_library_has_its_entry(site, name):
    assert f'id="simhash.{name}"' in (site / "reference.html").read_text(encoding="utf-8")


@pytest.mark.parametrize("name", PICTURES)
def test_the_pictures_show_what_the_library_computes_today(name):
    assert (IMAGES / name).read_text(encoding="utf-8") == PICTURES[name](), "python -m deploy.docs.pictures"


def test_what_lies_within_an_item_of_a_list_lies_in_it_in_the_site_too(site):
    """GitHub takes two spaces as belonging to an item; Markdown's Python library wants four."""
    code = (site / "quality.html").read_text(encoding="utf-8").partition("[verifier]")[0].rpartition("<pre>")[0]
    assert code.rfind("<li>") > code.rfind("</ul>")


def test_examples_in_docstrings_are_code_and_no_quotations(site):
    assert "<blockquote>" not in (site / "reference.html").read_text(encoding="utf-8")
