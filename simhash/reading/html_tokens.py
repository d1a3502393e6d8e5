"""The tokens of HTML: the tokenizer of its standard (13.2.5) as one regular expression, linear on any input."""

import re
from collections.abc import Iterator
from itertools import islice

_TOKENS_AT_ONCE = 10_000

# The quantifiers are possessive: it never goes back, so it is linear on any input. A quote opens a value only after
# `=`; what is not closed runs to the end.
STOP = r"[\t\n\f\r\ />]"
_ATTRIBUTE = r"""
    [\t\n\f\r\ /]*+ (?: =[^\t\n\f\r\ />=]*+ | [^\t\n\f\r\ />=]++ )
    (?: [\t\n\f\r\ ]*+ = [\t\n\f\r\ ]*+ (?: "[^"]*+(?:"|\Z) | '[^']*+(?:'|\Z) | (?!["'])[^\t\n\f\r\ >]*+ ) )?+
"""
# The first alternative is the usual spelling of the second, four times as fast.
_EACH = rf"(?: [\ \n][a-z-]++=\"[^\"]*+\" | {_ATTRIBUTE} )*+"
ATTRIBUTES = rf"{_EACH} [\t\n\f\r\ /]*+"
# The same, with a group that is empty unless the tag ends itself (`<title/>`): its last `/` belongs to no value.
ATTRIBUTES_AND_END = rf"{_EACH} (?: ((?: [\t\n\f\r\ ]*+ / )++)(?=>) | [\t\n\f\r\ /]*+ )"
# A script may hold `<!-- <script> </script>` without ending there (13.2.5.20 to 31).
SCRIPT_TEXT = rf"""(?ai:
    (?: [^<]++ | <(?!/script{STOP}|!--)
      | <!(?=--) (?: [^<-]++ | -(?!->) | <(?!/?script{STOP})
                   | <script{STOP} (?: [^<-]++ | -(?!->) | <(?!/script{STOP}) )*+ (?:</script{STOP})?+ )*+ (?:-->)?+
    )*+
)"""


def any_case(word: str) -> str:
    """A pattern for a word in either case: `(?i:...)` is three times as slow at every tag."""
    return "".join(f"[{letter}{letter.upper()}]" if letter.isalpha() else letter for letter in word)


_RAW_NAMES = "|".join(
    map(any_case, ("iframe", "noembed", "noframes", "plaintext", "style", "textarea", "title", "xmp"))
)
# One token: an end tag; a start tag with its attributes, and after it the text of an element without inner markup (a
# script), or the rest of an element that holds only text (`<a href="x">y</a>`: taking these whole halves the work);
# or anything else in <>, without groups.
TOKEN = re.compile(
    rf"""<(?:
      (/[a-zA-Z0-9:-]++)>
    | ((?: ({any_case("script")}) | ({_RAW_NAMES}) )(?={STOP}) | /?+[a-zA-Z][^\t\n\f\r\ />]*+ )
      ({ATTRIBUTES}) >?+
      ((?(3) {SCRIPT_TEXT} | (?(4) (?: [^<]++ | <(?!/(?ai:\4){STOP}) )*+ | (?: [^<]*+</\2> )?+ )))
    | !--(?: -?> | .*?(?:--!?>|\Z) )
    | [!?/][^>]*+ >?+
    )""",
    re.VERBOSE | re.DOTALL,
)
_ATTRIBUTE_NAME = re.compile(_ATTRIBUTE.replace("(?: =[", "( =[", 1), re.VERBOSE)
_SEPARATORS = "\t\n\f\r /"


def attribute_names(attributes: str) -> list[str]:
    """The names of a tag's attributes, each as often as it stands there."""
    # What separates at the end goes before: the search would begin again at each of these, and look at all behind it.
    return _ATTRIBUTE_NAME.findall(attributes.rstrip(_SEPARATORS))


def tokens(html: str, most: int) -> Iterator[list[tuple[str, ...]]]:
    """The groups of the first `most` tokens, so many together that they take little memory.

    Of each, empty where it has none: the name of an end tag with its `/`; the name of any other, as it is written; once
    more if it is a script; once more if it holds only text; attributes; and what follows of it (see `TOKEN`).
    """
    if html.count("<") <= _TOKENS_AT_ONCE:
        yield TOKEN.findall(html)
        return
    found = islice(TOKEN.finditer(html), most)
    while some := [match.groups("") for match in islice(found, _TOKENS_AT_ONCE)]:
        yield some
