"""A command's result is never written to a file that the command reads, whatever it is called there."""

import pytest
from click.testing import CliRunner

from worker.cli.main import commands
from worker.errors import InputError


@pytest.mark.parametrize(
    "command",
    [
        "verify GIVEN --summary-json LINK",
        "verify OTHER --input OTHER --dead-letters GIVEN --summary-json GIVEN",
        "verify --export GIVEN --summary-json GIVEN",
        "report GIVEN --out GIVEN --force",
        "report OTHER --force --pages GIVEN --out LINK",
        "hosts OTHER GIVEN --out GIVEN",
        "evaluate GIVEN --pages OTHER --wrong-out GIVEN",
        "evaluate --pages OTHER --pairs GIVEN --json GIVEN",
        "evaluate --pages OTHER --labels GIVEN --pairs-out GIVEN",
        "plan --documents 1000 --urls GIVEN --dictionary-out GIVEN",
        "index delete http://a/ --verdicts GIVEN --takedowns GIVEN",
        "batch OTHER --against GIVEN --out out --summary-json GIVEN",
        "file GIVEN --out out --summary-json LINK",
    ],
)
def test_an_input_is_not_overwritten(tmp_path, command):
    for name in ("GIVEN", "OTHER"):
        (tmp_path / name).write_bytes(b"{}\n")
    (tmp_path / "LINK").symlink_to("GIVEN")
    given = [str(tmp_path / word) if word.isupper() or word == "out" else word for word in command.split()]
    error = CliRunner().invoke(commands, given).exception
    assert isinstance(error, InputError)
    written = tmp_path / ("LINK" if "LINK" in command else "GIVEN")
    assert str(error) == f"{written} is an input: writing to it would destroy it"
    assert (tmp_path / "GIVEN").read_bytes() == b"{}\n"


def test_a_file_of_a_directory_that_is_read_is_not_overwritten(tmp_path):
    (tmp_path / "in").mkdir()
    written = tmp_path / "in" / "a.jsonl"
    for name in ("a", "b"):
        (tmp_path / "in" / f"{name}.jsonl").write_bytes(b"{}\n")
    error = CliRunner().invoke(commands, ["file", str(tmp_path / "in"), "--out", str(written), "--force"]).exception
    assert isinstance(error, InputError)
    assert str(error) == f"{written} is an input: writing to it would destroy it"
    assert written.read_bytes() == b"{}\n"
