"use strict";
// All charts are drawn by promises that wait for nothing outside the page: they are there before it
// counts as loaded, for whoever prints or captures it.
const views = new WeakMap();
const options = { actions: false, renderer: "svg", tooltip: { theme: "light" } };

function draw(chart) {
  if (!views.has(chart)) views.set(chart, embed(chart));
  return views.get(chart);
}

async function embed(chart) {
  const spec = JSON.parse(chart.querySelector("script").textContent);
  const place = chart.querySelector(".view");
  spec.autosize = { type: "fit-x", contains: "padding" };
  spec.width = "container";
  if (chart.classList.contains("square")) spec.height = Math.max(180, place.clientWidth - 90);
  // The page has a legend of its own, with buttons; those of the maps belong to the chart.
  const legend = chart.closest("figure").querySelector(".legend");
  if (legend) withoutLegends(spec);
  const { view } = await vegaEmbed(place, spec, options);
  place.style.minHeight = "";
  if (legend) view.signal("hidden", hiddenIn(legend));
  await view.runAsync();
  chart.dataset.drawn = "true";
  return view;
}

function withoutLegends(spec) {
  for (const channel of Object.values(spec.encoding || {})) if ("scale" in channel) channel.legend = null;
  (spec.layer || []).forEach(withoutLegends);
}

const charts = [...document.querySelectorAll(".chart")];
addEventListener("beforeprint", () => {
  document.querySelectorAll("details").forEach((each) => { each.open = true; });
});
document.getElementById("print").addEventListener("click", () => print());

// The legend: a button for each head.
const hiddenIn = (legend) =>
  [...legend.querySelectorAll("[aria-pressed=false]")].map((button) => button.dataset.head);

document.querySelectorAll(".legend").forEach((legend) => {
  legend.addEventListener("click", async (event) => {
    const button = event.target.closest("button");
    if (!button) return;
    const heads = [...legend.querySelectorAll("[data-head]")];
    if (button.dataset.show) heads.forEach((each) => each.setAttribute("aria-pressed", String(button.dataset.show === "all")));
    else button.setAttribute("aria-pressed", String(button.getAttribute("aria-pressed") !== "true"));
    for (const chart of legend.closest("figure").querySelectorAll(".chart")) {
      if (views.has(chart)) (await views.get(chart)).signal("hidden", hiddenIn(legend)).runAsync();
    }
  });
});

// Tables sort by a click on a heading; numbers from high to low first, empty cells last.
const valueOf = (row, column) => {
  const cell = row.cells[column];
  return cell.dataset.value === undefined ? cell.textContent : Number(cell.dataset.value);
};
const compare = (a, b) => (typeof a === "number" && typeof b === "number" ? a - b : String(a).localeCompare(String(b), undefined, { numeric: true }));

document.querySelectorAll("thead button").forEach((button) => {
  button.addEventListener("click", () => {
    const head = button.closest("th"), column = head.cellIndex, body = head.closest("table").tBodies[0];
    const rows = [...body.rows];
    const numbers = rows.some((row) => row.cells[column].dataset.value !== undefined);
    const first = numbers ? "descending" : "ascending", second = numbers ? "ascending" : "descending";
    const way = head.getAttribute("aria-sort") === first ? second : first;
    head.parentNode.querySelectorAll("[aria-sort]").forEach((each) => each.removeAttribute("aria-sort"));
    head.setAttribute("aria-sort", way);
    rows.sort((a, b) => {
      const x = valueOf(a, column), y = valueOf(b, column);
      if (x === "" || y === "") return (x === "") - (y === "");
      return way === "ascending" ? compare(x, y) : compare(y, x);
    });
    body.append(...rows);
  });
});

if (window.vegaEmbed) charts.forEach(draw);
