"""Environment variables for the S3 server of the test run."""

from __future__ import annotations

import pytest

from warpdata.testing import S3Endpoint


@pytest.fixture
def s3_environment(s3_server: S3Endpoint, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", s3_server.endpoint_url)
    monkeypatch.setenv("AWS_ALLOW_HTTP", "true")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", s3_server.access_key_id)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", s3_server.secret_access_key)
    monkeypatch.setenv("AWS_REGION", "us-east-1")
