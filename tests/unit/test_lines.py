"""Lines of files that hold no pages: which there are, and that none is held whole that has no end."""

import gzip
import io
from pathlib import Path

import pytest
import zstandard
from click.testing import CliRunner

from worker import lines
from worker.cli.main import commands
from worker.errors import InputError
from worker.lines import lines_in, lines_of

BOM = b"\xef\xbb\xbf"
GIVEN = BOM + b"one\r\n\n  \n" + BOM + b"two\nthree"
LINES = [(1, b"one\r\n"), (4, BOM + b"two\n"), (5, b"three")]


@pytest.mark.parametrize("packed", [bytes, gzip.compress, zstandard.compress])
def test_lines_have_their_numbers_and_blank_ones_are_none(tmp_path: Path, packed) -> None:
    (tmp_path / "file").write_bytes(packed(GIVEN))
    assert list(lines_in(tmp_path / "file")) == LINES


def test_a_line_may_be_as_long_as_the_longest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lines, "LONGEST_LINE_BYTES", 5)
    assert list(lines_of(io.BytesIO(b"four\n12345"))) == [(1, b"four\n"), (2, b"12345")]
    with pytest.raises(OSError, match="more than 5 bytes"):
        list(lines_of(io.BytesIO(b"12345\n")))


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    (tmp_path / "cut.gz").write_bytes(gzip.compress(GIVEN)[:-4])
    for name, said in (("none", "No such file"), ("cut.gz", "ended before"), (".", "directory")):
        with pytest.raises(InputError, match=f"{name}.*{said}"):
            list(lines_in(tmp_path / name))


@pytest.mark.slow
@pytest.mark.parametrize(
    "command",
    [
        "verify BOMB",
        "verify ONE --dead-letters BOMB",
        "verify ONE --takedowns BOMB",
        "verify ONE --export BOMB",
        "report BOMB --out OUT",
        "hosts BOMB --out OUT",
        "plan --documents 1000 --urls BOMB",
        "evaluate --pages PAGES --pairs BOMB --processes 1",
        "tables build BOMB --out OUT",
        "tables build BEHIND --out OUT",
        "tables lookup TABLES -",
        "tables merge TABLES --forget BOMB --out OUT",
    ],
)
def test_a_file_without_an_end_of_line_is_refused_by_every_command(
    tmp_path: Path, command: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lines, "LONGEST_LINE_BYTES", 1 << 18)
    bomb = bytes(1 << 20)
    (tmp_path / "BOMB").write_bytes(zstandard.compress(bomb))
    (tmp_path / "BEHIND").write_bytes(b"0123456789abcdef\n" * 20_000 + bomb)
    (tmp_path / "PAGES").write_text('{"url": "http://example.org/", "text": "a page of some words"}\n')
    run = CliRunner().invoke
    assert run(commands, ["file", str(tmp_path / "PAGES"), "--out", str(tmp_path / "ONE"), "-q"]).exit_code == 0
    (tmp_path / "hex").write_text("0123456789abcdef\n")
    assert run(commands, ["tables", "build", str(tmp_path / "hex"), "-o", str(tmp_path / "TABLES")]).exit_code == 0
    given = [str(tmp_path / word) if word.isupper() else word for word in command.split()]
    result = run(commands, given, input=bomb)
    assert isinstance(result.exception, InputError), result.output
    assert "a line has more than 262,144 bytes" in str(result.exception)
