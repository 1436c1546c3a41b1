"""The thread that sends messages to webhooks. Several share one table, in one process or many."""

from __future__ import annotations

import logging
import threading

from warpdata.server.service import Service
from warpdata.server.webhooks.delivery import deliver_next

__all__ = ["WebhookSender"]

_IDLE_S = 1.0
_LOG = logging.getLogger("warpdata.server.webhooks")


class WebhookSender:
    """Sends messages until `stop`. A slow receiver delays others of its process, and no job."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._run, name="warp-webhooks", daemon=True)

    def start(self) -> None:
        """Send in a thread of its own."""
        self._thread.start()

    def end(self) -> None:
        """Send nothing more. Does not wait."""
        self._ending.set()

    def stop(self) -> None:
        """Send nothing more, and wait for the thread."""
        self.end()
        if self._thread.is_alive():
            self._thread.join(timeout=10)

    def _run(self) -> None:
        while not self._ending.is_set():
            try:
                if deliver_next(self._service):
                    continue
            except Exception:  # noqa: BLE001 - logged with its traceback, and tried again
                _LOG.exception("messages to webhooks cannot be sent")
            self._ending.wait(_IDLE_S)
