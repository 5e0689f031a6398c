// Numbers for people. Sizes are binary, as Kafka's own are.

import { h, setAttribute, setText } from "./dom.js";

const UNITS = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
const NONE = "\u2013";

export function bytes(value) {
  if (value === null || value === undefined) return NONE;
  let size = Math.abs(value);
  let unit = 0;
  while (size >= 1023.5 && unit < UNITS.length - 1) {
    size /= 1024;
    unit += 1;
  }
  const digits = unit === 0 || size >= 99.95 ? 0 : size >= 9.995 ? 1 : 2;
  return `${value < 0 ? "-" : ""}${size.toFixed(digits)} ${UNITS[unit]}`;
}

/** What a clean would save, with its error: "1.4 GiB" where it is exact, "\u2248 1.4 GiB \u00b1 0.2 GiB" from a sample. */
export function reclaimable(row) {
  const [low, value, high] = [row.reclaimable_low_bytes, row.reclaimable_bytes, row.reclaimable_high_bytes];
  if (value === null || isGuess(row) || low === high) return reclaimableShort(row);
  return `\u2248 ${bytes(value)} \u00b1 ${bytes(Math.max(value - low, high - value))}`;
}

/** The same without the error, for a list. */
export function reclaimableShort(row) {
  if (row.reclaimable_bytes === null || isGuess(row)) return NONE;
  return `${row.reclaimable_low_bytes === row.reclaimable_high_bytes ? "" : "\u2248 "}${bytes(row.reclaimable_bytes)}`;
}

/** Nobody has looked into the log yet. */
export function isGuess(row) {
  return row.reclaimable_method === "guess" && row.reclaimable_high_bytes > 0;
}

export function reclaimableHow(row) {
  if (row.reclaimable_bytes === null || isGuess(row)) return "not known yet";
  if (row.reclaimable_low_bytes === row.reclaimable_high_bytes) return "exact";
  return `from a sample: ${bytes(row.reclaimable_low_bytes)} to ${bytes(row.reclaimable_high_bytes)}`;
}

export function count(value) {
  return value === null || value === undefined ? NONE : value.toLocaleString("en-US").replaceAll(",", "\u202f");
}

export function shortCount(value) {
  if (value === null || value === undefined) return NONE;
  return new Intl.NumberFormat("en", { notation: "compact", maximumFractionDigits: 1 }).format(value);
}

export function percent(ratio, digits = 0) {
  if (ratio === null || ratio === undefined || Number.isNaN(ratio)) return NONE;
  const shown = (ratio * 100).toFixed(digits);
  return ratio > 0 && Number(shown) === 0 ? `<${digits ? "0.1" : "1"} %` : `${shown} %`;
}

export function plural(number, word) {
  return `${count(number)} ${word}${number === 1 ? "" : "s"}`;
}

const SPANS = [[86400, "d"], [3600, "h"], [60, "min"], [1, "s"]];

export function duration(ms) {
  if (ms === null || ms === undefined) return NONE;
  const seconds = Math.abs(ms) / 1000;
  if (seconds < 1) return `${Math.round(Math.abs(ms))} ms`;
  if (seconds < 10) return `${seconds.toFixed(1)} s`;
  for (let index = 0; index < SPANS.length; index += 1) {
    const [size, unit] = SPANS[index];
    if (seconds < size) continue;
    const whole = Math.floor(seconds / size);
    const next = SPANS[index + 1];
    const rest = next ? Math.floor((seconds - whole * size) / next[0]) : 0;
    return whole < 10 && rest > 0 ? `${whole} ${unit} ${rest} ${next[1]}` : `${whole} ${unit}`;
  }
  return `${Math.round(seconds)} s`;
}

let skewMs = 0;

/** The daemon's clock as its answers tell it: "in 3 h" is right in a browser whose clock is wrong. */
export function learnClock(dateHeader) {
  const serverMs = Date.parse(dateHeader ?? "");
  if (!Number.isNaN(serverMs)) skewMs = Math.abs(serverMs - Date.now()) > 3000 ? serverMs - Date.now() : 0;
}

export function now() {
  return Date.now() + skewMs;
}

/** "4 min ago", "in 2 h": one unit is enough where the exact time is a hover away. */
export function relative(ms) {
  if (ms === null || ms === undefined) return NONE;
  const away = ms - now();
  const seconds = Math.round(Math.abs(away) / 1000);
  if (seconds < 2) return "now";
  const [size, unit] = SPANS.find(([each]) => seconds >= 2 * each) ?? SPANS[SPANS.length - 1];
  const words = `${Math.round(seconds / size)} ${unit}`;
  return away < 0 ? `${words} ago` : `in ${words}`;
}

export function absolute(ms) {
  const date = new Date(ms);
  return Number.isNaN(date.getTime()) ? `${ms} ms` : date.toISOString().replace("T", " ").replace(/\.\d+Z$/, " UTC");
}

/** An element that tells a time, and goes on telling it right. */
export function time(ms) {
  const element = h("time");
  setTime(element, ms);
  return element;
}

export function setTime(element, ms) {
  const known = ms !== null && ms !== undefined;
  setAttribute(element, "data-ms", known ? ms : null);
  setAttribute(element, "title", known ? absolute(ms) : null);
  setText(element, known ? relative(ms) : NONE);
}

setInterval(() => {
  if (document.hidden) return;
  for (const element of document.querySelectorAll("time[data-ms]")) setText(element, relative(Number(element.dataset.ms)));
}, 1000);
