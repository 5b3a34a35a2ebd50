"""A client made from the contract by somebody else's generator prices the example plan."""

import importlib
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from service.resources import resource_folder
from tests.contract.conftest import LiveService

PACKAGE = "generated_stagefare_client"
# Nothing is run over what is generated: the formatters it would call are no concern of ours.
# A picture is text to this generator.
CONFIGURATION = f"""\
package_name_override: {PACKAGE}
post_hooks: []
content_type_overrides: {{image/svg+xml: text/plain}}
"""


@pytest.fixture(scope="module")
def client_package(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The name of the generated package, importable."""
    folder = tmp_path_factory.mktemp("client")
    (folder / "configuration.yml").write_text(CONFIGURATION, encoding="utf-8")
    done = subprocess.run(
        [
            *(sys.executable, "-m", "openapi_python_client", "generate", "--meta", "none"),
            *("--path", str(resource_folder("openapi") / "openapi.json")),
            *("--config", str(folder / "configuration.yml")),
            *("--output-path", str(folder / PACKAGE), "--fail-on-warning"),
        ],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    sys.path.insert(0, str(folder))
    yield PACKAGE
    sys.path.remove(str(folder))


def _module(package: str, name: str) -> Any:
    return importlib.import_module(f"{package}.{name}")


@pytest.fixture
def client(client_package: str, live_service: LiveService) -> Iterator[Any]:
    """The generated client, with a token."""
    with _module(client_package, "client").AuthenticatedClient(
        base_url=live_service.url, token=live_service.token, raise_on_unexpected_status=True
    ) as client:
        yield client


def test_it_prices_the_example_plan(client_package: str, client: Any) -> None:
    models = _module(client_package, "models")
    create = _module(client_package, "api.estimates.create_estimate")
    answer = create.sync_detailed(client=client, body=models.EstimateRequest(plan="gpt-two-hosts"))
    assert answer.status_code == 201
    estimate = answer.parsed
    assert isinstance(estimate, models.EstimateAnswer)
    assert [stage.rank for stage in estimate.cadence.stages] == [0, 1, 2, 3]
    assert estimate.iteration_seconds > max(
        bound.seconds for bound in estimate.lower_bounds if bound.name == "dependency_path"
    )
    read = _module(client_package, "api.estimates.get_estimate")
    assert read.sync(estimate.digest, client=client) == estimate


def test_it_stores_a_document_and_reads_a_refusal(client_package: str, client: Any) -> None:
    models = _module(client_package, "models")
    put = _module(client_package, "api.plans.put_plan")
    plan = models.PlanDocument.from_dict(
        {
            "costs": {"stages": [{"forward_seconds": 0.006, "backward_seconds": 0.012}] * 2},
            "schedule": {"kind": "1f1b"},
            "workload": {"microbatches": 8},
        }
    )
    stored = put.sync_detailed("mine", client=client, body=plan)
    assert (stored.status_code, stored.parsed.revision) == (201, 1)
    get = _module(client_package, "api.plans.get_plan")
    refused = get.sync_detailed("nobody", client=client)
    assert refused.status_code == 404
    assert isinstance(refused.parsed, models.ProblemDocument)
    assert refused.parsed.type_ == "/problems/not-found"
