"""Log lines of several consumers, which write to one place."""

import json
import subprocess
import sys

import pytest

from simhash.errors import IndexMigrated
from worker.errors import report

SAID = """
import logging, sys
from worker import logs
from worker.errors import report
from worker.errors import SettingsError
logs.configure("info", sys.argv[1], whose="consumer 2")
logging.getLogger("worker").info("reading")
report(SettingsError("no such topic"), "consumer 2")
"""


def said(form):
    return subprocess.run([sys.executable, "-c", SAID, form], capture_output=True, text=True).stderr.splitlines()


@pytest.mark.slow
def test_each_line_says_whose_it_is():
    log, error = said("text")
    assert "consumer 2" in log
    assert error == "simhash-dedup: consumer 2: no such topic"
    assert json.loads(said("json")[0])["of"] == "consumer 2"


def test_who_meets_a_migration_is_told_to_begin_again(capsys):
    report(IndexMigrated("the index was migrated meanwhile"))
    assert capsys.readouterr().err == "simhash-dedup: the index was migrated meanwhile. Give the command again\n"
