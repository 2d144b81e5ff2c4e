"""plans/ holds one worked plan for each service in examples/, byte for byte."""

import pathlib
import shutil

import pytest

from llmdeploy.catalog import models
from llmdeploy.cli.plan_files import plan_files
from llmdeploy.document import parse
from llmdeploy.errors import Refused
from llmdeploy.estimate import memory
from llmdeploy.facts.bundle import Bundle
from llmdeploy.inventory import Inventory
from llmdeploy.plan import Plan, make
from llmdeploy.plan.cluster_make import PlannableModel, make_for_cluster
from llmdeploy.plan.engine_pace import engine_pace
from llmdeploy.plan.pool import declared
from llmdeploy.plan.size import Estimators
from llmdeploy.service import Service
from llmdeploy.store import Manifest, Model

ROOT = pathlib.Path(__file__).parents[2]
EXAMPLES, PLANS = ROOT / "examples", ROOT / "plans"
HOSTS = {"service.yaml": "sixteen-cores.json"} | {
    f"quickstart/{name}.yaml": "two-cores.json"
    for name in ("release-1", "release-2", "release-3-bad")
}
"""Which host each example is planned for."""
CLUSTERS = sorted(path.name for path in (EXAMPLES / "clusters").iterdir())
DOCUMENTS = ("service", "cluster")
MODEL = "smollm2-135m-instruct"


def read(path: pathlib.Path, kind):
    """A document of examples/; where quickstart.sh puts its folders in, they are relative here."""
    text = path.read_text()
    for word, folder in (
        ("STATE_ROOT", ".quickstart/state"),
        ("MODEL_STORE", ".quickstart/models"),
    ):
        text = text.replace(word, folder)
    return parse(text, kind, place=str(path))


def planned(example: str) -> Plan:
    path = EXAMPLES / example
    service = read(path, Service)
    inventory = read(path.parent / service.cluster, Inventory)
    manifest = read(EXAMPLES / "facts" / f"{MODEL}.manifest.json", Manifest)
    facts = read(EXAMPLES / "facts" / HOSTS[example], Bundle)
    return make(service, inventory, facts, Model(manifest=manifest, folder="unused"))


def planned_cluster(name: str) -> dict[str, str]:
    """File name -> text of a cluster's example: its plan, or the refusal where nothing fits."""
    folder = EXAMPLES / "clusters" / name
    service = read(folder / "service.yaml", Service)
    inventory = read(folder / service.cluster, Inventory)
    model = PlannableModel(id=service.model.id, shape=models.find(service.model.id))
    using = Estimators(memory=memory.estimate, pace=engine_pace)
    try:
        plan = make_for_cluster(service, inventory, declared(inventory), model, using=using)
    except Refused as error:
        return {f"{service.name}/refusal.txt": f"error: {error}\n\nhint: {error.fix}\n"}
    return {f"{plan.service}/{plan.id}/{file}": text for file, text in plan_files(plan).items()}


def test_plans_holds_a_plan_for_each_example_and_nothing_else(request):
    made = {example: planned(example) for example in HOSTS}
    files = {
        f"{plan.service}/{plan.id}/{name}": text
        for plan in made.values()
        for name, text in plan_files(plan).items()
    }
    for name in CLUSTERS:
        files |= planned_cluster(name)
    if request.config.getoption("--update-golden"):
        shutil.rmtree(PLANS, ignore_errors=True)
        for name, text in files.items():
            (PLANS / name).parent.mkdir(parents=True, exist_ok=True)
            (PLANS / name).write_text(text)
    there = {str(path.relative_to(PLANS)) for path in PLANS.rglob("*") if path.is_file()}
    assert there == set(files), "run pytest --update-golden and review plans/"
    assert [name for name in files if (PLANS / name).read_text() != files[name]] == []


@pytest.mark.parametrize("name", CLUSTERS)
def test_a_clusters_reference_names_no_place_of_this_machine(name):
    text = "".join(planned_cluster(name).values())
    for place in ("/tmp", str(ROOT), str(pathlib.Path.home())):
        assert place not in text


@pytest.mark.parametrize("example", HOSTS)
def test_a_reference_plan_names_no_place_but_those_of_its_cluster(example):
    text = "".join(plan_files(planned(example)).values())
    for place in ("/tmp", str(ROOT)):
        assert place not in text


def test_every_service_in_examples_is_planned():
    services = {str(path.relative_to(EXAMPLES)) for path in EXAMPLES.rglob("*.yaml")}
    clusters = {f"clusters/{name}/{file}.yaml" for name in CLUSTERS for file in DOCUMENTS}
    assert services - {"cluster.yaml", "quickstart/cluster.yaml"} == set(HOSTS) | clusters
    assert len(CLUSTERS) >= 12


@pytest.mark.end_to_end
def test_the_real_model_has_the_sizes_the_references_were_planned_with(model_folder):
    reference = read(EXAMPLES / "facts" / f"{MODEL}.manifest.json", Manifest)
    real = read(model_folder / "manifest.json", Manifest)
    for name in (
        "architecture",
        "dtype",
        "parameters",
        "matrix_parameters",
        "weights_bytes",
        "shape",
    ):
        assert getattr(real, name) == getattr(reference, name)
