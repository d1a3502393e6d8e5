"""Every family of page that makes an HTML parser slow is refused by a count; real pages and harmless ones are not.

No test here measures time: sizes are the smallest that a limit refuses, and the message names the limit.
"""

import re
from collections.abc import Callable
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from simhash.errors import PageError
from simhash.reading.markup import MarkupLimits, check_markup
from tests.growth import is_linear

LIMITS = MarkupLimits()
BODY = "<!doctype html><html><body>"


def refusal(html: str, limits: MarkupLimits = LIMITS) -> str:
    """What the check says of a page that it refuses."""
    with pytest.raises(PageError) as refused:
        check_markup(html, limits)
    assert refused.value.stage == "extract"
    return str(refused.value)


def fonts(count: int, before: str = "") -> str:
    return "".join(f"{before}<font color={number}>" for number in range(count))


def attributes(count: int) -> str:
    return "".join(f" a{number}=1" for number in range(count))


DEEP = {
    "nested div": "<div>" * 100_000,
    "nested div with text": "<div>word " * 3_000,
    "nested span": "<span>" * 3_000,
    "nested elements of no known name": "<x-y>" * 3_000,
    "lists in lists": "<ul><li>" * 3_000,
    "tables in tables": "<table><tr><td>" * 3_000,
    "svg groups": "<svg>" + "<g>" * 3_000,
    "svg in svg": "<svg>" * 3_000,
    "table cells inside svg, where they nest": "<svg>" + "<td>" * 3_000,
    "style inside svg, where it holds markup": "<svg>" + "<style><g><g></style>" * 3_000,
    "templates": "<template>" * 3_000,
    "links around blocks": "<a><div>" * 3_000,
    "forms around blocks": "<form><div></form>" * 3_000,
    "end tags that match nothing": "<div></x></span>" * 3_000,
    "end tags inside comments": "<div><!-- </div> -->" * 3_000,
    "end tags inside attributes": '<div title="</div>">' * 3_000,
    "end tags inside scripts": "<div><script></div></script>" * 3_000,
    "end tags inside escaped scripts": "<div><script><!--<script></script></div>--></script>" * 3_000,
    "end tags inside titles": "<div><title></div></title>" * 3_000,
    "self-ending tags of HTML, which do not end": "<div/>" * 3_000,
    "self-ending tags after svg was left": "<svg><p><b></b>" + "<x-y/>" * 3_000,
    "unclosed bold": "<b>" * 10_000,
    "unclosed italics in bold": "<i><b>" * 10_000,
    "bold around blocks, closed wrongly": "<b><div>x</b>y" * 3_000,
    "many bold, many blocks, then the ends": "<b>" * 1_000 + "<div>" * 3_000 + "</b>" * 1_000,
}


@pytest.mark.slow
@pytest.mark.parametrize("html", DEEP.values(), ids=DEEP)
def test_nesting_is_refused(html: str) -> None:
    assert re.search(rf"depth = {LIMITS.depth}: 200[12] elements open at once", refusal(BODY + html))


WIDE = {
    "bold leaves inside 900 div": "<div>" * 900 + "<b>x</b>" * 30_000,
    "paragraphs inside 900 div": "<div>" * 900 + "<p>x" * 30_000,
    "line breaks inside 900 div": "<div>" * 900 + "x<br>" * 30_000,
    "stray end tags inside 900 span": "<span>" * 900 + "</zz>" * 30_000,
    "combs of 900 div": ("<div>" * 900 + "x" + "</div>" * 900) * 30,
}


@pytest.mark.parametrize("html", WIDE.values(), ids=WIDE)
def test_many_tags_inside_many_elements_are_refused(html: str) -> None:
    assert f"steps = {LIMITS.steps}: " in refusal(BODY + html)


REOPENED = {
    "a font in each paragraph": fonts(5_000, "<p>"),
    "1,000 fonts, then paragraphs": "<p>" + fonts(1_000) + "</p><p>x" * 3_000,
    "bold and fonts in each paragraph": "<p><b><font size=1>x</p>" * 3_000,
    "bold with attributes that all differ": "".join(f"<b a{number}>" for number in range(3_000)),
    "half a million paragraphs": "<p>" * 500_001,
    "half a million comments": "<!---->" * 500_001,
}


@pytest.mark.slow
@pytest.mark.parametrize("html", REOPENED.values(), ids=REOPENED)
def test_too_many_elements_are_refused_those_opened_again_included(html: str) -> None:
    assert f"elements = {LIMITS.elements}: " in refusal(html)


LINE = '<div class="a">x</div>\n'


@pytest.mark.slow
def test_a_tree_that_would_take_too_much_memory_is_refused() -> None:
    check_markup(LINE * 110_000, LIMITS)
    message = refusal(LINE * 130_000)
    assert re.search(
        r"memory = 140000000: 1\d{8} bytes for 130000 elements, 260000 texts and 130000 attributes", message
    )


def test_characters_count_as_memory_at_the_width_that_they_have() -> None:
    page = LINE * 90_000 + " " * 5_000_000
    check_markup(page, LIMITS)
    assert "memory = 140000000: " in refusal(page + "\U0001f600")


ATTRIBUTED = {
    "100,000 attributes in one tag": f"<div{attributes(100_000)}>",
    "100,000 attributes in one end tag": f"<div></div{attributes(100_000)}>",
    "100,000 attributes without spaces": "<div " + "a/" * 100_000 + ">",
    "100,000 times the same attribute": "<div" + " a=1" * 100_000 + ">",
    "100,000 attributes in a script tag": f"<script{attributes(100_000)}></script>",
    "attributes gathered by one body": "".join(f"<body a{number}=1>" for number in range(11_000)),
    "tags of 1,000 attributes": f"<p{attributes(1_000)}>" * 101,
    "a tag that never ends": "<a " * 20_000,
}


@pytest.mark.parametrize("html", ATTRIBUTED.values(), ids=ATTRIBUTED)
def test_attributes_are_refused(html: str) -> None:
    assert f"attribute_pairs = {LIMITS.attribute_pairs}: " in refusal(BODY + html)


@pytest.mark.parametrize(
    "html",
    [
        "".join(f"<x{number}></x{number}>" for number in range(31_000)),
        "".join(f"<p a{number}>" for number in range(31_000)),
    ],
    ids=["of tags", "of attributes"],
)
def test_too_many_different_names_are_refused(html: str) -> None:
    assert f"names = {LIMITS.names}: {LIMITS.names + 1} different names" in refusal(html)


@pytest.mark.parametrize("option", ["<option>x", "<option>x</option>"])
def test_too_many_options_are_refused(option: str) -> None:
    assert f"options = {LIMITS.options}: " in refusal("<select>" + option * 10_001)


def test_the_message_says_where() -> None:
    assert refusal(BODY + "<div>" * 3_000).endswith(f"at character {len(BODY) + 5 * LIMITS.depth}")


HARMLESS = {
    "an empty page": "",
    "one attribute of 10 MB": f'<div title="{"x" * 10_000_000}">x</div>',
    "an attribute that never ends": '<div title="' + "<p>x " * 100_000,
    "a million entities": "&amp;" * 1_000_000,
    "a comment that never ends": "<!--" + "<div>" * 100_000,
    "a million bare <": "<" * 1_000_000,
    "a huge doctype": f'<!DOCTYPE html PUBLIC "{"x" * 1_000_000}">x',
    "a huge tag name": f"<{'x' * 1_000_000}>",
    "a script full of markup": "<script>" + "if (a<b) x = '<div>';" * 10_000 + "</script>",
    "a script that never ends": "<script>" + "x = '<div>';" * 10_000,
    "a style full of markup": "<STYLE>" + "<div>" * 10_000 + "</Style>",
    "a text area full of markup": "<textarea>" + "<div>" * 10_000,
    "bogus comments": "<?x><![CDATA[y]]></ >" * 10_000,
    "NUL bytes": "\0" * 100_000,
    "paragraphs never closed": "<p>x" * 100_000,
    "list items never closed": "<ul>" + "<li>x" * 100_000,
    "table cells never closed": "<table>" + "<tr><td>x<td>y" * 30_000,
    "links never closed": "<a name=x>y" * 100_000,
    "bold that means to close and does not": "<p><b>x<b></p>" * 900,
    "well-formed svg": "<svg>" + "<g><path d='M0 0'/></g>" * 30_000 + "</svg>",
    "upper case": "<DIV>x</div>" * 30_000,
    "an attribute value with >": "<a title='>' href=\"x>y\">z</a>" * 30_000,
    "a page of 10,000 links": "<ul>" + "<li><a href='/x'>word</a></li>\n" * 10_000 + "</ul>",
}


@pytest.mark.slow
@pytest.mark.parametrize("html", HARMLESS.values(), ids=HARMLESS)
def test_a_harmless_page_passes(html: str) -> None:
    check_markup(html, LIMITS)


def test_limits_can_be_narrowed() -> None:
    assert "depth = 3: 4 elements" in refusal("<div><div><p><b><i>x", MarkupLimits(depth=3))
    assert "attribute_pairs = 8: 9 pairs" in refusal("<p a b c>xxx", MarkupLimits(attribute_pairs=8))
    assert "options = 1: 2 <option>" in refusal("<option><option>", MarkupLimits(options=1))
    assert "names = 2: 3 different" in refusal("<p a b>", MarkupLimits(names=2))


PIECES = """<div> </div> <b> </b> <p> </p> <svg> </svg> <path/> <!-- --> <script> </script> <style> </style> <a_x='>'>
<a_x=" > = ' " < > </ <! / & x <title> </title> <table> <td> ]]> <![CDATA[""".replace("\n", " ").split(" ")
MARKUP = st.lists(st.sampled_from([piece.replace("_", " ") for piece in PIECES]), max_size=60).map("".join)


@given(html=MARKUP, depth=st.integers(1, 5))
def test_any_markup_passes_or_is_refused_at_a_place_inside_it(html: str, depth: int) -> None:
    message = ""
    try:
        check_markup(html, MarkupLimits(depth=depth))
    except PageError as error:
        message = str(error)
    assert not message or html[int(message.rsplit(" ", 1)[1])] == "<"


@given(depth=st.integers(0, 60), limit=st.integers(1, 60))
def test_the_depth_counted_of_well_formed_markup_is_its_depth(depth: int, limit: int) -> None:
    html = "<div><i>x</i>" * depth + "<br>" + "</div>" * depth
    if depth > limit:
        assert f"{limit + 1} elements open" in refusal(html, MarkupLimits(depth=limit))
    else:
        check_markup(html, MarkupLimits(depth=limit))


RUNS = {
    "slashes": lambda size: "<div " + "/" * size + ">",
    "white space": lambda size: "<a" + " " * size + ">",
    "slashes and white space": lambda size: "<a" + " /" * (size // 2) + ">",
    "slashes without an end": lambda size: "<a " + "/" * size,
    "white space behind a name": lambda size: "<a x" + " " * size + "=1>",
    "white space behind a sign": lambda size: "<a x=" + " " * size + ">",
    "white space in a quote without an end": lambda size: "<a x='" + " " * size,
    "attributes between slashes": lambda size: "<a" + "/x" * (size // 2) + ">",
    "white space in an end tag": lambda size: "</a" + " " * size + ">",
    "signs": lambda size: "<a " + "=" * size + ">",
}


@pytest.mark.parametrize("make", RUNS.values(), ids=RUNS)
def test_a_run_within_a_tag_is_gone_through_once(make: Callable[[int], str]) -> None:
    def checked(html: str) -> None:
        with suppress(PageError):
            check_markup(html, LIMITS)

    assert is_linear(checked, lambda size: make(size) + "<p>" * 3_000)
