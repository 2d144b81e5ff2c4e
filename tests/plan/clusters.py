"""Plans for clusters, made with the simple models of stand_ins."""

from typing import Any

from llmdeploy.document import parse
from llmdeploy.inventory import Inventory
from llmdeploy.plan import Plan
from llmdeploy.plan.cluster_make import PlannableModel, make_for_cluster
from llmdeploy.plan.pool import declared
from llmdeploy.service import Service

from .stand_ins import QWEN_14B, USING, service, shape

TWO_BY_FOUR = """
hosts:
  - {name: gpu, count: 2, devices: [{device: RTX 4090, count: 4, price_per_hour: 0.4}]}
network: ethernet-25g
currency: EUR
"""


def inventory(text: str = TWO_BY_FOUR) -> Inventory:
    return parse(text, Inventory, place="cluster.yaml")


def plan(
    config: dict[str, Any] = QWEN_14B, text: str = TWO_BY_FOUR, wanted: Service | None = None
) -> Plan:
    cluster = inventory(text)
    model = PlannableModel(id="org/model", shape=shape(config))
    return make_for_cluster(wanted or service(), cluster, declared(cluster), model, using=USING)
