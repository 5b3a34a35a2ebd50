"""How a profile that was read without a model fits one that is stored."""

from typing import Any

import msgspec

from service.app.ports import DocumentKind
from service.app.references import resolve
from service.app.services import Services
from service.core.errors import Fault, FaultCode, InvalidInput
from service.formats.documents import model as models
from service.formats.documents import profile as profiles
from service.formats.documents.model import ModelDocument
from service.formats.documents.profile import ProfileDocument

__all__ = ["fit_to_model"]

# Names that are told; a model may have thousands of layers.
_TOLD = 50


async def fit_to_model(
    services: Services, profile: ProfileDocument, model_name: str
) -> dict[str, Any]:
    """Which layers of a stored model the profile measures, and which of its rows fit none.

    Raises `InvalidInput` at `("model_name",)` when the model is not stored, or no row fits it.
    """
    async with services.storage.reading() as unit:
        path = ("model_name",)
        revision = await resolve(unit, DocumentKind.MODEL, model_name, path, new=True)
    facts = await services.executor.run(_fit, profile, revision.content)
    return {"model": revision.reference, **facts}


def _fit(document: ProfileDocument, content: bytes) -> dict[str, Any]:
    model = models.to_core(msgspec.json.decode(content, type=ModelDocument))
    profile = profiles.to_core(document)
    layers = [layer.name for layer in model.layers if not layer.is_input]
    unmeasured = [name for name in layers if not profile.points(name)]
    if len(unmeasured) == len(layers):
        measured = ", ".join(sorted({m.layer for m in profile.measurements})[:5])
        detail = f"none of its layers ({', '.join(layers[:5])}, ...) is measured, but {measured}"
        raise InvalidInput([Fault(FaultCode.INCONSISTENT, ("model_name",), detail[:500])])
    patterns = set(profile.unfitting(layers))
    named = {m.layer for m in profile.measurements} - set(layers)
    of_none = sorted(name for name in named if name in patterns or not set("*?") & set(name))
    return {
        "measured_layers": len(layers) - len(unmeasured),
        "unmeasured_layers": unmeasured[:_TOLD],
        "measurements_of_no_layer": of_none[:_TOLD],
    }
