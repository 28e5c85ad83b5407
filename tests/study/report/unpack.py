"""The page's way back from packed numbers, for tests."""

from __future__ import annotations

import base64
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mimex.study.report.curves import LEVELS, MISSING


def unpacked(packed: dict[str, Any]) -> NDArray[np.float64]:
    steps = np.frombuffer(base64.b64decode(packed["data"]), "<u2")
    values = packed["low"] + steps / LEVELS * (packed["high"] - packed["low"])
    return np.where(steps == MISSING, np.nan, values)
