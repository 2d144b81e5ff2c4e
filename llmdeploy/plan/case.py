"""One planned case: the service, its device, its model and the layout that was chosen."""

from dataclasses import dataclass

from llmdeploy.plan.device import Device
from llmdeploy.plan.layout import Layout
from llmdeploy.plan.load import needed_tokens_per_s
from llmdeploy.service import Service
from llmdeploy.store import Manifest


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """What was planned, for what, on what."""

    service: Service
    device: Device
    manifest: Manifest
    layout: Layout

    @property
    def mean_tokens(self) -> float:
        """Mean prompt and output of a request, in tokens."""
        load = self.service.workload
        return load.input_tokens.mean + load.output_tokens.mean

    @property
    def needed_tokens_per_s(self) -> float:
        """Output tokens per second at the peak."""
        return needed_tokens_per_s(self.service.workload)

    @property
    def peak_batch(self) -> float:
        """Requests that one worker decodes together at the peak, on average."""
        return self.layout.worker_batch(self.needed_tokens_per_s)

    @property
    def ttft_s(self) -> float:
        """Predicted time to the first token of a p95 prompt at the peak, without a queue."""
        return self.layout.pace.ttft_s(
            self.service.workload.input_tokens.p95,
            chunk_tokens=self.service.engine.max_num_batched_tokens,
            batch=self.peak_batch,
        )
