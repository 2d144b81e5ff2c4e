"""The coefficients as one vector, and what they foretell: Gauss-Newton with priors by class.

Loss: robust logarithmic errors of TPOT and TTFT; every class's offset is drawn to zero by a prior,
so that a class with few points stays near the base.
"""

from collections.abc import Iterable

import numpy as np

from llmdeploy.estimate.speed.coefficients import NAMES, Coefficients, classes, from_logs
from llmdeploy.estimate.speed.serving import tpot_s, ttft_s
from llmdeploy.estimate.speed.terms import decode_seconds, prompt_seconds

from .fit_arrays import Arrays, arrays
from .rows import Point

START = {
    "step_s": 5e-4, "request_s": 5e-6, "layer_s": 4e-5, "expert_layer_s": 2.5e-5,
    "state_layer_s": 3e-5, "latent_layer_s": 2e-5, "indexer_layer_s": 2e-5, "dense_read": 1.2,
    "dense_compute": 2.0, "expert_read": 1.4, "expert_compute": 2.0, "kv_read": 1.4,
    "attention_compute": 2.0, "collective": 1.3, "prompt_layer_s": 3e-5,
    "prompt_dense_compute": 1.8, "prompt_expert_compute": 2.0, "prompt_attention_compute": 2.5,
    "mix": 0.75, "first_s": 0.01, "first_steps": 2.0, "cohort": 2.0, "burst": 0.05,
    "expert_evenness": 0.7,
}  # fmt: skip
"""Where the base starts and what a prior holds it to. Source: our reading of single runs."""
BASE_SPREAD = 0.4
OFFSET_SPREAD = {
    "step_s": 0.4, "request_s": 0.4, "layer_s": 0.35, "expert_layer_s": 0.4, "state_layer_s": 0.4,
    "latent_layer_s": 0.5, "indexer_layer_s": 0.4, "dense_read": 0.2, "dense_compute": 0.35,
    "expert_read": 0.35, "expert_compute": 0.5, "kv_read": 0.35, "attention_compute": 0.4,
    "collective": 0.4, "prompt_layer_s": 0.5, "prompt_dense_compute": 0.35,
    "prompt_expert_compute": 0.5, "prompt_attention_compute": 0.4, "mix": 0.2, "first_s": 0.4,
    "first_steps": 0.4, "cohort": 1.5, "burst": 1.0, "expert_evenness": 0.25,
}  # fmt: skip
KERNELS = (
    "dense_read", "dense_compute", "expert_read", "expert_compute", "prompt_dense_compute",
    "prompt_expert_compute",
)  # fmt: skip
GROUPS: dict[str, dict[str, float]] = {
    "engine": {**dict.fromkeys(NAMES, 0.8), "cohort": 0.2, "burst": 0.1},
    "architecture": {
        **dict.fromkeys(
            (*KERNELS, "layer_s", "expert_layer_s", "kv_read", "collective",
             "prompt_attention_compute", "step_s"), 0.4,
        ),
        **dict.fromkeys(("prompt_dense_compute", "prompt_expert_compute"), 0.8),
    },
    "format": dict.fromkeys(KERNELS, 0.6),
    "version": {
        **dict.fromkeys(("first_s", "first_steps"), 1.0),
        **dict.fromkeys(("cohort", "burst"), 0.1),
        **dict.fromkeys(
            ("step_s", "layer_s", "expert_layer_s", "latent_layer_s", "mix", "dense_compute",
             "expert_read", "expert_compute", "prompt_dense_compute", "prompt_expert_compute"),
            0.4,
        ),
    },
    "kernels": dict.fromkeys(KERNELS, 0.4),
    "lengths": {"cohort": 1.5},
    "rhythm": {"cohort": 1.0, "burst": 1.5},
}  # fmt: skip
"""Classes, the coefficients that differ between them, and how freely: as freely as held-out models
and devices are met best. Starting a kernel takes no longer in one format than in another. How
requests are received changed with versions more than kernels did; how many are computed together
follows from their lengths, and how many wait from what the engine lets go first."""


class Model:
    """Logarithms of the base and of every class's offsets, as one vector."""

    def __init__(self, names: Iterable[dict[str, str]]) -> None:
        self.slots: list[tuple[str, str, int]] = [("base", "", i) for i in range(len(NAMES))]
        spreads = [BASE_SPREAD] * len(NAMES)
        for group, freedoms in GROUPS.items():
            for name in sorted({found[group] for found in names}):
                for coefficient, freedom in freedoms.items():
                    self.slots.append((group, name, NAMES.index(coefficient)))
                    spreads.append(OFFSET_SPREAD[coefficient] * freedom)
        self.index = {slot: i for i, slot in enumerate(self.slots)}
        self.start = np.zeros(len(self.slots))
        for i, name in enumerate(NAMES):
            self.start[i] = np.log(START[name])
        self.weights = 1 / np.array(spreads)
        self.vector = self.start.copy()

    def places(self, found: list[dict[str, str]]) -> list[np.ndarray]:
        """For each group the slot of every point's coefficients; the last one past the end."""
        none = len(self.slots)
        made = []
        for group in GROUPS:
            known: dict[str, list[int]] = {}
            rows = []
            for names in found:
                name = names[group]
                if name not in known:
                    known[name] = [
                        self.index.get((group, name, i), none) for i in range(len(NAMES))
                    ]
                rows.append(known[name])
            made.append(np.array(rows))
        return made

    def logs(self, places: list[np.ndarray]) -> np.ndarray:
        padded = np.append(self.vector, 0.0)
        return self.vector[: len(NAMES)] + sum(padded[place] for place in places)


def as_coefficients(logs: np.ndarray) -> Coefficients:
    return Coefficients(**{name: np.exp(logs[:, i]) for i, name in enumerate(NAMES)})


def predicted(data: Arrays, found: Coefficients) -> tuple[np.ndarray, np.ndarray]:
    decode = decode_seconds(data.decode, found)
    others = data.running * (1 - 1 / data.callers) * data.has_prompt
    beside = prompt_seconds(data.mixed, found) / data.stages
    tpot = tpot_s(decode, beside, found=found, running=others, output_tokens=data.output_tokens)
    ttft = ttft_s(
        prompt_seconds(data.prompt, found),
        prompt_seconds(data.full, found) / data.prompts_full / data.stages,
        step_s=tpot,
        found=found,
        callers=data.callers,
    )
    return np.asarray(tpot), np.asarray(ttft)


def _robust(error: np.ndarray, scale: float) -> np.ndarray:
    return np.sign(error) * np.sqrt(2 * (np.sqrt(1 + (error / scale) ** 2) - 1))


def errors(data: Arrays, found: Coefficients) -> np.ndarray:
    """Weighted robust residuals of TPOT, then of TTFT (0 where it says nothing of the load)."""
    tpot, ttft = predicted(data, found)
    known = np.isfinite(data.ttft_s) & (data.has_prompt > 0) & ~data.late
    first = np.where(known, np.log(ttft / data.ttft_s), 0.0)
    return np.concatenate(
        [
            _robust(np.log(tpot / data.tpot_s), 0.13) * data.weights,
            _robust(first, 0.3) * data.weights * 0.5,
        ]
    )


class _Problem:
    """Residuals of the coefficients, and their slopes."""

    def __init__(self, found: list[Point]) -> None:
        self.data = arrays(found)
        self.model = Model(self.data.classes)
        self.places = self.model.places(self.data.classes)

    def residuals(self, at: np.ndarray) -> np.ndarray:
        self.model.vector = at
        return errors(self.data, as_coefficients(self.model.logs(self.places)))

    def cost(self, at: np.ndarray, r: np.ndarray) -> float:
        held = self.model.weights * (at - self.model.start)
        return float(r @ r + held @ held)

    def jacobian(self, at: np.ndarray, r: np.ndarray) -> np.ndarray:
        """By coefficient, then spread over the classes that it is made of."""
        self.model.vector = at
        logs, slots = self.model.logs(self.places), len(at)
        rows = np.arange(len(r))
        by_class = np.zeros((len(r), slots + 1))
        for i in range(len(NAMES)):
            moved = logs.copy()
            moved[:, i] += 1e-4
            slope = (errors(self.data, as_coefficients(moved)) - r) / 1e-4
            by_class[:, i] += slope
            for place in self.places:
                where = np.concatenate([place[:, i], place[:, i]])
                by_class[rows, where] += np.where(where < slots, slope, 0.0)
        return by_class[:, :-1]


def fitted(found: list[Point], *, rounds: int = 10) -> Model:
    """Gauss-Newton with damping."""
    problem, damping = _Problem(found), 1e-2
    priors, start = problem.model.weights**2, problem.model.start
    at = start.copy()
    r = problem.residuals(at)
    now = problem.cost(at, r)
    for _ in range(rounds):
        jacobian = problem.jacobian(at, r)
        normal = jacobian.T @ jacobian + np.diag(priors)
        gradient = jacobian.T @ r + priors * (at - start)
        for _ in range(8):
            step = np.linalg.solve(normal + damping * np.diag(np.diag(normal)), -gradient)
            tried_at = at + np.clip(step, -0.7, 0.7)
            tried = problem.residuals(tried_at)
            if (lower := problem.cost(tried_at, tried)) < now:
                break
            damping *= 5
        else:
            break
        gain, now, at, r = now - lower, lower, tried_at, tried
        damping = max(damping / 5, 1e-6)
        if gain < 2e-4 * now:
            break
    problem.model.vector = at
    return problem.model


def coefficients(model: Model, found: list[Point]) -> list[Coefficients]:
    """Of each point, which need not have been fitted."""
    logs = model.logs(model.places([classes(point.case) for point in found]))
    return [
        from_logs({name: float(row[i]) for i, name in enumerate(NAMES)})
        for row in logs
    ]  # fmt: skip
