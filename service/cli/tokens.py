"""The tokens of every team, for whoever has the database."""

import re
from collections.abc import Callable
from datetime import timedelta
from typing import TYPE_CHECKING

import click

from service.cli.running import has_no_tokens, migrated_settings, with_backend, with_services

if TYPE_CHECKING:
    from service.app.access import NewToken
    from service.app.ports import Token
    from service.app.services import Backend

__all__ = ["tokens"]

_SECONDS_OF_UNIT = {"m": 60, "h": 3600, "d": 86400}


@click.group()
def tokens() -> None:
    """Make, list and revoke the tokens of any team.

    The first token ends open access for good: from then on every request needs one.
    """


def _team_option(command: Callable[..., None]) -> Callable[..., None]:
    return click.option(
        "--team", required=True, callback=_named, help="The team the tokens speak for."
    )(command)


def _named(_context: click.Context, parameter: click.Parameter, value: str | None) -> str | None:
    from service.app.references import NAME_RULE, parse_name

    if value is not None and parse_name(value) is None:
        raise click.BadParameter(f"{parameter.opts[0]} is {NAME_RULE}; got {value!r}")
    return value


def _lifetime(_context: click.Context, _parameter: click.Parameter, value: str) -> timedelta:
    from service.app.access import MAX_LIFETIME, MIN_LIFETIME

    match = re.fullmatch(r"([0-9]{1,6})([mhd])", value)
    seconds = 0 if match is None else int(match[1]) * _SECONDS_OF_UNIT[match[2]]
    if not MIN_LIFETIME.total_seconds() <= seconds <= MAX_LIFETIME.total_seconds():
        raise click.BadParameter(f"from 1m to {MAX_LIFETIME.days}d, such as 12h; got {value!r}")
    return timedelta(seconds=seconds)


@tokens.command("create")
@_team_option
@click.option(
    "--scope",
    "scopes",
    type=click.Choice(["read", "write", "admin"]),
    multiple=True,
    required=True,
    help="What it allows; may be given several times. No scope holds another one.",
)
@click.option("--name", callback=_named, help="What it is for.")
@click.option(
    "--expires-in", default="90d", show_default=True, callback=_lifetime, help="As 30m, 12h or 90d."
)
def create_token(
    team: str, scopes: tuple[str, ...], name: str | None, expires_in: timedelta
) -> None:
    """Make a token and print it, this once, on standard output."""
    from service.app import access
    from service.app.ports import Scope

    async def create(backend: "Backend") -> "NewToken":
        services = backend.for_team(team)
        return await access.create_token(
            services, map(Scope, scopes), name=name, lifetime=expires_in
        )

    settings = migrated_settings()
    was_open = with_backend(settings, has_no_tokens)
    new = with_backend(settings, create)
    click.echo(new.text)
    expiry = f"{new.token.expires_at:%Y-%m-%d %H:%M} UTC"
    click.echo(f"Token {new.token.id} of the team {team}, until {expiry}.", err=True)
    click.echo("It is shown this once: only a hash of it is stored.", err=True)
    if was_open:
        click.echo("Open access has ended; a running service notices within a second.", err=True)


@tokens.command("list")
@_team_option
def list_tokens(team: str) -> None:
    """List the tokens of a team, newest first, without their secrets."""
    from service.app.access import token_page

    async def read(backend: "Backend") -> list["Token"]:
        services = backend.for_team(team)
        found: list[Token] = []
        while page := await token_page(services, 200, found[-1].id if found else None):
            found += page
        return found

    for token in with_backend(migrated_settings(), read):
        scopes = ",".join(sorted(token.scopes))
        state = f"until {token.expires_at:%Y-%m-%d %H:%M} UTC"
        if token.revoked_at is not None:
            state = f"revoked {token.revoked_at:%Y-%m-%d %H:%M} UTC"
        click.echo(f"{token.id}  {scopes:<16}  {state:<30}  {token.name or ''}".rstrip())


@tokens.command("revoke")
@click.argument("token_id", metavar="ID")
@_team_option
def revoke_token(token_id: str, team: str) -> None:
    """Make the token ID of a team useless at once and for good."""
    from service.app import access

    with_services(
        migrated_settings(), lambda services: access.revoke_token(services, token_id), team
    )
    click.echo(f"Token {token_id} is revoked.")
