"use strict";
// Ablations, settings, videos and versions.

/** Scores by the value of one setting on one task: dots with intervals. */
function dotPlot(ablation, task) {
  const figure = make("figure", { class: "panel" });
  figure.append(make("figcaption", {}, make("b", {}, ablation.setting), make("span", {}, task)));
  const picture = make("svg", { class: "plot", role: "img", "aria-label": `${ablation.setting} on ${task}` });
  figure.append(picture);
  const points = ablation.points.filter((point) => point.task === task && !state.hidden.has(point.method));
  const rate = isRate(DATA.score);
  const draw = () => {
    const width = figure.clientWidth, height = 210, bottom = height - MARGIN.bottom;
    picture.setAttribute("viewBox", `0 0 ${width} ${height}`);
    picture.setAttribute("height", height);
    picture.replaceChildren();
    const reach = points.flatMap(({ final }) => [final.value, final.low ?? final.value, final.high ?? final.value]);
    const [low, high] = valueRange([{ y: reach }], rate);
    const toX = (place) => MARGIN.left + ((place + 0.5) / ablation.values.length) * (width - MARGIN.left - MARGIN.right);
    const toY = (y) => MARGIN.top + (1 - (y - low) / (high - low)) * (bottom - MARGIN.top);
    for (const value of ticks(low, Math.min(high, rate ? 1 : high), 4)) {
      picture.append(make("line", { class: "grid", x1: MARGIN.left, x2: width - MARGIN.right, y1: toY(value), y2: toY(value) }));
      picture.append(make("text", { x: MARGIN.left - 6, y: toY(value) + 4, "text-anchor": "end" }, rate ? `${Math.round(100 * value)} %` : tell(value)));
    }
    ablation.values.forEach((value, place) => {
      picture.append(make("text", { x: toX(place), y: bottom + 16, "text-anchor": "middle" }, value.replaceAll('"', "")));
      const here = points.filter((point) => point.value === value);
      here.forEach(({ method, final }, i) => {
        const x = toX(place) + (i - (here.length - 1) / 2) * 12, { colour } = METHODS.get(method);
        if (final.low !== undefined) {
          picture.append(make("line", { x1: x, x2: x, y1: toY(final.low), y2: toY(final.high), stroke: colour, "stroke-width": 2 }));
        }
        const dot = make("circle", { cx: x, cy: toY(final.value), r: 4.5, fill: colour });
        dot.onpointermove = (event) => showTip(event.clientX, event.clientY, named(method), make("div", {}, ...estimateText(final, rate)));
        dot.onpointerleave = hideTip;
        picture.append(dot);
      });
    });
  };
  new ResizeObserver(draw).observe(figure);
  return figure;
}

function startAblations() {
  if (!DATA.ablations.length) { byId("ablations").remove(); return; }
  views.push(() => byId("ablation-panels").replaceChildren(...DATA.ablations.flatMap((ablation) =>
    DATA.tasks.filter((task) => new Set(ablation.points.filter((p) => p.task === task).map((p) => p.value)).size > 1)
      .map((task) => dotPlot(ablation, task)))));
}

function startHealth() {
  if (!DATA.health.length) { byId("health").remove(); return; }
  const head = make("tr", {}, ...["what is wrong, and the remedy", "runs", "first at step"].map((name) => make("th", {}, name)));
  const rows = DATA.health.map((said) => {
    const count = (step) => step.toLocaleString("en");
    const [first, ...others] = said;
    const all = make("details", {}, make("summary", {}, `also said in ${others.length} more`),
      ...others.map(({ run, step }) => make("div", {}, make("code", {}, run), ` at step ${count(step)}`)));
    return make("tr", {},
      make("td", { class: "words" }, make("code", {}, first.run), `: ${first.words}`, others.length ? all : null),
      make("td", { class: "number" }, `${said.length}`),
      make("td", { class: "number" }, count(Math.min(...said.map(({ step }) => step)))));
  });
  byId("health-table").append(make("table", {}, make("thead", {}, head), make("tbody", {}, ...rows)));
}

function startSettings() {
  const { methods, differ, same } = DATA.settings;
  byId("settings-lead").textContent = differ.length
    ? "Settings in which the runs differ. Where one method's runs differ among themselves, by task for example, all values are given."
    : "All runs have the same settings, but for their seeds.";
  if (differ.length) {
    const head = make("tr", {}, make("th", { class: "sticky" }, "setting"), ...methods.map((label) => make("th", {}, named(label))));
    const rows = differ.map(({ name, values }) => make("tr", {},
      make("td", { class: "sticky" }, make("code", {}, name)),
      ...methods.map((label) => make("td", { class: values[label].length > 1 ? "faint" : "differs" },
        make("code", {}, values[label].map((value) => value.replaceAll('"', "")).join(" | "))))));
    byId("settings-table").append(make("table", {}, make("thead", {}, head), make("tbody", {}, ...rows)));
  }
  const details = byId("settings-same");
  details.querySelector("summary").textContent = `${plural(same.length, "setting")} that all runs share`;
  details.querySelector("div").append(make("table", {}, make("tbody", {}, ...same.map(({ name, value }) =>
    make("tr", {}, make("td", {}, make("code", {}, name)), make("td", {}, make("code", {}, value.replaceAll('"', ""))))))));
}

function startVideos() {
  if (!DATA.videos.length && !DATA.left_out.length) { byId("videos").remove(); return; }
  byId("video-grid").append(...DATA.videos.map((video) => make("figure", {},
    make("video", { ".controls": true, ".muted": true, ".loop": true, playsinline: "", src: `data:video/mp4;base64,${video.data}` }),
    make("figcaption", {}, named(video.method), make("br"), make("span", {}, `${video.task}, ${video.name}`)))));
  if (DATA.left_out.length) byId("left-out").textContent = `Left out for want of room: ${DATA.left_out.join(", ")}.`;
}

function startVersions() {
  const host = byId("version-list");
  if (DATA.versions.length > 1) {
    host.append(make("p", { class: "lead" }, `These runs were made in ${DATA.versions.length} different ways; compare them with care.`));
  }
  for (const entry of DATA.versions) {
    const list = make("dl", { class: "version" });
    const say = (name, value) => value && list.append(make("dt", {}, name), make("dd", {}, value));
    const resumed = entry.runs.reduce((sum, run) => sum + run.resumed, 0);
    say("runs", plural(entry.runs.length, "run") + (resumed ? `, continued ${plural(resumed, "time")}` : ""));
    say("packages", Object.entries(entry.versions).map(([name, version]) => `${name} ${version ?? "not installed"}`).join(", "));
    say("revision", entry.revision);
    say("machine", [entry.platform, entry.cores && plural(entry.cores, "core")].filter(Boolean).join(", "));
    const commands = make("details", {}, make("summary", {}, "Commands"));
    for (const run of entry.runs) if (run.command) commands.append(make("code", { class: "code" }, run.command));
    host.append(list, commands);
  }
}
