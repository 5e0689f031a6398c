// The page: asks, routes, draws. Whatever the daemon tells is data, see dom.js.

import { h, setAttribute } from "./dom.js";
import { absolute, now, time } from "./format.js";
import { historyView } from "./cleanings.js";
import { partitionView } from "./partition.js";
import { partitionsView } from "./partitions.js";
import { logDirsView, quarantineView } from "./places.js";
import { Poller } from "./poll.js";
import { current, follow, viewLink, VIEWS } from "./route.js";
import { runningView } from "./running.js";
import { drawChips, drawFooter, drawLooked, drawNotices, drawSummary, drawTabs, drawWhere, trouble } from "./summary.js";
import { drawTrend } from "./trend.js";

const $ = (id) => document.getElementById(id);
const MAKERS = { "": partitionsView, running: runningView, history: historyView, quarantine: quarantineView, "log-dirs": logDirsView };

let status = null;
let shown = null;
let address = null;
let firstVersion = null;

function show({ moved = false } = {}) {
  const { view, partition } = current();
  address = location.href;
  shown?.close?.();
  const main = $("main");
  main.replaceChildren();
  document.body.dataset.view = view;
  $("summary").hidden = view === "partition";
  drawTrend($("trend"), status, view);
  shown = view === "partition" ? partitionView(main, arrive, partition) : MAKERS[view](main, arrive);
  drawTabs($("tabs"), VIEWS, view, status);
  if (status) shown.update(status);
  else main.append(h("p", { class: "loading" }, "Loading ..."));
  drawTitle();
  if (moved) main.focus({ preventScroll: true });
}

/** After a link or the browser's back button; a change of filter or sort alone is no arrival. */
function arrive() {
  if (location.href === address) return;
  show({ moved: true });
  scrollTo(0, 0);
}

function drawTitle() {
  const wrong = status ? trouble(status).reduce((all, [number]) => all + number, 0) : 0;
  document.title = `${wrong ? `(${wrong}) ` : ""}${shown.title} \u00b7 cleanerd`;
}

function onStatus(next) {
  const first = status === null;
  status = next;
  firstVersion ??= next.version;
  drawWhere($("where"), next);
  drawChips($("chips"), next);
  drawNotices($("notices"), next);
  drawSummary($("summary"), next);
  drawTrend($("trend"), next, current().view);
  drawTabs($("tabs"), VIEWS, current().view, next);
  drawLooked($("looked"), next);
  drawFooter($("footer"), next);
  if (first) show();
  else shown.update(next);
  drawTitle();
}

function onAlive() {
  document.body.classList.remove("lost");
  const updated = firstVersion !== null && status.version !== firstVersion;
  const banner = $("banner");
  banner.hidden = !updated;
  banner.className = "banner info";
  if (updated && !banner.firstChild?.dataset?.reload) {
    banner.replaceChildren(h("button", { type: "button", "data-reload": true, on: { click: () => location.reload() } }, "Reload"), ` cleanerd is now ${status.version}: this page is of ${firstVersion}.`);
  }
}

let lostAt = null;

function onLost(reason, nextMs) {
  const banner = $("banner");
  if (banner.hidden || !document.body.classList.contains("lost")) {
    lostAt = now();
    const again = h("button", { type: "button", on: { click: () => poller.ask() } }, "Try now");
    banner.className = "banner bad";
    banner.replaceChildren(
      h("strong", {}, "cleanerd does not answer"), h("span"), again,
      h("p", {}, status ? `What you see below is from ${absolute(status.made_ms)}. ` : "", "On its host: ", h("code", {}, "systemctl status cleanerd"), ", ", h("code", {}, "journalctl -u cleanerd"), "."));
    banner.hidden = false;
    document.body.classList.add("lost");
  }
  banner.children[1].replaceChildren(`: ${reason}. Lost `, time(lostAt), "; tried again ", time(now() + nextMs), ". ");
}

function themes() {
  const button = $("theme");
  const system = matchMedia("(prefers-color-scheme: dark)");
  const isDark = () => (document.documentElement.dataset.theme ?? (system.matches ? "dark" : "light")) === "dark";
  const draw = () => {
    setAttribute(button, "aria-label", isDark() ? "Switch to the light theme" : "Switch to the dark theme");
    setAttribute(button, "title", button.getAttribute("aria-label"));
    button.firstElementChild.textContent = isDark() ? "\u2600" : "\u263e";
  };
  button.addEventListener("click", () => {
    const wanted = isDark() ? "light" : "dark";
    const asSystem = (system.matches ? "dark" : "light") === wanted;
    if (asSystem) delete document.documentElement.dataset.theme;
    else document.documentElement.dataset.theme = wanted;
    try {
      if (asSystem) localStorage.removeItem("cleanerd.theme");
      else localStorage.setItem("cleanerd.theme", wanted);
    } catch {
      // Not remembered, then.
    }
    draw();
  });
  system.addEventListener("change", draw);
  draw();
}

document.addEventListener("keydown", (event) => {
  const typing = event.target.closest("input, select, textarea");
  if (event.key === "/" && !typing && !event.ctrlKey && !event.metaKey && !event.altKey) {
    event.preventDefault();
    shown?.focusFilter?.();
  } else if (event.key === "Escape" && typing && event.target.id === "filter" && event.target.value) {
    event.target.value = "";
    event.target.dispatchEvent(new Event("input"));
  }
});

$("skip").addEventListener("click", (event) => {
  event.preventDefault();
  $("main").focus();
});
$("home").href = viewLink("");
$("home").dataset.inside = "";

const poller = new Poller({ onStatus, onAlive, onLost });
themes();
follow(arrive);
show();
poller.ask();
