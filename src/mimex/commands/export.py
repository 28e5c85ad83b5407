"""`mimex export`: write a policy to an ONNX or safetensors file that needs no PyTorch."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import tyro
from rich.console import Console

from mimex import __version__
from mimex.commands.build import Which
from mimex.commands.eval import evaluate_with_progress, success_line
from mimex.commands.pretrained import policy_of_run
from mimex.extras import optional_import
from mimex.files import replacing
from mimex.nn.parallel import use_workers
from mimex.policies import SUFFIX, MLPPolicy, card_path, load_policy
from mimex.train.evaluate import Evaluation

OPSET, IR_VERSION = 17, 8
"""Versions of 2022, which older runtimes support."""

ONNX_ACTIVATIONS = {"selu": "Selu", "elu": "Elu", "tanh": "Tanh", "relu": "Relu"}


@dataclass(frozen=True)
class ExportConfig:
    """Write the deterministic policy of a PPO run to a file.

    It maps raw observations to actions, with normalization and clipping. An .onnx file is for
    onnxruntime and other runtimes; a .safetensors file with its model card (.json) is for
    mimex.load_policy.
    """

    run: tyro.conf.Positional[Path]
    """Run folder."""
    out: tyro.conf.Positional[Path]
    """The file to write: NAME.onnx or NAME.safetensors."""
    checkpoint: Which = "latest"
    """Checkpoint of the run."""
    episodes: int = 256
    """Number of evaluation episodes for the model card of a .safetensors file."""
    seed: int = 1_000_000
    """Random seed of these episodes."""
    trust_modules: tuple[str, ...] = ()
    """Modules that the run's task (gym/MODULE:ID) may import; their code is executed."""


def run(arguments: Sequence[str]) -> int:
    """Runs the command."""
    config = tyro.cli(ExportConfig, args=arguments, prog="mimex export")
    if config.episodes < 1:
        raise ValueError(f"--episodes is {config.episodes}, but must be at least 1")
    if config.out.suffix not in (".onnx", SUFFIX):
        raise ValueError(f"the file is {config.out}, but its name must end in .onnx or {SUFFIX}")
    use_workers(1)
    console = Console(highlight=False, markup=False, soft_wrap=True)
    if config.out.suffix == ".onnx":
        _require_onnx()
        _, policy, step = policy_of_run(config.run, config.checkpoint, config.trust_modules)
        content = onnx_model(policy).SerializeToString()
        with replacing(config.out) as aside:
            aside.write_bytes(content)
    else:
        trained, policy, step = policy_of_run(config.run, config.checkpoint, config.trust_modules)
        result = evaluate_with_progress(trained, policy.rounded(), config.episodes, config.seed)
        save_with_card(policy, config.out, result, config.seed)
        if result.successes is not None:
            console.print(success_line(result))
        console.print(f"card    {card_path(config.out)}")
    console.print(
        f"policy  {config.out} ({config.out.stat().st_size / 1000:.0f} kB, step {step:,})"
    )
    return 0


def save_with_card(policy: MLPPolicy, path: Path, result: Evaluation, seed: int) -> None:
    """Writes a policy and its model card, with the results of an evaluation."""
    metrics, success = result.metrics(), None
    if result.successes is not None:
        names = {"rate": "eval/success", "low": "eval/success_low", "high": "eval/success_high"}
        success = {"successes": result.successes} | {key: metrics[x] for key, x in names.items()}
    card = {
        **policy.card,
        "episodes": result.episodes,
        "episodes_seed": seed,
        "success": success,
        "return": result.mean_return,
        "packed_by": __version__,
    }
    replace(policy, card=card).save(path)
    load_policy(path)  # raises an error now if the file cannot be read back


def onnx_model(policy: MLPPolicy) -> Any:
    """Returns an ONNX model from float32 observations ``(batch, ...)`` to actions.

    Its metadata contains the model card as JSON.
    """
    onnx = _require_onnx()
    from onnx import TensorProto, helper, numpy_helper

    nodes: list[Any] = []
    constants: list[Any] = []

    def constant(name: str, value: Any) -> str:
        constants.append(numpy_helper.from_array(np.asarray(value), name))
        return name

    def node(kind: str, *inputs: str, **attributes: Any) -> str:
        name = f"{kind.lower()}_{len(nodes)}"
        nodes.append(helper.make_node(kind, inputs, [name], name=name, **attributes))
        return name

    parts = [node("Flatten", name, axis=1) for name in policy.inputs]
    x = node("Concat", *parts, axis=1) if len(parts) > 1 else parts[0]
    x = node("Mul", node("Sub", x, constant("mean", policy.mean)), constant("scale", policy.scale))
    limits = np.float32(-policy.clip), np.float32(policy.clip)
    x = node("Clip", x, constant("clip_low", limits[0]), constant("clip_high", limits[1]))
    for depth, (weight, bias) in enumerate(policy.layers):
        if depth:
            x = node(ONNX_ACTIVATIONS[policy.activation], x)
        names = constant(f"weight_{depth}", weight), constant(f"bias_{depth}", bias)
        x = node("Gemm", x, *names, transB=1)
    kind = TensorProto.FLOAT
    if policy.first_action is not None:
        kind, x = TensorProto.INT64, node("ArgMax", x, axis=1, keepdims=0)
        x = node("Add", x, constant("first_action", np.int64(policy.first_action)))
    elif policy.bounds is not None:
        low, high = policy.bounds
        x = node("Clip", x, constant("least", np.float32(-1)), constant("most", np.float32(1)))
        x = node("Mul", node("Add", x, "most"), constant("half_range", (high - low) / 2))
        x = node("Add", x, constant("low", low))
    if policy.first_action is None:
        x = node("Reshape", x, constant("shape", np.array([-1, *policy.action_shape], np.int64)))
    nodes[-1].output[0] = "action"
    inputs = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, ["batch", *shape])
        for name, shape in policy.inputs.items()
    ]
    output = helper.make_tensor_value_info("action", kind, ["batch", *policy.action_shape])
    graph = helper.make_graph(nodes, "policy", inputs, [output], constants)
    model = helper.make_model(
        graph,
        opset_imports=[helper.make_opsetid("", OPSET)],
        ir_version=IR_VERSION,
        producer_name="mimex",
        producer_version=__version__,
    )
    helper.set_model_props(model, {"card": json.dumps(policy.card)})
    onnx.checker.check_model(model, full_check=True)
    return model


def _require_onnx() -> Any:
    with optional_import("an .onnx file"):
        import onnx
    return onnx
