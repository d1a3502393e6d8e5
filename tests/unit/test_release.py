"""A release: its tag fits the tree, its workflow is one that GitHub reads and asks for what there is."""

import re
import shutil
import subprocess
import sys

import pytest
from ruamel.yaml import YAML

from deploy.release import ROOT, faults, notes, unreleased, versions
from tests.unit.test_documents import TARGETS

WORKFLOW = ROOT / ".github" / "workflows" / "release.yml"
CHANGELOG = """# Changelog

## Unreleased

## 0.3.0 - 2026-12-01

### Added

- A thing.

## 0.2.0 - 2026-11-01

- An older thing.
"""


@pytest.fixture
def tree(tmp_path):
    """A tree that is ready for the tag v0.3.0."""
    (tmp_path / "native").mkdir()
    for name in versions():
        shutil.copy(ROOT / name, tmp_path / name)
        put(tmp_path / name, versions()[name], "0.3.0")
    (tmp_path / "CHANGELOG.md").write_text(CHANGELOG)
    return tmp_path


def put(path, old, new):
    path.write_text(path.read_text().replace(f'version = "{old}"', f'version = "{new}"'))


def test_the_tree_names_one_version():
    assert len(set(versions().values())) == 1


def test_a_tree_that_fits_its_tag_has_no_faults(tree):
    assert list(faults("v0.3.0", tree)) == []


@pytest.mark.parametrize("name", versions())
def test_each_file_of_another_version_is_named(tree, name):
    put(tree / name, "0.3.0", "0.2.9")
    assert list(faults("v0.3.0", tree)) == [f"{name} has version 0.2.9, the tag says 0.3.0"]


def test_a_tag_that_is_no_version_and_a_changelog_that_does_not_know_it_are_told(tree):
    assert [fault.split(",")[0] for fault in faults("0.4", tree)] == [
        "a release's tag is v1.2.3 or v1.2.3rc1",
        *(f"{name} has version 0.3.0" for name in versions()),
        "CHANGELOG.md has no section `## 0.4 - YYYY-MM-DD` with something in it",
    ]


def test_what_is_still_unreleased_is_told(tree):
    (tree / "CHANGELOG.md").write_text(CHANGELOG.replace("## Unreleased\n", "## Unreleased\n\n- Forgotten.\n"))
    assert list(faults("v0.3.0", tree)) == [
        "CHANGELOG.md still has lines under Unreleased: they belong to this version"
    ]


def test_the_notes_of_a_version_are_its_section():
    assert notes(CHANGELOG, "0.3.0") == "### Added\n\n- A thing."
    assert notes(CHANGELOG, "0.2.0") == "- An older thing."
    assert notes(CHANGELOG, "0.1.0") == unreleased(CHANGELOG) == ""


def test_the_command_ends_with_a_line_for_each_fault():
    done = subprocess.run(
        [sys.executable, "-m", "deploy.release", "v99.0.0"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.count("release: ") >= 4


# --- the workflow


def test_the_workflow_follows_its_schema():
    command = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", "vendor.github-workflows", str(WORKFLOW)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_nothing_is_published_before_everything_was_built_and_tried():
    jobs = YAML(typ="safe").load(WORKFLOW)["jobs"]
    assert set(jobs["publish"]["needs"]) == jobs.keys() - {"fits", "publish"}
    assert all(
        "fits" in job["needs"] for job in jobs.values() if job is not jobs["fits"] and "tests" not in job["needs"]
    )


def test_the_workflow_asks_for_what_there_is():
    text = WORKFLOW.read_text()
    assert set(re.findall(r"make ([a-z-]+)", text)) <= TARGETS
    assert all((ROOT / name).exists() for name in re.findall(r"file: (\S+)", text))


def test_every_action_has_a_version():
    used = re.findall(r"uses: (\S+)", WORKFLOW.read_text())
    assert used
    assert all(re.search(r"@(v\d|release/v\d)", each) for each in used)
