"""The server that `benchmarks.load` measures: the service, with a route that does nothing."""

import argparse
import socket
import sys
from types import ModuleType
from typing import Any

from litestar import get

import service.main
import service.store.engine
from service.logs import configure_logging
from service.settings import read_settings
from service.web.access import OPEN
from service.web.server import Server


@get("/floor", opt=OPEN, sync_to_thread=False)
def floor() -> str:
    """Nothing."""
    return ""


def replace(module: ModuleType, name: str, value: Any) -> None:
    """Put another value in place of one that is there; AttributeError when it is not."""
    getattr(module, name)
    setattr(module, name, value)


def main() -> None:
    """Serve as the environment says until a signal comes."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--no-freeze", action="store_true")
    parser.add_argument("--default-pool", action="store_true")
    options = parser.parse_args()
    if options.no_freeze:
        replace(service.main, "_settle_memory", lambda: None)
    if options.default_pool:
        pool = {"pool_size": 5, "max_overflow": 10, "pool_timeout": 10}
        replace(service.store.engine, "_POOL", pool)
    settings = read_settings()
    configure_logging(settings.log_level, sys.stderr, as_json=True)
    app = service.main.create_app(settings)
    app.register(floor)
    server = Server(app, delay_seconds=0, grace_seconds=5, most_connections=settings.connections)
    with socket.create_server((settings.host, settings.port), backlog=2048) as listener:
        server.run(sockets=[listener])


if __name__ == "__main__":
    main()
