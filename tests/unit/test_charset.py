"""Every charset of the crawl, declared, undeclared and lied about; broken bytes; what is no text."""

import contextlib
import gzip
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from simhash import native
from simhash.errors import PageError
from simhash.reading.charset import CONTROLS, count_controls_in_numpy, decode

CHINESE = (
    "搜索引擎在抓取网页的时候,常常会遇到内容几乎相同的页面。这些页面只在导航、日期或者广告上有一点不同,"
    "正文却完全一样。把它们找出来,可以节省存储空间,也可以让结果更好。我们用一个六十四位的指纹来表示每个页面。"
)
TRADITIONAL = (
    "搜尋引擎在抓取網頁的時候,常常會遇到內容幾乎相同的頁面。這些頁面只在導覽、日期或者廣告上有一點不同,"
    "正文卻完全一樣。把它們找出來,可以節省儲存空間,也可以讓結果更好。我們用一個六十四位元的指紋來表示每個頁面。"
)
CANTONESE = TRADITIONAL.replace("的", "嘅").replace("了", "咗").replace("在", "喺").replace("些", "啲")
JAPANESE = (
    "検索エンジンがページを集めるとき、ほとんど同じ内容のページに何度も出会います。違うのはメニューや日付、広告だけで、"
    "本文はまったく同じです。それらを見つければ、保存する場所を節約でき、検索の結果もよくなります。"
)
KOREAN = (
    "검색 엔진이 문서를 모을 때 거의 같은 내용의 문서를 자주 만나게 됩니다. 다른 것은 메뉴나 날짜, 광고뿐이고 "
    "본문은 완전히 같습니다. 그런 문서를 찾아내면 저장 공간을 아끼고 검색 결과도 좋아집니다."
)
RUSSIAN = (
    "Поисковая система при обходе сети часто встречает почти одинаковые страницы. Они отличаются только меню, датой "
    "или рекламой, а основной текст у них один и тот же. Если их найти, можно сберечь место и улучшить выдачу."
)
GERMAN = (
    "Eine Suchmaschine trifft beim Durchsuchen des Netzes häufig auf fast gleiche Seiten. Sie unterscheiden sich nur "
    "im Menü, im Datum oder in der Werbung; der eigentliche Text ist völlig derselbe. Wer sie findet, spart Platz "
    "für Größeres."
)
POLISH = (
    "Wyszukiwarka, przeglądając sieć, często trafia na prawie takie same strony. Różnią się tylko menu, datą albo "
    "reklamą, a właściwa treść jest zupełnie ta sama. Kto je znajdzie, oszczędzi miejsce i ulepszy "
    "wyniki, które widzą użytkownicy."
)
THAI = (
    "เครื่องมือค้นหามักจะพบหน้าเว็บที่มีเนื้อหาเกือบเหมือนกัน ต่างกันเพียงเมนู วันที่ หรือโฆษณา ส่วนเนื้อหาหลักเหมือนกันทุกประการ "
    "ถ้าหาหน้าเหล่านี้เจอก็จะประหยัดพื้นที่เก็บข้อมูลและทำให้ผลการค้นหาดีขึ้น"
)
GREEK = (
    "Μια μηχανή αναζήτησης συναντά συχνά σχεδόν ίδιες σελίδες. Διαφέρουν μόνο στο μενού, στην ημερομηνία ή στις "
    "διαφημίσεις, ενώ το κυρίως κείμενο είναι ακριβώς το ίδιο. Όποιος τις βρίσκει εξοικονομεί χώρο."
)

# name of the test, text, Python's codec that wrote the bytes, a label that pages declare it by
CHARSETS = [
    ("utf-8", CHINESE, "utf-8", "UTF-8"),
    ("utf-8 with a mark", JAPANESE, "utf-8-sig", "utf8"),
    ("utf-16 with a mark", CHINESE, "utf-16", "utf-16"),
    ("gb18030", CHINESE.replace("指纹", "𠮷㐀"), "gb18030", "gb18030"),
    ("gbk", CHINESE, "gbk", "gb2312"),
    ("big5", TRADITIONAL, "cp950", "big5"),
    ("big5-hkscs", CANTONESE, "big5hkscs", "big5-hkscs"),
    ("shift_jis", JAPANESE + "①㈱髙", "cp932", "Shift_JIS"),
    ("euc-jp", JAPANESE, "euc_jp", "x-euc-jp"),
    ("iso-2022-jp", JAPANESE, "iso2022_jp", "iso-2022-jp"),
    ("iso-2022-kr", KOREAN, "iso2022_kr", "iso-2022-kr"),
    ("euc-kr", KOREAN, "euc_kr", "ks_c_5601-1987"),
    ("cp949", KOREAN + "똠방각하 펲시콜라", "cp949", "uhc"),
    ("windows-1251", RUSSIAN, "cp1251", "cp1251"),
    ("koi8-r", RUSSIAN, "koi8-r", "koi8-r"),
    ("iso-8859-5", RUSSIAN, "iso8859-5", "iso-8859-5"),
    ("windows-1252", GERMAN + " “–”", "cp1252", "iso-8859-1"),
    ("iso-8859-2", POLISH, "iso8859-2", "latin2"),
    ("tis-620", THAI, "tis-620", "tis-620"),
    ("windows-1253", GREEK, "cp1253", "greek"),
]
IDS = [charset[0] for charset in CHARSETS]


def page(text: str, meta: str = "") -> str:
    return f"<html><head>{meta}<title>{text[:12]}</title></head>\n<body><p>{text}</p>\n<p>{text[5:]}</p></body></html>"


@pytest.mark.parametrize(("name", "text", "codec", "label"), CHARSETS, ids=IDS)
def test_a_page_is_read_without_any_declaration(name: str, text: str, codec: str, label: str) -> None:
    assert decode(page(text).encode(codec)).text == page(text)


@pytest.mark.parametrize(("name", "text", "codec", "label"), CHARSETS, ids=IDS)
def test_a_page_is_read_by_the_charset_of_its_header(name: str, text: str, codec: str, label: str) -> None:
    assert decode(page(text).encode(codec), label).text == page(text)


@pytest.mark.parametrize(("name", "text", "codec", "label"), CHARSETS, ids=IDS)
def test_a_page_is_read_by_its_own_meta(name: str, text: str, codec: str, label: str) -> None:
    html = page(text, f'<meta http-equiv="Content-Type" content="text/html; charset={label}">')
    assert decode(html.encode(codec)).text == html


LIES = ["utf-8", "shift_jis", "gb2312", "big5", "euc-kr", "iso-8859-1", "windows-1251", "koi8-r"]
# Latin letters are too few and too alike for the detector: between Latin charsets the declaration counts.
NOT_LATIN = [charset for charset in CHARSETS if charset[0] not in ("windows-1252", "iso-8859-2")]


@pytest.mark.parametrize("lie", LIES)
@pytest.mark.parametrize(("name", "text", "codec", "label"), NOT_LATIN, ids=[charset[0] for charset in NOT_LATIN])
def test_a_lying_charset_is_seen_through(name: str, text: str, codec: str, label: str, lie: str) -> None:
    html = page(text, f"<meta charset={lie}>")
    assert decode(html.encode(codec), lie).text == html


def test_a_short_declared_page_is_believed_over_the_detector() -> None:
    raw = "<p>Zażółć gęślą jaźń</p>".encode("iso8859-2")
    assert decode(raw, "iso-8859-2").text == "<p>Zażółć gęślą jaźń</p>"


@pytest.mark.parametrize(
    ("signs", "label"),
    [("\N{NO-BREAK SPACE}", "koi8-r"), ("“”", "gb18030"), ("“”’—", "gb18030"), ("§¶", "euc-kr"), ("§¶", "shift_jis")],
)
def test_a_few_signs_over_and_over_are_no_evidence_against_a_declaration(signs: str, label: str) -> None:
    """The detector takes them for Polish, or for letters of MS-DOS."""
    page = f"<p>{'It says:' + signs.join([' ', ' so it is ', ' '])}</p>" * 40
    assert decode(page.encode(label), label).text == page


def test_the_header_goes_before_the_meta() -> None:
    raw = b"<meta charset=iso-8859-2><p>\xb1</p>"
    assert decode(raw, "windows-1252").text.endswith("<p>±</p>")
    assert decode(raw).text.endswith("<p>ą</p>")


def test_a_meta_inside_a_comment_declares_nothing() -> None:
    raw = b"<!-- <meta charset=iso-8859-2> --><meta charset=windows-1252><p>\xb1</p>"
    assert decode(raw).encoding == "windows-1252"


def test_an_xml_declaration_declares() -> None:
    assert decode(b"<?xml version='1.0' encoding='iso-8859-2'?><p>\xb1</p>").encoding == "iso-8859-2"


def test_an_unknown_label_is_passed_over() -> None:
    assert decode(page(CHINESE).encode("gbk"), "x-no-such-charset").text == page(CHINESE)


@pytest.mark.parametrize("label", ["utf-7", "unicode_escape", "rot13", "zip", "idna", "replacement"])
def test_codecs_that_are_no_charset_of_the_web_are_never_used(label: str) -> None:
    assert decode(b"<p>+ADw-script \\u0041</p>", label).text == "<p>+ADw-script \\u0041</p>"


@pytest.mark.parametrize("codec", ["utf-16le", "utf-16be"])
def test_utf_16_without_a_mark_is_seen_by_its_zeros(codec: str) -> None:
    assert decode(page(CHINESE).encode(codec)).text == page(CHINESE)


def test_utf_16_with_a_mark_needs_no_zeros() -> None:
    assert decode(CHINESE.encode("utf-16")).text == CHINESE


def test_a_utf_8_page_cut_inside_its_last_character_is_utf_8() -> None:
    decoded = decode(page(CHINESE).encode()[:200])
    assert decoded.encoding == "utf-8"
    assert decoded.text.rstrip("\ufffd") == page(CHINESE).encode()[:200].decode(errors="ignore")


def test_a_utf_8_page_with_one_bad_byte_is_utf_8() -> None:
    raw = page(CHINESE).encode().replace("指纹".encode(), b"\xe6\x8c", 1)
    decoded = decode(raw)
    assert (decoded.encoding, decoded.text.count("\ufffd")) == ("utf-8", 1)


def test_replacement_characters_that_a_page_holds_are_no_broken_bytes() -> None:
    raw = (page(GERMAN) + "\ufffd" * 8).encode() + b"\xff<p>"
    assert decode(raw).text == page(GERMAN) + "\ufffd" * 9 + "<p>"


def test_a_page_declared_utf_8_is_forgiven_more() -> None:
    raw = b"<p>\xe2\x80\x9cquoted\xe2\x80\x9d \xe2\x80\x94 and \xe9</p>"
    assert decode(raw, "utf-8").text == "<p>“quoted” — and \ufffd</p>"
    assert decode(raw).encoding != "utf-8"


def test_one_bad_byte_in_ascii_is_no_utf_8() -> None:
    assert decode(b"<p>It\x92s a caf\xe9</p>").text == "<p>It’s a café</p>"


@pytest.mark.parametrize("codec", ["gbk", "cp932", "cp949", "cp950"])
def test_a_legacy_page_cut_inside_its_last_character_is_read(codec: str) -> None:
    text = {"gbk": CHINESE, "cp932": JAPANESE, "cp949": KOREAN, "cp950": TRADITIONAL}[codec]
    raw = page(text).encode(codec)
    cut = raw[: raw.index(text[-1].encode(codec)) + 1]
    assert decode(cut).text.rstrip("\ufffd") == cut.decode(codec, "ignore")


@pytest.mark.parametrize("codec", ["gbk", "cp932", "cp949", "cp950"])
def test_a_declared_legacy_page_with_one_bad_byte_is_read_as_declared(codec: str) -> None:
    text = {"gbk": CHINESE, "cp932": JAPANESE, "cp949": KOREAN, "cp950": TRADITIONAL}[codec]
    raw = page(text).encode(codec).replace(b"</title>", b"\xfd\xff</title>")
    assert decode(raw, codec).text.endswith(page(text)[40:])


def test_a_declared_page_whose_bad_byte_misleads_the_detector_is_read_as_declared() -> None:
    raw = b"<p>\x80" + TRADITIONAL[:67].encode("cp950")
    assert decode(raw, "big5").text.endswith(TRADITIONAL[:67])


def test_a_declared_gb2312_means_gb18030() -> None:
    assert decode("<p>𠮷㐀 €</p>".encode("gb18030"), "gb2312").text == "<p>𠮷㐀 €</p>"


def test_characters_beyond_the_strict_standard_are_read() -> None:
    assert decode(page(JAPANESE + "①").encode("euc_jis_2004"), "euc-jp").text == page(JAPANESE + "①")


BINARIES = {
    "gzip": gzip.compress(CHINESE.encode() * 20, mtime=0),
    "png": b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR\0\0\0\x10\0\0\0\x10\x08\x02\0\0\0" + zlib.compress(bytes(range(256)) * 3),
    "zeros": bytes(1000),
    "pdf stream": b"%PDF-1.4\n" + zlib.compress(GERMAN.encode() * 9) * 9,
    "every byte": bytes(range(256)) * 4,
}


@pytest.mark.parametrize("raw", BINARIES.values(), ids=BINARIES)
@pytest.mark.parametrize("declared", [None, "utf-8", "windows-1252", "gb18030", "koi8-r", "windows-1256"])
def test_what_is_no_text_is_refused_naming_what_was_tried(raw: bytes, declared: str | None) -> None:
    with pytest.raises(PageError, match=rf"{len(raw)} bytes are text in no charset; tried .*utf-8 \(") as refused:
        decode(raw, declared)
    assert refused.value.stage == "decode"


def test_a_stray_nul_stays_and_many_are_refused() -> None:
    stray = page(GERMAN).replace("Netzes", "Net\0zes")
    assert decode(stray.encode()).text == stray
    with pytest.raises(PageError, match="control characters"):
        decode(b"<p>a\0b\0c\0d</p>")


def test_a_lone_surrogate_in_the_bytes_becomes_a_replacement_character() -> None:
    raw = page(CHINESE).encode() + "\ud800".encode("utf-8", "surrogatepass")
    assert decode(raw).text.rstrip("\ufffd") == page(CHINESE)


def test_an_empty_page_is_an_empty_text() -> None:
    assert decode(b"").text == ""


@given(raw=st.binary(max_size=400), declared=st.none() | st.sampled_from([charset[3] for charset in CHARSETS]))
def test_any_bytes_give_clean_text_or_a_page_error(raw: bytes, declared: str | None) -> None:
    with contextlib.suppress(PageError):
        decode(raw, declared).text.encode("utf-8")


@given(text=st.text(st.characters(exclude_categories=["Cs", "Cc"]), max_size=200))
def test_any_utf_8_text_comes_back(text: str) -> None:
    assert decode(text.encode()).text == text.removeprefix("\ufeff")


@given(st.text(st.characters(max_codepoint=0xC0) | st.characters(exclude_categories=["Cs"]), max_size=300))
def test_controls_are_counted_alike_with_the_kernel_and_without(text: str) -> None:
    utf8 = text.encode()
    counted = sum(ord(character) in CONTROLS for character in text)
    assert count_controls_in_numpy(utf8) == native.count_controls(utf8) == counted


@given(st.binary(max_size=40) | st.text(max_size=20).map(lambda text: text.encode("utf-16")))
def test_bytes_are_utf8_for_the_kernel_where_they_are_for_python(data: bytes) -> None:
    try:
        data.decode()
    except UnicodeDecodeError:
        assert not native.is_utf8(data)
    else:
        assert native.is_utf8(data)


JIS = f"<meta charset=iso-2022-jp><p>{JAPANESE}</p>".encode("iso2022_jp")


@pytest.mark.parametrize(
    "raw",
    [
        JIS.replace(b"</p>", b"\x1b$B-!\x1b(B</p>"),  # a circled one, which Windows has and Python's codecs have not
        JIS + b"\xff",
        JIS[: JIS.rindex(b"\x1b(B") - 3],
    ],
    ids=["a character of Windows", "a bad byte", "cut inside a character"],
)
def test_an_iso_2022_page_with_one_broken_character_is_read(raw: bytes) -> None:
    found = decode(raw)
    assert found.encoding == "iso-2022-jp"
    assert JAPANESE[:50] in found.text


def test_dollars_behind_an_escape_are_no_iso_2022() -> None:
    assert decode(b"prompt \x1b$ and more of it" * 20).encoding == "utf-8"


@pytest.mark.parametrize("stray", [b"\xe2\x80\x9d", b"\x8d", b"\x81"])
def test_windows_charsets_have_all_their_bytes(stray: bytes) -> None:
    """WHATWG's index maps the five that Python's codec lacks to control characters."""
    text = "après l'été, où êtes-vous ? ça va très bien à côté de la forêt " * 3
    found = decode(b"<meta charset=iso-8859-1>" + text.encode("cp1252") + stray)
    assert found.encoding == "windows-1252"
    assert text in found.text


@pytest.mark.parametrize("codec", ["utf-16le", "utf-16be"])
def test_a_short_page_in_utf_16_is_read_as_its_header_says(codec: str) -> None:
    html = f"<title>中文</title><p>{CHINESE[:40]}"
    assert decode(html.encode(codec), codec).text == html


def test_a_header_of_utf_16_does_not_make_chinese_of_single_bytes() -> None:
    html = f"<p>{GERMAN}"
    raw = html.encode("cp1252")
    assert decode(raw[: len(raw) // 2 * 2], "utf-16le").encoding == "windows-1252"


def test_of_many_declarations_few_are_tried() -> None:
    labels = [label for _, _, _, label in CHARSETS if not label.lower().startswith("utf")]
    metas = "".join(f"<meta charset={label}>" for label in labels).encode()
    with pytest.raises(PageError) as refused:
        decode(metas + b"\x02\xff" * 500)
    tried = str(refused.value).partition("tried ")[2]
    assert sum(label.lower() in tried for label in dict.fromkeys(labels)) <= 6
