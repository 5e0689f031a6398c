// A day of figures as small pictures: drawn here from numbers, nothing is loaded.

import { h, redraw } from "./dom.js";
import { absolute, bytes, count, duration } from "./format.js";

const WIDTH = 288;
const HEIGHT = 64;
const TOP = 6;

/** Of all partitions; the ring's last point may be ten minutes old. */
export function dirtyNow(status) {
  return status.partitions.reduce((all, each) => all + (each.dirty_bytes ?? 0), 0);
}

const PICTURES = [
  { id: "reclaimed_bytes", name: "Reclaimed", kind: "bars", format: bytes, sum: true },
  { id: "dirty_bytes", name: "Dirty", kind: "line", format: bytes, sum: false, now: dirtyNow },
  { id: "cleanings", name: "Cleanings", kind: "bars", format: count, sum: true },
  { id: "held_us", name: "Lock held", kind: "bars", format: (us) => duration(us / 1000), sum: false, most: true },
];

/** An element of a picture; the page's own empty picture says what kind of element that is. */
function s(tag, props, ...children) {
  const element = document.createElementNS(document.getElementById("picture").namespaceURI, tag);
  for (const [name, value] of Object.entries(props)) element.setAttribute(name, String(value));
  element.append(...children);
  return element;
}

/** Shown beside the list of partitions; a daemon of before has no such figures. */
export function drawTrend(parent, status, view) {
  const trend = status?.trend;
  parent.hidden = view !== "" || !trend;
  if (!trend) return;
  redraw(parent, [trend, dirtyNow(status)], () => PICTURES.map((each) => picture(each, trend, status)));
}

function picture({ id, name, kind, format, sum, most, now }, trend, status) {
  // The last point may be ten minutes old: the picture ends with what its figure says.
  const values = now ? [...trend[id].slice(0, -1), now(status)] : trend[id];
  const known = values.filter((value) => value !== null);
  const highest = Math.max(0, ...known);
  const figure = sum ? known.reduce((all, value) => all + value, 0) : most ? highest : now(status);
  const word = sum ? "in a day" : most ? "at most" : "now";
  const hours = Math.round((values.length * trend.every_ms) / 3600000);
  const label = `${name}: ${format(figure)} ${word}; the most in ${duration(trend.every_ms)} ${format(highest)}`;
  return h("figure", { class: "trend" },
    h("figcaption", {}, h("span", {}, name), h("b", {}, format(figure)), h("small", {}, word)),
    s("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, preserveAspectRatio: "none", role: "img", "aria-label": label },
      s("line", { class: "ground", x1: 0, x2: WIDTH, y1: HEIGHT - 0.5, y2: HEIGHT - 0.5 }),
      ...(kind === "bars" ? bars(values, highest, trend, format) : line(values, highest))),
    h("p", { class: "axis", "aria-hidden": "true" }, h("span", {}, `${hours} h ago`), h("span", {}, highest ? `most ${format(highest)}` : "nothing yet"), h("span", {}, "now")));
}

function height(value, highest) {
  return highest > 0 ? (Math.max(0, value) / highest) * (HEIGHT - TOP) : 0;
}

function bars(values, highest, trend, format) {
  const step = WIDTH / values.length;
  return values.flatMap((value, at) => {
    if (!value || value < 0) return [];
    const tall = Math.max(1.5, height(value, highest));
    const when = absolute(trend.end_ms - (values.length - at) * trend.every_ms);
    return [s("rect", { x: (at * step).toFixed(2), y: (HEIGHT - tall).toFixed(2), width: Math.max(1, step - 0.4).toFixed(2), height: tall.toFixed(2) },
      s("title", {}, `${when}: ${format(value)}`))];
  });
}

/** One path for each run of known points: a daemon that was down leaves a gap. */
function line(values, highest) {
  const step = WIDTH / values.length;
  const runs = [];
  let run = null;
  values.forEach((value, at) => {
    if (value === null) {
      run = null;
      return;
    }
    if (!run) runs.push(run = []);
    run.push([at * step, HEIGHT - height(value, highest)]);
    run.push([(at + 1) * step, HEIGHT - height(value, highest)]);
  });
  return runs.flatMap((points) => {
    const path = points.map(([x, y], at) => `${at ? "L" : "M"}${x.toFixed(1)} ${y.toFixed(1)}`).join("");
    const [first, end] = [points[0][0], points[points.length - 1][0]];
    return [s("path", { class: "area", d: `${path}L${end.toFixed(1)} ${HEIGHT}L${first.toFixed(1)} ${HEIGHT}Z` }), s("path", { class: "line", d: path })];
  });
}
