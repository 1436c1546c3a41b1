"""The API of Label Studio: how a call is made, and the few calls that a batch needs.

A legacy token is sent as it is. A personal access token is a refresh token, and is exchanged for one that lasts
minutes.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from warpdata.errors import BadInputError, StorageError

__all__ = ["Ask", "StudioApi", "ToolAnswer"]

_SHOWN = 300


@dataclass(frozen=True, slots=True)
class ToolAnswer:
    """An answer over HTTP. Status 0 is none, and then `text` says why; `is_refused` if the address is not allowed."""

    status: int
    headers: Mapping[str, str]
    text: str
    is_refused: bool = False

    def json(self) -> Any:
        """Return the body as JSON. `StorageError` if it is none."""
        try:
            return json.loads(self.text)
        except ValueError as error:
            raise StorageError(f"the tool answered {self.status} with something other than JSON") from error


Ask: TypeAlias = Callable[[str, str, Mapping[str, str], bytes | None], ToolAnswer]
"""Sends a request: method, URL, headers and body."""


@dataclass
class StudioApi:
    """Calls of the API of one Label Studio as one user."""

    url: str
    token: str
    ask: Ask
    _access: str | None = None

    def call(self, method: str, path: str, body: Any = None) -> ToolAnswer:
        """Send a request, and return the answer of any status."""
        data = None if body is None else body if isinstance(body, bytes) else json.dumps(body).encode()
        headers = {"Content-Type": "application/json", **self._authorization()}
        return self.ask(method, f"{self.url.rstrip('/')}{path}", headers, data)

    def expect(self, what: str, method: str, path: str, body: Any = None) -> Any:
        """Send a request, and return the JSON of a successful answer. Errors name what was asked."""
        answer = self.call(method, path, body)
        if answer.status == 0:
            raise StorageError(f"Label Studio does not answer: {answer.text}", hint="Check the connection.")
        if not 200 <= answer.status < 300:
            raise BadInputError(
                f"Label Studio refused to {what}: {answer.status} {answer.text[:_SHOWN]}", hint="Check the connection."
            )
        return answer.json() if answer.text else None

    def create_project(self, title: str, label_config: str, description: str) -> int:
        """Make a project, and return its id."""
        body = {"title": title[:50], "label_config": label_config, "description": description}
        return int(self.expect("make a project", "POST", "/api/projects", body)["id"])

    def import_tasks(self, project: int, tasks: Sequence[bytes]) -> int:
        """Add tasks that are written as JSON, and return their number."""
        body = b"[" + b",".join(tasks) + b"]"
        path = f"/api/projects/{project}/import?return_task_ids=false"
        return int(self.expect("import tasks", "POST", path, body)["task_count"])

    def annotated_tasks(self, project: int) -> list[dict[str, Any]]:
        """Return the tasks of a project that have annotations, with these."""
        path = f"/api/projects/{project}/export?exportType=JSON&download_all_tasks=false"
        listed = self.expect("export labels", "GET", path)
        return [task for task in listed if isinstance(task, dict)] if isinstance(listed, list) else []

    def _authorization(self) -> dict[str, str]:
        if self.token.count(".") != 2:
            return {"Authorization": f"Token {self.token}"}
        if self._access is None:
            body = json.dumps({"refresh": self.token}).encode()
            url = f"{self.url.rstrip('/')}/api/token/refresh"
            answer = self.ask("POST", url, {"Content-Type": "application/json"}, body)
            self._access = str(answer.json().get("access", "")) if answer.status == 200 else ""
        return {"Authorization": f"Bearer {self._access}"}
