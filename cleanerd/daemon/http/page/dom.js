// Elements from data that nobody vouches for: everything becomes text, nothing becomes markup.

/** An element. `props`: attributes, `class`, `on: {event: listener}`; null and false leave an attribute out. */
export function h(tag, props, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(props ?? {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name === "on") {
      for (const [event, listener] of Object.entries(value)) element.addEventListener(event, listener);
    } else {
      element.setAttribute(name, value === true ? "" : String(value));
    }
  }
  element.append(...children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false));
  return element;
}

/** Sets text only where it changes, so that a selection survives an update. */
export function setText(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

export function setAttribute(element, name, value) {
  if (value === null || value === undefined) element.removeAttribute(name);
  else if (element.getAttribute(name) !== String(value)) element.setAttribute(name, String(value));
}

/** Puts `make(...)` into `parent` when `facts` are others than last time. */
export function redraw(parent, facts, make) {
  const text = JSON.stringify(facts);
  if (parent.drawnFrom === text) return;
  parent.drawnFrom = text;
  const focused = parent.contains(document.activeElement) ? document.activeElement.dataset.focus : null;
  parent.replaceChildren(...[make()].flat(Infinity).filter(Boolean));
  if (focused) parent.querySelector(`[data-focus="${CSS.escape(focused)}"]`)?.focus();
}

const KINDS = {
  cleaning: "busy", queued: "info", staged: "info", paused: "warn", refused: "bad", quarantined: "bad", excluded: "quiet", idle: "quiet",
  cleaned: "good", unchanged: "quiet", skipped: "quiet", failed: "bad", overdue: "warn", undelegated: "bad",
};

/** A small label; its colour only repeats what its word says. */
export function pill(word, kind) {
  return h("span", { class: `pill ${kind ?? KINDS[word] ?? "quiet"}` }, word);
}

export function setPill(element, word, kind) {
  setText(element, word);
  setAttribute(element, "class", `pill ${kind ?? KINDS[word] ?? "quiet"}`);
}

/** A bar of `ratio`; the number beside it is what counts, so it is hidden from readers of the text. */
export function bar(kind) {
  const fill = h("i");
  const element = h("span", { class: `bar ${kind ?? ""}`, "aria-hidden": "true" }, fill);
  return { element, set: (ratio) => { fill.style.width = `${Math.max(0, Math.min(1, ratio || 0)) * 100}%`; } };
}

/** Names and values. Values are text or elements; those without a value are left out. */
export function facts(pairs) {
  const shown = pairs.filter(([, value]) => value !== null && value !== undefined && value !== "");
  return h("dl", { class: "facts" }, shown.map(([name, value]) => h("div", {}, h("dt", {}, name), h("dd", {}, value))));
}

export function card(title, ...children) {
  return h("section", { class: "card" }, title && h("h2", {}, title), ...children);
}

export function command(text) {
  return h("code", { class: "command", tabindex: "0", title: "what to type on this host" }, text);
}
