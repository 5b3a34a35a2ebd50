"""The Dockerfile and the compose file, as far as they can be held without a container engine."""

import json
import re
import shlex
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml
from sqlalchemy import make_url

from service.settings import PREFIX, SETTING_NAMES, read_settings
from service.store.engine import create_engine
from tests.architecture.repository import ROOT

BIN = Path(sys.executable).parent
# A tag that stays what it is: a full version, not "latest", "18" or "slim".
PINNED = re.compile(r"[a-z0-9./-]+:\d+\.\d+(\.\d+)?(-[a-z0-9.-]+)?")


def instructions() -> list[tuple[str, str]]:
    """Each instruction of the Dockerfile with its arguments on one line."""
    lines = (ROOT / "Dockerfile").read_text().splitlines()
    text = "\n".join(line for line in lines if not line.startswith("#")).replace("\\\n", " ")
    pairs = [line.split(None, 1) for line in text.splitlines() if line.strip()]
    return [(name, " ".join(rest.split())) for name, rest in pairs]


def arguments(name: str) -> list[str]:
    return [rest for instruction, rest in instructions() if instruction == name]


def image_environment() -> dict[str, str]:
    return dict(pair.split("=", 1) for line in arguments("ENV") for pair in shlex.split(line))


def compose() -> dict[str, Any]:
    document: dict[str, Any] = yaml.safe_load((ROOT / "docker-compose.yml").read_text())
    return document


SERVICES = compose()["services"]
OWN = {name for name, service in SERVICES.items() if "build" in service}


def check(*command: str) -> None:
    result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stdout + result.stderr


def test_a_linter_finds_nothing_in_the_dockerfile() -> None:
    check(str(BIN / "hadolint"), "--failure-threshold", "style", "Dockerfile")


def test_the_compose_file_fits_the_specification() -> None:
    check(
        *(str(BIN / "check-jsonschema"), "--builtin-schema", "vendor.compose-spec"),
        "docker-compose.yml",
    )


def test_base_images_are_pinned_and_the_same() -> None:
    images = {line.split()[0] for line in arguments("FROM")}
    assert len(images) == 1
    assert all(PINNED.fullmatch(image) for image in images)


def pip_commands() -> list[list[str]]:
    """The words of every call of pip, in order."""
    parts = [part.split() for line in arguments("RUN") for part in line.split("&&")]
    return [words for words in parts if words[0].endswith("/pip")]


def test_what_is_installed_is_pinned_by_hash_and_needs_no_compiler() -> None:
    fetch, *others = pip_commands()
    assert fetch[1] == "download"
    assert {"--require-hashes", "--only-binary"} <= set(fetch)
    # Nothing but the first reaches for the network.
    assert others
    assert all("--no-index" in words for words in others)
    assert not [
        line for line in arguments("RUN") if re.search(r"\b(apt|apk|gcc|curl|wget)\b", line)
    ]


def test_the_image_has_no_pip_and_no_build_backend() -> None:
    *_, final = pip_commands()
    # By the requirements of the project alone, into an environment that pip is not part of.
    assert final[1:3] == ["--python", "/opt/stagefare/bin/python"]
    assert "--requirement" not in final
    (environment,) = [
        part.split()
        for line in arguments("RUN")
        for part in line.split("&&")
        if part.endswith("/opt/stagefare ")
    ]
    assert "--without-pip" in environment
    assert [line for line in arguments("COPY") if line.startswith("--from")] == [
        "--from=build /opt/stagefare /opt/stagefare"
    ]


def test_everything_copied_exists_and_passes_the_ignore_file() -> None:
    rules = (ROOT / ".dockerignore").read_text().splitlines()
    let_through = {rule[1:] for rule in rules if rule.startswith("!")}
    assert "*" in rules
    copied = {
        source
        for line in arguments("COPY")
        if not line.startswith("--from")
        for source in line.split()[:-1]
    }
    assert copied == let_through
    assert all((ROOT / source).exists() for source in copied)


def test_the_wheel_is_built_from_what_is_copied() -> None:
    with (ROOT / "pyproject.toml").open("rb") as file:
        project = tomllib.load(file)
    wheel = project["tool"]["hatch"]["build"]["targets"]["wheel"]
    needed = {*wheel["packages"], *wheel["force-include"], project["project"]["readme"]}
    needed |= {"pyproject.toml", *project["project"]["license-files"]}
    copied = {source for line in arguments("COPY") for source in line.split()[:-1]}
    assert needed <= copied


def test_the_image_runs_without_rights() -> None:
    user, group = arguments("USER")[-1].split(":")
    assert int(user) > 0
    assert int(group) > 0
    last = [name for name, _ in instructions()]
    assert last.index("USER") > max(i for i, name in enumerate(last) if name == "RUN")


def test_the_settings_of_the_image_are_right() -> None:
    environment = image_environment()
    names = {name for name in environment if name.startswith(PREFIX)}
    assert {name.removeprefix(PREFIX) for name in names} <= SETTING_NAMES
    settings = read_settings(environment)
    assert arguments("EXPOSE") == [str(settings.port)]
    assert arguments("VOLUME") == [str(settings.data_dir)] == arguments("WORKDIR")[-1:]
    assert environment["NUMBA_CACHE_DIR"].startswith("/tmp/")  # noqa: S108


def test_the_image_asks_itself_whether_it_lives() -> None:
    (health,) = arguments("HEALTHCHECK")
    command = json.loads(health.partition("CMD ")[2])
    assert command[:2] == ["python", "-c"]
    compile(command[2], "the health check", "exec")
    port = read_settings(image_environment()).port
    assert f"http://127.0.0.1:{port}/healthz" in command[2]


@pytest.mark.parametrize("name", sorted(SERVICES))
def test_every_container_is_confined(name: str) -> None:
    service = SERVICES[name]
    assert service["read_only"] is True
    assert service["cap_drop"] == ["ALL"]
    assert service["security_opt"] == ["no-new-privileges:true"]
    assert "privileged" not in service
    assert PINNED.fullmatch(service["image"])
    # Without a user of its own a container has that of its image.
    assert name in OWN or service["user"] not in {"root", "0"}
    assert any(entry == "/tmp" for entry in service["tmpfs"])  # noqa: S108


@pytest.mark.parametrize("name", sorted(SERVICES))
def test_what_runs_for_long_says_how_it_is(name: str) -> None:
    service = SERVICES[name]
    if service["restart"] == "no":
        assert "healthcheck" not in service
        return
    command = service["healthcheck"]["test"]
    assert command[0] == "CMD"
    if name in OWN:
        compile(command[3], "the health check", "exec")
        port = read_settings(image_environment()).port
        assert f"http://127.0.0.1:{port}/readyz" in command[3]


def test_the_database_is_migrated_once_before_anything_serves() -> None:
    assert SERVICES["migrate"]["command"] == ["migrate"]
    assert SERVICES["migrate"]["restart"] == "no"
    assert SERVICES["migrate"]["depends_on"] == {"database": {"condition": "service_healthy"}}
    waits_for = SERVICES["service"]["depends_on"]
    assert waits_for["migrate"] == {"condition": "service_completed_successfully"}
    assert waits_for["database"] == {"condition": "service_healthy"}


@pytest.mark.parametrize("name", sorted(OWN))
def test_the_settings_of_the_containers_are_right(name: str, tmp_path: Path) -> None:
    environment = {**image_environment(), **SERVICES[name]["environment"]}
    assert {n.removeprefix(PREFIX) for n in environment if n.startswith(PREFIX)} <= SETTING_NAMES
    secret = environment["STAGEFARE_DATABASE_PASSWORD_FILE"]
    assert secret == f"/run/secrets/{SERVICES[name]['secrets'][0]}"
    (tmp_path / "secret").write_text("secret\n")
    environment["STAGEFARE_DATABASE_PASSWORD_FILE"] = str(tmp_path / "secret")
    settings = read_settings(environment)
    create_engine(settings.database_url)
    url = make_url(settings.database_url)
    database = SERVICES["database"]["environment"]
    assert url.host == "database"
    assert url.username == database["POSTGRES_USER"]
    assert url.database == database["POSTGRES_DB"]
    assert url.password == "secret"  # noqa: S105
    stops_within = settings.shutdown_delay_seconds + settings.shutdown_grace_seconds
    if "stop_grace_period" in SERVICES[name]:
        assert int(SERVICES[name]["stop_grace_period"].removesuffix("s")) > stops_within


def test_the_port_is_published_to_this_machine_alone() -> None:
    port = read_settings(image_environment()).port
    assert SERVICES["service"]["ports"] == [f"127.0.0.1:{port}:{port}"]
    assert not SERVICES["database"].get("ports")


def test_the_image_has_the_version_of_the_project() -> None:
    with (ROOT / "pyproject.toml").open("rb") as file:
        version = tomllib.load(file)["project"]["version"]
    assert {SERVICES[name]["image"] for name in OWN} == {f"stagefare:{version}"}


def test_no_secret_is_in_the_file_and_none_is_committed() -> None:
    document = compose()
    for secret in document["secrets"].values():
        file = Path(secret["file"])
        result = subprocess.run(["git", "check-ignore", str(file)], cwd=ROOT, check=False)
        assert result.returncode in (0, 128)  # 128: a copy without git
    text = (ROOT / "docker-compose.yml").read_text()
    assert not re.search(r"PASSWORD: |://[^\s@]*:[^\s@]*@", text)


def test_data_outlives_the_containers() -> None:
    (mounted,) = SERVICES["database"]["volumes"]
    volume, _, place = mounted.partition(":")
    assert volume in compose()["volumes"]
    # PostgreSQL 18 keeps a folder for each major version below this one.
    assert place == "/var/lib/postgresql"
