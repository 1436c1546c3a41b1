"""If these fail, a URL opens another place than it says, or secrets and data travel where they should not."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from warpdata.errors import AuthenticationError, BadInputError
from warpdata.settings import S3Settings, Settings, load_settings
from warpdata.storage import LocalStore, ObjectStore, normalize_url, open_store, resolve_s3

KEYS = S3Settings(access_key_id="key", secret_access_key="secret", ambient_credentials=False)


def _settings(s3: S3Settings = KEYS) -> Settings:
    return Settings(store_url="memory://unused", cache_dir=Path("unused"), s3=s3)


# URLs


@pytest.mark.parametrize(
    ("given_url", "normal"),
    [
        ("/data/store", "file:///data/store"),
        ("/data/store/", "file:///data/store"),
        ("/a b/ü#?%", "file:///a%20b/%C3%BC%23%3F%25"),
        ("file:///data/store", "file:///data/store"),
        ("file:///data/store/", "file:///data/store"),
        ("file://localhost/data", "file:///data"),
        ("file:///a b", "file:///a%20b"),
        ("file:///", "file:///"),
        ("s3://bucket/prefix/", "s3://bucket/prefix"),
        ("s3://bucket", "s3://bucket"),
        ("https://host/path//", "https://host/path"),
        ("memory://", "memory://"),
    ],
)
def test_a_root_has_one_spelling(given_url: str, normal: str) -> None:
    assert normalize_url(given_url) == normal
    assert normalize_url(normal) == normal


def test_a_relative_path_is_meant_from_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert normalize_url("lake") == (tmp_path / "lake").as_uri()
    monkeypatch.setenv("HOME", str(tmp_path))
    assert normalize_url("~/lake") == (tmp_path / "lake").as_uri()


names = st.text(st.characters(blacklist_characters="/\0", blacklist_categories=["Cs"]), min_size=1, max_size=20)


@given(st.lists(names.filter(lambda name: name not in (".", "..")), min_size=1, max_size=4))
def test_a_path_and_its_url_open_the_same_directory(parts: list[str]) -> None:
    path = Path("/", *parts)
    url = normalize_url(str(path))
    assert open_store(url, _settings()).url == url == path.as_uri()


@pytest.mark.parametrize(
    "url",
    [
        "",
        "\0",
        "file:///a\0b",
        "ftp://host/x",
        "s3a://bucket/x",
        "exec://rm",
        "file://data/store",  # two slashes: `data` would be a host
        "file://",
        "file:///data#1",
        "file:///data?x=1",
    ],
)
def test_what_names_no_store_is_refused(url: str) -> None:
    with pytest.raises(BadInputError) as caught:
        open_store(url, _settings())
    assert repr(url) in caught.value.message


def test_an_unknown_scheme_is_refused_with_a_hint() -> None:
    with pytest.raises(BadInputError) as caught:
        normalize_url("ftp://host")
    assert caught.value.hint
    assert "s3://" in caught.value.hint


@pytest.mark.parametrize("url", ["s3://", "s3:///prefix"])
def test_s3_needs_a_bucket(url: str) -> None:
    with pytest.raises(BadInputError, match="no bucket"):
        open_store(url, _settings())


def test_opening_creates_nothing_and_sends_no_request(tmp_path: Path) -> None:
    assert isinstance(open_store(str(tmp_path / "lake"), _settings()), LocalStore)
    assert isinstance(open_store("s3://bucket/prefix", _settings()), ObjectStore)
    assert isinstance(open_store("https://192.0.2.1/nobody", _settings()), ObjectStore)
    assert list(tmp_path.iterdir()) == []


# Plain http


def test_plain_http_to_s3_needs_consent() -> None:
    plain = replace(KEYS, endpoint_url="http://127.0.0.1:1")
    with pytest.raises(BadInputError, match="unprotected") as caught:
        open_store("s3://bucket", _settings(plain))
    assert caught.value.hint
    assert "AWS_ALLOW_HTTP" in caught.value.hint
    open_store("s3://bucket", _settings(replace(plain, allow_http=True)))
    open_store("s3://bucket", _settings(replace(plain, endpoint_url="https://127.0.0.1:1")))


# Credentials


@pytest.fixture
def aws(tmp_path: Path) -> S3Settings:
    (tmp_path / "credentials").write_text(
        "[default]\naws_access_key_id = default-key\naws_secret_access_key = default-secret\n"
        "[team]\naws_access_key_id = team-key\naws_secret_access_key = team%secret\naws_session_token = team-token\n"
        "[half]\naws_access_key_id = half-key\n"
    )
    (tmp_path / "config").write_text(
        "[default]\nregion = eu-north-1\n"
        "[profile team]\nregion = eu-central-1\nendpoint_url = https://s3.team\naws_access_key_id = not-this-one\n"
        "[team]\nregion = not-this-section\n"
    )
    return S3Settings(
        credentials_file=tmp_path / "credentials", config_file=tmp_path / "config", ambient_credentials=False
    )


def test_the_default_profile_is_found(aws: S3Settings) -> None:
    found = resolve_s3(aws)
    assert (found.access_key_id, found.secret_access_key, found.region) == (
        "default-key",
        "default-secret",
        "eu-north-1",
    )


def test_a_named_profile_is_found_in_both_files(aws: S3Settings) -> None:
    assert resolve_s3(replace(aws, profile="team")) == replace(
        aws,
        profile="team",
        access_key_id="team-key",
        secret_access_key="team%secret",
        session_token="team-token",
        region="eu-central-1",
        endpoint_url="https://s3.team",
    )


def test_keys_in_the_environment_win_over_a_profile(aws: S3Settings) -> None:
    found = resolve_s3(replace(aws, profile="team", access_key_id="env-key", secret_access_key="env-secret"))
    assert (found.access_key_id, found.secret_access_key) == ("env-key", "env-secret")
    assert found.session_token is None, "a token belongs to the keys it came with"
    assert found.region == "eu-central-1", "but the region is still the profile's"


def test_region_and_endpoint_in_the_environment_win_over_a_profile(aws: S3Settings) -> None:
    found = resolve_s3(replace(aws, profile="team", region="here", endpoint_url="https://there"))
    assert (found.region, found.endpoint_url) == ("here", "https://there")


@pytest.mark.parametrize("profile", ["half", "absent"])
def test_a_profile_without_keys_is_an_error_that_names_it(aws: S3Settings, profile: str) -> None:
    with pytest.raises(AuthenticationError, match=profile) as caught:
        resolve_s3(replace(aws, profile=profile, ambient_credentials=True))
    assert caught.value.hint


def test_half_a_pair_of_keys_is_no_key(aws: S3Settings) -> None:
    nowhere = replace(aws, credentials_file=None, config_file=None)
    with pytest.raises(AuthenticationError):
        resolve_s3(replace(nowhere, access_key_id="env-key"))
    with pytest.raises(AuthenticationError):
        resolve_s3(replace(nowhere, secret_access_key="env-secret"))


def test_missing_credentials_are_reported_at_once() -> None:
    begun = time.monotonic()
    with pytest.raises(AuthenticationError) as caught:
        open_store("s3://bucket", load_settings())
    assert time.monotonic() - begun < 1
    assert caught.value.hint
    assert "AWS_PROFILE" in caught.value.hint


def test_a_public_bucket_needs_no_credentials() -> None:
    open_store("s3://bucket", _settings(S3Settings(skip_signature=True, ambient_credentials=False)))


@pytest.mark.parametrize("content", [b"no section\n", b"[a]\nx=1\nx=2\n", b"[a]\n\xff\xfe=1\n"])
def test_a_broken_configuration_file_is_named(aws: S3Settings, content: bytes) -> None:
    assert aws.config_file is not None
    aws.config_file.write_bytes(content)
    with pytest.raises(BadInputError, match="config"):
        resolve_s3(aws)


@pytest.mark.parametrize("url", ["https://me:secret@example.org/x", "s3://key:secret@bucket/x"])
def test_secrets_do_not_belong_in_a_url(url: str) -> None:
    """A root's URL appears in messages, logs and the cache."""
    with pytest.raises(BadInputError) as raised:
        normalize_url(url)
    assert "secret" not in str(raised.value)
