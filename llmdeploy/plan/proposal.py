"""Layouts to try on a pool: how a replica's weights are held and cut over devices and hosts."""

import functools
from collections.abc import Iterator
from dataclasses import dataclass

from llmdeploy.catalog.types import Engine, LinkSpec
from llmdeploy.estimate.case import Case
from llmdeploy.model import ModelShape
from llmdeploy.plan.pool import Pool, groups_that_fit
from llmdeploy.plan.weights import Weights, choices, dtype
from llmdeploy.service import Service

FAST_LINK_BYTES_PER_S = 100e9
"""From here on tensor parallelism over the whole link domain beats a pipeline within it.

Source: a 2 MiB all-reduce over 8 takes 38 us on H100 (450 GB/s), 2,618 us on L40S (PCIe 4)."""
MOST_STAGES = 16
WORDS = {"bfloat16": "bf16", "float16": "fp16", "float32": "fp32"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Proposal:
    """One way to lay out a replica on a pool's devices."""

    pool: Pool
    engine: Engine
    weights: Weights
    dtype: str
    """bf16, fp16, fp32."""
    kv_cache_dtype: str | None
    tensor_parallel: int
    pipeline_parallel: int = 1
    data_parallel: int = 1
    """Attention copies; the experts are divided over all of them."""
    expert_parallel: bool = False

    @property
    def devices(self) -> int:
        """Of one replica."""
        return self.tensor_parallel * self.pipeline_parallel * self.data_parallel

    @property
    def stages_per_host(self) -> int:
        """Pipeline stages that one host of the replica takes."""
        fitting = max(
            1, max(groups_that_fit(form, self.tensor_parallel) for form in self.pool.forms)
        )
        return max(n for n in range(1, fitting + 1) if self.pipeline_parallel % n == 0)

    @property
    def hosts(self) -> int:
        """Of one replica."""
        if self.data_parallel > 1:
            return max(1, -(-self.devices // self.pool.most_per_host))
        return self.pipeline_parallel // self.stages_per_host

    @property
    def devices_per_host(self) -> int:
        return self.devices // self.hosts

    @property
    def link(self) -> LinkSpec:
        """What joins the devices of one of its tensor groups, or those that share its experts."""
        return self.pool.link_of(self.width)

    @property
    def width(self) -> int:
        """Devices of a host that exchange with each other in every layer."""
        return self.devices_per_host if self.data_parallel > 1 else self.tensor_parallel

    @property
    def machines(self) -> int:
        """Hosts with processes of one replica: those of a rack count each."""
        rack_host = self.pool.rack_host_devices or self.pool.most_per_host
        return self.hosts * -(-self.devices_per_host // rack_host)

    @property
    def name(self) -> str:
        """Such as `rtx4090 bf16 tp4`."""
        cut = [f"tp{self.tensor_parallel}"]
        cut += [f"pp{self.pipeline_parallel}"] if self.pipeline_parallel > 1 else []
        cut += [f"dp{self.data_parallel}"] if self.data_parallel > 1 else []
        cut += ["ep"] if self.expert_parallel else []
        held = self.weights.name + (f" kv-{self.kv_cache_dtype}" if self.kv_cache_dtype else "")
        return f"{self.pool.name} {held} {' '.join(cut)}"

    @property
    def measured_curve(self) -> tuple[tuple[int, float], ...]:
        """Seconds to sum messages over a tensor group as measured on the pool's hosts. A curve
        over all devices of a host tells of the link between its domains, not within them."""
        rates, across = self.pool.rates, self.pool.between is not None
        if rates is None or (across and self.link is self.pool.link):
            return ()
        return rates.curve(self.tensor_parallel, self.link)

    @property
    def replicas_that_fit(self) -> int:
        """How many of them the pool's hosts have room for."""
        return replicas_that_fit(
            self.pool, self.width, self.devices_per_host // self.width, self.hosts
        )

    def case(self, service: Service, shape: ModelShape, *, max_num_seqs: int | None) -> Case:
        """What estimates are made of, in the engine's own way of counting: SGLang's tensor
        parallel size counts the attention copies too, vLLM's does not.

        Source: SGLang 0.5 `--enable-dp-attention`; vLLM 0.11 expert parallel deployment.
        """
        load, engine = service.workload, service.engine
        copies = self.data_parallel > 1 and self.engine.name == "sglang"
        return Case(
            shape=shape,
            weight_format=self.weights.format,
            engine=self.engine,
            device=self.pool.device,
            device_memory_bytes=self.pool.usable_bytes,
            hosts=self.hosts,
            link=self.link,
            all_reduce=self.measured_curve,
            network=self.pool.network,
            tensor_parallel=self.tensor_parallel * (self.data_parallel if copies else 1),
            pipeline_parallel=self.pipeline_parallel,
            data_parallel=self.data_parallel,
            expert_parallel=self.expert_parallel,
            attention_data_parallel=copies,
            memory_ratio=engine.memory_ratio,
            max_model_len=engine.max_model_len,
            kv_cache_dtype=self.kv_cache_dtype,
            dtype=self.dtype,
            max_num_seqs=max_num_seqs,
            max_num_batched_tokens=batched_tokens(service),
            enforce_eager=False,
            input_tokens=load.input_tokens.mean,
            output_tokens=load.output_tokens.mean,
        )


def batched_tokens(service: Service) -> int:
    """Most tokens of one step: as the service says, else what keeps prompts fast on a GPU.

    Source: vLLM 0.33 `max_num_batched_tokens` of an online server on most devices.
    """
    said = "max_num_batched_tokens" in service.engine.model_fields_set
    return service.engine.max_num_batched_tokens if said else 2048


@functools.lru_cache(maxsize=4096)
def _groups(slots: tuple[tuple[int, int], ...], hosts: int) -> int:
    """The largest k with sum of min(slots of a host, k) >= k x hosts: each replica takes one slot
    of `hosts` different hosts."""
    low, high = 0, sum(free * number for free, number in slots) // hosts
    while low < high:
        middle = (low + high + 1) // 2
        enough = sum(min(free, middle) * number for free, number in slots) >= middle * hosts
        low, high = (middle, high) if enough else (low, middle - 1)
    return low


def replicas_that_fit(pool: Pool, width: int, groups: int, hosts: int) -> int:
    """Replicas of `hosts` hosts that the pool has room for, with that many groups of `width`
    devices on each; a replica's hosts are different ones."""
    slots = [
        (groups_that_fit(form, width) // groups, number) for form, number in pool.forms.items()
    ]
    return _groups(tuple(sorted(slots)), hosts)


def proposals(service: Service, shape: ModelShape, pool: Pool, *, engine: Engine) -> list[Proposal]:
    """Every layout worth a look on the pool, those that rules will reject included."""
    kv = None if service.engine.kv_cache_dtype == "auto" else service.engine.kv_cache_dtype
    word = WORDS[dtype(service, shape, pool.device)]
    made = []
    for weights in choices(service, shape, pool.device):
        for tp, pp, dp, ep in _cuts(service, shape, pool):
            made.append(
                Proposal(
                    pool=pool,
                    engine=engine,
                    weights=weights,
                    dtype=word,
                    kv_cache_dtype=kv,
                    tensor_parallel=tp,
                    pipeline_parallel=pp,
                    data_parallel=dp,
                    expert_parallel=ep,
                )
            )
    return made


def _cuts(service: Service, shape: ModelShape, pool: Pool) -> Iterator[tuple[int, int, int, bool]]:
    """(tensor, pipeline, data parallel, expert parallel) of the layouts to look at."""
    asked_tp, asked_pp = service.engine.tensor_parallel, service.engine.pipeline_parallel
    widths = [asked_tp] if asked_tp else _widths(pool)
    moe = shape.experts is not None
    for tp in widths:
        for pp in [asked_pp] if asked_pp else _stages(pool, tp, _wider_splits(shape, pool, tp)):
            yield tp, pp, 1, False
            if moe and tp > 1:
                yield tp, pp, 1, True
    if moe and asked_tp is None and asked_pp is None and _latent(shape):
        for dp in widths:
            if dp > 1:
                yield 1, 1, dp, True


def _widths(pool: Pool) -> list[int]:
    """Powers of two and divisors of the hosts' counts, and one past the largest host."""
    most = pool.most_per_host
    powers = {2**n for n in range(8) if 2**n <= most}
    counts = {*pool.per_host, pool.domain_devices, pool.rack_host_devices or 1}
    divisors = {n for count in counts for n in range(1, count + 1) if count % n == 0}
    beyond = {2 ** (most.bit_length())} if pool.devices > most else set()
    return sorted(powers | divisors | {n for n in beyond if n <= pool.devices})


def _stages(pool: Pool, tp: int, wider: bool) -> list[int]:
    """Stages within a host where its link is slow or heads divide no further, and over hosts
    with whole link domains."""
    most = pool.most_per_host
    if tp > most:
        return [1]
    in_host = most // tp
    slow = pool.link_of(most).bytes_per_s < FAST_LINK_BYTES_PER_S
    stages = {1} | {n for n in (2, 4, 8) if n <= in_host and (slow or not wider)}
    if pool.network is not None and tp * in_host == most and (slow or in_host == 1 or not wider):
        hosts = sum(1 for host in pool.hosts if host.devices == most)
        stages |= {in_host * hosts_each for hosts_each in (2, 3, 4, 6, 8) if hosts_each <= hosts}
    return sorted(n for n in stages if n <= MOST_STAGES)


def _wider_splits(shape: ModelShape, pool: Pool, tp: int) -> bool:
    """Whether twice as many ranks within a host would divide the heads too."""
    return 2 * tp <= pool.most_per_host and shape.attention_heads % (2 * tp) == 0


def _latent(shape: ModelShape) -> bool:
    return any(layers.kind == "latent" for layers in shape.cache)
