"use strict";
// Learning curves, one panel per task, and the bonus beside the extrinsic reward.

/** A group's metric as a series for plotFigure, or null if it was never reported. */
function seriesOf(group, metric) {
  const curve = group.metrics[metric];
  if (!curve) return null;
  const method = METHODS.get(group.method);
  const x = [...unpack(curve.x)];
  const smooth = (packed) => packed && smoothed(x, [...unpack(packed)], state.smooth);
  return {
    label: group.method, method: group.method, color: method.color, dashes: dashes(method),
    x, y: smooth(curve.mean), low: smooth(curve.low), high: smooth(curve.high),
    runs: (curve.runs ?? []).map((run) => {
      const steps = [...unpack(run.x)];
      return { x: steps, y: smoothed(steps, [...unpack(run.y)], state.smooth) };
    }),
  };
}

const groupsOf = (task) => DATA.curves.filter((group) => group.task === task && !state.hidden.has(group.method));

function drawCurves() {
  const panels = [];
  for (const task of DATA.tasks) {
    const series = groupsOf(task).map((group) => seriesOf(group, state.metric)).filter(Boolean);
    if (!series.length) continue;
    const seeds = DATA.overview.filter((row) => row.task === task).map((row) => row.seeds);
    const [few, many] = [Math.min(...seeds), Math.max(...seeds)];
    panels.push(plotFigure({
      title: task, note: few === many ? plural(few, "seed") : `${few} to ${many} seeds`, series,
      rate: isRate(state.metric), showRuns: state.runs, height: 230,
    }));
  }
  byId("curve-panels").replaceChildren(...(panels.length ? panels : [make("p", { class: "empty" }, "No data: all methods are hidden, or none logged this metric.")]));
  const metric = DATA.metrics.find(({ name }) => name === state.metric);
  const single = DATA.overview.every((row) => row.seeds === 1);
  byId("curve-lead").textContent = state.runs || single
    ? "Thin lines are single runs, thick lines their means."
    : metric?.interval
      ? "Lines are means over seeds, bands pointwise 95 % bootstrap intervals."
      : "Lines are means over seeds, bands the range over all runs.";
}

function startCurves() {
  const slider = make("input", { type: "range", min: 0, max: 10, step: 0.5, value: 0, "aria-label": "smoothing" });
  const shown = make("output", {}, "off");
  slider.oninput = () => {
    state.smooth = Number(slider.value) / 100;
    shown.textContent = state.smooth ? `${slider.value} %` : "off";
    redraw();
  };
  const box = make("input", { type: "checkbox", ".checked": state.runs, onchange: () => { state.runs = box.checked; redraw(); } });
  byId("curve-controls").append(
    chooser("metric", DATA.metrics.map(({ name }) => name), state.metric, (name) => { state.metric = name; redraw(); }),
    make("label", { title: "Standard deviation of the Gaussian kernel, as a fraction of the run" }, "smoothing", slider, shown),
    make("label", {}, box, "single runs"));
  views.push(drawCurves);
  startBonus();
}

// Intrinsic and extrinsic reward ----------------------------------------------------------------------

const BONUS_PANELS = [
  { title: "Reward per step", metrics: ["train/reward", "bonus/reward"] },
  { title: "Bonus share of reward", metrics: ["bonus/share"] },
  { title: "Raw bonus", metrics: ["bonus/probe", "bonus/mean"] },
  { title: "Coverage", metrics: ["explore/coverage"] },
];

function startBonus() {
  const rewarded = DATA.curves.filter((group) => group.metrics["bonus/mean"] && group.metrics["bonus/mean"].mean.high > 0);
  if (!rewarded.length) { byId("bonus").remove(); return; }
  const tasks = DATA.tasks.filter((task) => rewarded.some((group) => group.task === task));
  let task = tasks[0];
  if (tasks.length > 1) {
    byId("bonus-controls").append(chooser("task", tasks, task, (name) => { task = name; redraw(); }));
  }
  views.push(() => {
    const panels = [];
    for (const panel of BONUS_PANELS) {
      const series = groupsOf(task).flatMap((group) => panel.metrics.map((metric) => {
        // Without a bonus, only reward and coverage are drawn.
        const bonus = metric.startsWith("bonus/");
        if (bonus && !rewarded.includes(group)) return null;
        const found = seriesOf(group, metric);
        if (found && panel.metrics.length > 1) {
          const dashed = metric === panel.metrics[0];
          found.label += { "train/reward": ", extrinsic", "bonus/reward": ", bonus", "bonus/probe": ", fixed batch", "bonus/mean": ", current" }[metric];
          found.dashes = dashed ? "5 4" : null;
          found.low = found.high = null; // bands of two lines per method would overlap
        }
        return found;
      })).filter(Boolean);
      if (series.length) panels.push(plotFigure({ title: panel.title, series, rate: isRate(panel.metrics[0]), height: 190 }));
    }
    byId("bonus-panels").replaceChildren(...panels);
  });
}
