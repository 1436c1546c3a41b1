"""If this fails, a file with an unusual name cannot be listed or read, or a name leads out of its version."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any

import pytest
from botocore.exceptions import ClientError

import warpdata as wd
from tests.server.s3.conftest import serve_store

PARTS = [
    *"!\"#$%&'()*+,-.:;<=>?@[\\]^_`{|}~ ",
    *("%2e%2e%2f", "%00", "a%20b", "a+b", "a b", " a", "a ", "a.", ".a", "..a", "a..", "...", "--help", "a?b=c", "a#b"),
    *(
        "a&b",
        "a;b",
        "a=b",
        "<b>",
        "]]>",
        "&amp;",
        "'; DROP",
        "$(id)",
        "`id`",
        "C:",
        "con",
        "nul.txt",
        "a\\b",
        "\\\\host",
    ),
    *(
        "ü",
        "é",
        "e\u0301",
        "日本語",
        "\U0001f431",
        "\U0001f469\u200d\U0001f467",
        "\u202eabc",
        "\u0600",
        "\ufdfd",
        "ß",
        "\u0130",
    ),
    *("\ufb01", "\xa0", "\u2028", "\ufeff", "\ufffd", "\U0010ffff", "\ue000", "\uffff", "\x80", "\x9f", "\x7f", "\x01"),
    *("\x07", "\t", "\n", "\r", "\r\nSet-Cookie: x", "\x1b[31m", "a" * 255, "ü" * 127, "a" * 1000, "list-type=2"),
    *(
        "?prefix=x",
        "x-amz-date",
        "X-Amz-Signature=1",
        "v1@v2",
        "HEAD",
        "images",
        "inbox",
        "meta.json",
        "datasets",
        "null",
    ),
    *("true", "0", "-1", "1e9", "a.jpg.exe", ".git", ".env", "robots.txt"),
]
NAMES = sorted(set(PARTS) - {"."} | {f"dir/{part}/{part}.bin" for part in PARTS if part != "."})
HOSTILE = [
    "..", "../x", "../../etc/passwd", "a/../../x", "./x", "/etc/passwd", "//x", "a//b", "a/./b", "\0", "a\0b",
    "%2e%2e/x", "..%2fx", "..\\x", "files/../../v1/files/a", "\ud800",
]  # fmt: skip


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Any:
    store = str(tmp_path_factory.mktemp("names") / "store")
    files = {name: name.encode() for name in NAMES}
    wd.DatasetBuilder("acme/odd", store).add_artifact("files", files, kind="tar_shards").publish(label="v1")
    with ExitStack() as stack:
        yield serve_store(wd.connect(store), stack).client()


def test_there_are_two_hundred_names() -> None:
    assert len(NAMES) + len(HOSTILE) >= 200


def test_each_name_is_listed_and_read(client: Any) -> None:
    found: dict[str, int] = {}
    for page in client.get_paginator("list_objects_v2").paginate(Bucket="acme", Prefix="odd/v1/files/"):
        found.update({one["Key"].removeprefix("odd/v1/files/"): one["Size"] for one in page["Contents"]})
    expected = {name: len(name.encode()) for name in NAMES}
    assert found == expected
    for name in expected:
        assert client.get_object(Bucket="acme", Key=f"odd/v1/files/{name}")["Body"].read() == name.encode(), name
        listed = client.list_objects_v2(Bucket="acme", Prefix=f"odd/v1/files/{name}", MaxKeys=1)
        assert listed["Contents"][0]["Key"] == f"odd/v1/files/{name}"


def test_no_name_leads_out_of_its_version(client: Any) -> None:
    for name in HOSTILE:
        for key in (f"odd/v1/files/{name}", f"odd/{name}/files/a", f"{name}/v1/files/a", f"datasets/{name}/images/a"):
            with pytest.raises((ClientError, UnicodeEncodeError)) as error:
                client.get_object(Bucket="acme", Key=key)
            if isinstance(error.value, ClientError):
                assert error.value.response["Error"]["Code"] in ("NoSuchKey", "NoSuchBucket"), key
