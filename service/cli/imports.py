"""What the `stagefare` command makes of files: profiles, and routings."""

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from service.cli.running import migrated_settings, with_services

if TYPE_CHECKING:
    from service.app.documents import Stored
    from service.app.imports import ImportFile
    from service.app.ports import DocumentKind
    from service.app.services import Services
    from service.formats.profile_reading import Stated
    from service.formats.routing_reading import StatedRouting

__all__ = ["import_", "import_routing"]


@click.command("import")
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--name", required=True, help="Name of the profile, and of its model.")
@click.option(
    "--model-name",
    help="Another name for the model; or the stored model that a table of costs is for.",
)
@click.option(
    "--microbatch-size",
    type=click.IntRange(1, 2**31),
    help="Samples of one profiled batch, where the file does not say it.",
)
@click.option(
    "--backward-ratio",
    type=click.FloatRange(0, 1000),
    help="How long a backward takes for its forward, where the file has no backward of its own.",
)
@click.option("--device", help="What it was measured on.")
@click.option("--precision", help="What it was measured in.")
@click.option("--dry-run", is_flag=True, help="Read and report, but store nothing.")
def import_(
    file: Path,
    name: str,
    model_name: str | None,
    microbatch_size: int | None,
    backward_ratio: float | None,
    device: str | None,
    precision: str | None,
    dry_run: bool,
) -> None:
    """Import FILE, a profile that another tool wrote, and its model where it holds one."""
    from service.app.imports import ImportFile
    from service.formats.profile_reading import Stated

    _require_names(("--name", name), ("--model-name", model_name))
    stated = Stated(
        microbatch_size=microbatch_size,
        backward_ratio=backward_ratio,
        device=device,
        precision=precision,
    )
    profile = ImportFile(file.read_bytes(), stated)
    settings = migrated_settings()
    use = partial(_import, profile=profile, name=name, model_name=model_name, dry_run=dry_run)
    click.echo(with_services(settings, use))


@click.command("import-routing")
@click.argument(
    "files",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    nargs=-1,
    required=True,
)
@click.option("--name", required=True, help="Name of the routing.")
@click.option("--experts", type=click.IntRange(1), help="Of each layer, where no file says it.")
@click.option("--top-k", type=click.IntRange(1), help="Experts of each token, likewise.")
@click.option("--loads", is_flag=True, help="Counts are in a unit that is no number of tokens.")
@click.option("--replicated", type=click.IntRange(1), help="How often each was counted.")
@click.option("--drop-warm-up", is_flag=True, help="Leave dummy tokens of a warm-up out.")
@click.option("--dry-run", is_flag=True, help="Read and report, but store nothing.")
def import_routing(
    files: tuple[Path, ...],
    name: str,
    experts: int | None,
    top_k: int | None,
    loads: bool,
    replicated: int | None,
    drop_warm_up: bool,
    dry_run: bool,
) -> None:
    """Import FILES, expert loads of layers and steps, as one routing."""
    from service.formats.routing_reading import StatedRouting

    _require_names(("--name", name))
    stated = StatedRouting(
        experts=experts,
        top_k=top_k,
        loads=loads or None,
        replicated=replicated,
        drop_warm_up=drop_warm_up or None,
    )
    settings = migrated_settings()
    use = partial(_import_routing, files=files, stated=stated, name=name, dry_run=dry_run)
    click.echo(with_services(settings, use))


def _require_names(*options: tuple[str, str | None]) -> None:
    from service.app.references import NAME_RULE, parse_name

    for option, value in options:
        if value is not None and parse_name(value) is None:
            raise click.ClickException(f"{option} is {NAME_RULE}; got {value!r}")


async def _import(
    services: "Services",
    *,
    profile: "ImportFile[Stated]",
    name: str,
    model_name: str | None,
    dry_run: bool,
) -> str:
    from service.app.imports import import_profile

    imported = await import_profile(
        services, profile, profile_name=name, model_name=model_name, dry_run=dry_run
    )
    lines = _read(f"a {imported.format} file", imported.facts)
    left_out = [f"line {entry.line}: {entry.detail}" for entry in imported.left_out]
    lines += _told(imported.assumptions, left_out)
    for kind, document in imported.documents.items():
        lines.append(_made(kind, document.name, document.stored))
    return "\n".join(lines)


async def _import_routing(
    services: "Services",
    *,
    files: tuple[Path, ...],
    stated: "StatedRouting",
    name: str,
    dry_run: bool,
) -> str:
    from service.app.ports import DocumentKind
    from service.app.routing_imports import import_routing

    contents = [file.read_bytes() for file in files]
    imported = await import_routing(services, contents, stated, name=name, dry_run=dry_run)
    lines = []
    for file, form, reading in zip(files, imported.formats, imported.readings, strict=True):
        lines += _read(f"{file.name}, a {form} file", reading.facts())
    left_out = [
        f"{file.name}, line {entry.line}: {entry.detail}"
        for file, reading in zip(files, imported.readings, strict=True)
        for entry in reading.left_out
    ]
    taken = [each for reading in imported.readings for each in reading.assumptions]
    lines += _told([*taken, *imported.joined.assumptions], left_out)
    lines += [f"Warning: {warning}" for warning in imported.checked.examined.warnings]
    lines.append(_made(DocumentKind.ROUTING, name, imported.stored))
    return "\n".join(lines)


def _read(what: str, facts: Mapping[str, Any]) -> list[str]:
    return [
        f"Read {what}:",
        *(f"  {fact.replace('_', ' ')}: {value}" for fact, value in facts.items()),
    ]


def _told(assumptions: Sequence[str], left_out: Sequence[str]) -> list[str]:
    lines = []
    for heading, entries in (("Assumed", assumptions), ("Left out", left_out)):
        if entries:
            lines += ["", f"{heading}:", *(f"  - {entry}" for entry in dict.fromkeys(entries))]
    return lines


def _made(kind: "DocumentKind", name: str, stored: "Stored | None") -> str:
    from service.app.references import singular

    if stored is None:
        return f"Nothing stored: {singular(kind)} {name} was only read."
    reference = stored.revision.reference
    return f"{singular(kind).capitalize()} {reference}: {stored.change.value}."
