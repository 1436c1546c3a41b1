"""If these fail, a password or a signature shows up in a message, a log, a repr or a report."""

from __future__ import annotations

import logging
import pickle
import traceback
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import warpdata as wd
from tests.cli.scenes import run
from tests.web_server import WebServer, serving
from warpdata.errors import WarpError
from warpdata.primitives.redaction import redact
from warpdata.session import VersionAddress, connect
from warpdata.settings import S3Settings, Settings, load_settings
from warpdata.storage import open_store

SECRET = "hunter2-and-more"


@pytest.mark.parametrize(
    "text",
    [
        f"https://ann:{SECRET}@host/path",
        f"https://{SECRET}@host",
        f"https://ann:a@{SECRET}@host:9000",
        f"GET http://h/lake/a?sv=1&sig={SECRET}&se=2 failed",
        f"http://h/?X-Amz-Signature={SECRET}",
        f"http://h/?x-amz-security-token={SECRET}",
        f"http://h/?X-Goog-Credential={SECRET}",
        f"http://h/?access_token={SECRET})",
        f"http://h/?a=1&password={SECRET}",
        f"http://h/?key={SECRET}",
        f"http://h/?AWSAccessKeyId={SECRET}",
        f'Url {{ password: Some("{SECRET}"), query: Some("sig={SECRET}") }}',
    ],
)
def test_secrets_of_urls_are_removed(text: str) -> None:
    shown = redact(text)
    assert SECRET not in shown
    assert "***" in shown
    assert redact(shown) == shown


@pytest.mark.parametrize(
    "text",
    ["s3://lake/prefix", "https://host:9000/a?page=2&monkey=3", "mail ann@host", "a=b", "key=value", "file:///a"],
)
def test_other_text_stays(text: str) -> None:
    assert redact(text) == text


@given(st.text(max_size=200))
def test_redacting_twice_changes_nothing(text: str) -> None:
    assert redact(redact(text)) == redact(text)


def everything_about(error: BaseException) -> str:
    return "".join(traceback.format_exception(error)) + repr(error) + getattr(error, "message", "")


def test_errors_of_a_store_hide_the_password_of_its_endpoint(tmp_path: Path) -> None:
    s3 = S3Settings(f"http://ann:{SECRET}@127.0.0.1:9", "us-east-1", "id", "secret", allow_http=True)
    settings = Settings("s3://lake", tmp_path, s3=s3, max_retries=0, connect_timeout_s=1)
    store = open_store("s3://lake", settings)
    for act in (lambda: store.read("k"), lambda: store.create("k", b""), lambda: store.list_folders("k")):
        with pytest.raises(WarpError) as caught:
            act()
        assert SECRET not in everything_about(caught.value)
    with pytest.raises(WarpError) as refused:
        open_store("s3://lake", replace(settings, s3=replace(s3, allow_http=False)))
    assert SECRET not in everything_about(refused.value)
    assert SECRET not in repr(settings) + str(settings) + repr(s3) + repr(connect("s3://lake", settings))


@pytest.mark.parametrize(
    "url", [f"ftp://ann:{SECRET}@host/x", f"https://ann:{SECRET}@host/x", f"file://h/x?sig={SECRET}"]
)
def test_a_refused_url_is_not_repeated_with_its_password(url: str) -> None:
    with pytest.raises(WarpError) as caught:
        connect(url)
    assert SECRET not in everything_about(caught.value)


@pytest.fixture
def server(tmp_path: Path) -> Iterator[WebServer]:
    builder = wd.DatasetBuilder("acme/files", (tmp_path / "store").as_uri())
    builder.add_table("main", pa.table({"path": ["a"]})).add_artifact("raw", {"a": b"12345"}, "files")
    builder.bind("main", "path", "raw").publish()
    with serving(tmp_path / "store") as made:
        made.required_query = f"sig={SECRET}"
        yield made


def test_a_signed_store_works_and_its_signature_is_never_shown(
    server: WebServer, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    url = f"{server.url}?sig={SECRET}"
    caplog.set_level(logging.DEBUG)
    settings = replace(load_settings(), max_retries=0)
    dataset = wd.dataset("acme/files", store=url, settings=settings)
    reference = dataset.table().to_arrow()["path"][0].as_py()
    assert reference.read_bytes() == b"12345"
    address = VersionAddress.of(dataset.session, dataset.version_ref)
    session, found = pickle.loads(pickle.dumps(address)).open()  # noqa: S301 - made here
    assert found.version == dataset.version
    shown = [repr(dataset), repr(dataset.session), repr(address), str(dataset.info()), session.reader.url, caplog.text]
    with pytest.raises(WarpError) as caught:
        wd.dataset("acme/none", store=url, settings=settings)
    shown.append(everything_about(caught.value))
    server.fault = "down"
    with pytest.raises(WarpError) as down:
        wd.dataset("acme/files", store=url, mode="remote", settings=settings)
    shown.append(everything_about(down.value))
    monkeypatch.setenv("WARP_STORE", url)
    monkeypatch.setenv("AWS_ENDPOINT_URL", f"https://ann:{SECRET}@host")
    for command in (["doctor"], ["doctor", "--json"], ["info", "acme/files"], ["doctor", "--store", "s3://lake"]):
        shown.append(run(*command).output)
    assert [text for text in shown if SECRET in text] == []
