"""How commands reach the database, and how what is refused there is told."""

import asyncio
import errno
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

import click

from service.settings import Settings, SettingsError, read_settings

if TYPE_CHECKING:
    from service.app.services import Backend, Services

__all__ = [
    "Commands",
    "database_place",
    "has_no_tokens",
    "migrated_settings",
    "with_backend",
    "with_services",
]

T = TypeVar("T")


class Commands(click.Group):
    """Commands that tell in one line what the machine refused: a file, an address, a full disk."""

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command (click calls this)."""
        try:
            return super().invoke(ctx)
        except OSError as error:
            if error.errno == errno.EPIPE:  # the reader has seen enough; click ends quietly
                raise
            raise click.ClickException(str(error)) from error


def migrated_settings(*, creates: bool = False) -> Settings:
    """The settings, with the database they name at the schema of this version.

    Without `creates`, an SQLite file that is not there is refused, since a new and empty one in the
    wrong folder answers everything, and standard error says which database is used.
    """
    try:
        settings = read_settings()
    except SettingsError as error:
        raise click.ClickException("\n".join(error.problems)) from error
    from service.store.migrate import MigrationFailed, upgrade

    if not creates:
        _refuse_missing_file(settings.database_url)
    try:
        asyncio.run(upgrade(settings.database_url))
    except MigrationFailed as error:
        raise click.ClickException(str(error)) from error
    if not creates:
        click.echo(f"Database: {database_place(settings)}", err=True)
    return settings


def database_place(settings: Settings) -> str:
    """Where the database is, without its password."""
    from service.store.engine import place

    return place(settings.database_url)


def _refuse_missing_file(database_url: str) -> None:
    from service.store.engine import place
    from service.store.migrate import is_missing_file

    try:
        is_missing = is_missing_file(database_url)
    except ValueError as error:
        raise click.ClickException(f"the database can't be opened: {error}") from error
    if is_missing:
        raise click.ClickException(
            f"there is no database {place(database_url)}: run this where the service was started, "
            "or set STAGEFARE_DATA_DIR or STAGEFARE_DATABASE_URL as for the service; "
            "`stagefare migrate` makes a new one"
        )


async def has_no_tokens(backend: "Backend") -> bool:
    """Whether no team has ever made a token, so that a service is open."""
    return await backend.database.token_directory.is_empty()


def with_services(
    settings: Settings, use: Callable[["Services"], Awaitable[T]], team: str | None = None
) -> T:
    """Run one use of a team's services, by default of the local team's."""
    from service.app.access import LOCAL_TEAM

    return with_backend(settings, lambda backend: use(backend.for_team(team or LOCAL_TEAM)))


def with_backend(settings: Settings, use: Callable[["Backend"], Awaitable[T]]) -> T:
    """Run one use of the backend; what it refuses ends the command with every fault named."""
    from service.app.errors import AppError
    from service.core.errors import InvalidInput
    from service.main import open_backend
    from service.web.problems import Problem, json_pointer

    async def run() -> T:
        async with open_backend(settings) as backend:
            return await use(backend)

    try:
        return asyncio.run(run())
    except InvalidInput as error:
        _refuse([f"{json_pointer(fault.path)}: {fault.detail}" for fault in error.faults])
    except Problem as error:
        _refuse([f"{fault.pointer}: {fault.detail}" for fault in error.errors] or [error.detail])
    except AppError as error:
        _refuse([error.detail])


def _refuse(faults: list[str]) -> NoReturn:
    raise click.ClickException("\n".join(["this can't be done:", *faults]))
