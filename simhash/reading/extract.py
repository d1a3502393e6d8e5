"""HTML to what a page is compared by: its main content, without navigation and boilerplate, and its title.

Each way to do that is a function from HTML in UTF-8 to `Extracted` in `EXTRACTORS`; a profile names one. The default's
is `main-text`: nearest to what people marked on pages of all kinds, and the fastest (docs/quality.md; `python -m
benchmarks.extraction`).

Parsers are given only what `check_markup` let pass, and only their text leaves this module: no NUL, no lone surrogate.
"""

import importlib
import re
from collections.abc import Callable
from types import ModuleType

from resiliparse.extract.html2text import extract_plain_text
from resiliparse.parse.html import HTMLParserException, HTMLTree

from simhash.errors import PageError, ProfileError
from simhash.reading import main_text
from simhash.reading.extracted import Extracted
from simhash.reading.markup import MarkupLimits, check_markup

Extractor = Callable[[bytes], Extracted]

DEFAULT_LIMITS = MarkupLimits()

# Below this, main content was not found (a list, a form), and all visible text says more.
MIN_MAIN_CHARACTERS = 200
_LONE_SURROGATE = re.compile("[\ud800-\udfff]")
# A paragraph shorter than this is as likely a menu or a caption.
MIN_PARAGRAPH_CHARACTERS = 100


def resiliparse_main(html: bytes) -> Extracted:
    """Resiliparse's main content; where that has fewer than 200 characters, all visible text if it has more."""
    tree = HTMLTree.parse(html.decode())
    main = extract_plain_text(tree, main_content=True, alt_texts=False)
    if len(main.strip()) < MIN_MAIN_CHARACTERS:
        visible = extract_plain_text(tree, main_content=False, alt_texts=False)
        main = visible if len(visible.strip()) > len(main.strip()) else main
    return Extracted(main, tree.title or "")


def resiliparse_all(html: bytes) -> Extracted:
    """All visible text."""
    tree = HTMLTree.parse(html.decode())
    return Extracted(extract_plain_text(tree, main_content=False, alt_texts=False), tree.title or "")


def lexbor_paragraphs(html: bytes) -> Extracted:
    """The paragraphs of 100 characters and more, by selectolax; without any, all text of the body."""
    lexbor = _library("lexbor-paragraphs")
    tree = lexbor.LexborHTMLParser(html.decode())
    title = node.text() if (node := tree.css_first("title")) else ""
    texts = (" ".join(node.text().split()) for node in tree.css("p"))
    paragraphs = [text for text in texts if len(text) >= MIN_PARAGRAPH_CHARACTERS]
    if paragraphs:
        return Extracted("\n".join(paragraphs), title)
    tree.strip_tags(["script", "style", "noscript", "template"])
    return Extracted(tree.body.text(separator="\n", strip=True) if tree.body else "", title)


def trafilatura(html: bytes) -> Extracted:
    """Trafilatura's main text, tuned for recall; comments belong to the frame."""
    library = _library("trafilatura")
    page = html.decode()
    tree = library.load_html(page)
    title = "" if tree is None else tree.findtext(".//title")
    text = library.extract(page, favor_recall=True, include_comments=False, include_tables=True)
    return Extracted(text or "", title or "")


def as_is(html: bytes) -> Extracted:
    """The input itself: for pages that are text already."""
    return Extracted(html.decode())


EXTRACTORS: dict[str, Extractor] = {
    "main-text": main_text.read,
    "resiliparse-main": resiliparse_main,
    "resiliparse-all": resiliparse_all,
    "lexbor-paragraphs": lexbor_paragraphs,
    "trafilatura": trafilatura,
    "none": as_is,
}
_WITHOUT_TREE = ("main-text", "none")
"""Those that no markup makes slow."""
_LIBRARIES = {"lexbor-paragraphs": ("selectolax.lexbor", "selectolax"), "trafilatura": ("trafilatura", "trafilatura")}
"""Module and extra of those that are not installed with the package itself."""


def require_extractor(name: str) -> None:
    """Nothing, where there is an extractor of this name and its library is installed.

    Raises:
        ProfileError: otherwise.
    """
    if name not in EXTRACTORS:
        raise ProfileError(f"no extractor {name!r}; there are {', '.join(EXTRACTORS)}")
    if name in _LIBRARIES:
        _library(name)


def extract_text(html: str | bytes, extractor: str = "main-text", limits: MarkupLimits = DEFAULT_LIMITS) -> str:
    """The text alone of what `extract` finds."""
    return extract(html, extractor, limits).text


def extract(html: str | bytes, extractor: str = "main-text", limits: MarkupLimits = DEFAULT_LIMITS) -> Extracted:
    """Text and title of a page, encodable in UTF-8 and without NUL.

    Args:
        html: the page's characters, or these in UTF-8, which is faster.
        extractor: a name in `EXTRACTORS`.
        limits: the costs of parsing beyond which a page is refused.

    Raises:
        PageError: stage "extract": a lone surrogate, or markup beyond a limit.
        MemoryError: as the parser says when it can get no more.
        ProfileError: no such extractor, or its library is not installed.
    """
    require_extractor(extractor)
    utf8 = _in_utf8(html) if isinstance(html, str) else html
    if b"\0" in utf8:  # to look is a twentieth of what it takes to replace nothing
        utf8 = utf8.replace(b"\0", b"")
    if extractor in _WITHOUT_TREE:
        return EXTRACTORS[extractor](utf8)
    check_markup(utf8.decode(), limits)
    try:
        found = EXTRACTORS[extractor](utf8)
    except HTMLParserException as error:
        # Any text at all is HTML; the parser gives up only when it gets no more memory, and does not say so.
        raise MemoryError(f"{extractor}: {error}") from error
    said = (found.text, found.title, *main_text.metadata(utf8))
    return Extracted(*(_LONE_SURROGATE.sub("\ufffd", part).replace("\0", "") for part in said))


def _in_utf8(html: str) -> bytes:
    """JSON can carry half of a character pair; no parser takes it and no hash could be had of it."""
    try:
        return html.encode()
    except UnicodeEncodeError as error:
        where = error.start
        message = f"lone surrogate U+{ord(html[where]):04X} at character {where} of {len(html)}"
        raise PageError("extract", message) from error


def _library(extractor: str) -> ModuleType:
    module, extra = _LIBRARIES[extractor]
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise ProfileError(
            f"extractor {extractor} needs a library that is not installed: pip install 'simhash-dedup[{extra}]'"
        ) from error
