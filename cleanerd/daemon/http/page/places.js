// Quarantine and log directories: few things, shown in full.

import { bar, card, command, facts, h, pill, redraw } from "./dom.js";
import { bytes, count, percent, plural, time } from "./format.js";
import { partitionLink, viewLink } from "./route.js";

export function quarantineView(container) {
  const list = h("div", { class: "cards wide" });
  container.append(list);
  return {
    title: "Quarantine",
    update(status) {
      const held = status.partitions.filter((each) => each.quarantine)
        .sort((a, b) => b.quarantine.since_ms - a.quarantine.since_ms);
      redraw(list, held.map((each) => [each.topic, each.partition, each.log_dir, each.quarantine]), () => (
        held.length ? held.map(quarantineCard) : h("div", { class: "empty" },
          h("p", {}, h("b", {}, "Nothing in quarantine.")),
          h("p", {}, "A partition is listed here after an error in its bytes or on its disk. Its files are not changed, and it is tried again later. The other partitions are cleaned."))
      ));
    },
  };
}

export function quarantineCard(partition) {
  const name = `${partition.topic}-${partition.partition}`;
  const held = partition.quarantine;
  return h("article", { class: "card bad-edge" },
    h("div", { class: "run-head" },
      h("a", { href: partitionLink(partition.topic, partition.partition), "data-inside": true, "data-focus": name }, name), pill("quarantined")),
    h("p", { class: "reason" }, held.reason),
    facts([
      ["Since", time(held.since_ms)],
      ["Failures", count(held.failures)],
      ["Tried again", held.retry_at_ms === null ? "only by cleanerd retry" : time(held.retry_at_ms)],
      ["Log directory", partition.log_dir],
      ["What is damaged", command(`cleanerd verify ${partition.log_dir}/${name}`)],
      ["Cause gone", command(`cleanerd retry ${name}`)],
    ]));
}

export function logDirsView(container) {
  const list = h("div", { class: "cards wide" });
  container.append(list);
  return {
    title: "Log directories",
    update(status) {
      const sums = new Map(status.log_dirs.map((each) => [each.path, { number: 0, dirty: 0, reclaim: 0 }]));
      for (const each of status.partitions) {
        const sum = sums.get(each.log_dir);
        if (!sum) continue;
        sum.number += 1;
        sum.dirty += each.dirty_bytes ?? 0;
        sum.reclaim += each.reclaimable_bytes ?? 0;
      }
      redraw(list, [status.log_dirs, [...sums.values()]], () => (
        status.log_dirs.length ? status.log_dirs.map((each) => logDirCard(each, sums.get(each.path)))
          : h("div", { class: "empty" }, h("p", {}, "No log directory is configured."))
      ));
    },
  };
}

function logDirCard(logDir, sum) {
  const used = logDir.total_bytes - logDir.free_bytes;
  const low = logDir.online && logDir.free_bytes < logDir.reserve_bytes;
  const disk = bar(low ? "disk low" : "disk");
  disk.set(logDir.total_bytes ? used / logDir.total_bytes : 0);
  const mark = h("s");
  mark.style.left = `${logDir.total_bytes ? (1 - logDir.reserve_bytes / logDir.total_bytes) * 100 : 100}%`;
  disk.element.append(mark);
  const state = !logDir.online ? pill("offline", "bad") : low ? pill("below the reserve", "bad") : pill(logDir.mode, logDir.mode === "live" ? "good" : "info");
  return h("article", { class: `card ${!logDir.online || low ? "bad-edge" : ""}` },
    h("div", { class: "run-head" }, h("span", { class: "mono" }, logDir.path), state),
    logDir.error ? h("p", { class: "reason" }, logDir.error) : null,
    disk.element,
    facts([
      ["Free", logDir.online ? `${bytes(logDir.free_bytes)} of ${bytes(logDir.total_bytes)} (${percent(logDir.total_bytes ? logDir.free_bytes / logDir.total_bytes : 0)})` : "not known"],
      ["Kept free", bytes(logDir.reserve_bytes)],
      ["Mode", logDir.mode_reason ? `${logDir.mode} (${logDir.mode_reason})` : logDir.mode],
      ["Partitions", h("a", { href: viewLink("", { q: logDir.path }), "data-inside": true, "data-focus": logDir.path }, plural(sum.number, "partition"))],
      ["Dirty", bytes(sum.dirty)],
      ["Reclaimable", bytes(sum.reclaim)],
      ["Kafka's cleaner", logDir.kafka_cleaner],
      ...agentFacts(logDir.agent),
    ]));
}

const SELF_TESTS = {
  passed: "passed: it swapped segments in a test log before the first one of the broker",
  failed: "FAILED: the broker is not cleaned live", not_run: "could not be run",
};

/** What the agent says of itself, for people; an agent of another release says what it says. */
function agentFacts(agent) {
  if (!agent) return [["Agent", "none in the broker"]];
  const kafka = agent.version ? `Kafka ${agent.version}` : "Kafka of unknown release";
  const cannot = agent.why_incapable || (agent.missing ?? []).join(", ") || "this broker does not fit";
  const held = agent.pauses ?? [];
  return [
    ["Agent", [kafka, agent.java ? `Java ${agent.java}` : "", agent.pid ? `process ${agent.pid}` : ""].filter(Boolean).join(", ")],
    ["State", agent.capable === false ? `cannot swap: ${cannot}` : agent.ready === false ? "swaps as soon as the broker has started" : agent.accepting_swaps === false ? "does not swap until the broker is restarted: see errors" : "swaps segments while the broker runs"],
    ["Self-test", agent.self_test ? `${SELF_TESTS[agent.self_test] ?? agent.self_test}${agent.self_test_detail ? ` (${agent.self_test_detail})` : ""}` : ""],
    ["Swaps", agent.swaps === undefined ? "" : `${plural(agent.swaps, "segment group")} since it was loaded`],
    ["Paused", held.length ? `Kafka's cleaner for ${held.slice(0, 5).join(", ")}${held.length > 5 ? ` and ${held.length - 5} more` : ""}` : ""],
    ["Errors", (agent.errors ?? []).join("; ")],
    ["Build", agent.build],
  ];
}
