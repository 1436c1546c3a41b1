"""Settings from environment variables. No other module reads the environment.

`load_settings` reads the variables when it is called, never at import. Other modules receive a `Settings`.
docs/reference/settings.md lists the variables.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path

from warpdata.errors import BadInputError
from warpdata.limits import MEDIA_MEMORY_BYTES
from warpdata.primitives.arguments import check_arguments, check_fields
from warpdata.primitives.launcher import library_rank
from warpdata.primitives.parallel import (
    MAX_CONCURRENCY,
    MAX_READ_MEMORY_BYTES,
    MIN_READ_MEMORY_BYTES,
    configure,
)
from warpdata.primitives.redaction import redact

__all__ = [
    "S3Settings",
    "Settings",
    "apply_budgets",
    "child_environment",
    "database_url",
    "detect_rank",
    "gateway_key",
    "has_trace_collector",
    "label_studio_key",
    "load_settings",
    "local_world_size",
    "oidc_secret",
    "peer_token",
    "provider_variables",
]

_RANK_VARIABLES = (
    ("RANK", "WORLD_SIZE"),
    ("SLURM_PROCID", "SLURM_NTASKS"),
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
    ("PMI_RANK", "PMI_SIZE"),
    ("LOCAL_RANK", "LOCAL_WORLD_SIZE"),
)
_MAX_NUMBER = 1e12


@dataclass(frozen=True, slots=True)
class S3Settings:
    """Endpoint and credentials of S3. `repr` hides the secrets, also those inside a URL."""

    endpoint_url: str | None = None
    region: str | None = None
    access_key_id: str | None = None
    secret_access_key: str | None = field(default=None, repr=False)
    session_token: str | None = field(default=None, repr=False)
    profile: str | None = None
    credentials_file: Path | None = None
    config_file: Path | None = None
    allow_http: bool = False
    virtual_hosted: bool = False
    skip_signature: bool = False
    ambient_credentials: bool = True
    """Allow credentials of the instance, the container or the web identity."""

    def __post_init__(self) -> None:
        check_fields(self)

    def __repr__(self) -> str:
        return _redacted_repr(self)


@dataclass(frozen=True, slots=True)
class Settings:
    """Store, cache, timeouts and credentials of a session."""

    store_url: str
    cache_dir: Path
    author: str = "unknown"
    timeout_s: float = 30.0
    connect_timeout_s: float = 5.0
    retry_timeout_s: float = 60.0
    max_retries: int = 5
    mode: str = "auto"
    """Use of the cache for remote stores: auto, remote, hybrid or local. The session validates it."""
    prefetch: int | str = "auto"
    """Batches that tables and streams read ahead: a count, or "auto"."""
    cache_limit_bytes: int = 100_000_000_000
    media_memory_bytes: int = MEDIA_MEMORY_BYTES
    """Memory for the media of one batch of a stream, and for those of all prefetched batches of the process."""
    io_concurrency: int | None = None
    """Requests in flight of the process; None follows the throughput of the network."""
    threads: int | None = None
    """Threads of the process that compute; None for the cores that it may use."""
    read_memory_bytes: int | None = None
    """Memory of the process for requests and for bytes read ahead; None for a part of the usable memory."""
    external_prefixes: tuple[str, ...] = ()
    """URLs below which files outside of the store may be read, where a version names them."""
    search_memory_bytes: int = 1_000_000_000
    """Memory for the lists of indexes of vectors that a dataset object keeps for later searches."""
    sync_writes: bool = True
    """Force writes of local stores to the disk before they are acknowledged."""
    token: str | None = field(default=None, repr=False)
    """The token for a service, sent to the address of the store and nowhere else."""
    tokens_file: Path | None = None
    """The file in which `warp login` keeps tokens by address."""
    s3_master_key: str | None = field(default=None, repr=False)
    """The secret of a service from which the secrets of its S3 keys follow."""
    s3: S3Settings = S3Settings()

    def __post_init__(self) -> None:
        check_fields(self)
        for name in ("timeout_s", "connect_timeout_s", "retry_timeout_s", "max_retries"):
            if not 0 <= getattr(self, name) < _MAX_NUMBER:
                raise BadInputError(f"Settings: {name}={getattr(self, name)!r} is out of range")
        for name in ("cache_limit_bytes", "media_memory_bytes", "search_memory_bytes"):
            if getattr(self, name) < 0:
                raise BadInputError(f"Settings: {name}={getattr(self, name)!r} is negative")

    def __repr__(self) -> str:
        return _redacted_repr(self)


def _redacted_repr(settings: S3Settings | Settings) -> str:
    values = ((one, getattr(settings, one.name)) for one in fields(settings) if one.repr)
    shown = ", ".join(f"{one.name}={value!r}" for one, value in values if value != one.default)
    return redact(f"{type(settings).__name__}({shown})")


@check_arguments
def load_settings(environ: Mapping[str, str] | None = None) -> Settings:
    """Read the settings from `environ`, by default the environment of this process."""
    import platformdirs

    env = os.environ if environ is None else environ
    return Settings(
        store_url=env.get("WARP_STORE") or Path(platformdirs.user_data_dir("warpdata"), "store").as_uri(),
        cache_dir=Path(env.get("WARP_CACHE_DIR") or platformdirs.user_cache_dir("warpdata")),
        author=env.get("WARP_AUTHOR") or env.get("USER") or env.get("USERNAME") or _login_name(),
        timeout_s=_number(env, "WARP_TIMEOUT_S", 30.0),
        connect_timeout_s=_number(env, "WARP_CONNECT_TIMEOUT_S", 5.0),
        retry_timeout_s=_number(env, "WARP_RETRY_TIMEOUT_S", 60.0),
        max_retries=int(_number(env, "WARP_MAX_RETRIES", 5.0)),
        mode=env.get("WARP_MODE") or "auto",
        prefetch=_prefetch(env),
        cache_limit_bytes=int(_number(env, "WARP_CACHE_SIZE_GB", 100.0) * 1e9),
        media_memory_bytes=int(_number(env, "WARP_MEDIA_MEMORY_GB", MEDIA_MEMORY_BYTES / 1e9) * 1e9),
        io_concurrency=_count(env, "WARP_IO_CONCURRENCY"),
        threads=_count(env, "WARP_THREADS"),
        read_memory_bytes=_read_memory(env),
        external_prefixes=tuple((env.get("WARP_EXTERNAL_PREFIXES") or "").split()),
        search_memory_bytes=int(_number(env, "WARP_SEARCH_MEMORY_GB", 1.0) * 1e9),
        sync_writes=_flag(env, "WARP_SYNC_WRITES", default=True),
        token=env.get("WARP_TOKEN") or None,
        tokens_file=Path(env.get("WARP_TOKENS_FILE") or Path(platformdirs.user_config_dir("warpdata"), "tokens.json")),
        s3_master_key=env.get("WARP_S3_MASTER_KEY") or None,
        s3=_load_s3(env),
    )


def apply_budgets(settings: Settings | None = None) -> None:
    """Set the budgets of this process, by default those of the environment. A budget of None stays as it is.

    Sessions call it, and so do tensors that need no session. `BadInputError` if a value is out of range.
    """
    if settings is None:
        env = os.environ
        given = _count(env, "WARP_IO_CONCURRENCY"), _count(env, "WARP_THREADS"), _read_memory(env)
    else:
        given = settings.io_concurrency, settings.threads, settings.read_memory_bytes
    configure(io_concurrency=given[0], threads=given[1], read_memory_bytes=given[2])


def provider_variables(environ: Mapping[str, str] | None = None) -> frozenset[tuple[str, str]]:
    """Return the variables from which the object-store library takes credentials of Google and Azure."""
    env = os.environ if environ is None else environ
    return frozenset((name, value) for name, value in env.items() if name.startswith(("GOOGLE_", "AZURE_")))


def peer_token(environ: Mapping[str, str] | None = None) -> str | None:
    """Return WARP_TENSORS_TOKEN, the token that clients of tensor servers send; None if it is not set."""
    env = os.environ if environ is None else environ
    return env.get("WARP_TENSORS_TOKEN") or None


def database_url(environ: Mapping[str, str] | None = None) -> str:
    """Return WARP_DATABASE, the database of a service; by default a file beside the local default store."""
    import platformdirs

    env = os.environ if environ is None else environ
    default = Path(platformdirs.user_data_dir("warpdata"), "service.db")
    return env.get("WARP_DATABASE") or f"sqlite:///{default}"


def oidc_secret(environ: Mapping[str, str] | None = None) -> str | None:
    """Return WARP_OIDC_SECRET, the secret of a service at its sign-in provider; None if it is not set."""
    env = os.environ if environ is None else environ
    return env.get("WARP_OIDC_SECRET") or None


def has_trace_collector(environ: Mapping[str, str] | None = None) -> bool:
    """Return whether OTEL_EXPORTER_OTLP_ENDPOINT names a collector of traces, and OTEL_SDK_DISABLED is not set."""
    env = os.environ if environ is None else environ
    named = env.get("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT") or env.get("OTEL_EXPORTER_OTLP_ENDPOINT")
    return bool(named) and env.get("OTEL_SDK_DISABLED", "").lower() != "true"


def child_environment(added: Mapping[str, str], environ: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return the environment for a process that this one starts, with some variables more."""
    return {**(os.environ if environ is None else environ), **added}


def label_studio_key(environ: Mapping[str, str] | None = None) -> str | None:
    """Return LABEL_STUDIO_API_KEY, the token of a user of Label Studio; None if it is not set."""
    env = os.environ if environ is None else environ
    return env.get("LABEL_STUDIO_API_KEY") or None


def gateway_key(environ: Mapping[str, str] | None = None) -> tuple[str, str] | None:
    """Return the access key and the secret of `warp gateway`; None if WARP_GATEWAY_ACCESS_KEY is not set."""
    env = os.environ if environ is None else environ
    access_key, secret = env.get("WARP_GATEWAY_ACCESS_KEY"), env.get("WARP_GATEWAY_SECRET_KEY")
    if not access_key and not secret:
        return None
    if not access_key or not secret:
        missing = "WARP_GATEWAY_SECRET_KEY" if access_key else "WARP_GATEWAY_ACCESS_KEY"
        raise BadInputError(f"{missing} is not set", hint="Set both, or none for a key that is made at the start.")
    return access_key, secret


def detect_rank(environ: Mapping[str, str] | None = None) -> tuple[int, int]:
    """Return `(rank, world_size)` as the launcher set them, or `(0, 1)` without a launcher.

    A library that has set up a group of processes knows best: torch.distributed, Ray Train or JAX. Else the environment
    tells, and with `environ` only that: torchrun and Accelerate, Lightning on one machine, SLURM, Open MPI and PMI, in
    this order. A rank above 0 without its world size is an error, and so is half of RANK and WORLD_SIZE. SLURM sets
    rank 0 alone in a job without tasks.
    """
    found = library_rank() if environ is None else None
    if found is not None:
        return found
    env = os.environ if environ is None else environ
    if "RANK" not in env and "WORLD_SIZE" in env and env.get("NODE_RANK") == "0" and "LOCAL_RANK" in env:
        env = {**env, "RANK": env["LOCAL_RANK"]}  # Lightning names no rank; on the first machine it is the local one
    for rank_name, world_name in _RANK_VARIABLES:
        rank, world = env.get(rank_name), env.get(world_name)
        if rank is None or world is None:
            is_torchrun_half = rank_name == "RANK" and (rank is None) != (world is None)
            if is_torchrun_half or rank not in (None, "0"):
                present = rank_name if world is None else world_name
                raise BadInputError(
                    f"{present} is set, but {world_name if world is None else rank_name} is not",
                    hint="Set both, or pass shard=(rank, world_size).",
                )
            continue
        return _parse_rank(rank_name, rank, world_name, world)
    return 0, 1


def local_world_size(environ: Mapping[str, str] | None = None) -> int:
    """Return the number of processes that torchrun started on this machine, which share its cores; else 1.

    Slurm and Open MPI bind each process to cores of its own, so their processes do not share.
    """
    env = os.environ if environ is None else environ
    found = env.get("LOCAL_WORLD_SIZE", "1")
    if not found.isascii() or not found.isdigit() or int(found) < 1:
        raise BadInputError(f"LOCAL_WORLD_SIZE={found!r} is not a positive integer")
    return int(found)


def _parse_rank(rank_name: str, rank: str, world_name: str, world: str) -> tuple[int, int]:
    try:
        pair = int(rank), int(world)
    except ValueError:
        raise BadInputError(f"{rank_name}={rank!r} and {world_name}={world!r} are not integers") from None
    if not 0 <= pair[0] < pair[1]:
        raise BadInputError(f"{rank_name}={rank} is not within 0 … {world_name}-1 = {pair[1] - 1}")
    return pair


def _load_s3(env: Mapping[str, str]) -> S3Settings:
    endpoint = env.get("AWS_ENDPOINT_URL_S3") or env.get("AWS_ENDPOINT_URL")
    home = Path.home() / ".aws"
    return S3Settings(
        endpoint_url=endpoint,
        region=env.get("AWS_REGION") or env.get("AWS_DEFAULT_REGION"),
        access_key_id=env.get("AWS_ACCESS_KEY_ID"),
        secret_access_key=env.get("AWS_SECRET_ACCESS_KEY"),
        session_token=env.get("AWS_SESSION_TOKEN"),
        profile=env.get("AWS_PROFILE"),
        credentials_file=Path(env.get("AWS_SHARED_CREDENTIALS_FILE") or home / "credentials"),
        config_file=Path(env.get("AWS_CONFIG_FILE") or home / "config"),
        allow_http=_flag(env, "AWS_ALLOW_HTTP", default=False),
        virtual_hosted=_flag(env, "AWS_VIRTUAL_HOSTED_STYLE_REQUEST", default=False),
        skip_signature=_flag(env, "AWS_SKIP_SIGNATURE", default=False),
        ambient_credentials=not _flag(env, "AWS_EC2_METADATA_DISABLED", default=False),
    )


def _login_name() -> str:
    """Return the login name, for an environment without USER."""
    try:
        import pwd

        return pwd.getpwuid(os.getuid()).pw_name
    except (ImportError, KeyError):
        return "unknown"


def _number(env: Mapping[str, str], name: str, default: float) -> float:
    text = env.get(name)
    if not text:
        return default
    try:
        value = float(text)
    except ValueError:
        raise BadInputError(f"{name}={text!r} is not a number") from None
    if not 0 <= value < _MAX_NUMBER:
        raise BadInputError(f"{name}={text!r} is out of range")
    return value


def _prefetch(env: Mapping[str, str]) -> int | str:
    text = env.get("WARP_PREFETCH") or "auto"
    if text == "auto":
        return text
    if not (text.isascii() and text.isdigit() and len(text) < 10):
        raise BadInputError(f"WARP_PREFETCH={text!r} is neither 'auto' nor a count of batches")
    return int(text)


def _count(env: Mapping[str, str], name: str) -> int | None:
    text = env.get(name) or "auto"
    if text == "auto":
        return None
    if not (text.isascii() and text.isdigit() and len(text) < 10 and 1 <= int(text) <= MAX_CONCURRENCY):
        raise BadInputError(
            f"{name}={text!r} is neither 'auto' nor a number within 1 … {MAX_CONCURRENCY:,}",
            hint="Unset it, and `warp doctor` prints the number that is used.",
        )
    return int(text)


def _read_memory(env: Mapping[str, str]) -> int | None:
    name = "WARP_READ_MEMORY_GB"
    text = env.get(name) or "auto"
    if text == "auto":
        return None
    size_bytes = int(_number(env, name, 0.0) * 1e9)
    if not MIN_READ_MEMORY_BYTES <= size_bytes <= MAX_READ_MEMORY_BYTES:
        least, most = MIN_READ_MEMORY_BYTES / 1e9, MAX_READ_MEMORY_BYTES / 1e9
        raise BadInputError(f"{name}={text!r} is neither 'auto' nor a number within {least:g} … {most:,g}")
    return size_bytes


def _flag(env: Mapping[str, str], name: str, *, default: bool) -> bool:
    text = (env.get(name) or "").lower()
    if not text:
        return default
    if text in ("1", "true", "yes", "on"):
        return True
    if text in ("0", "false", "no", "off"):
        return False
    raise BadInputError(f"{name}={text!r} is not a boolean", hint="Use true or false.")
