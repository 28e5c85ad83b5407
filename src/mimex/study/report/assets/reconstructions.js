"use strict";
// Windows of a trajectory: the input, its visible part, and the reconstruction of the masked part.

const WINDOW_KINDS = {
  first: "Windows of the first rollout, the same throughout training",
  newest: "The most novel windows of the latest rollout",
};
const BELOW = [0, 114, 178], ABOVE = [213, 94, 0]; // Okabe and Ito's blue and vermilion

function diverging(share) {
  const middle = isDark() ? [34, 39, 45] : [247, 247, 247];
  const end = share < 0 ? BELOW : ABOVE;
  const weight = Math.min(Math.abs(share), 1) ** 0.8;
  return middle.map((from, i) => Math.round(from + weight * (end[i] - from)));
}

/** An image of a window: one column per time step, one row per feature. */
function windowImage(title, [length, features], colorAt) {
  const canvas = make("canvas", { class: "window", width: length, height: features });
  const tall = Math.min(Math.max(4, Math.round(190 / features)), 14);
  const narrow = innerWidth < 640;
  canvas.style.width = `${Math.max((narrow ? 8 : 14) * length, narrow ? 50 : 70)}px`;
  canvas.style.height = `${tall * features}px`;
  const context = canvas.getContext("2d");
  for (let step = 0; step < length; step++) {
    for (let feature = 0; feature < features; feature++) {
      const color = colorAt(step, feature);
      if (!color) continue;
      context.fillStyle = `rgb(${color.join(" ")})`;
      context.fillRect(step, feature, 1, 1);
    }
  }
  return make("div", {}, canvas, title);
}

/** The three images of one window of a batch of shape (windows, length, features). */
function windowFigure(batch, window) {
  const [, length, features] = batch.shape;
  const input = unpack(batch.features), prediction = unpack(batch.prediction);
  const size = Math.max(...extent([input]).map(Math.abs));
  const index = (step, feature) => (window * length + step) * features + feature;
  const masked = (step, feature) => batch.masked[batch.per_feature ? index(step, feature) : window * length + step];
  const original = (step, feature) => diverging(input[index(step, feature)] / size);
  // Visible features are drawn paler beside the reconstruction.
  const filled = (step, feature) => diverging(masked(step, feature)
    ? prediction[index(step, feature)] / size : 0.3 * input[index(step, feature)] / size);
  return make("figure", { class: "strip" },
    make("div", { class: "frames" },
      windowImage("input", [length, features], original),
      windowImage("visible", [length, features], (step, feature) => (masked(step, feature) ? null : original(step, feature))),
      windowImage("reconstruction", [length, features], filled)),
    make("figcaption", {}, `bonus ${format(batch.reward[window])}`));
}

function startReconstructions() {
  const groups = DATA.reconstructions;
  if (!groups.length) { byId("reconstructions").remove(); return; }
  const names = groups.map((group) => `${group.task}, ${group.method}`);
  let chosen = 0, moment = groups[0].moments.length - 1;
  const slider = make("input", { type: "range", min: 0, step: 1, "aria-label": "training step" });
  const shown = make("output");
  slider.oninput = () => { moment = Number(slider.value); redraw(); };
  const select = chooser("runs", names, names[0], (name) => {
    chosen = names.indexOf(name);
    moment = groups[chosen].moments.length - 1;
    redraw();
  });
  byId("reconstruction-controls").append(names.length > 1 ? select : "", make("label", {}, "after", slider, shown));
  views.push(() => {
    const { moments, run } = groups[chosen];
    slider.max = moments.length - 1;
    slider.value = moment;
    shown.textContent = `${formatSteps(moments[moment].step)} steps of ${run}`;
    byId("reconstruction-windows").replaceChildren(...moments[moment].batches.flatMap((batch) => [
      make("h3", {}, WINDOW_KINDS[batch.kind] ?? batch.kind),
      make("div", { class: "strips" }, ...batch.reward.map((_, window) => windowFigure(batch, window))),
    ]));
  });
}
