"""The extractor `main-text`: what is content, that kernel and Python give the same, and that no markup is slow."""

import json
from collections.abc import Callable
from importlib.resources import files
from random import Random
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.extraction.frames import FRAMES, Article, Surroundings
from benchmarks.samples import SAMPLE, read_pages
from simhash import native
from simhash.reading import block_features, main_text
from simhash.reading.extracted import Extracted
from simhash.reading.html_blocks import END_TAG_REACH, KINDS, MOST_BLOCKS, MOST_ELEMENTS, plain, read_blocks
from simhash.reading.html_words import WORDS
from tests.growth import is_linear

SENTENCE = "The river rose by two metres in the night, and nobody in the lower town had slept when the bells rang. "
ARTICLE = Article("The night of the flood", [SENTENCE * 4, SENTENCE.replace("river", "lake") * 3, SENTENCE * 2])
OTHERS = Surroundings(
    [Article(f"Another story, number {n}", [f"Teaser {n} of something else. " * 9]) for n in range(20)]
)


def texts(html: str) -> list[str]:
    return read_blocks(html.encode(), main_text.words()).texts


def both(html: str) -> Extracted:
    """What is found in a page, by the kernel and in Python alike."""
    page = html.encode()
    found = main_text.read_in_python(page)
    assert native.absence() is None
    assert main_text.read(page) == found
    assert main_text.metadata(page) == main_text.metadata_in_python(page) == found[2:]
    return found


@pytest.mark.parametrize("frame", FRAMES)
def test_an_article_is_found_in_any_frame(frame: Callable[..., Any]) -> None:
    text = both(frame(ARTICLE, OTHERS)).text
    assert all(plain(paragraph) in text for paragraph in ARTICLE.paragraphs)
    assert "Another story, number 3" not in text


def test_a_page_without_main_content_gives_all_its_visible_text() -> None:
    page = "<title>Log in</title><nav><a href=/>Home</a></nav><form><label>Name</label></form><footer>Imprint</footer>"
    assert both(page).text == "Home\nName\nImprint"


def test_what_no_reader_sees_is_no_text() -> None:
    hidden = "<script>a<b</script><style>c</style><!-- d --><template>e<p>f</template><noscript>g</noscript>"
    more = '<svg><title>h</title></svg><select><option>i</select><img alt="j"><textarea>k</textarea><iframe>l</iframe>'
    assert texts(f"m{hidden}{more}n") == ["mn"] or "".join(texts(f"m{hidden}{more}n")) == "mn"


@pytest.mark.parametrize(
    ("page", "shown"),
    [
        ("<p>a<span hidden>b<span>c</span>d</span>e", ["ae"]),
        ("<p>a<a href=x>b<SPAN class=c Hidden='true'>d</a>e</span>f</a>", ["abf"]),
        ("<div>a<span hidden><p>b</p>c</div>d", ["a", "d"]),
        ("<p>a<span title=hidden>b</span><span data-hidden>c</span></span>d", ["abcd"]),
        ("<template><span hidden></template>a</span>b", ["ab"]),
    ],
)
def test_a_hidden_span_is_not_shown_up_to_its_end_or_that_of_what_holds_it(page: str, shown: list[str]) -> None:
    assert texts(page) == shown
    assert both(page).text == "\n".join(shown)


@pytest.mark.parametrize(
    ("page", "shown"),
    [
        ("<x-a><template shadowrootmode=open><p>a</p><slot></slot></template>b</x-a>c", ["a", "bc"]),
        ("<div>a<TEMPLATE b ShadowRootMode='Closed'>b<template>c</template>d</template>e</div>", ["a", "b", "d", "e"]),
        ("<template shadowrootmode=none>a</template>b<template data-shadowrootmode=open>c</template>d", ["b", "d"]),
        ("<template>a<template shadowrootmode=open>b</template>c</template>d", ["d"]),
        ("<template title=shadowrootmode shadowrootmode>a</template>b", ["b"]),
    ],
)
def test_a_shadow_tree_that_is_declared_is_shown_and_other_templates_are_not(page: str, shown: list[str]) -> None:
    assert texts(page) == shown
    assert both(page).text == "\n".join(shown)


@pytest.mark.parametrize(
    ("page", "title", "shown"),
    [
        ("<title>A</title><svg a='b'><title/><path/></svg><p>shown", "A", ["shown"]),
        ("<svg><defs><style/></defs><script />\n</svg>shown", "", ["shown"]),
        ("<?xml version='1.0'?><head><title/><script src='a.js'/></head><p>shown", "", ["shown"]),
        ("<p>one <svg class='i' /> two", "", ["one", "two"]),
        ("<p>one <svg class=i/> two", "", ["one"]),  # the slash belongs to the value
        ("<title x=y/>A</title>shown", "A", ["shown"]),
        ("<title / >A</title>shown", "A", ["shown"]),
        ("one</br>two", "", ["one", "two"]),
        ("a<span hidden><xmp></xmp></span>b", "", ["a", "b"]),
    ],
)
def test_a_tag_that_ends_itself_holds_nothing_where_it_can_end_itself(page: str, title: str, shown: list[str]) -> None:
    found = both(page)
    assert (found.title, found.text.split("\n")) == (title, shown)


def test_where_all_is_for_readers_without_scripts_that_is_read() -> None:
    assert both("<title>A</title><div></div><noscript><p>All of it.</p></noscript>").text == "All of it."
    assert both("<noscript>Switch scripts on.</noscript><p>shown").text == "shown"


def test_an_address_keeps_its_ampersands() -> None:
    address = "https://shop.example/list?id=7&section=2&region=eu&copyx&not=1&currency=usd"
    page = f"<link rel=canonical href='{address}&amp;a=1&#38;b=&copy;&lt'>"
    assert both(page).canonical == f"{address}&a=1&b=©<"


def test_a_long_block_that_stands_there_again_is_content_once_and_a_short_one_each_time() -> None:
    others = [f"<p>{SENTENCE.replace('river', word) * 2}</p>" for word in ("lake", "sea", "brook")]
    for length, times in ((main_text.REPEATED_CHARACTERS - 1, 2), (main_text.REPEATED_CHARACTERS, 1)):
        again = ("É" + SENTENCE * 2)[: length - 1] + "."
        text = both(f"<article>{others[0]}<p>{again}</p>{others[1]}<p>{again}</p>{others[2]}</article>").text
        assert text.splitlines().count(again) == times, length


def test_where_little_is_sure_what_is_possible_is_content_if_it_is_likely() -> None:
    learned, likely = main_text.weights(), main_text.LIKELY
    assert learned.possible < likely < learned.sure

    def taken(sizes: list[int], scores: list[int]) -> list[bool]:
        found: list[bool] = main_text.chosen(np.array(sizes), np.array(scores), learned).tolist()
        return found

    sure = learned.sure + 1
    assert taken([85, 15, 500], [sure, likely, learned.possible]) == [True, False, False]
    assert taken([60, 40, 500], [sure, likely, learned.possible]) == [True, True, False]
    assert taken([60, 40, 500], [sure, likely - 1, learned.possible]) == [True, False, False]
    # On average by size, not by number.
    assert taken([60, 30, 5, 5], [sure, likely, likely + 3, likely - 4]) == [True, False, False, False]
    assert taken([60, 30, 5, 5], [sure, likely + 1, likely - 3, likely - 3]) == [True] * 4


def test_short_blocks_of_one_list_have_one_score() -> None:
    blocks = read_blocks(f"<ul><li>{SENTENCE}<li>a<li>bc</ul><td>d<br>e</td><td>f".encode(), {})
    scores = np.array([90, 10, 40, 1, 2, -7])
    assert block_features.shared(block_features.PageBlocks(blocks), scores).tolist() == [90, 30, 30, 1, 1, -7]


def test_a_page_says_of_itself_its_title_language_canonical_url_and_robots() -> None:
    page = """<!doctype html><HTML LANG=de><head><title>A &amp; B</title><meta name="ROBOTS" content="noindex, follow">
    <link rel="alternate" href="/no"><link href='/a?b=1&amp;c=2' rel="x canonical"></head><body>text</body></html>"""
    assert both(page) == ("text", "A & B", "de", "/a?b=1&c=2", "noindex, follow")


def test_blocks_end_at_block_level_tags_and_nowhere_else() -> None:
    assert texts("<p>a<b>b</b><a href=x>c</a><!-- x -->d<meta itemprop=e>f<p>g<br>h<li>i<td>j") == [
        "abcdf",
        "g",
        "h",
        "i",
        "j",
    ]


def test_an_attribute_may_hold_markup_and_a_bare_bracket_is_text() -> None:
    assert texts("<p title='<div>'>1 < 2 <a title=\"</p>\">x</a> <3</p>") == ["1 < 2 x <3"]


@pytest.mark.parametrize(
    ("reference", "meant"),
    [
        ("&amp;&lt&copy", "&<©"),
        ("&notit; &notin;", "¬it; ∉"),
        ("&#65;&#x42&#0;&#128;&#xD800;", "AB\ufffd€\ufffd"),
        ("&#" + "9" * 10_000 + ";", "\ufffd"),
        ("&#1;&#xFFFE;&;&x&#;&#x;", "&;&x&#;&#x;"),
        ("a&nbsp;&#8195;b", "a b"),
    ],
)
def test_character_references_mean_what_they_do_in_a_browser(reference: str, meant: str) -> None:
    assert plain(reference) == meant
    assert both(f"<p>{reference}").text == meant


def test_an_end_tag_ends_what_is_near_and_is_ignored_otherwise() -> None:
    blocks = read_blocks(b"<section>a" + b"<div>" * END_TAG_REACH + b"b</section>c", {})
    assert blocks.owners[-1] == END_TAG_REACH + 1
    assert read_blocks(b"<div><table><td>a</div>b", {}).owners == [3, 3]


@pytest.mark.slow
def test_a_large_page_gives_its_text_and_nothing_is_decided() -> None:
    many = "<p>x" * (MOST_BLOCKS + 1)
    assert both(many).text == "\n".join("x" * (MOST_BLOCKS + 1))
    assert both("<div>" * MOST_ELEMENTS + "<nav>deep").text == "deep"


HOSTILE = {
    "nested": lambda size: "<div class=a>" * size + "x",
    "nested with text": lambda size: "<div>word " * size,
    "end tags of nothing near": lambda size: "<section>" + "<div>" * size + "</section>x" * size,
    "tags that end no block": lambda size: "x<meta>" * size,
    "one tag's attributes": lambda size: "<div" + " a=b" * size + ">x",
    "a tag that never ends": lambda size: "<div a='" + "<p>" * size,
    "comments that never end": lambda size: "<!--" + "<!-" * size,
    "brackets": lambda size: "<" * size,
    "references": lambda size: "&" + "a" * size + "&#" + "1" * size + "&amp" * size,
    "scripts in scripts": lambda size: "<script><!--" + "<script>" * size,
    "links around blocks": lambda size: "<a href=x><p>y" * size,
    "titles": lambda size: "<title>" + "y" * size + "</title>" + f"<p>{'y' * 200}" * (size // 100),
    "words in attributes": lambda size: "".join(f"<div class=comment{n}>x" for n in range(size)),
}


@pytest.mark.slow
@pytest.mark.parametrize("make", HOSTILE.values(), ids=HOSTILE)
@pytest.mark.parametrize(
    ("read", "sizes"),
    [
        (main_text.read, (5_000, 20_000, 80_000)),
        (main_text.read_in_python, (1_000, 4_000, 16_000)),
    ],
    ids=["kernel", "python"],
)
def test_time_is_in_proportion_to_length(
    read: Callable[[bytes], Any], sizes: tuple[int, ...], make: Callable[[int], str]
) -> None:
    assert is_linear(lambda html: read(html.encode()), make, sizes)


PIECES = [
    *(
        "<div>",
        "</div>",
        "<p>",
        "</p>",
        "<li>",
        "<ul>",
        "</ul>",
        "<td>",
        "<table>",
        "</table>",
        "<br>",
        "<hr>",
        "<body>",
    ),
    *("<h1>", "</h1>", "<a href=x>", "</a>", "<a>", "<b/", "<!--", "-->", "--!>", "<!-->", "<script>", "</script>"),
    *("<!--<script>", "<style>", "</style>", "<title>", "</title>", "<textarea>", "<xmp>", "</xmp>", "<svg>", "</svg>"),
    *(
        "<select>",
        "<option>",
        "<template>",
        "<Template a shadowrootmode=OPEN>",
        "</template>",
        "<noscript>",
        "<meta name=robots content=x>",
        "<html lang=z>",
    ),
    *(
        "<link rel=canonical href=/y/>",
        '<x class="commentBody sideBar">',
        "<div id='main",
        ">",
        "&amp",
        "&#x80;",
        "&#0",
    ),
    *("<svg/>", "<title/>", "<script a=b />", "<xmp/>", "</br>", "<svg a=/", "/>", "&copy=", "<html lang='&lt=&gt'>"),
    *("<span hidden>", "<SPAN a='b'Hidden>", "<span>", "</span>", "</div>"),
    *("&notit;", "&", "<", "</", "</>", "<?", "<![CDATA[", "]]>", "=", '"', "'", "/", "ſ", "İ", "\u3000", "\x1c", " "),
    *(
        "é",
        "😀",
        "word",
        "Sentence, with a comma. ",
        "text that goes on for a while, and on, until it ends. ",
        "漢字、かな。",
    ),
]


@given(st.lists(st.sampled_from(PIECES), max_size=80).map("".join))
def test_kernel_and_python_give_the_same_of_any_markup(html: str) -> None:
    both(html)


def test_kernel_and_python_give_the_same_of_pages_and_of_what_is_left_of_them() -> None:
    random = Random(1)
    pages = [page["html"] for page in read_pages(SAMPLE) if "html" in page]
    for page in random.sample(pages, 40):
        both(page)
        start = random.randrange(len(page))
        cut = random.randrange(len(page))
        both(page[start : start + 5_000] + random.choice(PIECES) + page[cut : cut + 5_000])


def test_the_weights_ask_for_features_that_there_are_and_have_a_leaf_for_all_answers() -> None:
    stored = json.loads(files("simhash.reading").joinpath("main_text.json").read_text())
    names = {*block_features.NAMES, *block_features.SECOND_NAMES}
    for look in stored["looks"]:
        for questions, leaves in look["trees"]:
            assert {name for name, _ in questions} <= names
            assert len(leaves) == 1 << len(questions)


def test_the_kernel_can_hold_every_bit_and_word() -> None:
    assert len(KINDS) + len(WORDS) == len(block_features.BITS) == 44
    assert all(len(word) <= 16 and word.islower() for row in WORDS.values() for word in row.split())
