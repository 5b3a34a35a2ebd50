"""The server, and how it stops.

The first signal (SIGTERM, SIGINT) makes the service say on /readyz that it is stopping. It goes on
serving for a delay in which whatever spreads requests over replicas can notice. Then it listens no
more, waits for the requests that are open, at most for the grace period, ends its threads and
connections, and exits with 0. A second signal skips the delay, a third the waiting.
"""

import time
from types import FrameType

import uvicorn

from service.web.application import Application
from service.web.protocol import bounded_protocol

__all__ = ["Server"]


class Server(uvicorn.Server):
    """Serves one application."""

    def __init__(
        self,
        app: Application,
        *,
        delay_seconds: int = 0,
        grace_seconds: int = 30,
        most_connections: int = 0,
    ) -> None:
        super().__init__(
            uvicorn.Config(
                app,
                log_config=None,
                access_log=False,
                server_header=False,
                http=bounded_protocol(most_connections, app.telemetry.refused_unread),
                ws="none",
                timeout_graceful_shutdown=grace_seconds,
            )
        )
        self._app = app
        self._delay_seconds = delay_seconds
        self._listens_until: float | None = None

    def handle_exit(self, _signal: int, _frame: FrameType | None) -> None:
        """Take the next step towards the end (called as a signal handler).

        The signal is not raised again at the end, as the base class would: stopping when told to is
        no failure.
        """
        if self._listens_until is None:
            self._app.is_stopping = True
            self._listens_until = time.monotonic() + self._delay_seconds
        elif not self.should_exit:
            self._listens_until = 0.0
        else:
            self.force_exit = True

    async def on_tick(self, counter: int) -> bool:
        """Whether to leave the main loop, asked ten times a second."""
        if self._listens_until is not None and time.monotonic() >= self._listens_until:
            self.should_exit = True
        return await super().on_tick(counter)
