#!/usr/bin/env bash
# Runs the tests that the main environment skips, each group in a virtual environment of its own under
# .venv-extras: MuJoCo Warp, TorchRL and RLlib. Groups can be named: scripts/test_extras.sh warp
set -euo pipefail
cd "$(dirname "$0")/.."
PYTHON=${PYTHON:-python3}
. scripts/torch.sh

# Per group: the extras of mimex, what else pip installs, the package that it wants in another version than
# constraints.txt has, the package that must import, and the tests.
declare -A extras=([warp]=warp [torchrl]=envs [rllib]=envs)
declare -A more=([warp]="" [torchrl]="torchrl tensordict" [rllib]="ray[rllib]")
declare -A unpinned=([torchrl]=tensordict [rllib]=gymnasium)
declare -A needs=([warp]=mujoco_warp [torchrl]=torchrl [rllib]=ray.rllib)
declare -A tests=(
    [warp]="tests/envs/test_warp_engine.py tests/envs/test_engine.py tests/train/test_tensors.py"
    [torchrl]="tests/interop/test_torchrl.py"
    [rllib]="tests/interop/test_rllib.py"
)

failed=""
for group in ${*:-warp torchrl rllib}; do
    venv=.venv-extras/$group
    [ -x "$venv/bin/pip" ] || "$PYTHON" -m venv "$venv"
    install_torch "$venv"
    say "installing mimex[${extras[$group]}] ${more[$group]} into $venv"
    constraints=$venv/constraints.txt
    grep -v "^${unpinned[$group]:-nothing}==" constraints.txt >"$constraints"
    # shellcheck disable=SC2086
    "$venv/bin/pip" install --quiet --constraint "$constraints" \
        --editable ".[${extras[$group]},sb3]" pytest hypothesis ${more[$group]}
    "$venv/bin/python" -c "import ${needs[$group]}"
    say "testing $group"
    # shellcheck disable=SC2086
    OMP_NUM_THREADS=1 "$venv/bin/python" -m pytest -m "not gpu" ${tests[$group]} || failed="$failed $group"
done
if [ -n "$failed" ]; then say "failed:$failed"; exit 1; fi
say "all extras passed"
