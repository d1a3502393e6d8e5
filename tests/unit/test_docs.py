"""The documents say what the code does: tables held to the code, files named that exist, imports one way only."""

import ast
import re
from collections import Counter
from pathlib import Path

import pytest
from click.testing import CliRunner
from prometheus_client import CollectorRegistry
from pydantic import ByteSize, SecretStr

import simhash.errors
import worker.errors
from simhash.index.redis.layout import Layout
from simhash.relation.tables import NAMES, design
from simhash.signature.profiles import PROFILES
from worker.ageing.keeper import AgeingMetrics
from worker.cli.main import commands
from worker.settings import Settings
from worker.stream.metrics import Metrics

ROOT = Path(__file__).parents[2]
PAGES = sorted(
    [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), ROOT / "samples/README.md", ROOT / "deploy/README.md"]
)
ARCHITECTURE = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")


def shown_default(value):
    """A default as the page on settings writes it."""
    if isinstance(value, SecretStr):
        value = value.get_secret_value()
    if isinstance(value, ByteSize):
        return value.human_readable()
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float):
        return f"{value:g}s"
    return "" if value is None else str(value)


def settings_rows():
    """The rows about settings, made from the code."""
    for name, field in Settings.model_fields.items():
        default = shown_default(field.default)
        yield f"| `{name}` | {f'`{default}`' if default else ''} | {field.description} |"


def page(name):
    """A page of the documents."""
    return (ROOT / "docs" / f"{name}.md").read_text(encoding="utf-8")


def test_every_setting_stands_in_its_table_as_it_is():
    table = [line for line in page("settings").splitlines() if re.match(r"\| `[a-z_]+` \|", line)]
    rows = list(settings_rows())
    assert [row for row in rows if row not in table] == []


@pytest.mark.parametrize("name", commands.lazy)
def test_every_command_stands_in_its_table_and_has_help_that_teaches(name):
    assert f"| `simhash-dedup {name}" in page("commands")
    shown = CliRunner().invoke(commands, [name, "--help"])
    assert shown.exit_code == 0
    assert len(shown.output.splitlines()) > 8


@pytest.mark.parametrize(("module", "base"), [(simhash.errors, "SimhashError"), (worker.errors, "WorkerError")])
def test_every_error_stands_in_its_modules_tree_under_what_it_is_one_of(module, base):
    drawn, above = [], {}
    for line in module.__doc__.splitlines():
        if found := re.match(r"    ([ │]*(?:[├└]── )?)([A-Z]\w+)", line):
            depth, name = len(found[1]) // 4, found[2]
            above[depth] = name
            drawn.append((name, above[depth - 1] if depth else "Exception"))
    errors = [each for each in vars(module).values() if isinstance(each, type) and each.__module__ == module.__name__]
    assert drawn[0] == (base, "Exception")
    assert sorted(drawn) == sorted((each.__name__, each.__bases__[0].__name__) for each in errors)


def test_every_metric_stands_in_its_table():
    registry = CollectorRegistry()
    Metrics(registry)
    AgeingMetrics(registry)
    names = {metric.name + ("_total" if metric.type == "counter" else "") for metric in registry.collect()}
    assert {name for name in names if f"| `{name}" not in page("operations")} == set()


@pytest.mark.parametrize("name", NAMES)
def test_every_design_stands_in_the_architecture(name):
    found = design(name)
    prefixes = sorted({table.prefix for table in found.tables})
    p = str(prefixes[0]) if len(prefixes) == 1 else f"{prefixes[0]}..{prefixes[-1]}"
    assert re.search(
        rf"^\| `{re.escape(name)}` \| .* \| {len(found.tables)} \| {found.k} \| {p} \|", ARCHITECTURE, re.M
    )


@pytest.mark.parametrize("name", PROFILES)
def test_every_profile_stands_in_its_table(name):
    assert f"| `{name}` |" in page("profiles")


def test_the_key_layout_in_the_architecture_is_the_codes():
    import simhash.index.redis.layout

    keys = re.findall(r"^    (\{ns\}:\S+)", simhash.index.redis.layout.__doc__ or "", re.M)
    assert len(keys) == 8
    assert [key for key in keys if f"`{key}" not in ARCHITECTURE] == []
    assert Layout.__doc__


def imports_of(path):
    tree = ast.parse(path.read_text(encoding="utf-8"))
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module


def modules(folder):
    return sorted((ROOT / folder).rglob("*.py"))


def test_imports_point_one_way():
    """The library knows neither the pipeline nor Kafka nor the environment."""
    for path in modules("simhash"):
        found = {name.split(".")[0] for name in imports_of(path)}
        assert found.isdisjoint({"worker", "kafka", "tests", "deploy", "benchmarks", "prometheus_client", "click"}), (
            path
        )


@pytest.mark.slow
def test_the_kafka_client_is_imported_in_one_folder_only():
    users = {
        path
        for path in [*modules("simhash"), *modules("worker")]
        if "kafka" in {n.split(".")[0] for n in imports_of(path)}
    }
    assert {path.parent for path in users} == {ROOT / "worker" / "stream" / "kafka"}


def test_redis_is_imported_where_it_is_spoken_and_built_only():
    users = {
        path
        for path in [*modules("simhash"), *modules("worker")]
        if "redis" in {n.split(".")[0] for n in imports_of(path)}
    }
    names = {str(path.relative_to(ROOT)) for path in users}
    assert names <= {
        "simhash/index/redis/faults.py",
        "simhash/index/redis/index.py",
        "simhash/index/redis/opening.py",
        "simhash/index/redis/server.py",
        "worker/index/sentinel.py",
        "worker/index/slot.py",
        "worker/index/stores.py",
        "worker/files/embedded.py",
    }


def test_the_environment_is_read_in_one_place():
    readers = {
        p.name for p in [*modules("simhash"), *modules("worker")] if re.search(r"os\.(environ|getenv)\b", p.read_text())
    }
    for_libraries = {"__main__.py", "supervisor.py"}  # set there what NumPy and prometheus-client read
    assert readers <= {"main.py", "settings.py", *for_libraries}


def test_tests_lie_where_it_says_that_they_need_no_server():
    """`make unit` is for a machine without one."""
    own = Path(__file__)
    for path in sorted(own.parent.glob("*.py")):
        named = re.findall(
            r"\b(?:tests\.servers|deploy\.local\.(?:brokers|stores)|(?:redis|kafka)_server)\b", path.read_text()
        )
        assert path == own or named == [], path


def test_packages_only_re_export():
    for path in (ROOT / "simhash" / "index" / "__init__.py", ROOT / "worker" / "stream" / "kafka" / "__init__.py"):
        body = ast.parse(path.read_text(encoding="utf-8")).body
        assert all(isinstance(node, ast.Expr | ast.ImportFrom | ast.Assign) for node in body), path


@pytest.mark.parametrize("path", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_links_between_documents_lead_somewhere(path):
    for target in re.findall(r"\]\(([^)#]+)[^)]*\)", path.read_text(encoding="utf-8")):
        if "://" not in target:
            assert (path.parent / target).exists(), target


def test_every_module_says_what_it_is_for():
    for path in [*modules("simhash"), *modules("worker")]:
        assert ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))), path


def twice(names):
    return sorted(name for name, count in Counter(names).items() if count > 1)


@pytest.mark.slow
def test_one_name_is_one_type():
    trees = [ast.parse(path.read_text(encoding="utf-8")) for path in [*modules("simhash"), *modules("worker")]]
    assert not twice(node.name for tree in trees for node in ast.walk(tree) if isinstance(node, ast.ClassDef))


def test_one_name_is_one_file():
    """But for a command's, which is called as what it looks into, and the errors of the library and of the pipeline."""
    files = [path for path in [*modules("simhash"), *modules("worker")] if "cli" not in path.parts]
    assert not twice(path.name for path in files if not path.name.startswith("__") and path.name != "errors.py")


def test_whatever_the_image_carries_has_its_notice():
    carried = set(re.findall(r"^([a-z0-9_.-]+)==", (ROOT / "requirements.lock").read_text(), re.M))
    named = set(re.findall(r"^\| ([a-z][a-z0-9_.-]*) \|", (ROOT / "THIRD_PARTY.md").read_text(), re.M)) - {"package"}
    assert named == carried


def test_what_security_names_is_there():
    for path in re.findall(r"`((?:tests|deploy)/[^`]+)`", (ROOT / "SECURITY.md").read_text()):
        assert (ROOT / path).exists(), path
