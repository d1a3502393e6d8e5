"""Where settings come from, what is wrong with them, and that no secret is ever shown."""

import tomllib

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ByteSize, SecretStr

from worker.errors import SettingsError
from worker.settings import Settings, load, masked_url, written


@pytest.fixture
def toml(tmp_path):
    def write(text):
        path = tmp_path / "dedup.toml"
        path.write_text(text)
        return path

    return write


def test_flags_win_over_environment_over_file_over_the_commands_defaults(toml, monkeypatch):
    config = toml('batch_pages = 1\nprofile = "a"\nindex_name = "file"\n')
    monkeypatch.setenv("SIMHASH_DEDUP_BATCH_PAGES", "2")
    monkeypatch.setenv("SIMHASH_DEDUP_PROFILE", "b")
    found = load({"batch_pages": "3"}, config, {"batch_pages": 4, "index_name": "default", "documents": 5})
    assert (found.batch_pages, found.profile, found.index_name, found.documents) == (3, "b", "file", 5)


def test_the_file_can_be_named_in_the_environment(toml, monkeypatch):
    monkeypatch.setenv("SIMHASH_DEDUP_CONFIG", str(toml("batch_pages = 7")))
    assert load({}).batch_pages == 7


@pytest.mark.parametrize(
    ("flag", "value", "message"),
    [
        ("batch_pages", "0", "batch_pages (flag --batch-pages): Input should be greater than or equal to 1"),
        ("max_age", "soon", "max_age (flag --max-age): 'soon' is no duration: write 30s, 15m, 12h or 90d"),
        ("max_age", "inf", "max_age (flag --max-age): 'inf' is no duration"),
        ("page_format", "xml", "page_format (flag --page-format): Input should be 'json' or 'html'"),
        (
            "bootstrap_servers",
            "a:1, http://b:2",
            "bootstrap_servers (flag --bootstrap-servers): 'http://b:2' is no host",
        ),
        ("metrics_address", "9108", "metrics_address (flag --metrics-address): String should match pattern"),
        ("kafka_ca_file", "/no/such.pem", "kafka_ca_file (flag --kafka-ca-file): Path does not point to a file"),
        ("verdict_topic", "pages", "settings: input_topic, verdict_topic, dead_letter_topic, "),
        ("hosts_topic", "verdicts", "settings: input_topic, verdict_topic, dead_letter_topic, "),
        ("kafka_security_protocol", "SASL_SSL", "settings: SASL needs kafka_sasl_mechanism, kafka_username and"),
    ],
)
def test_a_wrong_flag_is_named_with_its_source(flag, value, message):
    with pytest.raises(SettingsError) as caught:
        load({flag: value})
    assert str(caught.value).startswith(message)


def test_no_more_documents_than_there_are_numbers_are_taken():
    assert load({"documents": str(2**46 - 1)}).documents == 2**46 - 1
    with pytest.raises(
        SettingsError, match=r"documents .flag --documents.: Input should be less than or equal to 7036"
    ):
        load({"documents": str(2**46)})


def test_a_wrong_variable_is_named_with_its_source(monkeypatch):
    monkeypatch.setenv("SIMHASH_DEDUP_BATCH_PAGES", "many")
    with pytest.raises(SettingsError, match=r"^batch_pages \(environment SIMHASH_DEDUP_BATCH_PAGES\): "):
        load({})


def test_everything_wrong_with_a_file_is_said_at_once_and_where(toml):
    config = toml("batch_pages = 0\nnonsense = 1\nredis_ulr = ''\n[kafka]\nx = 1\n")
    with pytest.raises(SettingsError) as caught:
        load({}, config)
    assert sorted(str(caught.value).splitlines()) == [
        f"batch_pages (configuration file {config}): Input should be greater than or equal to 1",
        f"kafka: no setting has this name (configuration file {config})",
        f"nonsense: no setting has this name (configuration file {config})",
        f"redis_ulr: no setting has this name (configuration file {config}) (did you mean redis_url?)",
    ]


def test_what_is_no_toml_is_said_with_its_place(toml):
    with pytest.raises(SettingsError, match=r"dedup\.toml: .*line 1"):
        load({}, toml("batch_pages = = 0"))


def test_a_file_that_is_not_there_is_said(tmp_path):
    for path in (tmp_path / "none.toml", tmp_path):
        with pytest.raises(SettingsError, match="there is no configuration file"):
            load({}, path)


def test_a_misspelt_variable_is_refused_but_not_what_kubernetes_adds(monkeypatch):
    monkeypatch.setenv("SIMHASH_DEDUP_SERVICE_HOST", "10.0.0.1")
    monkeypatch.setenv("SIMHASH_DEDUP_SERVICE_PORT_METRICS", "9108")
    monkeypatch.setenv("SIMHASH_DEDUP_PORT", "tcp://10.0.0.1:9108")
    monkeypatch.setenv("SIMHASH_DEDUP_PORT_9108_TCP_ADDR", "10.0.0.1")
    load({})
    monkeypatch.setenv("SIMHASH_DEDUP_BATCHPAGES", "5")
    monkeypatch.setenv("SIMHASH_DEDUP_NONSENSE", "5")
    with pytest.raises(SettingsError) as caught:
        load({})
    named = "SIMHASH_DEDUP_BATCHPAGES (did you mean SIMHASH_DEDUP_BATCH_PAGES?), SIMHASH_DEDUP_NONSENSE"
    assert str(caught.value) == f"unknown environment variable {named}: no setting has that name"


def test_metrics_can_be_switched_off_from_the_environment_too(monkeypatch):
    monkeypatch.setenv("SIMHASH_DEDUP_METRICS_ADDRESS", "off")
    assert load({}).metrics_address == ""


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("redis://h:1/0", "redis://h:1/0"),
        ("redis://:sesame@h:1/0", "redis://:***@h:1/0"),
        ("rediss://user:sesame@h:1/0", "rediss://user:***@h:1/0"),
        ("redis://:se@sa/me@h:1/0", "redis://:***@h:1/0"),
        ("redis://sesame@h", "redis://:***@h"),
        ("redis://h:1/0?password=sesame&db=1", "redis://h:1/0?password=***&db=1"),
        ("unix://:sesame@/run/redis.sock?db=1", "unix://:***@/run/redis.sock?db=1"),
    ],
)
def test_a_url_is_shown_without_its_password(url, shown):
    assert masked_url(url) == shown


@pytest.mark.parametrize("url", ["redis://h:1/abc", "redis+cluster://h:1,g:2/x", "rediss://h/0x1?db=2"])
def test_a_database_that_is_no_number_is_refused(url):
    """The driver would take it for database 0."""
    with pytest.raises(SettingsError, match="number of a database"):
        load({"redis_url": url})


@pytest.mark.parametrize("url", ["sesame", "http://:sesame@h/0", "redis://:sesame/2@h:1/0", "redis://:ses@me@h:1"])
def test_a_url_that_is_refused_is_not_repeated(url):
    with pytest.raises(SettingsError) as caught:
        load({"redis_url": url})
    assert "redis_url (flag --redis-url)" in str(caught.value)
    assert "ses" not in str(caught.value)


def test_secrets_are_masked_in_the_settings_as_text():
    found = load({"redis_url": "redis://:sesame@h:1/0", "kafka_password": "sesame", "kafka_username": "u"})
    assert "sesame" not in found.toml() + repr(found) + str(found)
    assert 'redis_url = "redis://:***@h:1/0"' in found.toml().splitlines()
    assert 'kafka_password = "***"' in found.toml().splitlines()


@pytest.mark.slow
@given(
    st.fixed_dictionaries(
        {},
        optional={
            "kafka_username": st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1),
            "max_page_bytes": st.integers(1, 1 << 40),
            "max_age": st.floats(0.001, 1e9),
            "batch_pages": st.integers(1, 10_000),
            "unique_topic": st.just("pages.unique"),
            "metrics_address": st.sampled_from(["", "[::1]:9108"]),
        },
    )
)
def test_the_printed_settings_load_to_the_same(flags):
    first = load(flags)
    values = tomllib.loads(first.toml())
    assert Settings(**values | {"_toml": None, "_defaults": {}}) == first


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, None),
        (ByteSize(10 << 20), "10MiB"),
        (ByteSize((10 << 20) + 1), "10485761"),
        (ByteSize(1024), "1KiB"),
        (20.0, "20s"),
        (0.25, "0.25"),
        (SecretStr("sesame"), "***"),
        (7, "7"),
    ],
)
def test_values_are_written_as_one_would_write_them(value, text):
    assert written(value) == text
