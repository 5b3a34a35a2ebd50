"""Every route of the API."""

from litestar.types import ControllerRouterHandler

from service.api.calculations import calculations
from service.api.comparisons import comparisons
from service.api.designs import design_routes
from service.api.estimate_batches import create_estimates
from service.api.estimates import estimate_routes
from service.api.front_page import get_front_page
from service.api.health import get_liveness, get_readiness
from service.api.measurements import list_measurements
from service.api.memory import memory
from service.api.metrics import get_metrics
from service.api.models import models
from service.api.moe_all_to_all import moe_all_to_all
from service.api.plans import plans
from service.api.problems import get_problem_page
from service.api.profiles import profiles
from service.api.queues import backlog
from service.api.reference import reference_routes
from service.api.routings import routings
from service.api.sensitivities import sensitivities
from service.api.tokens import token_routes
from service.api.topologies import topologies
from service.api.workload_estimates import workload_estimates

__all__ = ["route_handlers"]


def route_handlers() -> list[ControllerRouterHandler]:
    """The handlers of all nouns; a new controller is added here."""
    return [
        topologies,
        *design_routes,
        models,
        profiles,
        routings,
        plans,
        list_measurements,
        *calculations,
        memory,
        moe_all_to_all,
        sensitivities,
        comparisons,
        workload_estimates,
        *estimate_routes,
        create_estimates,
        backlog,
        *token_routes,
        get_front_page,
        get_problem_page,
        *reference_routes,
        get_liveness,
        get_readiness,
        get_metrics,
    ]
