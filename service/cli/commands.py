"""The `stagefare` command and what it does with plans."""

import json
import socket
import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from service.cli.imports import import_, import_routing
from service.cli.running import (
    Commands,
    database_place,
    has_no_tokens,
    migrated_settings,
    with_backend,
    with_services,
)
from service.cli.tokens import tokens
from service.settings import is_loopback

if TYPE_CHECKING:
    from service.app.pricing import PlanQuestion, Priced
    from service.app.services import Services

__all__ = ["main"]

EXAMPLE_PLAN = "gpt-two-hosts"


@click.group(
    cls=Commands,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.version_option(package_name="stagefare")
def main() -> None:
    """What a distributed training plan costs, before anyone books the cluster.

    Stagefare stores cluster topologies and profiled layer costs, and computes for a proposed
    pipeline plan: stage cadence, bubble, lower bounds of boundary transfers on the physical path
    and peak live activations. Settings are the STAGEFARE_ environment variables.
    """


main.add_command(tokens)
main.add_command(import_)
main.add_command(import_routing)


@main.command()
@click.option("--check", is_flag=True, help="Do everything but serve, then exit.")
@click.option("--with-examples", is_flag=True, help="Store the example documents, price one plan.")
def serve(check: bool, with_examples: bool) -> None:
    """Migrate the database and serve the HTTP API."""
    settings = migrated_settings(creates=True)
    is_open = with_backend(settings, has_no_tokens)
    if is_open and not is_loopback(settings.host):
        raise click.ClickException(
            f"without tokens the service is open, so it serves on a loopback address only and not "
            f"on {settings.host}: make a token first (stagefare tokens create --help)"
        )
    if with_examples:
        click.echo(with_services(settings, _store_and_price_examples), nl=False)
    if check:
        return
    from service.logs import configure_logging
    from service.main import create_app
    from service.web.server import Server

    configure_logging(
        settings.log_level, sys.stderr, as_json=settings.logs_json(sys.stderr.isatty())
    )
    listener = _listen(settings.host, settings.port)
    host = f"[{settings.host}]" if ":" in settings.host else settings.host
    base = f"http://{host}:{settings.port}"
    click.echo(f"\nServing {base} (stop with Ctrl-C)")
    click.echo(f"  the contract  {base}/openapi.json")
    click.echo(f"  to try it     {base}/reference")
    click.echo(f"  the plans     {base}/v1/plans")
    click.echo(f"  readiness     {base}/readyz")
    click.echo(f"  the database  {database_place(settings)}")
    if is_open:
        click.echo("  access        open to this machine, as the team local, until the first token")
    else:
        click.echo("  access        with a token in the Authorization header")
    server = Server(
        create_app(settings),
        delay_seconds=settings.shutdown_delay_seconds,
        grace_seconds=settings.shutdown_grace_seconds,
        most_connections=settings.connections,
    )
    with listener, suppress(KeyboardInterrupt):
        server.run(sockets=[listener])
    if not server.started:
        raise click.ClickException("the service did not start")


@main.command()
@click.argument("plan")
@click.option("--patch", help="A JSON merge patch of the plan, for a what-if question.")
@click.option("--json", "as_json", is_flag=True, help="Print the answer as HTTP gives it.")
def estimate(plan: str, patch: str | None, as_json: bool) -> None:
    """Price PLAN: a JSON file, - for standard input, or the name of a stored plan."""
    body: dict[str, Any] = {"plan": _plan_argument(plan)}
    if patch is not None:
        body["patch"] = _json(patch, "--patch")
    settings = migrated_settings()
    click.echo(with_services(settings, lambda services: _estimate(services, body, as_json)))


@main.command()
def migrate() -> None:
    """Bring the database to the schema of this version."""
    settings = migrated_settings(creates=True)
    click.echo(f"The database has the schema of this version: {database_place(settings)}")


@main.command()
def openapi() -> None:
    """Print the OpenAPI document of the HTTP API."""
    from service.api.contract import published_contract

    click.echo(published_contract(), nl=False)


def _plan_argument(plan: str) -> Any:
    """A file's JSON, or the text itself as a reference."""
    from service.app.references import parse_reference

    if plan == "-":
        return _json(sys.stdin.buffer.read(), "standard input")
    try:
        is_file = Path(plan).is_file()
    except OSError:  # longer than the name of a file may be
        is_file = False
    if is_file:
        return _json(Path(plan).read_bytes(), plan)
    if parse_reference(plan) is None:
        shown = plan[:100].encode(errors="replace").decode()
        raise click.ClickException(
            f"there is no file {shown!r}, and it is no name of a stored plan"
        )
    return plan


def _json(text: str | bytes, where: str) -> Any:
    try:
        return json.loads(text, object_pairs_hook=_object)
    except (ValueError, RecursionError) as error:
        raise click.ClickException(f"{where} is no JSON: {error}") from error


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    entries = dict(pairs)
    if len(entries) < len(pairs):
        keys = ", ".join(key for key, _ in pairs)[:200]
        raise ValueError(f"one of its objects gives a key twice: {keys}")
    return entries


def _listen(host: str, port: int) -> socket.socket:
    """A socket bound before anything is announced, so that a refused address is told at once."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family, backlog=2048)
    except (OSError, UnicodeError) as error:  # a name can be unfit for a look-up
        reason = getattr(error, "strerror", None) or error
        raise click.ClickException(f"can't listen on {host}, port {port}: {reason}") from error


async def _estimate(services: "Services", body: dict[str, Any], as_json: bool) -> str:
    from service.api.estimates import render_estimate
    from service.api.plan_questions import estimate_question, patched_plan
    from service.api.schemas.requests import EstimateRequest
    from service.app.estimates import create
    from service.web.strict_json import decode_json

    request: EstimateRequest = decode_json(json.dumps(body).encode(), EstimateRequest)
    question = estimate_question(request)
    if as_json:
        outcome = await create(services, question, patched_plan, render_estimate)
        return outcome.stored.answer.decode()
    title = request.plan if isinstance(request.plan, str) else "the plan"
    return await _report(services, question.plan, title)


async def _report(services: "Services", question: "PlanQuestion", title: str) -> str:
    from service.api.plan_questions import patched_plan
    from service.app.pricing import prepare, price

    prepared = await prepare(services, question, patched_plan)
    return await services.executor.run(lambda: _tables(price(prepared), title))


def _tables(priced: "Priced", title: str) -> str:
    from service.core.estimates.estimate import estimate_plan
    from service.core.estimates.iteration import still_left_out
    from service.formats.estimate_report import estimate_report

    result = estimate_plan(priced.simulated)
    stored = priced.prepared.pinned.stored_plan
    plan = priced.resolved.plan
    heading = (
        f"{title if stored is None else stored.reference}: {plan.schedule.kind}, "
        f"{len(priced.resolved.stages)} stages, {plan.workload.microbatches} microbatches, "
        f"{plan.degrees.world_size} ranks"
    )
    left_out = (
        *still_left_out(result.iteration_parts, priced.not_represented),
        *result.not_represented,
    )
    assumed = (*priced.assumptions, *result.assumptions)
    return estimate_report(result, heading, assumed, left_out)


async def _store_and_price_examples(services: "Services") -> str:
    """Store what examples/ holds (equal content changes nothing) and price one plan of it."""
    from service.app import documents
    from service.app.document_kinds import DOCUMENT_TYPES
    from service.app.documents import Change
    from service.app.pricing import PlanQuestion
    from service.resources import resource_folder
    from service.web.strict_json import decode_json

    counts = dict.fromkeys(Change, 0)
    for kind, document_type in DOCUMENT_TYPES.items():
        for file in sorted((resource_folder("examples") / kind.value).glob("*.json")):
            document: Any = decode_json(file.read_bytes(), document_type.struct)
            stored = await documents.put(services, kind, file.stem, document)
            counts[stored.change] += 1
    total = sum(counts.values())
    new = total - counts[Change.UNCHANGED]
    heading = f"Example documents: {total}, of which {new} stored now.\n\n"
    return heading + await _report(services, PlanQuestion(EXAMPLE_PLAN), EXAMPLE_PLAN)
