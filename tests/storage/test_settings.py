"""If these fail, people's environment is misread: the wrong store, the wrong keys, or two workers on one shard."""

from __future__ import annotations

import os
import pwd
from dataclasses import replace
from pathlib import Path

import pytest

from warpdata.errors import BadInputError
from warpdata.primitives.parallel import READ_MEMORY, REQUEST_LIMIT, usable_cores
from warpdata.session import connect
from warpdata.settings import S3Settings, Settings, detect_rank, load_settings

# Budgets of the process


BUDGETS = ("WARP_IO_CONCURRENCY", "WARP_THREADS", "WARP_READ_MEMORY_GB")


def budgets(environ: dict[str, str]) -> tuple[int | None, int | None, int | None]:
    loaded = load_settings(environ)
    return loaded.io_concurrency, loaded.threads, loaded.read_memory_bytes


def test_budgets_are_those_of_the_machine_unless_set() -> None:
    assert budgets({}) == (None, None, None)
    assert budgets(dict.fromkeys(BUDGETS, "auto")) == (None, None, None)
    assert budgets(dict.fromkeys(BUDGETS, "")) == (None, None, None)
    assert budgets(dict(zip(BUDGETS, ("64", "4", "0.5"), strict=True))) == (64, 4, 500_000_000)


@pytest.mark.parametrize("name", BUDGETS)
@pytest.mark.parametrize("text", ["0", "-1", "many", "1e9", "nan", "1000001"])
def test_a_budget_that_makes_no_sense_is_an_error(name: str, text: str) -> None:
    with pytest.raises(BadInputError, match=name):
        load_settings({name: text})


def test_a_session_sets_the_budgets_of_the_process(tmp_path: Path) -> None:
    store = (tmp_path / "store").as_uri()
    settings = replace(load_settings({"WARP_STORE": store}), cache_dir=tmp_path / "cache")
    connect(settings=replace(settings, io_concurrency=5, threads=3, read_memory_bytes=2_000_000))
    connect(settings=settings)
    assert (REQUEST_LIMIT.value, usable_cores(), READ_MEMORY.limit_bytes) == (5, 3, 2_000_000), "auto changes nothing"
    with pytest.raises(BadInputError, match="threads"):
        connect(settings=replace(settings, threads=0))


# Who am I among the workers?


def test_without_a_launcher_there_is_one_worker() -> None:
    assert detect_rank({}) == (0, 1)


@pytest.mark.parametrize(
    ("rank", "world"),
    [
        ("RANK", "WORLD_SIZE"),
        ("SLURM_PROCID", "SLURM_NTASKS"),
        ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
        ("PMI_RANK", "PMI_SIZE"),
        ("LOCAL_RANK", "LOCAL_WORLD_SIZE"),
    ],
)
def test_each_launcher_is_understood(rank: str, world: str) -> None:
    assert detect_rank({rank: "3", world: "8"}) == (3, 8)
    with pytest.raises(BadInputError, match=f"{rank} is set, but {world} is not"):
        detect_rank({rank: "3"})
    for bad in ({rank: "8", world: "8"}, {rank: "-1", world: "8"}, {rank: "0", world: "0"}):
        with pytest.raises(BadInputError, match=rank):
            detect_rank(bad)
    for bad in ({rank: "three", world: "8"}, {rank: "3", world: ""}, {rank: "1.5", world: "8"}):
        with pytest.raises(BadInputError, match="not integers"):
            detect_rank(bad)


def test_torchrun_speaks_before_the_scheduler_that_started_it() -> None:
    assert detect_rank({"RANK": "5", "WORLD_SIZE": "16", "SLURM_PROCID": "1", "SLURM_NTASKS": "2"}) == (5, 16)
    assert detect_rank({"LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "2", "SLURM_PROCID": "3", "SLURM_NTASKS": "4"}) == (3, 4)


@pytest.mark.parametrize("half", [{"RANK": "0"}, {"WORLD_SIZE": "1"}])
def test_half_a_torchrun_is_an_error_even_for_rank_zero(half: dict[str, str]) -> None:
    with pytest.raises(BadInputError) as caught:
        detect_rank(half)
    assert caught.value.hint


def test_a_cluster_job_that_was_not_split_has_one_worker() -> None:
    assert detect_rank({"SLURM_PROCID": "0"}) == (0, 1)
    assert detect_rank({"SLURM_NTASKS": "4"}) == (0, 1)


def test_the_process_environment_is_the_default(monkeypatch: pytest.MonkeyPatch) -> None:
    assert detect_rank() == (0, 1)
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "2")
    assert detect_rank() == (1, 2)


# Settings


def test_nothing_set_gives_defaults_under_the_users_folders() -> None:
    settings = load_settings({})
    assert settings.store_url.startswith("file:///")
    assert settings.store_url.endswith("/store")
    assert settings.cache_dir.is_absolute()
    assert settings.author == pwd.getpwuid(os.getuid()).pw_name
    plain = Settings(store_url=settings.store_url, cache_dir=settings.cache_dir, s3=settings.s3)
    assert settings.tokens_file is not None
    assert settings == replace(plain, author=settings.author, tokens_file=settings.tokens_file)


def test_everything_set_is_heard() -> None:
    settings = load_settings(
        {
            "WARP_STORE": "s3://bucket/root",
            "WARP_CACHE_DIR": "/cache",
            "WARP_AUTHOR": "ada",
            "WARP_TOKEN": "wd_secret",
            "WARP_TOKENS_FILE": "/tokens.json",
            "USER": "not ada",
            "WARP_TIMEOUT_S": "1.5",
            "WARP_CONNECT_TIMEOUT_S": "2.5",
            "WARP_RETRY_TIMEOUT_S": "3.5",
            "WARP_MAX_RETRIES": "4",
            "WARP_MODE": "hybrid",
            "WARP_CACHE_SIZE_GB": "2.5",
            "AWS_ENDPOINT_URL": "http://everything:1",
            "AWS_ENDPOINT_URL_S3": "http://s3:2",
            "AWS_REGION": "eu-central-1",
            "AWS_DEFAULT_REGION": "us-west-2",
            "AWS_ACCESS_KEY_ID": "key",
            "AWS_SECRET_ACCESS_KEY": "secret",
            "AWS_SESSION_TOKEN": "token",
            "AWS_PROFILE": "team",
            "AWS_SHARED_CREDENTIALS_FILE": "/aws/credentials",
            "AWS_CONFIG_FILE": "/aws/config",
            "AWS_ALLOW_HTTP": "TRUE",
            "AWS_VIRTUAL_HOSTED_STYLE_REQUEST": "1",
            "AWS_SKIP_SIGNATURE": "yes",
            "AWS_EC2_METADATA_DISABLED": "on",
        }
    )
    assert settings == Settings(
        store_url="s3://bucket/root",
        cache_dir=Path("/cache"),
        author="ada",
        token="wd_secret",
        tokens_file=Path("/tokens.json"),
        timeout_s=1.5,
        connect_timeout_s=2.5,
        retry_timeout_s=3.5,
        max_retries=4,
        mode="hybrid",
        cache_limit_bytes=2_500_000_000,
        s3=S3Settings(
            endpoint_url="http://s3:2",
            region="eu-central-1",
            access_key_id="key",
            secret_access_key="secret",
            session_token="token",
            profile="team",
            credentials_file=Path("/aws/credentials"),
            config_file=Path("/aws/config"),
            allow_http=True,
            virtual_hosted=True,
            skip_signature=True,
            ambient_credentials=False,
        ),
    )


def test_an_empty_variable_is_as_good_as_none() -> None:
    names = ("WARP_STORE", "WARP_CACHE_DIR", "WARP_TIMEOUT_S", "AWS_ALLOW_HTTP", "WARP_AUTHOR")
    assert load_settings(dict.fromkeys(names, "")) == load_settings({})


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("WARP_TIMEOUT_S", "soon"),
        ("WARP_TIMEOUT_S", "-1"),
        ("WARP_TIMEOUT_S", "nan"),
        ("WARP_RETRY_TIMEOUT_S", "inf"),
        ("WARP_MAX_RETRIES", "1e400"),
        ("AWS_ALLOW_HTTP", "maybe"),
    ],
)
def test_a_value_that_means_nothing_is_refused_by_name(name: str, value: str) -> None:
    with pytest.raises(BadInputError, match=name):
        load_settings({name: value})


def test_secrets_are_not_shown() -> None:
    shown = repr(load_settings({"AWS_SECRET_ACCESS_KEY": "hunter2", "AWS_SESSION_TOKEN": "hunter3"}))
    assert "hunter" not in shown
