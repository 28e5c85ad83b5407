"""The control panel of the viewer, with live plots."""

from __future__ import annotations

import html
import threading
from collections import deque
from collections.abc import Mapping, Sequence
from itertools import cycle, islice
from typing import Any

import numpy as np

SPEEDS = (0.1, 0.25, 0.5, 1.0, 2.0, 4.0)
PLOTTED = 600
"""Number of most recent steps in a plot."""
COLORS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#8c564b", "#7f7f7f")
SUM_COLOR = "#333333"
"""Color of the last line of a plot, the sum of the others."""


class Panel:
    """Controls, text and plots beside the scene.

    Attributes:
        paused: Whether the simulation is paused.

    Args:
        server: The viser server.
        choices: Options of each drop-down menu, by label.
        chosen: Initially selected option of each menu, by label.
        buttons: Labels of additional buttons.
    """

    def __init__(
        self,
        server: Any,
        choices: Mapping[str, Sequence[str]],
        chosen: Mapping[str, str],
        buttons: Sequence[str] = (),
    ) -> None:
        gui = server.gui
        self._gui, self.paused = gui, False
        self._menus: dict[str, _Menu] = {
            label: _Menu(gui, label, options, chosen[label]) for label, options in choices.items()
        }
        self._pressed: dict[str, threading.Event] = {}
        self._pause = gui.add_button("Pause")
        self._pause.on_click(self._toggle)
        for label in ("Restart", *buttons):
            self._pressed[label] = threading.Event()
            gui.add_button(label).on_click(lambda _, label=label: self._pressed[label].set())
        self._speed = _Menu(gui, "Speed", [f"{speed:g}x" for speed in SPEEDS], "1x")
        self._text = gui.add_html("")
        self._plots: dict[tuple[str, ...], _Plot] = {}  # by title and lines

    def _toggle(self, _: Any) -> None:
        self.paused = not self.paused
        self._pause.label = "Play" if self.paused else "Pause"

    @property
    def speed(self) -> float:
        """Playback speed: simulated seconds per second."""
        return float(self._speed.chosen.removesuffix("x"))

    def chosen(self, label: str) -> str:
        """The selected option of a drop-down menu."""
        return self._menus[label].chosen

    def choose(self, label: str, option: str) -> None:
        """Selects an option of a drop-down menu."""
        self._menus[label].handle.value = option

    def pressed(self, label: str) -> bool:
        """Whether a button was pressed since the last call."""
        event = self._pressed[label]
        if not event.is_set():
            return False
        event.clear()
        return True

    def set_text(self, *lines: str) -> None:
        """Sets the lines of text below the controls."""
        text = "<br>".join(html.escape(line) for line in lines)
        self._text.content = f'<div style="padding: 0 0.8em; font-size: 0.85em">{text}</div>'

    def record(self, time: float, values: Mapping[str, Mapping[str, float]]) -> None:
        """Adds the values of one step at a time (s), by plot and line."""
        for title, lines in values.items():
            key = title, *lines
            if key not in self._plots:
                self._plots[key] = _Plot(self._gui, title, tuple(lines))
            self._plots[key].add(time, tuple(lines.values()))

    def draw(self) -> None:
        """Redraws the plots."""
        for plot in self._plots.values():
            plot.draw()

    def clear(self) -> None:
        """Clears the plots; a plot is hidden until it gets new values.

        Plots are not removed, because a page that lags behind raises an error for removed ones.
        """
        for plot in self._plots.values():
            plot.clear()


class _Menu:
    """A drop-down menu."""

    def __init__(self, gui: Any, label: str, options: Sequence[str], chosen: str) -> None:
        self.handle = gui.add_dropdown(label, tuple(options), initial_value=chosen)
        self._options, self._chosen = frozenset(options), chosen

    @property
    def chosen(self) -> str:
        """The selected option. Whatever else is sent is ignored: viser does not check it."""
        value = self.handle.value
        if value in self._options:
            self._chosen = value
        return self._chosen


class _Plot:
    """A line plot of the most recent steps (uPlot)."""

    def __init__(self, gui: Any, title: str, labels: Sequence[str]) -> None:
        self._rows: deque[tuple[float, ...]] = deque(maxlen=PLOTTED)
        lines = [
            {"label": label, "stroke": color, "width": 1.5}
            for label, color in zip(
                labels, [*islice(cycle(COLORS), len(labels) - 1), SUM_COLOR], strict=True
            )
        ]
        self._handle = gui.add_uplot(
            data=(np.zeros(1),) * (1 + len(labels)),
            series=({"label": "s"}, *lines),
            title=title,
            scales={"x": {"time": False}},
            legend={"live": False},
            aspect=1.6,
        )

    def add(self, time: float, values: tuple[float, ...]) -> None:
        self._rows.append((time, *values))

    def draw(self) -> None:
        if self._rows:
            self._handle.data = tuple(np.array(self._rows).T)
            self._handle.visible = True

    def clear(self) -> None:
        self._rows.clear()
        self._handle.visible = False
