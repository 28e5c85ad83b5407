"""Linear probes: how well a linear map of features predicts something."""

from __future__ import annotations

import torch
from torch import Tensor

PENALTIES = tuple(10.0**k for k in range(-4, 5))
"""Ridge penalties that are tried, relative to the mean eigenvalue of the features' covariance."""


def ridge_r2(
    train: tuple[Tensor, Tensor], validation: tuple[Tensor, Tensor], test: tuple[Tensor, Tensor]
) -> float:
    """The R2 of ridge regression on test data, averaged over the targets' dimensions.

    The penalty is the one with the greatest R2 on the validation data.

    Args:
        train: Features ``(n, D)`` and targets ``(n, T)``.
        validation: The same of other images.
        test: The same of further ones.

    Returns:
        1 for perfect predictions, 0 for those of the training data's mean; it can be negative.
    """
    center, scale = train[0].double().mean(0), train[0].double().std(0) + 1e-6
    x, x_validation, x_test = (
        (features.double() - center) / scale for features, _ in (train, validation, test)
    )
    mean = train[1].double().mean(0)
    y = train[1].double() - mean
    # With n images, what ridge regression predicts depends on the features' inner products alone.
    values, vectors = torch.linalg.eigh(x @ x.T)  # (n,), (n, n)
    values, rotated = values.clip(0), vectors.T @ y  # (n, T)

    def predict(features: Tensor, penalty: float) -> Tensor:
        weights = vectors @ (rotated / (values + penalty * values.mean())[:, None])  # (n, T)
        predicted: Tensor = features @ (x.T @ weights) + mean
        return predicted

    best = max(PENALTIES, key=lambda p: r2(predict(x_validation, p), validation[1]))
    return r2(predict(x_test, best), test[1])


def r2(predicted: Tensor, targets: Tensor) -> float:
    """The share of the targets' variance that is predicted, averaged over their dimensions.

    Args:
        predicted: ``(n, T)``.
        targets: ``(n, T)``; dimensions that do not vary are left out, and without any it is 0.
    """
    targets = targets.double()
    spread = (targets - targets.mean(0)).square().mean(0)  # (T,)
    varies = spread > 1e-10
    errors = (predicted - targets).square().mean(0)
    return float((1 - errors[varies] / spread[varies]).mean()) if varies.any() else 0.0
