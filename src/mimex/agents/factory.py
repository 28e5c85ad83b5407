"""Builders shared by all agents: seeds, the bonus, its scale and its input features."""

from __future__ import annotations

from inspect import signature
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from gymnasium.vector import VectorEnv
from torch import Tensor

from mimex.agents.encoders import ObsAdapter
from mimex.bonus import bonus_class
from mimex.bonus.base import IntrinsicReward
from mimex.bonus.prediction import MaskedPrediction
from mimex.bonus.scale import BonusScale
from mimex.data.spaces import view_indices

if TYPE_CHECKING:
    from mimex.config import TrainConfig

_PURPOSES = ("environment", "weights", "actions", "bonus", "minibatches", "evaluation", "restarts")


def seed_for(config: TrainConfig, purpose: str, *more: int) -> int:
    """Derives an independent seed for one purpose.

    Args:
        config: The settings, with the run's seed.
        purpose: One of ``_PURPOSES``.
        more: Further integers, such as the rank; ignored if all are 0.
    """
    key = (_PURPOSES.index(purpose), *(more if any(more) else ()))
    return int(np.random.SeedSequence(config.seed, spawn_key=key).generate_state(1)[0])


def make_bonus(
    config: TrainConfig,
    feature_dim: int,
    action_dim: int,
    *,
    discrete_obs: bool = False,
    discrete: bool = False,
) -> IntrinsicReward:
    """Builds the bonus named by ``config.bonus``.

    Args:
        config: The settings.
        feature_dim: Features per step.
        action_dim: Dimensions of an action.
        discrete_obs: Features are one-hot codes of discrete observations.
        discrete: Actions are one-hot codes of discrete actions.
    """
    kind = bonus_class(config.bonus)
    if not hasattr(config, config.bonus):  # no settings and no networks: "none", "constant"
        plain: IntrinsicReward = kind()
        return plain
    chosen = vars(getattr(config, config.bonus))
    given: dict[str, Any] = {"seed": seed_for(config, "bonus"), "device": config.device_name}
    parameters = signature(kind).parameters
    if "action_dim" in parameters and chosen.get("actions", True):
        given["action_dim"] = action_dim
    kinds = {"discrete_obs": discrete_obs, "discrete": discrete}
    given |= {name: value for name, value in kinds.items() if name in parameters}
    bonus: IntrinsicReward = kind(feature_dim, **given, **chosen)
    if isinstance(bonus, MaskedPrediction) and bonus.encoder is not None:
        bonus.feature_dim = 0  # known only after encoding: the first window builds the networks
    return bonus


def make_view(
    config: TrainConfig, env: VectorEnv[Any, Any, Any], reader: ObsAdapter, feature_dim: int
) -> Tensor | None:
    """Indices of the features that the bonus gets; None for all."""
    if config.bonus_view and (reader.image is not None or reader.vector != feature_dim):
        raise ValueError(
            f"--bonus-view is {' '.join(config.bonus_view)}, but the bonus gets an encoder's "
            f"{feature_dim} features, which have no names: leave it out, or use vector observations"
        )
    groups = getattr(env.unwrapped, "observation_groups", None) or reader.groups
    if not config.bonus_view:
        return None
    return torch.tensor(view_indices(config.bonus_view, feature_dim, groups, "--bonus-view"))


def make_scale(config: TrainConfig, discount: float, frames: int = 1) -> BonusScale:
    """Builds the weight and normalization of the bonus; ``frames`` is the action repeat."""
    horizon = (config.horizon or config.steps) // frames
    return BonusScale(
        discount=discount,
        over_steps=None if config.scale.schedule == "constant" else max(horizon, 1),
        **vars(config.scale),
    )
