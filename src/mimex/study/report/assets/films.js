"use strict";
// Film strips: windows, what is hidden of them, and what the model fills in.

const FILM_KINDS = {
  first: "Windows of the first rollout, the same through the whole run",
  newest: "The most novel windows of the latest rollout",
};
const BELOW = [0, 114, 178], ABOVE = [213, 94, 0]; // Okabe and Ito's blue and vermilion

function diverging(share) {
  const middle = isDark() ? [34, 39, 45] : [247, 247, 247];
  const end = share < 0 ? BELOW : ABOVE;
  const weight = Math.min(Math.abs(share), 1) ** 0.8;
  return middle.map((from, i) => Math.round(from + weight * (end[i] - from)));
}

/** One picture of a window: a column a step, a row a number. */
function filmFrame(title, [length, numbers], colourAt) {
  const canvas = make("canvas", { class: "film", width: length, height: numbers });
  const tall = Math.min(Math.max(4, Math.round(190 / numbers)), 14);
  const narrow = innerWidth < 640;
  canvas.style.width = `${Math.max((narrow ? 8 : 14) * length, narrow ? 50 : 70)}px`;
  canvas.style.height = `${tall * numbers}px`;
  const context = canvas.getContext("2d");
  for (let step = 0; step < length; step++) {
    for (let number = 0; number < numbers; number++) {
      const colour = colourAt(step, number);
      if (!colour) continue;
      context.fillStyle = `rgb(${colour.join(" ")})`;
      context.fillRect(step, number, 1, 1);
    }
  }
  return make("div", {}, canvas, title);
}

function filmStrip(film, place) {
  const [, length, numbers] = film.shape;
  const features = unpack(film.features);
  const size = Math.max(...film.reach);
  const index = (step, number) => (place * length + step) * numbers + number;
  const hidden = (step, number) => film.hidden[film.by_number ? index(step, number) : place * length + step];
  const colour = (values, fade) => (step, number) => {
    const share = values[index(step, number)] / size;
    return diverging(fade && !hidden(step, number) ? 0.3 * share : share);
  };
  const real = colour(features);
  return make("figure", { class: "strip" },
    make("div", { class: "frames" },
      filmFrame("window", [length, numbers], real),
      filmFrame("seen", [length, numbers], (step, number) => (hidden(step, number) ? null : real(step, number))),
      filmFrame("filled in", [length, numbers], colour(filled(film), true))),
    make("figcaption", {}, `bonus ${tell(film.reward[place])}`));
}

/** Visible steps as they are, hidden ones as predicted; remembered with the film. */
function filled(film) {
  const prediction = unpack(film.prediction), numbers = film.shape[2];
  film.filled ??= unpack(film.features).map((value, i) => (
    film.hidden[film.by_number ? i : Math.floor(i / numbers)] ? prediction[i] : value));
  return film.filled;
}

function startFilms() {
  if (!DATA.films.length) { byId("films").remove(); return; }
  for (const group of DATA.films) {
    for (const film of group.moments.flatMap((moment) => moment.films)) {
      film.reach = extent([unpack(film.features)]).map(Math.abs);
    }
  }
  const names = DATA.films.map((group) => `${group.task}, ${group.method}`);
  let chosen = 0, moment = DATA.films[0].moments.length - 1;
  const slider = make("input", { type: "range", min: 0, step: 1, "aria-label": "moment" });
  const told = make("output");
  slider.oninput = () => { moment = Number(slider.value); redraw(); };
  const select = chooser("runs", names, names[0], (name) => {
    chosen = names.indexOf(name);
    moment = DATA.films[chosen].moments.length - 1;
    redraw();
  });
  byId("film-controls").append(names.length > 1 ? select : "", make("label", {}, "after", slider, told));
  views.push(() => {
    const { moments, run } = DATA.films[chosen];
    slider.max = moments.length - 1;
    slider.value = moment;
    told.textContent = `${tellSteps(moments[moment].step)} steps of ${run}`;
    byId("film-strips").replaceChildren(...moments[moment].films.flatMap((film) => [
      make("h3", {}, FILM_KINDS[film.kind] ?? film.kind),
      make("div", { class: "strips" }, ...film.reward.map((_, place) => filmStrip(film, place))),
    ]));
  });
}
