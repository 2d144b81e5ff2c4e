"""What the engine tells about itself over HTTP: models, health, readiness, metrics."""

import json
from collections.abc import Callable, Mapping

import psutil

from llmdeploy.engine import answers
from llmdeploy.engine.exchange import Reply
from llmdeploy.engine.metrics import Gauges, Metrics
from llmdeploy.engine.pool import Pool
from llmdeploy.engine.settings import EngineSettings


class Pages:
    """Everything that is answered to GET."""

    def __init__(
        self, settings: EngineSettings, *, pool: Pool, metrics: Metrics, created_s: int
    ) -> None:
        self._settings = settings
        self._pool = pool
        self._metrics = metrics
        self._created_s = created_s

    def by_path(self) -> Mapping[str, Callable[[], Reply]]:
        """Path to what makes its page."""
        return {
            "/v1/models": self._models,
            f"/v1/models/{self._settings.served_name}": self._one_model,
            "/health": self._health,
            "/ready": self._ready,
            "/metrics": self._metrics_page,
        }

    def _models(self) -> Reply:
        context = self._settings.max_model_len
        models = [self._settings.served_name]
        return Reply(
            body=answers.models_body(models, created_s=self._created_s, context_tokens=context)
        )

    def _one_model(self) -> Reply:
        shown = answers.model_object(
            self._settings.served_name,
            created_s=self._created_s,
            context_tokens=self._settings.max_model_len,
        )
        return Reply(body=json.dumps(shown).encode())

    def _health(self) -> Reply:
        reason = self._pool.unhealthy()
        body = {"status": "unhealthy" if reason else "ok", "error": reason}
        return Reply(body=json.dumps(body).encode(), status=503 if reason else 200)

    def _ready(self) -> Reply:
        pool, failure = self._pool, self._pool.failure
        body = {
            "phase": pool.phase,
            "kv_cache_tokens": pool.kv_cache_tokens,
            "weights_bytes": pool.weights_bytes,
            "error": failure.reason if failure else None,
            "fix": failure.fix if failure else None,
        }
        return Reply(body=json.dumps(body).encode(), status=200 if pool.phase == "ready" else 503)

    def _metrics_page(self) -> Reply:
        beats = [worker.heartbeat for worker in self._pool.workers]
        capacity = self._pool.kv_cache_tokens
        gauges = Gauges(
            running=sum(beat.running for beat in beats),
            waiting=max(0, self._pool.in_flight - sum(beat.running for beat in beats)),
            kv_used_ratio=sum(b.kv_used_tokens for b in beats) / capacity if capacity else 0.0,
            kv_cache_tokens=capacity,
            resident_bytes=_resident_bytes(),
            steps=sum(beat.steps for beat in beats),
            restarts=sum(beat.restarts for beat in beats),
        )
        text = self._metrics.render(gauges)
        return Reply(body=text.encode(), content_type="text/plain; version=0.0.4; charset=utf-8")


def _resident_bytes() -> int:
    """Memory that this process and its children hold, in bytes."""
    own = psutil.Process()
    total = 0
    for process in (own, *own.children(recursive=True)):
        try:
            total += process.memory_info().rss
        except psutil.NoSuchProcess:  # it ended meanwhile
            continue
    return total
