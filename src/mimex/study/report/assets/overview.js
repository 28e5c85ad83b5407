"use strict";
// The overview table: scores of every method on every task.

const scoreName = DATA.score.replace("eval/", "").replace("train/", "training ");

/** A value and its interval as text. */
function estimateText(estimate, rate) {
  if (!estimate) return ["–"];
  const parts = [format(estimate.value, rate)];
  if (estimate.low !== undefined) {
    const digits = estimate.high - estimate.low < 0.1 ? 1 : 0; // of percents
    const range = rate
      ? `${(100 * estimate.low).toFixed(digits)}–${(100 * estimate.high).toFixed(digits)}`
      : `${format(estimate.low)} to ${format(estimate.high)}`;
    parts.push(make("span", { class: "range" }, range));
  }
  return parts;
}

/** Interval, mean and single runs on a line from low to high. */
function intervalImage(estimate, values, label, [low, high]) {
  const width = innerWidth < 640 ? 96 : 116, height = 18, middle = height / 2;
  const toX = (value) => 5 + ((Math.min(Math.max(value, low), high) - low) / (high - low || 1)) * (width - 10);
  const { color } = METHODS.get(label);
  const svg = make("svg", { width, height, viewBox: `0 0 ${width} ${height}`, "aria-hidden": "true" });
  svg.append(make("line", { class: "axis", x1: 5, x2: width - 5, y1: middle, y2: middle, stroke: "var(--grid)", "stroke-width": 8 }));
  if (estimate?.low !== undefined) {
    svg.append(make("line", {
      x1: toX(estimate.low), x2: toX(estimate.high), y1: middle, y2: middle, stroke: color, "stroke-width": 8, opacity: 0.28,
    }));
  }
  for (const value of values) {
    svg.append(make("line", { x1: toX(value), x2: toX(value), y1: middle - 4, y2: middle + 4, stroke: color, opacity: 0.75 }));
  }
  if (estimate) svg.append(make("circle", { cx: toX(estimate.value), cy: middle, r: 4, fill: color, stroke: "var(--paper)", "stroke-width": 1.2 }));
  return svg;
}

function scoreRange(rows) {
  if (isRate(DATA.score)) return [0, 1];
  const [low, high] = extent(rows.map((row) => [...row.scores, row.final?.low ?? NaN, row.final?.high ?? NaN]));
  return low < high ? [Math.min(low, 0), high] : [0, 1];
}

/** Whether a row has the best mean, or an interval that overlaps with the best row's. */
function isBest(row, rows, column) {
  const known = rows.map((other) => other[column]).filter(Boolean);
  if (known.length < 2 || !row[column]) return false;
  const best = known.reduce((a, b) => (b.value > a.value ? b : a));
  return best.value !== 0 && (row[column].high ?? row[column].value) >= (best.low ?? best.value);
}

function drawOverview() {
  const shown = DATA.overview.filter((row) => !state.hidden.has(row.method));
  const columns = [
    ["area", "area under curve", isRate(DATA.score)],
    ["eval/return", "return", false],
    ["explore/coverage", "coverage", true],
    ["bonus/share", "bonus share", true],
  ].filter(([name]) => name !== DATA.score && DATA.overview.some((row) => row[name]?.value));
  const head = make("tr", {},
    make("th", { class: "wide" }, "task"), make("th", { class: "sticky" }, "method"),
    make("th", { class: "number" }, `final ${scoreName}`), make("th", {}, ""),
    ...columns.map(([, title]) => make("th", { class: "number" }, title)),
    make("th", { class: "number" }, "seeds"), make("th", { class: "number" }, "steps"));
  const table = make("table", {}, make("thead", {}, head));
  for (const task of DATA.tasks) {
    const rows = shown.filter((row) => row.task === task);
    const range = scoreRange(DATA.overview.filter((row) => row.task === task));
    // On a narrow screen the task is a row of its own instead of a column.
    const body = make("tbody", { class: "task" }, make("tr", { class: "narrow" }, make("td", { class: "name", colspan: 3 }, task)));
    rows.forEach((row, index) => {
      body.append(make("tr", {},
        make("td", { class: "name wide", title: task }, index ? "" : shortTask(task)),
        make("td", { class: "sticky" }, named(row.method)),
        make("td", { class: `number ${isBest(row, rows, "final") ? "best" : ""}` }, ...estimateText(row.final, isRate(DATA.score))),
        make("td", {}, intervalImage(row.final, row.scores, row.method, range)),
        ...columns.map(([name, , rate]) => make("td", { class: "number" }, ...estimateText(row[name], rate))),
        make("td", { class: "number" }, row.finished === row.seeds ? String(row.seeds) : `${row.finished} of ${row.seeds}`),
        make("td", { class: "number" }, formatSteps(row.steps[0]) === formatSteps(row.steps[1])
          ? formatSteps(row.steps[1]) : `${formatSteps(row.steps[0])} to ${formatSteps(row.steps[1])}`)));
    });
    if (rows.length) table.append(body);
  }
  byId("overview-table").replaceChildren(table);
}

function drawAggregate() {
  const rows = DATA.aggregate.rows.filter((row) => !state.hidden.has(row.method));
  const host = byId("aggregate");
  host.replaceChildren();
  if (!rows.length) return;
  const rate = isRate(DATA.score);
  const [low, high] = rate ? [0, 1] : extent(DATA.aggregate.rows.map((row) => [0, row.iqm.low, row.iqm.high]));
  const compared = rows.some((row) => row.improvement);
  const table = make("table", {}, make("thead", {}, make("tr", {},
    make("th", {}, "method"), make("th", { class: "number" }, "interquartile mean"), make("th", {}, ""),
    make("th", { class: "number" }, "mean"), compared ? make("th", { class: "number" }, "P(better than none)") : null)));
  const body = make("tbody");
  for (const row of rows) {
    body.append(make("tr", {},
      make("td", {}, named(row.method)),
      make("td", { class: `number ${isBest(row, rows, "iqm") ? "best" : ""}` }, ...estimateText(row.iqm, rate)),
      make("td", {}, intervalImage(row.iqm, [], row.method, [low, high])),
      make("td", { class: "number" }, ...estimateText(row.mean, rate)),
      compared ? make("td", { class: "number" }, ...estimateText(row.improvement, true)) : null));
  }
  table.append(body);
  host.append(
    make("h3", {}, `${plural(DATA.aggregate.tasks.length, "task")} combined, final ${scoreName}`),
    make("p", { class: "lead" }, compared
      ? "All tasks have equal weight. P(better than none): probability that a run of the method scores higher than a run without a bonus; 50 % means no difference."
      : "All tasks have equal weight."),
    make("div", { class: "scroll" }, table));
}

/** Steps to the first reward, by task and over all tasks. */
function drawFirstRewards() {
  const rows = DATA.first_rewards.filter((row) => !state.hidden.has(row.method));
  const host = byId("first-rewards");
  host.replaceChildren();
  if (!rows.length) return;
  const compared = rows.some((row) => row.p !== null);
  const table = make("table", {}, make("thead", {}, make("tr", {},
    make("th", { class: "wide" }, "task"), make("th", { class: "sticky" }, "method"), make("th", { class: "number" }, "runs with a reward"),
    make("th", { class: "number" }, "median steps"), compared ? make("th", { class: "number" }, "p (vs. none)") : null)));
  for (const task of [...DATA.tasks, null]) {
    const name = task === null ? "all tasks" : shortTask(task);
    const body = make("tbody", { class: "task" }, make("tr", { class: "narrow" }, make("td", { class: "name", colspan: 3 }, name)));
    rows.filter((row) => row.task === task).forEach((row, index) => {
      body.append(make("tr", {},
        make("td", { class: "name wide" }, index ? "" : name),
        make("td", { class: "sticky" }, named(row.method)),
        make("td", { class: "number" }, `${row.found} of ${row.runs}`),
        make("td", { class: "number" }, row.median === null ? "not reached" : formatSteps(row.median)),
        compared ? make("td", { class: "number" }, row.p === null ? "–" : String(Number(row.p.toPrecision(2)))) : null));
    });
    if (body.children.length > 1) table.append(body);
  }
  host.append(
    make("h3", {}, "Steps to the first reward"),
    make("p", { class: "lead" }, `Median (Kaplan–Meier): the step by which half of the runs had received a reward. Runs without a reward are censored at their last step.${compared
      ? " p: two-sided log-rank test against no bonus, not corrected for multiple comparisons." : ""}`),
    make("div", { class: "scroll" }, table));
}

function startOverview() {
  const several = DATA.overview.some((row) => row.seeds > 1);
  byId("overview-lead").textContent = `Final scores are means over the last tenth of the steps, of finished runs. ${several
    ? "Means over seeds with 95 % bootstrap intervals; ticks are single runs. Bold: the best mean of a task, and every method whose interval overlaps with the best one's."
    : "One seed per method: no intervals, and differences may be chance."}`;
  views.push(drawOverview, drawAggregate, drawFirstRewards);
}
