// Asks for /status again and again: every 2 s while somebody looks, seldom while nobody does, patiently while nobody answers.

import { learnClock } from "./format.js";
import { at } from "./route.js";

const SEEN_MS = 2000;
const HIDDEN_MS = 30000;
const LONGEST_MS = 30000;
const ANSWER_MS = 10000;
/** An event of the window: the page shows something older than another answer, so the status is read at once. */
export const STALE = "stale-status";

export class Poller {
  #etag = null;
  #failures = 0;
  #timer = null;
  #asking = false;

  /** `onStatus(document)`, `onAlive()` when it is unchanged, `onLost(reason, nextMs)`. */
  constructor({ onStatus, onAlive, onLost }) {
    this.onStatus = onStatus;
    this.onAlive = onAlive;
    this.onLost = onLost;
    document.addEventListener("visibilitychange", () => {
      if (!document.hidden) this.ask();
    });
    for (const event of ["online", STALE]) addEventListener(event, () => this.ask());
  }

  async ask() {
    if (this.#asking) return;
    this.#asking = true;
    clearTimeout(this.#timer);
    try {
      const headers = this.#etag ? { "If-None-Match": this.#etag } : {};
      const answer = await fetch(at("status"), { headers, cache: "no-store", signal: AbortSignal.timeout(ANSWER_MS) });
      learnClock(answer.headers.get("Date"));
      if (answer.status !== 304) {
        if (!answer.ok) throw new Error(`it answers ${answer.status}`);
        const status = await answer.json();
        this.#etag = answer.headers.get("ETag");
        this.onStatus(status);
      }
      this.#failures = 0;
      this.onAlive();
    } catch (error) {
      this.#failures += 1;
      this.onLost(reasonOf(error), this.#wait());
    } finally {
      this.#asking = false;
      this.#timer = setTimeout(() => this.ask(), this.#wait());
    }
  }

  #wait() {
    const patience = this.#failures ? Math.min(LONGEST_MS, SEEN_MS * 2 ** (this.#failures - 1)) : SEEN_MS;
    return document.hidden ? Math.max(HIDDEN_MS, patience) : patience;
  }
}

function reasonOf(error) {
  if (error.name === "TimeoutError") return "no answer within 10 s";
  if (error instanceof TypeError) return "no connection";
  return error.message;
}
