"""Settings come from the environment, and every mistake in it is named."""

from pathlib import Path

import pytest
from sqlalchemy import make_url

from service.settings import LogFormat, LogLevel, SettingsError, is_loopback, read_settings


def test_defaults_are_a_local_service_on_an_embedded_database() -> None:
    settings = read_settings({"PATH": "/bin"})
    assert settings.host == "127.0.0.1"
    assert settings.port == 8000
    assert settings.data_dir == Path.cwd() / ".stagefare"
    assert settings.database_url == f"sqlite:///{Path.cwd()}/.stagefare/stagefare.db"
    assert settings.log_level is LogLevel.INFO


def test_everything_can_be_chosen() -> None:
    settings = read_settings(
        {
            "STAGEFARE_HOST": "0.0.0.0",  # noqa: S104
            "STAGEFARE_PORT": "9001",
            "STAGEFARE_DATA_DIR": "/var/lib/stagefare",
            "STAGEFARE_DATABASE_URL": "postgresql://user:secret@db/stagefare",
            "STAGEFARE_LOG_LEVEL": "DEBUG",
            "STAGEFARE_LOG_FORMAT": "JSON",
            "STAGEFARE_REQUESTS_PER_MINUTE": "0",
            "STAGEFARE_CALCULATIONS_PER_CALLER": "3",
            "STAGEFARE_WAITING_CALCULATIONS": "4",
            "STAGEFARE_WORK_SECONDS_PER_CALLER": "5",
            "STAGEFARE_WORK_SECONDS": "6",
            "STAGEFARE_BODY_MIB_PER_CALLER": "7",
            "STAGEFARE_BODY_MIB": "8",
            "STAGEFARE_CONNECTIONS": "9",
            "STAGEFARE_SHUTDOWN_DELAY_SECONDS": "5",
            "STAGEFARE_SHUTDOWN_GRACE_SECONDS": "3600",
        }
    )
    assert settings.host == "0.0.0.0"  # noqa: S104
    assert settings.port == 9001
    assert settings.data_dir == Path("/var/lib/stagefare")
    assert settings.database_url == "postgresql://user:secret@db/stagefare"
    assert settings.log_level is LogLevel.DEBUG
    assert settings.log_format is LogFormat.JSON
    assert settings.requests_per_minute == 0
    assert settings.calculations_per_caller == 3
    assert settings.waiting_calculations == 4
    assert (settings.work_seconds_per_caller, settings.work_seconds) == (5, 6)
    assert (settings.body_mib_per_caller, settings.body_mib) == (7, 8)
    assert settings.connections == 9
    assert (settings.shutdown_delay_seconds, settings.shutdown_grace_seconds) == (5, 3600)


@pytest.mark.parametrize(
    ("environment", "exports"),
    [
        ({}, False),
        ({"OTEL_SERVICE_NAME": "x"}, False),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://collector:4318"}, True),
        ({"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://collector:4318/v1/traces"}, True),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://c", "OTEL_SDK_DISABLED": "TRUE"}, False),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://c", "OTEL_TRACES_EXPORTER": "none"}, False),
    ],
)
def test_traces_are_exported_where_open_telemetry_is_told_to(
    environment: dict[str, str], exports: bool
) -> None:
    assert read_settings(environment).exports_traces is exports


def with_password(url: str, file: Path) -> str:
    environment = {"STAGEFARE_DATABASE_URL": url, "STAGEFARE_DATABASE_PASSWORD_FILE": str(file)}
    return read_settings(environment).database_url


def test_the_password_of_the_database_can_lie_in_a_file(tmp_path: Path) -> None:
    file = tmp_path / "password"
    file.write_text("p@ss:w/rd?%\n")
    url = with_password("postgresql://me@db:5432/stagefare?ssl=require", file)
    assert make_url(url).password == "p@ss:w/rd?%"  # noqa: S105
    shown = make_url(url).render_as_string(hide_password=True)
    assert shown == "postgresql://me:***@db:5432/stagefare?ssl=require"


@pytest.mark.parametrize(
    ("url", "content", "problem"),
    [
        ("postgresql://me@db/x", None, "can't be read: No such file"),
        ("postgresql://me@db/x", b"\n", "holds a password"),
        ("postgresql://me@db/x", b"hidden" * 200, "holds a password"),
        ("postgresql://me@db/x", b"hidden\0", "holds a password"),
        ("postgresql://me@db/x", b"hidden\xff", "it is not UTF-8"),
        ("postgresql://me:other@db/x", b"hidden", "goes with"),
        ("postgresql://db/x", b"hidden", "goes with"),
        ("sqlite:///x", b"hidden", "goes with"),
    ],
)
def test_a_password_that_does_not_fit_is_refused_unseen(
    tmp_path: Path, url: str, content: bytes | None, problem: str
) -> None:
    file = tmp_path / "password"
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(SettingsError, match=problem) as caught:
        with_password(url, file)
    assert "STAGEFARE_DATABASE_PASSWORD_FILE" in str(caught.value)
    assert "hidden" not in str(caught.value)
    assert "other" not in str(caught.value)


@pytest.mark.parametrize("seconds", ["-1", "3601", "1.5", "99999", "x", "١"])
def test_seconds_are_whole_and_bounded(seconds: str) -> None:
    with pytest.raises(SettingsError, match="STAGEFARE_SHUTDOWN_GRACE_SECONDS"):
        read_settings({"STAGEFARE_SHUTDOWN_GRACE_SECONDS": seconds})


LIMITS = ("REQUESTS_PER_MINUTE", "CALCULATIONS_PER_CALLER", "WAITING_CALCULATIONS")


def test_there_are_limits_unless_they_are_taken_away() -> None:
    settings = read_settings({f"STAGEFARE_{name}": "" for name in LIMITS})
    assert settings.requests_per_minute == 6000
    # One caller can't fill the queue.
    assert 0 < settings.calculations_per_caller < settings.waiting_calculations


@pytest.mark.parametrize("name", LIMITS)
@pytest.mark.parametrize("limit", ["-1", "1.5", "none", "1e3", "٨٠", "9" * 10])
def test_a_limit_is_a_number(name: str, limit: str) -> None:
    with pytest.raises(SettingsError, match=f"STAGEFARE_{name}"):
        read_settings({f"STAGEFARE_{name}": limit})


@pytest.mark.parametrize(
    ("chosen", "on_a_terminal", "in_a_file"),
    [("", False, True), ("json", True, True), ("text", False, False)],
)
def test_log_lines_are_json_unless_somebody_reads_along(
    chosen: str, on_a_terminal: bool, in_a_file: bool
) -> None:
    settings = read_settings({"STAGEFARE_LOG_FORMAT": chosen})
    assert settings.logs_json(to_terminal=True) is on_a_terminal
    assert settings.logs_json(to_terminal=False) is in_a_file


def test_the_database_lies_in_the_data_directory() -> None:
    settings = read_settings({"STAGEFARE_DATA_DIR": "/data"})
    assert settings.database_url == "sqlite:////data/stagefare.db"


def test_empty_is_as_if_absent() -> None:
    assert read_settings({"STAGEFARE_PORT": "", "STAGEFARE_DATABASE_URL": ""}).port == 8000


def test_every_mistake_is_named_at_once_and_no_password_is_repeated() -> None:
    with pytest.raises(SettingsError) as caught:
        read_settings(
            {
                "STAGEFARE_PROT": "9000",
                "STAGEFARE_PORT": "70000",
                "STAGEFARE_LOG_LEVEL": "loud",
                "STAGEFARE_LOG_FORMAT": "xml",
                "STAGEFARE_DATABASE_URL": "mysql://user:secret@db/stagefare",
            }
        )
    assert [problem.split()[0] for problem in caught.value.problems] == [
        "STAGEFARE_PROT",
        "STAGEFARE_PORT",
        "STAGEFARE_LOG_LEVEL",
        "STAGEFARE_LOG_FORMAT",
        "STAGEFARE_DATABASE_URL",
    ]
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize("port", ["0", "65536", "-1", "80.0", "٨٠", "x", " 80", "9" * 4400])
def test_a_port_is_a_port(port: str) -> None:
    with pytest.raises(SettingsError, match="STAGEFARE_PORT"):
        read_settings({"STAGEFARE_PORT": port})


def test_a_url_that_cannot_be_split_is_refused() -> None:
    with pytest.raises(SettingsError, match="STAGEFARE_DATABASE_URL"):
        read_settings({"STAGEFARE_DATABASE_URL": "postgresql://[::1"})


@pytest.mark.parametrize("host", ["127.0.0.1", "127.8.0.9", "::1", "localhost", "LocalHost"])
def test_only_this_machine_reaches_a_loopback_address(host: str) -> None:
    assert is_loopback(host)


@pytest.mark.parametrize(
    "host",
    ["0.0.0.0", "::", "192.0.2.1", "127.0.0.1.example", "localhost.example", "", "1"],  # noqa: S104
)
def test_others_may_reach_any_other_host(host: str) -> None:
    assert not is_loopback(host)
