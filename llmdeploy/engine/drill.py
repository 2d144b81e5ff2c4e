"""Deliberate faults of a worker: they prove that a bad release is caught."""

import random
from dataclasses import replace

from llmdeploy.engine.messages import Token
from llmdeploy.engine.settings import DrillSettings


class Drill:
    """Faults that begin after `after_requests` good requests; without settings, none ever."""

    def __init__(self, settings: DrillSettings | None, *, vocabulary: int, seed: int = 0) -> None:
        self._settings = settings
        self._vocabulary = vocabulary
        self._random = random.Random(seed)
        self._requests = 0

    @property
    def _on(self) -> bool:
        return self._settings is not None and self._requests > self._settings.after_requests

    def fails_request(self) -> bool:
        """Counts a request that arrives; whether it is to be answered with an error."""
        self._requests += 1
        settings = self._settings
        return settings is not None and self._on and self._random.random() < settings.error_ratio

    def replace(self, token: Token) -> Token:
        """The token, or one at random in its place."""
        settings = self._settings
        if settings is None or not self._on or self._random.random() >= settings.garbage_ratio:
            return token
        return replace(token, id=self._random.randrange(self._vocabulary))

    def pause_s(self, step_s: float) -> float:
        """How long to wait after a step of `step_s` so that it takes `slowdown` times as long."""
        if self._settings is None or not self._on:
            return 0.0
        return step_s * max(0.0, self._settings.slowdown - 1)
