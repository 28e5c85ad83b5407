"use strict";
// Everything from run folders reaches the page as text nodes or attributes, never as markup.

const DATA = JSON.parse(document.getElementById("data").textContent);
const METHODS = new Map(DATA.methods.map((method) => [method.label, method]));
const MISSING = 65535, LEVELS = 65534; // as in curves.py
const RATES = new Set(DATA.metrics.filter((metric) => metric.rate).map((metric) => metric.name));

// Intervals of two runs are too wide to be useful: show the runs instead.
const fewSeeds = DATA.overview.every((row) => row.seeds < 3);
const state = { hidden: new Set(), metric: DATA.score, smooth: 0, runs: fewSeeds };
const views = []; // functions that redraw a part of the page

function redraw() {
  hideTip();
  for (const view of views) view();
}

/** Creates an element with attributes (properties if the name starts with a dot) and children. */
function make(name, attributes = {}, ...children) {
  const drawn = ["svg", "g", "path", "line", "text", "rect", "circle"].includes(name);
  const element = drawn
    ? document.createElementNS("http://www.w3.org/2000/svg", name)
    : document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (key.startsWith("on")) element.addEventListener(key.slice(2), value);
    else if (key.startsWith(".")) element[key.slice(1)] = value;
    else if (value !== null && value !== undefined && value !== false) element.setAttribute(key, value);
  }
  element.append(...children.filter((child) => child !== null && child !== undefined));
  return element;
}

const byId = (id) => document.getElementById(id);

/** A task's name after its last slash, unless that is ambiguous. */
function shortTask(task) {
  const last = task.split("/").at(-1);
  return DATA.tasks.filter((other) => other.split("/").at(-1) === last).length === 1 ? last : task;
}

/** Decodes an array of curves.py, with a cache. */
const unpackedBefore = new WeakMap();
function unpack(packed) {
  if (!unpackedBefore.has(packed)) {
    const text = atob(packed.data);
    const numbers = new Float64Array(text.length / 2);
    const width = (packed.high - packed.low) / LEVELS;
    for (let i = 0; i < numbers.length; i++) {
      const step = text.charCodeAt(2 * i) + 256 * text.charCodeAt(2 * i + 1);
      numbers[i] = step === MISSING ? NaN : packed.low + step * width;
    }
    unpackedBefore.set(packed, numbers);
  }
  return unpackedBefore.get(packed);
}

// Number formatting -------------------------------------------------------------------------

const isRate = (metric) => RATES.has(metric); // between 0 and 1

function format(value, rate = false) {
  if (value === null || value === undefined || Number.isNaN(value)) return "–";
  if (rate) return `${(100 * value).toFixed(1)} %`;
  const size = Math.abs(value);
  if (size !== 0 && (size < 1e-3 || size >= 1e6)) return value.toExponential(1).replace("e+", "e");
  if (size >= 1000) return Math.round(value).toLocaleString("en");
  return String(Number(value.toPrecision(3)));
}

function formatSteps(steps, digits = 3) {
  const units = [[1e9, "B"], [1e6, "M"], [1e3, "k"]];
  for (const [unit, letter] of units) {
    if (steps >= unit) return `${Number((steps / unit).toPrecision(digits))}${letter}`;
  }
  return String(Math.round(steps));
}

const plural = (count, word) => `${count.toLocaleString("en")} ${word}${count === 1 ? "" : "s"}`;

// Methods -----------------------------------------------------------------------------------

const dashes = (method) => method.dashes.join(" ") || null;

function swatch(label) {
  const method = METHODS.get(label);
  const line = make("line", {
    x1: 1, y1: 5, x2: 19, y2: 5, stroke: method.color, "stroke-width": 3, "stroke-dasharray": dashes(method),
  });
  return make("svg", { class: "swatch", viewBox: "0 0 20 10", "aria-hidden": "true" }, line);
}

const named = (label) => make("span", { class: "method" }, swatch(label), make("span", {}, label));

// Controls ----------------------------------------------------------------------------------

function chooser(label, options, value, change) {
  const select = make("select", { "aria-label": label, onchange: (event) => change(event.target.value) });
  for (const option of options) {
    select.append(make("option", { value: option, ".selected": option === value }, option));
  }
  return make("label", {}, label, select);
}

/** A group of buttons of which one is pressed. */
function choice(label, options, value, change) {
  const group = make("span", { class: "choice", role: "group", "aria-label": label });
  for (const option of options) {
    group.append(make("button", {
      type: "button", "aria-pressed": String(option === value),
      onclick: () => {
        for (const other of group.children) other.setAttribute("aria-pressed", String(other.textContent === option));
        change(option);
      },
    }, option));
  }
  return group;
}

// The tooltip -------------------------------------------------------------------------------

const tip = byId("tip");
function showTip(x, y, ...content) {
  tip.replaceChildren(...content);
  tip.hidden = false;
  const { width, height } = tip.getBoundingClientRect();
  const left = x + 14 + width > innerWidth ? x - 14 - width : x + 14;
  const top = Math.min(Math.max(4, y - height / 2), innerHeight - height - 4);
  tip.style.transform = `translate(${Math.max(4, left)}px, ${top}px)`;
}
function hideTip() {
  tip.hidden = true;
}

// Light and dark ----------------------------------------------------------------------------

const prefersDark = matchMedia("(prefers-color-scheme: dark)");
const isDark = () => document.documentElement.dataset.theme === "dark";
function setTheme(dark) {
  document.documentElement.dataset.theme = dark ? "dark" : "light";
  byId("theme").textContent = dark ? "Light" : "Dark";
}
