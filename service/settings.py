"""Settings, read once from the environment.

    variable                           default
    STAGEFARE_HOST                     127.0.0.1
    STAGEFARE_PORT                     8000
    STAGEFARE_DATA_DIR                 .stagefare in the current directory
    STAGEFARE_DATABASE_URL             an SQLite file in the data directory
    STAGEFARE_DATABASE_PASSWORD_FILE   none; a file with the password that the URL leaves out
    STAGEFARE_LOG_LEVEL                info
    STAGEFARE_LOG_FORMAT               text on a terminal, otherwise json
    STAGEFARE_REQUESTS_PER_MINUTE      6000
    STAGEFARE_CALCULATIONS_PER_CALLER  64
    STAGEFARE_WAITING_CALCULATIONS     128
    STAGEFARE_WORK_SECONDS_PER_CALLER  8
    STAGEFARE_WORK_SECONDS             16
    STAGEFARE_BODY_MIB_PER_CALLER      64
    STAGEFARE_BODY_MIB                 128
    STAGEFARE_CONNECTIONS              500
    STAGEFARE_SHUTDOWN_DELAY_SECONDS   0; serving on after a signal, while /readyz says no
    STAGEFARE_SHUTDOWN_GRACE_SECONDS   30; then waiting for open requests

Those from STAGEFARE_REQUESTS_PER_MINUTE to STAGEFARE_CONNECTIONS are limits of one process, 0 for
none; a caller is a token, or an address while there are no tokens. docs/operations.md says what
each counts.

Traces are exported when OTEL_EXPORTER_OTLP_ENDPOINT (or ..._TRACES_ENDPOINT) is set and the extra
`otel` is installed; OpenTelemetry reads its other variables itself.

A variable with the prefix that is not in this table is refused, so that a misspelt name can't be
overlooked.
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from ipaddress import ip_address
from pathlib import Path
from typing import TypeVar
from urllib.parse import quote, urlsplit

__all__ = [
    "PREFIX",
    "SETTING_NAMES",
    "LogFormat",
    "LogLevel",
    "Settings",
    "SettingsError",
    "is_loopback",
    "read_settings",
]

Choice = TypeVar("Choice", bound=StrEnum)

PREFIX = "STAGEFARE_"
# Whole numbers: the default, and the most; 0 is no limit where the number is one.
NUMBERS = {
    "REQUESTS_PER_MINUTE": (6_000, 10**9 - 1),
    "CALCULATIONS_PER_CALLER": (64, 10**9 - 1),
    "WAITING_CALCULATIONS": (128, 10**9 - 1),
    "WORK_SECONDS_PER_CALLER": (8, 10**6),
    "WORK_SECONDS": (16, 10**6),
    "BODY_MIB_PER_CALLER": (64, 10**6),
    "BODY_MIB": (128, 10**6),
    "CONNECTIONS": (500, 10**6),
    "SHUTDOWN_DELAY_SECONDS": (0, 3600),
    "SHUTDOWN_GRACE_SECONDS": (30, 3600),
}
# Without the prefix.
SETTING_NAMES = frozenset(
    {
        "DATABASE_PASSWORD_FILE",
        "DATABASE_URL",
        "DATA_DIR",
        "HOST",
        "LOG_FORMAT",
        "LOG_LEVEL",
        "PORT",
        *NUMBERS,
    }
)
MAX_PASSWORD_BYTES = 1000
DATABASE_SCHEMES = ("sqlite", "sqlite+aiosqlite", "postgresql", "postgresql+asyncpg")


class LogLevel(StrEnum):
    """How much is logged, as uvicorn and the standard library name it."""

    CRITICAL = "critical"
    ERROR = "error"
    WARNING = "warning"
    INFO = "info"
    DEBUG = "debug"


class LogFormat(StrEnum):
    """How a log line is written."""

    JSON = "json"
    TEXT = "text"


class SettingsError(ValueError):
    """Every setting that can't be used, each by name."""

    def __init__(self, problems: list[str]) -> None:
        self.problems = tuple(problems)
        super().__init__("; ".join(problems))


@dataclass(frozen=True, slots=True)
class Settings:
    """What a deployment may choose."""

    host: str
    port: int
    data_dir: Path
    database_url: str
    log_level: LogLevel
    log_format: LogFormat | None  # None: what suits where the log goes
    requests_per_minute: int
    calculations_per_caller: int
    waiting_calculations: int
    work_seconds_per_caller: int
    work_seconds: int
    body_mib_per_caller: int
    body_mib: int
    connections: int
    shutdown_delay_seconds: int
    shutdown_grace_seconds: int
    exports_traces: bool

    def logs_json(self, to_terminal: bool) -> bool:
        """Whether log lines are JSON: as was chosen, or else unless a person is reading."""
        if self.log_format is None:
            return not to_terminal
        return self.log_format is LogFormat.JSON


def read_settings(environment: Mapping[str, str] | None = None) -> Settings:
    """The settings of an environment, by default this process's; an empty value is as if absent.

    Raises `SettingsError` naming every variable that is unknown or has a value that can't be used.
    """
    environment = os.environ if environment is None else environment
    given = {
        name.removeprefix(PREFIX): value
        for name, value in environment.items()
        if name.startswith(PREFIX) and value
    }
    problems: list[str] = []
    problems += [
        f"{PREFIX}{name} is not a setting; known are "
        + ", ".join(f"{PREFIX}{setting}" for setting in sorted(SETTING_NAMES))
        for name in sorted(given.keys() - SETTING_NAMES)
    ]
    port = _port(given.get("PORT", "8000"), problems)
    log_level = _choice("LOG_LEVEL", given.get("LOG_LEVEL", LogLevel.INFO), LogLevel, problems)
    log_format = _choice("LOG_FORMAT", given.get("LOG_FORMAT"), LogFormat, problems)
    numbers = {name: _number(name, given.get(name), problems) for name in NUMBERS}
    data_dir = Path(given.get("DATA_DIR", ".stagefare")).absolute()
    database_url = given.get("DATABASE_URL") or f"sqlite:///{data_dir / 'stagefare.db'}"
    _check_database_url(database_url, problems)
    if "DATABASE_PASSWORD_FILE" in given and not problems:
        password_file = Path(given["DATABASE_PASSWORD_FILE"])
        database_url = _with_password(database_url, password_file, problems)
    if problems:
        raise SettingsError(problems)
    return Settings(
        host=given.get("HOST", "127.0.0.1"),
        port=port,
        data_dir=data_dir,
        database_url=database_url,
        log_level=log_level or LogLevel.INFO,
        log_format=log_format,
        requests_per_minute=numbers["REQUESTS_PER_MINUTE"],
        calculations_per_caller=numbers["CALCULATIONS_PER_CALLER"],
        waiting_calculations=numbers["WAITING_CALCULATIONS"],
        work_seconds_per_caller=numbers["WORK_SECONDS_PER_CALLER"],
        work_seconds=numbers["WORK_SECONDS"],
        body_mib_per_caller=numbers["BODY_MIB_PER_CALLER"],
        body_mib=numbers["BODY_MIB"],
        connections=numbers["CONNECTIONS"],
        shutdown_delay_seconds=numbers["SHUTDOWN_DELAY_SECONDS"],
        shutdown_grace_seconds=numbers["SHUTDOWN_GRACE_SECONDS"],
        exports_traces=_exports_traces(environment),
    )


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches what listens there: `localhost` or a loopback address.

    Any other name is taken to be reached from elsewhere, whatever it resolves to today.
    """
    if host.lower() == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False


def _port(text: str, problems: list[str]) -> int:
    if text.isascii() and text.isdecimal() and len(text) <= 5 and 0 < int(text) < 2**16:
        return int(text)
    problems.append(f"{PREFIX}PORT is a number from 1 to 65535; got {text[:100]!r}")
    return 0


def _number(name: str, text: str | None, problems: list[str]) -> int:
    default, most = NUMBERS[name]
    if text is None:
        return default
    if text.isascii() and text.isdecimal() and len(text) <= 9 and int(text) <= most:
        return int(text)
    problems.append(f"{PREFIX}{name} is a whole number from 0 to {most}; got {text[:100]!r}")
    return 0


def _exports_traces(environment: Mapping[str, str]) -> bool:
    """Whether OpenTelemetry's own variables ask for traces."""
    if environment.get("OTEL_SDK_DISABLED", "").lower() == "true":
        return False
    if environment.get("OTEL_TRACES_EXPORTER", "otlp").lower() == "none":
        return False
    endpoints = ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")
    return any(environment.get(endpoint) for endpoint in endpoints)


def _choice(
    name: str, text: str | None, choices: type[Choice], problems: list[str]
) -> Choice | None:
    if text is None:
        return None
    try:
        return choices(text.lower())
    except ValueError:
        problems.append(f"{PREFIX}{name} is one of {', '.join(choices)}; got {text[:100]!r}")
        return None


def _check_database_url(url: str, problems: list[str]) -> None:
    """Only the scheme: the rest may hold a password, so it is not repeated in a message."""
    try:
        scheme = urlsplit(url).scheme
    except ValueError:
        scheme = ""
    if scheme not in DATABASE_SCHEMES:
        schemes = ", ".join(DATABASE_SCHEMES)
        problems.append(f"{PREFIX}DATABASE_URL starts with one of {schemes}, followed by ://")


def _with_password(url: str, file: Path, problems: list[str]) -> str:
    """The URL with the password in the file, less the line's end; it is never shown."""
    name = f"{PREFIX}DATABASE_PASSWORD_FILE"
    user, at, _ = urlsplit(url).netloc.rpartition("@")
    if urlsplit(url).scheme.startswith("sqlite") or not at or ":" in user:
        problems.append(f"{name} goes with a {PREFIX}DATABASE_URL like postgresql://user@host/name")
        return url
    try:
        with file.open("rb") as opened:
            content = opened.read(MAX_PASSWORD_BYTES + 1)
        password = content.decode().rstrip("\r\n")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is not UTF-8"
        problems.append(f"{name} can't be read: {reason}")
        return url
    if not password or "\0" in password or len(content) > MAX_PASSWORD_BYTES:
        problems.append(f"{name} holds a password of 1 to {MAX_PASSWORD_BYTES} bytes on one line")
        return url
    return url.replace(f"//{user}@", f"//{user}:{quote(password, safe='')}@", 1)
