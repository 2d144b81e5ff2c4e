"""Levenberg-Marquardt with priors: few coefficients, residuals as a function."""

from collections.abc import Callable

import numpy as np

Vector = np.ndarray


def fit(
    residuals: Callable[[Vector], Vector],
    start: Vector,
    *,
    prior_weights: Vector | float = 1e-3,
    rounds: int = 60,
) -> tuple[Vector, float]:
    """The coefficients of least squared residuals, and that sum.

    Each coefficient is held to its start by a residual of prior_weight * (x - start).
    """
    x = np.array(start, dtype=float)
    first = x.copy()

    def all_residuals(at: Vector) -> Vector:
        return np.concatenate([residuals(at), prior_weights * (at - first)])

    r = all_residuals(x)
    cost, damping = float(r @ r), 1e-2
    for _ in range(rounds):
        columns = []
        for i in range(len(x)):
            moved = x.copy()
            moved[i] += 1e-5
            columns.append((all_residuals(moved) - r) / 1e-5)
        jacobian = np.stack(columns, axis=1)
        normal, slope = jacobian.T @ jacobian, jacobian.T @ r
        for _ in range(12):
            step = np.linalg.solve(normal + damping * np.diag(np.diag(normal) + 1e-9), -slope)
            tried = all_residuals(x + step)
            if (lower := float(tried @ tried)) < cost:
                break
            damping *= 4
        else:
            break
        gain, x, r, cost = cost - lower, x + step, tried, lower
        damping = max(damping / 4, 1e-9)
        if gain < 1e-7 * cost:
            break
    return x, cost
