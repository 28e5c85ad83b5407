"use strict";
// The overview table: what every method came to on every task.

const scoreName = DATA.score.replace("eval/", "").replace("train/", "training ");

/** A value and its interval as text. */
function estimateText(estimate, rate) {
  if (!estimate) return ["–"];
  const parts = [tell(estimate.value, rate)];
  if (estimate.low !== undefined) {
    const digits = estimate.high - estimate.low < 0.1 ? 1 : 0; // of percents
    const range = rate
      ? `${(100 * estimate.low).toFixed(digits)}–${(100 * estimate.high).toFixed(digits)}`
      : `${tell(estimate.low)} to ${tell(estimate.high)}`;
    parts.push(make("span", { class: "range" }, range));
  }
  return parts;
}

/** Interval, mean and single runs on a line from low to high. */
function intervalPicture(estimate, values, label, [low, high]) {
  const width = innerWidth < 640 ? 96 : 116, height = 18, middle = height / 2;
  const toX = (value) => 5 + ((Math.min(Math.max(value, low), high) - low) / (high - low || 1)) * (width - 10);
  const { colour } = METHODS.get(label);
  const picture = make("svg", { width, height, viewBox: `0 0 ${width} ${height}`, "aria-hidden": "true" });
  picture.append(make("line", { class: "axis", x1: 5, x2: width - 5, y1: middle, y2: middle, stroke: "var(--grid)", "stroke-width": 8 }));
  if (estimate?.low !== undefined) {
    picture.append(make("line", {
      x1: toX(estimate.low), x2: toX(estimate.high), y1: middle, y2: middle, stroke: colour, "stroke-width": 8, opacity: 0.28,
    }));
  }
  for (const value of values) {
    picture.append(make("line", { x1: toX(value), x2: toX(value), y1: middle - 4, y2: middle + 4, stroke: colour, opacity: 0.75 }));
  }
  if (estimate) picture.append(make("circle", { cx: toX(estimate.value), cy: middle, r: 4, fill: colour, stroke: "var(--paper)", "stroke-width": 1.2 }));
  return picture;
}

function scoreRange(rows) {
  if (isRate(DATA.score)) return [0, 1];
  const [low, high] = extent(rows.map((row) => [...row.scores, row.final?.low ?? NaN, row.final?.high ?? NaN]));
  return low < high ? [Math.min(low, 0), high] : [0, 1];
}

/** Whether a row has the greatest mean, or an interval that reaches into that one's. */
function isBest(row, rows, column) {
  const told = rows.map((other) => other[column]).filter(Boolean);
  if (told.length < 2 || !row[column]) return false;
  const best = told.reduce((a, b) => (b.value > a.value ? b : a));
  return best.value !== 0 && (row[column].high ?? row[column].value) >= (best.low ?? best.value);
}

function drawOverview() {
  const shown = DATA.overview.filter((row) => !state.hidden.has(row.method));
  const columns = [
    ["area", "over the whole run", isRate(DATA.score)],
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
    // On a narrow page the task has a line of its own instead of a column.
    const body = make("tbody", { class: "task" }, make("tr", { class: "narrow" }, make("td", { class: "name", colspan: 3 }, task)));
    rows.forEach((row, place) => {
      body.append(make("tr", {},
        make("td", { class: "name wide", title: task }, place ? "" : shortTask(task)),
        make("td", { class: "sticky" }, named(row.method)),
        make("td", { class: `number ${isBest(row, rows, "final") ? "best" : ""}` }, ...estimateText(row.final, isRate(DATA.score))),
        make("td", {}, intervalPicture(row.final, row.scores, row.method, range)),
        ...columns.map(([name, , rate]) => make("td", { class: "number" }, ...estimateText(row[name], rate))),
        make("td", { class: "number" }, row.finished === row.seeds ? String(row.seeds) : `${row.finished} of ${row.seeds}`),
        make("td", { class: "number" }, tellSteps(row.steps[0]) === tellSteps(row.steps[1])
          ? tellSteps(row.steps[1]) : `${tellSteps(row.steps[0])} to ${tellSteps(row.steps[1])}`)));
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
    make("th", { class: "number" }, "mean"), compared ? make("th", { class: "number" }, "better than none") : null)));
  const body = make("tbody");
  for (const row of rows) {
    body.append(make("tr", {},
      make("td", {}, named(row.method)),
      make("td", { class: `number ${isBest(row, rows, "iqm") ? "best" : ""}` }, ...estimateText(row.iqm, rate)),
      make("td", {}, intervalPicture(row.iqm, [], row.method, [low, high])),
      make("td", { class: "number" }, ...estimateText(row.mean, rate)),
      compared ? make("td", { class: "number" }, ...estimateText(row.improvement, true)) : null));
  }
  table.append(body);
  host.append(
    make("h3", {}, `${plural(DATA.aggregate.tasks.length, "task")} together, final ${scoreName}`),
    make("p", { class: "lead" }, compared
      ? "Tasks weigh the same. Better than none: how probably a run of the method beats a run without bonus; 50 % is no difference."
      : "Tasks weigh the same."),
    make("div", { class: "scroll" }, table));
}

/** How long runs waited for their first reward, task by task and over all tasks. */
function drawFirstRewards() {
  const rows = DATA.first_rewards.filter((row) => !state.hidden.has(row.method));
  const host = byId("first-rewards");
  host.replaceChildren();
  if (!rows.length) return;
  const compared = rows.some((row) => row.p !== null);
  const table = make("table", {}, make("thead", {}, make("tr", {},
    make("th", { class: "wide" }, "task"), make("th", { class: "sticky" }, "method"), make("th", { class: "number" }, "runs that met one"),
    make("th", { class: "number" }, "median steps"), compared ? make("th", { class: "number" }, "p, against none") : null)));
  for (const task of [...DATA.tasks, null]) {
    const name = task === null ? "all tasks together" : shortTask(task);
    const body = make("tbody", { class: "task" }, make("tr", { class: "narrow" }, make("td", { class: "name", colspan: 3 }, name)));
    rows.filter((row) => row.task === task).forEach((row, place) => {
      body.append(make("tr", {},
        make("td", { class: "name wide" }, place ? "" : name),
        make("td", { class: "sticky" }, named(row.method)),
        make("td", { class: "number" }, `${row.found} of ${row.runs}`),
        make("td", { class: "number" }, row.median === null ? "not reached" : tellSteps(row.median)),
        compared ? make("td", { class: "number" }, row.p === null ? "–" : String(Number(row.p.toPrecision(2)))) : null));
    });
    if (body.children.length > 1) table.append(body);
  }
  host.append(
    make("h3", {}, "Steps to the first reward"),
    make("p", { class: "lead" }, `Median: by when half of the runs had met a reward; a run that met none counts as waiting until its last step.${compared
      ? " p: how probably chance alone parts the runs of a task as far from those without bonus (log-rank test, two-sided, each comparison by itself)." : ""}`),
    make("div", { class: "scroll" }, table));
}

function startOverview() {
  const several = DATA.overview.some((row) => row.seeds > 1);
  byId("overview-lead").textContent = `Of runs that reached their budget, the mean over its last tenth. ${several
    ? "Means over seeds with 95 % bootstrap intervals; ticks are single runs. Bold: the greatest mean of a task, and all whose intervals reach into its interval."
    : "One seed each: no interval can be given, and a difference may be luck."}`;
  views.push(drawOverview, drawAggregate, drawFirstRewards);
}
