"use strict";
// The theme, the legend, the table of contents, and the first drawing.

function startTheme() {
  let dark = prefersDark.matches;
  setTheme(dark);
  byId("theme").onclick = () => { dark = !dark; setTheme(dark); redraw(); };
  prefersDark.onchange = (event) => { dark = event.matches; setTheme(dark); redraw(); };
}

function startLegend() {
  for (const { label } of DATA.methods) {
    const chip = make("button", {
      type: "button", class: "chip", "aria-pressed": "true", title: "Click to hide or show; double-click to show only this method",
    }, swatch(label), label);
    chip.onclick = () => toggle(label, !state.hidden.has(label));
    chip.ondblclick = () => { for (const other of METHODS.keys()) toggle(other, other !== label); };
    byId("legend").append(chip);
  }
}

function toggle(label, hide) {
  if (hide) state.hidden.add(label);
  else state.hidden.delete(label);
  const index = [...METHODS.keys()].indexOf(label);
  byId("legend").children[index].setAttribute("aria-pressed", String(!hide));
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

startTheme();
startLegend();
startOverview();
startCurves();
startMaps();
startReconstructions();
startContents();
redraw();
