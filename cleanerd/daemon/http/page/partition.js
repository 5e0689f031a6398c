// One partition: what is known of it, and the answer of explain.

import { bar, card, command, facts, h, pill, redraw } from "./dom.js";
import { absolute, bytes, count, duration, isGuess, percent, reclaimable, reclaimableHow, time } from "./format.js";
import { historyTable, makeShrink, sortCleanings } from "./cleanings.js";
import { isOverdue, nameOf } from "./partitions.js";
import { quarantineCard } from "./places.js";
import { STALE } from "./poll.js";
import { at, viewLink } from "./route.js";
import { runningCards, TRIGGERS } from "./running.js";

const OUTLOOKS = {
  now: "It is being cleaned now.", next: "It is cleaned next.", restart: "Its cleaning takes effect at the broker's next start.",
  observe: "It would be cleaned, but observe mode writes nothing.", no: "It is not cleaned now.",
};

export function partitionView(container, moved, name) {
  let asked = null;
  let answer = null;
  let answerError = null;
  let status = null;
  let closed = false;
  let sort = "-ended";

  const head = h("div");
  const running = h("div", { class: "strip" });
  const log = h("div");
  const why = h("div");
  const table = historyTable({ onOpen: moved, onSort: (id) => { sort = sort === `-${id}` ? id : `-${id}`; draw(); } });
  const past = h("section", { class: "card flush" }, h("h2", {}, "Cleanings since the daemon started"), table.element);
  const settings = h("div");
  container.append(
    h("p", { class: "back" }, h("a", { href: viewLink(""), "data-inside": true, on: { click: back } }, "\u2190 Partitions")),
    head, running, h("div", { class: "columns" }, why, log), past, settings);

  // Back to the list as it was, filter and sort included, when that is where we came from.
  function back(event) {
    if (history.state?.from !== "") return;
    event.preventDefault();
    history.back();
  }

  async function explain() {
    let found = null;
    let error = null;
    try {
      const response = await fetch(at(`explain/${encodeURIComponent(name)}`), { cache: "no-store", signal: AbortSignal.timeout(35000) });
      const document = await response.json();
      if (response.ok) found = document;
      else error = document.error;
    } catch {
      error = { message: "no answer", hint: "Refresh repeats the request" };
    }
    if (closed) return;
    answer = found ?? answer;
    answerError = error;
    draw();
    const shown = status?.partitions.find((each) => nameOf(each) === name);
    if (found?.daemon && shown && found.daemon.phase !== shown.state) dispatchEvent(new Event(STALE));
  }

  function draw() {
    if (!status) return;
    const here = status.partitions.filter((each) => nameOf(each) === name);
    const partition = here[0];
    past.hidden = !partition;
    if (!partition) {
      redraw(head, "none", () => h("div", { class: "empty" },
        h("h1", {}, name),
        h("p", {}, "cleanerd knows no compacted partition with this name here. A topic whose cleanup.policy lacks compact is not listed.")));
      for (const each of [running, log, why, settings]) each.replaceChildren();
      return;
    }
    // The answer of explain is of the moment it was asked: a clean, a failure or another bound makes it old.
    const moment = JSON.stringify([partition.state, partition.outlook, partition.reason, partition.first_dirty_offset, partition.first_uncleanable_offset, partition.quarantine?.failures]);
    if (asked !== moment) {
      asked = moment;
      explain();
    }
    redraw(head, [partition, isOverdue(partition)], () => title(partition));
    runningCards(running, status.running.filter((each) => nameOf(each) === name), { short: false });
    redraw(why, [answer, answerError, partition.quarantine, partition.reason, partition.state], () => [
      partition.quarantine ? quarantineCard(partition) : null, whyCard(partition, answer, answerError, explain),
    ]);
    redraw(log, [partition, answer?.limits], () => [logCard(partition), lastCard(partition)]);
    const cleanings = sortCleanings(status.history.filter((each) => nameOf(each) === name), sort);
    past.hidden = !cleanings.length;
    table.setSort(sort.replace(/^-/, ""), sort.startsWith("-"));
    table.setRows(cleanings);
    redraw(settings, answer?.settings ?? null, () => settingsCard(answer));
  }

  return { title: name, update(next) { status = next; draw(); }, close() { closed = true; table.close(); } };
}

function title(partition) {
  return [
    h("div", { class: "title" },
      h("h1", {}, nameOf(partition)),
      pill(partition.state), partition.quarantine && partition.state !== "quarantined" ? pill("quarantined") : null, isOverdue(partition) ? pill("overdue") : null,
      partition.delegated === false ? pill("undelegated") : null, pill(partition.mode, "quiet"), pill(partition.strategy, "quiet")),
    h("p", { class: "mono quiet-text" }, `${partition.log_dir}/${nameOf(partition)}`),
  ];
}

function logCard(partition) {
  const dirty = bar("dirty tall");
  dirty.set(partition.dirty_ratio);
  return card("The log at the last scan",
    dirty.element,
    h("p", { class: "quiet-text" }, partition.size_bytes === null ? "Not measured: cleanerd has not scanned this log." : `${percent(partition.dirty_ratio, 1)} dirty: ${bytes(partition.dirty_bytes)} not cleaned yet, of ${bytes(partition.size_bytes)} in all`),
    facts([
      ["Reclaimable", isGuess(partition) || partition.reclaimable_bytes === null ? "not known yet" : `${reclaimable(partition)} (${reclaimableHow(partition)})`],
      ["First dirty offset", count(partition.first_dirty_offset)],
      ["Cleanable up to", count(partition.first_uncleanable_offset)],
      ["Due by max.compaction.lag.ms", partition.overdue_at_ms === null ? null : time(partition.overdue_at_ms)],
      ["Next tombstone removal", partition.next_purge_ms === null ? null : time(partition.next_purge_ms)],
      ["Tombstones wait for", partition.waits_for?.length ? `${partition.tombstones_kept ? `up to ${count(partition.tombstones_kept)} wait for ` : ""}broker ${partition.waits_for.join(", ")}, out of the ISR${partition.waits_since_ms === null ? "" : ` since ${absolute(partition.waits_since_ms)}`}${(partition.waits_at ?? []).map(([broker, end]) => `; broker ${broker} at ${count(end)} of ${count(partition.log_end_offset)}`).join("")}` : null],
      ["Delegated", partition.delegated === null ? "not needed: Kafka's own rules" : partition.delegated ? "yes: Kafka's cleaner skips the topic" : "no: Kafka's cleaner would undo its strategy"],
      ["Fingerprint", h("span", { class: "mono" }, partition.fingerprint, partition.fingerprint_changed ? " (changed since the last cleaning)" : "")],
    ]),
    partition.delegated === false ? h("p", {}, "Delegate the topic: ", command(`cleanerd delegate ${partition.topic}`)) : null);
}

function lastCard(partition) {
  const last = partition.last_cleaning;
  if (!last) return card("Last cleaning", h("p", { class: "quiet-text" }, "cleanerd has not cleaned it since the daemon started."));
  const shrink = makeShrink();
  shrink.set(last.bytes_before, last.bytes_after);
  return card("Last cleaning", shrink.element, facts([
    ["Ended", time(last.ended_ms)],
    ["Outcome", last.outcome],
    ["Took", duration(last.ended_ms - last.started_ms)],
    ["Because of", TRIGGERS[last.trigger] ?? last.trigger],
    ["Reason", last.reason],
  ]));
}

function whyCard(partition, answer, error, ask) {
  const again = h("button", { type: "button", class: "small", "data-focus": "again", on: { click: ask } }, "Refresh");
  const parts = [h("div", { class: "run-head" }, h("h2", {}, "Why?"), again)];
  if (error) parts.push(h("p", { class: "reason" }, [error.where, error.message].filter(Boolean).join(": "), error.hint ? ` (${error.hint})` : ""));
  if (!answer) {
    parts.push(h("p", {}, partition.reason), error ? null : h("p", { class: "quiet-text" }, "Reading its files ..."));
    return h("section", { class: "card" }, parts);
  }
  parts.push(h("p", { class: "verdict" }, OUTLOOKS[answer.daemon?.outlook ?? partition.outlook]));
  parts.push(facts([
    ["Rule", answer.rule && h("span", { class: "mono" }, answer.rule)],
    ["Reason", (answer.reason || partition.reason).replace(`: ${answer.changes}`, "")],
    ["Changes", answer.changes],
    ["First dirty offset", answer.first_dirty_offset === undefined ? null : `${count(answer.first_dirty_offset)}, from ${answer.first_dirty_origin}`],
    ["Due", typeof answer.overdue_at_ms === "number" ? absolute(answer.overdue_at_ms) : null],
  ]));
  parts.push(limits(answer));
  for (const note of [...(answer.warnings ?? []), ...(answer.notes ?? [])]) parts.push(h("p", { class: "note" }, note));
  if (!["refused", "excluded"].includes(partition.state)) parts.push(h("p", {}, partition.mode === "observe" ? "Compute now what cleaning would save: " : "Clean it now: ", command(`cleanerd trigger ${nameOf(partition)}`)));
  return h("section", { class: "card" }, parts);
}

function limits(answer) {
  const known = Object.entries(answer.limits ?? {}).sort(([, a], [, b]) => a - b);
  if (!known.length) return null;
  return h("table", { class: "plain" },
    h("caption", {}, "Cleanable up to the lowest of these, rounded down to a segment"),
    h("tbody", {}, known.map(([name, offset]) => h("tr", { class: name === answer.limited_by ? "decides" : null },
      h("th", { scope: "row" }, name, name === answer.limited_by ? " (decides)" : ""), h("td", { class: "num" }, count(offset))))));
}

/** Kafka's "never" is 2^63-1, which a number of JavaScript cannot hold: its digits would be wrong. */
function setting(value) {
  return typeof value === "number" && value >= 2 ** 63 ? "9223372036854775807 (no limit)" : String(value);
}

function settingsCard(answer) {
  const known = Object.entries(answer?.settings ?? {});
  if (!known.length) return [];
  return h("section", { class: "card flush" }, h("h2", {}, "Settings"),
    h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "Settings" }, h("table", { class: "plain settings" },
      h("thead", {}, h("tr", {}, ["Setting", "Value", "Comes from"].map((each) => h("th", { scope: "col" }, each)))),
      h("tbody", {}, known.map(([key, { value, origin }]) => h("tr", {},
        h("th", { scope: "row", class: "mono" }, key), h("td", { class: "mono" }, setting(value)), h("td", {}, String(origin))))))));
}
