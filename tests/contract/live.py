"""The service on a port of its own, for clients that are programs of their own."""

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import uvicorn

from service.web.protocol import BoundedProtocol

__all__ = ["serving"]


@contextmanager
def serving(app: Any) -> Iterator[str]:
    """Serve an ASGI application on the loopback address in a thread; the URL of its root."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        # With the protocol that `stagefare serve` has: some refusals are its own.
        config = uvicorn.Config(
            app, log_config=None, access_log=False, http=BoundedProtocol, ws="none"
        )
        server = uvicorn.Server(config)
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
        thread.start()
        while not server.started:
            assert thread.is_alive(), "the server did not start"
            thread.join(0.05)
        try:
            yield f"http://127.0.0.1:{port}"
        finally:
            server.should_exit = True
            thread.join()
