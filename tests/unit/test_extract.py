"""Extractors: which text they keep, which pages they refuse, and that what they give is clean."""

import importlib.util
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st
from resiliparse.extract.html2text import extract_plain_text

from simhash.errors import PageError, ProfileError
from simhash.reading.extract import EXTRACTORS, extract, extract_text
from simhash.reading.markup import MarkupLimits

ARTICLE = (
    "A crawler meets the same article many times, each time inside another frame of menus and advertisements. " * 4
)
PAGE = f"""<!doctype html><html><head><title>The title</title><script>var hidden = "script";</script></head><body>
<nav class="menu"><ul><li><a href="/">Home page</a></li><li><a href="/about">About us</a></li></ul></nav>
<article><h1>Near duplicates</h1><p>{ARTICLE}</p><p>{ARTICLE}</p><img src="x" alt="a picture"></article>
<footer>All rights reserved by nobody</footer></body></html>"""
INSTALLED = [name for name in EXTRACTORS if name not in ("trafilatura", "lexbor-paragraphs")] + [
    name
    for name, module in (("trafilatura", "trafilatura"), ("lexbor-paragraphs", "selectolax"))
    if importlib.util.find_spec(module)
]


def as_the_ground_truth_does(html: str) -> str:
    """The rule of the development corpus, written down once more."""
    main = extract_plain_text(html, main_content=True, alt_texts=False)
    if len(main.strip()) < 200:
        visible = extract_plain_text(html, main_content=False, alt_texts=False)
        if len(visible.strip()) > len(main.strip()):
            return visible
    return main


@pytest.mark.parametrize("name", [name for name in INSTALLED if name not in ("none", "resiliparse-all")])
def test_main_content_is_kept_and_the_frame_is_not(name: str) -> None:
    text = extract_text(PAGE, name)
    assert "meets the same article" in text
    assert "Home page" not in text
    assert "hidden" not in text


def test_all_visible_text_holds_the_frame_too() -> None:
    text = extract_text(PAGE, "resiliparse-all")
    assert "meets the same article" in text
    assert "Home page" in text
    assert "hidden" not in text
    assert "a picture" not in text


def test_a_page_without_main_content_gives_all_its_visible_text() -> None:
    html = "<body><nav><a>Home page</a></nav><p>Short.</p><footer>All rights reserved</footer></body>"
    assert "All rights reserved" in extract_text(html)


def test_paragraphs_fall_back_to_the_whole_body() -> None:
    pytest.importorskip("selectolax")
    assert extract_text("<body><script>x</script><p>Short.</p>", "lexbor-paragraphs") == "Short."


@pytest.mark.parametrize(
    "html", [PAGE, "", "<p>x", "<nav>menu</nav><p>y</p>", PAGE.replace("article", "div"), "no markup"]
)
def test_resiliparse_main_is_the_rule_of_the_ground_truth(html: str) -> None:
    assert extract_text(html, "resiliparse-main") == as_the_ground_truth_does(html)


def test_none_gives_the_input() -> None:
    assert extract_text("a < b & <i>c", "none") == "a < b & <i>c"


@pytest.mark.parametrize("name", INSTALLED)
def test_an_empty_page_is_an_empty_text(name: str) -> None:
    assert extract_text("", name) == ""


@pytest.mark.parametrize("name", INSTALLED)
def test_nul_and_surrogate_entities_never_reach_the_text(name: str) -> None:
    text = extract_text(PAGE.replace("crawler", "crawl\0er &#0; &#xD800; &#55357;&#56832;"), name)
    assert "\0" not in text
    text.encode("utf-8")


@pytest.mark.parametrize("name", INSTALLED)
def test_a_lone_surrogate_is_refused_saying_where(name: str) -> None:
    with pytest.raises(PageError, match=r"lone surrogate U\+D83D at character 3 of 8") as refused:
        extract_text("<p>\ud83d</p>", name)
    assert refused.value.stage == "extract"


def test_markup_beyond_a_limit_is_refused_before_it_is_parsed() -> None:
    with pytest.raises(PageError, match="markup limit depth = 2000"):
        extract_text("<div>" * 100_000, "resiliparse-main")


def test_what_builds_no_tree_has_no_markup_limits() -> None:
    assert extract_text("<div>" * 3_000, "none") == "<div>" * 3_000
    assert extract_text("<div>" * 100_000 + "text") == "text"


def test_limits_reach_the_check() -> None:
    with pytest.raises(PageError, match="depth = 1"):
        extract_text("<div><div>", "resiliparse-main", MarkupLimits(depth=1))


def test_an_unknown_extractor_is_refused_naming_those_there_are() -> None:
    with pytest.raises(ProfileError, match=r"no extractor 'newspaper'; there are main-text, resiliparse-main, .*none"):
        extract_text(PAGE, "newspaper")


@pytest.mark.parametrize(
    ("name", "modules", "extra"),
    [("trafilatura", ["trafilatura"], "trafilatura"), ("lexbor-paragraphs", ["selectolax.lexbor"], "selectolax")],
)
def test_a_missing_library_is_named_with_the_extra_that_brings_it(
    name: str, modules: list[str], extra: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in modules:
        monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(ProfileError, match=rf"pip install 'simhash-dedup\[{extra}\]'"):
        extract_text(PAGE, name)


@given(html=st.text(max_size=200))
def test_any_text_gives_clean_text(html: str) -> None:
    text = extract_text(html)
    assert "\0" not in text
    text.encode("utf-8")


SAYS = """<!doctype html><!-- <link rel=canonical href=/no> --><HTML LANG=pt-BR><head><title>T</title>
<script>"<link rel=canonical href=/no>"</script><META NAME=robots CONTENT="noindex,&#32;NoFollow"><svg>
<link rel=canonical href="/a?b&amp;c\0"></svg></head>
<body><a href="/no">x</a><link rel=canonical href=/late><p>Text.</p>"""


@pytest.mark.parametrize("name", [name for name in INSTALLED if name != "none"])
def test_a_page_says_the_same_of_itself_whoever_takes_its_text(name: str) -> None:
    assert extract(SAYS, name)[2:] == ("pt-BR", "/a?b&c", "noindex, NoFollow")
    assert extract("<p>Nothing.", name)[2:] == ("", "", "")


def test_a_text_says_nothing_of_itself() -> None:
    assert extract(SAYS.replace("\0", ""), "none")[1:] == ("", "", "", "")
