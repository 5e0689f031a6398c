// Cleans that run now.

import { h, redraw, setAttribute, setText } from "./dom.js";
import { bytes, duration, now, percent } from "./format.js";
import { partitionLink } from "./route.js";

const PHASES = ["survey", "index", "decide", "rewrite", "swap"];
export const TRIGGERS = {
  ratio: "dirty ratio", overdue: "max.compaction.lag.ms", erasure: "an erasure request", tombstone_removal: "expired tombstones or markers", manual: "cleanerd trigger",
};
export const SHORT_TRIGGERS = { ratio: "dirty ratio", overdue: "overdue", erasure: "erasure", tombstone_removal: "tombstones", manual: "manual" };

/** One card for each clean; a card stays the same element while its clean runs. */
export function runningCards(parent, running, { short }) {
  parent.cards ??= new Map();
  const before = parent.cards;
  parent.cards = new Map();
  for (const each of running) {
    const key = `${each.log_dir} ${each.topic}-${each.partition} ${each.started_ms}`;
    const card = before.get(key) ?? makeCard(each, short);
    before.delete(key);
    parent.cards.set(key, card);
    card.update(each);
    if (!card.element.isConnected) parent.append(card.element);
  }
  for (const { element } of before.values()) element.remove();
}

function makeCard(clean, short) {
  const name = `${clean.topic}-${clean.partition}`;
  const fill = h("i");
  const progress = h("div", { class: "progress", role: "progressbar", "aria-label": `Progress of ${name}`, "aria-valuemin": 0, "aria-valuemax": 100 }, fill);
  const steps = h("ol", { class: "steps", "aria-label": "Phases" }, PHASES.map((phase) => h("li", {}, phase)));
  const detail = h("span", { class: "quiet-text" });
  const share = h("b");
  const element = h("article", { class: "card run" },
    h("div", { class: "run-head" }, h("a", { href: partitionLink(clean.topic, clean.partition), "data-inside": true }, name), share),
    progress, steps, detail);
  return {
    element,
    update(each) {
      const ratio = each.total_bytes ? Math.min(1, each.done_bytes / each.total_bytes) : 0;
      fill.style.width = `${ratio * 100}%`;
      setAttribute(progress, "aria-valuenow", Math.round(ratio * 100));
      setAttribute(progress, "aria-valuetext", `${each.phase}, ${percent(ratio)}`);
      setText(share, percent(ratio));
      const at = PHASES.indexOf(each.phase);
      for (const [index, step] of [...steps.children].entries()) {
        setAttribute(step, "class", index < at ? "done" : index === at ? "now" : null);
        setAttribute(step, "aria-current", index === at ? "step" : null);
      }
      const since = `${bytes(each.done_bytes)} of ${bytes(each.total_bytes)}, for ${duration(now() - each.started_ms)}`;
      setText(detail, short ? since : `${since}; because of: ${TRIGGERS[each.trigger] ?? each.trigger}; ${each.log_dir}`);
    },
  };
}

export function runningView(container) {
  const cards = h("div", { class: "cards" });
  const empty = h("div", { class: "empty" });
  container.append(cards, empty);
  return {
    title: "Running",
    update(status) {
      runningCards(cards, status.running, { short: false });
      empty.hidden = status.running.length > 0;
      const queued = status.partitions.filter((each) => each.state === "queued").length;
      redraw(empty, [status.paused, status.window_open, status.mode, queued], () => h("p", {}, whyNothing(status, queued)));
    },
  };
}

function whyNothing(status, queued) {
  if (status.paused) return "Paused: cleanerd resume starts cleaning again.";
  if (!status.window_open) return "Outside of cleanerd.windows: no cleaning begins now.";
  if (queued) return "Nothing runs at this moment; a worker takes the next partition soon.";
  return "Nothing to clean. A partition that becomes dirty enough, overdue, or passes a delete horizon is cleaned automatically.";
}
