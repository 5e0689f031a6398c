// A table of thousands of rows, of which only those in sight are in the document. Rows have one height, set by CSS.

import { h, setAttribute } from "./dom.js";
import { go } from "./route.js";

const OVERSCAN = 14;

/**
 * `columns`: [{id, label, title, class, sortable, make(cell) -> update(row)}]; `key(row)`; `link(row)` or null;
 * `onSort(id)`. A row that stays in sight keeps its elements, and with them focus and selection.
 */
export class Table {
  #rows = [];
  #shown = new Map();
  #frame = 0;

  constructor({ label, columns, key, link, onSort, onOpen, kind }) {
    this.columns = columns;
    this.key = key;
    this.link = link;
    this.onOpen = onOpen;
    this.heads = new Map(columns.map((column) => [column.id, this.#head(column, onSort)]));
    this.above = h("tr", { class: "spacer", "aria-hidden": "true" }, h("td"));
    this.below = h("tr", { class: "spacer", "aria-hidden": "true" }, h("td"));
    this.body = h("tbody", { role: "rowgroup" }, this.above, this.below);
    this.element = h("table", { class: `rows ${kind}`, role: "table", "aria-label": label },
      h("colgroup", {}, columns.map((column) => h("col", { class: column.class }))),
      h("thead", { role: "rowgroup" }, h("tr", { role: "row", "aria-rowindex": 1 }, [...this.heads.values()])),
      this.body);
    this.body.addEventListener("keydown", (event) => this.#walk(event));
    this.body.addEventListener("click", (event) => this.#open(event));
    this.schedule = () => { this.#frame ||= requestAnimationFrame(() => { this.#frame = 0; this.draw(); }); };
    addEventListener("scroll", this.schedule, { passive: true });
    addEventListener("resize", this.schedule);
  }

  /** No more drawing: the view has gone. */
  close() {
    removeEventListener("scroll", this.schedule);
    removeEventListener("resize", this.schedule);
    cancelAnimationFrame(this.#frame);
  }

  setRows(rows) {
    this.#rows = rows;
    setAttribute(this.element, "aria-rowcount", rows.length + 1);
    this.draw();
  }

  /** Arrow and aria-sort of the column that is sorted by; none for an order without a column. */
  setSort(id, descending) {
    for (const [column, head] of this.heads) {
      setAttribute(head, "aria-sort", column === id ? (descending ? "descending" : "ascending") : null);
    }
  }

  draw() {
    if (!this.element.isConnected) return;
    const height = parseFloat(getComputedStyle(this.element).getPropertyValue("--row")) || 44;
    const top = this.above.getBoundingClientRect().top;
    const fits = Math.ceil(innerHeight / height);
    const first = Math.max(0, Math.min(this.#rows.length - fits, Math.floor(-top / height)) - OVERSCAN);
    const last = Math.min(this.#rows.length, Math.max(0, first) + fits + 2 * OVERSCAN);
    const before = this.#shown;
    const wanted = this.#rows.slice(first, last).map((row) => ({ row, key: this.key(row) }));
    this.#shown = new Map();
    for (const { key } of wanted) {
      if (!before.has(key)) continue;
      this.#shown.set(key, before.get(key));
      before.delete(key);
    }
    // Elements of rows that went out of sight take up those that came in: making new ones is what would take time.
    const spare = [...before].filter(([, { element }]) => !element.contains(document.activeElement));
    const elements = wanted.map(({ row, key }, index) => {
      if (!this.#shown.has(key)) {
        const [gone, shown] = spare.pop() ?? [null, this.#make()];
        before.delete(gone);
        shown.element.remove(); // it stands where its old row stood
        this.#shown.set(key, shown);
      }
      const shown = this.#shown.get(key);
      shown.update(row, first + index);
      return shown.element;
    });
    this.#place(elements, before);
    this.above.firstChild.style.height = `${first * height}px`;
    this.below.firstChild.style.height = `${Math.max(0, this.#rows.length - last) * height}px`;
  }

  #place(elements, gone) {
    for (const { element } of gone.values()) {
      // The row that has the focus waits until the focus moves on: it would be lost to the whole document.
      if (element.contains(document.activeElement)) document.activeElement.blur();
      element.remove();
    }
    const focused = document.activeElement;
    let at = this.above;
    for (const element of elements) {
      if (at.nextSibling !== element) at.after(element);
      at = element;
    }
    // An element that is moved loses the focus.
    if (focused !== document.activeElement && this.body.contains(focused)) focused.focus({ preventScroll: true });
  }

  #head(column, onSort) {
    const inside = column.sortable === false
      ? column.label
      : h("button", { type: "button", on: { click: () => onSort(column.id) } }, column.label, h("span", { class: "arrow", "aria-hidden": "true" }));
    return h("th", { role: "columnheader", scope: "col", class: column.class, title: column.title }, inside);
  }

  #make() {
    const updates = [];
    const cells = this.columns.map((column) => {
      const cell = h("td", { role: "cell", class: column.class });
      updates.push(column.make(cell));
      return cell;
    });
    const element = h("tr", { role: "row" }, cells);
    return {
      element,
      update: (row, index) => {
        element.row = row;
        setAttribute(element, "aria-rowindex", index + 2);
        for (const update of updates) update(row);
      },
    };
  }

  #walk(event) {
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    const row = event.target.closest("tr");
    if (!step || !row || event.target.tagName !== "A") return;
    const next = step > 0 ? row.nextElementSibling : row.previousElementSibling;
    const link = next?.querySelector("a");
    if (!link) return;
    event.preventDefault();
    link.focus();
    next.scrollIntoView({ block: "nearest" });
  }

  #open(event) {
    const row = event.target.closest("tr")?.row;
    if (!row || !this.link || event.target.closest("a, button") || String(getSelection())) return;
    go(this.link(row));
    this.onOpen?.();
  }
}
