"""Starts services for tests: a process that has imported everything and forks for each of them.

Run as a module, it reads one JSON line for each service, `{"environment": {...}, "log": "..."}`,
and answers with the new process's id. The child goes on as `stagefare serve` does. Importing takes
longer than all the rest of a start, and tests that kill a service start it often.

When standard input ends, however that comes about, all services are killed.
"""

import json
import os
import signal
import sys

__all__ = ["main"]


def main() -> None:
    """Serve starts until standard input ends."""
    # Imported before the first fork; the command itself imports the same modules late.
    import uvicorn  # noqa: F401

    import service.main
    import service.store.migrate  # noqa: F401

    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the dead are not waited for
    started: list[int] = []
    for line in sys.stdin:
        order = json.loads(line)
        pid = os.fork()
        if pid == 0:
            _become_service(order["environment"], order["log"])
        started.append(pid)
        sys.stdout.write(f"{pid}\n")
        sys.stdout.flush()
    for pid in started:
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            continue


def _become_service(environment: dict[str, str], log: str) -> None:
    from service.cli import main as stagefare

    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    os.setsid()  # an interrupt from the keyboard is for the tests
    written = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    silent = os.open(os.devnull, os.O_RDONLY)
    for source, target in ((silent, 0), (written, 1), (written, 2)):
        os.dup2(source, target)
    os.environ.update(environment)
    sys.argv = ["stagefare", "serve"]
    stagefare()  # ends the process


if __name__ == "__main__":
    main()
