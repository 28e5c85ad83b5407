"use strict";
// The head of the page, the bar that stays, and the first drawing.

function startHeader() {
  const seeds = DATA.overview.map((row) => row.seeds);
  const [few, many] = [Math.min(...seeds), Math.max(...seeds)];
  const steps = Math.max(...DATA.overview.map((row) => row.steps[1]));
  byId("summary").textContent = [
    plural(DATA.runs, "run"), plural(DATA.tasks.length, "task"), plural(DATA.methods.length, "method"),
    few === many ? plural(few, "seed") : `${few} to ${many} seeds`, `up to ${tellSteps(steps)} steps`,
  ].join(" · ");
  if (DATA.unfinished.length) {
    const names = DATA.unfinished.slice(0, 8).join(", ") + (DATA.unfinished.length > 8 ? ", …" : "");
    byId("unfinished").textContent = `${DATA.unfinished.length} of ${plural(DATA.runs, "run")} ${DATA.unfinished.length === 1 ? "has" : "have"} not reached the budget yet: ${names}.`;
    byId("unfinished").hidden = false;
  }
  byId("footer").textContent = `Made by mimex ${DATA.version}, ${DATA.made}.`;
  let dark = prefersDark.matches;
  setTheme(dark);
  byId("theme").onclick = () => { dark = !dark; setTheme(dark); redraw(); };
  prefersDark.onchange = (event) => { dark = event.matches; setTheme(dark); redraw(); };
}

function startLegend() {
  for (const { label } of DATA.methods) {
    const chip = make("button", {
      type: "button", class: "chip", "aria-pressed": "true", title: "Click to hide or show; double-click to show this one alone",
    }, swatch(label), label);
    chip.onclick = () => toggle(label, !state.hidden.has(label));
    chip.ondblclick = () => { for (const other of METHODS.keys()) toggle(other, other !== label); };
    byId("legend").append(chip);
  }
}

function toggle(label, hide) {
  if (hide) state.hidden.add(label);
  else state.hidden.delete(label);
  const place = [...METHODS.keys()].indexOf(label);
  byId("legend").children[place].setAttribute("aria-pressed", String(!hide));
  redraw();
}

function startContents() {
  const links = new Map();
  for (const section of document.querySelectorAll("main section")) {
    const link = make("a", { href: `#${section.id}` }, section.dataset.name);
    links.set(section, link);
    byId("contents").append(link);
  }
  const mark = () => {
    const sections = [...links.keys()];
    const here = sections.filter((section) => section.getBoundingClientRect().top < 140).pop() ?? sections[0];
    for (const [section, link] of links) link.classList.toggle("here", section === here);
  };
  addEventListener("scroll", () => { mark(); hideTip(); }, { passive: true });
  mark();
}

startHeader();
startLegend();
startOverview();
startCurves();
startMaps();
startHealth();
startAblations();
startSettings();
startFilms();
startVideos();
startVersions();
startContents();
redraw();
