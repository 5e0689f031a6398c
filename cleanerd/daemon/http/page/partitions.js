// The list of all partitions: filter, sort, and both in the address.

import { bar, h, setAttribute, setPill, setText } from "./dom.js";
import { bytes, count, now, percent, reclaimableHow, reclaimableShort, setTime } from "./format.js";
import { runningCards } from "./running.js";
import { current, keep, partitionLink } from "./route.js";
import { Table } from "./table.js";

const ORDER = ["quarantined", "refused", "cleaning", "staged", "queued", "paused", "idle", "excluded"];

export function nameOf(each) {
  return `${each.topic}-${each.partition}`;
}

/** The link to a partition. Where room is short the topic is cut, never the number. */
export function makeName() {
  const topic = h("span");
  const number = h("span");
  const element = h("a", { class: "name", "data-inside": true }, topic, number);
  return {
    element,
    set(each) {
      setText(topic, each.topic);
      setText(number, `-${each.partition}`);
      setAttribute(element, "href", partitionLink(each.topic, each.partition));
      setAttribute(element, "title", nameOf(each));
    },
  };
}

export function isOverdue(partition) {
  return partition.overdue_at_ms !== null && partition.overdue_at_ms <= now() && partition.state !== "excluded";
}

/** The sooner of the two times at which something happens to it although nobody writes. */
export function nextTime(partition) {
  const times = [partition.overdue_at_ms, partition.next_purge_ms].filter((ms) => ms !== null && ms !== undefined);
  return times.length ? Math.min(...times) : null;
}

/** What is worth a look first: trouble, then work, then what a clean would save. */
function interest(partition) {
  const trouble = partition.quarantine || partition.delegated === false ? 0 : isOverdue(partition) ? 1 : 2;
  return trouble * 100 + ORDER.indexOf(partition.state);
}

const byName = (a, b) => a.topic.localeCompare(b.topic) || a.partition - b.partition;
const byNumber = (value) => (a, b) => (value(a) ?? -Infinity) - (value(b) ?? -Infinity);

const SORTS = {
  name: byName,
  state: (a, b) => ORDER.indexOf(a.state) - ORDER.indexOf(b.state),
  dirty: byNumber((each) => each.dirty_ratio),
  reclaim: byNumber((each) => each.reclaimable_bytes),
  size: byNumber((each) => each.size_bytes),
  strategy: (a, b) => a.strategy.localeCompare(b.strategy),
  mode: (a, b) => a.mode.localeCompare(b.mode),
  next: (a, b) => (nextTime(a) ?? Infinity) - (nextTime(b) ?? Infinity),
};
const SORT_NAMES = {
  "": "What needs attention first", "-reclaim": "Most reclaimable", "-dirty": "Highest dirty ratio", "-size": "Largest",
  name: "Name", next: "Next deadline or tombstone removal", state: "State", strategy: "Strategy", mode: "Mode",
};

const LARGE_FIRST = new Set(["dirty", "reclaim", "size"]);

const PICKS = {
  overdue: isOverdue,
  undelegated: (each) => each.delegated === false,
  changed: (each) => each.fingerprint_changed,
  quarantined: (each) => each.quarantine !== null,
};

const COLUMNS = [
  {
    id: "name", label: "Partition", class: "c-name",
    make(cell) {
      const name = makeName();
      const place = h("small");
      cell.append(name.element, place);
      return (row) => {
        name.set(row);
        setText(place, row.log_dir);
      };
    },
  },
  {
    id: "state", label: "State", class: "c-state",
    make(cell) {
      const state = h("span");
      const more = h("span");
      cell.append(state, " ", more);
      return (row) => {
        setPill(state, row.state);
        const word = row.quarantine ? "quarantined" : row.delegated === false ? "undelegated" : isOverdue(row) ? "overdue" : "";
        setPill(more, word);
        more.hidden = !word || row.state === "quarantined";
        state.hidden = row.state === "idle" && !more.hidden;
      };
    },
  },
  {
    id: "dirty", label: "Dirty", class: "c-dirty num", title: "Dirty bytes divided by clean and dirty bytes together",
    make(cell) {
      const { element, set } = bar("dirty");
      const text = h("span");
      cell.append(element, text);
      return (row) => {
        set(row.dirty_ratio);
        setText(text, percent(row.dirty_ratio));
        setAttribute(cell, "title", row.size_bytes === null ? "not measured" : `${bytes(row.dirty_bytes)} of ${bytes(row.size_bytes)} not cleaned yet`);
      };
    },
  },
  {
    id: "reclaim", label: "Reclaimable", class: "c-reclaim num", title: "What a cleaning would save",
    make(cell) {
      return (row) => {
        setText(cell, reclaimableShort(row));
        setAttribute(cell, "title", reclaimableHow(row));
      };
    },
  },
  { id: "size", label: "Size", class: "c-size num", make: (cell) => (row) => setText(cell, bytes(row.size_bytes)) },
  {
    id: "strategy", label: "Strategy", class: "c-strategy",
    make(cell) {
      return (row) => {
        setText(cell, row.strategy + (row.fingerprint_changed ? " (changed)" : ""));
        setAttribute(cell, "title", row.fingerprint);
      };
    },
  },
  { id: "mode", label: "Mode", class: "c-mode", make: (cell) => (row) => setText(cell, row.mode) },
  {
    id: "next", label: "Next", class: "c-next", title: "When it is due by max.compaction.lag.ms, or when its next tombstones or markers can be removed",
    make(cell) {
      const what = h("span", { class: "quiet-text" });
      const when = h("time");
      cell.append(what, when);
      return (row) => {
        const next = nextTime(row);
        setTime(when, next);
        setText(what, next === null ? "" : next === row.overdue_at_ms ? "due " : "removal ");
      };
    },
  },
  {
    id: "reason", label: "Why", class: "c-reason", sortable: false,
    make(cell) {
      const text = h("span");
      cell.append(text);
      return (row) => {
        const reason = row.quarantine ? row.quarantine.reason : row.reason;
        // The log directory stands below the name already.
        setText(text, reason.replaceAll(`${row.log_dir}/`, ""));
        setAttribute(cell, "title", reason);
      };
    },
  },
];

export function partitionsView(container, moved) {
  const { query } = current();
  let status = null;
  let sort = query.sort ?? "";
  let text = query.q ?? "";
  let state = query.state ?? "";

  const running = h("div", { class: "strip aside" });
  const filter = h("input", {
    type: "search", id: "filter", placeholder: "Filter: topic, log directory, reason ...  ( / )", value: text,
    "aria-label": "Filter partitions", autocomplete: "off", spellcheck: "false",
    on: { input: () => { text = filter.value; keep({ q: text }); draw(); } },
  });
  const picks = h("div", { class: "picks", role: "group", "aria-label": "States" });
  const order = h("select", { "aria-label": "Sort by", on: { change: () => setSort(order.value) } },
    Object.entries(SORT_NAMES).map(([value, label]) => h("option", { value }, label)));
  const found = h("p", { class: "found", role: "status" });
  const table = new Table({
    label: "Partitions", columns: COLUMNS, kind: "partitions", onOpen: moved,
    key: (row) => `${row.log_dir} ${nameOf(row)}`,
    link: (row) => partitionLink(row.topic, row.partition),
    onSort: (id) => setSort(pressed(id)),
  });
  const empty = h("div", { class: "empty", hidden: true });
  const tools = h("div", { class: "tools" }, filter, order);
  container.append(running, tools, picks, found, table.element, empty);

  // One press sorts, the second turns it round, the third lets go. A number is looked at from its large end first.
  function pressed(id) {
    const turns = LARGE_FIRST.has(id) ? [`-${id}`, id, ""] : [id, `-${id}`, ""];
    return turns[(turns.indexOf(sort) + 1) % turns.length];
  }

  function setSort(value) {
    sort = value;
    keep({ sort });
    draw();
  }

  function setState(value) {
    state = state === value ? "" : value;
    keep({ state });
    draw();
  }

  function drawPicks(partitions) {
    const counts = new Map(ORDER.map((each) => [each, 0]));
    for (const each of partitions) counts.set(each.state, (counts.get(each.state) ?? 0) + 1);
    for (const [name, test] of Object.entries(PICKS)) counts.set(name, partitions.filter(test).length);
    const shown = [["", partitions.length], ...counts].filter(([name, number]) => number || name === state || !name);
    const facts = shown.map(([name]) => name);
    if (String(facts) !== picks.drawnFrom) {
      picks.drawnFrom = String(facts);
      picks.replaceChildren(...facts.map((name) => h("button", { type: "button", "data-state": name, on: { click: () => setState(name) } },
        name === "changed" ? "strategy changed" : name || "all", " ", h("b"))));
    }
    for (const [index, [name, number]] of shown.entries()) {
      setText(picks.children[index].lastChild, count(number));
      setAttribute(picks.children[index], "aria-pressed", String(name === state));
    }
  }

  function wanted(partitions) {
    const words = text.toLowerCase().split(/\s+/).filter(Boolean);
    const test = PICKS[state] ?? ((each) => !state || each.state === state);
    return partitions.filter((each) => {
      if (!test(each)) return false;
      if (!words.length) return true;
      const all = `${nameOf(each)} ${each.strategy} ${each.mode} ${each.state} ${each.log_dir} ${each.reason} ${each.quarantine?.reason ?? ""}`.toLowerCase();
      return words.every((word) => all.includes(word));
    });
  }

  function sorted(partitions) {
    const descending = sort.startsWith("-");
    const compare = SORTS[sort.replace(/^-/, "")];
    if (!compare) {
      return partitions.sort((a, b) => interest(a) - interest(b) || (b.reclaimable_bytes ?? 0) - (a.reclaimable_bytes ?? 0) || byName(a, b));
    }
    return partitions.sort((a, b) => (descending ? -compare(a, b) : compare(a, b)) || byName(a, b));
  }

  function draw() {
    if (!status) return;
    const all = status.partitions;
    const rows = sorted(wanted(all));
    runningCards(running, status.running, { short: true });
    drawPicks(all);
    table.setSort(sort.replace(/^-/, ""), sort.startsWith("-"));
    order.value = sort in SORT_NAMES ? sort : "";
    setText(found, rows.length === all.length ? "" : `${count(rows.length)} of ${count(all.length)} partitions`);
    tools.hidden = picks.hidden = !all.length;
    table.element.hidden = !rows.length;
    empty.hidden = rows.length > 0;
    if (!rows.length) drawEmpty(all.length);
    table.setRows(rows);
  }

  function drawEmpty(number) {
    if (number) {
      const clear = h("button", { type: "button", on: { click: () => { text = filter.value = state = ""; keep({ q: "", state: "" }); draw(); filter.focus(); } } }, "Show all");
      empty.replaceChildren(h("p", {}, "No partition matches this filter."), clear);
      return;
    }
    const words = status.ready
      ? "No compacted partition in these log directories. Topics whose cleanup.policy contains compact appear here automatically. Without the agent, this takes 5 minutes after they were created or changed."
      : "The log directories are being scanned for the first time.";
    empty.replaceChildren(h("p", {}, words));
  }

  return {
    title: "Partitions",
    focusFilter: () => filter.focus(),
    update(next) {
      status = next;
      draw();
    },
    close: () => table.close(),
  };
}
