"""If this fails, the service does not do what its OpenAPI document says, or the document changed unnoticed."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, settings

from tests.server.conftest import Scene

schemathesis = pytest.importorskip("schemathesis")
conformance = pytest.importorskip("schemathesis.specs.openapi.checks")

for media_type in ("application/x-tar", "application/offset+octet-stream"):
    schemathesis.serializer.alias(media_type, "application/octet-stream")

SNAPSHOT = Path(__file__).with_name("openapi.json")
PETS = "/api/v1/datasets/acme/pets"


def test_the_contract_is_that_of_the_snapshot(local: Scene) -> None:
    """A change of the contract shows in review. `UPDATE_SNAPSHOT=1` writes it."""
    document = local["ana"].get("/api/v1/openapi.json").json()
    document["info"]["version"] = "0"
    text = json.dumps(document, indent=1, sort_keys=True) + "\n"
    if os.environ.get("UPDATE_SNAPSHOT"):
        SNAPSHOT.write_text(text, encoding="utf-8")
    assert text == SNAPSHOT.read_text(encoding="utf-8"), "run the tests with UPDATE_SNAPSHOT=1, and read the difference"


def test_every_operation_is_described(local: Scene) -> None:
    document = local["ana"].get("/api/v1/openapi.json").json()
    names = []
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            assert operation["summary"], (method, path)
            names.append(operation["operationId"])
            assert set(operation["responses"]) > {"401", "404", "422"}
    assert len(names) == len(set(names))


def explore(scene: Scene, examples: int) -> int:
    """Send generated requests to every operation, as an owner. Return their number."""
    app, sent = scene["ana"].app, 0
    schema = schemathesis.openapi.from_asgi("/api/v1/openapi.json", app, headers={"Host": "localhost"})
    checks = [
        schemathesis.checks.not_a_server_error,
        conformance.status_code_conformance,
        conformance.content_type_conformance,
        conformance.response_schema_conformance,
    ]
    headers = {"Authorization": scene["ana"].headers["authorization"], "Host": "localhost"}
    scene["ana"].post("/api/v1/datasets/acme/zoo/collection", json={}).raise_for_status()
    for found in schema.get_all_operations():
        operation = found.ok()
        if operation.path.endswith("/events"):
            continue  # an endless stream

        @settings(
            max_examples=examples, phases=[Phase.generate], suppress_health_check=list(HealthCheck), derandomize=True
        )
        @_given(operation)  # type: ignore[untyped-decorator]
        def visit(case: Any) -> None:
            nonlocal sent
            for name, value in known_place(case.operation.tags):
                if name in (case.path_parameters or {}) and sent % 2:
                    case.path_parameters[name] = value  # half of the requests reach the data
            sent += 1
            case.call_and_validate(headers=headers, checks=checks)

        visit()
    return sent


def known_place(tags: list[str] | None) -> tuple[tuple[str, str], ...]:
    """Return the parameters of a path that lead to data: of a collection for its routes, else of a dataset."""
    dataset = "zoo" if {"collections", "training jobs", "removal"} & set(tags or ()) else "pets"
    if {"episodes", "tensors"} & set(tags or ()):
        dataset = "robots"
    return (("workspace", "acme"), ("name", dataset), ("path", "cats/1.png"))


def _given(operation: Any) -> Any:
    from hypothesis import given

    return given(case=operation.as_strategy())


def test_generated_requests_stay_in_the_contract(robots: Scene) -> None:
    assert explore(robots, 4) > 100


@pytest.mark.soak
@pytest.mark.timeout(1800)  # a time-out in a request also looks like a leak of its sockets
def test_many_generated_requests_stay_in_the_contract(scene: Scene) -> None:
    assert explore(scene, 100) > 2000


def test_every_route_is_in_the_reference(local: Scene) -> None:
    document = local["ana"].get("/api/v1/openapi.json").json()
    text = (Path(__file__).parents[2] / "docs" / "reference" / "api.md").read_text(encoding="utf-8")
    written = set(re.findall(r"^\| `([A-Z]+ /[^`]*)` \|", text, re.MULTILINE))
    assert written == {f"{method.upper()} {path}" for path, methods in document["paths"].items() for method in methods}
