"""How commands reach the database, and how what is refused there is told."""

import asyncio
import errno
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

import click

from service.settings import Settings, SettingsError, read_settings

if TYPE_CHECKING:
    from service.app.services import Backend, Services

__all__ = ["Commands", "has_no_tokens", "migrated_settings", "with_backend", "with_services"]

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


def migrated_settings() -> Settings:
    """The settings, with the database they name at the schema of this version."""
    try:
        settings = read_settings()
    except SettingsError as error:
        raise click.ClickException("\n".join(error.problems)) from error
    from service.store.migrate import MigrationFailed, upgrade

    try:
        asyncio.run(upgrade(settings.database_url))
    except MigrationFailed as error:
        raise click.ClickException(str(error)) from error
    return settings


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
