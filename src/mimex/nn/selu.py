"""Perceptrons with SELU between their layers: outputs and derivatives by hand.

PyTorch computes SELU through ``expm1``, which takes 1.7 times as long as ``exp``. Here it is the
latter (exact to rounding), its shift is part of the bias before and its scale of the matrix product
after it. Both functions are also TorchScript (see ``mimex.nn.parallel.without_lock``), for which
reason their constants are arguments.
"""

import math

import torch
from torch import Tensor

ALPHA, SCALE = 1.6732632423543772, 1.0507009873554805
"""Constants of SELU (Klambauer et al., 2017)."""

LIFT = ALPHA * math.exp(ALPHA)


def outputs(
    x: Tensor,
    parameters: list[Tensor],
    alpha: float = ALPHA,
    scale: float = SCALE,
    lift: float = LIFT,
) -> list[Tensor]:
    """The input, what each hidden layer gives divided by SELU's scale, and the network's output.

    Args:
        x: Input ``(B, D)``.
        parameters: Weights and biases in turn.
        alpha: SELU's.
        scale: SELU's.
        lift: ``alpha * exp(alpha)``.
    """
    passed = [x]
    last = len(parameters) // 2 - 1
    for layer in range(last):
        # y is the layer's sum less alpha, so that below zero SELU is -alpha + lift * exp(y).
        y = torch.addmm(
            parameters[2 * layer + 1] - alpha,
            passed[-1],
            parameters[2 * layer].t(),
            alpha=scale if layer > 0 else 1.0,
        )
        below = y.clamp(max=-alpha).exp_()
        passed.append(y.clamp_(min=-alpha).add_(below, alpha=lift))
    passed.append(
        torch.addmm(
            parameters[2 * last + 1],
            passed[-1],
            parameters[2 * last].t(),
            alpha=scale if last > 0 else 1.0,
        )
    )
    return passed


def derivatives(
    gradient: Tensor,
    passed: list[Tensor],
    parameters: list[Tensor],
    of_input: bool,
    alpha: float = ALPHA,
    scale: float = SCALE,
) -> list[Tensor]:
    """Derivatives by the parameters, in their order, and with ``of_input`` by the input at the end.

    Args:
        gradient: Derivative by the network's output ``(B, O)``.
        passed: What ``outputs`` gave.
        parameters: Weights and biases in turn.
        of_input: Whether the input's is wanted.
        alpha: SELU's.
        scale: SELU's.
    """
    backwards: list[Tensor] = []
    last = len(parameters) // 2 - 1
    for step in range(last + 1):
        layer = last - step
        of_weight = gradient.t() @ passed[layer]
        backwards.append(gradient.sum(0))
        backwards.append(of_weight.mul_(scale) if layer > 0 else of_weight)
        if layer > 0:
            gradient = gradient @ parameters[2 * layer]
            # Times scale above zero, times scale * (value + alpha) below.
            torch.ops.aten.elu_backward(
                gradient, alpha / scale, scale, scale, True, passed[layer], grad_input=gradient
            )
    backwards.reverse()
    if of_input:
        backwards.append(gradient @ parameters[0])
    return backwards
