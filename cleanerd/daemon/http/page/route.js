// Where we are, as an address: everything that somebody may want to send to a colleague is in it.

const root = new URL("../", import.meta.url);

export const VIEWS = [
  ["", "Partitions"], ["running", "Running"], ["history", "History"], ["quarantine", "Quarantine"],
  ["log-dirs", "Log directories"],
];

/** The address of a file or answer of the daemon, wherever a proxy has put it. */
export function at(path) {
  return new URL(path, root).href;
}

export function partitionLink(topic, partition) {
  return at(`partition/${encodeURIComponent(`${topic}-${partition}`)}`);
}

export function viewLink(view, query = {}) {
  const url = new URL(view, root);
  for (const [name, value] of Object.entries(query)) if (value) url.searchParams.set(name, value);
  return url.href;
}

/** {view, partition, query}; what is no address of ours counts as the list of partitions. */
export function current() {
  const path = location.pathname.slice(root.pathname.length);
  const query = Object.fromEntries(new URLSearchParams(location.search));
  if (path.startsWith("partition/")) {
    try {
      return { view: "partition", partition: decodeURIComponent(path.slice("partition/".length)), query };
    } catch {
      return { view: "", query };
    }
  }
  return { view: VIEWS.some(([view]) => view === path) ? path : "", query };
}

/** Changes filter or sort in the address, without a new entry in the browser's history. */
export function keep(changes) {
  const url = new URL(location.href);
  for (const [name, value] of Object.entries(changes)) {
    if (value) url.searchParams.set(name, value);
    else url.searchParams.delete(name);
  }
  history.replaceState(history.state, "", url);
}

/** Calls `moved` when a link of this page was followed, or the browser went back. */
export function follow(moved) {
  document.addEventListener("click", (event) => {
    const link = event.target.closest?.("a[href]");
    if (!link || event.defaultPrevented || event.button !== 0) return;
    if (event.metaKey || event.ctrlKey || event.shiftKey || event.altKey || link.target) return;
    const url = new URL(link.href);
    if (url.origin !== root.origin || !url.pathname.startsWith(root.pathname) || !("inside" in link.dataset)) return;
    event.preventDefault();
    go(url.href);
    moved();
  });
  addEventListener("popstate", moved);
}

/** A new entry that knows which view it was reached from. */
export function go(href) {
  if (href !== location.href) history.pushState({ from: current().view }, "", href);
}
