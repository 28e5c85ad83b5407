"use strict";
// Line plots with bands and a cursor. A series is {label, color, dashes, x, y, low, high, runs}.

const MARGIN = { left: 46, right: 8, top: 8, bottom: 30 };

/** About `count` round numbers that span low to high. */
function ticks(low, high, count) {
  const rough = (high - low) / count;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 2.5, 5, 10].map((factor) => factor * power).find((size) => size >= rough * 0.999);
  const found = [];
  for (let i = Math.ceil(low / step - 1e-9); i * step <= high + step * 1e-9; i++) found.push(i * step);
  return found;
}

/** A curve smoothed by a Gaussian kernel; its standard std is a fraction of the x range. */
function smoothed(x, y, share) {
  if (!share || y.length < 3) return y;
  const std = share * (x[x.length - 1] - x[0]);
  return y.map((_, at) => {
    let sum = 0, weights = 0;
    for (let i = at; i >= 0 && x[at] - x[i] < 3 * std; i--) [sum, weights] = weigh(i, at, sum, weights);
    for (let i = at + 1; i < x.length && x[i] - x[at] < 3 * std; i++) [sum, weights] = weigh(i, at, sum, weights);
    return sum / weights;
  });
  function weigh(i, at, sum, weights) {
    const weight = Math.exp(-0.5 * ((x[i] - x[at]) / std) ** 2);
    return [sum + weight * y[i], weights + weight];
  }
}

function extent(arrays) {
  let low = Infinity, high = -Infinity;
  for (const values of arrays) {
    for (const value of values ?? []) {
      if (value < low) low = value;
      if (value > high) high = value;
    }
  }
  return [low, high];
}

/** Limits of the y axis. Bands that reach far beyond all lines are cut off. */
function valueRange(series, rate, showRuns = false) {
  let [low, high] = extent(series.flatMap((s) => [s.y, ...(showRuns ? (s.runs ?? []).map((run) => run.y) : [])]));
  if (!(low <= high)) return [0, 1];
  const [bandLow, bandHigh] = extent(series.flatMap((s) => [s.low, s.high]));
  const beyond = 0.5 * (high - low);
  if (!showRuns) [low, high] = [Math.min(low, Math.max(bandLow, low - beyond)), Math.max(high, Math.min(bandHigh, high + beyond))];
  if (rate && (high > 0.25 || high === 0)) return [0, 1.02];
  if (low > 0 && low < 0.5 * high) low = 0; // start the axis at zero if the data nearly does
  const size = Math.max(Math.abs(low), Math.abs(high));
  if (high - low <= 1e-6 * size) return [low - 0.1 * (size || 1), high + 0.1 * (size || 1)]; // flat
  const margin = 0.05 * (high - low);
  return [low === 0 ? 0 : low - margin, high + margin];
}

function path(x, y, toX, toY) {
  let text = "";
  for (let i = 0; i < x.length; i++) {
    if (!Number.isNaN(y[i])) text += `${text ? "L" : "M"}${toX(x[i]).toFixed(1)},${toY(y[i]).toFixed(1)}`;
  }
  return text;
}

function bandPath(x, low, high, toX, toY, [least, most]) {
  const within = (values) => [...values].map((value) => Math.min(Math.max(value, least), most));
  const upper = path(x, within(high), toX, toY);
  const lower = path([...x].reverse(), within(low).reverse(), toX, toY);
  return upper && lower ? `${upper}L${lower.slice(1)}Z` : "";
}

/** The value of a series at a step, by linear interpolation. */
function at(series, step, values) {
  const { x } = series;
  if (step < x[0] || step > x[x.length - 1]) return NaN;
  let right = 0;
  while (right < x.length - 1 && x[right] < step) right++;
  const left = Math.max(0, right - 1);
  const share = x[right] === x[left] ? 1 : (step - x[left]) / (x[right] - x[left]);
  return values[left] + share * (values[right] - values[left]);
}

/** Draws series into a figure: {title, note, series, rate, height}. */
function plotFigure(spec) {
  const figure = make("figure", { class: "panel" });
  const note = spec.note ? make("span", {}, spec.note) : null;
  figure.append(make("figcaption", {}, make("b", {}, spec.title), note));
  const svg = make("svg", { class: "plot", role: "img", tabindex: 0, "aria-label": spec.title });
  figure.append(svg);
  // Drawn once its width is known, and again when that changes.
  new ResizeObserver(() => drawPlot(svg, spec)).observe(figure);
  return figure;
}

function drawPlot(svg, spec) {
  const width = svg.parentElement.clientWidth, height = spec.height ?? 220;
  const series = spec.series.filter((s) => s.x.length);
  svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
  svg.setAttribute("height", height);
  svg.replaceChildren();
  if (!series.length || width < 60) return;
  const [low, high] = valueRange(series, spec.rate, spec.showRuns);
  const [first, last] = [Math.min(0, extent(series.map((s) => s.x))[0]), extent(series.map((s) => s.x))[1]];
  const inner = { width: width - MARGIN.left - MARGIN.right, height: height - MARGIN.top - MARGIN.bottom };
  const toX = (x) => MARGIN.left + ((x - first) / (last - first || 1)) * inner.width;
  const toY = (y) => MARGIN.top + (1 - (y - low) / (high - low)) * inner.height;
  drawAxes(svg, spec, { low, high, first, last, toX, toY, width, height });
  for (const s of series) {
    if (s.low && !spec.showRuns) {
      svg.append(make("path", { class: "band", fill: s.color, d: bandPath(s.x, s.low, s.high, toX, toY, [low, high]) }));
    }
    for (const run of spec.showRuns ? s.runs ?? [] : []) {
      svg.append(make("path", { class: "run", stroke: s.color, d: path(run.x, run.y, toX, toY) }));
    }
  }
  for (const s of series) {
    svg.append(make("path", {
      class: "line", stroke: s.color, "stroke-dasharray": s.dashes || null, d: path(s.x, s.y, toX, toY),
    }));
    if (s.x.length === 1) {
      svg.append(make("circle", { cx: toX(s.x[0]), cy: toY(s.y[0]), r: 3, fill: s.color }));
    }
  }
  addCursor(svg, spec, series, { first, last, toX, toY, inner });
}

function drawAxes(svg, spec, { low, high, first, last, toX, toY, width, height }) {
  for (const value of ticks(low, Math.min(high, spec.rate ? 1 : high), 4)) {
    const y = toY(value);
    svg.append(make("line", { class: "grid", x1: MARGIN.left, x2: width - MARGIN.right, y1: y, y2: y }));
    const label = spec.rate ? `${Number((100 * value).toPrecision(3))} %` : format(value);
    svg.append(make("text", { x: MARGIN.left - 6, y: y + 4, "text-anchor": "end" }, label));
  }
  const bottom = height - MARGIN.bottom;
  svg.append(make("line", { class: "axis", x1: MARGIN.left, x2: width - MARGIN.right, y1: bottom, y2: bottom }));
  for (const step of ticks(first, last, Math.max(2, Math.round(width / 110)))) {
    const anchor = toX(step) > width - MARGIN.right - 14 ? "end" : "middle";
    svg.append(make("text", { x: toX(step), y: bottom + 15, "text-anchor": anchor }, formatSteps(step)));
  }
  svg.append(make("text", { x: MARGIN.left, y: bottom + 28 }, "steps"));
}

function addCursor(svg, spec, series, { first, last, toX, toY, inner }) {
  const cursor = make("g", { visibility: "hidden" });
  svg.append(cursor);
  const steps = [...new Set(series.flatMap((s) => [...s.x]))].sort((a, b) => a - b);
  let now = steps.length - 1;
  const show = (x, y) => {
    const step = steps[now];
    const values = series.map((s) => ({ s, value: at(s, step, s.y) })).filter(({ value }) => !Number.isNaN(value));
    values.sort((a, b) => b.value - a.value);
    cursor.replaceChildren(make("line", {
      class: "cursor", x1: toX(step), x2: toX(step), y1: MARGIN.top, y2: MARGIN.top + inner.height,
    }));
    for (const { s, value } of values) {
      cursor.append(make("circle", { cx: toX(step), cy: toY(value), r: 3.2, fill: s.color }));
    }
    cursor.setAttribute("visibility", "visible");
    const rows = values.map(({ s, value }) => make("tr", {},
      make("td", {}, s.method ? swatch(s.method) : ""), make("td", {}, s.label), make("td", {}, format(value, spec.rate)),
      make("td", {}, s.low ? `${format(at(s, step, s.low), spec.rate)} to ${format(at(s, step, s.high), spec.rate)}` : "")));
    showTip(x, y, make("strong", {}, `${formatSteps(step, 4)} steps`), make("table", {}, ...rows));
  };
  const leave = () => { cursor.setAttribute("visibility", "hidden"); hideTip(); };
  svg.onpointermove = (event) => {
    const box = svg.getBoundingClientRect();
    const wanted = first + ((event.clientX - box.left - MARGIN.left) / inner.width) * (last - first);
    now = steps.reduce((best, step, i) => (Math.abs(step - wanted) < Math.abs(steps[best] - wanted) ? i : best), 0);
    show(event.clientX, event.clientY);
  };
  svg.onpointerleave = leave;
  svg.onblur = leave;
  svg.onkeydown = (event) => {
    const move = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (!move) return;
    event.preventDefault();
    now = Math.min(Math.max(now + move, 0), steps.length - 1);
    const box = svg.getBoundingClientRect();
    show(box.left + toX(steps[now]), box.top + box.height / 2);
  };
}
