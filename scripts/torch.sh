# Sourced by the other scripts: one way to install PyTorch and to report progress.
say() { printf '\033[1m[setup]\033[0m %s\n' "$*"; }

# Installs the tested version of PyTorch into a virtual environment: the CPU build where no GPU is found.
install_torch() {
    local pip="$1/bin/pip" version
    version=$(sed -n 's/^torch==//p' constraints.txt)
    if "$1/bin/python" -c 'import torch' 2>/dev/null; then return; fi
    if command -v nvidia-smi >/dev/null && nvidia-smi >/dev/null 2>&1; then
        say "installing PyTorch $version into $1 (a GPU was found)"
        "$pip" install --quiet "torch==$version"
    else
        say "installing PyTorch $version, CPU build, into $1 (no GPU was found)"
        "$pip" install --quiet "torch==$version+cpu" 2>/dev/null \
            || "$pip" install --quiet --retries 1 --extra-index-url https://download.pytorch.org/whl/cpu "torch==$version+cpu" 2>/dev/null \
            || "$pip" install --quiet "torch==$version"
    fi
}
