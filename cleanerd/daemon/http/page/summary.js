// What is the same on every view: the daemon's state, its numbers, what is wrong.

import { h, pill, redraw, setAttribute, setText } from "./dom.js";
import { bytes, count, now, percent, plural, shortCount, time } from "./format.js";
import { isOverdue } from "./partitions.js";
import { viewLink } from "./route.js";
import { dirtyNow } from "./trend.js";

const OTHER_OUTCOMES = ["unchanged", "skipped", "refused", "busy", "quarantined", "failed"];
const STALE_MS = 5 * 60 * 1000;

const isHeld = (status) => typeof status.canary?.held_partition === "string";
function overdueErasures(status) {
  return status.erasures.filter((each) => each.deadline_ms < now());
}

export function trouble(status) {
  const partitions = status.partitions;
  return [
    [isHeld(status) ? 1 : 0, "wrong cleaning found by the canary", viewLink("")],
    [partitions.filter((each) => each.quarantine).length, "in quarantine", viewLink("quarantine")],
    [partitions.filter((each) => each.delegated === false).length, "undelegated", viewLink("", { state: "undelegated" })],
    [partitions.filter(isOverdue).length, "overdue", viewLink("", { state: "overdue" })],
    [overdueErasures(status).length, "erasures past their deadline", viewLink("")],
    [status.log_dirs.filter((each) => !each.online).length, "log directories offline", viewLink("log-dirs")],
    [status.log_dirs.filter((each) => each.online && each.free_bytes < each.reserve_bytes).length, "below the disk reserve", viewLink("log-dirs")],
  ].filter(([number]) => number > 0);
}

export function drawSummary(parent, status) {
  const sum = (pick) => status.partitions.reduce((all, each) => all + (pick(each) ?? 0), 0);
  const totals = status.totals;
  const states = (state) => status.partitions.filter((each) => each.state === state).length;
  const saved = totals.bytes_before - totals.bytes_after;
  const removed = Object.entries(totals.removed_records).sort(([, a], [, b]) => b - a);
  const removedSum = removed.reduce((all, [, number]) => all + number, 0);
  const cleanings = totals.cleanings.cleaned ?? 0;
  const wrong = trouble(status);
  const reclaim = sum((each) => each.reclaimable_bytes);
  const isExact = status.partitions.every((each) => each.reclaimable_low_bytes === each.reclaimable_high_bytes);
  const shown = {
    wrong, reclaim, isExact, dirty: dirtyNow(status), saved, cleanings, removedSum, removed,
    number: status.partitions.length, cleaning: status.running.length, queued: states("queued"), staged: states("staged"),
    others: OTHER_OUTCOMES.map((outcome) => [outcome, totals.cleanings[outcome] ?? 0]).filter(([, number]) => number), mode: status.mode,
    exact: status.partitions.filter((each) => each.reclaimable_exact).length, before: totals.bytes_before,
    erasures: status.erasures,
  };
  redraw(parent, shown, () => [
    tile(wrong.length ? "Needs attention" : "Health", wrong.length ? h("ul", { class: "wrong" }, wrong.map(([number, word, href]) => (
      h("li", {}, h("a", { href, "data-inside": true, "data-focus": word }, h("b", {}, count(number)), ` ${word}`))))) : h("b", { class: "big good-text" }, "All well"),
    wrong.length ? "" : "nothing overdue, nothing in quarantine", wrong.length ? "bad" : "good"),
    tile(status.mode === "observe" ? "Cleaning would save" : "Reclaimable", h("b", { class: "big" }, `${isExact ? "" : "\u2248 "}${bytes(reclaim)}`),
      status.mode === "observe" ? `exact for ${count(shown.exact)} of ${plural(shown.number, "partition")}` : `${bytes(shown.dirty)} dirty in ${plural(shown.number, "partition")}`),
    tile("Reclaimed", h("b", { class: "big" }, bytes(saved)),
      `${shown.before ? `${percent(saved / shown.before)} of ${bytes(shown.before)}` : "nothing cleaned"} since the start`),
    tile("Cleanings", h("b", { class: "big" }, count(cleanings)),
      [`${shown.cleaning} running`, `${count(shown.queued)} queued`, shown.staged ? `${shown.staged} staged` : "", ...shown.others.map(([outcome, number]) => `${count(number)} ${outcome}`)].filter(Boolean).join(", ")),
    tile("Records removed", h("b", { class: "big" }, shortCount(removedSum)),
      removed.filter(([, number]) => number).slice(0, 2).map(([reason, number]) => `${shortCount(number)} ${reason}`).join(", ") || "since the start"),
    shown.erasures.length ? erasureTile(shown.erasures) : null,
  ]);
}

function erasureTile(erasures) {
  const next = erasures.reduce((first, each) => (each.deadline_ms < first.deadline_ms ? each : first));
  const ready = erasures.filter((each) => each.stages.length && each.stages.every(({ stage }) => stage === "certify")).length;
  return tile("Open erasures", h("b", { class: "big" }, count(erasures.length)),
    ["the next in ", next.topic, " by ", time(next.deadline_ms), ready ? `; ${count(ready)} to certify` : ""]);
}

function tile(name, value, words, kind) {
  return h("div", { class: `tile ${kind ?? ""}` }, h("h2", {}, name), value, h("p", {}, words));
}

/** Which machine this is: whoever has the pages of nine brokers open must not look at the wrong one. */
export function drawWhere(element, status) {
  const nodes = [...new Set(status.log_dirs.map((each) => each.node_id).filter((each) => each !== null && each !== undefined))];
  const kafka = [...new Set(status.log_dirs.map((each) => each.agent?.version).filter(Boolean))];
  redraw(element, [status.host, nodes, kafka, status.version], () => [
    status.host ? h("b", {}, status.host) : null,
    h("small", {}, [nodes.length ? `node ${nodes.join(", ")}` : "", kafka.length ? `Kafka ${kafka.join(", ")}` : "", `cleanerd ${status.version}`].filter(Boolean).join(" \u00b7 ")),
  ]);
}

export function drawChips(parent, status) {
  redraw(parent, [status.mode, status.ready, status.healthy, status.paused, status.window_open], () => [
    !status.healthy ? pill("unhealthy", "bad") : status.ready ? pill("ready", "good") : pill("starting", "warn"),
    pill(`mode: ${status.mode}`, status.mode === "observe" ? "warn" : "quiet"),
    status.paused ? pill("paused", "warn") : null,
    status.window_open ? null : pill("outside cleanerd.windows", "info"),
  ]);
}

export function drawNotices(parent, status) {
  const stale = status.last_scan_ms !== null && now() - status.last_scan_ms > Math.max(STALE_MS, 4 * status.scan_interval_ms);
  redraw(parent, [status.mode, status.healthy, status.unhealthy_reason, status.paused, status.warnings, stale, status.canary], () => [
    status.healthy ? null : notice("bad", `cleanerd cannot do its work: ${status.unhealthy_reason || "no reason known"}`),
    stale ? notice("bad", "The scheduler has not scanned the partitions since ", time(status.last_scan_ms), ".") : null,
    status.mode === "observe" ? notice("info", "Observe mode: cleanerd computes what cleaning would save and writes nothing. Set ", h("code", {}, "cleanerd.mode"), " to ", h("code", {}, "auto"), " to let it clean.") : null,
    isHeld(status) ? notice("bad", `The canary stopped all cleaning. ${status.canary.held_partition} in ${status.canary.held_log_dir}: ${status.canary.finding}. `,
      h("code", {}, "cleanerd retry"), " verifies it again, ", h("code", {}, "cleanerd resume --canary"), " continues.") : null,
    status.paused ? notice("warn", "Paused by an operator. ", h("code", {}, "cleanerd resume"), " starts cleaning again.") : null,
    status.warnings.length ? h("details", { class: "notice warn" },
      h("summary", { "data-focus": "warnings" }, plural(status.warnings.length, "warning")),
      h("ul", {}, status.warnings.map((each) => h("li", {}, each)))) : null,
  ]);
}

function notice(kind, ...children) {
  return h("p", { class: `notice ${kind}` }, ...children);
}

export function drawLooked(element, status) {
  const known = status.last_scan_ms !== null;
  redraw(element, status.last_scan_ms, () => (known ? ["scanned all logs ", time(status.last_scan_ms)] : ["first scan ..."]));
}

export function drawFooter(element, status) {
  redraw(element, [status.version, status.started_ms, status.threads, status.settings_generation], () => [
    `cleanerd ${status.version}, since `, time(status.started_ms), `, ${plural(status.threads, "worker")}, ${plural(status.settings_generation - 1, "reload")}. `,
    "The same data: ", h("a", { href: viewLink("status") }, "JSON"), " and ", h("a", { href: viewLink("metrics") }, "metrics"), ".",
  ]);
}

export function drawTabs(parent, views, view, status) {
  const numbers = status ? {
    "": status.partitions.length, running: status.running.length, history: status.history.length,
    quarantine: status.partitions.filter((each) => each.quarantine).length, "log-dirs": status.log_dirs.length,
  } : {};
  if (!parent.children.length) {
    parent.append(...views.map(([path, label]) => h("a", { href: viewLink(path), "data-inside": true, "data-view": path }, label, h("b"))));
    parent.append(h("a", { href: viewLink("cluster"), hidden: true }, "Cluster", h("b")));
  }
  parent.lastChild.hidden = !status?.has_peers;
  for (const link of parent.children) {
    const path = link.dataset.view;
    setAttribute(link, "aria-current", path === view || (view === "partition" && path === "") ? "page" : null);
    setText(link.lastChild, numbers[path] === undefined ? "" : count(numbers[path]));
    setAttribute(link.lastChild, "class", path === "quarantine" && numbers[path] ? "bad-text" : null);
  }
}
