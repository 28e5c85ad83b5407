"""Nested settings as one list, to compare them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any


def flat_settings(settings: Mapping[str, Any], above: str = "") -> dict[str, str]:
    """Nested settings by dotted name, as JSON text: in which NaN equals NaN and 1 is not 1.0."""
    flat: dict[str, str] = {}
    for key, value in settings.items():
        if isinstance(value, dict) and value:
            flat |= flat_settings(value, f"{above}{key}.")
        else:
            flat[above + key] = json.dumps(value)
    return flat
