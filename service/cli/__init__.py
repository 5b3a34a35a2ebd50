"""The command line: the same use cases as over HTTP, on this machine's database.

Heavy imports stand inside the commands, so that `stagefare --help` answers at once.
"""

from service.cli.commands import main

__all__ = ["main"]
