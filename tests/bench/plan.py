"""Prints how long a search takes: python -m tests.bench.plan

1,024 devices of 4 types over 128 hosts, with a dense 70B and a 671B mixture of experts, and the
documents' case; on one core: seconds of processor time, the best of three.
"""

import time

from llmdeploy.catalog import engines
from llmdeploy.catalog.models import find
from llmdeploy.document import parse
from llmdeploy.estimate import memory, speed
from llmdeploy.inventory import Inventory
from llmdeploy.plan.pool import declared
from llmdeploy.plan.rank import best
from llmdeploy.plan.search import search
from llmdeploy.plan.size import Estimators
from llmdeploy.service import Service

LARGE = """
hosts:
  - {name: h100, count: 32, devices: [{device: H100 SXM, count: 8}]}
  - {name: a100, count: 32, devices: [{device: A100-SXM4-80GB, count: 8}]}
  - {name: l40s, count: 32, devices: [{device: L40S, count: 8}]}
  - {name: h200, count: 32, devices: [{device: H200, count: 8}]}
network: infiniband-400g
"""
DOCUMENTS = """
hosts: [{name: gpu, count: 2, devices: [{device: RTX 4090, count: 4}]}]
network: ethernet-25g
"""
SERVICE = """
cluster: c
model: {id: m}
workload:
  requests_per_day: %d
  input_tokens: {mean: 512, p95: 1600}
  output_tokens: {mean: 192, p95: 512}
objectives: {tpot_p95: 100ms}
engine: {max_model_len: 8192}
"""
CASES = (
    ("70B, 1,024 devices", "meta-llama/Llama-3.1-70B-Instruct", LARGE, 5_000_000),
    ("671B, 1,024 devices", "deepseek-ai/DeepSeek-R1", LARGE, 5_000_000),
    ("14B, 8 devices", "Qwen/Qwen2.5-14B-Instruct", DOCUMENTS, 100_000),
)
ROUNDS = 3


def main() -> None:
    using = Estimators(memory=memory.estimate, pace=speed.pace)
    print(f"{'case':22}{'layouts':>9}{'carry':>7}{'seconds':>9}  chosen")
    for name, model, cluster, per_day in CASES:
        shape, times = find(model), []
        for _ in range(ROUNDS):
            start = time.process_time()
            pools = declared(parse(cluster, Inventory, place="cluster.yaml"))
            service = parse(SERVICE % per_day, Service, place="service.yaml")
            found = search(service, shape, pools, engine=engines.find("vllm 0.33.0"), using=using)
            chosen = best(found.options).name if found.options else "none"
            times.append(time.process_time() - start)
        carry = len(found.options)
        print(f"{name:22}{found.looked_at:>9}{carry:>7}{min(times):>9.3f}  {chosen}")


if __name__ == "__main__":
    main()
