"""A client of the page's API."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from typing import Any

from tests.harness.local import wait_for


class Page:
    """Asks with the operator's token."""

    def __init__(self, links: dict[str, str]) -> None:
        self.links = links
        self.base, _, self.token = links["operator"].partition("/#")

    def get(self, path: str) -> Any:
        return self._call(urllib.request.Request(self.base + path))

    def act(self, kind: str, node: int, **more: Any) -> Any:
        """As soon as the pace of faults allows it."""
        return wait_for("the pace allows it", lambda: self._act({"kind": kind, "node": node, **more}))

    def heal(self) -> Any:
        headers = {"X-Kraftlite": "1"}
        return self._call(urllib.request.Request(f"{self.base}/api/v1/faults", headers=headers, method="DELETE"))

    def _act(self, what: dict[str, Any]) -> Any:
        body = json.dumps(what).encode()
        headers = {"Content-Type": "application/json", "X-Kraftlite": "1"}
        try:
            return self._call(urllib.request.Request(f"{self.base}/api/v1/faults", data=body, headers=headers))
        except urllib.error.HTTPError as error:
            if error.code == 429:
                return None
            raise

    def client(self, what: dict[str, Any]) -> Any:
        headers = {"Content-Type": "application/json", "X-Kraftlite": "1"}
        return self._call(urllib.request.Request(f"{self.base}/api/v1/clients", data=json.dumps(what).encode(), headers=headers))

    def row(self, name: str) -> dict[str, Any]:
        return next((row for row in self.get(f"/api/v1/state?q={name}")["rows"] if row["name"] == name), {})

    def node(self, node_id: int) -> dict[str, Any]:
        return next(node for node in self.get("/api/v1/state")["nodes"] if node["id"] == node_id)

    def _call(self, request: urllib.request.Request) -> Any:
        request.add_header("Authorization", f"Bearer {self.token}")
        with urllib.request.urlopen(request, timeout=20) as answer:
            return json.load(answer)
