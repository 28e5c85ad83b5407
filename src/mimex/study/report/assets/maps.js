"use strict";
// Visited states and the mean bonus there, by stage of training.

// Viridis at nine points, reversed on a light page, so that more always has more contrast.
const VIRIDIS = [
  [68, 1, 84], [71, 44, 122], [59, 81, 139], [44, 113, 142], [33, 144, 141],
  [39, 173, 129], [92, 200, 99], [170, 220, 50], [253, 231, 37],
];
function heat(share) {
  const position = (isDark() ? 0.1 + 0.9 * share : 1 - share) * (VIRIDIS.length - 1);
  const left = Math.min(Math.floor(position), VIRIDIS.length - 2);
  return VIRIDIS[left].map((from, i) => Math.round(from + (position - left) * (VIRIDIS[left + 1][i] - from)));
}

const mapChoice = { task: null, plane: null, quantity: "visits" };

/** The values of a map: the logarithm of the visit counts, or the mean bonus. */
const mapValues = (map) => unpack(mapChoice.quantity === "visits" ? map.visits : map.bonus);

/** Indices of the visited cells, in the order of a map's values. */
function visitedCells(map) {
  const bytes = atob(map.cells), cells = [];
  for (let cell = 0; cell < 8 * bytes.length; cell++) {
    if (bytes.charCodeAt(cell >> 3) & (128 >> (cell & 7))) cells.push(cell);
  }
  return cells;
}

function drawMap(plane, map, [low, high], size) {
  const [columns, rows] = plane.cells;
  const canvas = make("canvas", { class: "map", width: columns, height: rows });
  canvas.style.width = `${size}px`;
  canvas.style.height = `${(size * rows) / columns}px`;
  const context = canvas.getContext("2d");
  const values = mapValues(map);
  const cellOf = new Map();
  visitedCells(map).forEach((cell, i) => {
    const [column, row] = [Math.floor(cell / rows), cell % rows];
    const share = high > low ? Math.min((values[i] - low) / (high - low), 1) : 1;
    context.fillStyle = `rgb(${heat(share).join(" ")})`;
    context.fillRect(column, rows - 1 - row, 1, 1);
    cellOf.set(cell, i);
  });
  canvas.onpointermove = (event) => {
    const box = canvas.getBoundingClientRect();
    const column = Math.floor(((event.clientX - box.left) / box.width) * columns);
    const row = rows - 1 - Math.floor(((event.clientY - box.top) / box.height) * rows);
    const i = cellOf.get(column * rows + row);
    const where = [column, row].map((cell, axis) => {
      const width = (plane.high[axis] - plane.low[axis]) / plane.cells[axis];
      return `${plane.axes[axis].replace(/ \(.*/, "")} ${(plane.low[axis] + (cell + 0.5) * width).toFixed(2)}`;
    });
    const visits = i === undefined ? 0 : Math.round(Math.exp(unpack(map.visits)[i]));
    const bonus = i === undefined ? null : `mean bonus ${format(unpack(map.bonus)[i])}`;
    showTip(event.clientX, event.clientY, make("strong", {}, where.join(", ")), plural(visits, "visit"), make("br"), bonus);
  };
  canvas.onpointerleave = hideTip;
  return canvas;
}

function drawMaps() {
  const groups = DATA.maps.filter((group) => group.task === mapChoice.task && !state.hidden.has(group.method));
  const table = make("table");
  const planes = groups.map((group) => group.planes.find((plane) => plane.name === mapChoice.plane)).filter(Boolean);
  byId("map-table").replaceChildren(table);
  byId("map-scale").replaceChildren();
  if (!planes.length) return;
  // All maps share one color scale.
  const all = planes.flatMap((plane) => plane.maps.flatMap((map) => [...mapValues(map)])).sort((a, b) => a - b);
  const low = mapChoice.quantity === "visits" ? 0 : Math.min(0, all[0]);
  const high = mapChoice.quantity === "visits" ? all[all.length - 1] : all[Math.floor(0.99 * (all.length - 1))];
  const stages = Math.max(...planes.map((plane) => plane.maps.length));
  const longest = planes.find((plane) => plane.maps.length === stages);
  table.append(make("thead", {}, make("tr", {},
    make("th", { class: "sticky" }, "method"),
    ...longest.maps.map((map, i) => make("th", {}, `${i ? formatSteps(longest.maps[i - 1].until) : "0"} to ${formatSteps(map.until)}`)),
    make("th", { class: "number" }, "coverage"))));
  const room = byId("map-table").clientWidth - 300; // next to the names and the coverage
  const size = Math.min(Math.max(Math.floor(room / stages) - 12, 84), 150);
  const body = make("tbody");
  groups.forEach((group, g) => {
    const plane = planes[g];
    const row = DATA.overview.find((r) => r.task === group.task && r.method === group.method);
    const coverage = row?.["explore/coverage"] ?? { value: plane.maps[plane.maps.length - 1].coverage };
    body.append(make("tr", {},
      make("td", { class: "sticky" }, named(group.method)),
      ...longest.maps.map((_, i) => make("td", {}, plane.maps[i] ? drawMap(plane, plane.maps[i], [low, high], size) : "")),
      make("td", { class: "number" }, ...estimateText(coverage, true))));
  });
  table.append(body);
  byId("map-lead").textContent = `Visited states in each stage of training, ${longest.shared
    ? "summed over seeds" : "for one run of each method, on axes fitted to its first states"}, and the mean raw bonus there. Coverage is the fraction of grid cells that a run has visited by its end.`;
  const plane = longest;
  const ramp = make("canvas", { width: 160, height: 1 });
  const context = ramp.getContext("2d");
  for (let x = 0; x < 160; x++) {
    context.fillStyle = `rgb(${heat(x / 159).join(" ")})`;
    context.fillRect(x, 0, 1, 1);
  }
  const ends = mapChoice.quantity === "visits" ? ["1", `${format(Math.exp(high))} visits`] : [format(low), `${format(high)} mean bonus`];
  byId("map-scale").append(make("span", { class: "scale" }, ends[0], ramp, ends[1]),
    make("p", { class: "lead" }, `→ ${plane.axes[0]}, ${plane.low[0]} to ${plane.high[0]}; ↑ ${plane.axes[1]}, ${plane.low[1]} to ${plane.high[1]}. Blank cells were not visited.`));
}

function startMaps() {
  if (!DATA.maps.length) { byId("maps").remove(); return; }
  const tasks = [...new Set(DATA.maps.map((group) => group.task))];
  const planesOf = (task) => [...new Set(DATA.maps.filter((g) => g.task === task).flatMap((g) => g.planes.map((p) => p.name)))];
  const choose = (task) => {
    mapChoice.task = task;
    mapChoice.plane = planesOf(task)[0];
    byId("map-controls").replaceChildren(
      tasks.length > 1 ? chooser("task", tasks, task, (name) => { choose(name); redraw(); }) : "",
      choice("quantity", ["visits", "bonus"], mapChoice.quantity, (name) => { mapChoice.quantity = name; redraw(); }),
      planesOf(task).length > 1
        ? choice("view", planesOf(task), mapChoice.plane, (name) => { mapChoice.plane = name; redraw(); }) : "");
  };
  choose(tasks[0]);
  views.push(drawMaps);
}
