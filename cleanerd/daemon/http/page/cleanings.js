// Cleans that ended: before and after.

import { h, setAttribute, setPill, setText } from "./dom.js";
import { bytes, count, duration, percent, setTime } from "./format.js";
import { makeName, nameOf } from "./partitions.js";
import { current, keep, partitionLink } from "./route.js";
import { SHORT_TRIGGERS, TRIGGERS } from "./running.js";
import { Table } from "./table.js";

const saved = (each) => (each.result.bytes_before ?? 0) - (each.result.bytes_after ?? 0);

function removedOf(clean) {
  return Object.entries(clean.result.removed ?? {}).filter(([, number]) => number > 0);
}

const COLUMNS = [
  { id: "ended", label: "Ended", class: "h-ended", make: (cell) => { const at = h("time"); cell.append(at); return (row) => setTime(at, row.ended_ms); } },
  {
    id: "name", label: "Partition", class: "h-name",
    make(cell) {
      const name = makeName();
      cell.append(name.element);
      return (row) => name.set(row);
    },
  },
  { id: "outcome", label: "Outcome", class: "h-outcome", make: (cell) => { const it = h("span"); cell.append(it); return (row) => setPill(it, row.result.outcome ?? "?"); } },
  {
    id: "trigger", label: "Because of", class: "h-trigger",
    make: (cell) => (row) => { setText(cell, SHORT_TRIGGERS[row.trigger] ?? row.trigger); setAttribute(cell, "title", TRIGGERS[row.trigger] ?? null); },
  },
  { id: "took", label: "Took", class: "h-took num", make: (cell) => (row) => setText(cell, duration(row.ended_ms - row.started_ms)) },
  {
    id: "saved", label: "Before \u2192 after", class: "h-saved",
    make(cell) {
      const shrink = makeShrink();
      cell.append(shrink.element);
      return (row) => shrink.set(row.result.bytes_before, row.result.bytes_after);
    },
  },
  {
    id: "removed", label: "Records removed", class: "h-removed num",
    make: (cell) => (row) => {
      const removed = removedOf(row);
      setText(cell, count(removed.reduce((sum, [, number]) => sum + number, 0)));
      setAttribute(cell, "title", removed.map(([reason, number]) => `${reason} ${count(number)}`).join(", ") || null);
    },
  },
  { id: "reason", label: "Reason", class: "h-reason", sortable: false, make: (cell) => (row) => { setText(cell, row.result.reason ?? ""); setAttribute(cell, "title", row.result.reason || null); } },
];

/** Two numbers, and how much of the first is left in a bar. */
export function makeShrink() {
  const left = h("i");
  const text = h("span");
  const part = h("b");
  const element = h("span", { class: "shrink" }, h("span", { class: "bar shrunk", "aria-hidden": "true" }, left), text, part);
  return {
    element,
    set(before, after) {
      left.style.width = `${before ? Math.min(100, (after / before) * 100) : 0}%`;
      setText(text, `${bytes(before)} \u2192 ${bytes(after)}`);
      setText(part, before && after < before ? `\u2212${percent(1 - after / before)}` : "");
    },
  };
}

const SORTS = {
  ended: (a, b) => a.ended_ms - b.ended_ms,
  name: (a, b) => a.topic.localeCompare(b.topic) || a.partition - b.partition,
  outcome: (a, b) => String(a.result.outcome).localeCompare(String(b.result.outcome)),
  trigger: (a, b) => a.trigger.localeCompare(b.trigger),
  took: (a, b) => a.ended_ms - a.started_ms - (b.ended_ms - b.started_ms),
  saved: (a, b) => saved(a) - saved(b),
  removed: (a, b) => total(a) - total(b),
};

function total(clean) {
  return removedOf(clean).reduce((sum, [, number]) => sum + number, 0);
}

export function historyTable({ onOpen, onSort }) {
  return new Table({
    label: "Finished cleanings", columns: COLUMNS, kind: "history", onOpen, onSort,
    key: (row) => `${nameOf(row)} ${row.started_ms} ${row.ended_ms}`,
    link: (row) => partitionLink(row.topic, row.partition),
  });
}

export function sortCleanings(cleanings, sort) {
  const compare = SORTS[sort.replace(/^-/, "")] ?? SORTS.ended;
  const descending = !(sort.replace(/^-/, "") in SORTS) || sort.startsWith("-");
  return [...cleanings].sort((a, b) => (descending ? compare(b, a) : compare(a, b)) || b.ended_ms - a.ended_ms);
}

export function historyView(container, moved) {
  const { query } = current();
  let status = null;
  let sort = query.sort || "-ended";
  let text = query.q ?? "";
  const filter = h("input", {
    type: "search", id: "filter", placeholder: "Filter: topic, outcome, reason ...  ( / )", value: text,
    "aria-label": "Filter cleanings", autocomplete: "off", spellcheck: "false",
    on: { input: () => { text = filter.value; keep({ q: text }); draw(); } },
  });
  const found = h("p", { class: "found", role: "status" });
  const table = historyTable({
    onOpen: moved,
    onSort: (id) => { sort = sort === `-${id}` ? id : `-${id}`; keep({ sort: sort === "-ended" ? "" : sort }); draw(); },
  });
  const empty = h("div", { class: "empty" }, h("p"));
  container.append(h("div", { class: "tools" }, filter), found, table.element, empty);

  function draw() {
    if (!status) return;
    const words = text.toLowerCase().split(/\s+/).filter(Boolean);
    const rows = sortCleanings(status.history, sort).filter((each) => {
      const all = `${nameOf(each)} ${each.result.outcome} ${each.trigger} ${each.result.strategy} ${each.result.reason ?? ""}`.toLowerCase();
      return words.every((word) => all.includes(word));
    });
    table.setSort(sort.replace(/^-/, ""), sort.startsWith("-"));
    setText(found, rows.length === status.history.length ? "" : `${count(rows.length)} of ${count(status.history.length)} cleanings`);
    table.element.hidden = !rows.length;
    empty.hidden = rows.length > 0;
    setText(empty.firstChild, status.history.length ? "No cleaning matches this filter." : "No cleaning has ended since the daemon started.");
    table.setRows(rows);
  }

  return {
    title: "History",
    focusFilter: () => filter.focus(),
    update(next) { status = next; draw(); },
    close: () => table.close(),
  };
}
